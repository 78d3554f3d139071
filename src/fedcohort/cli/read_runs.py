"""``fedcohort measures``, ``why`` and ``diagnose``: read run directories."""

import click

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
    stability. RUN is a run directory, which is not changed. Its plug-in files are run only with --conformal and --trust-plugins.
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
        for row, sets_of_run in zip(rows, sets, strict=False):
            row["conformal"] = sets_of_run.to_json()
        echo(formatted_values.as_json(rows))
    else:
        screen = terminal.screen()
        names = [f"{run.meta['label']}, seed {run.meta['seed']}" for run in runs]
        screen.print(terminal.summaries(names, summaries, sets, screen.width))


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
        echo(formatted_values.as_json(explanation.to_json()))
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
        echo(formatted_values.as_json(found.to_json()))
    else:
        terminal.screen().print(terminal.diagnosis(found))
