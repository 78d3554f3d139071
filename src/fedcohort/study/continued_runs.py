"""How a run that is not finished goes on, in words."""

from shlex import quote

from fedcohort.record import Run

__all__ = ["how_to_go_on", "without_round"]


def how_to_go_on(run: Run) -> str:
    """How an unfinished run is continued, in words."""
    if given := run.meta.get("given"):
        return f"from Python, with the same {given}"
    trust = " --trust-plugins" if run.plug_in_files else ""
    file, folder = quote(str(run.path / "experiment.toml")), quote(str(run.path.parent))
    return f"with `fedcohort run {file} --runs {folder}{trust}`"


def without_round(run: Run) -> str:
    """That a run has nothing to measure yet, and how it goes on, in words."""
    return f"{run.path}: has no finished round yet; start it again {how_to_go_on(run)}"
