"""The clients of a federation, and the data sets that have a name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.experiment import Choice, Experiment
    from fedcohort.federation.datasets import Dataset
    from fedcohort.federation.partition import PartitionReport
    from fedcohort.federation.survey import Survey
from fedcohort.core.words import count, percent, setting
from fedcohort.report.terminal.tables import (
    ROOMY,
    WIDE,
    Column,
    about_hidden,
    dimmed,
    fitting_table,
    one_line,
    plain_table,
)

__all__ = ["SHOWN_CLIENTS", "federation_facts", "known_data", "partition"]

SHOWN_CLIENTS = 30
"""Clients that are shown one by one at most."""


def partition(experiment: "Experiment", data: "Dataset", survey: "Survey", width: int = WIDE) -> Group:
    """Who holds what: clients × classes for the first clients, and quantiles over all where there are more."""
    report = survey.report
    m, shown = len(report.sizes), min(len(report.sizes), SHOWN_CLIENTS)
    chosen = experiment.federation.partition
    changes = (
        ("Label noise", experiment.federation.label_noise),
        ("Feature shift", experiment.federation.feature_shift),
    )
    parts: list[RenderableType] = [
        Text.assemble(
            (data.name, "bold"),
            f": {data.num_train:,} training and {len(data.test_labels):,} test samples, {data.num_classes} classes",
        ),
        Text(f"{m:,} clients by {_called(chosen)}, seed {experiment.seed}"),
        *[Text(f"{what}: {_called(c)}") for what, c in changes if c.name != "none"],
        *map(Text, _systems(experiment, survey)),
        Text(
            f"Label skew like that of a Dirichlet law with alpha (total) {_alpha(report.effective_alpha)}"
            + (", before label noise" if survey.wrong_labels.any() else "")
        ),
        "",
    ]
    if m > shown:
        parts += [_quantiles(survey), "", Text(f"The first {shown} of {m:,} clients:"), ""]
    table, hidden = _matrix(data, survey, shown, width)
    parts += [table, ""]
    named = any(name != str(i) for i, name in enumerate(data.classes))
    notes = [
        ""
        if "distance" in hidden
        else "distance: total variation between the client's class mixture and everybody's, from 0 (the same) to 1.",
        f"{report.dropped:,} training samples belong to no client." if report.dropped else "",
        "Counts are of the labels that the clients have, wrong ones included." if survey.wrong_labels.any() else "",
        "time: simulated, for one round of nominal work, whatever its number of epochs; at least 1 per sample.",
        "Classes: " + ", ".join(f"{i} {name}" for i, name in enumerate(data.classes)) if named else "",
        about_hidden(hidden),
    ]
    return Group(*parts, *dimmed(*notes))


def federation_facts(experiment: "Experiment", data: "Dataset", survey: "Survey") -> list[tuple[str, str]]:
    """How a federation was made and what came of it, in words: what pictures do not say."""
    report, federation, systems = survey.report, experiment.federation, experiment.systems
    left = f", {report.dropped:,} training samples belong to no client" if report.dropped else ""
    noise = "none" if federation.label_noise.name == "none" else _called(federation.label_noise)
    distances = report.distance[np.isfinite(report.distance)]
    facts = [
        ("Data", f"{data.name}: {data.num_train:,} training and {len(data.test_labels):,} test samples, {data.num_classes} classes"),
        ("Partition", f"{_called(federation.partition)}, seed {experiment.seed}{left}"),
        ("Label skew", f"like a Dirichlet law with alpha (total) {_alpha(report.effective_alpha)}"
         + (", before label noise" if survey.wrong_labels.any() else "")),
    ]  # fmt: skip
    if len(distances):
        low, middle, high = np.quantile(distances, (0, 0.5, 1))
        spread = f"{low:.2f} to {high:.2f}, median {middle:.2f}"
        facts.append(("Distance", f"{spread}: total variation to everybody's class mixture, 0 is the same mixture"))
    facts.append(("Label noise", noise))
    facts.append(
        ("Feature shift", "none" if federation.feature_shift.name == "none" else _called(federation.feature_shift))
    )
    held_out = f"{survey.held_out.sum():,} samples, share {federation.holdout:g} of each client's"
    facts.append(("Held out by clients", held_out if federation.holdout else "nothing"))
    facts += [(what.capitalize(), _called(getattr(systems, what))) for what in ("latency", "network", "availability")]
    return facts + [(name, words) for name, _, words in _waiting(experiment, survey)]


def _systems(experiment: "Experiment", survey: "Survey") -> Iterator[str]:
    """What makes clients slow, absent or late, as far as it was asked for."""
    systems, plain = experiment.systems, type(experiment)().systems
    for what in ("latency", "network", "availability"):
        choice = getattr(systems, what)
        if choice != getattr(plain, what):
            yield f"{what.capitalize()}: {_called(choice)}"
    for name, mark, words in _waiting(experiment, survey):
        yield f"{name}{mark}{words}"


def _waiting(experiment: "Experiment", survey: "Survey") -> Iterator[tuple[str, str, str]]:
    """Who fails, and for whom the server waits: a name, what stands after it in a sentence, and words."""
    systems = experiment.systems
    if systems.dropout:
        yield "Drop-out", ": ", f"a selected client fails with probability {systems.dropout:g}"
    if systems.deadline is not None:
        with_data = survey.time[survey.report.sizes > 0]
        late = int((with_data > systems.deadline).sum())
        words = f"{late:,} of {len(with_data):,} clients need longer for nominal work in round 1"
        yield "Deadline", " ", f"{systems.deadline:g}: {words}"
    if systems.overcommit > 1:
        yield "Over-commitment", ": ", f"{systems.overcommit:g} clients are invited for each that is waited for"


def _called(choice: "Choice") -> str:
    words = ", ".join(f"{key} = {setting(value)}" for key, value in choice.parameters.items())
    return f"{choice.name}({words})" if words else choice.name


def _alpha(value: float) -> str:
    if math.isnan(value):
        return "–"
    return "∞: no more than a random split has" if math.isinf(value) else f"{value:.2g}"


def _matrix(data: "Dataset", survey: "Survey", shown: int, width: int) -> tuple[Table, list[str]]:
    report = survey.report
    counts = report.counts[:shown]
    traits = _traits(survey, shown)
    first = Column("client", [*map(str, range(shown)), Text("all", style="bold")])
    samples = Column("samples", [*(f"{n:,}" for n in report.sizes[:shown]), f"{report.sizes.sum():,}"])
    largest = Column("largest\nclass", [*(_dominant(data, report, i) for i in range(shown)), ""], left=True)
    distance = Column("distance", [*(f"{d:.2f}" if math.isfinite(d) else "–" for d in report.distance[:shown]), ""], 2)
    held = Column("classes\nheld", [*(str(n) for n in report.num_classes[:shown]), ""], 1)
    classes = [
        Column(str(c), [*(_held(counts[i, c], c == report.dominant[i]) for i in range(shown)), f"{total:,}"])
        for c, total in enumerate(report.counts.sum(axis=0))
    ]
    for kept in ([largest, distance, held, *traits], [largest, distance, *traits], [largest, *traits], traits, []):
        table = plain_table([first, *classes, samples, *kept])
        if Measurement.get(ROOMY, ROOMY.options, table).maximum <= width:
            return table, [
                one_line(column.heading) for column in (largest, distance, held, *traits) if column not in kept
            ]
    mixtures = [*(_mixture(data, counts[i]) for i in range(shown)), ""]
    mixture = Column("largest classes", mixtures, left=True, widest=width // 2)
    return fitting_table([first, mixture, samples, *traits, held, distance], width)


def _traits(survey: "Survey", shown: int) -> list[Column]:
    """Columns for what makes clients differ besides their classes, as far as anything does."""
    columns = [Column("time", [*(count(float(value)) for value in survey.time[:shown]), ""], 3)]
    if survey.wrong_labels.any():
        columns.append(
            Column("wrong\nlabels", [*(f"{100 * rate:.0f} %" for rate in survey.wrong_labels[:shown]), ""], 5)
        )
    if survey.held_out.any():
        columns.append(Column("held\nout", [*(f"{n:,}" for n in survey.held_out[:shown]), ""], 2))
    if (survey.presence < 1).any():
        columns.append(Column("there", [*(f"{100 * share:.0f} %" for share in survey.presence[:shown]), ""], 4))
    if survey.shift:
        columns.append(Column("shift", [*survey.shift[:shown], ""], 2, left=True))
    return columns


def _held(number: int, dominant: bool) -> Text:
    return Text("·", style="dim") if number == 0 else Text(f"{number:,}", style="bold" if dominant else "")


def _dominant(data: "Dataset", report: "PartitionReport", client: int) -> str:
    c = int(report.dominant[client])
    return "–" if c < 0 else f"{data.classes[c]} {percent(float(report.dominant_share[client]), 0)} %"


def _mixture(data: "Dataset", counts: "np.ndarray[Any, Any]", most: int = 3) -> str:
    order = [int(c) for c in np.argsort(-counts, kind="stable") if counts[c]]
    shares = [counts[c] / counts.sum() for c in order[:most]]
    words = [
        f"{data.classes[c]} {percent(share, 0) if share >= 0.005 else '<1'} %"
        for c, share in zip(order, shares, strict=False)
    ]
    return ", ".join([*words, *([f"{len(order) - most} more"] if len(order) > most else [])]) or "–"


QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def quantiles(survey: "Survey") -> dict[str, dict[str, float]]:
    """Of all clients: samples, classes held, share of the largest class, distance, time and so on, by level (:data:`QUANTILES`)."""
    report = survey.report
    rows = {
        "samples": report.sizes,
        "classes held": report.num_classes,
        "largest class, share": report.dominant_share,
        "distance": report.distance,
        "time": survey.time,
        "sending, share of time": survey.sending / np.where(survey.time > 0, survey.time, np.nan),
        "wrong labels, share": survey.wrong_labels,
        "presence": survey.presence,
    }
    levels = [f"{q:g}" for q in QUANTILES]
    return {
        name: dict(
            zip(levels, np.nanquantile(values.astype(float), QUANTILES, method="inverted_cdf").tolist(), strict=True)
        )
        for name, values in rows.items()
    }


def _quantiles(survey: "Survey") -> Table:
    rows = quantiles(survey)
    heads = ["least", *(f"{100 * q:g} %" for q in QUANTILES[1:-1]), "most"]
    columns = [Column(f"quantiles over\n{len(survey.time):,} clients", list(rows), left=True)]
    for i, head in enumerate(heads):
        values = {name: list(by_level.values())[i] for name, by_level in rows.items()}
        cells = [count(v) if name in ("samples", "classes held", "time") else f"{v:.2f}" for name, v in values.items()]
        columns.append(Column(head, cells))
    return plain_table(columns)


def known_data(known: Sequence[Mapping[str, str]]) -> Group:
    """Names of data sets, and where they come from."""
    columns = [
        Column("name", [Text(one["name"], style="bold") for one in known], left=True),
        Column("from", [one["from"] for one in known], left=True),
        Column("here", [one["here"] for one in known], left=True),
    ]
    return Group(
        plain_table(columns),
        "",
        *dimmed(
            "Also: any image classification data set of the Hub by its id, owner/name; a folder train/<class>/*.png; "
            "arrays from Python (fedcohort.from_arrays).",
            "A local mirror in the layout of the Hub is looked into first: --data-dir, or the variable FEDCOHORT_DATA.",
        ),
    )
