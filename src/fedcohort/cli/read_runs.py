"""``fedcohort measures``, ``why`` and ``diagnose``: read run directories."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import (
    client_option,
    conformal_option,
    data_dir_option,
    json_option,
    played_with_option,
    round_option,
    runs_option,
    target_option,
    trust_option,
    with_options,
)
from fedcohort.cli.output import echo

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedcohort.record import Run
    from fedcohort.study.conformal_coverage import Conformal
    from fedcohort.study.decisions.diagnose_run import Diagnosis
    from fedcohort.study.summary import Summary

__all__ = ["diagnose", "measure", "why"]


@click.command("measures")
@click.argument("paths", nargs=-1, metavar="[RUN…]")
@with_options(
    target_option, conformal_option, data_dir_option, trust_option, runs_option, played_with_option, json_option
)
def measure(
    paths: tuple[str, ...],
    runs: str,
    settings: tuple[str, ...],
    target: float | None,
    conformal: float | None,
    data_dir: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Show all metrics of runs.

    The metrics are accuracy by class and by client, the cost of reaching a target accuracy, fairness compared with chance, and
    stability. Runs that differ only in their seed are shown by their means, and one by one with --conformal. RUN is a run directory,
    a folder of run directories, or an experiment file with runs in --runs; without RUN, all runs in --runs are used.
    """
    from fedcohort.report import terminal
    from fedcohort.report.data.missing_runs import in_sentences
    from fedcohort.report.data.runs_on_disk import found_and_missing
    from fedcohort.study import conformal_coverage
    from fedcohort.study.summary import summaries as summarize

    all_found, missing, shared, _ = found_and_missing(paths, runs, settings)
    found = _with_rounds(all_found)
    summaries = summarize(found, target)
    sets = (
        [conformal_coverage.conformal(run, conformal, data_dir=data_dir, trust=trust) for run in found]
        if conformal is not None
        else []
    )
    if as_json:
        rows = [_named(run) | each.to_json() for run, each in zip(found, summaries, strict=True)]
        for row, own in zip(rows, sets, strict=False):
            row["conformal"] = own.to_json()
        print_document("measures", {"runs": rows, "missing": [one.to_json() for one in missing]})
    else:
        screen = terminal.screen()
        screen.print(_table(found, summaries, sets, screen.width, [in_sentences(missing), shared]))


def _with_rounds(runs: "Sequence[Run]") -> "Sequence[Run]":
    """The runs with a finished round; the others are named on standard error. All of them if none has one, which is an error.

    Raises:
        UsageError: two of them are the same run.
    """
    from fedcohort.study.compare_existing_runs import runs_by_row

    runs_by_row(runs)  # checks them
    played = [run for run in runs if run.last_round]
    if not played:
        return runs
    for run in runs:
        if not run.last_round:
            echo(f"fedcohort: {run.path}: left out, because no round is finished yet", err=True)
    return played


def _named(run: "Run") -> dict[str, object]:
    """The directory, the row and the seed of a run, and whether it is finished."""
    named = {"path": run.path, "label": run.meta["label"], "seed": int(run.meta["seed"])}
    return named | {"finished": run.finished, "planned_rounds": run.described.rounds}


def _table(
    runs: "Sequence[Run]", summaries: "Sequence[Summary]", sets: "Sequence[Conformal]", width: int, notes: Sequence[str]
) -> "RenderableType":
    """The table of all measures: means over the seeds of each row, or single runs if there are prediction sets.

    ``notes`` are about runs that have not begun, and rows that have none of their own; some can be empty.
    """
    from fedcohort.report import terminal
    from fedcohort.report.terminal.measures_notes import about_rows
    from fedcohort.study.comparison import Comparison, Row
    from fedcohort.study.rows.equal_labels import distinct_labels
    from fedcohort.study.summary import over_seeds

    columns = _columns(runs, single=bool(sets))
    labels_of_runs = distinct_labels(runs)
    labels = [labels_of_runs[own[0]] for own in columns]
    seeds = [_seeds([runs[i] for i in own]) for own in columns]
    same = len(columns) > 1 and len(set(seeds)) == 1 and len(set(labels)) == len(labels)
    names = labels if same else [f"{label}, {own}" for label, own in zip(labels, seeds, strict=True)]
    means = [over_seeds([summaries[i] for i in own]) for own in columns]
    rows = tuple(
        Row(name, runs[own[0]].described, {int(runs[i].meta["seed"]): runs[i] for i in own})
        for name, own in zip(names, columns, strict=True)
    )
    below = [*notes, *about_rows(Comparison("measures", rows))]
    return terminal.summaries(names, means, sets, width, seeds[0] if same else "", below)


def _columns(runs: "Sequence[Run]", *, single: bool) -> list[list[int]]:
    """The positions of the runs of each column: those that differ only in their seed, or single ones."""
    columns: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        columns.setdefault((run.meta["label"], str(i) if single else run.meta["row"]), []).append(i)
    return list(columns.values())


def _seeds(runs: "Sequence[Run]") -> str:
    """The seeds of some runs in words."""
    seeds = sorted(int(run.meta["seed"]) for run in runs)
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(seeds) == 2:
        return f"seeds {seeds[0]} and {seeds[1]}"
    if all(after - before == 1 for before, after in pairwise(seeds)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"


@click.command()
@click.argument("paths", metavar="RUN", nargs=-1, required=True)
@with_options(round_option, client_option, runs_option, played_with_option, json_option)
def why(
    paths: tuple[str, ...], round_: int, client: str | None, runs: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Explain why the clients of a round were selected.

    The explanation shows the candidates, their scores with all terms, what happened to the selected clients, and the questions to
    clients with their cost and what clients disclosed. RUN is a run directory, a folder with one run, or an experiment file with one
    run in --runs. The run is not changed.
    """
    from fedcohort.core.errors import UsageError
    from fedcohort.core.words import formatted_values
    from fedcohort.report import terminal
    from fedcohort.report.data.runs_on_disk import single_run
    from fedcohort.study.decisions.explain_decision import explain

    if len(paths) > 1:
        names = formatted_values.first_in_words(paths, 4, "more run")
        raise UsageError(f"RUN: these are {len(paths)} runs; give one of them: {names}")
    explanation = explain(single_run(paths[0], runs, settings), round_, client)
    if as_json:
        print_document("why", explanation.to_json())
    else:
        screen = terminal.screen()
        screen.print(terminal.explanation(explanation, screen.width))


@click.command()
@click.argument("paths", nargs=-1, metavar="[RUN…]")
@with_options(runs_option, played_with_option, json_option)
def diagnose(paths: tuple[str, ...], runs: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Show whether a strategy's scores predict what happens.

    The scores of all decisions are compared with what the selected clients reported, with a greedy choice, and with uniform
    selection. RUN is a run directory, a folder of run directories, or an experiment file with runs in --runs; without RUN, all runs
    in --runs are used. Several runs become one table of means over seeds. Runs are not changed.
    """
    from fedcohort.report import terminal
    from fedcohort.report.data.missing_runs import in_sentences
    from fedcohort.report.data.runs_on_disk import found_and_missing
    from fedcohort.report.terminal.layout import dimmed
    from fedcohort.study.decisions import diagnose_run

    all_found, missing, shared, _ = found_and_missing(paths, runs, settings)
    found = _with_rounds(all_found)
    each = [diagnose_run.diagnose(run) for run in found]
    if as_json:
        rows = [_named(run) | one.to_json() for run, one in zip(found, each, strict=True)]
        print_document("diagnose", {"runs": rows, "missing": [one.to_json() for one in missing]})
        return
    screen = terminal.screen()
    for part in (_diagnoses(found, each, screen.width), *dimmed(in_sentences(missing), shared)):
        screen.print(part)


def _diagnoses(runs: "Sequence[Run]", each: "Sequence[Diagnosis]", width: int) -> "RenderableType":
    """The diagnosis of one run, or a table of the rows of several runs."""
    from fedcohort.report import terminal
    from fedcohort.study.decisions import diagnose_run
    from fedcohort.study.rows.equal_labels import distinct_labels

    if len(each) == 1:
        return terminal.diagnosis(each[0], width)
    rows_of, labels = _columns(runs, single=False), distinct_labels(runs)
    means = [replace(diagnose_run.over_seeds([each[i] for i in own]), label=labels[own[0]]) for own in rows_of]
    return terminal.diagnoses(means, [_seeds([runs[i] for i in own]) for own in rows_of], width)
