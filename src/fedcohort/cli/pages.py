"""``fedcohort report``, ``figures``, ``live`` and ``profile``: pages and charts, and the measurement of mini-batch sizes."""

import shlex
import sys
from pathlib import Path

import click

from fedcohort.cli.options import data_dir_option, json_option, page_name, played_with_option, runs_option, set_option
from fedcohort.core.errors import UsageError

__all__ = ["figures", "live", "profile", "report"]


@click.command()
@click.argument("paths", nargs=-1, metavar="[RUN…]")
@click.option(
    "--output",
    "-o",
    default="report.html",
    show_default=True,
    metavar="FILE.html",
    callback=page_name,
    help="The page.",
)
@runs_option
@played_with_option
def report(paths: tuple[str, ...], output: str, runs: str, settings: tuple[str, ...]) -> None:
    """Write one page about runs: who won, why, and at what cost.

    The page is one file that opens anywhere, without a network. RUN is a run directory, a folder of them, or an experiment file, whose
    runs are looked for in --runs; without RUN all runs of --runs. Runs may still be going on.
    """
    from fedcohort.report.gather import find_runs, gather
    from fedcohort.report.page import page
    from fedcohort.report.pictures import write

    command = "fedcohort " + shlex.join(sys.argv[1:]) if Path(sys.argv[0]).name == "fedcohort" else None
    text = page(gather(find_runs(paths, runs, settings)), command=command)
    write(output, text)


@click.command()
@click.argument("paths", nargs=-1, metavar="[RUN…]")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["pdf", "svg", "png"]),
    default="pdf",
    show_default=True,
    help="Of the files.",
)
@click.option("--out", default="figures", show_default=True, metavar="DIR", help="Folder of the files.")
@click.option(
    "--columns",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="Columns of the paper that a figure spans.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Only this figure, such as accuracy; repeatable.")
@runs_option
@played_with_option
def figures(
    paths: tuple[str, ...],
    format_: str,
    out: str,
    columns: int,
    only: tuple[str, ...],
    runs: str,
    settings: tuple[str, ...],
) -> None:
    """Write every chart of the report as a file for papers.

    RUN is as for `fedcohort report`, or a JSON file that `fedcohort profile --json` wrote, for the charts of batch sizes. Files have
    the width of one or two columns, dashes and symbols besides colours, black letters.
    """
    from fedcohort.core.errors import nearest
    from fedcohort.report.export import export
    from fedcohort.report.gather import find_runs, gather
    from fedcohort.report.look import paper
    from fedcohort.report.sections import figures as all_figures

    look = paper(columns)
    measured = [path for path in paths if Path(path).suffix.lower() == ".json"]
    if len(measured) > 1:
        raise UsageError(f"{', '.join(measured)}: one profile at a time; their figures have the same names")
    rest = [path for path in paths if path not in measured]
    found = list(all_figures(gather(find_runs(rest, runs, settings)), look)) if rest or not measured else []
    if measured:
        from fedcohort.report.charts.profiles import profiles
        from fedcohort.study.profiling import Profile

        found += profiles(Profile.load(measured[0]), look)
    keys = [figure.key for figure in found]
    for name in only:
        if name not in keys:
            raise UsageError(f"--only {name!r}: these runs have no such figure; {nearest(name, keys)}")
    for file in export([f for f in found if not only or f.key in only], Path(out), format_, look):
        click.echo(str(file))


@click.command()
@runs_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Of the address; 0 is any.  [default: 8765 or the next free]",
)
@click.option("--name", metavar="NAME", help="Show this experiment first.  [default: the one with the latest news]")
@click.option("--until-closed", is_flag=True, hidden=True)
def live(runs: str, port: int | None, name: str | None, until_closed: bool) -> None:
    """Serve the report of runs that are still going on.

    The page follows the runs by itself. It can be reached from this machine only, and nothing is written. Ctrl-C ends it.
    """
    import threading

    from fedcohort.report.live import serve

    server = serve(runs, port, name)
    click.echo(f"http://127.0.0.1:{server.server_port}/")
    sys.stdout.flush()

    def until_input_ends() -> None:
        sys.stdin.read()
        server.shutdown()

    if until_closed:  # the run that started this has ended when nothing more can be read
        threading.Thread(target=until_input_ends, daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


@click.command()
@click.argument("file", required=False)
@click.option(
    "--batch-size",
    "sizes",
    type=int,
    multiple=True,
    metavar="B",
    help="A size to measure; repeatable.  [default: 8, 16, 32, 64]",
)
@click.option(
    "--rounds", type=int, default=3, show_default=True, metavar="N", help="Rounds played for the accuracy; 0 for none."
)
@click.option(
    "--seconds",
    type=float,
    default=20.0,
    show_default=True,
    metavar="S",
    help="Time for the passes of one size at most.",
)
@click.option(
    "--precision",
    type=float,
    default=0.05,
    show_default=True,
    metavar="P",
    help="Interval that is tight enough, as a share.",
)
@click.option("--output", "-o", metavar="FILE.html", callback=page_name, help="Also write a page with charts.")
@set_option
@data_dir_option
@json_option
def profile(
    file: str | None,
    sizes: tuple[int, ...],
    rounds: int,
    seconds: float,
    precision: float,
    output: str | None,
    settings: tuple[str, ...],
    data_dir: str | None,
    as_json: bool,
) -> None:
    """Measure mini-batch sizes on this machine, and recommend one.

    FILE is an experiment in TOML; without it the quickstart is measured. Every size is measured in a fresh process: time of a
    mini-batch of each client, samples per second, peak memory, and the accuracy after a few rounds.
    """
    from fedcohort.core import words
    from fedcohort.experiment import Experiment, load, parse_overrides
    from fedcohort.report import terminal
    from fedcohort.study.profiling import SIZES
    from fedcohort.study.profiling import profile as measure

    experiment = load(file, settings) if file is not None else Experiment().with_overrides(parse_overrides(settings))
    found = measure(
        experiment, sizes=sizes or SIZES, rounds=rounds, seconds=seconds, precision=precision, data_dir=data_dir,
        progress=lambda size: click.echo(f"batch size {size} …", err=True),
    )  # fmt: skip
    if as_json:
        click.echo(words.as_json(found.to_json()))
    else:
        screen = terminal.screen()
        screen.print(terminal.profile(found, screen.width))
    if output is not None:
        from fedcohort.report.charts.profiles import profiles
        from fedcohort.report.look import PAGE
        from fedcohort.report.page import gallery
        from fedcohort.report.pictures import write

        sentences = [f"{one.batch_size} by {one.rule}: {one.reason}." for one in found.recommendations]
        write(output, gallery("Batch sizes", found.name, sentences, profiles(found, PAGE)), quiet=as_json)
