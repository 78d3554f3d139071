"""Pictures of a federation before any training, and how pages are written to files."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedcohort.core import words
from fedcohort.core.errors import UsageError
from fedcohort.report import terminal
from fedcohort.report.charts.federation import Clients, federation
from fedcohort.report.look import PAGE, short
from fedcohort.report.page import gallery

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.federation.datasets import Dataset
    from fedcohort.federation.survey import Survey

__all__ = ["pictures", "write"]


def pictures(experiment: "Experiment", dataset: "Dataset", survey: "Survey", label: str = "") -> str:
    """A page: the laws and what came of them, clients × classes, sizes, shares, speed, and noise and presence where there is any.

    Args:
        experiment: that describes the federation.
        dataset, survey: its data, and who holds what.
        label: of the row, where the experiment has several.
    """
    report = survey.report
    facts = {
        "samples": report.sizes, "counts": report.counts, "wrong_labels": survey.wrong_labels, "time": survey.time,
        "sending": survey.sending, "presence": survey.presence,
    }  # fmt: skip
    clients = Clients(experiment.seed, short(dataset.classes, 16), facts, deadline=experiment.systems.deadline)
    title = f"{experiment.name}: {label}" if label and experiment.variants else experiment.name
    sentences = [_held(experiment, dataset, survey)]
    return gallery(
        "A federation before any training", title, sentences, federation(clients, PAGE),
        facts=terminal.federation_facts(experiment, dataset, survey),
    )  # fmt: skip


def _held(experiment: "Experiment", dataset: "Dataset", survey: "Survey") -> str:
    """What the clients hold of the data, and what nobody does."""
    report = survey.report
    held, m = int(report.sizes.sum()), len(report.sizes)
    by = f"by {experiment.federation.partition.name}, seed {experiment.seed}"
    who = "1 client holds" if m == 1 else f"{m:,} clients hold"
    what = f"{dataset.num_train:,} training samples of {dataset.name} ({dataset.num_classes} classes), {by}"
    left = dataset.num_train - held
    return f"{who} all {what}." if left == 0 else f"{who} {held:,} of the {what}; {left:,} belong to no client."


def write(output: str, text: str, *, quiet: bool = False) -> None:
    """Write a page and say how large it is.

    Raises:
        UsageError: the file cannot be written.
    """
    file = Path(output)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {file}: cannot be written ({error.strerror}); give another file") from None
    if not quiet:
        click.echo(f"{file}: {words.size(len(text.encode()))}")
