"""What the atlas found, as arrays: runs under the seeds that all strategies of a federation have played."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedcohort import measures
from fedcohort.core.arrays import Values
from fedcohort.study.verdicts import FEWEST, LEVEL, Verdict, verdicts

__all__ = ["OBJECTIVES", "REFERENCE", "Findings", "OverFederations"]

REFERENCE = "uniform"
"""The strategy that all others are compared with."""

OBJECTIVES: Mapping[str, str] = {
    "accuracy": "equal rounds",
    "at_time": "equal simulated time",
    "at_bytes": "equal bytes",
}
"""Measures that strategies are judged by → at what."""


@dataclass(frozen=True)
class OverFederations:
    """The differences of a strategy to uniform selection, with federations as the unit.

    Attributes:
        interval: mean over federations of the mean difference over seeds, with its 95% interval; fractions.
        better: number of federations with a positive mean difference.
        p_holm: p-value of the paired permutation test over federations, corrected by Holm for the number of strategies.
    """

    interval: measures.PairedInterval
    better: int
    p_holm: float

    @property
    def words(self) -> str:
        """``better``, ``worse`` or ``not clear``."""
        if not self.p_holm <= LEVEL:
            return "not clear"
        return "better" if self.interval.mean > 0 else "worse"


@dataclass(frozen=True)
class Findings:
    """The atlas as it is kept, see :mod:`results.atlas.play`. Federations without a complete seed do not count."""

    atlas: Mapping[str, Any]

    @cached_property
    def federations(self) -> list[str]:
        """Names of the federations."""
        return [name for name in self.atlas if self.seeds(name)]

    def seeds(self, federation: str) -> int:
        """The number of seeds, from 0 on, that all strategies have played."""
        return self._seeds[federation]

    @cached_property
    def _seeds(self) -> dict[str, int]:
        everywhere = {name for entry in self.atlas.values() for name in entry["runs"]}
        found = {}
        for federation, entry in self.atlas.items():
            wanted = everywhere - entry["refused"].keys()
            numbers = (len(entry["runs"].get(name, {}).get("accuracy", [])) for name in wanted)
            found[federation] = min(numbers) if REFERENCE in wanted else 0
        return found

    @cached_property
    def strategies(self) -> list[str]:
        """The strategies that no federation refuses, uniform selection first."""
        names = dict.fromkeys(name for federation in self.federations for name in self.atlas[federation]["runs"])
        accepted = [n for n in names if not any(n in self.atlas[f]["refused"] for f in self.federations)]
        return sorted(accepted, key=lambda name: name != REFERENCE)

    @cached_property
    def refused(self) -> dict[str, dict[str, str]]:
        """Strategy → federation → reason, for all that are refused."""
        found: dict[str, dict[str, str]] = {}
        for federation, entry in self.atlas.items():
            for strategy, reason in entry["refused"].items():
                found.setdefault(strategy, {})[federation] = reason
        return found

    def values(self, federation: str, strategy: str, measure: str) -> Values:
        """A measure of all runs of a strategy, float64 [seeds]; an unknown value is NaN."""
        return np.array(self.atlas[federation]["runs"][strategy][measure][: self.seeds(federation)], dtype=np.float64)

    def means(self, measure: str, seeds: Sequence[int] | None = None) -> Values:
        """Means over seeds, float64 [federations, strategies]; unknown accuracies count as 0."""
        rows = []
        for federation in self.federations:
            chosen = np.arange(self.seeds(federation)) if seeds is None else np.array(seeds, dtype=np.int64)
            rows.append(
                [
                    np.nan_to_num(self.values(federation, strategy, measure))[chosen].mean()
                    for strategy in self.strategies
                ]
            )
        return np.array(rows)

    @cached_property
    def traits(self) -> Values:
        """Traits of the federations, float64 [federations, traits]."""
        return np.array([list(self.atlas[name]["traits"].values()) for name in self.federations])

    def relative(self, measure: str) -> Values:
        """A cost relative to uniform selection under the same seeds, geometric mean over seeds and federations, [strategies]."""
        logs = np.array(
            [
                [
                    np.log(self.values(f, s, measure) / self.values(f, REFERENCE, measure)).mean()
                    for s in self.strategies
                ]
                for f in self.federations
            ]
        )
        ratios: Values = np.exp(logs.mean(axis=0))
        return ratios

    def untested(self, strategy: str, measure: str) -> float:
        """Mean share, over the federations, of runs in which no model was tested within a limit, whose accuracy counts as 0."""
        return float(np.mean([(self.values(f, strategy, measure) == 0).mean() for f in self.federations]))

    def verdicts(self, federation: str, measure: str) -> dict[str, Verdict]:
        """Whether the differences to uniform selection in a federation are clear, corrected by Holm for all strategies in it."""
        rows = [np.nan_to_num(self.values(federation, strategy, measure)).tolist() for strategy in self.strategies]
        found = verdicts([(row, rows[0]) for row in rows])
        return dict(zip(self.strategies, found, strict=True))

    def over_federations(self, measure: str) -> dict[str, OverFederations]:
        """The differences of each strategy to uniform selection, with federations as the unit."""
        means = self.means(measure)
        p_values = [
            measures.paired_p_value(means[:, i], means[:, 0]) if len(means) >= FEWEST else np.nan
            for i in range(1, len(self.strategies))
        ]
        found = {}
        for i, p_holm in enumerate(measures.holm(p_values), start=1):
            interval = measures.paired_interval(means[:, i], means[:, 0], limits=measures.ACCURACY_DIFFERENCES)
            found[self.strategies[i]] = OverFederations(interval, int((means[:, i] > means[:, 0]).sum()), p_holm)
        return found
