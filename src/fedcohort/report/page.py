"""The report: one HTML file that needs nothing else, with every chart that the runs can fill."""

import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np

from fedcohort.core import words
from fedcohort.core.errors import UsageError
from fedcohort.report.charts import accuracy as accuracies
from fedcohort.report.charts import cost as costs
from fedcohort.report.charts import participation, reasons, studies
from fedcohort.report.charts.federation import Clients, federation
from fedcohort.report.figure import Figure, columns, spec
from fedcohort.report.gather import PANELS, Reading, Story
from fedcohort.report.look import CLASSES, PAGE, Look

__all__ = ["Part", "figures", "framed", "gallery", "page", "parts", "payload", "scripts"]


@dataclass(frozen=True)
class Part:
    """A heading inside a section, with figures."""

    title: str
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Section:
    """One question of the report and its answers. ``before`` and ``after`` name tables of the template."""

    key: str
    question: str
    parts: Sequence[Part]
    empty: str = ""
    tables: Mapping[str, Any] = field(default_factory=dict)


def clients_of(story: Story) -> Clients | None:
    """Who the clients are: from the first run that knows, or from those that were selected."""
    for one in story.everything:
        if one.portrait.facts:
            return Clients.of(one.portrait, one.seed, one.experiment.systems.deadline)
    for one in story.first:
        seen = one.clients[one.clients["num_samples"] > 0].groupby("client")["num_samples"].max()
        if len(seen):
            return Clients(one.seed, [], {"samples": seen.to_numpy(np.int64)}, whole=False)
    return None


def parts(story: Story, look: Look = PAGE) -> dict[str, list[Part]]:
    """All figures by section."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # the tests check every chart against the schema; readers need not wait for it
        return _parts(story, look)


def _parts(story: Story, look: Look) -> dict[str, list[Part]]:
    clients = clients_of(story)
    people: list[Figure] = []
    if clients is not None:
        people = (
            federation(clients, look) if clients.whole else [f for f in federation(clients, look) if f.key == "sizes"]
        )

    def one(*figures: Figure | None) -> list[Part]:
        found = [figure for figure in figures if figure is not None]
        return [Part("", found)] if found else []

    return {
        "result": one(
            accuracies.accuracy(story, look),
            accuracies.differences(story, look),
            accuracies.loss(story, look),
            *studies.studies(story, look),
        ),
        "federation": one(*people),
        "participation": one(
            participation.selections(story, look),
            participation.fairness(story, look),
            participation.raster(story, look),
            participation.participation(story, look),
            *participation.client_accuracy(story, look),
            participation.class_accuracy(story, look),
        ),
        "reasons": [Part(label, found) for label, found in reasons.reasons(story, look)],
        "cost": one(costs.cost(story, look), costs.wall(story, look)),
    }


def figures(story: Story, look: Look) -> Iterator[Figure]:
    """All figures, in the order of the report, and those that only papers want."""
    for found in parts(story, look).values():
        for part in found:
            yield from part.figures
    extra = studies.bars(story, look)
    if extra is not None:
        yield extra
    if any(row.experiment.selection.name == "conformal" for row in story.rows):
        yield studies.score_functions(look)


# --- the page ----------------------------------------------------------------------------------------------------------------


def page(story: Story, *, live: Mapping[str, Any] | None = None, command: str | None = None) -> str:
    """The report as HTML.

    Args:
        story: what was gathered.
        live: for the page of ``--live``: the address it asks for news, and what it has.
        command: that made the report.
    """
    found = parts(story)
    values = {
        "story": story,
        "title": story.name,
        "sections": _sections(story, found),
        "strategies": _strategies(story),
        "headline": headline(story),
        "states": _states(story),
        "made": _now(),
        "payload": payload([figure for section in found.values() for part in section for figure in part.figures]),
        "results": result_rows(story),
        "target": story.comparison.target if story.comparison else None,
        "ledger": ledger_rows(story),
        "fairness": fairness_rows(story),
        "how": how(story),
        "differ": differing_federations(story),
        "panels": PANELS,
        "command": command,
        "live": live,
        "css": _style(),
        "scripts": "" if live is not None else scripts(),
        "script": _template_text("page.js"),
    }
    return str(_environment().get_template("page.html").render(values))


def payload(figures: Sequence[Figure]) -> dict[str, Any]:
    """What the page's script draws from: columns of data by name, charts by figure, view and panel, and their configuration."""
    data: dict[str, Any] = {}
    charts: dict[str, Any] = {}
    for figure in figures:
        data |= {name: columns(frame) for name, frame in figure.data.items()}
        for v, view in enumerate(figure.views):
            for p, panel in enumerate(view.panels):
                charts[f"{figure.key}.{v}.{p}"] = _described(spec(panel.chart, {}), figure, panel.title)
    return {"data": data, "charts": charts, "config": PAGE.config()}


def gallery(
    kind: str,
    title: str,
    sentences: Sequence[str],
    figures: Sequence[Figure],
    table: Mapping[str, Any] | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """A page of figures without runs: of a federation, or of batch sizes.

    Args:
        kind, title, sentences: what stands above the figures.
        figures: in their order.
        table: ``heads`` and ``rows`` of a table before them.
        facts: what is known besides, each with its name.
    """
    values = {
        "kind": kind, "title": title, "sentences": sentences, "figures": figures, "table": table, "facts": facts,
        "payload": payload(figures), "made": _now(), "css": _style(), "scripts": scripts(), "script": _template_text("page.js"),
    }  # fmt: skip
    return str(_environment().get_template("gallery.html").render(values))


def framed(text: str, height: int = 860) -> str:
    """A page as it is shown inside a notebook: in a frame of its own, which needs no network either."""
    return (
        f'<iframe srcdoc="{escape(text, quote=True)}" sandbox="allow-scripts allow-downloads" title="FedCohort" '
        f'style="width:100%;height:{height}px;border:0"></iframe>'
    )


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")


def _described(found: dict[str, Any], figure: Figure, title: str) -> dict[str, Any]:
    found["description"] = f"{figure.title}{': ' if title else ''}{title}"
    return found


QUESTIONS = {
    "result": ("Which strategy won, by how much, is it real?", "No round has been played yet."),
    "federation": ("What does the federation look like?", "Nothing is known of the clients yet."),
    "participation": ("Who took part, was it fair?", "No round has been played yet."),
    "reasons": (
        "Why those?",
        "None of these strategies scores its candidates: everybody had the same chance, or everybody took part.",
    ),
    "cost": ("What did it cost?", "No round has been played yet."),
    "how": ("How was it done?", ""),
}


def _sections(story: Story, found: Mapping[str, Sequence[Part]]) -> list[Section]:
    single = len(story.rows) == 1
    sections = []
    for key, (question, empty) in QUESTIONS.items():
        if key == "result" and single:
            question = "What came of it?"
        sections.append(Section(key, question, found.get(key, ()), empty))
    return sections


def _strategies(story: Story) -> list[dict[str, Any]]:
    """Colour and dash of the rows that have a round, as in the charts."""
    compared = story.comparison
    if compared is None:
        return []
    labels = [label for label, _ in story.played]
    found = []
    for label, row, colour, dash in zip(
        labels, compared.rows, PAGE.colours(len(labels)), PAGE.dashes(len(labels)), strict=True
    ):
        found.append(
            {
                "label": label,
                "name": row.label,
                "colour": colour,
                "dash": " ".join(map(str, dash)) if dash[1] else "none",
            }
        )
    return found


def headline(story: Story) -> list[str]:
    """What a person asks first, in a sentence or two."""
    compared = story.comparison
    if compared is None:
        return ["No round has been played yet; this page fills as soon as there is one."]
    table = compared.table
    if len(table) == 1:
        row = table.iloc[0]
        sd = f" ± {words.percent(row['accuracy_sd'])}" if math.isfinite(row["accuracy_sd"]) else ""
        rounds = max(one.num_rounds for one in story.everything)
        seeds = f" over {int(row['seeds'])} seeds" if row["seeds"] > 1 else ""
        reached, best_of_all = words.percent(row["accuracy"]), words.percent(row["best_accuracy"])
        return [
            f"{row['label']} reached {reached}{sd} % test accuracy in round {rounds}{seeds}; its best round had {best_of_all} %."
        ]
    from fedcohort import measures

    order = table["accuracy"].to_numpy(np.float64).argsort()[::-1]
    best, second = (compared.rows[int(i)] for i in order[:2])
    results = {label: {one.seed: one.accuracy for one in found} for label, found in compared.results.items()}
    highest = words.percent(float(table["accuracy"].iloc[int(order[0])]))
    sentences = [f"{best.label} has the highest test accuracy after the last round: {highest} %."]
    paired = sorted(set(results[best.label]) & set(results[second.label]))
    if len(paired) < 2:
        sentences.append(
            "The two best do not share two seeds: whether the difference is real is not known. Run more seeds."
        )
        return sentences
    mean, low, high = measures.paired_interval(
        [results[best.label][seed] for seed in paired], [results[second.label][seed] for seed in paired]
    )
    lead = (
        f"It leads {second.label} by {words.signed(mean).lstrip('+')} points (95 % interval {words.signed(low)} "
        f"to {words.signed(high)}, {len(paired)} paired seeds)"
    )
    if low > 0:
        sentences.append(f"{lead}: more than chance explains.")
    else:
        sentences.append(f"{lead}: these seeds do not tell the two apart.")
    return sentences


def _states(story: Story) -> list[dict[str, Any]]:
    return [
        {
            "label": one.run.meta["label"],
            "seed": one.seed,
            "round": one.num_rounds,
            "rounds": one.experiment.rounds,
            "path": str(one.run.path),
        }
        for one in story.unfinished
    ]


def differing_federations(story: Story) -> bool:
    """Whether rows have other clients or other data: then differences between them are not of the strategy alone."""
    seen = {
        json.dumps([d["federation"], d["data"], d["systems"]], sort_keys=True, default=str)
        for d in (row.experiment.to_dict() for row in story.rows)
    }
    return len(seen) > 1


@dataclass(frozen=True)
class Cell:
    """A table cell: what is shown, and the number behind it."""

    text: str
    value: float | None = None

    @property
    def raw(self) -> str:
        """The number with all its digits."""
        return "" if self.value is None or not math.isfinite(self.value) else repr(float(self.value))


def result_rows(story: Story) -> list[dict[str, Any]]:
    """The table of the first section."""
    compared = story.comparison
    if compared is None:
        return []
    labels, rows = [label for label, _ in story.played], []
    frame = compared.table
    table = [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]
    for i, (label, row, strategy) in enumerate(zip(labels, table, _strategies(story), strict=True)):
        low, high = row["difference_low"], row["difference_high"]
        verdict = (
            "reference"
            if i == 0
            else "unknown"
            if not math.isfinite(low)
            else "better"
            if low > 0
            else "worse"
            if high < 0
            else "open"
        )
        reached = f" ({row['reached']}/{row['seeds']})" if 0 < row["reached"] < row["seeds"] else ""
        rows.append(
            {
                "label": label,
                "name": row["label"],
                "strategy": strategy,
                "verdict": verdict,
                "seeds": row["seeds"],
                "status": _status(compared.rows[i].experiment, story.played[i][1][0].meta),
                "accuracy": Cell(words.percent(row["accuracy"]), row["accuracy"]),
                "accuracy_sd": Cell(words.percent(row["accuracy_sd"]), row["accuracy_sd"]),
                "difference": Cell(words.signed(row["difference"]) if i else "–", row["difference"]),
                "low": Cell(words.signed(low), low),
                "high": Cell(words.signed(high), high),
                "best_accuracy": Cell(words.percent(row["best_accuracy"]), row["best_accuracy"]),
                "early_stop_accuracy": Cell(words.percent(row["early_stop_accuracy"]), row["early_stop_accuracy"]),
                "rounds_to_target": Cell(
                    words.count(row["rounds_to_target"], 0 if row["rounds_to_target"] % 1 == 0 else 1) + reached,
                    row["rounds_to_target"],
                ),
                "time_to_target": Cell(words.count(row["time_to_target"]), row["time_to_target"]),
                "bytes_to_target": Cell(_bytes(row["bytes_to_target"]), row["bytes_to_target"]),
                "bytes": Cell(_bytes(row["bytes"]), row["bytes"]),
                "client_passes": Cell(words.count(row["client_passes"]), row["client_passes"]),
                "simulated_time": Cell(words.count(row["simulated_time"]), row["simulated_time"]),
                "jain": Cell(words.index(row["jain"]), row["jain"]),
                "jain_random": Cell(words.index(row["jain_random"]), row["jain_random"]),
                "wall_seconds": Cell(words.duration(row["wall_seconds"]), row["wall_seconds"]),
            }
        )
    return rows


def _bytes(value: float) -> str:
    return words.size(value) if math.isfinite(value) else "–"


def _status(experiment: Any, meta: Mapping[str, str]) -> list[str]:
    """What is ours rather than published, in words."""
    ours = meta["ours"].splitlines() if "ours" in meta else experiment.ours()
    sentences = [f"{name}: our reading or design, not a published method" for name in ours]
    if (title := meta.get("algorithm", "")).endswith("(ours)"):
        sentences.append(f"{title}: its source has no such local optimiser")
    return sentences


def fairness_rows(story: Story) -> list[dict[str, Any]]:
    """Participation beside chance, of each strategy: means over seeds."""
    from fedcohort import measures

    rows = []
    for (label, readings), strategy in zip(story.played, _strategies(story), strict=True):
        own = [measures.participation(one.selected.sum(axis=0)) for one in readings]
        chance = [measures.participation_random(one.num_clients, one.per_round, one.num_rounds) for one in readings]
        worst = [_last_worst(one) for one in readings]
        used = float(np.mean([measures.jain(one.admitted.sum(axis=0)) for one in readings]))
        declined = any((one.admitted != one.selected).any() for one in readings)
        cells = {}
        for name in ("jain", "gini", "entropy", "coverage"):
            value, fair = (float(np.mean([getattr(p, name) for p in found])) for found in (own, chance))
            cells[name], cells[f"{name}_random"] = Cell(words.index(value), value), Cell(words.index(fair), fair)
        mean = float(np.mean(worst))
        cells |= {"jain_model": Cell(words.index(used), used), "worst": Cell(words.percent(mean), mean)}
        rows.append({"label": label, "strategy": strategy, "declined": declined, **cells})
    return rows


def _last_worst(one: Reading) -> float:
    from fedcohort import measures

    frame = one.client_accuracy
    last = frame.iloc[-1].to_numpy(np.float64) if len(frame) else np.full(1, np.nan)
    return measures.worst_accuracy(last) if np.isfinite(last).any() else math.nan


def ledger_rows(story: Story) -> list[dict[str, Any]]:
    """The cost ledger: a row for each strategy and kind of exchange."""
    frame = costs.ledger(story)
    if frame.empty:
        return []
    strategies = {one["label"]: one for one in _strategies(story)}
    rows = []
    for row in frame.to_dict("records"):
        rows.append(
            {
                "strategy": strategies[row["strategy"]],
                "kind": row["kind"],
                "discloses": row["discloses"],
                "messages": Cell(words.count(row["messages"]), row["messages"]),
                "bytes_down": Cell(words.size(row["bytes_down"]), row["bytes_down"]),
                "bytes_up": Cell(words.size(row["bytes_up"]), row["bytes_up"]),
                "passes": Cell(words.count(row["passes"]), row["passes"]),
                "seconds": Cell(words.duration(row["seconds"]), row["seconds"]),
            }
        )
    return rows


def how(story: Story) -> list[dict[str, Any]]:
    """How each row was made: its experiment, versions, seeds, and the command that does it again."""
    found = []
    for row, readings in zip(story.rows, story.readings, strict=True):
        first, seeds = readings[0], [one.seed for one in readings]
        text = (first.run.path / "experiment.toml").read_text(encoding="utf-8")
        folder = first.run.path
        commands = [f"fedcohort run {shlex.quote(str(one.run.path / 'experiment.toml'))}" for one in readings]
        versions = {key: first.meta[key] for key in ("fedcohort", "python", "torch", "numpy") if key in first.meta}
        found.append(
            {
                "name": row.label,
                "toml": text,
                "seeds": ", ".join(map(str, seeds)),
                "versions": versions,
                "folder": str(folder),
                "commands": commands,
                "data": first.meta.get("data", "")[:12],
                "public": first.meta.get("public", "none"),
                "keys": [one.meta.get("key", "") for one in readings],
                "status": _status(row.experiment, first.meta),
                "handed": any(line.startswith("# ") and "handed over in Python" in line for line in text.splitlines()),
            }
        )
    return found


# --- files of the template ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("fedcohort.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def _template_text(name: str) -> str:
    environment = _environment()
    return str(environment.loader.get_source(environment, name)[0])


def _style() -> str:
    """The style sheet with the colours of strategies and classes, light and dark."""
    light = "".join(f"--s{i}:{c};" for i, c in enumerate(LIGHT_STRATEGIES)) + "".join(
        f"--c{i}:{c};" for i, c in enumerate(CLASSES)
    )
    dark = "".join(f"--s{i}:{c};" for i, c in enumerate(DARK_STRATEGIES)) + "".join(
        f"--c{i}:{c};" for i, c in enumerate(DARK_CLASSES)
    )
    return _template_text("page.css").replace("/*light*/", light).replace("/*dark*/", dark)


LIGHT_STRATEGIES = ("#0072B2", "#B85000", "#00795A", "#A8497F", "#8A6500", "#2F7FB0", "#000000", "#6B4A86")
"""Okabe and Ito's hues, dark enough for names of lines on white."""

DARK_STRATEGIES = ("#4FA8E8", "#F08A4B", "#2FC79A", "#E5A3C8", "#D9B44A", "#8FD0F5", "#F2F2F2", "#B48BD6")
DARK_CLASSES = (
    "#7B74D4",
    "#88CCEE",
    "#44AA99",
    "#3D9B58",
    "#B3B34D",
    "#DDCC77",
    "#DD8A98",
    "#B5477F",
    "#C46FB8",
    "#8A8A8A",
)
"""The same hues, lighter, for a dark background."""


@lru_cache(maxsize=1)
def scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script: what ``vl-convert`` carries, so that pages need no network.

    Bundling takes more than a second of a processor, so the user's cache keeps the script; without a cache it is made again.
    """
    import vl_convert

    from fedcohort.federation.cache import cache_folder

    kept = None
    with suppress(UsageError, OSError):
        kept = cache_folder("pages") / f"vega-{version('vl-convert-python')}.js"
        found = kept.read_text(encoding="utf-8")
        if found.endswith(END):
            return found
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed; window.vega = vega;")
    bundle = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--") + END
    if kept is not None:
        with suppress(OSError):
            fresh = kept.with_suffix(f".{os.getpid()}")
            fresh.write_text(bundle, encoding="utf-8")
            fresh.replace(kept)
    return bundle


END = "\n// whole\n"
"""The last line of a script that was kept whole."""
