"""The Python interface: one run, all seeds of a row, and comparisons with strategies and algorithms from Python."""

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.core.errors import UsageError
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.selection.strategies.power_of_choice import PowerOfChoice
from fedcohort.selection.strategies.ucb import UCB
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.study.decisions.explain_decision import explain
from fedcohort.study.decisions.participants import participants
from tests.experiments import small


class Lowest(Selector):
    """The available clients with the lowest ids."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


# --- examples in docstrings ------------------------------------------------------------------------------------------------

SOURCE = Path(fedcohort.__file__).parent

WITH_EXAMPLES = sorted(
    ".".join(("fedcohort", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for file in SOURCE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)
"""The modules with examples in their docstrings."""


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_give_what_they_show(module: str) -> None:
    if module.startswith("fedcohort.flower."):
        pytest.importorskip("flwr", reason="the extra flower is not installed")
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


# --- seeds -----------------------------------------------------------------------------------------------------------------


def test_run_plays_one_run_whatever_seeds_says(tmp_path: Path) -> None:
    first = fedcohort.run(small(rounds=1, seed=4, seeds=3), runs=tmp_path)
    assert first.experiment.seed == 4
    assert len(list(tmp_path.iterdir())) == 1
    other = fedcohort.run(small(rounds=1, seed=4, seeds=3), seed=11, runs=tmp_path)
    assert (other.experiment.seed, other.meta["seed"]) == (11, "11")
    assert fedcohort.run(small(rounds=1, seeds=1), seed=11, runs=tmp_path).path == other.path


@pytest.mark.parametrize("seed", [-1, 1.5, "2", True])
def test_a_bad_seed_is_one_line(seed: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^seed = .*: should be a whole number of at least 0, and below 2\*\*64$"):
        fedcohort.run(small(rounds=1), seed=seed, runs=tmp_path)


def test_run_seeds_plays_all_seeds_of_the_base_row(tmp_path: Path) -> None:
    experiment = small(rounds=1, seed=4, seeds=3, variants=[{"label": "UCB", "selection": "ucb"}])
    runs = fedcohort.run_seeds(experiment, runs=tmp_path)
    assert [run.experiment.seed for run in runs] == [4, 5, 6]
    assert {run.meta["label"] for run in runs} == {"uniform"}
    assert fedcohort.run(experiment, seed=5, runs=tmp_path).path == runs[1].path


def test_compare_plays_all_rows_under_all_seeds(tmp_path: Path) -> None:
    experiment = small(rounds=1, seed=4, seeds=2, variants=[{"label": "UCB", "selection": "ucb"}])
    compared = fedcohort.compare(experiment, runs=tmp_path)
    assert [(row.label, sorted(row.runs)) for row in compared.rows] == [("uniform", [4, 5]), ("UCB", [4, 5])]
    assert len(list(tmp_path.iterdir())) == 4


# --- comparisons with objects ----------------------------------------------------------------------------------------------


def columns(compared: fedcohort.Comparison) -> list[tuple[str, str, str]]:
    return list(compared.table[["label", "selection", "algorithm"]].itertuples(index=False, name=None))


def test_a_strategy_plays_the_base_and_rows_that_set_none(tmp_path: Path) -> None:
    experiment = small(
        rounds=1, variants=[{"label": "UCB", "selection": "ucb"}, {"label": "prox", "algorithm": "fedprox"}]
    )
    compared = fedcohort.compare(experiment, selector=Lowest(), runs=tmp_path)
    assert columns(compared) == [
        ("Lowest", "Lowest", "fedavg"),
        ("UCB", "ucb", "fedavg"),
        ("prox", "Lowest", "fedprox"),
    ]
    for row, lowest in zip(compared.rows, (True, False, True), strict=True):
        assert (row.runs[0].clients["client"].tolist() == [0, 1, 2]) == lowest
    assert "Lowest" in str(compared)


def test_a_swept_base_row_is_named_by_the_class(tmp_path: Path) -> None:
    experiment = small(rounds=1, sweep={"selection.k": [1, 2]})
    compared = fedcohort.compare(experiment, selector=Lowest(), runs=tmp_path)
    assert columns(compared) == [("Lowest, k=1", "Lowest", "fedavg"), ("Lowest, k=2", "Lowest", "fedavg")]


def test_an_algorithm_plays_the_base_and_rows_that_set_none(tmp_path: Path) -> None:
    experiment = small(
        rounds=1, variants=[{"label": "UCB", "selection": "ucb"}, {"label": "sgd", "algorithm": "fedsgd"}]
    )
    compared = fedcohort.compare(experiment, algorithm=FedProx(mu=0.5), runs=tmp_path)
    assert columns(compared) == [
        ("uniform", "uniform", "FedProx"),
        ("UCB", "ucb", "FedProx"),
        ("sgd", "uniform", "fedsgd"),
    ]


def test_dictionaries_add_rows(tmp_path: Path) -> None:
    compared = fedcohort.compare(
        small(rounds=1),
        selector={"careful": UCB(c=0.1, initial_rounds=1), "bold": UCB(c=9.0, initial_rounds=1)},
        algorithm={"damped": FedAvg(server_lr=0.5)},
        runs=tmp_path,
    )
    assert columns(compared) == [
        ("uniform", "uniform", "fedavg"),
        ("careful", "UCB", "fedavg"),
        ("bold", "UCB", "fedavg"),
        ("damped", "uniform", "FedAvg"),
    ]
    assert len({row.runs[0].path for row in compared.rows}) == 4


def test_rows_of_a_dictionary_play_with_the_one_algorithm_from_python(tmp_path: Path) -> None:
    compared = fedcohort.compare(
        small(rounds=1), selector={"by loss": PowerOfChoice()}, algorithm=FedProx(mu=0.5), runs=tmp_path
    )
    assert columns(compared) == [("uniform", "uniform", "FedProx"), ("by loss", "PowerOfChoice", "FedProx")]


@pytest.mark.parametrize("labels", [{"selector": {"uniform": Lowest()}}, {"algorithm": {"UCB": FedAvg()}}])
def test_a_label_that_is_used_already_is_one_line(labels: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(rounds=1, variants=[{"label": "UCB", "selection": "ucb"}])
    with pytest.raises(
        UsageError, match=r"^label '(uniform|UCB)': used by 2 rows; give every row .* a label of its own$"
    ):
        fedcohort.compare(experiment, runs=tmp_path, **labels)
    assert not list(tmp_path.iterdir())


def test_a_label_in_both_dictionaries_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^label 'mine': used by 2 rows"):
        fedcohort.compare(small(), selector={"mine": Lowest()}, algorithm={"mine": FedAvg()}, runs=tmp_path)


def test_a_bad_pairing_is_one_line_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^row 'mine': algorithm\.weights = 'unbiased': Lowest gives no inclusion"
    ) as error:
        fedcohort.compare(
            small(algorithm={"weights": "unbiased"}), selector={"mine": Lowest(), "fine": Uniform()}, runs=tmp_path
        )
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


# --- runs ------------------------------------------------------------------------------------------------------------------


def test_a_run_explains_its_decisions(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=2, selection="ucb"), runs=tmp_path)
    explanation = run.why(2)
    assert explanation == explain(run, 2)
    client = explanation.candidates[0].client
    assert run.why(2, client).client == client
    with pytest.raises(UsageError, match=r"^round = 3: .* has no such round; it has rounds 1 to 2$"):
        run.why(3)


def test_a_run_compares_its_participants(tmp_path: Path) -> None:
    run = fedcohort.open_run(fedcohort.run(small(rounds=1), runs=tmp_path).path)
    table = run.participants()
    assert table.equals(participants(run))
    assert table.loc["participants", "client_rounds"] == len(run.clients)
