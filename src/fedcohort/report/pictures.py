"""Pictures of a federation before any training, and how pages are written to files."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedcohort import show
from fedcohort.errors import UsageError
from fedcohort.report.charts.federation import Clients, federation
from fedcohort.report.look import PAGE, short
from fedcohort.report.page import gallery

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.federation.datasets import Dataset
    from fedcohort.federation.survey import Survey

__all__ = ["pictures", "write"]


def pictures(experiment: "Experiment", dataset: "Dataset", survey: "Survey") -> str:
    """A page: clients × classes, sizes, class shares, speed, and label noise and presence where there is any."""
    report = survey.report
    facts = {
        "samples": report.sizes, "counts": report.counts, "wrong_labels": survey.wrong_labels, "time": survey.time,
        "sending": survey.sending, "presence": survey.presence,
    }  # fmt: skip
    clients = Clients(experiment.seed, short(dataset.classes, 16), facts)
    held = (
        f"{dataset.num_train:,} training samples of {dataset.num_classes} classes, held by {clients.number:,} clients"
    )
    sentences = [f"{held} by {experiment.federation.partition.name}, seed {experiment.seed}."]
    return gallery("A federation before any training", dataset.name, sentences, federation(clients, PAGE))


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
        click.echo(f"{file}: {show.size(len(text.encode()))}")
