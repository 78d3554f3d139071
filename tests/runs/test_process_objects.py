"""Objects from Python in the processes of ``jobs``: what is sent, what cannot be, and the same results as in one process."""

import ast
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.user_code import python_plugins
from fedcohort.experiment.given_objects import Given
from fedcohort.runs import parallel_runs, process_objects
from fedcohort.runs.process_objects import packed, unpacked
from fedcohort.selection import Cohort, Round, Selector
from tests.experiments import IID, blobs, small
from tests.runs.test_parallel_runs import Here


class Lowest(Selector):
    """The available clients with the lowest ids."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


@pytest.mark.parametrize("jobs", [0, True, 1.5, "2"])
def test_jobs_are_a_whole_number(jobs: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^jobs = .*: should be a whole number of at least 1$"):
        fedcohort.compare(small(), runs=tmp_path, jobs=jobs)
    assert not list(tmp_path.iterdir())


def test_objects_arrive_with_their_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the other process cannot read the source, as of a notebook; the identity is found out once."""
    module, data = nn.Linear(4, 3), blobs()
    experiment = small(selection=Lowest, training={"loss": "ce"}, **IID)
    givens = [
        Given(data=data, model=module, selector=Lowest()),
        Given(data=data),
        Given(model=lambda s, c: nn.Linear(s[0], c)),
    ]
    keys = [given.key() for given in givens]
    parcel = packed(givens, [experiment], 2)
    assert len(parcel.objects) == 4  # the data are sent once
    monkeypatch.setattr(python_plugins, "_kept", {})
    monkeypatch.setattr("fedcohort.experiment.given_objects.identity", None)
    arrived: list[Any] = unpacked(parcel)
    assert [given.key() for given in arrived] == keys
    assert torch.equal(arrived[0].model.weight, module.weight)
    assert arrived[0].data.train_features.tolist() == data.train_features.tolist()
    assert arrived[0].data is arrived[1].data
    assert type(experiment.selection.build()).__name__ == "Lowest"


def with_lock() -> Any:
    lock = threading.Lock()
    return lambda shape, classes: nn.Linear(shape[0], classes + 0 * id(lock))


def test_what_cannot_be_sent_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"^jobs = 2: model = <lambda> cannot be sent to another process \(.*lock.*\); use jobs = 1, or name it",
    ) as error:
        fedcohort.compare(small(seeds=2), model=with_lock(), runs=tmp_path, jobs=2)
    assert "\n" not in str(error.value)
    variants = [{"label": "locked", "model": with_lock()}]
    with pytest.raises(UsageError, match=r"^jobs = 2: lambda cannot be sent to another process"):
        fedcohort.compare(small(variants=variants), runs=tmp_path, jobs=2)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_there_says_why_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A class of a module that only this process has."""
    module = types.ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", module)
    Mine = type("Mine", (Lowest,), {"__module__": "only_here"})
    module.Mine = Mine  # type: ignore[attr-defined]
    parcel = packed([Given(selector=Mine())], [], 2)
    monkeypatch.delitem(sys.modules, "only_here")
    with pytest.raises(
        UsageError, match=r"^jobs = 2: selector = Mine was sent to another process, but cannot be read there \(Module"
    ):
        unpacked(parcel)


def test_objects_reach_the_runs_of_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_runs, "ProcessPoolExecutor", Here)
    threads = torch.get_num_threads()
    experiment = small(rounds=1, **IID)
    strategies: dict[str, Any] = {"low": Lowest(), "class": Lowest}
    compared = fedcohort.compare(experiment, data=blobs(), selector=strategies, runs=tmp_path, jobs=2)
    torch.set_num_threads(threads)
    assert compared.table["selection"].tolist() == ["uniform", "Lowest", "Lowest"]
    assert compared.rows[1].runs[0].meta["given"] == "data, selector"


def test_only_one_file_sends_objects_and_it_opens_no_file() -> None:
    """The rule for cloudpickle: between processes of this machine, never in a file."""
    tree = ast.parse(Path(process_objects.__file__).read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {"cloudpickle.dumps", "cloudpickle.loads"} <= called
    assert not {
        name for name in called if name.rpartition(".")[2] in ("open", "write", "write_bytes", "dump", "Path", "save")
    }


SCRIPT = """
import sys
import numpy as np
import torch
import fedcohort
from fedcohort.algorithms.losses import Loss
from fedcohort.core.parameters import parameters
from fedcohort.selection import Cohort, Selector

print("begun")
STEP = 2

class Every(Selector):
    def select(self, round):
        return Cohort(np.sort(np.roll(round.available, STEP * round.t)[: round.k]))

@parameters
class Halved(Loss):
    factor: float = 0.5
    def samples(self, logits, labels, outputs=None):
        return self.factor * torch.nn.functional.cross_entropy(logits, labels, reduction="none")

class Half:
    min_size, evens_out = 0, None
    def assign(self, labels, clients, rng, writers=None):
        return np.arange(len(labels)) % clients

rng = np.random.default_rng(0)
labels = np.arange(240) % 3
features = rng.normal(size=(240, 4)).astype("float32") + 3 * np.eye(3, 4, dtype="float32")[labels]
data = fedcohort.from_arrays((features[60:], labels[60:]), (features[:60], labels[:60]))
width = 5

def build(shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], width), torch.nn.Linear(width, classes))

experiment = fedcohort.Experiment(
    name="script", rounds=2, seeds=2, federation={"clients": 6}, selection={"name": Every, "k": 2},
    variants=[{"label": "halved", "training": {"loss": Halved(factor=0.25)}}],
)
for folder, jobs in (("two", 2), ("one", 1)):
    compared = fedcohort.compare(
        experiment, data=data, model=build, partition=Half, runs=folder, jobs=jobs, progress=False
    )
    print(compared.table[["label", "accuracy"]].to_dict("records"))
    print(sorted(run.path.name for row in compared.rows for run in row.runs.values()))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_sends_its_classes(tmp_path: Path) -> None:
    """Classes, functions and arrays of ``__main__``; new processes do not run the script again, and results do not change."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(fedcohort.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    begun, *two_and_one = done.stdout.splitlines()
    assert begun == "begun"
    assert two_and_one[:2] == two_and_one[2:]
    assert len(json.loads(two_and_one[1].replace("'", '"'))) == 4
    assert not [file for file in tmp_path.rglob("*") if file.suffix in (".pkl", ".pickle")]
