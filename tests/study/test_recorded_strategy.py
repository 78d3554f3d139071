"""What a record says about a strategy and about the availability of a client, in worked words and numbers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcohort.experiment import Experiment
from fedcohort.study.recorded_strategy import strategy_in_words, was_available


def recorded(
    selection: dict[str, Any] | None = None,
    *,
    availability: dict[str, Any] | None = None,
    samples: list[int] | None = None,
    plug_ins: dict[str, Any] | None = None,
    handed_over: dict[str, str] | None = None,
) -> Any:
    """A run of four clients over three rounds, as far as these functions read it."""
    described = Experiment(
        name="a run",
        rounds=3,
        data={"name": "digits"},
        federation={"clients": 4},
        systems={"availability": availability or {"name": "always"}},
        selection=selection or {"name": "uniform", "k": 2},
    ).with_handed_over(handed_over or {})
    facts = {} if samples is None else {"samples": np.array(samples)}
    return SimpleNamespace(described=described, portrait=SimpleNamespace(facts=facts), plug_ins=plug_ins or {})


@pytest.fixture
def trace(tmp_path: Path) -> dict[str, Any]:
    """Clients 0 and 1, then client 2, then clients 0, 1 and 3."""
    (tmp_path / "trace.json").write_text(json.dumps([[0, 1], [2], [0, 1, 3]]), encoding="utf-8")
    return {"name": "trace", "file": str(tmp_path / "trace.json")}


def test_the_law_says_which_clients_were_available_in_a_round(trace: dict[str, Any]) -> None:
    run = recorded(availability=trace)
    assert [was_available(run, 1, client, 2) for client in range(4)] == [True, True, False, False]
    assert [was_available(run, 2, client, 1) for client in range(4)] == [False, False, True, False]
    assert was_available(run, 3, 3, 3) is True


def test_clients_without_samples_were_never_available(trace: dict[str, Any]) -> None:
    """They do not count as available in the record, either. One sample is enough."""
    run = recorded(availability=trace, samples=[1, 0, 5, 5])
    assert [was_available(run, 1, client, 1) for client in range(4)] == [True, False, False, False]


def test_a_law_with_another_number_of_clients_says_nothing(trace: dict[str, Any]) -> None:
    for samples in (None, [5, 5, 5, 5]):
        assert was_available(recorded(availability=trace, samples=samples), 1, 0, 3) is None


def test_a_law_without_its_file_and_a_law_of_a_user_say_nothing(trace: dict[str, Any]) -> None:
    Path(trace["file"]).unlink()
    assert was_available(recorded(availability=trace), 1, 0, 2) is None
    own = recorded()
    law = SimpleNamespace(name="laws.py:Own", table=own.described.systems.availability.table)
    own.described = SimpleNamespace(systems=SimpleNamespace(availability=law))
    assert was_available(own, 1, 0, 4) is None
    own.portrait.facts["samples"] = np.array([0, 1, 1, 1])
    assert was_available(own, 1, 0, 3) is False  # it has no samples, whatever the law


def test_a_strategy_is_told_with_the_parameters_that_are_no_defaults() -> None:
    assert strategy_in_words(recorded({"name": "ucb", "k": 2}), 1) == "ucb(k = 2)"
    assert strategy_in_words(recorded({"name": "ucb", "k": 2, "epsilon": 0.25}), 1) == "ucb(k = 2, epsilon = 0.25)"
    assert strategy_in_words(recorded({"name": "powd", "k": 2, "d": 4}), 1) == "powd(k = 2, d = 4)"


def test_the_number_of_clients_is_that_of_the_round() -> None:
    run = recorded({"name": "uniform", "k": 2, "k_steps": [[2, 3], [3, 1]]})
    assert [strategy_in_words(run, t) for t in (1, 2, 3)] == ["uniform(k = 2)", "uniform(k = 3)", "uniform(k = 1)"]


def test_recorded_defaults_count_and_not_those_of_this_version() -> None:
    run = recorded({"name": "powd", "k": 2, "d": 4}, plug_ins={"selection": {"defaults": {"d": 4}}})
    assert strategy_in_words(run, 1) == "powd(k = 2)"
    usual = recorded({"name": "ucb", "k": 2}, plug_ins={"selection": {}})
    assert strategy_in_words(usual, 1).startswith("ucb(k = 2, c = 1.414, ")


def test_a_strategy_from_python_has_the_words_of_the_experiment_file() -> None:
    run = recorded(handed_over={"selector": "Mine(rate=0.5), from a notebook"})
    assert strategy_in_words(run, 1) == "Mine(rate=0.5), from a notebook"
