"""Print the clients of a federation, and the data sets that experiments can name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedcohort.core.words.formatted_values import count, counted, number, rounds, setting, share, simulated_time
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.numeric_labels import readable
from fedcohort.report.terminal.layout import (
    WIDE,
    Column,
    about_hidden,
    dimmed,
    fitting_table,
    natural_width,
    one_line,
    plain_table,
)

if TYPE_CHECKING:
    from fedcohort.experiment import Choice, Experiment
    from fedcohort.federation.data.datasets import Dataset
    from fedcohort.federation.describe_federation import Survey
    from fedcohort.federation.partition import PartitionReport

__all__ = ["SHOWN_CLIENTS", "federation_facts", "known_data", "partition", "quantiles"]

SHOWN_CLIENTS = 30
"""Largest number of clients that are listed one by one."""


def partition(experiment: "Experiment", data: "Dataset", survey: "Survey", width: int = WIDE) -> Group:
    """Clients × classes for the first clients, and quantiles over all clients if there are more."""
    report = survey.report
    lacking: list[str] = []
    m, shown = len(report.sizes), min(len(report.sizes), SHOWN_CLIENTS)
    chosen = experiment.federation.partition
    changes = (
        ("Label noise", experiment.federation.label_noise),
        ("Feature shift", experiment.federation.feature_shift),
    )
    parts: list[RenderableType] = [
        Text.assemble(
            (data.name, "bold"),
            f": {_samples(data)}",
        ),
        Text(f"{counted(m, 'client')} by {_called(chosen)}, seed {experiment.seed}"),
        *[Text(f"{what}: {_called(c)}") for what, c in changes if c.name != "none"],
        *map(Text, _systems(experiment, survey)),
        Text(
            f"Label skew like that of a Dirichlet distribution with alpha (total) {_alpha(report.effective_alpha)}"
            + (", before label noise" if survey.wrong_labels.any() else "")
        ),
        "",
    ]
    if m > shown:
        table, lacking = _quantiles(survey, width)
        parts += [table, "", Text(f"The first {shown} of {count(m)} clients:"), ""]
    table, hidden = _matrix(data, survey, shown, width)
    parts += [table, ""]
    dropped = _dropped(report)
    named = any(name != str(i) for i, name in enumerate(data.classes))
    held = " and those of samples that they hold out" if survey.held_out.any() else ""
    notes = [
        ""
        if "distance" in hidden
        else "distance: total variation distance of the client's class distribution to that of all clients, from 0 (equal) to 1.",
        f"{dropped}." if dropped else "",
        f"Counts are of the labels that clients have, including wrong ones{held}." if survey.wrong_labels.any() else "",
        "" if "time" in hidden and m <= shown else _about_time(experiment),
        "Classes: " + ", ".join(f"{i} {name}" for i, name in enumerate(_names_of_classes(data))) if named else "",
        _names(survey.names[:shown]),
        about_hidden([*lacking, *hidden]),
    ]
    return Group(*parts, *dimmed(*notes))


def _dropped(report: "PartitionReport") -> str:
    """How many training samples belong to no client, in words; empty if all belong to one."""
    verb = "belongs" if report.dropped == 1 else "belong"
    return f"{counted(report.dropped, 'training sample')} {verb} to no client" if report.dropped else ""


def _about_time(experiment: "Experiment") -> str:
    """What the column of times holds."""
    from fedcohort.experiment.time_unit import least_time  # the list of data sets needs no experiments

    least = least_time(experiment.systems)
    unit = f"; the fastest possible client needs {least}" if least else ""
    return f"time: simulated time of one round of nominal work{unit}."


def _names(names: Sequence[str]) -> str:
    """The names of the listed clients; nothing without names."""
    if not names:
        return ""
    return "Clients: " + ", ".join(f"{i} {brief(name, 40)}" for i, name in enumerate(names))


def _samples(data: "Dataset") -> str:
    test = count(len(data.test_labels))
    return f"{count(data.num_train)} training and {test} test samples, {data.labels_in_words}"


def federation_facts(experiment: "Experiment", data: "Dataset", survey: "Survey") -> list[tuple[str, str]]:
    """The facts about a federation that charts do not show, each with its name: settings, label skew, what makes clients slow."""
    report, federation, systems = survey.report, experiment.federation, experiment.systems
    dropped = _dropped(report)
    noise = "none" if federation.label_noise.name == "none" else _called(federation.label_noise)
    distances = report.distance[np.isfinite(report.distance)]
    facts = [
        ("Data", f"{data.name}: {_samples(data)}"),
        ("Partition", f"{_called(federation.partition)}, seed {experiment.seed}{f', {dropped}' if dropped else ''}"),
        ("Label skew", f"like a Dirichlet distribution with alpha (total) {_alpha(report.effective_alpha)}"
         + (", before label noise" if survey.wrong_labels.any() else "")),
    ]  # fmt: skip
    if len(distances):
        low, middle, high = np.quantile(distances, (0, 0.5, 1))
        spread = f"{count(low, 2)} to {count(high, 2)}, median {count(middle, 2)}"
        meaning = "total variation distance to the class distribution of all clients, from 0 (equal) to 1"
        facts.append(("Distance", f"{spread}: {meaning}"))
    facts.append(("Label noise", noise))
    facts.append(
        ("Feature shift", "none" if federation.feature_shift.name == "none" else _called(federation.feature_shift))
    )
    held_out = f"{counted(survey.held_out.sum(), 'sample')}, share {setting(federation.holdout)} of each client's"
    facts.append(("Held out by clients", held_out if federation.holdout else "none"))
    facts += [(what.capitalize(), _called(getattr(systems, what))) for what in ("latency", "network", "availability")]
    return facts + [(name, text) for name, _, text in _waiting(experiment, survey)]


def _systems(experiment: "Experiment", survey: "Survey") -> Iterator[str]:
    """What makes clients slow, unavailable or late, as far as the experiment sets it."""
    systems, plain = experiment.systems, type(experiment)().systems
    for what in ("latency", "network", "availability"):
        choice = getattr(systems, what)
        if choice != getattr(plain, what):
            yield f"{what.capitalize()}: {_called(choice)}"
    for name, mark, text in _waiting(experiment, survey):
        yield f"{name}{mark}{text}"


def _waiting(experiment: "Experiment", survey: "Survey") -> Iterator[tuple[str, str, str]]:
    """Which clients fail, and how long the server waits: for each setting its name, the separator after it, and a text."""
    systems = experiment.systems
    if systems.dropout:
        yield "Dropout", ": ", f"a selected client fails with probability {setting(systems.dropout)}"
    if systems.deadline is not None:
        with_data = survey.time[survey.report.sizes > 0]
        late = int((with_data > systems.deadline).sum())
        need = "needs" if late == 1 else "need"
        text = f"{count(late)} of {counted(len(with_data), 'client')} {need} longer for nominal work in round 1"
        yield "Deadline", " ", f"{number(systems.deadline)}: {text}"
    if systems.overcommit > 1:
        yield (
            "Overcommitment",
            ": ",
            f"the server selects {number(systems.overcommit)} clients for each client that it waits for",
        )


def _called(choice: "Choice") -> str:
    parameters = ", ".join(f"{key} = {setting(value)}" for key, value in choice.parameters.items())
    return f"{choice.name}({parameters})" if parameters else choice.name


def _alpha(value: float) -> str:
    if math.isnan(value):
        return "–"
    return "∞: no more than that of a random split" if math.isinf(value) else number(value, 2)


def _matrix(data: "Dataset", survey: "Survey", shown: int, width: int) -> tuple[Table, list[str]]:
    report = survey.report
    counts = report.counts[:shown]
    traits = _traits(survey, shown)
    first = Column("client", [*map(str, range(shown)), Text("all", style="bold")])
    samples = Column("samples", [*map(count, report.sizes[:shown]), count(report.sizes.sum())])
    largest = Column(
        "largest\nclass", [*(_dominant(_names_of_classes(data), report, i) for i in range(shown)), ""], left=True
    )
    distance = Column("distance", [*(count(d, 2) for d in report.distance[:shown]), ""], 2)
    held = Column("classes\nheld", [*(str(n) for n in report.num_classes[:shown]), ""], 1)
    classes = [
        Column(str(c), [*(_held(counts[i, c], c == report.dominant[i]) for i in range(shown)), count(total)])
        for c, total in enumerate(report.counts.sum(axis=0))
    ]
    for kept in ([largest, distance, held, *traits], [largest, distance, *traits], [largest, *traits], traits, []):
        table = plain_table([first, *classes, samples, *kept])
        if natural_width(table) <= width:
            return table, [
                one_line(column.heading) for column in (largest, distance, held, *traits) if column not in kept
            ]
    mixtures = [*(_mixture(_names_of_classes(data), counts[i]) for i in range(shown)), ""]
    mixture = Column("largest classes", mixtures, left=True, widest=width // 2)
    return fitting_table([first, mixture, samples, *traits, held, distance], width)


def _traits(survey: "Survey", shown: int) -> list[Column]:
    """Columns for time, and for other traits in which clients differ."""
    columns = [Column("time", [*(simulated_time(float(value)) for value in survey.time[:shown]), ""], 3)]
    if survey.wrong_labels.any():
        columns.append(Column("wrong\nlabels", [*map(share, survey.wrong_labels[:shown]), ""], 5))
    if survey.held_out.any():
        columns.append(Column("held\nout", [*map(count, survey.held_out[:shown]), ""], 2))
    has_data = survey.report.sizes > 0
    if (survey.presence[has_data] < 1).any():
        available = zip(survey.presence[:shown], has_data[:shown], strict=True)
        columns.append(Column("available", [*(share(own) if data else "no data" for own, data in available), ""], 4))
    if survey.shift:
        columns.append(Column("shift", [*survey.shift[:shown], ""], 2, left=True))
    return columns


def _held(samples: int, dominant: bool) -> Text:
    return Text("·", style="dim") if samples == 0 else Text(count(samples), style="bold" if dominant else "")


def _names_of_classes(data: "Dataset") -> Sequence[str]:
    return readable(data.classes, data.train_numbers is not None)


def _dominant(classes: Sequence[str], report: "PartitionReport", client: int) -> str:
    c = int(report.dominant[client])
    return "–" if c < 0 else f"{classes[c]} {share(float(report.dominant_share[client]))}"


MIXTURE = 3
"""Largest number of classes of a client that the terminal names."""


def _mixture(classes: Sequence[str], counts: "np.ndarray[Any, Any]") -> str:
    order = [int(c) for c in np.argsort(-counts, kind="stable") if counts[c]]
    shares = [counts[c] / counts.sum() for c in order[:MIXTURE]]
    texts = [f"{classes[c]} {share(own) if own >= 0.005 else '<1%'}" for c, own in zip(order, shares, strict=False)]
    return ", ".join([*texts, *([f"{len(order) - MIXTURE} more"] if len(order) > MIXTURE else [])]) or "–"


RANKS = {"25%": 1, "75%": 2, "5%": 3, "95%": 4}
"""Which quantiles are hidden first in narrow terminals."""

IN_WORDS = {
    "classes_held": "classes held",
    "largest_class_share": "largest class, share",
    "sending_share": "sending, share of time",
    "wrong_labels": "wrong labels, share",
}
"""Names in the table, by the names in :func:`quantiles`; other measures have the same name in both."""

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def quantiles(survey: "Survey") -> dict[str, dict[str, float]]:
    """Quantiles over all clients of what makes them differ, such as samples and time, by level (:data:`QUANTILES`).

    Between two clients they are interpolated, as the medians of the charts are.
    """
    report = survey.report
    rows = {
        "samples": report.sizes,
        "classes_held": report.num_classes,
        "largest_class_share": report.dominant_share,
        "distance": report.distance,
        "time": survey.time,
        "sending_share": survey.sending / np.where(survey.time > 0, survey.time, np.nan),
        "wrong_labels": survey.wrong_labels,
        "presence": survey.presence,
    }
    levels = [f"{q:g}" for q in QUANTILES]
    return {
        name: dict(zip(levels, np.nanquantile(values.astype(float), QUANTILES).tolist(), strict=True))
        for name, values in rows.items()
    }


def _quantiles(survey: "Survey", width: int) -> tuple[Table, list[str]]:
    """The table of the quantiles, and the quantiles that do not fit."""
    rows = quantiles(survey)
    if not survey.wrong_labels.any():
        del rows["wrong_labels"]  # it is known only if label noise is simulated
    heads = ["lowest", *map(share, QUANTILES[1:-1]), "highest"]
    columns = [
        Column(
            f"quantiles over\n{count(len(survey.time))} clients", [IN_WORDS.get(name, name) for name in rows], left=True
        )
    ]
    for i, head in enumerate(heads):
        values = {name: list(by_level.values())[i] for name, by_level in rows.items()}
        columns.append(Column(head, [_quantile(name, value) for name, value in values.items()], RANKS.get(head)))
    table, hidden = fitting_table(columns, width)
    return table, [f"quantile {head}" for head in hidden]


def _quantile(name: str, value: float) -> str:
    """A quantile of one of the measures of :func:`quantiles`."""
    if name == "time":
        return simulated_time(value)
    return rounds(value) if name in ("samples", "classes_held") else count(value, 2)


def known_data(known: Sequence[Mapping[str, str]], width: int) -> Group:
    """The data sets that experiments can name, and where they come from."""
    columns = [
        Column("name", [Text(entry["name"], style="bold") for entry in known], left=True),
        Column("source", [entry["from"] for entry in known], left=True, widest=31),
        Column("local copy", [entry["here"] for entry in known], left=True, widest=27),
    ]
    return Group(
        fitting_table(columns, width)[0],
        "",
        *dimmed(
            "You can also use any image classification data set of the Hub by its id, owner/name; a folder train/<class>/*.png; "
            "a table (.csv, .parquet, .npz); a function, my.py:load; and arrays from Python (fedcohort.from_arrays).",
            "FedCohort first looks for data in a local mirror in the layout of the Hub: --data-dir, or the environment variable "
            "FEDCOHORT_DATA.",
        ),
    )
