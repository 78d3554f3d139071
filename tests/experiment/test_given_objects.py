"""Objects from Python in place of settings: data, models, strategies, algorithms and public samples."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.identity import identity
from fedcohort.experiment.given_objects import Given
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.selection.strategies.ucb import UCB
from fedcohort.training.programs.traced_networks import Contiguous
from tests.cli.test_cli import call, refused
from tests.experiments import IID, blobs, small


def test_own_data_and_module(tmp_path: Path) -> None:
    torch.manual_seed(0)
    run = fedcohort.run(small(rounds=8, **IID), data=blobs(), model=nn.Linear(4, 3), runs=tmp_path)
    assert run.finished
    assert run.rounds["test_accuracy"].iloc[-1] > 0.9


def test_a_factory_is_told_shape_and_classes(tmp_path: Path) -> None:
    seen: list[Any] = []

    def factory(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        seen.append((shape, num_classes))
        return nn.Linear(shape[0], num_classes)

    fedcohort.run(small(rounds=1, **IID), data=blobs(), model=factory, runs=tmp_path)
    assert set(seen) == {((4,), 3)}


def test_data_and_weights_given_in_python_name_the_run(tmp_path: Path) -> None:
    module = nn.Linear(4, 3)
    first = fedcohort.run(small(rounds=1, **IID), data=blobs(), model=module, runs=tmp_path)
    same = fedcohort.run(small(rounds=1, **IID), data=blobs(), model=module, runs=tmp_path)
    other_data = fedcohort.run(small(rounds=1, **IID), data=blobs(300), model=module, runs=tmp_path)
    with torch.no_grad():
        module.weight[0, 0] += 1
    other_weights = fedcohort.run(small(rounds=1, **IID), data=blobs(), model=module, runs=tmp_path)
    assert first.path == same.path
    assert len({first.path, other_data.path, other_weights.path}) == 3


def test_a_selector_object_is_copied_for_every_run(tmp_path: Path) -> None:
    mine = UCB(c=0.1)
    fedcohort.run(small(), selector=mine, runs=tmp_path / "a")
    assert not hasattr(mine, "selections")


def test_what_python_handed_over_stands_in_the_record(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, **IID), selector=UCB(c=0.5), data=blobs(), model=nn.Linear(4, 3), runs=tmp_path)
    head = (run.path / "experiment.toml").read_text().splitlines()[:3]
    assert head[0].startswith("# data: handed over in Python: arrays, ")
    assert head[1].startswith("# model: handed over in Python: Linear(in_features=4")
    assert head[2].startswith("# selector: handed over in Python: UCB(c=0.5")
    assert run.meta["label"] == "UCB"


def test_factories_differ_by_what_they_close_over(tmp_path: Path) -> None:
    def factory(width: int) -> Any:
        return lambda shape, classes: nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, classes))

    runs = [fedcohort.run(small(rounds=1, **IID), data=blobs(), model=factory(w), runs=tmp_path) for w in (4, 8, 8)]
    assert runs[0].path != runs[1].path
    assert runs[1].path == runs[2].path


def test_lambdas_of_one_line_are_different_models(tmp_path: Path) -> None:
    """Their source is the same line: the second one opened the run of the first, without a word."""
    factories = [lambda s, c: nn.Linear(s[0], c), lambda s, c: nn.Linear(s[0], c, bias=False)]
    runs = [fedcohort.run(small(rounds=1, **IID), data=blobs(), model=factory, runs=tmp_path) for factory in factories]
    assert runs[0].path != runs[1].path


WITH_HELPERS = """
from torch import nn
WIDTH = 4
def layers(shape, classes):
    return [nn.Linear(shape[0], WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes)]
class Net(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(*layers(shape, classes))
def build(shape, classes):
    return Net(shape, classes)
"""


@pytest.mark.parametrize(
    "edit", [("WIDTH = 4", "WIDTH = 8"), ("nn.ReLU()", "nn.Tanh()"), ("super()", "print(); super()")]
)
@pytest.mark.parametrize("name", ["build", "Net"])
@pytest.mark.parametrize("in_file", [True, False])
def test_what_a_model_uses_of_its_module_names_the_run(
    name: str, edit: tuple[str, str], in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed constant, function or class, in a file or (without source) in a console; without a change, the same run is opened."""
    monkeypatch.syspath_prepend(tmp_path)

    def given(text: str, version: str) -> Any:
        file, names = tmp_path / f"{version}.py", {"__name__": "__main__"}
        if in_file:
            file.write_text(text)
        exec(compile(text, str(file) if in_file else "<stdin>", "exec"), names)
        return names[name]

    keys = [
        identity(given(WITH_HELPERS.replace(*change), f"version{n}")) for n, change in enumerate([edit, edit, ("", "")])
    ]
    assert keys[0] == keys[1] != keys[2]


def test_the_source_of_packages_and_the_key_of_objects_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding a source parses its whole file, and a network has the same layers many times."""
    read: list[object] = []
    getsourcelines = inspect.getsourcelines

    def noted(written: Any) -> tuple[list[str], int]:
        read.append(written)
        return getsourcelines(written)

    monkeypatch.setattr(inspect, "getsourcelines", noted)
    networks = [nn.Sequential(Bottleneck(4), Contiguous(), Contiguous(), nn.Linear(4, 3)) for _ in range(2)]
    first, second = (Given(model=network) for network in networks)
    keys = [first.key(), first.key(), second.key()]
    assert keys[0] == keys[1] != keys[2]
    assert read.count(Contiguous) <= 1
    of_user = read.count(Bottleneck)
    first.key()
    assert read.count(Bottleneck) == of_user > 0


class Bottleneck(nn.Linear):
    """A layer of the user."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)


def test_classes_differ_by_what_they_close_over() -> None:
    def network(width: int) -> type[nn.Module]:
        class Net(nn.Linear):
            def __init__(self) -> None:
                super().__init__(4, width)

        return Net

    assert identity(network(4)) != identity(network(8)) == identity(network(8))


def test_selector_objects_differ_by_how_they_are_written(tmp_path: Path) -> None:
    class Head(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(round.available[:3])

    class Tail(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(round.available[-3:])

    Tail.__qualname__ = Head.__qualname__
    picks = [
        fedcohort.run(small(rounds=1), selector=s(), runs=tmp_path).clients["client"].tolist() for s in (Head, Tail)
    ]
    assert picks == [[0, 1, 2], [9, 10, 11]]


def other_digits() -> Any:
    """Samples of the shape of digits, without labels."""
    return np.random.default_rng(5).integers(0, 17, (60, 1, 8, 8), dtype=np.uint8)


def test_public_samples_that_python_hands_over(tmp_path: Path) -> None:
    experiment = small(rounds=2, algorithm={"name": "feddf", "max_batches": 4}, public={"name": "given"})
    run = fedcohort.run(experiment, public=other_digits(), runs=tmp_path)
    assert run.meta["public"] == "proxy: public samples, labels discarded"
    assert "# public: handed over in Python: public samples, " in (run.path / "experiment.toml").read_text()
    torch_tensor = torch.from_numpy(other_digits())
    assert fedcohort.run(experiment, public=torch_tensor, runs=tmp_path).path == run.path
    other = fedcohort.run(experiment, public=other_digits()[::-1], runs=tmp_path)
    assert other.path != run.path
    assert other.digest() != run.digest()


def test_public_samples_for_an_algorithm_that_python_hands_over(tmp_path: Path) -> None:
    from fedcohort.algorithms.methods.rhfl import RHFL

    run = fedcohort.run(small(rounds=2), algorithm=RHFL(), public=other_digits(), runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()


def test_public_samples_that_were_not_handed_over_or_do_not_fit(tmp_path: Path) -> None:
    experiment = small(rounds=2, algorithm="feddf", public={"name": "given"})
    with pytest.raises(
        UsageError, match=r"public\.name = 'given': no samples were given; use fedcohort\.run\(…, public"
    ):
        fedcohort.run(experiment, runs=tmp_path)
    with pytest.raises(
        UsageError, match=r"'given': its samples are uint8 \[1, 8, 7\], the clients' are uint8 \[1, 8, 8\]"
    ):
        fedcohort.run(experiment, public=other_digits()[..., :7], runs=tmp_path)
    with pytest.raises(
        UsageError, match=r"public\.name = 'none': 'feddf' needs public samples; .* or 'given' with public="
    ):
        small(algorithm="feddf")


def test_a_run_is_not_repeated_without_the_objects_that_python_handed_over(tmp_path: Path) -> None:
    """The description has defaults in their place, here the digits, which would be played without a word."""
    data, model = blobs(), nn.Linear(4, 3)
    first = fedcohort.run(small(rounds=1, **IID), data=data, model=model, runs=tmp_path / "a")
    file = first.path / "experiment.toml"
    again = fedcohort.load_experiment(file)
    assert list(again.handed_over) == ["data", "model"]
    with pytest.raises(
        UsageError, match=r"^data: 'arrays, [0-9a-f]{12}' was handed over in Python when this was written"
    ):
        fedcohort.run(again, runs=tmp_path / "b")
    with pytest.raises(UsageError, match=r"^model: .* hand it over again: fedcohort.run\(experiment, model=…\)$"):
        fedcohort.compare(again.with_overrides({"rounds": 2}), data=data, runs=tmp_path / "b")
    assert not list((tmp_path / "b").glob("*/run.sqlite"))
    refused(call("run", file, "--runs", tmp_path / "b"), "data: 'arrays, ", "was handed over in Python")
    refused(call("data", "describe", file), "data: 'arrays, ", "was handed over in Python")
    second = fedcohort.run(again, data=data, model=model, runs=tmp_path / "c")
    assert (second.path.name, second.digest()) == (first.path.name, first.digest())
    assert (second.path / "experiment.toml").read_text() == file.read_text()


def test_a_published_description_says_what_was_handed_over(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, **IID), data=blobs(), runs=tmp_path)
    (tmp_path / "mine.toml").write_text(run.experiment.to_toml())
    with pytest.raises(UsageError, match=r"^data: 'arrays, "):
        fedcohort.run(fedcohort.load_experiment(tmp_path / "mine.toml"), runs=tmp_path)
