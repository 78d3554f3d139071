"""Objects and functions of users that cannot be used: one line that says what to give or where the error is, with its cause."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedcohort
from fedcohort import UsageError
from fedcohort.algorithms import Problem, parameters
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.engines.base import ClientError, OwnClientError
from fedcohort.models import Model
from fedcohort.selection import Census, Cohort, Outcome, Round, Selector, Uniform, Why
from fedcohort.selection.strategies.ucb import UCB
from tests.cli.test_cli import call, refused
from tests.experiments import blobs, small

PLACE = r" \(\S*test_errors_in_own_code\.py:\d+\)$"

x, y = np.zeros((60, 4), np.float32), np.zeros(60, int)
tensors = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
GIVE_DATA = r"give a Dataset, such as fedcohort\.from_arrays\(\(train_features, train_labels\), \(test_features, test_labels\)\)$"


@parameters
class Strict(Selector):
    """A strategy with a required parameter."""

    size: int
    """How many."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: self.size])


@parameters
class NothingNext(Selector):
    """A strategy that asks an iterator for more than it has."""

    def setup(self, census: Census) -> None:
        next(iter(()))

    def select(self, round: Round) -> Cohort:
        raise NotImplementedError


class CountsInSetup(Selector):
    """A strategy that reads the label counts without a word that it needs them."""

    needs = frozenset({"validation"})

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.shares = census.histogram / census.num_samples[:, None]  # type: ignore[operator]

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


class CountsInSelect(Uniform):
    """Another one; it extends a strategy that needs nothing, and has an error of its own in round 2."""

    def select(self, round: Round) -> Cohort:
        if round.t == 2:
            None[0]  # type: ignore[index]
        return Cohort(np.flatnonzero(self.census.histogram[:, 0])[: round.k])  # type: ignore[index]


def test_label_counts_that_a_strategy_reads_and_does_not_need_are_named(tmp_path: Path) -> None:
    declared = r"; census\.histogram is None: add needs = frozenset\(\{%s\}\) to %s$"
    with pytest.raises(UsageError, match=declared % ("'histogram', 'validation'", "CountsInSetup")) as caught:
        fedcohort.run(small(), selector=CountsInSetup(), runs=tmp_path)
    assert "CountsInSetup.setup raised TypeError: " in str(caught.value)
    with pytest.raises(UsageError, match=declared % ("'histogram'", "CountsInSelect")):
        fedcohort.run(small(), selector=CountsInSelect(), runs=tmp_path)

    class Needs(CountsInSelect):
        needs = frozenset({"histogram"})

    with pytest.raises(UsageError, match=rf"^round 2: .* raised TypeError: .*{PLACE}"):
        fedcohort.run(small(), selector=Needs(), runs=tmp_path)


class WithoutGradients(FedAvg):
    """It computes losses and forgets the gradients."""

    def backward(self, problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
        found = problem.backward()
        for parameter in problem.parameters.values():
            parameter.grad = None
        return found


class ByHand(WithoutGradients):
    """It has no gradients either, and changes the parameters itself."""

    def backward(self, problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
        found = super().backward(problem)
        with torch.no_grad():
            for parameter in problem.parameters.values():
                parameter *= 0.9
        return found


def test_a_backward_that_leaves_no_gradients_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fedcohort.run(small(rounds=2), algorithm=WithoutGradients(), runs=tmp_path)
    (said,) = [record.getMessage() for record in caplog.records if "gradients" in record.getMessage()]
    assert re.search(
        r"client \d+ took \d+ steps in round 1, and its model did not change: WithoutGradients\.backward", said
    )
    caplog.clear()
    fedcohort.run(small(rounds=2), algorithm=ByHand(), runs=tmp_path)
    assert not [record for record in caplog.records if "gradients" in record.getMessage()]


def test_an_iterator_at_its_end_is_an_error_of_the_function(tmp_path: Path) -> None:
    """Generators that a StopIteration passes replace it by a RuntimeError without its place."""
    with pytest.raises(UsageError, match=rf"^NothingNext\.setup raised StopIteration{PLACE}"):
        fedcohort.run(small(), selector=NothingNext(), runs=tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": (x, y)}, rf"^data = an object of type tuple: {GIVE_DATA}"),
        ({"data": tensors}, rf"^data = an object of type TensorDataset: {GIVE_DATA}"),
        ({"data": DataLoader(tensors)}, rf"^data = an object of type DataLoader: {GIVE_DATA}"),
        ({"data": pd.DataFrame(x)}, r"^data = a DataFrame: save it as a table, .*\{'name': 'mine\.csv'\}\); or name a function"),
        ({"data": fedcohort.Dataset}, rf"^data = the class Dataset: {GIVE_DATA}"),
        ({"data": "mnist"}, r"^data = 'mnist': give a Dataset; a name or a folder is a setting: Experiment\(data="),
        ({"data": Path("x")}, r"^data = 'x': give a Dataset"),
        ({"model": LogisticRegression()}, r"^model = LogisticRegression\(\): give a torch\.nn\.Module, or a function that builds one"),
        ({"model": "mlp"}, r"^model = 'mlp': give a torch\.nn\.Module.*; a name is a setting: Experiment\(model='mlp'\)$"),
        ({"model": lambda: LogisticRegression()}, r"returned LogisticRegression, not a torch\.nn\.Module$"),
        ({"selector": "ucb"}, r"^selector = 'ucb': give an object, such as UCB\(\); .* Experiment\(selection='ucb'\)$"),
        ({"selector": FedAvg()}, r"^selector = an object of type FedAvg: .* that extends fedcohort\.selection\.Selector, "),
        ({"selector": FedAvg}, r"^selector = the class FedAvg: give an object that extends fedcohort\.selection\.Selector"),
        ({"selector": [UCB, UCB()]}, r"^selector = an object of type list: give one object, .*compare also takes a dict"),
        ({"selector": Strict}, r"^selector = Strict\.size: required, but not given$"),
        ({"algorithm": UCB()}, r"^algorithm = an object of type UCB: give an object that extends fedcohort\.algorithms\.Algorithm, "),
        ({"algorithm": "fedprox"}, r"^algorithm = 'fedprox': .*Experiment\(algorithm='fedprox'\)$"),
        ({"algorithm": lambda: 1}, r"^algorithm = an object of type function: "),
        ({"data_dir": 5}, r"^data_dir = 5: should be a path"),
        ({"model": nn.LazyLinear(3)}, r"^model = LazyLinear: weight has no values yet; give layers their sizes"),
        ({"model": nn.Linear(4, 3, device="meta")}, r"^model = Linear: weight has no values yet"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("function", [fedcohort.run, fedcohort.run_seeds, fedcohort.compare])
def test_an_object_of_another_type_is_refused(
    function: Callable[..., Any], given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        function(small(rounds=1), runs=tmp_path, **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("function", [fedcohort.run, fedcohort.run_seeds, fedcohort.compare])
def test_something_else_than_an_experiment_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"^experiment = 'x\.toml': .* read a file with fedcohort\.load_experiment"):
        function("x.toml")
    with pytest.raises(UsageError, match=r"^experiment = \{'rounds': 3\}: .* create one with fedcohort\.Experiment"):
        function({"rounds": 3})


@pytest.mark.parametrize("given", [None, 5, ["runs"]])
def test_something_else_than_a_path_is_refused(given: Any) -> None:
    for function in (fedcohort.open_run, fedcohort.load_experiment):
        with pytest.raises(UsageError, match=r"^path = .*: should be a path"):
            function(given)
    with pytest.raises(UsageError, match=r"^runs = .*: should be a path"):
        fedcohort.run(small(rounds=1), runs=given)


@pytest.mark.parametrize("jobs", ["2", 0, -1, 1.5, None])
def test_something_else_than_a_number_of_jobs_is_refused(jobs: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^jobs = .*: should be a whole number of at least 1$"):
        fedcohort.compare(small(rounds=1), jobs=jobs, runs=tmp_path)


@pytest.mark.parametrize("pair", [None, 5, (x,), (x, y, y), "xy"])
def test_arrays_without_labels_are_refused(pair: Any) -> None:
    with pytest.raises(UsageError, match=r"^arrays: train = .*: should be a pair \(features, labels\)$"):
        fedcohort.from_arrays(pair, (x, y))
    with pytest.raises(UsageError, match=r"^arrays: test = "):
        fedcohort.from_arrays((x, y), pair)


class Exits(Selector):
    """Ends the process."""

    def select(self, round: Round) -> Cohort:
        raise SystemExit(0)


def test_an_exit_in_a_function_of_a_user_is_named(tmp_path: Path) -> None:
    """``sys.exit()`` ended the command with its own exit code, without a table and without a word."""
    with pytest.raises(UsageError, match=rf"Exits\.select raised SystemExit: 0{PLACE}"):
        fedcohort.run(small(rounds=1), selector=Exits(), runs=tmp_path)

    def progress(cell: Any, row: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):  # users may end a run like this
        fedcohort.run(small(rounds=1), progress=progress, runs=tmp_path)


class Noted(Selector):
    """Chooses the first clients, for a reason that need not be text."""

    def __init__(self, note: Any) -> None:
        self.note = note

    def select(self, round: Round) -> Cohort:
        return Cohort(
            round.available[: round.k], why=Why(round.available, np.zeros(len(round.available)), note=self.note)
        )


@pytest.mark.parametrize("note", [5, None, b"text", "\ud800"])
def test_a_reason_that_is_not_text_is_refused(note: Any, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"Noted\.select in round 1: Why\.note is .*; give Unicode text of at most 1000 characters$"
    ):
        fedcohort.run(small(rounds=1), selector=Noted(note), runs=tmp_path)


def test_a_class_stands_for_its_default_parameters(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), selector=UCB, algorithm=FedAvg, runs=tmp_path)  # type: ignore[arg-type]
    same = fedcohort.run(small(rounds=1), selector=UCB(), algorithm=FedAvg(), runs=tmp_path)
    assert run.path == same.path
    assert run.meta["label"] == "UCB"


def module(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


class Pair(nn.Module):
    """Returns two tensors."""

    def forward(self, values: torch.Tensor) -> Any:
        return values, values


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (module(5, 3), r"^model = Sequential: cannot process samples of shape \[4\]: RuntimeError: mat1 and mat2 .*\(2x4 and 5x3\)$"),
        (module(4, 2), r"^model = Sequential: returns \[2, 2\] for 2 samples of 3 classes; it should return logits \[2, 3\]$"),
        (lambda: module(4, 7), r"^model = Sequential: returns \[2, 7\] for 2 samples of 3 classes"),
        (Pair, r"^model = Pair: returns tuple for 2 samples of 3 classes; it should return logits \[2, 3\]$"),
        (nn.Identity(), r"^model = Identity: returns \[2, 4\] for 2 samples"),
    ],
)  # fmt: skip
def test_a_model_of_another_shape_is_refused(model: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        fedcohort.run(small(rounds=1, federation={"clients": 4}), data=blobs(), model=model, runs=tmp_path)
    assert not list(tmp_path.iterdir())


# --- errors in functions of users ----------------------------------------------------------------------------------------------


class First(Selector):
    """The first k clients."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


class Selects(First):
    def select(self, round: Round) -> Cohort:
        if round.t == 2:
            raise KeyError("no such client")
        return super().select(round)


class Observes(First):
    def observe(self, outcome: Outcome) -> None:
        raise KeyError("no such client")


class SetsUp(First):
    def setup(self, census: Any) -> None:
        raise KeyError("no such client")


class Admits(First):
    def admit(self, updates: Iterable[Any]) -> Iterator[Any]:
        yield from ()
        raise KeyError("no such client")


class Aggregates(FedAvg):
    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        raise KeyError("no such client")


class Builds(Model):
    def build(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
        raise KeyError("no such client")


@pytest.mark.parametrize(
    ("given", "begin"),
    [
        ({"selector": Selects()}, r"^round 2: Selects\.select"),
        ({"selector": Observes()}, r"^round 1: Observes\.observe"),
        ({"selector": Admits()}, r"^round 1: Admits\.admit"),
        ({"selector": SetsUp()}, r"^SetsUp\.setup"),
        ({"algorithm": Aggregates()}, r"^round 1: Aggregates\.aggregate"),
        ({"model": Builds()}, r"^Builds\.build"),
    ],
)
def test_an_error_in_a_function_of_a_user_names_it_and_the_line(
    given: dict[str, Any], begin: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"{begin} raised KeyError: 'no such client'{PLACE}") as error:
        fedcohort.run(small(rounds=3), runs=tmp_path, **given)
    assert isinstance(error.value.__cause__, KeyError)
    assert error.value.__cause__.__traceback__ is not None


class DrawsHalf(UCB):
    """Draws 1.5 clients, which numpy refuses in compiled code, whose place would not help."""

    def select(self, round: Round) -> Cohort:
        number: Any = 1.5
        return Cohort(round.rng.choice(round.available, number, replace=False))


def test_an_error_in_compiled_code_has_the_place_of_the_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^round 1: DrawsHalf\.select raised TypeError: .*{PLACE}"):
        fedcohort.run(small(rounds=1), selector=DrawsHalf(), runs=tmp_path)


class ReadsUpdates(UCB):
    """Reads updates, which it has not declared."""

    name: ClassVar[str] = "update"

    def observe(self, outcome: Outcome) -> None:
        outcome.billed_report(self.name)


class ReadsNorms(ReadsUpdates):
    name = "update_norm"


@pytest.mark.parametrize("strategy", [ReadsUpdates, ReadsNorms])
def test_updates_that_were_not_declared_cannot_be_read(strategy: type[ReadsUpdates], tmp_path: Path) -> None:
    message = rf"^{strategy.__name__}\.observe reads '{strategy.name}', .*; declare needs = frozenset\(\{{'{strategy.name}'\}}\)$"
    with pytest.raises(UsageError, match=message):
        fedcohort.run(small(rounds=1), selector=strategy(), runs=tmp_path)


class Training(nn.Module):
    """Raises an error while a client trains it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> Any:
        if self.training and len(images) > 2:
            raise KeyError("no such client")
        return self.layer(images.flatten(1))


def test_an_error_at_a_client_names_the_client_and_the_round(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^round 1: client \d+: KeyError: 'no such client'{PLACE}") as error:
        fedcohort.run(small(), model=Training, runs=tmp_path)
    assert isinstance(error.value, ClientError)
    assert isinstance(error.value.__cause__, KeyError)


class Returns(FedAvg):
    """Returns something that is no model."""

    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        list(updates)
        return None


class Renames(FedAvg):
    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        return {f"{name}.x": value for name, value in super().aggregate(model, updates, members).items()}


class Grows(FedAvg):
    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        return {name: value[:1] for name, value in super().aggregate(model, updates, members).items()}


class Doubles(FedAvg):
    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        return {name: value.double() for name, value in super().aggregate(model, updates, members).items()}


class Arrays(FedAvg):
    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        return {name: value.numpy() for name, value in super().aggregate(model, updates, members).items()}


class NeedsHoldouts(FedAvg):
    needs = frozenset({"holdouts"})


class Uncalled(FedAvg):
    def correct(self, problem: Any, gradients: Any) -> None:
        gradients.clear()


class Remembers(FedAvg):
    def finish(self, problem: Any) -> Any:
        return {}, {"last": problem.parameters["1.bias"]}


class TurnsBack(FedAvg):
    def backward(self, problem: Any) -> Any:
        problem.backward()


class Forgets(FedAvg):
    def local_training(self, training: Any) -> Any:
        return None


class Changes(FedAvg):
    def local_training(self, training: Any) -> Any:
        training.epochs = 3
        return training


class Sends(FedAvg):
    """Broadcasts what it is given."""

    def __init__(self, sent: Any) -> None:
        super().__init__()
        self._sent = sent

    def broadcast(self) -> Any:
        return self._sent


class Weighs(FedAvg):
    """Gives each update this weight."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self._given = weight

    def weigh(self, update: Any, members: Any) -> Any:
        return self._given


def answering(method: str, returned: Any) -> FedAvg:
    """An algorithm with one method that returns this."""
    of_class: dict[str, Any] = {method: lambda *_: returned}
    made: FedAvg = type("Answers", (FedAvg,), of_class)()
    return made


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (answering("title", None), r"^Answers\.title returned None; it must return the algorithm's name, a text$"),
        (answering("begin", None), r"^Answers\.begin returned None; return what add\(fold, update, weight\) fills$"),
        (answering("weighed", None), r"^Answers\.weighed returned None; it must return a dictionary of numbers by client, or an "),
        (answering("weighed", {0: math.nan}), r"^Answers\.weighed returned nan for client 0; it must return numbers of at least 0$"),
        (answering("weighed", {1: -1}), r"^Answers\.weighed returned -1 for client 1; it must return numbers of at least 0$"),
        (answering("coefficients", [1.0]), r"^Answers\.coefficients returned \[1\.0\]; it must return a dictionary of numbers by "),
        (answering("coefficients", {0: "x"}), r"^Answers\.coefficients returned 'x' for client 0; it must return numbers$"),
        (Weighs(float("nan")), r"^Weighs\.weigh returned nan for client \d+; it must return a number of at least 0$"),
        (Weighs(-0.5), r"^Weighs\.weigh returned -0\.5 for client "),
        (Weighs(10**400), r"^Weighs\.weigh returned 10+\.*0+ for client "),
        (Weighs(None), r"^Weighs\.weigh returned None for client "),
        (NeedsHoldouts(), r"^NeedsHoldouts\.needs: there is no 'holdouts'; did you mean 'holdout'\?"),
        (Uncalled(), r"^Uncalled\.correct would never be called; set corrects = True in the class Uncalled$"),
        (Remembers(), r"^round 1: client \d+: Remembers\.finish returned .*; it must return two dictionaries of the form .*memory$"),
        (TurnsBack(), r"^round 1: client \d+: TurnsBack\.backward returned None; it must return what problem\.backward\(\) does: "),
        (Forgets(), r"^Forgets\.local_training returned None; it must return settings: dataclasses\.replace\(training, …\)$"),
        (Changes(), r"^Changes\.local_training: training\.epochs = 3: settings of training cannot be changed; .*replace\("),
        (Sends(None), r"^Sends\.broadcast returned None; it must return a dictionary of the form \{'kind': \{'name': tensor\}\}"),
        (Sends({"c": torch.ones(1)}), r"^Sends\.broadcast returned \{'c': tensor\(\[1\.\]\)\}; it must return a dictionary"),
        (Doubles(), r"^Doubles\.aggregate returned '1\.weight' .* and type torch\.float64; it must be .* and type torch\.float32$"),
        (Arrays(), r"^Arrays\.aggregate returned ndarray for '1\.weight'; it must return tensors$"),
        (Returns(), r"^Returns\.aggregate returned NoneType; it must return a model: tensors by name$"),
        (Renames(), r"^Renames\.aggregate returned a model with other tensors than it received: '1\.bias' is in one of them only$"),
        (Grows(), r"^Grows\.aggregate returned '1\.weight' of shape \[1, 64\] and type .*; it must be of shape \[64, 64\] "),
    ],
)  # fmt: skip
def test_methods_of_an_algorithm_that_return_something_else_are_named(
    algorithm: FedAvg, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        fedcohort.run(small(rounds=1), algorithm=algorithm, runs=tmp_path)


def test_a_weight_can_be_a_tensor(tmp_path: Path) -> None:
    runs = [
        fedcohort.run(small(rounds=2), algorithm=Weighs(weight), runs=tmp_path / str(i))
        for i, weight in enumerate((2.0, torch.tensor(2.0), torch.tensor([2.0])))
    ]
    losses = [run.rounds["test_loss"].tolist() for run in runs]
    assert losses[0] == losses[1] == losses[2]


def test_a_correction_that_is_none_is_named(tmp_path: Path) -> None:
    algorithm = type("Answers", (FedAvg,), {"corrects": True, "correct": lambda *_: None, "correction": lambda *_: 3})()
    words = r"round 1: client \d+: Answers\.correction returned 3; it must return a Correction\(…\), or None"
    with pytest.raises(UsageError, match=words):
        fedcohort.run(small(rounds=1), algorithm=algorithm, runs=tmp_path)


def test_a_round_in_which_all_weights_are_0_is_noted(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), algorithm=Weighs(0.0), runs=tmp_path)
    assert run.rounds["note"].tolist() == [
        "uniform; no update admitted, since their weights are 0: the model stays as it was"
    ]


def test_an_update_of_weight_0_does_not_enter_the_model(tmp_path: Path) -> None:
    """It counted as admitted, as if it had: in numbers of clients, in Jain's index of admitted updates, and for strategies."""

    class FirstHasWeight0(FedAvg):
        """The first update of a round has the weight 0."""

        def weigh(self, update: Any, members: Any) -> float:
            first = self.__dict__.setdefault("_first", update.client)
            return 0.0 if update.client == first else super().weigh(update, members)

    run = fedcohort.run(small(rounds=1), algorithm=FirstHasWeight0(), runs=tmp_path)
    clients = run.clients.set_index("status")
    assert clients.loc[["declined"], "detail"].tolist() == ["its weight is 0"]
    assert clients.loc[["declined"], "weight"].tolist() == [0.0]
    assert run.rounds[["trained", "admitted"]].to_numpy().tolist() == [[3, 2]]
    assert run.rounds["note"].tolist() == ["uniform"]


@pytest.mark.parametrize("plan", ["threads", "stacked"])
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            "functional.cross_entropy(logits, labels)",
            r"returned \[\] for \d+ samples; it must return the loss of each sample, \[\d+\] \(.*reduction='none'\)$",
        ),
        (
            "functional.cross_entropy(logits, labels, reduction='none').detach()",
            r"returned losses that do not depend on the logits; do not detach them, and do not compute them under torch\.no_grad\(\)$",
        ),
    ],
    ids=["mean", "detached"],
)
def test_a_loss_that_cannot_be_trained_with_is_named(plan: str, returned: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "from torch.nn import functional\n"
        "from fedcohort.algorithms.losses import Loss\n"
        "from fedcohort.core.parameters import parameters\n"
        "@parameters\n"
        "class Wrong(Loss):\n"
        "    def samples(self, logits, labels, outputs=None):\n"
        f"        return {returned}\n"
    )
    with pytest.raises(UsageError, match=rf"Wrong\.samples {message}") as error:
        fedcohort.run(
            small(rounds=1, training={"loss": f"{file}:Wrong"}, engine={"plan": plan}), runs=tmp_path / "runs"
        )
    assert "RuntimeError" not in str(error.value)


class Divides(FedAvg):
    """Makes entries that are no numbers, in rounds 2 and 3."""

    def aggregate(self, model: Any, updates: Iterable[Any], members: Any) -> Any:
        whole = super().aggregate(model, updates, members)
        return {name: value / (0.0 if members.t > 1 else 1.0) for name, value in whole.items()}


def test_an_aggregate_that_makes_what_is_no_number_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fedcohort.run(small(rounds=3), algorithm=Divides(), runs=tmp_path)
    said = [record.getMessage() for record in caplog.records if "Divides" in record.getMessage()]
    assert len(said) == 1
    assert "Divides.aggregate returned NaN or infinite entries in '1.weight', from updates without any" in said[0]


class EndOfRunError(Exception):
    """An error that the caller of a run wants to see."""


def test_an_error_in_a_progress_function_reaches_the_caller_unchanged(tmp_path: Path) -> None:
    raised = EndOfRunError("enough")

    def progress(*_: Any) -> NoReturn:
        raise raised

    with pytest.raises(EndOfRunError) as error:
        fedcohort.run(small(rounds=3), progress=progress, runs=tmp_path)
    assert error.value is raised
    assert error.value.__context__ is None


def test_errors_of_fedcohort_itself_pass_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.core.words.formatted_values import percent

    monkeypatch.setattr("fedcohort.rounds.play_round", partial(percent, "a word"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword"):
        fedcohort.run(small(rounds=1), selector=First(), runs=tmp_path)


# --- files of users ------------------------------------------------------------------------------------------------------------

MINE = """
import numpy as np
from fedcohort.federation import LabelNoise, parameters
from fedcohort.selection import Cohort, Selector
from torch import nn


class Selects(Selector):
    def select(self, round):
        return 1 / 0


class Created(Selector):
    def __init__(self):
        1 / 0


@parameters
class Assigns:
    min_size: int = 1
    evens_out = None

    def assign(self, labels, num_clients, rng, writers=None):
        return 1 / 0


@parameters
class AssignsNothing(Assigns):
    def assign(self, labels, num_clients, rng, writers=None):
        return None


@parameters
class NoAssign:
    min_size: int = 1


class NoSize:
    min_size = evens_out = assign = None


@parameters
class Rates(LabelNoise):
    def rates(self, num_clients, rng):
        return [0.5]


def model(shape, num_classes):
    return nn.Linear(1 / 0, 1)


def wide(shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2 * num_classes))
"""


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("selection=mine.py:Selects", "round 1: Selects.select raised ZeroDivisionError: division by zero (|mine.py:10)"),
        ("selection=mine.py:Created", "selection: Created cannot be created: ZeroDivisionError: division by zero (|mine.py:15)"),
        ("federation.partition=mine.py:Assigns", "Assigns.assign raised ZeroDivisionError: division by zero (|mine.py:24)"),
        ("federation.partition=mine.py:AssignsNothing", "federation.partition: AssignsNothing.assign returned NoneType; it must"),
        ("federation.partition=mine.py:NoAssign", "mine.py:NoAssign': defines no assign and no evens_out; a partition is"),
        ("federation.partition=mine.py:NoSize", "federation.partition: NoSize.min_size is None; set an integer, such as 1"),
        ("federation.label_noise=mine.py:Rates", "federation.label_noise: Rates.rates returned list; it must return [12]"),
        ("systems.latency=mine.py:Rates", "Rates is not a latency law; a latency law extends fedcohort.federation.latency.Latency"),
        ("training.loss=mine.py:Rates", "Rates is not a loss; a loss extends fedcohort.algorithms.losses.Loss"),
        ("model=mine.py:model", "model raised ZeroDivisionError: division by zero (|mine.py:49)"),
        ("model=mine.py:wide", "mine.py:wide': returns [2, 20] for 2 samples of 10 classes; it should return logits [2, 10]"),
    ],
)  # fmt: skip
def test_the_command_line_names_the_line_in_the_file(
    setting: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    refused(call("run", "--set", setting, "--set", "rounds=2", "--quiet"), *words.split("|"))


def test_a_description_of_the_clients_names_the_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    result = call("data", "describe", "--set", "federation.partition=mine.py:Assigns")
    refused(result, "Assigns.assign raised ZeroDivisionError", "mine.py:24)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "SyntaxError: '(' was never closed|bad.py:1)"),
        ("\n\nimport nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'|bad.py:3)"),
    ],
    ids=["syntax", "import"],
)
def test_a_file_that_cannot_be_imported_names_its_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    refused(call("run", "--set", "selection=bad.py:C"), "cannot be imported: ", *words.split("|"))


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class CancelledError(BaseException):
    """Not an error of the program: a library around the run ends it."""


class Raises(Selector):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def select(self, round: Round) -> Cohort:
        raise self.error


def test_an_error_of_many_lines_at_a_client_becomes_one() -> None:
    error = OwnClientError("client 3: ValueError: many\nlines")
    assert str(error) == "client 3: ValueError: many lines"


def test_an_error_without_a_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^round 1: Raises\.select raised MuteError{PLACE}"):
        fedcohort.run(small(rounds=1), selector=Raises(MuteError()), runs=tmp_path)


def test_what_is_no_exception_reaches_the_caller_unchanged(tmp_path: Path) -> None:
    with pytest.raises(CancelledError):
        fedcohort.run(small(rounds=1), selector=Raises(CancelledError()), runs=tmp_path)


def test_what_is_no_exception_is_one_line_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "class B(BaseException): pass\ndef worst(predictions, labels):\n    raise B('x' * 1000)\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ("--set", 'measures.extra=["mine.py:worst"]', "--set", "rounds=1", "--set", "seeds=1")
    refused(call("run", "--quiet", *options), "worst raised B: xx", "mine.py:3)")


def test_a_partial_function_with_an_error_is_named(tmp_path: Path) -> None:
    def build(width: int, shape: tuple[int, ...], classes: int) -> nn.Module:
        raise KeyError(width)

    with pytest.raises(UsageError, match=r"build raised KeyError: 7"):
        fedcohort.run(small(rounds=1), model=partial(build, 7), runs=tmp_path)
