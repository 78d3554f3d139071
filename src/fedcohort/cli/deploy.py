"""``fedcohort deploy`` and ``fedcohort site``: write a Flower app, and serve the data of a site."""

import click

from fedcohort.cli.output import echo
from fedcohort.cli.watch_runs import messages

__all__ = ["deploy", "site"]


@click.group()
def deploy() -> None:
    """Play an experiment with the sites of a Flower federation."""


@deploy.command("new")
@click.argument("folder")
@click.option("--sites", default=3, show_default=True, help="Number of site files to write.")
@click.option("--address", default="127.0.0.1:8000", show_default=True, help="HOST:PORT of the SuperLink.")
def new(folder: str, sites: int, address: str) -> None:
    """Write a Flower app into FOLDER, which must be empty.

    It has a server, a client, a file for each site and a README, and runs as it is on embedded data.
    """
    _check_flower()
    from fedcohort.flower.new_app import new_app

    paths = new_app(folder, sites=sites, address=address)
    echo(f"wrote {len(paths)} files; {folder}/README.md says how to start them")


@click.group()
def site() -> None:
    """Serve the data of a data owner."""


@site.command("serve")
@click.argument("file")
@click.option("--insecure", is_flag=True, help="Connect without TLS and without a key; only to this machine.")
def serve(file: str, insecure: bool) -> None:
    """Answer the server's requests with a site's data.

    FILE is a site.toml. The command answers until the process is ended, and also runs the SuperNode that connects to the server. It
    prints one line for each request: what was answered, and what is left of the budget.
    """
    _check_flower()
    from fedcohort.flower.sites.serve import serve_site

    with messages(times=True):
        code = serve_site(file, insecure=insecure)
    if code:
        raise SystemExit(code)


def _check_flower() -> None:
    """Refuse to go on without Flower.

    Raises:
        UsageError: it is not installed.
    """
    from importlib.util import find_spec

    from fedcohort.core.errors import UsageError

    if find_spec("flwr") is None:
        raise UsageError("flwr: is not installed; run pip install 'fedcohort[flower]'")
