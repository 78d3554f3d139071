"""Arrange the figures of a report: which figures belong to which section, and in which order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.report.charts import (
    accuracy,
    accuracy_and_cost,
    client_accuracy,
    client_table,
    cost,
    loss,
    own_measures,
    participation,
    selection_counts,
    selection_raster,
    selection_reasons,
    sweeps,
)
from fedcohort.report.charts.axes_and_legends import LISTED
from fedcohort.report.charts.federation import federation
from fedcohort.report.charts.final_accuracy import bars
from fedcohort.report.charts.score_functions import score_functions
from fedcohort.report.charts.shown_clients import Clients
from fedcohort.report.charts.shown_seeds import chosen_seed, in_title
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import PAGE, Look
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.file_names import distinct, file_name
from fedcohort.report.figures.quick_drawing import quick_drawing
from fedcohort.report.notes.shown_rows import about_colors, about_gray_panels, about_panels
from fedcohort.study.rows.unfinished_rows import about_unfinished

__all__ = ["SEEDS", "Part", "Section", "about_single_rows", "at_point", "figures", "parts", "sections"]


@dataclass(frozen=True)
class Part:
    """Figures of a section under a heading of their own; the title is empty for figures without a heading."""

    title: str
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Section:
    """One section of the report.

    Attributes:
        key: id of the section in the page.
        heading: its heading.
        parts: its figures.
        empty: what the page says if there is nothing to show.
    """

    key: str
    heading: str
    parts: Sequence[Part]
    empty: str = ""


HEADINGS = {
    "result": ("Result", "No round has been played yet."),
    "federation": ("Federation", "The runs have not recorded their clients yet."),
    "participation": ("Participation and fairness", "No round has been played yet."),
    "reasons": (
        "Reasons",
        "None of these strategies scores its candidates: all clients had the same chance, or all clients took part.",
    ),
    "cost": ("Cost", "No round has been played yet."),
    "how": ("Reproduction", "No run has begun yet."),
}
"""Heading of each section, and what it says if there is nothing to show."""


def sections(by_section: Mapping[str, Sequence[Part]]) -> list[Section]:
    """All sections of the report, with the figures of :func:`parts`."""
    not_yet = {} if by_section.get("result") else {"reasons": HEADINGS["result"][1]}
    words = {key: not_yet.get(key, empty) for key, (_, empty) in HEADINGS.items()}
    return [Section(key, heading, by_section.get(key, ()), words[key]) for key, (heading, _) in HEADINGS.items()]


def parts(story: Story, look: Look = PAGE, seeds: Sequence[int] | None = None) -> dict[str, list[Part]]:
    """All figures of the report by section. Those of single clients are about ``seeds``, by default the first ones of the story."""
    with quick_drawing():
        return _parts(story, look, seeds)


def _parts(story: Story, look: Look, seeds: Sequence[int] | None) -> dict[str, list[Part]]:
    look = replace(look, rows=story.looks_in(look))
    seeded = _by_seed(story, look, seeds)
    return {
        "result": _untitled(
            accuracy.accuracy(story, look),
            accuracy.differences(story, look),
            accuracy_and_cost.accuracy_and_cost(story, look),
            loss.loss(story, look),
            own_measures.own_measures(story, look),
            *sweeps.studies(story, look),
        ),
        "federation": _untitled(*seeded.pop("federation", [])),
        "participation": _untitled(
            *seeded.pop("selections", []),
            participation.fairness(story, look),
            *seeded.pop("raster", []),
            participation.participation(story, look),
            *client_accuracy.client_accuracy(story, look),
            *seeded.pop("classes", []),
            *seeded.pop("clients", []),
        ),
        "reasons": [Part(place.removeprefix(REASONS), own) for place, own in seeded.items()],
        "cost": _untitled(cost.cost(story, look), cost.wall(story, look)),
    }


def _untitled(*figures: Figure | None) -> list[Part]:
    drawn = [figure for figure in figures if figure is not None]
    return [Part("", drawn)] if drawn else []


SEEDS = 5
"""Largest number of seeds whose single clients a page shows."""

ROWS = 60_000
"""Largest number of rows of tables about single clients in a page, over all seeds."""


FEDERATIONS = 36
"""Largest number of federations of a sweep whose clients a page shows."""

REASONS = "reasons: "
"""What the place of a strategy's reasons begins with, before its label."""


def _by_seed(story: Story, look: Look, seeds: Sequence[int] | None) -> dict[str, list[Figure]]:
    """The figures of single clients of each seed that the page shows, by place in the page; those of reasons by their label."""
    places: dict[str, list[Figure]] = {}
    rows = 0
    for number, seed in enumerate((story.seeds[: SEEDS if look.page else 1] if seeds is None else seeds) or [None]):
        own = _of_seed(story.at_seed(seed) if seed is not None and seed != story.seeds[0] else story, look)
        for place, figures in own.items():
            places.setdefault(place, []).extend(
                replace(figure, seed=seed, variant=number > 0, title=f"{figure.title}{_seed_in_title(story, figure)}")
                for figure in figures
            )
        more = _rows(own)
        rows += more
        if rows + more > ROWS:
            break
    return places


def _seed_in_title(story: Story, figure: Figure) -> str:
    """The seeds of the runs in a figure, with a comma before them, beside tables with means over seeds; empty for runs of one seed."""
    return f", {in_title(figure.shown_seeds)}" if len(story.seeds) > 1 and figure.shown_seeds else ""


def _rows(places: Mapping[str, Sequence[Figure]]) -> int:
    """The number of rows of all tables of some figures."""
    return sum(len(frame) for figures in places.values() for figure in figures for frame in figure.data.values())


def _of_seed(story: Story, look: Look) -> dict[str, list[Figure]]:
    """The figures of single clients at the seed of the story."""
    figures: dict[str, list[Figure | None]] = {
        "federation": [*_federation(story, look)],
        "selections": [selection_counts.selections(story, look)],
        "raster": [selection_raster.raster(story, look)],
        "classes": [client_accuracy.class_accuracy(story, look)],
        "clients": [client_table.client_table(story) if look.page else None],
    }
    return {place: [figure for figure in own if figure is not None] for place, own in figures.items()} | {
        f"{REASONS}{label}": own for label, own in selection_reasons.reasons(story, look)
    }


def _federation(story: Story, look: Look) -> list[Figure]:
    """The figures of the clients; of a sweep in which points have different clients, those of each federation."""
    numbers = story.federation_of_point
    found = []
    for number in range(min(max(numbers, default=0) + 1, FEDERATIONS)):
        clients = _clients(story, number)
        if clients is None:
            continue
        drawn = [figure for figure in federation(clients, look) if clients.whole or figure.key == "sizes"]
        drawn = [replace(figure, shown_seeds=(clients.seed,)) for figure in drawn]
        found += [_at_points(story, figure, number, look) for figure in drawn] if any(numbers) else drawn
    return found


def _at_points(story: Story, figure: Figure, number: int, look: Look) -> Figure:
    """The figure of one of several federations, with the points of the sweep that have it."""
    named = _federation_names(story)
    files = distinct(file_name(name, "point") for name, _ in named)
    name, other_points = named[number]
    others = " of the sweep" if other_points else ""
    return replace(
        figure,
        key=figure.key if look.page else f"{figure.key}-{files[number]}",
        note=f"{figure.note} Clients at {name}{others}.",
        points=tuple(i for i, own in enumerate(story.federation_of_point) if own == number),
        federation=number,
        family="" if look.page else figure.key,
    )


def _federation_names(story: Story) -> list[tuple[str, int]]:
    """What each federation of a sweep is called: the settings that its points share, and no others, or else its first point and the
    number of the others; and this number."""
    groups = story.comparison.groups if story.comparison is not None else []
    named: dict[int, tuple[str, int]] = {}
    for group, number in zip(groups, story.federation_of_point, strict=True):
        named.setdefault(number, (group.federation or group.point, group.other_points))
    return list(named.values())


def _clients(story: Story, number: int) -> Clients | None:
    """The clients of the first run of a federation that recorded them, at the chosen seed if there is one, or else the clients that
    were selected."""
    readings = sorted(story.in_federation(number), key=lambda reading: reading.seed != chosen_seed(story))
    for reading in readings or (story.everything if not story.first else []):
        if reading.portrait.facts:
            deadline = reading.experiment.systems.deadline
            return Clients.of(reading.portrait, reading.seed, deadline, story.score.numeric)
    for reading in readings:
        selected = reading.clients[reading.clients["num_samples"] > 0]
        samples = selected.groupby("client")["num_samples"].max()
        if len(samples):
            return Clients(reading.seed, [], {"samples": samples.to_numpy(np.int64)}, whole=False)
    return None


AT_A_POINT = {
    "accuracy", "tradeoff", "loss", "own_measures", "selections", "jain", "raster", "participation", "client-accuracy",
    "client-distribution", "class-accuracy",
}  # fmt: skip
"""Keys of figures that papers show for each point of a sweep: the rows of all points in one chart could not be told apart."""


OF_ROWS = {"accuracy", "tradeoff", "loss", "own_measures", "jain", "participation", "client-accuracy"}
"""Keys of figures with a line or a point for each row, which a legend names."""

OF_PANELS = {"selections", "raster", "class-accuracy"}
"""Keys of figures with a panel for each row."""

COLORED_PANELS = {"selections", "raster"}
"""Keys of figures in which each panel has the color of its row."""

NO_LEGEND = f"There is no legend for more than {LISTED} rows;"
"""What captions of such figures say in papers if no row is named."""

EVERY_ROW = "figures of differences and of the final accuracy name every row."
"""How such captions end."""


def figures(story: Story, look: Look) -> Iterator[Figure]:
    """All figures in the order of the report, and then those that only papers show.

    Those of a sweep that compare strategies are drawn for each point, and have its settings in their key.
    """
    points = [] if look.page or story.comparison is None else [group.point for group in story.comparison.groups]
    pointwise = 1 < len(points) <= FEDERATIONS
    for figure in _all_figures(story, look):
        if not (pointwise and figure.key in AT_A_POINT):
            yield figure
    if pointwise:
        files = distinct(file_name(point, str(number + 1)) for number, point in enumerate(points))
        for number, (point, name) in enumerate(zip(points, files, strict=True)):
            yield from _of_point(story, number, point, name, look)
    look = replace(look, rows=story.looks_in(look))
    yield from _only_in_papers(story, look)


def _not_final(story: Story, figure: Figure) -> Figure:
    """The figure with a sentence at the end of its caption on how far unfinished runs are."""
    rows = zip(story.labels, story.readings, strict=True)
    about = story.note or about_unfinished(
        {label: [(run.num_rounds, run.experiment.rounds, run.finished) for run in runs] for label, runs in rows}
    )
    return replace(figure, note=f"{figure.note} {about}") if about else figure


def _only_in_papers(story: Story, look: Look) -> list[Figure]:
    """The figures that the page has no room for."""
    with quick_drawing():
        conformal = any(row.experiment.selection.name == "conformal" for row in story.rows)
        final = bars(story, look)
        drawn = [final and _not_final(story, final), score_functions(look) if conformal else None]
    return [figure for figure in drawn if figure is not None]


def _of_point(story: Story, number: int, point: str, name: str, look: Look) -> Iterator[Figure]:
    """The figures that compare strategies at one point of a sweep; the settings of the point are in their key and title."""
    for figure in _all_figures(at_point(story, number), look):
        if figure.key in AT_A_POINT:
            yield replace(figure, key=f"{figure.key}-{name}", title=f"{figure.title}, {point}", family=figure.key)


def _all_figures(story: Story, look: Look) -> Iterator[Figure]:
    """All figures in the order of the report."""
    for name, section in parts(story, look).items():
        for part in section:
            for figure in part.figures:
                told = figure if look.page else _told(story, part, figure)
                yield told if look.page or name == "federation" else _not_final(story, told)


def _told(story: Story, part: Part, figure: Figure) -> Figure:
    """The figure with the row that it is about in its title, which is that of its part on the page, and with a sentence in its caption
    about what papers leave out of many rows."""
    rows, note = len(story.played), figure.note
    panels = about_panels(story.comparison, len(story.panels), story.score.name, not story.unfinished)
    named = story.paper_row_looks.named
    if (named or rows > LISTED) and figure.key in OF_ROWS:
        about = about_colors(story.score.name, story.comparison, filled=figure.key.startswith("tradeoff"))
        note += f" {about} The {EVERY_ROW}" if named else f" {NO_LEGEND} the {EVERY_ROW}"
    elif figure.key == "client-distribution" and named:
        note += f" {about_colors(story.score.name, story.comparison)}"
    if panels and figure.key in OF_PANELS:
        note += f" Panels: {panels}."
    if figure.key in COLORED_PANELS and named and not named.issuperset(label for label, _ in story.panels):
        note += f" {about_gray_panels(story.score.name, story.comparison)}"
    title = f"{part.title}: {figure.title[0].lower()}{figure.title[1:]}" if part.title else figure.title
    return replace(figure, note=note, title=title)


def about_single_rows(story: Story) -> str:
    """A sentence that says for which rows figures of scores and reports are drawn; empty if they are drawn for all rows."""
    panels = about_panels(story.comparison, len(story.panels), story.score.name, not story.unfinished)
    return panels and f"Figures of the scores and reports of one row are drawn for {panels}."


def at_point(story: Story, number: int) -> Story:
    """The rows at one point of a sweep, as a comparison of their own: labels are names of strategies, without the settings of the
    point. The target is that of the point in the whole comparison."""
    assert story.comparison is not None
    group = story.comparison.groups[number]
    own = [story.played[i][0] for i in group.rows]
    at = [story.labels.index(label) for label in own]
    names = [story.row_looks.names.get(label, label) for label in own]
    labels = names if len(set(names)) == len(names) else own
    reference = story.comparison.rows[group.reference].label
    readings = [[one.called(label) for one in story.readings[i]] for i, label in zip(at, labels, strict=True)]
    found = Story(story.name, tuple(story.rows[i] for i in at), labels, readings, reference, note=story.note)
    if found.comparison is not None:
        target = story.comparison.targets[number]
        vars(found.comparison)["targets"] = [target] * len(found.comparison.groups)  # a cached property
    return found
