"""Advice on a federation: race strategies on its twin, and say what the result is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.core.words.formatted_values import counted, in_words, number
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.client_table import ClientTable
from fedcohort.racing.likeness import DIFFERS, MATCHED, NOT_GIVEN, ROUGH, Trait, likeness
from fedcohort.racing.result import Race
from fedcohort.racing.round_costs import RoundCost, round_cost
from fedcohort.racing.row_results import DROPPED
from fedcohort.racing.run_race import Limits, PlannedRace, plan
from fedcohort.racing.twin import Twin, build_twin
from fedcohort.runs.prepare_run import look
from fedcohort.study.measured_values import plain

if TYPE_CHECKING:
    from fedcohort.runs.play_run import Progress

__all__ = ["Advice", "PlannedAdvice", "plan_advice"]


@dataclass(frozen=True, eq=False, repr=False)
class Advice:
    """What a race on the twin of a federation recommends. Printing it shows the twin, its likeness, the race, and the costs.

    Attributes:
        twin: the twin that raced.
        likeness: how similar it is to the federation, under the first seed.
        race: the race; None if none was run.
        costs: what a round costs, for the recommended rows, and for uniform selection if it raced.
    """

    twin: Twin
    likeness: tuple[Trait, ...]
    race: Race | None
    costs: tuple[RoundCost, ...]

    @property
    def recommended(self) -> str | list[str] | None:
        """See :attr:`Race.recommended`; None without a race."""
        return None if self.race is None else self.race.recommended

    @property
    def recommendation(self) -> str:
        """The recommendation, and how sure it is, in sentences; empty without a race."""
        return "" if self.race is None else self.race.recommendation

    @property
    def about_likeness(self) -> str:
        """How similar the twin is to the federation, in sentences."""
        named = {
            state: [trait.name for trait in self.likeness if trait.state == state]
            for state in (MATCHED, ROUGH, DIFFERS, NOT_GIVEN)
        }
        parts = [
            f"{words} {in_words(named[state])}"
            for state, words in ((MATCHED, "it matches"), (ROUGH, "it roughly matches"), (DIFFERS, "it differs in"))
            if named[state]
        ]
        missing = f" Not given: {in_words(named[NOT_GIVEN])}." if named[NOT_GIVEN] else ""
        return f"How like the twin is, client by client: {'; '.join(parts)}.{missing}"

    @property
    def unknown(self) -> list[str]:
        """What a race on a twin cannot know, in sentences."""
        twin, experiment = self.twin, self.twin.experiment
        noise = experiment.federation.label_noise.name == "none"
        at_most = "at most the order of strategies carries over"
        training = (  # strategies such as "all" select another number of clients
            f"{experiment.model.name!r} for {counted(experiment.rounds, 'round')} with selection.k = {experiment.selection.k}"
        )
        found = [
            f"Your data: how hard your classes are to tell apart. Accuracies are those of {twin.data}; {at_most}.",
            f"Your model and training: the twin trains {training}; bytes grow with your model.",
            "Wrong labels: the twin has none." if noise else "Wrong labels: those of the twin are drawn at random.",
            "Differences within a class: clients of the twin differ in which classes they hold, not in how their samples look.",
            f"Your test data: the twin is tested on the classes of {twin.data} in their own shares.",
        ]
        if twin.scale < 1:
            found.append(f"What more samples change: clients of the twin have {number(twin.scale, 2)} times as many.")
        if twin.table.seconds is not None:
            found.append("Changes of speed: every client needs the same time in every round.")
        if twin.table.available is not None:
            found.append(
                "Times of the day: in every round, clients are available independently of each other and of past rounds."
            )
        return found

    def __repr__(self) -> str:
        """The recommended row, and the twin."""
        chosen = "no race" if self.race is None else repr(self.race)
        return f"<Advice for {len(self.twin.table)} clients on {self.twin.data}: {chosen}>"

    def to_json(self) -> dict[str, Any]:
        """The recommendation, the twin, its likeness, costs and the race as plain values; unknown values are None."""
        twin = self.twin
        return {
            "name": twin.table.name,
            "recommended": self.recommended,
            "recommendation": self.recommendation,
            "twin": {
                "data": twin.data,
                "clients": len(twin.table),
                "scale": twin.scale,
                "because": twin.because,
                "stands_for": dict(twin.stands_for),
                "notes": twin.notes,
                "experiment": twin.experiment.to_dict(),
            },
            "likeness": [{key: plain(value) for key, value in asdict(trait).items()} for trait in self.likeness],
            "about_likeness": self.about_likeness,
            "costs": [asdict(cost) for cost in self.costs],
            "unknown": self.unknown,
            "race": None if self.race is None else self.race.to_json(),
        }


@dataclass(frozen=True, eq=False)
class PlannedAdvice:
    """A twin, how similar it is to the federation, and the race on it, before it begins."""

    twin: Twin
    likeness: tuple[Trait, ...]
    planned: PlannedRace

    def without_race(self) -> Advice:
        """The twin and its likeness only."""
        return Advice(self.twin, self.likeness, None, ())

    def run(
        self, *, runs: str | Path = "runs", progress: "Progress | None" = None, jobs: int = 1, trust: bool = False
    ) -> Advice:
        """Play the race; see :meth:`PlannedRace.run`."""
        race = self.planned.run(runs=runs, progress=progress, jobs=jobs, trust=trust)
        first = [row for row in race.rows if row.state != DROPPED] if len(race.objectives) > 1 else race.rows[:1]
        uniform = [row for row in race.rows if row.label == "uniform" and row not in first]
        return Advice(self.twin, self.likeness, race, tuple(map(round_cost, [*first, *uniform])))


def plan_advice(
    table: ClientTable,
    given: Given,
    *,
    data: str,
    settings: Mapping[str, object],
    objective: str | Sequence[str],
    margin: float | Sequence[float] | None,
    limits: Limits,
    strategies: Sequence[str],
    over: Mapping[str, Sequence[object]] | None,
) -> PlannedAdvice:
    """Build the twin of a federation, compare it, and plan the race; see :func:`fedcohort.advise`.

    Raises:
        UsageError: an argument cannot be used, or the data have too few samples or classes.
    """
    twin = build_twin(table, data, settings, given)
    planned = plan(
        twin.experiment, given, objective=objective, margin=margin, limits=limits, strategies=strategies, over=over
    )
    _, survey = look(twin.experiment, given)
    return PlannedAdvice(twin, tuple(likeness(twin, survey)), planned)
