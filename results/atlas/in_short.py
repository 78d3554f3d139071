"""What the atlas says, in a few sentences that follow from its numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fedcohort.study.verdicts import BETTER, WORSE
from results.atlas.federations import federations
from results.atlas.means import OBJECTIVES, Findings
from results.atlas.recommend import checked
from results.tables import signed

__all__ = ["in_short"]

CLASSES: Mapping[str, int] = {"breast_cancer": 2, "digits": 10, "fashion_mnist": 10, "femnist": 62, "cifar10": 10}
"""Data set → number of classes."""
NEAR_CHANCE = 2.0
"""Accuracies of uniform selection up to this many times that of chance are called near chance."""
MANY = 8
"""Largest number of strategies that are named in one sentence."""


def in_short(findings: Findings) -> str:
    """The main results of the atlas as a list."""
    lines = [_at(findings, measure) for measure in OBJECTIVES]
    lines += [_where(findings), *_flash(findings), *_recommended(findings), *_near_chance(findings), CORRECTED]
    return "\n".join(f"* {line}" for line in lines)


CORRECTED = (
    '"Clearly" refers to a permutation test over the federations, corrected for the number of strategies. The chance of a false '
    '"clearly" is at most 5% at each of the three budgets, and so at most 15% at any of them.'
)


def _at(findings: Findings, measure: str) -> str:
    """The strategies that are clearly better or worse over the federations at one budget, and the highest mean."""
    over = findings.over_federations(measure)
    better = [name for name, found in over.items() if found.words == BETTER]
    worse = [name for name, found in over.items() if found.words == WORSE]
    means, number = findings.means(measure), len(findings.federations)
    winner, wins = Counter(findings.strategies[int(i)] for i in means.argmax(axis=1)).most_common(1)[0]
    return (
        f"**At {OBJECTIVES[measure]}**, {_gains(findings, measure, better)} clearly better than uniform selection on average over the "
        f"federations, and {_named(worse)} clearly worse. The highest mean is most often that of `{winner}`, in {wins} of {number} "
        "federations."
    )


def _gains(findings: Findings, measure: str, names: Sequence[str]) -> str:
    """Strategies with their mean gain and their bytes, and a verb."""
    if not names:
        return "no strategy is"
    over, ratios = findings.over_federations(measure), findings.relative("bytes")
    each = [
        f"`{name}` ({signed(100 * over[name].interval.mean)} points, {ratios[findings.strategies.index(name)]:.1f} × the bytes)"
        for name in sorted(names, key=lambda name: -over[name].interval.mean)
    ]
    return f"{_joined(each)} {'is' if len(each) == 1 else 'are'}"


def _named(names: Sequence[str]) -> str:
    """Strategies, or their number if there are many, with a verb."""
    if not names:
        return "none is"
    if len(names) > MANY:
        return f"{len(names)} are"
    return f"{_joined([f'`{name}`' for name in names])} {'is' if len(names) == 1 else 'are'}"


def _where(findings: Findings) -> str:
    """The federations in which strategies differ most and least at equal rounds."""
    spread = 100 * findings.means("accuracy").std(axis=1)
    order = np.argsort(-spread, kind="stable")
    most, least = (
        [f"*{findings.federations[i]}* ({spread[i]:.1f})" for i in part] for part in (order[:3], order[:-4:-1])
    )
    return (
        "**Where it matters**: the standard deviation of the strategies' mean accuracies at equal rounds, in points, is largest on "
        f"{_joined(most)}, and smallest on {_joined(least)}."
    )


def _flash(findings: Findings) -> list[str]:
    """What FLASH with its defaults does at each budget."""
    if "flash" not in findings.strategies:
        return []
    each = []
    for measure, words in OBJECTIVES.items():
        found = findings.over_federations(measure)["flash"]
        mean, low, high = (signed(100 * value) for value in found.interval)
        verdict = "not clear" if found.words not in (BETTER, WORSE) else f"clearly {found.words}"
        untested = findings.untested("flash", measure)
        zero = (
            f"; {100 * untested:.0f}% of its runs test no model within the limit and count as 0"
            if untested >= 0.05
            else ""
        )
        each.append(f"{mean} [{low}, {high}] points at {words} ({verdict}{zero})")
    return [
        f"**FLASH**, with default parameters and plain cross-entropy, compared with uniform selection: {_joined(each)}."
    ]


def _recommended(findings: Findings) -> list[str]:
    """The regret of the recommendation beside that of fixed choices."""
    each = []
    for measure, words in OBJECTIVES.items():
        found = checked(findings, measure)
        if not found:
            return []
        fixed = [f"{row.rule} {100 * row.regret.mean:.1f}" for row in found if row.rule.startswith("always")]
        each.append(f"{100 * found[0].regret.mean:.1f} points at {words} ({', '.join(fixed)})")
    begin = "**A recommendation from similar federations**, on federations that were held out, has a mean regret of"
    return [f"{begin} {_joined(each)}. The intervals are below."]


def _near_chance(findings: Findings) -> list[str]:
    """The federations in which uniform selection learns little."""
    data = {place.name: place.experiment.data.name for place in federations()}
    classes = {name: CLASSES[data[name]] for name in findings.federations if name in data}
    means = findings.means("accuracy")[:, 0]
    low = [
        f"*{name}* ({100 * mean:.1f}%, chance {100 / classes[name]:.0f}%)"
        for name, mean in zip(findings.federations, means, strict=True)
        if name in classes and mean <= min(NEAR_CHANCE / classes[name], 0.5)
    ]
    if not low:
        return []
    return [
        f"On {_joined(low)}, uniform selection reaches at most twice the accuracy of chance, so that differences say little."
    ]


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
