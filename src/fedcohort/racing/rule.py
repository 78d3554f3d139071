"""The rule of a race: which rows get the next seed, which are dropped, and when the race is decided.

All rows start on the same seeds. After every block (one seed for every row in play), each pair of rows is compared by the sequential
t-test of :mod:`~fedcohort.racing.sequential_test`:

* A row is dropped if another one is clearly better. The best row has K − 1 opponents, and the probability that one of them ever looks
  clearly better than it is at most α: evidence that row j is better than row i is clear at log M ≥ log(1/(α·s)), where the shares s of
  the opponents of a row add up to 1. The same event is meant by the upper end of an interval: the difference of the best row to
  another one looks smaller than it is. So with probability 1 − α, at any time, the best row is not dropped, and it is better than the
  leader by no more than the upper end of its interval. If several rows are best, this holds for each of them.
* The first seed gives the shares, and no evidence: the opponent with the r-th highest score has a share ∝ 1/(r + 1)². An opponent that
  was good under one seed is probably good under others, and needs less evidence. With fewer than four rows, a seed is worth more than
  that: the shares are 1/(K − 1), and all seeds give evidence.
* A row rests if it can no longer change the answer, because it is better than the leader by at most the margin. If the leader changes,
  it may have to catch up.
* The race is decided if all other rows are dropped or rest.

With two objectives, a row is dropped if another one is clearly better in one of them, and clearly not worse by more than the margin
in the other. The answer is all rows of the front, so that the shares are 1/((K − 1)·R) for R rows that are left (Holm, 1979): the
probability that any row is dropped although no other row is better is at most α. Two rows are settled if each is clearly better in
one objective, or if they differ by no more than the margins in both. A row rests if it is settled with all others.

The rule is a function of the results: the same results give the same race, in whatever order the runs of a block end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.racing.paired_rows import Pairs, paired
from fedcohort.racing.sequential_test import critical_ratio

__all__ = ["RANKED", "Drop", "RaceRule"]

Flags = NDArray[np.bool_]

FLOOR = 0.1
"""Standard deviation that is added to that of differences, as a share of the margin."""
RANKED = 4
"""Number of rows from which the first seed gives their shares."""


@dataclass(frozen=True)
class Drop:
    """A row that is out of the race: the row that is clearly better, and after how many common seeds this was clear."""

    by: int
    seeds: int


class RaceRule:
    """The state of a race. Rows are numbered from 0, seeds by their position from 0.

    Args:
        rows: number of rows K at the start, at least 1.
        margins: for each of one or two objectives, the difference of scores that does not matter in practice, above 0.
        confidence: 1 − α, the probability that the best row is not dropped; with two objectives, that no row is dropped although no
            other row is better.
    """

    def __init__(self, rows: int, margins: Sequence[float], confidence: float = 0.95) -> None:
        self.num_rows, self.margins, self.alpha = rows, tuple(margins), 1 - confidence
        self.counts: Indices = np.zeros(rows, dtype=np.int64)
        self.scores: Values = np.full((len(self.margins), rows, 8), np.nan)
        self.drops: dict[int, Drop] = {}
        self.resting: set[int] = set()
        self._ranked = len(self.margins) == 1 and rows >= RANKED
        self._share: Indices = np.zeros((rows, rows), dtype=np.int64)

    @property
    def alive(self) -> list[int]:
        """The rows that are not dropped."""
        return [row for row in range(self.num_rows) if row not in self.drops]

    @property
    def depth(self) -> int:
        """Number of seeds that the rows in play have played."""
        return int(self.counts[self.alive].max())

    @property
    def first(self) -> int:
        """The position of the first seed that gives evidence."""
        return int(self._ranked)

    @property
    def shares(self) -> Values:
        """The shares of α that opponents of a row can have, the largest one first."""
        opponents = max(self.num_rows - 1, 1)
        if self._ranked:
            terms = 1.0 / np.arange(2, opponents + 2) ** 2
            shares: Values = terms / terms.sum()
            return shares
        return np.array([1 / opponents if len(self.margins) == 1 else 1 / (opponents * len(self.alive))])

    @property
    def decided(self) -> bool:
        """Whether no seed can change the answer by more than the margin."""
        in_play = [row for row in self.alive if row not in self.resting]
        return self.depth > 0 and (len(self.alive) == 1 or len(in_play) <= (len(self.margins) == 1))

    @property
    def leader(self) -> int:
        """The row with the highest mean score in the first objective, of those that have played all seeds; the first if several."""
        depth = self.depth
        rows = [row for row in self.alive if self.counts[row] == depth]
        means = self.scores[0, rows, :depth].mean(axis=1)
        return rows[int(means.argmax())]

    def next_block(self) -> list[tuple[int, int]]:
        """The runs to play next, as pairs of row and seed; empty if the race is decided.

        Every row in play gets the next seed. A row that no longer rests also gets the seeds that it has missed.
        """
        if self.decided:
            return []
        rows = [row for row in self.alive if row not in self.resting]
        return [(row, seed) for seed in range(self.depth + 1) for row in rows if seed >= self.counts[row]]

    def add_block(self, results: Sequence[tuple[int, int, Sequence[float]]]) -> None:
        """Enter the results of a block, in any order: row, seed, and one score for each objective (higher is better). Then judge."""
        last = max(seed for _, seed, _ in results)
        if last >= self.scores.shape[2]:
            more = np.full((*self.scores.shape[:2], last + 1), np.nan)
            self.scores = np.concatenate([self.scores, more], axis=2)
        for row, seed, scores in results:
            self.scores[:, row, seed] = scores
            self.counts[row] = max(self.counts[row], seed + 1)
        if self._ranked and self.depth == 1:
            self._share = _ranks_of_opponents(self.scores[0, :, 0])
        if self.depth > self.first:
            self._judge()

    def difference(self, row: int, other: int, objective: int = 0) -> tuple[float, float, float]:
        """Mean of x_row − x_other over their common seeds that give evidence, and its interval.

        If ``row`` is the best one, its upper ends for all other rows hold together, with probability 1 − α at any time. A lower end
        holds with this probability for its pair alone.
        """
        counts = self.counts[[row, other]] - self.first
        if counts.min() < 1:
            return float(self.scores[objective, row, 0] - self.scores[objective, other, 0]), -math.inf, math.inf
        pairs = paired(self.scores[objective][[row, other], self.first :], counts, FLOOR * self.margins[objective])
        mean, sd, seeds = float(pairs.mean[0, 1]), float(pairs.sd[0, 1]), int(pairs.seeds[0, 1])
        share = float(self.shares[self._share[other, row]])
        below, above = (sd * critical_ratio(seeds, -math.log(self.alpha * part)) for part in (1.0, share))
        return mean, mean - below, mean + above

    def seeds_to_decide(self, row: int, leader: int, most: int) -> float:
        """About how many seeds would decide between a row and the leader, if their mean difference and its spread stay as they are.

        That is, the leader would be clearly better, or the row better by at most the margin.

        Args:
            row, leader: the rows.
            most: largest number of seeds that is tried.

        Returns:
            The number of seeds; infinite if it is above ``most``, and 0 if there is not yet a spread to judge by.
        """
        counts = self.counts[[row, leader]] - self.first
        if counts.min() < 2:
            return 0
        pairs = paired(self.scores[0][[row, leader], self.first :], counts, FLOOR * self.margins[0])
        lead, sd = -float(pairs.mean[0, 1]), float(pairs.sd[0, 1])
        threshold = -math.log(self.alpha * float(self.shares[self._share[leader, row]]))
        for seeds in range(int(counts.min()) + 1, most - self.first + 1):
            reach = critical_ratio(seeds, threshold) * sd
            if lead >= reach or reach - lead <= self.margins[0]:
                return seeds + self.first
        return math.inf

    def seeds_to_settle(self, row: int, most: int) -> float:
        """The same with two objectives: about how many seeds would settle a row with every other one, or drop one of the two.

        Args:
            row: the row.
            most: largest number of seeds that is tried.

        Returns:
            The number of seeds; infinite if it is above ``most``, and 0 if there is not yet a spread to judge by.
        """
        others = [other for other in self.alive if other != row]
        if self.counts[[row, *others]].min() < 2:
            return 0
        compared = [
            paired(scores, self.counts, FLOOR * margin)
            for scores, margin in zip(self.scores, self.margins, strict=True)
        ]
        leads = [[(float(each.mean[row, other]), float(each.sd[row, other])) for each in compared] for other in others]
        threshold = -math.log(self.alpha * float(self.shares[0]))
        for seeds in range(self.depth + 1, most + 1):
            one, two = (critical_ratio(seeds, threshold + math.log(tests)) for tests in (1, 2))
            if all(self._would_settle(lead, one, two) for lead in leads):
                return seeds
        return math.inf

    def _would_settle(self, leads: Sequence[tuple[float, float]], one: float, two: float) -> bool:
        """Whether two rows are settled, or one of them is dropped.

        Args:
            leads: in each objective, the mean and the standard deviation of their differences.
            one, two: the ratios of them that are clear for one test, and corrected for two.
        """
        (better, worse), (also_better, also_worse) = ((mean >= one * sd, -mean >= one * sd) for mean, sd in leads)
        opposed = (better and also_worse) or (worse and also_better)
        equal = all(abs(mean) + one * sd <= margin for (mean, sd), margin in zip(leads, self.margins, strict=True))
        return opposed or equal or any(self._would_drop(leads, sign, one, two) for sign in (1, -1))

    def _would_drop(self, leads: Sequence[tuple[float, float]], sign: int, one: float, two: float) -> bool:
        """Whether the first of two rows (sign 1) would drop the second one, or the second (−1) the first one."""
        better = any(sign * mean >= two * sd for mean, sd in leads)
        pairs = zip(leads, self.margins, strict=True)
        return better and all(sign * mean + margin >= one * sd for (mean, sd), margin in pairs)

    def _judge(self) -> None:
        """Drop rows until no more are clearly worse, then find the rows that rest."""
        compared = [
            paired(scores[:, self.first :], self.counts - self.first, FLOOR * margin)
            for scores, margin in zip(self.scores, self.margins, strict=True)
        ]
        strength, beaten = compared[0].mean / compared[0].sd, self._beaten(compared)
        while (worse := self._next_drop(beaten, strength)) is not None:
            row, by = worse
            self.drops[row] = Drop(by, int(compared[0].seeds[by, row]) + self.first)
            if len(self.margins) > 1:
                beaten = self._beaten(compared)  # the fewer rows are left, the larger are their shares of α
        self.resting = self._resting(compared)

    def _next_drop(self, beaten: Flags, strength: Values) -> tuple[int, int] | None:
        """The row with the strongest evidence that another one is better, and that row; None if there is none.

        Args:
            beaten: whether row j is clearly better than row i [K, K].
            strength: how strong the evidence for this is [K, K].
        """
        alive = np.array(self.alive)
        clear = _within(beaten, alive)
        if not clear.any():
            return None
        evidence = np.where(clear, _within(strength, alive), -np.inf)
        by, row = np.unravel_index(int(evidence.argmax()), evidence.shape)
        return int(alive[row]), int(alive[by])

    def _beaten(self, compared: Sequence[Pairs]) -> Flags:
        """Whether row j is clearly better than row i [K, K]: better in one objective, and in none worse by more than its margin."""
        better = self._clearly_better(compared, len(compared))
        if len(compared) == 1:
            return better[0]
        critical = self._critical(compared[0].seeds)
        not_worse = [
            pairs.mean + margin >= critical * pairs.sd for pairs, margin in zip(compared, self.margins, strict=True)
        ]
        beaten: Flags = np.logical_or.reduce(better) & np.logical_and.reduce(not_worse)
        return beaten

    def _clearly_better(self, compared: Sequence[Pairs], tests: int) -> list[Flags]:
        """For each objective, whether row j is clearly better than row i in it [K, K], corrected for a number of ``tests``."""
        critical = self._critical(compared[0].seeds, tests)
        return [pairs.mean >= critical * pairs.sd for pairs in compared]

    def _critical(self, seeds: Indices, tests: int = 1) -> Values:
        """The ratio of mean and standard deviation of x_j − x_i that is clear after these numbers of seeds [K, K]."""
        found = np.unique(self.counts - self.first)  # the seeds of a pair are those of one of its rows
        position = np.searchsorted(found, seeds)
        thresholds = (math.log(tests) - np.log(self.alpha * self.shares)).tolist()
        ratios = np.array([[critical_ratio(n, threshold) for threshold in thresholds] for n in found.tolist()])
        critical: Values = ratios[position, self._share]
        return critical

    def _resting(self, compared: Sequence[Pairs]) -> set[int]:
        """The rows that need no more seeds."""
        alive = np.array(self.alive)
        critical = self._critical(compared[0].seeds).T  # of the evidence of row i against row j
        within = [  # whether row j is at most the margin better than row i
            pairs.mean + critical * pairs.sd <= margin for pairs, margin in zip(compared, self.margins, strict=True)
        ]
        if len(compared) == 1:
            leader = self.leader
            rests = within[0][:, leader]
            return {row for row in self.alive if row != leader and rests[row]}
        better = self._clearly_better(compared, 1)
        opposed = (better[0] & better[1].T) | (better[1] & better[0].T)
        equal = np.logical_and.reduce([flags & flags.T for flags in within])
        settled = _within(opposed | equal, alive) | np.eye(len(alive), dtype=bool)
        return {int(row) for row in alive[settled.all(axis=1)]}


def _ranks_of_opponents(scores: Values) -> Indices:
    """The rank of row j among the opponents of row i [K, K], from 0, by scores [K] of one seed; the first of equal ones is higher."""
    rank = np.empty(len(scores), dtype=np.int64)
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    ranks: Indices = rank[:, None] - (rank[:, None] > rank[None, :])
    return np.minimum(ranks, len(scores) - 2)


def _within(matrix: NDArray[np.generic], rows: Indices) -> NDArray[np.generic]:
    """The part of a matrix [K, K] that concerns some rows."""
    return matrix[np.ix_(rows, rows)]
