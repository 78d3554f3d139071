"""Make the page of a federation before training."""

from typing import TYPE_CHECKING

from fedcohort.core.words import formatted_values
from fedcohort.report import terminal
from fedcohort.report.charts.federation import federation
from fedcohort.report.charts.shown_clients import Clients, short_classes
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.page import gallery

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.federation.data.datasets import Dataset
    from fedcohort.federation.describe_federation import Survey

__all__ = ["pictures"]


def pictures(experiment: "Experiment", dataset: "Dataset", survey: "Survey", label: str = "") -> str:
    """The page of a federation: its distributions, and charts of its clients.

    The charts show clients × classes, sizes, class shares and speed, and label noise and availability if clients differ in them.

    Args:
        experiment: the description of the federation.
        dataset: its data.
        survey: facts about its clients.
        label: label of the row, if the experiment has several.
    """
    report = survey.report
    facts = {
        "samples": report.sizes, "counts": report.counts, "wrong_labels": survey.wrong_labels, "time": survey.time,
        "sending": survey.sending, "presence": survey.presence,
    }  # fmt: skip
    ranges = dataset.train_numbers is not None
    clients = Clients(
        experiment.seed, short_classes(dataset.classes, ranges), facts, deadline=experiment.systems.deadline,
        with_held_out=bool(survey.held_out.any()), names=survey.names, ranges=ranges,
    )  # fmt: skip
    title = f"{experiment.name}: {label}" if label and experiment.variants else experiment.name
    sentences = [_held(experiment, dataset, survey)]
    return gallery(
        "A federation before training", title, sentences, federation(clients, PAGE),
        facts=terminal.federation_facts(experiment, dataset, survey),
    )  # fmt: skip


def _held(experiment: "Experiment", dataset: "Dataset", survey: "Survey") -> str:
    """A sentence about how many samples the clients hold, and how many belong to no client."""
    report = survey.report
    held, m = int(report.sizes.sum()), len(report.sizes)
    by = f"by {experiment.federation.partition.name}, seed {experiment.seed}"
    clients = "1 client holds" if m == 1 else f"{formatted_values.count(m)} clients hold"
    samples = formatted_values.count(dataset.num_train)
    data = f"{samples} training samples of {dataset.name} ({dataset.labels_in_words}), {by}"
    left = dataset.num_train - held
    if left == 0:
        return f"{clients} all {data}."
    belong = "belongs" if left == 1 else "belong"
    return (
        f"{clients} {formatted_values.count(held)} of the {data}; {formatted_values.count(left)} {belong} to no client."
    )
