"""What notebooks display of runs and comparisons: a small table with a chart, and on request the whole report page."""

import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.notebook_display import Bundle, bundle
from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import score_style
from fedcohort.record import Run
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.notes.comparison_notes import (
    about_clients,
    about_error,
    about_federations,
    about_personal,
    about_references,
)
from fedcohort.report.notes.failed_training import about_judged
from fedcohort.report.notes.seed_notes import over_seeds
from fedcohort.report.notes.unranked_rows import about_planned
from fedcohort.report.notes.worst_clients import worst as worst_of
from fedcohort.report.page import framed, page
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.report.tables.paper_tables import measured_columns
from fedcohort.study.targets import about_cost_marks, shown_cost
from fedcohort.study.verdicts import BASELINE, verdict_heading, with_intervals

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison

__all__ = ["Page", "comparison_in_notebook", "export_figures", "report", "run_in_notebook"]

_PIXELS = (2, 1)
"""Pixels of a chart per point; the second number is that of charts that would be too large with the first."""

_LARGEST_CHART = 90_000
"""Size of the largest chart in bytes; it is displayed twice, in the HTML and as the picture for pages without HTML."""


class Page(str):
    """A report page as HTML; a notebook displays it in a frame."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<report page of {formatted_values.size(len(self))}>"

    def _repr_html_(self) -> str:
        return framed(self)


def report(runs: Sequence[Run], name: str | None = None, reference: str = "", note: str = "") -> Page:
    """The report page of runs; ``note`` is about runs that are compared before they are finished."""
    return Page(page(gather(runs, name, reference, note=note)))


def export_figures(story: Story, folder: Path, suffix: str, columns: int, only: Sequence[str]) -> list[Path]:
    """Write charts of the report as files; see :meth:`fedcohort.Comparison.figures`."""
    from fedcohort.report.figures.chart_style import WIDTHS, paper
    from fedcohort.report.figures.paper_figures import FORMATS, chosen_figures, export
    from fedcohort.report.page_sections import figures

    if suffix not in FORMATS:
        raise UsageError(f"suffix = {shown(suffix)}: {nearest(str(suffix), FORMATS)}")
    if columns not in list(WIDTHS):
        raise UsageError(f"columns = {shown(columns)}: use 1 or 2")
    charts = list(figures(story, paper(columns)))
    keys = sorted({name for figure in charts for name in figure.names})
    if isinstance(only, str) or not isinstance(only, Iterable):
        raise UsageError(
            f"only = {shown(only)}: give a list of figures, such as ['accuracy']; valid: {', '.join(keys)}"
        )
    return export(chosen_figures(charts, list(only), "only = "), folder, suffix, paper(columns))


def comparison_in_notebook(compared: "Comparison") -> Bundle:
    """The table of a comparison, and the chart of its accuracy."""
    table = compared_rows(compared)
    records, score = [table[i] for i in compared.in_groups], compared.score
    targets = [score.value(row["target_accuracy"]) for row in records]
    several = len(set(targets)) > 1
    measured = measured_columns(compared, records)
    heads = [
        "strategy",
        f"test {score.name}",
        f"difference{' [95% interval]' * with_intervals(records)}",
        verdict_heading(records),
        *(head if head in compared.own_measures else f"{head[0].lower()}{head[1:]}" for head, _, _ in measured),
        *(["target"] if several else []),
        f"rounds to {compared.goal}",
        "Jain",
        "bytes",
    ]
    means = score.means(records)
    rows = [
        [
            row["label"],
            means[i],
            "–" if row["verdict"] == BASELINE
            else score.difference(row["difference"], row["difference_low"], row["difference_high"]),
            formatted_values.verdict(row["verdict"], row["p_holm"]),
            *(cells[i] for _, _, cells in measured),
            *([targets[i]] if several else []),
            formatted_values.rounds(shown_cost(row, "rounds_to_target"), row["reached"], row["seeds"]),
            formatted_values.index(row["jain"]),
            formatted_values.size(row["bytes"]),
        ]
        for i, row in enumerate(records)
    ]  # fmt: skip
    if len(records) == 1:
        heads, rows = [*heads[:2], *heads[4:]], [[*row[:2], *row[4:]] for row in rows]
    seeds = compared.seeds
    of_rows = over_seeds(seeds, (len(row.runs) for row in compared.counted))
    over = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean ± standard deviation {of_rows}"
    notes = [
        *(finding.sentences for finding in compared.health),
        compared.note,
        about_federations(compared),
        about_planned(compared),
        f"Test {score.name} {compared.when}{score.in_unit}, {over}. {about_references(compared)}",
        compared.about_verdicts,
        about_judged(compared),
        about_clients(compared, records),
        about_personal(compared, records),
        about_error(compared.own_measures, score),
        compared.about_counted,
        compared.about_targets + about_cost_marks(records),
        compared.place,
    ]
    runs = {row.runs[seed].path: row.runs[seed] for row in compared.rows for seed in sorted(row.runs)}
    return _with_chart(
        bundle(repr(compared), compared.name, heads, rows, notes),
        list(runs.values()),
        compared.name,
        compared.reference,
        compared.note,
    )


def run_in_notebook(run: Run) -> Bundle:
    """The results of a run, and the chart of its accuracy. No plug-in of the run is imported."""
    described, last = run.described, run.last_round
    title = f"{run.meta['name']}: {run.meta['label']}, seed {run.meta['seed']}"
    rows = [
        ["rounds", f"{last:,} of {described.rounds:,}"],
        ["data", described.data.name],
        ["clients", f"{described.federation.clients:,}, {described.selection.k:,} per round"],
        ["directory", str(run.path)],
    ]
    if not last:
        return bundle(repr(run), title, [], rows)
    from fedcohort.study.measured_values import result_of
    from fedcohort.study.run_measures import Measured

    measured, score = Measured(run), score_style([run.labels])
    results = result_of(measured)
    rows[1:1] = [
        [f"test {score.name} after the last round", score.with_unit(results.accuracy)],
        [f"best test {score.name}", score.with_unit(results.best_accuracy)],
        ["bytes", formatted_values.size(results.bytes)],
        ["Jain's index of selections", formatted_values.index(results.jain)],
    ]
    if math.isfinite(results.client_accuracy):
        spread = score.spread(results.client_accuracy, results.client_accuracy_sd)
        worst, named_worst = score.value(results.worst_client_accuracy), worst_of([measured.clients_with_data])
        rows.insert(3, [f"test {score.name} over clients", f"{spread}, {named_worst} {worst}{score.in_unit}"])
    rows[-1:-1] = [[name, formatted_values.number(value)] for name, value in results.own_measures.items()]
    return _with_chart(bundle(repr(run), title, [], rows), [run], None)


def _with_chart(content: Bundle, runs: Sequence[Run], name: str | None, reference: str = "", note: str = "") -> Bundle:
    """The content with the chart of the accuracy in place of the picture of its table, if there is one that is small enough."""
    png = _chart(runs, name, reference, note)
    if not png:
        return content
    score = score_style(run.labels for run in runs).name
    image = f'<img alt="Test {score} over rounds" width="516" src="data:image/png;base64,{b64encode(png).decode()}">'
    html = str(content["text/html"]).removesuffix("</div>")
    return {**content, "text/html": f"{html}{image}</div>", "image/png": png}


def _chart(runs: Sequence[Run], name: str | None, reference: str, note: str) -> bytes:
    """The chart of the test accuracy over rounds as PNG; empty if the runs have no test accuracy or cannot be drawn together, or if
    the chart is too large."""
    from fedcohort.report.charts.accuracy import accuracy
    from fedcohort.report.figures.chart_style import paper
    from fedcohort.report.figures.paper_figures import composed, draw

    look = paper(2)
    try:
        figure = accuracy(gather(runs, name, reference, note=note), look)
    except UsageError:  # the table of a comparison of different experiments is displayed all the same
        return b""
    if figure is None:
        return b""
    drawings = (draw(composed(figure, figure.views[0], look), "png", pixels) for pixels in _PIXELS)
    return next((png for png in drawings if len(png) <= _LARGEST_CHART), b"")
