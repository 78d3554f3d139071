"""What uniform selection gives in a run: as many clients in each round, of those that were available and have data."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcohort import measures
from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.measures import JainReference, Participation, UniformChance

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.experiment import Experiment

__all__ = ["AS_CHANCE", "Chance", "about_chance", "chance_in"]

MOST = 100_000_000
"""Largest number of clients × rounds whose availability is computed again, which takes about a second."""

AS_CHANCE = (
    "uniform selection of as many of the available clients in each round, or of all if the available ones are unknown"
)
"""What chance is, beside numbers of runs of which some may have no record of the available clients."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Chance:
    """What uniform selection gives in a run.

    Attributes:
        uniform: its measures.
        known: whether it is known which clients were available; otherwise all are assumed to be.
        too_many: whether that is only because there are more clients × rounds than :data:`MOST`.
        limited: whether some clients could not be selected in some round, because they were not available or have no data.
    """

    uniform: UniformChance
    known: bool
    limited: bool
    too_many: bool = False

    @property
    def selects(self) -> bool:
        """Whether any client is selected in any round: otherwise it is not known how even selections would be."""
        return bool(self.uniform.expected.any())

    @property
    def reference(self) -> JainReference:
        """Jain's index after the last round; NaN if no client is selected."""
        return self.uniform.reference if self.selects else JainReference(*[math.nan] * 4)

    @property
    def participation(self) -> Participation:
        """Measures of selections after the last round; NaN but for the coverage, which is 0, if no client is selected."""
        return self.uniform.participation if self.selects else Participation(math.nan, math.nan, math.nan, 0.0)


def about_chance(chances: Iterable[Chance]) -> str:
    """Which clients uniform selection selects in some runs, in words with a space before them; empty if all were always available."""
    found = list(chances)
    if any(not chance.known and not chance.too_many for chance in found):
        return " if all clients are available, since it is not recorded which ones were"
    if any(not chance.known for chance in found):
        return f" if all clients are available, since it is not computed which ones were for more than {MOST:,} clients × rounds"
    return " among the available clients with data" if any(chance.limited for chance in found) else ""


def chance_in(experiment: "Experiment", samples: Indices | None, rounds: "pd.DataFrame") -> Chance:
    """What uniform selection gives in the rounds of a run.

    Which clients were available follows from the availability law, the seed, and which clients have data. It is not known if the law
    is not a built-in one, if its file is missing, or if the record has other numbers of available clients, as that of real machines.
    It is not computed for more than :data:`MOST` clients × rounds.

    Args:
        experiment: the resolved experiment.
        samples: number of samples of each client, if the run has recorded it.
        rounds: the rounds of the run, as :attr:`fedcohort.Run.rounds` has them.
    """
    clients, law = experiment.federation.clients, experiment.systems.availability
    few = law.name == "always" or clients * len(rounds) <= MOST
    builtin = law.name in law.table.builtin
    key = _Key(
        clients=clients,
        planned=experiment.rounds,
        seed=experiment.seed,
        law=json.dumps(experiment.to_dict()["systems"]["availability"], sort_keys=True, default=str),
        data=b"" if samples is None else np.packbits(samples > 0).tobytes(),
        selected=tuple(rounds["selected"].tolist()),
        available=tuple(rounds["available"].tolist()),
        built=law.build if few and builtin else None,
        too_many=builtin and not few,
    )
    return _chance(key)


@dataclass(frozen=True)
class _Key:
    """Everything that the chance of a run depends on."""

    clients: int
    planned: int
    seed: int
    law: str
    data: bytes
    selected: tuple[int, ...]
    available: tuple[int, ...]
    built: Callable[[], Any] | None = field(compare=False)
    too_many: bool

    @property
    def has_data(self) -> Mask:
        """Whether each client has samples; True if that is not recorded."""
        if not self.data:
            return np.ones(self.clients, dtype=bool)
        return np.unpackbits(np.frombuffer(self.data, np.uint8), count=self.clients).astype(bool)


@lru_cache(maxsize=256)
def _chance(key: _Key) -> Chance:
    has_data = key.has_data
    presence = _presence(key)
    if presence is not None:
        there: list[int] = []
        uniform = measures.uniform_chance(key.clients, key.selected, _counted(presence, has_data, there))
        if tuple(there) == key.available:
            return Chance(uniform, known=True, limited=min(there, default=key.clients) < key.clients)
    uniform = measures.uniform_chance(key.clients, key.selected, lambda _: has_data)
    return Chance(uniform, known=False, limited=not has_data.all(), too_many=key.too_many)


def _presence(key: _Key) -> Callable[[int], Mask] | None:
    """The available clients as a function of the round; None if they are not known."""
    if key.built is None:
        return None
    try:
        presence: Callable[[int], Mask] = key.built().presence(key.clients, key.planned, key.seed)
    except UsageError:  # such as a trace whose file is not there any more
        return None
    return presence


def _counted(presence: Callable[[int], Mask], has_data: Mask, there: list[int]) -> Callable[[int], Mask]:
    """The available clients with data, whose numbers are added to the list ``there``, round by round.

    While ``presence`` returns the same array, so does this function, so that callers can see that nothing has changed.
    """
    last: list[tuple[Mask, Mask, int]] = []

    def available(t: int) -> Mask:
        present = presence(t)
        if not last or last[0][0] is not present:
            mask: Mask = present & has_data
            last[:] = [(present, mask, int(mask.sum()))]
        _, found, number = last[0]
        there.append(number)
        return found

    return available
