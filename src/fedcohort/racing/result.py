"""The result of a race: the recommended row, how sure it is, what it costs, and what every row did."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedcohort import measures
from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import counted, first_in_words
from fedcohort.racing.costs import cost_of
from fedcohort.racing.equal_raced_rows import about_equal_rows
from fedcohort.racing.objectives import Objective
from fedcohort.racing.row_results import DROPPED, UNDECIDED, Cost, RacedRow
from fedcohort.racing.rule import RANKED
from fedcohort.study.measured_values import plain
from fedcohort.study.verdicts import about_more_seeds

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Race"]


@dataclass(frozen=True, eq=False, repr=False)
class Race:
    """The result of a race. Printing it shows the recommendation and the table; ``.table`` is a DataFrame.

    Attributes:
        name: name of the experiment.
        objectives: one objective, or two for their Pareto front.
        rows: its rows, the recommended one first, then those that are left, then those that were dropped, the last one first.
        ended: why it ended: ``best``, ``settled``, ``front``, or the budget that ended it: ``seeds``, ``runs``, ``minutes``.
        confidence: probability that the best row was not dropped; with two objectives, that no row was dropped although
            no other row is better.
        skipped: strategies that cannot be used with the experiment, each with the reason.
    """

    name: str
    objectives: tuple[Objective, ...]
    rows: tuple[RacedRow, ...]
    ended: str
    confidence: float
    skipped: Mapping[str, str]

    @property
    def recommended(self) -> str | list[str]:
        """Label of the leading row, however sure it is, and also if :attr:`recommendation` is that none can be recommended; with two
        objectives, the labels of all rows that are not dropped."""
        left = [row.label for row in self.rows if row.state != DROPPED]
        return left[0] if len(self.objectives) == 1 else left

    @property
    def decided(self) -> bool:
        """Whether the race ended because more seeds would not change the answer, rather than because a budget ended."""
        return self.ended in ("best", "settled", "front")

    @property
    def at_most_better(self) -> float:
        """Upper bound on the score by which another row is better than the recommended one; 0 if all others are dropped.

        It holds with the confidence of the race. NaN with two objectives.
        """
        if len(self.objectives) > 1:
            return math.nan
        return max([0.0, *(row.high for row in self.rows[1:] if row.state != DROPPED)])

    @property
    def cost(self) -> Cost:
        """What the runs of the race cost, including those that existed before."""
        return sum((row.cost for row in self.rows), Cost())

    @property
    def grid_cost(self) -> Cost:
        """What all rows would cost with as many seeds as the recommended row has, at the mean cost of their runs."""
        seeds = max(row.seeds for row in self.rows)
        return sum((row.cost.times(seeds / row.seeds) for row in self.rows), Cost())

    @property
    def recommendation(self) -> str:
        """The recommendation, how sure it is, and why the race ended, in sentences."""
        how = {
            "seeds": " The race ended at its largest number of seeds.",
            "runs": " The race ended at its largest number of runs.",
            "minutes": " The race ended at its time limit.",
        }.get(self.ended, "")
        text = self._best() if len(self.objectives) == 1 else self._front()
        text, more = (NOTHING, "") if self._is_useless else (text, self._more_seeds())
        return text + how + more + self._about_targets() + self._about_untested() + self._about_failures()

    @property
    def about_cost(self) -> str:
        """What a run of the recommended row costs, what the race cost, and what it saved, in sentences."""
        first, grid, raced = self.rows[0], self.grid_cost, self.cost
        one = first.cost.times(1 / first.seeds)
        costs = (
            f"A run of {first.label!r} costs {one.words}. The race took {counted(raced.runs, 'run')}: {raced.words}."
        )
        if grid.runs == raced.runs:
            return f"{costs} All rows have played the same seeds, so that it saved no runs."
        would = f"All {len(self.rows)} rows with {_seeds(max(row.seeds for row in self.rows))} would be {counted(grid.runs, 'run')}"
        if (more := f"{grid.runs / raced.runs:.1f}") == "1.0":
            return f"{costs} {would}."
        wall = f"{grid.wall_seconds / max(raced.wall_seconds, 1e-9):.1f}"
        return f"{costs} {would}: {more} times as many, and {wall} times the wall time."

    @property
    def about_confidence(self) -> str:
        """What the states and intervals mean, in sentences."""
        left = sum(row.state != DROPPED for row in self.rows)
        if len(self.objectives) > 1:
            holds = "no row is dropped although no other row is better"
        elif left == 1:
            holds = "the best row is not dropped"
        else:
            holds = "the best row is not dropped, and it is better than the first row by no more than its interval says"
        sure = f"With {formatted_values.target(self.confidence)} confidence, at any time, {holds}"
        dropped = "Dropped: another row is clearly better. " * (left < len(self.rows))
        equal = " Of rows that are equally good, some can be dropped." * bool(dropped and len(self.objectives) == 1)
        return f"{dropped}{sure}. This assumes that paired differences between seeds are Gaussian.{equal}"

    @property
    def about_differences(self) -> str:
        """What the differences of the table are, in a sentence."""
        seeds = "all common seeds"
        if self.rows[0].seeds == 1:
            seeds = "the one seed that was played"
        elif len(self.rows) >= RANKED:
            seeds += " but the first, which the means include"
        ends = "" if self.objectives[0].is_cost else " and ends where no larger difference is possible"
        return f"Difference: to the first row, over {seeds}, with an interval that is valid at any time{ends}."

    @property
    def about_limits(self) -> str:
        """Which rows could do more within the limit of an accuracy if they had more rounds, and which ones that are not recommended
        have runs that spend it before their first test, in sentences; empty if none."""
        early = [row.label for row in self.rows if 2 * row.unspent > row.seeds]
        late = [row.label for row in self.rows if row.untested and row not in self._chosen]
        more_rounds = (
            f"Most runs of {_listed(early)} end before the limit is spent, and could reach more with more rounds. To compare all rows "
            "at the limit, raise rounds."
        )
        return " ".join([*([more_rounds] if early else []), *([_about_late(late)] if late else [])])

    @property
    def about_equal_rows(self) -> str:
        """Which rows are equal, why, and what to try, in sentences; empty if none are."""
        return about_equal_rows(self.rows, self.objectives[0].style)

    @property
    def _chosen(self) -> list[RacedRow]:
        """The recommended row; with two objectives, all rows that are not dropped."""
        return list(self.rows[:1]) if len(self.objectives) == 1 else [row for row in self.rows if row.state != DROPPED]

    @property
    def _is_useless(self) -> bool:
        """Whether no run of the leading row reached the target, or was tested within the limit: its mean is made of penalties."""
        first = self.rows[0]
        return len(self.objectives) == 1 and (not first.reached or first.untested == first.seeds)

    @property
    def _consequence(self) -> str:
        """What follows if recommended rows have no result; with one objective, the recommendation begins with it."""
        return "" if self._is_useless else ", so that this is no recommendation"

    def _about_targets(self) -> str:
        """In how many of their runs recommended rows reached the target, in a sentence; empty if in all."""
        left = self._chosen
        some = [row for row in left if 0 < row.reached < row.seeds]
        none = [row.label for row in left if not row.reached]
        advice, text = "use more rounds, or a lower target.", ""
        if some:
            count = f"{some[0].reached} of {_seeds(some[0].seeds)}" if len(some) == 1 else "some of their seeds"
            text += f" {_listed([row.label for row in some])} reached the target in {count} only: {advice}"
        if none:
            text += f" No run of {_listed(none)} reached the target{self._consequence}: {advice}"
        return text

    def _about_untested(self) -> str:
        """Sentences about recommended rows with runs that spent the limit before their first test; empty if there are none."""
        some = [row.label for row in self._chosen if 0 < row.untested < row.seeds]
        none = [row.label for row in self._chosen if row.untested == row.seeds]
        text = f" {_about_late(some)}" if some else ""
        if none:
            text += f" No run of {_listed(none)} was tested within the limit{self._consequence}: {TESTED}"
        return text

    def _more_seeds(self) -> str:
        """How many seeds would decide a race that ended undecided, and which rows are too close; empty if not known."""
        if self.decided:
            return ""
        seeds = self.rows[0].seeds
        close = [row for row in self.rows if math.isinf(row.needed)]
        needed = max((int(row.needed) for row in self.rows if 0 < row.needed < math.inf), default=0)
        would = f"decide {'about the other rows' if close else 'the race'}"
        sentences = [about_more_seeds(None, seeds, "", self._close(close))] if close else []
        sentences += [about_more_seeds(needed, seeds, would, "")] if needed else []
        return "".join(f" {sentence}" for sentence in sentences)

    def _close(self, rows: Sequence[RacedRow]) -> str:
        """That rows cannot be told from the recommended one, and by how much at most they are better, as far as that is known."""
        if len(self.objectives) > 1:
            return f"{_listed([row.label for row in rows])}: differences are small beside the spread from seed to seed"
        objective, bound = self.objectives[0], max(0.0, *(row.high for row in rows))
        differences = "The difference is" if len(rows) == 1 else "Differences are"
        known = bound < (math.log(2) if objective.is_cost else 1.0)
        better = f"at most {objective.shown_bound(bound)}" if known else "better"
        names = _listed([row.label for row in rows])
        told = f"{names} may be worse than {self.rows[0].label!r}, or {better}"
        return f"{differences} small beside the spread from seed to seed: {told}"

    def _about_failures(self) -> str:
        """That training of recommended rows failed, and what to try, in sentences; empty if it did not."""
        return "".join(f" {row.label!r} is no sound result: {row.failure}" for row in self._chosen if row.failure)

    def __repr__(self) -> str:
        """The recommended row or rows, and how many there were."""
        chosen = self.recommended if isinstance(self.recommended, str) else ", ".join(self.recommended[:5])
        return (
            f"<Race {self.name}, {len(self.rows)} rows, {counted(self.cost.runs, 'run')}: {chosen}, {self._sureness()}>"
        )

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row for each row of the race, in the order of :attr:`rows`.

        ``label``, ``state``, ``seeds``; for each objective its name, with the mean: a fraction for accuracies, the geometric mean for
        costs, and ``…_sd``, the standard deviation of accuracies; ``difference``, ``low``, ``high`` (scores, see :class:`RacedRow`);
        ``dropped_by``, ``dropped_after``; ``reached`` (NaN without a target), ``unspent``; and ``total_…``: the fields of
        :class:`Cost`, summed over its runs.
        """
        import pandas as pd

        return pd.DataFrame([self._record(row) for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """The recommendation, the table, the runs and the costs as plain values; unknown values are None."""
        rows = []
        for row, record in zip(self.rows, self.table.to_dict("records"), strict=True):
            values = {str(key): plain(value) for key, value in record.items()}
            rows.append(
                values | {"runs": {seed: str(run.path) for seed, run in row.runs.items()}, "scores": row.scores}
            )
        return {
            "name": self.name,
            "objectives": [asdict(objective) | {"text": objective.text} for objective in self.objectives],
            "recommended": self.recommended,
            "recommendation": self.recommendation,
            "at_most_better": plain(self.at_most_better),
            "ended": self.ended,
            "decided": self.decided,
            "confidence": self.confidence,
            "cost": asdict(self.cost),
            "grid_cost": asdict(self.grid_cost),
            "skipped": dict(self.skipped),
            "rows": rows,
        }

    def _record(self, row: RacedRow) -> dict[str, Any]:
        """A row of the table."""
        values: dict[str, Any] = {"label": row.label, "state": row.state, "seeds": row.seeds}
        for objective, mean, scores in zip(self.objectives, row.means, row.scores, strict=True):
            values[objective.text] = cost_of(objective.measure, mean) if objective.is_cost else mean
            if not objective.is_cost:
                values[f"{objective.text}_sd"] = measures.mean_sd(scores)[1]
        for name in ("difference", "low", "high", "dropped_by", "dropped_after", "reached", "unspent"):
            values[name] = getattr(row, name)
        if not any(objective.about_target for objective in self.objectives):
            values["reached"] = math.nan
        return values | {f"total_{name}": value for name, value in asdict(row.cost).items()}

    def _sureness(self) -> str:
        """How sure the recommendation is, in a few words."""
        if self._is_useless:
            return "cannot be recommended"
        if self.decided:
            return {
                "best": "no other is better",
                "settled": "no other is better by more than the margin",
            }.get(self.ended, "the Pareto front")
        return "not decided"

    def _best(self) -> str:
        """The recommendation for one objective."""
        objective, (first, *others) = self.objectives[0], self.rows
        mean = objective.told(first.means[0])
        begin = f"Recommended: {first.label!r}, {mean} over {_seeds(first.seeds)}."
        dropped = sum(row.state == DROPPED for row in others)
        left = [row.label for row in others if row.state != DROPPED]
        if all(row.high == math.inf for row in others):
            so_far = f"So far, {first.label!r} has the best mean, {mean}."
            return f"The race cannot tell yet which row is the best: too few seeds ({first.seeds}). {so_far}"
        sure = formatted_values.target(self.confidence)
        if not left:
            others_are = f"None of the other {dropped} rows is" if dropped > 1 else "The other row is not"
            return f"{begin} {others_are} better ({sure} confidence)."
        bound = self.at_most_better
        known = bound < (math.log(2) if objective.is_cost else 1.0)
        better = f"at most {objective.shown_bound(bound)}" if known else "not told apart from it"
        if self.ended == "settled":
            better += ", which does not matter"
        verb = "is" if len(left) == 1 else "are"
        without = f"{_rows(dropped)} dropped; " if dropped else ""
        return f"{begin} {without}{_listed(left)} {verb} {better} ({sure} confidence)."

    def _front(self) -> str:
        """The recommendation for two objectives."""
        left = [row for row in self.rows if row.state != DROPPED]
        names = " and ".join(objective.words for objective in self.objectives)
        undecided = sum(row.state == UNDECIDED for row in left)
        sure = formatted_values.target(self.confidence)
        dropped = len(self.rows) - len(left)
        text = f"Pareto front of {names}: {_listed([row.label for row in left])}."
        if dropped:
            text += f" {_rows(dropped)} clearly worse than one of them ({sure} confidence)."
        return text + (f" {_rows(undecided)} not decided yet." if undecided else "")


NOTHING = "No row can be recommended."
"""The recommendation if no run of the leading row has what the race is about."""

TESTED = "raise the limit, or measure more often."
"""What to do about runs that spend the limit of an accuracy before their first test."""


def _about_late(labels: list[str]) -> str:
    """A sentence about rows with such runs."""
    return f"Runs of {_listed(labels)} that spend the limit before their first test count as 0: {TESTED}"


def _seeds(number: int) -> str:
    return counted(number, "seed")


def _rows(number: int) -> str:
    return counted(number, "row is", "rows are")


def _listed(labels: list[str]) -> str:
    """Labels with commas and "and"; at most five of them."""
    return first_in_words([repr(label) for label in labels], 5)
