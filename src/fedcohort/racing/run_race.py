"""Run a race: play block after block, until the rule has its answer or a budget ends."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.given_values import whole_number
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.tasks import label_kind
from fedcohort.racing.objectives import Objective, objectives
from fedcohort.racing.raced_rows import candidates
from fedcohort.racing.result import Race
from fedcohort.racing.row_results import BEST, DROPPED, FRONT, NOT_BETTER, UNDECIDED, Cost, RacedRow
from fedcohort.racing.rule import RaceRule
from fedcohort.record import Run
from fedcohort.runs.play_run import Progress, run_cell
from fedcohort.runs.shared_runs import in_turn
from fedcohort.study.health import Checked, training_findings
from fedcohort.study.run_comparison import PlannedRow
from fedcohort.study.run_measures import Measured
from fedcohort.study.verdicts import most_advised

if TYPE_CHECKING:
    from fedcohort.algorithms import Algorithm
    from fedcohort.selection import Selector

__all__ = ["Limits", "PlannedRace", "plan"]

log = logging.getLogger("fedcohort")


@dataclass(frozen=True)
class Limits:
    """When a race ends although it is not decided, and how sure it must be.

    Attributes:
        seeds: largest number of seeds of a row.
        runs: largest number of runs, including those that existed before; None for no limit.
        minutes: limit of wall time; no block begins that would probably end later; None for no limit.
        confidence: probability that the best row is not dropped; with two objectives, that no row is dropped although no
            other row is better.

    Raises:
        UsageError: a value cannot be used.
    """

    seeds: int = 30
    runs: int | None = None
    minutes: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if type(self.seeds) is not int or not 2 <= self.seeds <= 10_000:
            raise UsageError(f"max_seeds = {shown(self.seeds)}: should be a whole number from 2 to 10,000, such as 30")
        if self.runs is not None and (type(self.runs) is not int or self.runs < 1):
            raise UsageError(f"max_runs = {shown(self.runs)}: should be a whole number of at least 1, such as 500")
        if self.minutes is not None and not (_is_number(self.minutes) and self.minutes > 0):
            raise UsageError(f"minutes = {shown(self.minutes)}: should be a number above 0, such as 60")
        if not (_is_number(self.confidence) and 0.5 <= self.confidence < 1):
            raise UsageError(f"confidence = {shown(self.confidence)}: should be at least 0.5 and below 1, such as 0.95")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class _Played:
    """A finished run, its scores, what it cost, whether it reached all targets, whether it ended before a limit was spent, and whether
    a limit was spent before its first test."""

    run: Run
    scores: tuple[float, ...]
    cost: Cost
    reached: bool
    unspent: bool
    untested: bool


@dataclass
class PlannedRace:
    """A race before it begins.

    Attributes:
        experiment: the experiment.
        rows: the rows that race.
        skipped: strategies that cannot be used, each with the reason.
        objectives: one or two objectives.
        limits: when it ends at the latest.
    """

    experiment: Experiment
    rows: Sequence[PlannedRow]
    skipped: Mapping[str, str]
    objectives: Sequence[Objective]
    limits: Limits

    @property
    def cells(self) -> list[Cell]:
        """All runs that the race can need."""
        return [self._cell(row, seed) for seed in range(self.limits.seeds) for row in range(len(self.rows))]

    @property
    def most_runs(self) -> int:
        """The largest number of runs of the race, also of those that are finished already: as many as ``max_runs`` allows."""
        all_runs = len(self.rows) * self.limits.seeds
        return all_runs if self.limits.runs is None else min(all_runs, self.limits.runs)

    def run(
        self,
        *,
        runs: str | Path = "runs",
        progress: Progress | None = None,
        jobs: int = 1,
        trust: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> Race:
        """Play the race. Finished runs are not repeated.

        Args:
            runs: folder of run directories.
            progress: called after every round; not called in the processes of several ``jobs``.
            jobs: number of runs at the same time.
            trust: see :func:`fedcohort.runs.play_run.run_cell`.
            clock: wall time in seconds, for the limit of minutes.
        """
        jobs = whole_number("jobs", jobs, 1)
        if jobs > 1 and any(row.given.names() for row in self.rows):
            raise UsageError(
                f"jobs = {jobs}: objects from Python stay in their process; use 1, or name them in the experiment"
            )
        rule = RaceRule(len(self.rows), [one.score_margin for one in self.objectives], self.limits.confidence)
        played: dict[tuple[int, int], _Played] = {}
        begun = before = clock()
        while (ended := self._ended(rule, len(played), before - begun, clock() - before)) is None:
            before = clock()
            block = rule.next_block()
            self._play(block, runs, jobs, progress, trust, played)
            rule.add_block([(row, seed, played[row, seed].scores) for row, seed in block])
            self._tell(rule)
        return self._result(rule, played, ended)

    def _ended(self, rule: RaceRule, num_runs: int, seconds: float, last_block: float) -> str | None:
        """Why the race ends before the next block; None if it goes on.

        ``seconds`` is the wall time up to the beginning of the last block, which took ``last_block``.
        """
        if rule.depth and rule.decided:
            if len(self.objectives) > 1:
                return "front"
            return "best" if len(rule.alive) == 1 else "settled"
        block = rule.next_block()
        if max(seed for _, seed in block) >= self.limits.seeds:
            return "seeds"
        if self.limits.runs is not None and num_runs + len(block) > self.limits.runs:
            return "runs"
        if rule.depth and self.limits.minutes is not None and seconds + 2 * last_block > 60 * self.limits.minutes:
            return "minutes"
        return None

    def _cell(self, row: int, seed: int) -> Cell:
        planned, seed = self.rows[row], self.experiment.seed + seed
        return Cell(planned.label, seed, planned.experiment.single(seed))

    def _play(
        self,
        block: Sequence[tuple[int, int]],
        runs: str | Path,
        jobs: int,
        progress: Progress | None,
        trust: bool,
        played: dict[tuple[int, int], _Played],
    ) -> None:
        """Play the runs of a block, and enter what they scored into ``played``."""
        planned = [(row, seed, self._cell(row, seed)) for row, seed in block]
        if jobs > 1:
            from fedcohort.runs.parallel_runs import run_cells

            run_cells([(cell, self.rows[row].given) for row, _, cell in planned], runs, jobs, trust=trust)

        def play(each: tuple[int, int, Cell]) -> Run:
            row, _, cell = each
            return run_cell(cell, self.rows[row].given, runs=runs, progress=progress, trust=trust)

        for (row, seed, _), run in in_turn(planned, play):
            scores = tuple(objective.score(run) for objective in self.objectives)
            reached = all(objective.reached(run) for objective in self.objectives)
            unspent = any(objective.unspent(run) for objective in self.objectives)
            untested = any(objective.untested(run) for objective in self.objectives)
            played[row, seed] = _Played(run, scores, _cost(run), reached, unspent, untested)

    def _tell(self, rule: RaceRule) -> None:
        """Log how far the race is."""
        seeds = "seed" if rule.depth == 1 else "seeds"
        how_far = f"after {rule.depth} {seeds}: {len(rule.alive)} of {len(self.rows)} rows left"
        how_far += f", {len(rule.resting)} of which need no more seeds" * bool(rule.resting)
        best = []
        for number, objective in enumerate(self.objectives):
            means = {
                row: float(rule.scores[number, row, : rule.depth].mean())
                for row in rule.alive
                if rule.counts[row] >= rule.depth
            }
            leader = rule.leader if len(self.objectives) == 1 else max(means, key=lambda row: means[row])
            best.append(f"{self.rows[leader].label}, {objective.told(means[leader])}")
        log.info("%s; best so far %s", how_far, "; ".join(best))

    def _result(self, rule: RaceRule, played: Mapping[tuple[int, int], _Played], ended: str) -> Race:
        """The result of a race that has ended."""
        leader = rule.leader
        means = {row: float(rule.scores[0, row, : rule.counts[row]].mean()) for row in range(len(self.rows))}
        left = sorted((row for row in rule.alive if row != leader), key=lambda row: (-means[row], row))
        order = [leader, *left, *reversed(rule.drops)]
        rows = [self._row(row, leader, rule, played) for row in order]
        return Race(
            self.experiment.name, tuple(self.objectives), tuple(rows), ended, self.limits.confidence, self.skipped
        )

    def _row(self, row: int, leader: int, rule: RaceRule, played: Mapping[tuple[int, int], _Played]) -> RacedRow:
        """One row of the result."""
        own = [played[row, seed] for seed in range(int(rule.counts[row]))]
        drop = rule.drops.get(row)
        single = len(self.objectives) == 1
        difference = (math.nan,) * 3
        if single and row != leader:
            difference = self.objectives[0].possible(*rule.difference(row, leader))
        return RacedRow(
            label=self.rows[row].label,
            runs={self.experiment.seed + seed: each.run for seed, each in enumerate(own)},
            scores=tuple(zip(*(each.scores for each in own), strict=True)),
            state=self._state(row, leader, rule),
            dropped_by=self.rows[drop.by].label if drop is not None else "",
            dropped_after=drop.seeds if drop is not None else 0,
            difference=difference[0],
            low=difference[1],
            high=difference[2],
            cost=sum((each.cost for each in own), Cost()),
            reached=sum(each.reached for each in own),
            unspent=sum(each.unspent for each in own),
            untested=sum(each.untested for each in own),
            needed=self._needed(row, leader, rule),
            failure="" if drop is not None else self._failure(row, own),
        )

    def _needed(self, row: int, leader: int, rule: RaceRule) -> float:
        """About how many seeds would decide about a row; see :class:`RacedRow`."""
        if rule.decided or self._state(row, leader, rule) != UNDECIDED:
            return 0
        if len(self.objectives) > 1:
            return rule.seeds_to_settle(row, most_advised(rule.depth))
        if row == leader:
            return 0
        return rule.seeds_to_decide(row, leader, most_advised(rule.depth))

    def _failure(self, row: int, own: Sequence[_Played]) -> str:
        """Why training of a row failed, and what to try, in sentences; empty if it did not."""
        checked = Checked(self.rows[row].label, [Measured(each.run) for each in own])
        found = training_findings([checked], self.objectives[0].style)
        return " ".join(f"{finding.text}. Try: {finding.advice}." for finding in found if finding.kind != "diverged")

    def _state(self, row: int, leader: int, rule: RaceRule) -> str:
        if row in rule.drops:
            return DROPPED
        if len(self.objectives) > 1:
            return FRONT if row in rule.resting or len(rule.alive) == 1 else UNDECIDED
        if row == leader:
            return BEST if rule.decided else UNDECIDED
        return NOT_BETTER if row in rule.resting else UNDECIDED


def _cost(run: Run) -> Cost:
    """What a run cost."""
    measured = Measured(run)
    return Cost(1.0, measured.bytes, measured.client_passes, measured.simulated_time, measured.wall_seconds["total"])


def plan(
    experiment: Experiment,
    given: Given,
    *,
    objective: str | Sequence[str] = "accuracy",
    margin: float | Sequence[float] | None = None,
    limits: Limits | None = None,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    strategies: Sequence[str] = (),
    over: Mapping[str, Sequence[Any]] | None = None,
    labels: Sequence[str] = (),
) -> PlannedRace:
    """Plan a race; see :func:`fedcohort.race`.

    Raises:
        UsageError: an argument, or a row of the experiment, cannot be used.
    """
    texts = objective if isinstance(objective, str) else list(objective)
    margins = () if margin is None else [margin] if isinstance(margin, int | float) else list(margin)
    kind = label_kind(experiment.training)
    chosen = [replace(one, labels=kind) for one in objectives(texts, margins)]
    rows, skipped = candidates(
        experiment, given, selector=selector, algorithm=algorithm, strategies=strategies, over=over, labels=labels
    )
    for row in rows:
        for one in chosen:
            one.check(row.label, row.experiment)
    limits = limits or Limits()
    if limits.runs is not None and limits.runs < len(rows):
        raise UsageError(
            f"max_runs = {limits.runs}: fewer than the {len(rows)} rows, which all start; use more, or name fewer rows"
        )
    return PlannedRace(experiment, rows, skipped, chosen, limits)
