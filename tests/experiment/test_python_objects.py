"""Classes and objects from Python in an experiment: they become names and parameters, in the base, in variants and in the sweep."""

import copy
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import nn

import fedcohort
from fedcohort.algorithms import FedProx
from fedcohort.algorithms.losses import Loss, SymmetricCrossEntropy
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.user_code.identity import identity
from fedcohort.experiment import Experiment
from fedcohort.federation.latency import ShiftedExponential
from fedcohort.federation.partitions.dirichlet_client import DirichletClient
from fedcohort.federation.partitions.iid import Iid
from fedcohort.selection import UCB, Cohort, PowerOfChoice, Round, Selector
from tests.experiments import IID, small


class Lowest(Selector):
    """The available clients with the lowest ids."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


@parameters
class From(Selector):
    """Clients from a position on."""

    start: Annotated[int, Ge(0)] = 0
    """The position."""

    def select(self, round: Round) -> Cohort:
        return Cohort(np.roll(round.available, -self.start)[: round.k])


class Listed(Selector):
    """The clients of a list, in turn; made of an array, which no experiment file can hold."""

    def __init__(self, clients: NDArray[np.int64]) -> None:
        self.clients = clients

    def state_dict(self) -> dict[str, Any]:
        return {}

    def select(self, round: Round) -> Cohort:
        return Cohort(np.roll(self.clients, round.t)[: round.k])


class Slow(ShiftedExponential):
    """Ten times slower than the built-in law."""

    def draw(self, *values: Any, **more: Any) -> Any:  # never called: only its name is needed
        raise NotImplementedError


@parameters
class Squared(Loss):
    """The square of the cross-entropy."""

    def samples(self, logits: torch.Tensor, labels: torch.Tensor, outputs: torch.Tensor | None = None) -> torch.Tensor:
        return nn.functional.cross_entropy(logits, labels, reduction="none").square()


# --- built-in classes become their names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"selection": UCB(c=0.3)}, {"selection": {"name": "ucb", "c": 0.3}}),
        ({"selection": UCB}, {"selection": "ucb"}),
        ({"selection": {"name": UCB, "c": 0.3, "k": 4}}, {"selection": {"name": "ucb", "c": 0.3, "k": 4}}),
        ({"algorithm": FedProx(mu=0.2)}, {"algorithm": {"name": "fedprox", "mu": 0.2}}),
        ({"federation": {"partition": Iid()}}, {"federation": {"partition": "iid"}}),
        ({"federation": {"partition": DirichletClient}}, {"federation": {"partition": "dirichlet_client"}}),
        (
            {"systems": {"latency": ShiftedExponential(spread=4.0)}},
            {"systems": {"latency": {"name": "shifted_exponential", "spread": 4.0}}},
        ),
        ({"training": {"loss": SymmetricCrossEntropy}}, {"training": {"loss": "sce"}}),
        (
            {"variants": [{"label": "b", "selection": UCB(c=2.0)}]},
            {"variants": [{"label": "b", "selection": {"name": "ucb", "c": 2.0}}]},
        ),
        ({"sweep": {"selection": [UCB]}}, {"sweep": {"selection": [{"name": "ucb"}]}}),
        ({"sweep": {"selection.name": [UCB]}}, {"sweep": {"selection.name": ["ucb"]}}),
    ],
)  # fmt: skip
def test_built_in_classes_and_objects_are_their_names(given: dict[str, Any], named: dict[str, Any]) -> None:
    one, other = small(**given), small(**named)
    rows = [row.key() for _, row in one.rows()]
    assert rows == [row.key() for _, row in other.rows()]
    assert all("python:" not in row.to_toml() for _, row in one.rows())


# --- own classes and objects ------------------------------------------------------------------------------------------------


def test_an_own_class_keeps_its_parameters_in_the_experiment() -> None:
    experiment = small(selection={"name": From(start=2), "k": 4})
    assert (experiment.selection.parameters, experiment.selection.k) == ({"start": 2}, 4)
    assert experiment.selection.build() == From(start=2)
    assert experiment.label == "From"
    assert small(selection={"name": From, "start": 2, "k": 4}).key() == experiment.key()
    assert small(selection={"name": From, "k": 4}).key() != experiment.key()
    with pytest.raises(UsageError, match=r"^selection\.start = -1: should be at least 0"):
        small(selection={"name": From, "start": -1})


def test_an_object_that_no_file_can_hold_is_kept_as_it_is() -> None:
    clients = np.arange(8)
    experiment = small(selection=Listed(clients))
    clients[:] = 0  # the experiment has a copy
    built: list[Any] = [experiment.selection.build() for _ in range(2)]
    assert [one.clients.tolist() for one in built] == [list(range(8))] * 2
    assert built[0] is not built[1]
    assert small(selection=Listed(np.arange(8))).key() == experiment.key()
    assert small(selection=Listed(np.arange(9))).key() != experiment.key()


def test_variants_and_sweeps_of_own_objects() -> None:
    experiment = small(
        selection={"name": "uniform", "k": 5},
        variants=[
            {"label": "low", "selection": Lowest},
            {"label": "second", "selection": From(start=1), "federation": {"partition": Iid}},
            {"label": "listed", "selection": {"name": Listed(np.arange(12)), "k": 2}},
        ],
        sweep={"training.loss": ["ce", Squared]},
    )
    rows = dict(experiment.rows())
    assert {type(row.selection.build()) for row in rows.values()} >= {Lowest, From, Listed}
    assert [row.selection.k for row in rows.values()] == [5, 5, 5, 5, 5, 5, 2, 2]
    assert len({row.key() for row in rows.values()}) == 8
    assert list(rows)[2:4] == ["low, loss=ce", "low, loss=Squared"]
    assert type(rows["low, loss=Squared"].training.build_loss()) is Squared
    swept = small(sweep={"selection": [Lowest, From(start=1), From(start=2)]})
    assert [label for label, _ in swept.rows()] == ["Lowest", "From, start=1", "From, start=2"]
    assert swept.with_overrides({"selection": Lowest}).label == "Lowest"


def test_a_module_and_a_function_as_models_of_variants(tmp_path: Path) -> None:
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    experiment = small(
        rounds=1,
        variants=[{"label": "module", "model": wide}, {"label": "function", "model": lambda: copy.deepcopy(wide)}],
        **IID,
    )
    comparison = fedcohort.compare(experiment, runs=tmp_path)
    accuracies = comparison.table["accuracy"].tolist()
    assert accuracies[1] == accuracies[2] != accuracies[0]
    assert len({run.path for row in comparison.rows for run in row.runs.values()}) == 3


def test_a_run_of_an_own_class_is_opened_again_and_says_what_it_was(tmp_path: Path) -> None:
    first = fedcohort.run(small(rounds=1, selection=Lowest), runs=tmp_path)
    again = fedcohort.run(small(rounds=1, selection=Lowest), runs=tmp_path)
    assert first.path == again.path
    assert first.plug_ins["selection"]["name"] == "Lowest"
    assert first.plug_ins["selection"]["summary"] == "The available clients with the lowest ids."
    assert first.clients["client"].tolist() == [0, 1, 2]


def test_another_session_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, selection=Lowest), runs=tmp_path)
    monkeypatch.setattr("fedcohort.core.user_code.python_plugins._kept", {})
    with pytest.raises(
        UsageError,
        match=r"^selection\.name = 'python:Lowest-[0-9a-f]{12}': Lowest was handed over in another Python session",
    ):
        fedcohort.load_experiment(run.path / "experiment.toml")
    assert fedcohort.open_run(run.path).described.label == "Lowest"


class WithLock(Lowest):
    """Cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"selection": Iid()}, r"^selection = Iid"),
        ({"selection": 3.5}, r"^selection = 3\.5: should be a name, or a table"),
        ({"algorithm": {"name": Lowest}}, r"^algorithm\.name = "),
        ({"variants": [{"label": "x", "selection": threading.Lock()}]}, r"^variants\.x: selection = "),
        (
            {"federation": {"partition": Lowest}},
            r"^federation\.partition = .*; or a class or an object that defines assign",
        ),
        ({"selection": WithLock()}, r"^WithLock: each run gets a copy of an object, and this one cannot be copied"),
    ],
)
def test_other_objects_are_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small(**values)


# --- identity ---------------------------------------------------------------------------------------------------------------

CELL = """
from fedcohort.selection import Cohort, Selector

class Mine(Selector):
    first = 0

    def select(self, round):
        return Cohort(round.available[self.first :][: round.k])
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a text like a notebook's cell: in ``__main__``, which has no file, and returns ``Mine``."""
    numbers = iter(range(100))

    def ran(text: str) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(text, f"<ipython-input-{next(numbers)}>", "exec"), names)
        return names["Mine"]

    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    return ran


@pytest.mark.parametrize(
    ("edit", "same"), [(("", ""), True), (("first = 0", "first = 1"), False), (("[:", "[0:"), False)]
)
def test_a_class_of_a_cell_is_known_by_its_code_and_its_values(cell: Any, edit: tuple[str, str], same: bool) -> None:
    """A changed value in the body of a class had no part in its identity if its source could not be read."""
    first, other = cell(CELL), cell(CELL.replace(*edit))
    assert (identity(first) == identity(other)) is same
    assert (identity(first()) == identity(other())) is same
    assert (small(selection=first).key() == small(selection=other).key()) is same


def test_two_classes_of_one_name_are_different_runs() -> None:
    """Python finds the source of one of them for both."""

    def made(tail: bool) -> type[Selector]:
        if tail:

            class Pick(Selector):
                def select(self, round: Round) -> Cohort:
                    return Cohort(round.available[-round.k :])
        else:

            class Pick(Selector):  # type: ignore[no-redef]
                def select(self, round: Round) -> Cohort:
                    return Cohort(round.available[: round.k])

        return Pick

    keys = [small(selection=given).key() for tail in (True, False, True) for given in (made(tail), made(tail)())]
    assert keys[0] == keys[1] == keys[4] == keys[5]
    assert keys[2] == keys[3] != keys[0]


def test_an_experiment_from_before_a_change_is_refused(cell: Any, tmp_path: Path) -> None:
    """A class reads a value of the notebook when it selects; the name of its run was made before the value changed."""
    mine = cell(CELL.replace("first = 0", "").replace("self.first", "FIRST").replace("class", "FIRST = 0\n\nclass"))
    experiment = small(rounds=1, selection=mine, variants=[{"label": "other", "selection": "all"}])
    fedcohort.run(experiment, runs=tmp_path)
    mine.select.__globals__["FIRST"] = 1
    for play in (fedcohort.run, fedcohort.compare):
        with pytest.raises(
            UsageError, match=r"^Mine: the class, or a value that it reads, has changed since the experiment was made"
        ):
            play(experiment, runs=tmp_path)
    again = fedcohort.run(small(rounds=1, selection=mine), runs=tmp_path)
    assert again.clients["client"].tolist() == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 2


class Holder:
    """Holds a value; its text has an address."""

    def __init__(self, value: object) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("value", "equal", "other"),
    [
        (3, 3, 4),
        (np.arange(5000), np.arange(5000), np.arange(5000) % 2500),
        (torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16), torch.zeros(3)),
        ({"a": [1, {2, 3}]}, {"a": [1, {3, 2}]}, {"a": [1, {2}]}),
        (Holder([1]), Holder([1]), Holder([2])),
        (len, len, max),
    ],
)
def test_objects_are_known_by_what_they_hold(value: object, equal: object, other: object) -> None:
    assert identity(Holder(value)) == identity(Holder(equal)) != identity(Holder(other))


def test_an_object_that_holds_itself_has_an_identity() -> None:
    one, two = Holder(1), Holder(1)
    one.value, two.value = one, two
    assert identity(one) == identity(two) != identity(Holder(1))


def test_objects_of_experiments_are_their_own_sections() -> None:
    """Nothing of an experiment without objects changes."""
    assert Experiment(selection={"name": "powd", "d": 6}).key() == Experiment(selection=PowerOfChoice(d=6)).key()
