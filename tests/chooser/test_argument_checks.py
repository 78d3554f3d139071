"""What a server may give a chooser, and how what cannot be used is refused."""

import inspect
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcohort import ClientResult
from fedcohort.chooser import argument_checks
from fedcohort.core.errors import UsageError
from fedcohort.selection import Census, Cohort, Outcome

NAN = math.nan


def test_a_census_of_lists_becomes_arrays_of_integers() -> None:
    given = Census([1.0, 0, 3], 2, 1, histogram=[[1, 0], [0.0, 0], [1, 2]])  # type: ignore[arg-type]
    found = argument_checks.checked_census(given)
    assert found.num_samples.dtype == np.int64
    assert found.num_samples.tolist() == [1, 0, 3]
    assert found.histogram is not None
    assert found.histogram.dtype == np.int64
    assert found.histogram.tolist() == [[1, 0], [0, 0], [1, 2]]


@pytest.mark.parametrize(
    ("name", "least"), [("num_classes", 0), ("epochs", 1), ("num_parameters", 0), ("batch_size", 0), ("rounds", 0)]
)
def test_settings_of_a_census_have_a_least_value(name: str, least: int) -> None:
    values: dict[str, Any] = {"num_samples": np.array([1, 2]), "num_classes": 2, "k": 1}
    assert getattr(argument_checks.checked_census(Census(**values | {name: least})), name) == least
    with pytest.raises(UsageError, match=rf"^census\.{name} = "):
        argument_checks.checked_census(Census(**values | {name: least - 1}))


@pytest.mark.parametrize("samples", [[1, -1], [1, 0.5], [[1, 2]], [1, 2**53], [1, NAN], [True, False]])
def test_numbers_of_samples_are_whole_and_one_for_each_client(samples: Any) -> None:
    with pytest.raises(UsageError, match=r"^census\.num_samples = .*: must be whole numbers of at least 0 and below"):
        argument_checks.checked_census(Census(samples, 2, 1))


@pytest.mark.parametrize("wrong", [-1, 3])
def test_ids_are_those_of_the_census(wrong: int) -> None:
    assert argument_checks.ids_of([2, 0, 2], 3).tolist() == [0, 2]
    with pytest.raises(
        UsageError, match=f"^available: client {wrong} is not in the census; clients are numbered 0 to 2"
    ):
        argument_checks.ids_of([0, wrong, 1], 3)


def asked(answers: Any, numbers: int, unanswered: set[int]) -> Any:
    """The answers of clients 4 and 7 to a question for so many numbers."""
    question: Any = SimpleNamespace(kind="a question", numbers=numbers)
    clients = np.array([4, 7])
    ask = argument_checks.checked_asking(lambda question, clients: answers, clients, 1, "Own", unanswered)
    return ask(question, clients)


def test_clients_without_any_number_gave_no_answer() -> None:
    unanswered: set[int] = set()
    assert asked([0.5, 1.0], 1, unanswered).tolist() == [0.5, 1.0]
    assert asked([[NAN, 1.0], [0.5, NAN]], 2, unanswered).tolist()[1][0] == 0.5
    assert unanswered == set()
    asked([0.5, NAN], 1, unanswered)
    assert unanswered == {7}
    asked([[NAN, NAN], [0.5, NAN]], 2, unanswered)
    assert unanswered == {4, 7}


def test_an_async_function_is_refused_and_its_answer_closed() -> None:
    async def answer() -> list[float]:
        return [0.5, 1.0]

    coroutine = answer()
    with pytest.raises(UsageError, match=r"^ask: is an async function"):
        asked(coroutine, 1, set())
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_durations_and_accuracies_are_passed_on() -> None:
    assert argument_checks.duration_of("duration", 2) == 2.0
    assert argument_checks.duration_of("duration", 0) == 0.0
    assert math.isnan(argument_checks.duration_of("duration", NAN))
    assert argument_checks.at_most_one("accuracy", 1) == 1.0


def test_times_of_communication_are_at_most_the_whole_times() -> None:
    outcome: Any = SimpleNamespace(
        durations=np.array([3.0, 2.0, 1.0]), cohort=SimpleNamespace(clients=np.array([5, 6, 7]))
    )
    assert argument_checks.checked_upload_times([0.0, 2.0, NAN], outcome)[:2].tolist() == [0.0, 2.0]
    for given, time in (([1.0, 2.5, 2.0], "2.5"), ([1.0, -0.5, 2.0], "-0.5")):
        with pytest.raises(UsageError, match=f"^upload_times: {time} s for client 6; must be between 0 and .*, 2 s"):
            argument_checks.checked_upload_times(given, outcome)


def test_a_report_that_only_failed_clients_lack_was_sent() -> None:
    outcome: Any = SimpleNamespace(t=3, billed={"loss", "update"})
    sent, lost = ClientResult(reports={"loss": NAN}), ClientResult(failure="lost")
    derived = frozenset({"update"})
    argument_checks.check_reported(outcome, {0: sent, 1: ClientResult(), 2: lost}, derived, "Own")
    argument_checks.check_reported(outcome, {0: lost}, derived, "Own")
    late = ClientResult(reports={"loss": 0.5}, late="deadline")
    with pytest.raises(UsageError, match=r"^results: Own reads the report 'loss', and no client sent it in round 3"):
        argument_checks.check_reported(outcome, {0: ClientResult(), 1: late}, derived, "Own")


@pytest.mark.parametrize(("t", "clients"), [(1, [4, 7]), (2, [4, 8]), (2, [7, 4])])
def test_an_outcome_is_that_of_the_round_and_its_cohort(t: int, clients: list[int]) -> None:
    cohort = Cohort(np.array([4, 7]))

    def made(t: int, clients: list[int]) -> Outcome:
        flags = np.ones(2, dtype=bool)
        return Outcome(t, Cohort(np.array(clients)), flags, flags, {}, np.ones(2), duration=1.0)

    argument_checks.check_outcome(made(2, [4, 7]), 2, cohort)
    with pytest.raises(UsageError, match=f"^outcome: is that of round {t}, not of the current round 2"):
        argument_checks.check_outcome(made(t, clients), 2, cohort)
