"""Does the atlas predict which strategy helps on a federation that it has not seen? A check on held-out federations.

A third of the federations is held out, many times, by a fixed draw. For a held-out federation, a rule recommends a strategy from the
other ones. Its regret is the accuracy of the strategy that is the best in hindsight, minus that of the recommended one. Strategies
are chosen under one half of the seeds, the best in hindsight as well, and accuracies are read under the other half; then the halves
change places. So a strategy that was lucky under the seeds that chose it has no advantage under those that count. Regrets can be
negative: the best under one half of the seeds need not be the best under the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import rng
from results.atlas.means import REFERENCE, Findings

__all__ = ["NEAREST", "RULES", "SPLITS", "Checked", "checked", "nearest", "splits"]

SPLITS = 200
"""Number of draws of held-out federations."""
NEAREST = 3
"""Number of similar federations that a recommendation looks at."""

Rule = Callable[[Values, Values, Values], int]
"""Scores of the training federations [training, strategies], their traits, and those of the held-out one → the strategy."""


def nearest(traits: Values, own: Values, number: int = NEAREST) -> Indices:
    """The most similar federations: Euclidean distance of traits, each divided by its standard deviation over ``traits``.

    Args:
        traits: traits of the training federations [training, traits]; a trait that is the same everywhere does not count.
        own: traits of the new federation [traits].
        number: how many federations.
    """
    spread = traits.std(axis=0)
    use = spread > 0
    distance = np.sqrt((((traits[:, use] - own[use]) / spread[use]) ** 2).sum(axis=1))
    return np.argsort(distance, kind="stable")[:number]


def least_regret(scores: Values) -> int:
    """The strategy with the smallest mean regret, which is the one with the highest mean score; the first of several."""
    return int(scores.mean(axis=0).argmax())


def similar(scores: Values, traits: Values, own: Values) -> int:
    """The strategy with the smallest mean regret over the most similar federations."""
    return least_regret(scores[nearest(traits, own)])


def everywhere(scores: Values, traits: Values, own: Values) -> int:  # noqa: ARG001
    """The strategy with the smallest mean regret over all training federations."""
    return least_regret(scores)


def ranked(scores: Values, traits: Values, own: Values) -> int:  # noqa: ARG001
    """The strategy with the smallest average rank over all training federations."""
    from results.atlas.ranks import average_ranks

    return int(average_ranks(scores).argmin())


RULES: Mapping[str, Rule] = {
    f"recommended: best over the {NEAREST} most similar federations": similar,
    "best over all training federations": everywhere,
    "best average rank over all training federations": ranked,
}
"""The rules that are checked; the first one is the recommendation."""

WITHOUT_TRAITS = (everywhere, ranked)
"""Rules that choose the same strategy for every federation that is held out."""


@dataclass(frozen=True)
class Checked:
    """Regrets on held-out federations, fractions.

    Attributes:
        rule: the rule, or ``always …``.
        regret: mean over federations, with its 95% interval.
        to_uniform: the same for the difference to always using uniform selection; less is better.
        to_oort: the same for the difference to always using Oort.
        chosen: how often each strategy was recommended, most often first.
    """

    rule: str
    regret: measures.PairedInterval
    to_uniform: measures.PairedInterval
    to_oort: measures.PairedInterval
    chosen: Mapping[str, int]


def splits(federations: int, number: int = SPLITS) -> list[Indices]:
    """The held-out federations of each draw: a third of them, rounded down, at least one."""
    draw = rng(0, "atlas-splits")
    size = max(1, federations // 3)
    return [np.sort(draw.permutation(federations)[:size]) for _ in range(number)]


def checked(findings: Findings, measure: str, always: Sequence[str] = (REFERENCE, "oort", "all")) -> list[Checked]:
    """The regret of each rule, and of always using some strategies; empty with fewer than two seeds or six federations."""
    names = findings.strategies
    seeds = min((findings.seeds(federation) for federation in findings.federations), default=0)
    if seeds < 2 or len(findings.federations) < 6:
        return []
    halves = [findings.means(measure, range(first, seeds, 2)) for first in (0, 1)]
    fixed = [name for name in dict.fromkeys((REFERENCE, "oort", *always)) if name in names]
    regrets: dict[str, Values] = {}
    chosen: dict[str, dict[str, int]] = {}
    for rule in RULES:
        regrets[rule], counts = _regrets(RULES[rule], halves, findings.traits)
        chosen[rule] = {names[i]: int(counts[i]) for i in np.argsort(-counts, kind="stable") if counts[i]}
    for name in fixed:
        regrets[f"always {name}"] = _always(names.index(name), halves)
    uniform, oort = regrets[f"always {REFERENCE}"], regrets.get("always oort", regrets[f"always {REFERENCE}"])
    return [
        Checked(
            rule,
            measures.paired_interval(values, np.zeros(len(values))),
            measures.paired_interval(values, uniform),
            measures.paired_interval(values, oort),
            chosen.get(rule, {}),
        )
        for rule, values in regrets.items()
    ]


def _regrets(rule: Rule, halves: Sequence[Values], traits: Values) -> tuple[Values, Indices]:
    """Mean regret of each federation over the draws that hold it out and both halves, and how often each strategy was chosen."""
    number = len(traits)
    total, times, counts = np.zeros(number), np.zeros(number), np.zeros(halves[0].shape[1], np.int64)
    for held in splits(number):
        training = np.setdiff1d(np.arange(number), held)
        for choosing, measuring in (halves, halves[::-1]):
            scores, known = choosing[training], traits[training]
            for_all = rule(scores, known, traits[held[0]]) if rule in WITHOUT_TRAITS else None
            for federation in held:
                strategy = rule(scores, known, traits[federation]) if for_all is None else for_all
                best = int(choosing[federation].argmax())
                total[federation] += measuring[federation, best] - measuring[federation, strategy]
                times[federation] += 1
                counts[strategy] += 1
    return total / np.maximum(times, 1), counts


def _always(strategy: int, halves: Sequence[Values]) -> Values:
    """Regret of one strategy on each federation."""
    found = []
    for choosing, measuring in (halves, halves[::-1]):
        best = choosing.argmax(axis=1)
        found.append(measuring[np.arange(len(best)), best] - measuring[:, strategy])
    regrets: Values = np.mean(found, axis=0)
    return regrets
