"""The contract of a selection strategy.

A strategy receives a :class:`Census` before the first round and a :class:`Round` in every round, returns a :class:`Cohort`, and then
receives the :class:`Outcome`. It never sees a client, a model or an engine, so the same file works in a simulation, on a cluster and
in a real federation.

:mod:`~fedcohort.selection.cohort_checks` applies the rules that hold for every strategy.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, ClassVar, TypeVar

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.state_files import as_before
from fedcohort.core.plugins import Card, LabelKind, check_card
from fedcohort.core.user_code.method_signatures import check_methods, not_defined
from fedcohort.selection.cohort import Cohort
from fedcohort.selection.joining import extended_state
from fedcohort.selection.strategy_inputs import Census, Outcome, Reported, Round

__all__ = ["Selector", "UpdateT"]

UpdateT = TypeVar("UpdateT", bound=Reported)

DECLARED = ("needs", "gives", "variable_size")
"""What a strategy declares about itself, on the class or with :meth:`Selector.declare`."""

VALID = {
    "needs": frozenset({"histogram", "validation", "holdout", "update_norm", "update"}),
    "gives": frozenset({"inclusion", "weights"}),
}
"""The names that a strategy can declare."""


class Selector:
    """A client selection strategy. Subclasses are ``@parameters`` dataclasses and must define :meth:`select`.

    Everything that :meth:`setup` and :meth:`observe` set on ``self`` is the strategy's state: arrays indexed by client, numbers,
    strings, None, or dictionaries and lists of these. It is saved with every checkpoint and restored on resume.
    """

    card: ClassVar[Card]
    """Source and status of the strategy, and what it asks and discloses."""
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
                _check_names(type(self).__name__, name, value)
                setattr(self, name, value)

    def refuses(self, labels: LabelKind) -> str:
        """Why the strategy cannot work if labels are ``"classes"`` or ``"numbers"``; empty, the default, if it can."""
        return ""

    def check_clients(self, number: int) -> None:
        """Refuse a federation of this many clients; accepts all numbers by default. It is called before any row is run, and by
        :meth:`setup`.

        Raises:
            UsageError: the strategy cannot work with this many clients, or would take too long.
        """

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse declarations that cannot be read, and methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, Selector)
        check_card(cls)
        for name in ("needs", "gives"):
            declared = cls.__dict__.get(name, frozenset())
            if isinstance(declared, str) or not isinstance(declared, Set | property):
                raise UsageError(
                    f"{cls.__name__}.{name} = {shown(declared)}: should be a set, such as frozenset({{'validation'}})"
                )
            _check_names(cls.__name__, name, declared)

    def setup(self, census: Census) -> None:
        """Prepare for a run. Called once, before the first round and before a state is loaded; overrides call this one first."""
        self.check_clients(census.num_clients)
        self.census = census

    def extend(self, census: Census) -> None:
        """Take in clients that joined since the last round. From then on, they are as clients that were away until now.

        ``census`` is that of :meth:`setup`, in which clients that had no samples have some. By default, what :meth:`setup` derives
        from the census is derived anew, and what was learned stays. Override it if the strategy forms something from the census later
        than in :meth:`setup`, or has another strategy inside.

        Raises:
            UsageError: the strategy cannot take in clients; it stays as it was.
        """
        state = extended_state(self, census)
        self.census = census
        self.load_state_dict(state)

    def select(self, round: Round) -> Cohort:
        """Choose the clients of this round.

        Raises:
            UsageError: a class does not define it.
        """
        raise not_defined(self, Selector.select, "a strategy")

    def admit(self, updates: Iterable[UpdateT]) -> Iterator[UpdateT]:
        """Yield the updates that enter the model, in their order; all of them by default.

        The decision uses the clients' reports, before they send their models: clients that are not admitted send numbers only. A
        number that every client measures, such as ``loss``, is sent and billed if it is read.
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
            setattr(self, name, as_before(value, getattr(self, name, None)))


def _check_names(strategy: str, name: str, declared: object) -> None:
    """Refuse names that no strategy can declare, which would have no effect."""
    if name not in VALID or not isinstance(declared, Set):
        return
    unknown = min(declared - VALID[name], key=str, default=None)
    if unknown is not None:
        raise UsageError(f"{strategy}.{name}: there is no {shown(unknown)}; {nearest(str(unknown), VALID[name])}")
