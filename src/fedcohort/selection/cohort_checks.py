"""The rules that hold for every selection strategy, and the checks of what strategies return.

:func:`choose` applies the edge rules: too few clients (R1), ties (R2), and answers that are not numbers (R4). Other parts ensure that
clients without data are never available (R7, the clock) and count repeats by multiplicity (R5, the weights).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError, shown
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.selector import Selector, UpdateT
from fedcohort.selection.strategy_inputs import Round

__all__ = ["admitted", "choose", "naming_strategy"]


def admitted(selector: Selector, updates: Iterable[UpdateT]) -> Iterator[UpdateT]:
    """Call ``selector.admit``, and check that it yields updates of this round, each once.

    Raises:
        UsageError: it returned or yielded something else; the message names the strategy.
    """
    where = f"{type(selector).__name__}.admit"
    passed = selector.admit(updates)
    if not isinstance(passed, Iterable):
        raise UsageError(f"{where} returned {shown(passed)}; yield the updates that enter the model")
    seen: set[int] = set()
    for update in passed:
        client = getattr(update, "client", None)
        if client is None or client in seen:
            again = shown(update) if client is None else f"the update of client {client} twice"
            raise UsageError(f"{where} yielded {again}; yield updates that it received, each at most once")
        seen.add(client)
        yield update


def choose(selector: Selector, round: Round) -> Cohort:
    """Call ``selector.select`` once, and apply the rules that hold for every strategy.

    If no client is available, the cohort is empty; if k or fewer are available, all of them are selected (R1). The result is checked:
    distinct clients, all of them available, in the right number. What the rules did (``round.notes``) is appended to the reasons.

    Raises:
        UsageError: the cohort breaks the contract; the message names the strategy and the round.
    """
    if len(round.available) == 0:
        return Cohort(round.available, why=Why(round.available, np.zeros(0), note="no client available"))
    where = f"{type(selector).__name__}.select"
    with naming_strategy("round.", f"{where} in round {round.t}"):  # such as round.ask(…)
        cohort = selector.select(round)
    if not isinstance(cohort, Cohort):
        raise UsageError(
            f"{where} in round {round.t} returned {type(cohort).__name__}; return a Cohort(clients, why=…)"
        )
    _check_numbers(cohort, round, where)
    if len(round.available) <= round.k and not selector.variable_size and len(cohort) < len(round.available):
        cohort = _completed(cohort, round.available, where, round.t)
    cohort = _with_arrays(cohort)
    _check_clients(cohort, round, selector.variable_size, where)
    if not round.notes:
        return cohort
    return dataclasses.replace(cohort, why=_with_notes(cohort.why, cohort.clients, round.notes))


@contextmanager
def naming_strategy(subject: str, where: str) -> Iterator[None]:
    """Put ``where``, the strategy and the round, before errors of a block that begin with ``subject``."""
    try:
        yield
    except UsageError as error:
        if str(error).startswith(subject):
            raise UsageError(f"{where}: {error}") from error
        raise


def _completed(cohort: Cohort, available: Indices, where: str, t: int) -> Cohort:
    """The cohort with all available clients, once each (R1).

    Raises:
        UsageError: the cohort says how much its clients count or work, which is unknown of those that it leaves out.
    """
    for name in ("weights", "epochs", "share"):
        if getattr(cohort, name) is not None:
            left_out = np.setdiff1d(available, cohort.clients)
            raise UsageError(
                f"{where} in round {t} gives Cohort.{name}, but leaves out client {left_out[0]}; all {len(available)} available "
                "clients take part, since k or fewer are available: return all of them"
            )
    inclusion = None if cohort.inclusion is None else np.ones(len(available))
    return dataclasses.replace(cohort, clients=available, multiplicity=None, inclusion=inclusion)


def _with_arrays(cohort: Cohort) -> Cohort:
    """The cohort with arrays in the place of lists, tensors and arrays of other types, which strategies may give as well."""
    kinds = {"clients": np.int64} | {name: kind for name, (kind, _, _) in _LIMITS.items()}
    arrays = {name: _array(getattr(cohort, name), kind) for name, kind in kinds.items()}
    why = cohort.why
    if why is not None:
        terms = {name: _array(term, np.float64) for name, term in why.terms.items()}
        why = Why(_array(why.candidates, np.int64), _array(why.scores, np.float64), terms, why.note)
    return dataclasses.replace(cohort, **arrays, why=why)


def _array(values: Any, kind: type) -> Any:
    """``values`` as an array of this type, without a copy if it is one; None stays None."""
    return None if values is None else np.asarray(values, kind)


def _with_notes(why: Why | None, clients: Indices, notes: list[str]) -> Why:
    """The reasons with the notes of the round appended; clears the notes."""
    why = Why(clients, np.full(len(clients), np.nan)) if why is None else why
    why = dataclasses.replace(why, note="; ".join([why.note, *notes]).removeprefix("; "))
    notes.clear()
    return why


def _check_clients(cohort: Cohort, round: Round, variable_size: bool, where: str) -> None:
    """Refuse clients that occur twice, are not available, or are too few or too many."""
    clients = cohort.clients
    # If the cohort is exactly the available clients, it is distinct and available.
    if not np.array_equal(clients, round.available):
        if len(set(clients.tolist())) < len(clients):
            raise UsageError(f"{where} returned a client twice in round {round.t}; use Cohort.multiplicity for repeats")
        if not _contains(round.available, clients):
            raise UsageError(f"{where} returned clients that are not available in round {round.t}")
    wanted = min(round.k, len(round.available))
    if not variable_size and cohort.multiplicity is None and len(clients) != wanted:
        cure = (
            "set variable_size = True in the class if it may select fewer" if len(clients) < wanted else "use round.k"
        )
        raise UsageError(
            f"{where} returned {len(clients)} client{'s' * (len(clients) != 1)} instead of {wanted} in round {round.t}; {cure}"
        )


LONGEST_NOTE = 1000
"""Length in characters of the longest note and of the longest name of a term."""

COLUMNS = ("round", "client", "selected", "score")
"""Columns of the table of decisions, which no term can be named after."""


def _check_reasons(why: Why, where: str, round: Round) -> None:
    """Refuse reasons that cannot be recorded: not one number for each candidate, unknown candidates, or notes that are no text."""
    if not isinstance(why, Why):
        raise UsageError(f"{where}: Cohort.why is {shown(why)}; give a Why(candidates, scores, …)")
    candidates = _integers(why.candidates, "Why.candidates", where)
    if why.candidates is not round.available:  # as a strategy gives them that scores all available clients
        unknown = candidates[(candidates < 0) | (candidates >= len(round.durations))]
        if len(unknown):
            known = f"clients are 0 to {len(round.durations) - 1}"
            raise UsageError(f"{where}: Why.candidates has the client {unknown[0]}; {known}")
    scores = _numbers(why.scores, "Why.scores", where)
    if len(scores) != len(candidates):
        raise UsageError(
            f"{where}: Why.scores has {len(scores)} entries for {len(candidates)} candidates; give one for each"
        )
    if not isinstance(why.terms, Mapping):
        raise UsageError(f"{where}: Why.terms is {shown(why.terms)}; give a dictionary with one array for each term")
    for name, term in why.terms.items():
        if not _is_text(name) or name in COLUMNS:
            raise UsageError(
                f"{where}: Why.terms has the name {shown(name)}; give another short text (not {', '.join(COLUMNS)})"
            )
        values = _numbers(term, f"Why.terms[{shown(name)}]", where)
        if len(values) != len(candidates):
            raise UsageError(
                f"{where}: Why.terms[{shown(name)}] has {len(values)} entries for {len(candidates)} candidates; give one for each"
            )
    if not _is_text(why.note):
        raise UsageError(
            f"{where}: Why.note is {shown(why.note)}; give Unicode text of at most {LONGEST_NOTE} characters"
        )


def _is_text(value: object) -> bool:
    """Whether a value is a short string that can be recorded: UTF-8 has no surrogates."""
    if not isinstance(value, str) or len(value) > LONGEST_NOTE:
        return False
    return value.isascii() or value == value.encode(errors="replace").decode()


def _contains(available: Indices, clients: Indices) -> bool:
    """Whether all ``clients`` are in ``available``, which is sorted."""
    positions = np.minimum(np.searchsorted(available, clients), len(available) - 1)
    return bool((available[positions] == clients).all())


MOST = 2**31
"""Highest number of epochs and of repeats of a client."""

_LIMITS: dict[str, tuple[type, float, float]] = {
    "multiplicity": (np.int64, 1, MOST),
    "inclusion": (np.float64, 1e-12, 1 + 1e-9),
    "weights": (np.float64, 0, np.inf),
    "epochs": (np.int64, 1, MOST),
    "share": (np.float64, 0, 1),
}
"""Type, lowest and highest value of each array of a cohort."""


def _check_numbers(cohort: Cohort, round: Round, strategy: str) -> None:
    """Refuse ids and counts that are not integers (they are not truncated), and values outside their limits."""
    where = f"{strategy} in round {round.t}"
    ids = _integers(cohort.clients, "Cohort.clients", where)
    if cohort.why is not None:
        _check_reasons(cohort.why, where, round)
    if not isinstance(cohort.stop, Mapping | None):
        raise UsageError(
            f"{where}: Cohort.stop is {shown(cohort.stop)}; give a dictionary such as {{'rule': 'conformal', …}}"
        )
    for name, (kind, low, high) in _LIMITS.items():
        given = getattr(cohort, name)
        if given is None:
            continue
        values = (_integers if kind is np.int64 else _numbers)(given, f"Cohort.{name}", where)
        inside = np.isfinite(values) & (values >= low) & (values <= high)
        if not inside.all():
            first = np.flatnonzero(~inside)[0]
            limits = f"between {low:g} and {high:g}"
            if high > 2:
                limits = f"at most {high}" if values[first] > high else f"at least {low:g}"
            raise UsageError(
                f"{where}: Cohort.{name} of client {ids[first]} is {values[first]}; must be finite and {limits}"
            )


def _integers(values: object, name: str, where: str) -> np.ndarray:
    """``values`` as an array of integers [n]; an empty one may have any type."""
    array = _flat(values, name, where)
    if len(array) and array.dtype.kind not in "iu":
        raise UsageError(f"{where}: {name} is {shown(array[:5].tolist())}, {array.dtype}; must be integers")
    return array


def _numbers(values: object, name: str, where: str) -> np.ndarray:
    """``values`` as an array of real numbers [n]; an empty one may have any type."""
    array = _flat(values, name, where)
    if len(array) and array.dtype.kind not in "biuf":
        raise UsageError(f"{where}: {name} is {shown(array[:5].tolist())}, {array.dtype}; must be real numbers")
    return array


def _flat(values: object, name: str, where: str) -> np.ndarray:
    """``values`` as an array [n]."""
    try:
        array = np.asarray(values)
    except Exception as error:
        raise UsageError(f"{where}: {name} is {shown(values)}, which is no array ({type(error).__name__})") from error
    if array.ndim != 1:
        raise UsageError(f"{where}: {name} is {shown(values)}, with shape {list(array.shape)}; must be an array [n]")
    return array
