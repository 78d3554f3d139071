"""``fedcohort measures``, ``why`` and ``diagnose``: read run directories."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fedcohort.cli.json_schema import document
from fedcohort.cli.options import (
    client_option,
    conformal_option,
    data_dir_option,
    json_option,
    round_option,
    target_option,
    trust_option,
    with_options,
)
from fedcohort.cli.output import echo

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedcohort.record import Run
    from fedcohort.study.conformal_coverage import Conformal
    from fedcohort.study.summary import Summary

__all__ = ["diagnose", "measure", "why"]


@click.command("measures")
@click.argument("paths", nargs=-1, required=True, metavar="RUN…")
@with_options(target_option, conformal_option, data_dir_option, trust_option, json_option)
def measure(
    paths: tuple[str, ...],
    target: float | None,
    conformal: float | None,
    data_dir: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Show all metrics of runs.

    The metrics are accuracy by class and by client, the cost of reaching a target accuracy, fairness compared with chance, and
    stability. Runs that differ only in their seed become one column of means.
    """
    from pathlib import Path

    from fedcohort.core import formatted_values
    from fedcohort.record import open_run
    from fedcohort.report import terminal
    from fedcohort.study import conformal_coverage
    from fedcohort.study.summary import summaries as summarize

    runs = [open_run(path) for path in paths]
    summaries = summarize(runs, target)
    sets = (
        [conformal_coverage.conformal(run, conformal, data_dir=data_dir, trust=trust) for run in runs]
        if conformal is not None
        else []
    )
    if as_json:
        rows = [{"path": Path(path), **each.to_json()} for path, each in zip(paths, summaries, strict=True)]
        for row, own in zip(rows, sets, strict=False):
            row["conformal"] = own.to_json()
        echo(formatted_values.as_json(document("measures", {"runs": rows})))
    else:
        screen = terminal.screen()
        screen.print(_table(runs, summaries, sets, screen.width))


def _table(
    runs: "Sequence[Run]", summaries: "Sequence[Summary]", sets: "Sequence[Conformal]", width: int
) -> "RenderableType":
    """The table of all measures: means over the seeds of each row, or single runs if there are prediction sets."""
    from fedcohort.report import terminal
    from fedcohort.study.summary import over_seeds

    columns = _columns(runs, single=bool(sets))
    names = [f"{runs[own[0]].meta['label']}, {_seeds([runs[i] for i in own])}" for own in columns]
    means = [over_seeds([summaries[i] for i in own]) for own in columns]
    return terminal.summaries(names, means, sets, width)


def _columns(runs: "Sequence[Run]", *, single: bool) -> list[list[int]]:
    """The positions of the runs of each column: those that differ only in their seed, or single ones."""
    columns: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        same = columns.setdefault((run.meta["label"], str(i) if single else run.meta["row"]), [])
        again = run.meta["seed"] in [runs[j].meta["seed"] for j in same]
        (columns.setdefault((run.meta["label"], str(i)), []) if again else same).append(i)
    return list(columns.values())


def _seeds(runs: "Sequence[Run]") -> str:
    """The seeds of some runs in words."""
    seeds = sorted(int(run.meta["seed"]) for run in runs)
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"


@click.command()
@click.argument("path", metavar="RUN")
@with_options(round_option, client_option, json_option)
def why(path: str, round_: int, client: int | None, as_json: bool) -> None:
    """Explain why the clients of a round were selected.

    The explanation shows the candidates, their scores with all terms, what happened to the selected clients, and the questions to
    clients with their cost and what clients disclosed. RUN is a run directory, which is not changed.
    """
    from fedcohort.core import formatted_values
    from fedcohort.record import open_run
    from fedcohort.report import terminal
    from fedcohort.study.explain_decision import explain

    explanation = explain(open_run(path), round_, client)
    if as_json:
        echo(formatted_values.as_json(document("why", explanation.to_json())))
    else:
        screen = terminal.screen()
        screen.print(terminal.explanation(explanation, screen.width))


@click.command()
@click.argument("path", metavar="RUN")
@with_options(json_option)
def diagnose(path: str, as_json: bool) -> None:
    """Show whether a strategy's scores predict what happens.

    The scores of all decisions are compared with what the selected clients reported, with a greedy choice, and with uniform
    selection. RUN is a run directory, which is not changed.
    """
    from fedcohort.core import formatted_values
    from fedcohort.record import open_run
    from fedcohort.report import terminal
    from fedcohort.study import diagnose_run

    found = diagnose_run.diagnose(open_run(path))
    if as_json:
        echo(formatted_values.as_json(document("diagnose", found.to_json())))
    else:
        terminal.screen().print(terminal.diagnosis(found))
