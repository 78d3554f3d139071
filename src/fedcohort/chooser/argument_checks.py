"""Check what a server gives to a :class:`~fedcohort.chooser.Chooser`: a census, clients, answers, updates, times and scores."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values, num_masked
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.given_values import as_float, whole_number
from fedcohort.rounds.client_result import ClientResult
from fedcohort.selection import Census, Cohort, Outcome, Question, Selector

__all__ = [
    "as_numbers",
    "at_most_one",
    "check_outcome",
    "check_reported",
    "check_selector",
    "checked_answers",
    "checked_asking",
    "checked_census",
    "checked_update",
    "checked_upload_times",
    "class_accuracies",
    "client_accuracies",
    "duration_of",
    "ids_of",
]


MOST_SAMPLES = 2**53
"""Number that no number of samples reaches; larger floats cannot tell whole numbers apart."""


def check_selector(selector: object) -> None:
    """Refuse what is not a strategy.

    Raises:
        UsageError: it is another object, or a class.
    """
    if not isinstance(selector, Selector):
        raise UsageError(
            f"selector = {selector!r}: is not a strategy; give an instance of a fedcohort.selection.Selector"
        )


def checked_census(census: Census) -> Census:
    """The census with arrays of integers, which may have been given as lists.

    Raises:
        UsageError: a setting is no whole number or too small, or numbers are not whole, negative, or not one for each client.
    """
    if not isinstance(census, Census):
        raise UsageError(f"census = {shown(census)}: give a fedcohort.selection.Census")
    least = {"num_classes": 0, "epochs": 1, "num_parameters": 0, "batch_size": 0, "rounds": 0}
    settings: dict[str, Any] = {
        name: whole_number(f"census.{name}", getattr(census, name), at_least) for name, at_least in least.items()
    }
    samples = _counts(census.num_samples, "num_samples", dimensions=1)
    census = dataclasses.replace(census, num_samples=samples, **settings)
    if census.histogram is None:
        return census
    histogram = _counts(census.histogram, "histogram", dimensions=2)
    if histogram.shape != (len(samples), census.num_classes):
        raise UsageError(
            f"census.histogram: has the shape {list(histogram.shape)}; must be [{len(samples)}, {census.num_classes}], one row for "
            "each client and one column for each class"
        )
    return dataclasses.replace(census, histogram=histogram)


def _counts(given: object, name: str, dimensions: int) -> NDArray[np.int64]:
    """An array of whole numbers ≥ 0."""
    values = _array(given, f"census.{name}")
    whole = values.dtype.kind in "iu" or (values.dtype.kind == "f" and (values == np.floor(values)).all())
    wanted = "one for each client" if dimensions == 1 else "one row for each client and one column for each class"
    if values.ndim != dimensions or not whole or (values < 0).any() or (values >= MOST_SAMPLES).any():
        raise UsageError(
            f"census.{name} = {shown(given)}: must be whole numbers of at least 0 and below {MOST_SAMPLES:,}, {wanted}"
        )
    return values.astype(np.int64)


def _array(given: object, name: str, wanted: str = "numbers") -> NDArray[Any]:
    """An array of numbers; a tensor is taken without its gradient. ``name`` and ``wanted`` are for the message.

    Raises:
        UsageError: it is none.
    """
    if hidden := num_masked(given):
        raise UsageError(f"{name}: {hidden} values are masked; must be {wanted}, all of them known")
    plain: Any = given.detach().cpu() if hasattr(given, "detach") else given
    try:
        values = np.asarray(plain)
    except (TypeError, ValueError):
        values = np.zeros(0, dtype=object)
    if values.dtype.kind not in "biuf":
        raise UsageError(f"{name} = {shown(given)}: must be {wanted}")
    return values


def ids_of(available: Iterable[int], num_clients: int) -> Indices:
    """The ids of clients, distinct and ascending, int64 [n].

    Raises:
        UsageError: they are no ids of clients.
    """
    try:
        listed: Any = available if isinstance(available, np.ndarray) else list(available)
    except TypeError:
        listed = available
    if isinstance(listed, list) and listed and all(isinstance(each, str) for each in listed):
        raise UsageError(
            f"available = {shown(listed[:5])}: must be ids of clients, which are integers from 0 to {num_clients - 1}, not names"
        )
    values = _array([] if isinstance(listed, list) and not listed else listed, "available")
    if values.size and (values.dtype.kind not in "iu" or values.ndim != 1):
        few = values[:5].tolist() if values.ndim else available
        raise UsageError(
            f"available = {shown(few)}: must be ids of clients, which are integers, such as range({num_clients})"
        )
    ordered = np.sort(values.astype(np.int64))  # np.unique takes 25 times as long for a million ids
    ids: Indices = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    wrong = ids[(ids < 0) | (ids >= num_clients)]
    if len(wrong):
        raise UsageError(
            f"available: client {wrong[0]} is not in the census; clients are numbered 0 to {num_clients - 1}"
        )
    return ids


def checked_answers(given: object, clients: int, numbers: int, kind: str) -> Values:
    """The answers to a question, float64 [n] or [n, numbers].

    Raises:
        UsageError: they are no numbers, or have another shape.
    """
    wanted_numbers = "numbers, with NaN for a client without an answer"
    values = _array(given, f"ask: the answers to {kind}", wanted_numbers).astype(np.float64)
    wanted = (clients,) if numbers == 1 else (clients, numbers)
    if values.shape != wanted:
        raise UsageError(
            f"ask: returned an array of shape {list(values.shape)} for {kind}; must be {list(wanted)}, with NaN for a client without "
            "an answer"
        )
    return values


def checked_asking(
    ask: object, available: Indices, t: int, strategy: str, unanswered: set[int]
) -> Callable[[Question, Indices], Values]:
    """``ask`` with checks of what is asked and answered.

    Args:
        ask: what the server gave; None if it carries no questions.
        available: the available clients, which alone can be asked.
        t: number of the round.
        strategy: name of the strategy.
        unanswered: gets the clients that gave no answer.
    """

    def answer(question: Question, clients: Indices) -> Values:
        if not callable(ask):
            raise UsageError(f"{strategy} asks clients for {question.kind} in round {t}: give select(available, ask=…)")
        away = clients[~np.isin(clients, available)]
        if len(away):
            raise UsageError(
                f"{strategy}.select in round {t} asks clients {away[:5].tolist()} for {question.kind}, but they are not "
                "available; ask only clients in round.available"
            )
        answers = ask(question, clients.copy())  # the strategy's own ids stay as they are
        if inspect.iscoroutine(answers):
            answers.close()
            raise UsageError(
                "ask: is an async function; give one that waits for the answers, and call select in a thread"
            )
        numbers = checked_answers(answers, len(clients), question.numbers, question.kind)
        unanswered.update(clients[np.isnan(numbers).reshape(len(clients), -1).all(axis=1)].tolist())
        return numbers

    return answer


def checked_update(given: object, client: int, width: int) -> Values:
    """The update of a client as a vector, float64 [P].

    Args:
        given: what the server gave.
        client: its client.
        width: length of the updates before; 0 if unknown.

    Raises:
        UsageError: it is no vector of numbers, or has another length.
    """
    values = _array(given, f"results: the update of client {client}")
    if values.ndim == 0 or not values.size or (width and values.size != width):
        length = f"{width} numbers, as those before" if width else "one number for each trainable parameter"
        raise UsageError(
            f"results: the update of client {client} has the shape {list(values.shape)}; must have {length}: trained minus received"
        )
    return values.astype(np.float64).ravel()


def duration_of(name: str, value: object) -> float:
    """A finite duration ≥ 0, or NaN.

    Raises:
        UsageError: it is none.
    """
    number = as_float(value)
    if number is None or number < 0 or math.isinf(number):
        raise UsageError(f"{name} = {shown(value)}: must be finite seconds of at least 0, or NaN")
    return number


def at_most_one(name: str, value: object) -> float:
    """An accuracy or an R², at most 1, or NaN.

    Raises:
        UsageError: it is none.
    """
    number = as_float(value)
    if number is None or number > 1:
        raise UsageError(f"{name} = {shown(value)}: must be a number of at most 1; 90% is 0.9")
    return number


def class_accuracies(given: object, classes: int) -> Values:
    """Accuracies of the classes, float64 [K]; empty without any.

    Raises:
        UsageError: they are not one for each class, or above 1.
    """
    values = as_numbers(given, "class_accuracy")
    if values.size and values.shape != (classes,):
        raise UsageError(
            f"class_accuracy: has the shape {list(values.shape)}; give one number for each class of the census, [{classes}], or none"
        )
    return _all_at_most_one(values, given, "class_accuracy")


def client_accuracies(given: object, clients: int) -> Values:
    """Accuracies of the clients, float64 [m].

    Raises:
        UsageError: they are not one for each client, or above 1.
    """
    values = as_numbers(given, "client_accuracy")
    if values.shape != (clients,):
        raise UsageError(
            f"client_accuracy: has the shape {list(values.shape)}; give one number for each client, [{clients}]"
        )
    return _all_at_most_one(values, given, "client_accuracy")


def _all_at_most_one(values: Values, given: object, name: str) -> Values:
    """Refuse accuracies above 1; ``name`` is the argument, and ``given`` its value."""
    if (values > 1).any():
        raise UsageError(f"{name} = {shown(given)}: must be numbers of at most 1; 90% is 0.9")
    return values


def as_numbers(given: object, name: str) -> Values:
    """An array of numbers, float64; ``name`` is the argument.

    Raises:
        UsageError: it is none.
    """
    return _array(given, name).astype(np.float64)


def check_outcome(outcome: object, t: int, cohort: Cohort) -> None:
    """Refuse what is no outcome of round ``t`` and its cohort, with one value for each client.

    Raises:
        UsageError: the message names what cannot be used.
    """
    if not isinstance(outcome, Outcome):
        raise UsageError(f"outcome = {shown(outcome)}: give what outcome(…) returned")
    if outcome.t != t or not np.array_equal(outcome.cohort.clients, cohort.clients):
        raise UsageError(f"outcome: is that of round {outcome.t}, not of the current round {t}")
    for name, kinds in {"trained": "b", "admitted": "b", "durations": "iuf"}.items():
        value: object = getattr(outcome, name)
        if not isinstance(value, np.ndarray) or value.shape != (len(cohort),) or value.dtype.kind not in kinds:
            wanted = "True or False" if kinds == "b" else "seconds"
            raise UsageError(
                f"outcome.{name} = {shown(value)}: must be an array [{len(cohort)}], {wanted} for each client of the cohort"
            )
    duration_of("outcome.duration", outcome.duration)


def checked_upload_times(given: object, outcome: Outcome) -> Values:
    """The communication parts of the clients' times, float64 [n].

    Raises:
        UsageError: they are not one for each client, or longer than the whole times.
    """
    times = _array(given, "upload_times").astype(np.float64)
    if times.shape != outcome.durations.shape:
        raise UsageError(
            f"upload_times: has the shape {list(times.shape)}; give one number for each client of the cohort, [{len(outcome.cohort)}]"
        )
    wrong = np.flatnonzero((times < 0) | (times > outcome.durations))
    if len(wrong):
        i = wrong[0]
        raise UsageError(
            f"upload_times: {times[i]:g} s for client {outcome.cohort.clients[i]}; must be between 0 and its whole time, "
            f"{outcome.durations[i]:g} s"
        )
    return times


def check_reported(
    outcome: Outcome, results: Mapping[int, ClientResult], derived: frozenset[str], strategy: str
) -> None:
    """Refuse results without a report that the strategy reads; NaN says that a client could not measure it.

    Args:
        outcome: the outcome that the strategy observed.
        results: what the server gave.
        derived: names of the reports that the chooser works out itself.
        strategy: name of the strategy.

    Raises:
        UsageError: no client sent such a report.
    """
    trained = [result for result in results.values() if result.trained]
    for name in sorted(outcome.billed - derived):
        if trained and not any(name in result.reports for result in trained):
            raise UsageError(
                f"results: {strategy} reads the report {name!r}, and no client sent it in round {outcome.t}; give "
                f"ClientResult(reports={{{name!r}: …}}), NaN from a client that cannot measure it"
            )
