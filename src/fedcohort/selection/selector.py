"""The contract of a selection strategy, and the rules that hold for every one of them.

A strategy receives a :class:`Census` before the first round and a :class:`Round` in every round, returns a :class:`Cohort`, and then
receives the :class:`Outcome`. It never sees a client, a model or an engine, so the same file works in a simulation, on a cluster and
in a real federation.

:func:`choose` applies the edge rules to every strategy: too few clients (R1), ties (R2), and answers that are not numbers (R4).
Other parts ensure that clients without data are never available (R7, the clock) and count repeats by multiplicity (R5, the weights).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.plugins import Card, LabelKind
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.strategy_inputs import Census, Outcome, Reported, Round

__all__ = ["Selector", "UpdateT", "choose"]

UpdateT = TypeVar("UpdateT", bound=Reported)

DECLARED = ("needs", "gives", "variable_size")
"""What a strategy declares about itself, on the class or with :meth:`Selector.declare`."""


class Selector:
    """A client selection strategy. Subclasses are ``@parameters`` dataclasses and must define :meth:`select`.

    Everything that :meth:`setup` and :meth:`observe` set on ``self`` is the strategy's state: arrays indexed by client, numbers,
    strings, None, or dictionaries and lists of these. It is saved with every checkpoint and restored on resume.
    """

    card: ClassVar[Card]
    needs: ClassVar[frozenset[str]] = frozenset()
    """What the strategy requires: ``histogram``, ``validation``, ``holdout``, ``update_norm``, ``update``."""
    gives: ClassVar[frozenset[str]] = frozenset()
    """What all its cohorts provide for weight modes: ``inclusion`` (for ``unbiased``), ``weights`` (for ``cohort``)."""
    variable_size: ClassVar[bool] = False
    """True if a cohort can have more or fewer than min(k, number of available clients) members; rule R1 then adds no clients."""

    def declare(
        self,
        *,
        needs: frozenset[str] | None = None,
        gives: frozenset[str] | None = None,
        variable_size: bool | None = None,
    ) -> None:
        """Override the class's ``needs``, ``gives`` or ``variable_size`` for this instance, in ``__post_init__``.

        Use it if they depend on the parameters; the class attributes then describe the default parameters.
        """
        for name, value in (("needs", needs), ("gives", gives), ("variable_size", variable_size)):
            if value is not None:
                setattr(self, name, value)

    def refuses(self, labels: LabelKind) -> str:
        """Why the strategy cannot work if labels are ``"classes"`` or ``"numbers"``; empty, the default, if it can."""
        return ""

    def setup(self, census: Census) -> None:
        """Prepare for a run. Called once, before the first round and before a state is loaded; overrides call this one first."""
        self.census = census

    def select(self, round: Round) -> Cohort:
        """Choose the clients of this round."""
        raise NotImplementedError

    def admit(self, updates: Iterable[UpdateT]) -> Iterator[UpdateT]:
        """Yield the updates that enter the model, in their order; all of them by default.

        The decision uses the clients' reports, before they send their models: clients that are not admitted send numbers only.
        """
        yield from updates

    def observe(self, outcome: Outcome) -> None:
        """Learn from the outcome of the round; does nothing by default."""

    def state_dict(self) -> dict[str, Any]:
        """Every attribute of ``self`` except parameters, declarations and the census."""
        fixed = {*getattr(self, "__dataclass_fields__", {}), "census", *DECLARED}
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, value)


def choose(selector: Selector, round: Round) -> Cohort:
    """Call ``selector.select`` once, and apply the rules that hold for every strategy.

    If no client is available, the cohort is empty; if k or fewer are available, all of them are selected (R1). The result is checked:
    distinct clients, all of them available, in the right number. What the rules did (``round.notes``) is appended to the reasons.

    Raises:
        UsageError: the cohort breaks the contract; the message names the strategy and the round.
    """
    if len(round.available) == 0:
        return Cohort(round.available, why=Why(round.available, np.zeros(0), note="no client available"))
    cohort, where = selector.select(round), f"{type(selector).__name__}.select"
    if not isinstance(cohort, Cohort):
        raise UsageError(
            f"{where} in round {round.t} returned {type(cohort).__name__}; return a Cohort(clients, why=…)"
        )
    if len(round.available) <= round.k and not selector.variable_size and len(cohort) < len(round.available):
        inclusion = None if cohort.inclusion is None else np.ones(len(round.available))
        cohort = Cohort(
            round.available, inclusion=inclusion, sampling=cohort.sampling, stop=cohort.stop, why=cohort.why
        )
    _check_numbers(cohort, f"{where} in round {round.t}")
    clients = np.asarray(cohort.clients, dtype=np.int64)
    _check_clients(cohort, clients, round, selector.variable_size, where)
    return dataclasses.replace(cohort, clients=clients, why=_with_notes(cohort.why, clients, round.notes))


def _with_notes(why: Why | None, clients: Indices, notes: list[str]) -> Why | None:
    """The reasons with the notes of the round appended; clears the notes."""
    if not notes:
        return why
    why = Why(clients, np.full(len(clients), np.nan)) if why is None else why
    why = dataclasses.replace(why, note="; ".join([why.note, *notes]).removeprefix("; "))
    notes.clear()
    return why


def _check_clients(cohort: Cohort, clients: Indices, round: Round, variable_size: bool, where: str) -> None:
    """Refuse clients that occur twice, are not available, or are too few or too many."""
    # If the cohort is exactly the available clients, it is distinct and available: the common case needs no sort.
    if not np.array_equal(clients, round.available):
        if (np.diff(np.sort(clients)) == 0).any():
            raise UsageError(f"{where} returned a client twice in round {round.t}; use Cohort.multiplicity for repeats")
        if not _contains(round.available, clients):
            raise UsageError(f"{where} returned clients that are not available in round {round.t}")
    wanted = min(round.k, len(round.available))
    if not variable_size and cohort.multiplicity is None and len(clients) != wanted:
        raise UsageError(f"{where} returned {len(clients)} clients instead of {wanted} in round {round.t}")


def _check_reasons(why: Why, where: str) -> None:
    """Refuse reasons with another number of scores than candidates, or with a note that cannot be recorded."""
    if len(why.scores) != len(why.candidates):
        raise UsageError(
            f"{where}: Why.scores has {len(why.scores)} entries for {len(why.candidates)} candidates; give one for each"
        )
    if not _is_text(why.note):
        raise UsageError(f"{where}: Why.note is {shown(why.note)}; give Unicode text")


def _is_text(value: object) -> bool:
    """Whether a value is a string that can be recorded: UTF-8 has no surrogates."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


def _contains(available: Indices, clients: Indices) -> bool:
    """Whether all ``clients`` are in ``available``, which is sorted."""
    positions = np.minimum(np.searchsorted(available, clients), len(available) - 1)
    return bool((available[positions] == clients).all())


_LIMITS: dict[str, tuple[type, float, float]] = {
    "multiplicity": (np.integer, 1, np.inf),
    "inclusion": (np.floating, 1e-12, 1 + 1e-9),
    "weights": (np.floating, 0, np.inf),
    "epochs": (np.integer, 1, np.inf),
    "share": (np.floating, 0, 1),
}
"""Type, lowest and highest value of each array of a cohort."""


def _check_numbers(cohort: Cohort, where: str) -> None:
    """Refuse ids and counts that are not integers (they are not truncated), and values outside their limits."""
    ids = np.asarray(cohort.clients)
    if len(ids):
        _check_integers(ids, "clients", where)
    if cohort.why is not None:
        _check_reasons(cohort.why, where)
    for name, (kind, low, high) in _LIMITS.items():
        values = getattr(cohort, name)
        if values is None or len(values) == 0:
            continue
        values = np.asarray(values)
        if kind is np.integer:
            _check_integers(values, name, where)
        outside = ~(np.isfinite(values) & (values >= low) & (values <= high))
        if outside.any():
            first = np.flatnonzero(outside)[0]
            limits = f"at least {low:g}" if np.isinf(high) else f"between {low:g} and {high:g}"
            raise UsageError(
                f"{where}: Cohort.{name} of client {ids[first]} is {values[first]}; must be finite and {limits}"
            )


def _check_integers(values: np.ndarray, name: str, where: str) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise UsageError(f"{where}: Cohort.{name} is {values[:5].tolist()}, {values.dtype}; must be integers")
