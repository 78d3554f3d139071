"""Own classes that draw from generators without a seed get one warning; others get none."""

import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms import FedAvg, Loss
from fedcohort.algorithms import parameters as algorithm_parameters
from fedcohort.core.random_streams import torch_seeded
from fedcohort.core.user_code.unseeded_draws import warning_of_draws
from fedcohort.federation import Availability, LabelNoise, Latency, parameters
from fedcohort.selection import Cohort, Round, Uniform

GENERATORS: dict[str, Callable[[], object]] = {
    "numpy.random": lambda: np.random.rand(),  # noqa: NPY002 - what is warned of
    "Python's random": random.random,
    "torch's global generator": lambda: torch.rand(1),
}


def messages(played: Callable[[], object]) -> list[str]:
    """The warnings of a call about draws."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        played()
    return [str(one.message) for one in caught if "draws from" in str(one.message)]


def play(folder: Any, **arguments: Any) -> Callable[[], object]:
    """Plays a run of three rounds on four clients."""
    given = {
        name: arguments.pop(name)
        for name in ("selector", "algorithm", "measures", "model", "loss")
        if name in arguments
    }
    settings = {"federation": {"clients": 4}, "selection": {"name": "uniform", "k": 2}} | arguments
    return lambda: fedcohort.run(fedcohort.Experiment(rounds=3, **settings), runs=folder, **given)


@pytest.mark.parametrize("generator", GENERATORS)
def test_each_generator_is_named_once(generator: str) -> None:
    class Own:
        """A class of a user."""

    def twice() -> None:
        for _ in range(2):
            with warning_of_draws("selection", Own()):
                GENERATORS[generator]()

    (text,) = messages(twice)
    assert text == (
        f"selection: Own draws from {generator}, which FedCohort does not seed, so that a run cannot be repeated; "
        "draw from round.rng in select"
    )


def test_seeded_draws_and_parts_of_fedcohort_get_no_warning() -> None:
    class Own:
        """A class of a user."""

    def seeded() -> None:
        with warning_of_draws("algorithm", Own()), torch_seeded(0, torch.device("cpu")):
            torch.rand(1)
            np.random.default_rng(0).random()
        with warning_of_draws("selection", Uniform()):
            np.random.rand()  # noqa: NPY002 - what is warned of

    assert messages(seeded) == []


def test_an_own_strategy(tmp_path: Any) -> None:
    class Careless(Uniform):
        def select(self, round: Round) -> Cohort:
            return Cohort(np.random.permutation(round.available)[: round.k])  # noqa: NPY002 - what is warned of

    assert [text.partition(",")[0] for text in messages(play(tmp_path, selector=Careless()))] == [
        "selection: Careless draws from numpy.random"
    ]


def test_an_own_algorithm(tmp_path: Any) -> None:
    @algorithm_parameters
    class OnServer(FedAvg):
        def end(self, *arguments: Any) -> Any:
            return {name: value + 1e-3 * torch.randn_like(value) for name, value in super().end(*arguments).items()}

    @algorithm_parameters
    class OnClients(FedAvg):
        corrects = True

        def correct(self, problem: Any, gradients: Any) -> None:
            for gradient in gradients.values():
                gradient += 1e-3 * random.random()

    @algorithm_parameters
    class Keyed(FedAvg):
        corrects = True

        def correct(self, problem: Any, gradients: Any) -> None:
            for gradient in gradients.values():
                gradient += 1e-3 * problem.rng.random()

    @algorithm_parameters
    class BeforeRounds(FedAvg):
        def prepare(self, tools: Any) -> None:
            super().prepare(tools)
            self.directions = torch.randn(3)

    algorithms = (OnServer(), OnClients(), Keyed(), BeforeRounds())
    found = [messages(play(tmp_path, algorithm=algorithm)) for algorithm in algorithms]
    assert [text.partition(",")[0] for texts in found for text in texts] == [
        "algorithm: OnServer draws from torch's global generator",
        "algorithm: OnClients draws from Python's random",
        "algorithm: BeforeRounds draws from torch's global generator",
    ]


def test_own_laws(tmp_path: Any) -> None:
    @parameters
    class Coins(Availability):
        def presence(self, num_clients: int, rounds: int, seed: int) -> Any:
            return lambda t: np.random.rand(num_clients) < 0.9  # noqa: NPY002 - what is warned of

    @parameters
    class Delays(Latency):
        def times(self, num_samples: Any, seed: int) -> Any:
            factors = np.random.rand(len(num_samples)) + 1  # noqa: NPY002 - what is warned of
            return lambda t: num_samples * factors

    @parameters
    class Rates(LabelNoise):
        def rates(self, num_clients: int, rng: Any) -> Any:
            return np.full(num_clients, 0.1 * random.random())

    @parameters
    class Seeded(Availability):
        def presence(self, num_clients: int, rounds: int, seed: int) -> Any:
            return lambda t: np.random.default_rng([seed, t]).random(num_clients) < 0.9

    settings: list[dict[str, Any]] = [
        {"systems": {"availability": Coins()}},
        {"systems": {"latency": Delays()}},
        {"federation": {"clients": 4, "label_noise": Rates()}},
        {"systems": {"availability": Seeded()}},
    ]
    found = [text.partition(",")[0] for each in settings for text in messages(play(tmp_path, **each))]
    assert found == [
        "systems.availability: Coins draws from numpy.random",
        "systems.latency: Delays draws from numpy.random",
        "federation.label_noise: Rates draws from Python's random",
    ]


def test_an_own_partition(tmp_path: Any) -> None:
    @parameters
    class Anywhere:
        """Any client for each sample."""

        min_size: int = 1
        evens_out = None

        def assign(self, labels: Any, num_clients: int, rng: Any, writers: Any = None) -> Any:
            return np.random.randint(0, num_clients, len(labels))  # noqa: NPY002 - what is warned of

    found = messages(play(tmp_path, federation={"clients": 4, "partition": Anywhere()}))
    assert [text.partition(";")[2] for text in found] == [" draw from the argument rng"]


def test_an_own_measure(tmp_path: Any) -> None:
    def roughly(predictions: Any, labels: Any) -> float:
        return float((predictions.argmax(axis=1) == labels).mean() + np.random.normal(0, 0.01))  # noqa: NPY002

    assert [text.partition(",")[0] for text in messages(play(tmp_path, measures=[roughly]))] == [
        "measures.extra: roughly draws from numpy.random"
    ]


class Plain(FedAvg):
    """An own algorithm that draws nothing."""


class Noisy(nn.Module):
    """Draws in its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        return self.layer(x.flatten(1)) + 1e-3 * random.random()


@algorithm_parameters
class Rough(Loss):
    def samples(self, logits: Any, labels: Any, outputs: Any = None) -> Any:
        return nn.functional.cross_entropy(logits, labels, reduction="none") * (1 + 1e-3 * random.random())


def test_a_network_and_a_loss_that_draw_are_not_said_to_be_the_algorithm(tmp_path: Any) -> None:
    """The warning named the algorithm as well, because its round was where they drew."""
    for expected in (["training.loss: Rough"], []):  # one warning of a loss in a process
        folder = tmp_path / str(len(expected))
        of_network = messages(play(folder, algorithm=Plain(), model=Noisy()))
        of_loss = messages(play(folder, algorithm=Plain(), loss=Rough))
        assert [text.partition(" draws")[0] for text in of_network] == ["model = Noisy:"]
        assert [text.partition(" draws")[0] for text in of_loss] == expected


def test_a_rule_of_admission(tmp_path: Any) -> None:
    class Moody(Uniform):
        def admit(self, updates: Any) -> Any:
            return (update for update in updates if random.random() < 2)

    class Sober(Uniform):
        """Admits all, as its base class does."""

    class Moodier(Moody):
        """Another class, of which there is no warning yet."""

    class AlsoPlain(FedAvg):
        """Another class, of which there is no warning yet."""

    assert messages(play(tmp_path, selector=Sober())) == []
    assert [text.partition(",")[0] for text in messages(play(tmp_path, selector=Moody()))] == [
        "selection: Moody draws from Python's random"
    ]
    (text,) = messages(play(tmp_path, selector=Moodier(), algorithm=AlsoPlain()))
    assert text.startswith(
        "algorithm: AlsoPlain, or selection: Moodier, draws from Python's random, which FedCohort does not seed"
    )
    assert text.endswith("; in Moodier, draw from round.rng in select"), "one of the two, and nothing tells which"


def test_a_stopping_rule(tmp_path: Any) -> None:
    (tmp_path / "rules.py").write_text(
        "import random\n"
        "from fedcohort.selection import StoppingRule, parameters\n\n"
        "@parameters\n"
        "class Coin(StoppingRule):\n"
        "    def check(self, progress):\n"
        "        return random.random() < 0.5, {}\n"
    )

    class Stopping(Uniform):
        def select(self, round: Round) -> Cohort:
            return replace(super().select(round), stop={"rule": f"{tmp_path / 'rules.py'}:Coin"})

    assert [text.partition(",")[0] for text in messages(play(tmp_path, selector=Stopping()))] == [
        "Cohort.stop: Coin draws from Python's random"
    ]


def test_a_function_that_makes_data(tmp_path: Any) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\ndef data():\n    x = np.random.rand(100, 4)\n    return x, (x[:, 0] > 0.5).astype(int)\n"
    )
    found = messages(play(tmp_path / "runs", data={"name": f"{tmp_path / 'mine.py'}:data"}))
    assert [text.partition(",")[0] for text in found] == ["data.name: data draws from numpy.random"]
