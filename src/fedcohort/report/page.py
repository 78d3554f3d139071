"""Make the report page: one self-contained HTML file, with every chart that the runs have data for."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from fedcohort.record.personal_results import personal_data
from fedcohort.report.charts.cost import of_server, whole_runs
from fedcohort.report.client_orders import client_orders
from fedcohort.report.data.missing_runs import SO_FAR, UNPLANNED, about_missing, without_premature
from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.figures.figure import Figure, Spec, columns, spec
from fedcohort.report.figures.quick_drawing import quick_drawing
from fedcohort.report.headline.headline import answers
from fedcohort.report.notes.admitted_updates import about_admitted
from fedcohort.report.notes.comparison_notes import about_federations, about_references
from fedcohort.report.notes.cost_notes import MESSAGES, PASSES, about_questions
from fedcohort.report.notes.failed_training import about_failed, about_judged
from fedcohort.report.notes.seed_notes import counted, mean_over
from fedcohort.report.notes.shown_rows import about_lines, about_panels
from fedcohort.report.notes.unranked_rows import about_different_seeds, about_planned, about_unmarked
from fedcohort.report.notes.worst_clients import about_diverged, about_worst, lowest_personal, worst
from fedcohort.report.page_assets import environment, page_script, scripts, style
from fedcohort.report.page_sections import SEEDS, parts, sections
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.report.tables.detail_rows import PARTS, class_rows, wall_rows
from fedcohort.report.tables.fairness_rows import fairness_rows
from fedcohort.report.tables.table_rows import (
    chart_names,
    how,
    ledger_rows,
    result_rows,
    strategies,
    unfinished,
)
from fedcohort.study.comparison import Comparison
from fedcohort.study.targets import about_not_reached, about_reached, numbers_reached
from fedcohort.study.verdicts import with_intervals

__all__ = ["framed", "gallery", "page", "payload"]


def page(story: Story, *, live: Mapping[str, Any] | None = None, command: str | None = None) -> str:
    """The report as HTML.

    Args:
        story: the runs.
        live: for the live page: its ``version``; ``others``, the experiments that the page links to; ``planned``, whether the runs
            that have not begun are known; and ``seed``, the only one with charts of single clients. The page asks for another one if
            its reader does, so that not all are drawn after every round.
        command: the command that made the report, for the footer.
    """
    with quick_drawing():
        return _page(story, live, command)


def _page(story: Story, live: Mapping[str, Any] | None, command: str | None) -> str:
    asked, going_on = _asked_seed(story, live), bool(live and live.get("overall"))
    by_section = parts(story, seeds=asked)
    drawn = [figure for section in by_section.values() for part in section for figure in part.figures]
    score, styles = story.score, strategies(story)
    clients = [reading.clients_with_data for _, readings in story.played for reading in readings]
    seeds = sorted({figure.seed for figure in drawn if figure.seed is not None})
    orders = client_orders(story, sorted({*seeds, *(seed for figure in drawn for seed in figure.shown_seeds)}))
    values = {
        "story": story,
        "title": story.name,
        "sections": sections(by_section),
        "strategies": styles,
        "whole": {row["label"]: row["shown"] for row in styles},
        "answers": answers(story, going_on=going_on),
        "about_questions": about_questions(reading.run for reading in story.everything),
        "about_passes": PASSES,
        "about_messages": MESSAGES,
        "states": unfinished(story),
        "made": _now(),
        "payload": payload(drawn)
        | {"clients": orders, "federations": story.federation_of_point, "names": chart_names(story)},
        "seeds": seeds if asked is None else story.seeds[:SEEDS],
        "seed": next(iter(asked or ()), None),
        "of_runs": whole_runs(story),
        "of_server": of_server(story),
        "all_seeds": len(story.seeds),
        "over": mean_over(counted(story)),
        "orders": orders,
        "results": result_rows(story),
        "score": score,
        "ledger": ledger_rows(story),
        "classes": class_rows(story),
        "wall": wall_rows(story),
        "parts_of_round": PARTS,
        "fairness": (fairness := fairness_rows(story)),
        "about_admitted": about_admitted(fairness),
        "worst": worst(clients),
        "about_worst": about_worst(clients),
        "about_diverged": about_diverged(lowest_personal(fairness)),
        "personal_data": personal_data(reading.run for _, readings in story.played for reading in readings),
        "about_failed": about_failed(story.comparison, "Not marked", unfinished=bool(story.unfinished)),
        "about_judged": about_judged(story.comparison),
        "how": how(story),
        "about_lines": about_lines(story.comparison, score.name),
        "about_panels": about_panels(story.comparison, len(story.panels), score.name, not story.unfinished),
        "command": command,
        "live": live,
        "css": style(),
        "scripts": "" if live is not None else scripts(),
        "script": page_script(),
    }
    compared = _compared(story, going_on=going_on)
    return environment().get_template("page.html").render({**values, **compared})


def _asked_seed(story: Story, live: Mapping[str, Any] | None) -> list[int] | None:
    """The seed of the charts of single clients on a live page: the one in its address, or the first. None for other pages, which have
    the charts of all seeds."""
    if live is None:
        return None
    return [live["seed"]] if live.get("seed") in story.seeds else story.seeds[:1]


NOTHING_COMPARED: Mapping[str, Any] = {
    "health": [], "own_measures": [], "intervals": False, "several_targets": False, "some_reached": False,
    "about_chance": "", "about_counted": "", "about_federations": "", "about_planned": "", "about_points": "", "about_references": "",
    "about_seeds": "", "about_targets": "", "about_times": "", "about_unmarked": "", "about_verdicts": "", "goal": "",
}  # fmt: skip
"""What :func:`_compared` gives without a comparison."""

EARLY = ("no update", "diverged")
"""Kinds of findings that the live page shows while runs are played; others are about results that are not there yet."""


def _compared(story: Story, *, going_on: bool) -> Mapping[str, Any]:
    """What the comparison of the runs gives to the page; empty values without one. While runs go on, health has :data:`EARLY` only."""
    compared = story.comparison
    if compared is None:
        return NOTHING_COMPARED
    found = without_premature(compared.health, story.missing, [row.label for row in compared.rows])
    so_far = (
        [SO_FAR, *([] if story.planned else [UNPLANNED])]
        if compared.about_verdicts and (going_on or story.missing)
        else []
    )
    records = compared_rows(compared)
    reached = about_reached(numbers_reached(records))
    return {
        "health": [
            *map(about_missing, story.missing),
            *(finding for finding in found if finding.kind in EARLY or not going_on),
        ],
        "about_federations": about_federations(compared),
        "about_planned": about_planned(compared),
        "about_references": about_references(compared),
        "about_seeds": about_different_seeds(compared),
        "about_unmarked": about_unmarked(compared),
        "when": compared.when,
        "about_counted": compared.about_counted,
        "about_targets": compared.about_targets + reached + about_not_reached(records),
        "some_reached": bool(reached),
        "intervals": with_intervals(records),
        "several_targets": len(set(compared.targets)) > 1,
        "about_points": _about_points(compared),
        "about_times": compared.about_times,
        "about_chance": compared.about_chance,
        "about_verdicts": " ".join([compared.about_verdicts, *so_far]),
        "own_measures": compared.own_measures,
        "goal": compared.goal,
    }


def _about_points(compared: Comparison) -> str:
    """What the page shows of a sweep at first, and what all points have in common."""
    first = compared.groups[0].point
    several = len(set(compared.targets)) > 1
    if several:
        target = "; each federation has its own target"
    elif math.isnan(compared.target.accuracy):
        target = ""
    else:
        target = f"; all points have the same target, {compared.score.target(compared.target.accuracy)}"
    return (
        f"The page shows one point of the sweep at a time, at first {first}. Lines and differences have the same axes at all points, "
        f"so that they can be compared{target}."
    )


def gallery(
    kind: str,
    title: str,
    sentences: Sequence[str],
    figures: Sequence[Figure],
    facts: Sequence[tuple[str, str]] = (),
    warnings: Sequence[str] = (),
) -> str:
    """A page of figures that are not about runs: a federation before training, or batch sizes.

    Args:
        kind: what the page shows; printed above the title.
        title: heading of the page.
        sentences: printed below the title.
        figures: all figures, in order.
        facts: names and texts of a list above the figures.
        warnings: what limits these figures, printed below the sentences.
    """
    values = {
        "kind": kind, "title": title, "sentences": sentences, "figures": figures, "facts": facts, "warnings": warnings,
        "payload": payload(figures), "made": _now(), "css": style(), "scripts": scripts(), "script": page_script(),
    }  # fmt: skip
    return environment().get_template("gallery.html").render(values)


def payload(figures: Sequence[Figure]) -> dict[str, Any]:
    """What the page's script draws: tables by name and column, charts by figure, view and panel, and their configuration.

    A chart of another seed that equals the one of the first seed is given as the name of that one.
    """
    data: dict[str, Any] = {}
    charts: dict[str, Any] = {}
    for figure in figures:
        data |= {figure.table(name): columns(frame) for name, frame in figure.data.items()}
        for place, chart in _charts(figure):
            same = f"{figure.key}.{place}"
            charts[f"{figure.place}.{place}"] = (
                same if (figure.variant or figure.federation) and charts.get(same) == chart else chart
            )
    return {"data": data, "charts": charts, "config": PAGE.config()}


def _charts(figure: Figure) -> Iterator[tuple[str, Spec]]:
    """The charts of a figure by the numbers of view and panel."""
    for v, view in enumerate(figure.views):
        for p, panel in enumerate(view.panels):
            chart = spec(panel.chart, {})
            chart["description"] = f"{figure.title}: {panel.title}" if panel.title else figure.title
            yield f"{v}.{p}", chart


def framed(text: str) -> str:
    """A page inside a frame, for notebooks. It needs no network either."""
    return (
        f'<iframe srcdoc="{escape(text, quote=True)}" sandbox="allow-scripts allow-downloads" title="FedCohort" '
        'style="width:100%;height:860px;border:0"></iframe>'
    )


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
