"""Running from Python: own data, own models, own strategies; the record as DataFrames."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.core.errors import UsageError
from fedcohort.engines.base import ClientError
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.selection.ucb import UCB
from fedcohort.study.comparison import read
from tests.experiments import small
from tests.resume.test_resume import rename_data

IID = {"federation": {"clients": 4, "partition": "iid"}}


def blobs(samples: int = 240, classes: int = 3) -> fedcohort.Dataset:
    """Three separable Gaussian blobs in four dimensions."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % classes
    features = rng.normal(size=(samples, 4)).astype(np.float32) + 3 * np.eye(classes, 4, dtype=np.float32)[labels]
    return fedcohort.from_arrays((features[60:], labels[60:]), (features[:60], labels[:60]))


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


def test_double_precision(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, training={"precision": "float64"}), runs=tmp_path)
    from safetensors.torch import load_file

    assert {value.dtype for value in load_file(run.path / "model.safetensors").values()} == {torch.float64}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_every_optimiser_learns(optimizer: str, tmp_path: Path) -> None:
    lr = 0.05 if optimizer == "sgd" else 0.005
    run = fedcohort.run(
        small(rounds=8, selection="all", **IID, training={"optimizer": optimizer, "lr": lr}), runs=tmp_path
    )
    assert run.rounds["test_accuracy"].iloc[-1] > 0.75


def test_batch_norm_buffers_are_averaged_and_counters_kept(tmp_path: Path) -> None:
    def factory(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, num_classes))

    from safetensors.torch import load_file

    run = fedcohort.run(small(rounds=3), model=factory, runs=tmp_path)
    state = load_file(run.path / "model.safetensors")  # clients with a last batch of one left it out
    assert state["1.num_batches_tracked"].dtype == torch.int64
    assert state["1.running_mean"].abs().sum() > 0


class Failing(nn.Module):
    """Refuses batches that hold class 3."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        if self.training:
            raise ZeroDivisionError("no such thing")
        return self.layer(x.flatten(1))


def test_an_error_in_a_clients_code_names_the_client_and_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"^client \d+: ZeroDivisionError: no such thing$") as error:
        fedcohort.run(small(), model=lambda: Failing(), runs=tmp_path)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_strategy_that_breaks_its_contract_is_told_so(tmp_path: Path) -> None:
    class Twice(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(np.array([1, 1, 2]))

    with pytest.raises(UsageError, match=r"Twice\.select returned a client twice in round 1"):
        fedcohort.run(small(), selector=Twice(), runs=tmp_path)


def test_weights_that_the_strategy_cannot_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"algorithm\.weights = 'unbiased': UCB gives no inclusion"):
        fedcohort.run(small(selection="ucb", algorithm={"weights": "unbiased"}), runs=tmp_path)
    assert fedcohort.run(
        small(algorithm=FedAvg(weights="unbiased").card and {"weights": "unbiased"}), runs=tmp_path
    ).finished


def test_the_record_as_dataframes(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=4, selection={"name": "ucb", "initial_rounds": 1}), runs=tmp_path)
    assert list(run.rounds.index) == [1, 2, 3, 4]
    assert (run.rounds["selected"] == 3).all()
    assert run.rounds["simulated_time"].is_monotonic_increasing
    assert run.clients.groupby("round").size().tolist() == [3, 3, 3, 3]
    assert run.clients.groupby("round")["weight"].sum().tolist() == pytest.approx([1.0] * 4)
    decisions = run.decisions
    assert decisions.groupby("round").size().tolist() == [12] * 4
    assert decisions.groupby("round")["selected"].sum().tolist() == [3] * 4
    assert np.allclose(decisions["score"], decisions["mean_reward"] + decisions["bonus"])
    assert set(run.ledger["kind"]) == {"training"}
    assert isinstance(run.wall, pd.DataFrame)
    chosen = run.clients.groupby("round")["client"].apply(set)
    said = decisions[decisions["selected"]].groupby("round")["client"].apply(set)
    assert chosen.equals(said)


def test_the_run_keeps_its_description(tmp_path: Path) -> None:
    experiment = small(selection={"name": "powd", "d": 5})
    run = fedcohort.run(experiment, runs=tmp_path)
    assert run.experiment == experiment.single(0)
    assert {"fedcohort", "python", "torch", "numpy", "label", "key", "data"} <= set(run.meta)


def test_test_set_every_so_many_rounds_and_after_the_last(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=5, measures={"evaluate_every": 2}), runs=tmp_path)
    assert run.rounds["test_accuracy"].notna().tolist() == [False, True, False, True, True]
    assert run.rounds["validation_accuracy"].notna().all()


def test_nothing_is_pickled(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=2, selection="ucb"), runs=tmp_path)
    names = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())
    kinds = {"experiment.toml", "run.sqlite", "model.safetensors", "run.lock", "checkpoint/round-000002.safetensors"}
    assert set(names) - {"run.sqlite-wal", "run.sqlite-shm"} <= kinds


STRATEGY = """
from fedcohort.selection import Cohort, Selector, parameters

@parameters
class Mine(Selector):
    '''A slice of the available clients.'''
    def select(self, round):
        return Cohort(round.available[{start} : {start} + round.k])
"""


def test_an_edited_strategy_file_is_another_run(tmp_path: Path) -> None:
    """In one process too: the file is read again when it has changed."""
    file = tmp_path / "mine.py"
    picks = []
    for start in (0, 4):
        file.write_text(STRATEGY.format(start=start))
        run = fedcohort.run(small(rounds=1, selection=f"{file}:Mine"), runs=tmp_path / "runs")
        picks.append(run.clients["client"].tolist())
    assert picks == [[0, 1, 2], [4, 5, 6]]


def test_a_strategy_file_is_found_from_where_the_experiment_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(STRATEGY.format(start=2))
    (tmp_path / "here" / "e.toml").write_text('rounds = 1\nselection = "mine.py:Mine"\n')
    monkeypatch.chdir(tmp_path)
    run = fedcohort.run(fedcohort.load_experiment("here/e.toml"), runs=tmp_path / "runs")
    monkeypatch.chdir("/")
    name = fedcohort.open_run(run.path).experiment.selection.name
    assert name.startswith(str(run.path / "plug-ins" / "mine-"))  # a copy travels with the run


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


def test_a_finished_run_is_not_opened_for_other_data(tmp_path: Path) -> None:
    import sqlite3

    run = fedcohort.run(small(rounds=1), runs=tmp_path)
    with sqlite3.connect(run.path / "run.sqlite") as db:
        rename_data(db)
    with pytest.raises(UsageError, match="was begun on other data"):
        fedcohort.run(small(rounds=1), runs=tmp_path)


def test_a_cohort_of_the_wrong_size_is_told_so(tmp_path: Path) -> None:
    class Greedy(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(round.available)

    with pytest.raises(UsageError, match=r"Greedy\.select returned 12 clients instead of 3 in round 1"):
        fedcohort.run(small(), selector=Greedy(), runs=tmp_path)


def test_own_files_travel_with_the_run(tmp_path: Path) -> None:
    """The file may change or go; the run can still be read, and tables call the strategy by its class."""
    own = tmp_path / "own.py"
    own.write_text(_OWN)
    run = fedcohort.run(small(rounds=1, selection={"name": f"{own}:Last"}), runs=tmp_path / "runs")
    own.unlink()
    again = fedcohort.open_run(run.path)
    assert again.experiment.selection.name.endswith(":Last")
    assert "-last-seed0-" in run.path.name
    assert read([run.path]).table["selection"].tolist() == ["Last"]
    [copied] = (run.path / "plug-ins").iterdir()
    assert copied.read_text() == _OWN


_OWN = '''
from typing import ClassVar

from fedcohort.selection import Card, Cohort, Round, Selector, parameters


@parameters
class Last(Selector):
    """The clients with the highest ids."""

    card: ClassVar[Card] = Card(source="a test", status="ours")

    def select(self, round: Round) -> Cohort:
        """The last ones."""
        return Cohort(round.available[-round.k :])
'''


def test_a_data_folder_is_found_from_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.experiment import load

    (tmp_path / "here" / "pictures").mkdir(parents=True)
    (tmp_path / "here" / "digits").mkdir()
    file = tmp_path / "here" / "mine.toml"
    file.write_text('data.name = "pictures"\n[[variants]]\nlabel = "b"\ndata.name = "digits"\n')
    monkeypatch.chdir(tmp_path)
    rows = dict(load(file).rows())
    assert rows["uniform"].data.name == str(tmp_path / "here" / "pictures")
    assert rows["b"].data.name == "digits"


def test_what_no_seed_measured_is_still_a_number(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=3, measures={"evaluate_every": 3}, data={"validation": 0.0}), runs=tmp_path)
    assert run.rounds["validation_accuracy"].dtype == np.float64
    assert run.rounds["test_accuracy"].notna().tolist() == [False, False, True]
    assert not list(run.path.glob("run.sqlite-*"))  # one file, which can be read in a directory that is not writable


def test_early_stop_chooses_among_tested_rounds(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=6, measures={"evaluate_every": 3}), runs=tmp_path)
    found = run.summary()
    tested = run.rounds["test_accuracy"].dropna()
    assert found.early_stop_round in tested.index
    assert found.early_stop_accuracy == tested[found.early_stop_round]


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
    from fedcohort.algorithms.rhfl import RHFL

    run = fedcohort.run(small(rounds=2), algorithm=RHFL(), public=other_digits(), runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()


def test_public_samples_that_were_not_handed_over_or_do_not_fit(tmp_path: Path) -> None:
    experiment = small(rounds=2, algorithm="feddf", public={"name": "given"})
    with pytest.raises(
        UsageError, match=r"public\.name = 'given': nothing was handed over; use fedcohort\.run\(…, public"
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


@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_a_round_is_committed_while_the_next_one_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    from fedcohort.training.local import Trainer
    from fedcohort.training.stack import Stack

    committed = [0]
    seen: dict[int, list[int]] = {}
    news = threading.Condition()

    def slow(kind: Any) -> None:
        train = kind.train

        def after_a_while(self: Any, model: Any, t: int, *args: Any, **values: Any) -> Any:
            with news:
                news.wait_for(lambda: committed[-1] >= t - 1, timeout=20)
                seen.setdefault(t, []).append(committed[-1])
            return train(self, model, t, *args, **values)

        monkeypatch.setattr(kind, "train", after_a_while)

    slow(Trainer)
    slow(Stack)
    experiment = small(rounds=3).with_overrides({"engine": {"plan": plan, "workers": 2}})

    def progress(cell: Any, row: Any) -> None:
        with news:
            committed.append(row.round)
            news.notify_all()

    fedcohort.run(experiment, runs=tmp_path, progress=progress)
    assert committed == [0, 1, 2, 3]
    assert all(max(seen[t]) == t - 1 for t in (1, 2, 3))
