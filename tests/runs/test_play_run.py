"""Playing a run: what it learns, how errors of clients and strategies end it, and what is kept."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.engines.base import ClientError
from fedcohort.selection import Cohort, Round, Selector
from fedcohort.study.compare_existing_runs import read
from tests.experiments import IID, small


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
    """Refuses the batches of clients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> Any:
        if self.training and len(x) > 2:
            raise ZeroDivisionError("no such thing")
        return self.layer(x.flatten(1))


def test_an_error_in_a_clients_code_names_the_client_and_keeps_its_traceback(tmp_path: Path) -> None:
    place = r"\(\S*test_play_run\.py:\d+\)"
    with pytest.raises(ClientError, match=rf"^round 1: client \d+: ZeroDivisionError: no such thing {place}$") as error:
        fedcohort.run(small(), model=lambda: Failing(), runs=tmp_path)
    assert isinstance(error.value, UsageError)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_strategy_that_breaks_its_contract_is_told_so(tmp_path: Path) -> None:
    class Twice(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(np.array([1, 1, 2]))

    with pytest.raises(UsageError, match=r"Twice\.select returned a client twice in round 1"):
        fedcohort.run(small(), selector=Twice(), runs=tmp_path)


PLAYED_IN_A_FORK = """
import os, signal, sys
import torch
from tests.experiments import small
import fedcohort

torch.set_num_threads(2)
torch.ones(2**20).exp()  # starts the threads of OpenMP, which a fork does not have
child = os.fork()
if not child:
    signal.alarm(90)  # ends it
    fedcohort.run(small(rounds=1), runs=sys.argv[1])
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
def test_a_forked_process_can_play(tmp_path: Path) -> None:
    """It would wait for ever for the threads that torch had in the process that was forked."""
    subprocess.run([sys.executable, "-c", PLAYED_IN_A_FORK, str(tmp_path)], check=True, timeout=100)


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


def test_a_cohort_of_the_wrong_size_is_told_so(tmp_path: Path) -> None:
    class Greedy(Selector):
        def select(self, round: Round) -> Cohort:
            return Cohort(round.available)

    with pytest.raises(UsageError, match=r"Greedy\.select returned 12 clients instead of 3 in round 1; use round\.k"):
        fedcohort.run(small(), selector=Greedy(), runs=tmp_path)


def test_own_files_travel_with_the_run(tmp_path: Path) -> None:
    """The file may change or go; the run can still be read, and tables call the strategy by its class."""
    own = tmp_path / "own.py"
    own.write_text(_OWN)
    run = fedcohort.run(small(rounds=1, selection={"name": f"{own}:Last"}), runs=tmp_path / "runs")
    own.unlink()
    again = fedcohort.open_run(run.path)
    assert again.described.selection.name.endswith(":Last")
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


@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_a_round_is_committed_while_the_next_one_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str
) -> None:
    from fedcohort.training.client_series import ClientSeries
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

    slow(ClientSeries)
    slow(Stack)
    experiment = small(rounds=3).with_overrides({"engine": {"plan": plan, "workers": 2}})

    def progress(cell: Any, row: Any) -> None:
        with news:
            committed.append(row.round)
            news.notify_all()

    fedcohort.run(experiment, runs=tmp_path, progress=progress)
    assert committed == [0, 1, 2, 3]
    assert all(max(seen[t]) == t - 1 for t in (1, 2, 3))
