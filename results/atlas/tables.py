"""The atlas as Markdown: the federations, what helps where, ranks, costs, and the check of recommendations."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core.words import formatted_values
from fedcohort.study.verdicts import BETTER, FEWEST, TOO_FEW, WORSE, needed_seeds
from results.atlas.in_short import in_short
from results.atlas.means import OBJECTIVES, REFERENCE, Findings
from results.atlas.ranks import average_ranks, critical_difference, friedman
from results.atlas.recommend import RULES, SPLITS, Checked, checked
from results.tables import signed, table

__all__ = ["MARKS", "PARTS", "federations", "parts"]

MARKS = {BETTER: " ▲", WORSE: " ▼"}
"""Marks of differences that are clear."""

PICTURE = "![Strategies in rows, federations in columns; the color of a cell is the difference to uniform selection](atlas-map.svg)"
"""The map as a picture, which ``python docs/pictures.py results`` draws."""

SHOWN_TRAITS = ("label skew", "size spread", "wrong labels", "speed spread", "absence")


def federations(findings: Findings) -> str:
    """The federations, what they are like, and how many seeds all strategies have played."""
    rows = []
    for name, entry in findings.atlas.items():
        traits = [f"{entry['traits'][trait]:.2f}" if entry["traits"] else "–" for trait in SHOWN_TRAITS]
        rows.append([name, entry["about"], *traits, str(findings.seeds(name))])
    text = table(["federation", "what it is", *SHOWN_TRAITS, "seeds"], rows)
    return f"{text}\n\n{_counts(findings)}{_refused(findings)}"


def _counts(findings: Findings) -> str:
    played = sum(len(runs["accuracy"]) for entry in findings.atlas.values() for runs in entry["runs"].values())
    used = sum(findings.seeds(name) * len(findings.atlas[name]["runs"]) for name in findings.federations)
    return (
        f"{len(findings.federations)} of {len(findings.atlas)} federations and {len(findings.strategies)} strategies have a complete "
        f"seed. {formatted_values.count(played)} runs were played, of which {formatted_values.count(used)} belong to complete seeds "
        "and count below."
    )


def _refused(findings: Findings) -> str:
    if not findings.refused:
        return " No federation refuses a strategy."
    lines = [
        f"* `{name}` in {', '.join(where)}: {next(iter(where.values()))}" for name, where in findings.refused.items()
    ]
    return "\n\nRefused, and left out of everything below:\n\n" + "\n".join(lines)


# --- what helps where ------------------------------------------------------------------------------------------------------------


def map_of(measure: str) -> Callable[[Findings], str]:
    """The difference of each strategy to uniform selection in each federation, in points, and what it says."""

    def written(findings: Findings) -> str:
        verdicts = {name: findings.verdicts(name, measure) for name in findings.federations}
        means = findings.means(measure)
        order = np.argsort(-(means - means[:, :1]).mean(axis=0), kind="stable")
        rows = []
        for i in order:
            strategy = findings.strategies[i]
            if strategy == REFERENCE:
                rows.append([f"**{strategy}**, %", *(f"{100 * mean:.1f}" for mean in means[:, i]), "–"])
                continue
            differences = 100 * (means[:, i] - means[:, 0])
            cells = [
                signed(difference) + MARKS.get(verdicts[name][strategy].words, "")
                for name, difference in zip(findings.federations, differences, strict=True)
            ]
            rows.append([f"`{strategy}`", *cells, signed(float(differences.mean()))])
        heads = ["strategy", *(f"{name} ({findings.seeds(name)})" for name in findings.federations), "mean"]
        text = f"{table(heads, rows)}\n\n{_said(findings, measure, verdicts)}{_at_limits(findings, measure)}"
        return f"{PICTURE}\n\n{text}" if measure == "accuracy" else text

    return written


def _said(findings: Findings, measure: str, verdicts: Mapping[str, Mapping[str, Any]]) -> str:
    """What the map shows, counted."""
    others = len(findings.strategies) - 1
    words = Counter(verdict.words for found in verdicts.values() for verdict in found.values())
    total = others * len(verdicts)
    counts = [
        f"{_are(words[BETTER])} clearly better than uniform selection",
        f"{_are(words[WORSE])} clearly worse",
        f"{_are(words['not clear'])} not clear",
    ]
    if few := words[TOO_FEW]:
        counts.append(f"{few} have no verdict, for which {FEWEST} seeds are needed")
    counted = f"Of {total} differences at {OBJECTIVES[measure]}, {', '.join(counts[:-1])}, and {counts[-1]}."
    lines = [counted]
    needed = needed_seeds(others)
    fewest = min((findings.seeds(name) for name in verdicts), default=0)
    if fewest < needed:
        lines.append(
            f"With {others} comparisons in each federation, no difference can be clear before the {needed}th seed, and the "
            f"federations with the fewest have {fewest}. So a cell without a mark says nothing against a difference."
        )
    return " ".join([*lines, _over_federations(findings, measure)])


def _at_limits(findings: Findings, measure: str) -> str:
    """The strategies with runs that end before the limit is spent, or spend it before the first test; empty without a limit."""
    cost = {"at_time": "time", "at_bytes": "bytes"}.get(measure)
    if cost is None:
        return ""
    early = {}
    for strategy in findings.strategies:
        limits = ((name, findings.values(name, REFERENCE, cost) / 2) for name in findings.federations)
        ended = [(findings.values(name, strategy, cost) < limit).mean() for name, limit in limits]
        early[strategy] = float(np.mean(ended))
    none = {strategy: findings.untested(strategy, measure) for strategy in findings.strategies}
    return (
        f"\n\nShares of runs that end before the limit is spent, so that more rounds would help them: {_shares(early)}. Shares of "
        f"runs that spend it before the first model is tested, which counts as an accuracy of 0: {_shares(none)}."
    )


def _shares(found: Mapping[str, float]) -> str:
    """Strategies with their shares of at least 5%, the largest first."""
    named = sorted((name for name in found if found[name] >= 0.05), key=lambda name: -found[name])
    return ", ".join(f"`{name}` {100 * found[name]:.0f}%" for name in named) or "none of at least 5%"


def _over_federations(findings: Findings, measure: str) -> str:
    """How many strategies are better or worse than uniform selection over the federations."""
    over = findings.over_federations(measure)
    better = [name for name, found in over.items() if found.words == "better"]
    worse = [name for name, found in over.items() if found.words == "worse"]
    least = sum(found.interval.mean > 0 for found in over.values())
    everywhere = sum(found.better == len(findings.federations) for found in over.values())
    return (
        f"With the {len(findings.federations)} federations as the unit, of {len(over)} strategies {_are(len(better))} clearly "
        f"better than uniform selection on average{_names(better)}, {_are(len(worse))} clearly worse{_names(worse)}, and {least} "
        f"{'has' if least == 1 else 'have'} a positive mean difference. {_are(everywhere)} above uniform selection in "
        "every federation."
    )


def _are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""


# --- ranks and costs -------------------------------------------------------------------------------------------------------------


def ranks(findings: Findings) -> str:
    """Average ranks under each objective with the critical difference, and what the strategies cost."""
    number, blocks = len(findings.strategies), len(findings.federations)
    found = {measure: average_ranks(findings.means(measure)) for measure in OBJECTIVES}
    costs = {name: findings.relative(name) for name in ("bytes", "time", "passes")}
    difference = critical_difference(number, blocks)
    rows = []
    for i in np.argsort(found["accuracy"], kind="stable"):
        own = [f"{values[i]:.1f}{' ●' * bool(values[i] <= values.min() + difference)}" for values in found.values()]
        rows.append([f"`{findings.strategies[i]}`", *own, *(f"{ratio[i]:.2f}" for ratio in costs.values())])
    heads = ["strategy", *(f"rank at {words}" for words in OBJECTIVES.values()), *(f"{name} ×" for name in costs)]
    tests = []
    for measure, words in OBJECTIVES.items():
        result = friedman(found[measure], blocks)
        within = int((found[measure] <= found[measure].min() + difference).sum())
        tests.append(
            f"* At {words}: Friedman's χ² = {result.chi_square:.1f}, F = {result.f:.2f}, {_p(result.p_value)}. {within} of {number} "
            "strategies are within the critical difference of the best average rank."
        )
    about = (
        f"{number} strategies, {blocks} federations, {_seeds(findings)}. The critical difference of Nemenyi's test is "
        f"{difference:.1f} ranks; ● marks strategies that are within it of the best. A cost of 1.5 × is one and a half times that of "
        "uniform selection under the same seed (geometric mean)."
    )
    return f"{table(heads, rows)}\n\n{about}\n\n" + "\n".join(tests)


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _seeds(findings: Findings) -> str:
    counts = [findings.seeds(name) for name in findings.federations]
    low, high = min(counts, default=0), max(counts, default=0)
    number = f"{low}" if low == high else f"{low} to {high}"
    return f"{number} seed{'s' * (high != 1)} in each"


def winners(findings: Findings) -> str:
    """The strategy with the highest mean in each federation under each objective, and what it costs."""
    means = {measure: findings.means(measure) for measure in OBJECTIVES}
    rows = []
    for f, name in enumerate(findings.federations):
        cells = []
        for values in means.values():
            best = int(values[f].argmax())
            strategy = findings.strategies[best]
            ratios = [_ratio(findings, name, strategy, cost) for cost in ("bytes", "time")]
            gain = signed(100 * float(values[f, best] - values[f, 0]))
            cells.append(f"`{strategy}` {gain} ({ratios[0]:.1f} ×, {ratios[1]:.1f} ×)")
        rows.append([f"{name} ({findings.seeds(name)})", *cells])
    text = table(["federation (seeds)", *(f"highest at {words}" for words in OBJECTIVES.values())], rows)
    lines = []
    for measure, values in means.items():
        won = Counter(findings.strategies[int(i)] for i in values.argmax(axis=1))
        counts = ", ".join(f"`{strategy}` {number}" for strategy, number in won.most_common())
        lines.append(f"* At {OBJECTIVES[measure]}, of {len(findings.federations)} federations: {counts}.")
    return f"{text}\n\n" + "\n".join(lines)


def _ratio(findings: Findings, federation: str, strategy: str, cost: str) -> float:
    """A cost relative to uniform selection in one federation, geometric mean over seeds."""
    own, reference = (findings.values(federation, name, cost) for name in (strategy, REFERENCE))
    return math.exp(float(np.log(own / reference).mean()))


def over_federations(findings: Findings) -> str:
    """The mean difference of each strategy over the federations under each objective, with its interval."""
    found = {measure: findings.over_federations(measure) for measure in OBJECTIVES}
    order = sorted(found["accuracy"], key=lambda name: -found["accuracy"][name].interval.mean)
    rows = []
    for name in order:
        cells = []
        for over in found.values():
            own = over[name]
            mark = MARKS.get(own.words, "")
            cells.append(f"{_interval(own.interval)}{mark}, better in {own.better}")
        rows.append([f"`{name}`", *cells])
    heads = [
        "strategy",
        *(f"{words}: mean [95%], better in … of {len(findings.federations)}" for words in OBJECTIVES.values()),
    ]
    return table(heads, rows)


def _interval(interval: measures.PairedInterval) -> str:
    mean, low, high = (signed(100 * value) for value in interval)
    return f"{mean} [{low}, {high}]"


# --- recommendations -------------------------------------------------------------------------------------------------------------


def recommendation(findings: Findings) -> str:
    """Regrets of recommendations on held-out federations, under each objective."""
    texts = []
    for measure, words in OBJECTIVES.items():
        found = checked(findings, measure)
        if not found:
            return "Not enough runs yet: this needs six federations, and two seeds that all strategies have played in each."
        texts.append(f"**At {words}**\n\n{_regrets(found)}\n\n{_judged(found)}")
    least = min(findings.seeds(name) for name in findings.federations)
    about = (
        f"{len(findings.federations)} federations, of which {max(1, len(findings.federations) // 3)} are held out in each of {SPLITS} "
        f"draws; the first {least} seeds, in halves of {(least + 1) // 2} and {least // 2}; {len(findings.strategies)} strategies. "
        "Regret in percentage points, mean over the held-out federations with its 95% interval over federations."
    )
    return "\n\n".join([about, *texts])


def _regrets(found: Sequence[Checked]) -> str:
    rows = []
    for row in found:
        most = ", ".join(
            f"`{name}` {100 * count / sum(row.chosen.values()):.0f}%" for name, count in [*row.chosen.items()][:3]
        )
        differences = [
            "–" if row.rule == f"always {name}" else _interval(value)
            for name, value in ((REFERENCE, row.to_uniform), ("oort", row.to_oort))
        ]
        rows.append([row.rule, _interval(row.regret), *differences, most or "–"])
    return table(["rule", "regret", "to always uniform", "to always oort", "chose most often"], rows)


def _judged(found: Sequence[Checked]) -> str:
    """Whether each rule beats always using uniform selection or Oort, in a sentence."""
    sentences = []
    for row in found[: len(RULES)]:
        name = "The recommendation" if row is found[0] else f"The rule *{row.rule}*"
        sentences.append(
            f"{name} {_beats(row.to_uniform)} always using uniform selection, and {_beats(row.to_oort)} always using Oort."
        )
    return " ".join(sentences)


def _beats(difference: measures.PairedInterval) -> str:
    if difference.high < 0:
        return "has a smaller regret than"
    return "has a larger regret than" if difference.low > 0 else "does not clearly beat"


PARTS: Mapping[str, Callable[[Findings], str]] = {
    "in short": in_short,
    "map": map_of("accuracy"),
    "map at equal time": map_of("at_time"),
    "map at equal bytes": map_of("at_bytes"),
    "over federations": over_federations,
    "ranks": ranks,
    "winners": winners,
    "recommendation": recommendation,
}
"""Name of a part of the page → what writes it."""


def parts(atlas: Mapping[str, Any]) -> dict[str, Callable[[], str]]:
    """Name of each block of the page → what writes it."""
    findings = Findings(atlas)

    def writer(part: str) -> Callable[[], str]:
        return lambda: PARTS[part](findings) if findings.federations else "No seed is complete yet."

    return {f"atlas {part}": writer(part) for part in PARTS}
