"""The Ray engine gives the bits of the local engine, whatever its number of hosts and while hosts are lost."""

import importlib
import math
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedcohort
from fedcohort.algorithms import ALGORITHMS, Algorithm, Loss, ModelState, Tensors, Update
from fedcohort.algorithms.local_problem import Problem
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.signals import Signalled
from fedcohort.engines.base import ClientError, Engine
from fedcohort.engines.cluster import host_pool, ray_package
from fedcohort.engines.cluster.host import Host
from fedcohort.engines.cluster.host_pool import HostPool
from fedcohort.engines.cluster.own_modules import OwnModules, load_modules, own_modules
from fedcohort.engines.cluster.ray_engine import ClusterPlan, RayEngine
from fedcohort.engines.cluster.remote_models import RemoteModels
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.federation.position_labels import strata
from fedcohort.models import MODELS, Mlp
from fedcohort.models.sequence_models import Lstm
from fedcohort.record import Run
from fedcohort.selection import STRATEGIES, Cohort, LocalLoss
from fedcohort.testing import check_engine
from fedcohort.testing.base import HEALTHY, ControlVariates, bits, members_of, small_federation
from fedcohort.training.personal_models import PersonalAccuracy
from tests.experiments import small
from tests.matrix.hard_federation import hard
from tests.repetitions import slow_after

pytestmark = pytest.mark.timeout(240)

TRAINING = Training(batch_size=4, epochs=2)


def ray_engine(hosts: HostPool, algorithm: Algorithm, plan: ClusterPlan = "threads", workers: int = 0) -> RayEngine:
    return RayEngine(
        small_federation(), Mlp(hidden=8), TRAINING, algorithm, 3, workers, pool=hosts, plan=plan
    )  # fmt: skip


def local_engine(algorithm: Algorithm, plan: Any = "threads") -> LocalEngine:
    return LocalEngine(small_federation(), Mlp(hidden=8), TRAINING, algorithm, 3, 2, plan=plan)


def kill(hosts: HostPool, position: int = 0) -> None:
    """Kill the process of a host, as a machine that loses power would."""
    import ray

    ready = hosts.ready
    try:
        pid = ray.get(ready[position % len(ready)].actor.pid.remote())
    except ray.exceptions.RayActorError:
        return  # an earlier kill ended this host, which the pool has not noticed yet
    os.kill(pid, signal.SIGKILL)


def aggregated(
    engine: Engine, model: ModelState, algorithm: Algorithm, t: int, updates: Iterable[Update]
) -> ModelState:
    """The model after a round in which all clients are admitted."""
    members = members_of(HEALTHY, t, engine.trainable)
    merged = algorithm.aggregate(model, updates, members)
    engine.commit(HEALTHY)
    return merged


def test_the_engine_fulfills_the_contract(hosts: HostPool) -> None:
    check_engine(partial(RayEngine, pool=hosts))


@pytest.mark.slow
def test_hosts_that_are_killed_in_every_round_do_not_change_a_bit(hosts: HostPool) -> None:
    """One host dies before a round and one in the middle of it; the clients' memories (SCAFFOLD) are unharmed."""
    here, there = ControlVariates(), ControlVariates()
    with closing(local_engine(here)) as local, closing(ray_engine(hosts, there)) as remote:
        one = other = local.initial_model()
        for t in (1, 2, 3):
            one = aggregated(local, one, here, t, local.train(one, t, Cohort(np.array(HEALTHY)), here))
            kill(hosts, t)

            def with_a_loss(updates: Iterator[Update]) -> Iterator[Update]:
                yield next(updates)
                kill(hosts)
                yield from updates

            other = aggregated(
                remote, other, there, t, with_a_loss(remote.train(other, t, Cohort(np.array(HEALTHY)), there))
            )
            assert bits(one) == bits(other)
        assert bits(local.state_dict()) == bits(remote.state_dict())


@pytest.mark.parametrize("plan", ["threads", "stacked"])
def test_sequences_and_personal_models_have_the_bits_of_the_local_engine(plan: Any, hosts: HostPool) -> None:
    draws = np.random.default_rng(0)
    walks = draws.integers(0, 6, (120, 6))
    pairs = [(walks[part, :-1], walks[part, 1:]) for part in (slice(40, None), slice(40))]
    data = fedcohort.from_tokens(pairs[0], pairs[1], vocabulary=6)
    federation = gather(data, partition(Iid(), strata(data.train_labels), 4, 0), validation=0.2, seed=0)
    settings = federation, Lstm(embedding=3, hidden=4, dropout=0.2), TRAINING, FedAvg(), 3, 2
    answers = []
    with pytest.warns(UserWarning, match="samples are sequences of tokens") if plan == "stacked" else nullcontext():
        local, remote = LocalEngine(*settings, plan=plan), RayEngine(*settings, pool=hosts, plan=plan)
    with closing(local), closing(remote):
        model = local.initial_model()
        for engine in (local, remote):
            updates = list(engine.train(model, 1, Cohort(np.arange(4)), FedAvg()))
            asked = [engine.answer(model, 1, question, np.arange(4)) for question in (LocalLoss(), PersonalAccuracy(2))]
            answers.append(([bits(update.state) for update in updates], [numbers.tobytes() for numbers in asked]))
    assert answers[0] == answers[1]


def test_stacks_have_the_bits_of_local_stacks(hosts: HostPool) -> None:
    algorithm = FedAvg()
    with (
        closing(local_engine(algorithm, "stacked")) as local,
        closing(ray_engine(hosts, algorithm, "stacked")) as remote,
    ):
        model = local.initial_model()
        both = [
            [bits(update.state) for update in engine.train(model, 1, Cohort(np.array(HEALTHY)), algorithm)]
            for engine in (local, remote)
        ]
    assert both[0] == both[1]
    assert remote.plan == "stacked"


@pytest.mark.slow
def test_stacks_that_are_lost_with_their_hosts_are_trained_again(hosts: HostPool) -> None:
    """The model in one round has the bits of local stacks, whose means are computed without each model."""
    algorithm, results = FedAvg(), []
    settings = small_federation(), Mlp(hidden=64), Training(batch_size=4), algorithm, 3
    with (
        closing(LocalEngine(*settings, 2, plan="stacked")) as local,
        closing(RayEngine(*settings, pool=hosts, plan="stacked")) as remote,
    ):
        for engine in (local, remote):
            model = engine.initial_model()
            updates = list(engine.train(model, 1, Cohort(np.array(HEALTHY)), algorithm))
            assert any(update.pending for update in updates)
            if engine is remote:
                for position in range(len(hosts.ready)):
                    kill(hosts, position)
            results.append(bits(aggregated(engine, model, algorithm, 1, updates)))
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [FedAvg, ControlVariates])
def test_means_of_blocks_have_the_same_bits_for_any_number_of_hosts(
    algorithm: type[Algorithm], hosts: HostPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ from the exact mean by rounding only, and survive the loss of a host that holds models."""
    monkeypatch.setattr("fedcohort.engines.cluster.ray_engine.BLOCK_CLIENTS", (3, 5))
    results = []
    for workers, loses in ((1, False), (3, False), (2, True)):
        rule = algorithm()
        with closing(ray_engine(hosts, rule, "means", workers)) as remote:
            model = remote.initial_model()
            for t in (1, 2):
                updates = list(remote.train(model, t, Cohort(np.array(HEALTHY)), rule))
                if loses:  # all models are on the hosts now
                    for position in range(len(hosts.ready)):
                        kill(hosts, position)
                model = aggregated(remote, model, rule, t, updates)
            results.append(model)
    assert bits(results[0]) == bits(results[1]) == bits(results[2])
    rule = algorithm()
    with closing(local_engine(rule)) as local:
        model = local.initial_model()
        for t in (1, 2):
            model = aggregated(local, model, rule, t, local.train(model, t, Cohort(np.array(HEALTHY)), rule))
    for name, value in model.items():
        np.testing.assert_allclose(value.numpy(), results[0][name].numpy(), rtol=0, atol=1e-6)


def test_single_models_of_the_plan_means_can_be_read(hosts: HostPool) -> None:
    algorithm, cohort = FedAvg(), Cohort(np.array(HEALTHY))
    with closing(local_engine(algorithm)) as local, closing(ray_engine(hosts, algorithm, "means")) as remote:
        model = local.initial_model()
        expected = [bits(update.state) for update in local.train(model, 1, cohort, algorithm)]
        assert [bits(update.state) for update in remote.train(model, 1, cohort, algorithm)] == expected


def test_means_that_hosts_compute_at_once_are_those_that_are_asked_for(hosts: HostPool) -> None:
    """Hosts send the means that are weighted by samples beside the results, as long as the algorithm asks for such means."""
    cohort = Cohort(np.array(HEALTHY))
    with closing(ray_engine(hosts, FedAvg(), "means")) as remote:
        model = remote.initial_model()

        def groups(algorithm: Algorithm) -> list[RemoteModels]:
            """The groups of a round, after it was aggregated."""
            updates = list(remote.train(model, 1, cohort, algorithm))
            found = {id(update.group[0]): update.group[0] for update in updates if update.group is not None}
            aggregated(remote, model, algorithm, 1, updates)
            return [group for group in found.values() if isinstance(group, RemoteModels)]

        sent = groups(FedAvg())
        assert sent
        for group in sent:
            assert group._mean is not None
            assert group._samples == dict(enumerate(group._samples.values()))
            at_once, later = group.mean(group._samples), group._call("mean", group._samples)
            assert bits(at_once) == bits(later)
        part = dict(list(sent[0]._samples.items())[:1])
        assert bits(sent[0].mean(part)) == bits(sent[0].state_of(0))
        groups(FedAvg(weights="uniform"))  # asks for other means
        assert all(group._mean is None for group in groups(FedAvg()))
        assert all(group._mean is not None for group in groups(FedAvg()))


@parameters
class EndsItsHost(FedAvg):
    """Ends the process that trains client 3."""

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """End the process."""
        if getattr(problem, "client", None) == 3:
            os._exit(1)
        return super().finish(problem)


@pytest.mark.slow
def test_clients_that_end_four_hosts_are_named(hosts: HostPool) -> None:
    algorithm = EndsItsHost()
    with (
        closing(ray_engine(hosts, algorithm)) as remote,
        pytest.raises(
            UsageError, match=r"^clients .*\b3\b.*: 4 hosts were lost while they worked for these clients"
        ) as ended,
    ):
        list(remote.train(remote.initial_model(), 1, Cohort(np.array(HEALTHY)), algorithm))
    assert isinstance(ended.value, ClientError)


@pytest.mark.slow
def test_a_run_without_hosts_ends_after_the_stated_patience(
    hosts: HostPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No node of the cluster has a GPU, so no host can start. A warning says early what the run waits for."""
    monkeypatch.setattr(host_pool, "NOTICE_SECONDS", 0.5)
    empty = HostPool(hosts=1, gpu=True, patience=4.0)
    with pytest.raises(UsageError, match=r"^engine.name = 'ray': no host has answered for 4 s \(engine.patience\)"):
        ray_engine(empty, FedAvg())
    empty.close()
    waits = [line for line in caplog.messages if "no host has answered" in line]
    assert len(waits) == 1
    assert waits[0].endswith("waiting up to 4 s (engine.patience) for a free GPU of the cluster")


@pytest.mark.timeout(90)
def test_a_model_is_read_while_all_other_hosts_are_busy(
    hosts: HostPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host that holds the model is lost in the middle of a round, and none replaces it: the others train its clients again.

    One line says which host was lost, with which work, and that it is done again.
    """
    monkeypatch.setattr("fedcohort.engines.cluster.ray_engine.BLOCK_CLIENTS", (1, 1))
    algorithm, cohort = FedAvg(), Cohort(np.arange(40))
    arguments = small_federation([6] * 40, trouble=False), Mlp(hidden=8), TRAINING, algorithm, 3
    while len(hosts.ready) < hosts.size:
        hosts.refill()
        for member in hosts.greetings.values():
            hosts.greet(member)
    with (
        closing(LocalEngine(*arguments, 2)) as local,
        closing(RayEngine(*arguments, pool=hosts, plan="means")) as remote,
    ):
        model = local.initial_model()
        expected = [bits(update.state) for update in local.train(model, 1, cohort, algorithm)]
        stream = remote.train(model, 1, cohort, algorithm)
        first = next(stream)
        assert first.group is not None
        holder = first.group[0]
        assert isinstance(holder, RemoteModels)
        monkeypatch.setattr(hosts, "size", hosts.size - 1)
        facts = holder._member.facts
        kill(hosts, hosts.ready.index(holder._member))
        assert [bits(first.state), *(bits(update.state) for update in stream)] == expected
    assert facts is not None
    [line] = [line for line in caplog.messages if "was lost" in line]
    where = re.escape(f"host {facts.node[:8]}/{facts.pid} on {platform.node()}")
    assert re.fullmatch(where + r" was lost \(.*died.*\); its work for clients \d+(, \d+)* is done again", line)


@parameters
class Waits(FedAvg):
    """Clients train until there is a file ``go`` or no folder, for at most a minute; then there is a file ``done``."""

    folder: str = ""

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        """Wait."""
        folder = Path(self.folder)
        for _ in range(600):
            if folder.is_dir() and not (folder / "go").exists():
                time.sleep(0.1)
        with suppress(FileNotFoundError):  # pytest removes the folder of a test that has passed
            (folder / "done").touch()
        return super().finish(problem)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_round_does_not_wait_for_its_clients(
    interruption: type[BaseException], hosts: HostPool, tmp_path: Path
) -> None:
    def interrupt() -> bool:
        raise interruption

    algorithm = Waits(folder=str(tmp_path))
    with closing(ray_engine(hosts, algorithm)) as remote:
        remote.meanwhile = interrupt
        with pytest.raises(interruption):
            next(remote.train(remote.initial_model(), 1, Cohort(np.array(HEALTHY)), algorithm))
        assert not (tmp_path / "done").exists()
        (tmp_path / "go").touch()


def test_an_error_of_ray_on_a_host_is_no_error_of_a_client(hosts: HostPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that did not arrive: the host is given up, and another one does the work."""
    import ray

    def lost(reference: object) -> None:
        raise ray.exceptions.ObjectLostError("00", None, "")

    monkeypatch.setattr(ray, "get", lost)
    question, clients = LocalLoss(), [0]
    with pytest.raises(ray.exceptions.ObjectLostError):
        Host().ask("engine", (None, None), 1, question, clients, {})


def test_a_plugin_that_fails_fails_again_with_the_same_error() -> None:
    name, text = "plugin_of_a_test", "raise ImportError('no such package')"
    for _ in range(2):
        with pytest.raises(ImportError, match="no such package"):
            load_modules(OwnModules({name: text.encode()}, {}, [name], {}))


# --- in runs ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs_on_hosts(hosts: HostPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs in this process use the shared hosts, and at least one run does."""
    used = []

    def shared(*_: object, **__: object) -> HostPool:
        used.append(hosts)
        return hosts

    monkeypatch.setattr(host_pool, "shared_pool", shared)
    yield
    assert used


def content(run: Run) -> tuple[Any, ...]:
    """What a run recorded, without wall times and without the settings of the engine."""
    rounds = run.rounds.drop(columns=[name for name in run.rounds if str(name).startswith("wall")])
    tables = rounds, run.clients, run.decisions, run.ledger.drop(columns="seconds")
    return *(table.to_json() for table in tables), (run.path / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("runs_on_hosts")
@pytest.mark.parametrize(
    "selection", ["powd", "oort", {"name": "conformal", "base": "uniform", "alpha_cp": 0.3, "theta": 0.5}]
)
def test_a_run_is_the_same_run_on_a_cluster(selection: Any, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "selection": selection, "rounds": 3, "federation": {"holdout": 0.2}, "algorithm": {"name": "scaffold"},
    }  # fmt: skip
    local = fedcohort.run(small(**values), runs=tmp_path / "local")
    remote = fedcohort.run(small(**values, engine={"name": "ray"}), runs=tmp_path / "ray")
    assert remote.path.name == local.path.name
    assert content(remote) == content(local)


@pytest.mark.usefixtures("runs_on_hosts")
def test_a_run_with_several_threads_per_client_is_the_same_run_on_a_cluster(tmp_path: Path) -> None:
    values: dict[str, Any] = {"rounds": 2, "model": {"name": "mlp", "hidden": 512}, "algorithm": "scaffold"}
    runs = [
        fedcohort.run(small(**values, engine=engine), runs=tmp_path / str(i))
        for i, engine in enumerate([{}, {"threads_per_client": 2}, {"threads_per_client": 2, "name": "ray"}])
    ]
    assert len({run.path.name for run in runs}) == 2
    one, local, remote = map(content, runs)
    assert remote == local != one


@pytest.mark.usefixtures("runs_on_hosts")
@pytest.mark.parametrize("algorithm", ["fedavg", *slow_after(0, ["scaffold", "krum"])])
def test_a_run_with_stacks_is_the_same_run_on_a_cluster(algorithm: str, tmp_path: Path) -> None:
    """FedAvg computes the means of these stacks without computing each model, which rounds differently."""
    values: dict[str, Any] = {
        "rounds": 3, "federation": {"clients": 24, "partition": {"name": "dirichlet_class", "alpha": 0.3, "min_size": 0}},
        "selection": {"name": "uniform", "k": 20}, "algorithm": {"name": algorithm}, "systems": {"dropout": 0.2},
    }  # fmt: skip
    local = fedcohort.run(small(**values, engine={"plan": "stacked"}), runs=tmp_path / "local")
    remote = fedcohort.run(small(**values, engine={"name": "ray", "plan": "stacked"}), runs=tmp_path / "ray")
    assert remote.path.name == local.path.name
    assert content(remote) == content(local)


def test_short_rounds_are_trained_in_fewer_calls_with_the_same_bits(hosts: HostPool) -> None:
    """One large and one small call for each of two hosts, instead of two large ones."""
    cohort = Cohort(np.array(HEALTHY))
    with closing(ray_engine(hosts, FedAvg(), "threads", 2)) as remote:
        model, found = remote.initial_model(), []
        for seconds in (math.inf, 0.1):
            remote._last_round = seconds
            groups = remote._groups(cohort)
            assert np.concatenate(groups).tolist() == list(range(len(cohort)))
            found.append((len(groups), [bits(u.state) for u in remote.train(model, 1, cohort, FedAvg())]))
        assert 0 < remote._last_round < math.inf
    (many, expected), (few, other) = found
    assert few < many
    assert other == expected


@pytest.mark.slow
@pytest.mark.usefixtures("runs_on_hosts")
@pytest.mark.parametrize(
    ("strategy", "algorithm"),
    [(name, "fedavg") for name in STRATEGIES.builtin]
    + [("uniform", name) for name in ALGORITHMS.builtin if name != "fedavg"],
)
def test_every_strategy_and_every_algorithm_plays_the_same_run_on_a_cluster(
    strategy: str, algorithm: str, tmp_path: Path
) -> None:
    experiment = hard(strategy, algorithm, rounds=3)
    local = fedcohort.run(experiment, runs=tmp_path / "local")
    remote = fedcohort.run(experiment.with_overrides({"engine": {"name": "ray"}}), runs=tmp_path / "ray")
    assert remote.path.name == local.path.name
    assert content(remote) == content(local)


@pytest.mark.usefixtures("runs_on_hosts")
def test_means_are_named_in_the_hash_of_a_run_and_hosts_are_not(tmp_path: Path) -> None:
    """The blocks are 20 clients in four parts, for any number of hosts."""
    values: dict[str, Any] = {"rounds": 1, "federation": {"clients": 20}, "selection": {"name": "uniform", "k": 20}}
    one, three = (
        fedcohort.run(
            small(**values, engine={"name": "ray", "plan": "means", "workers": workers}), runs=tmp_path / str(workers)
        )
        for workers in (1, 3)
    )
    exact = fedcohort.run(small(**values, engine={"name": "ray"}), runs=tmp_path)
    assert one.path.name == three.path.name != exact.path.name
    assert content(one) == content(three) != content(exact)
    assert one.ledger["bytes_up"].tolist() == exact.ledger["bytes_up"].tolist()


PLUGIN = """
from fedcohort.algorithms import Algorithm, Loss, parameters
from fedcohort.algorithms.methods.fedavg import FedAvg
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, classes))

@parameters
class Halved(FedAvg):
    corrects = True
    def correct(self, problem, gradients):
        for gradient in gradients.values():
            gradient.mul_(0.5)
"""


@pytest.mark.usefixtures("runs_on_hosts")
@pytest.mark.parametrize("own", [("algorithm", "model"), ("model",), ("algorithm",)])
def test_hosts_load_plugins_from_files(own: tuple[str, ...], tmp_path: Path) -> None:
    """The file need not exist on the hosts: its text is sent, also if nothing but a function in it is used."""
    file = tmp_path / f"own_{'_'.join(own)}.py"
    file.write_text(PLUGIN)
    plugins = {"algorithm": {"name": f"{file}:Halved"}, "model": f"{file}:net"}
    values: dict[str, Any] = {"rounds": 2, **{section: plugins[section] for section in own}}
    local = fedcohort.run(small(**values), runs=tmp_path / "local")
    remote = fedcohort.run(small(**values, engine={"name": "ray"}), runs=tmp_path / "ray")
    assert content(remote) == content(local)


OWN_NETWORK = """
from pathlib import Path

from own_sizes_of_a_test import hidden
from torch import nn

NAME = Path(__file__).name

def net(shape, classes):
    assert NAME == "own_network_of_a_test.py"
    return nn.Sequential(nn.Linear(6, hidden()), nn.Linear(hidden(), classes))
"""
OWN_LOSS = """
from torch.nn import functional
from fedcohort.algorithms import Loss

class Doubled(Loss):
    def samples(self, logits, labels, outputs=None):
        return 2 * functional.cross_entropy(logits, labels, reduction="none")
"""
OWN_RULE = """
from fedcohort.selection import StoppingRule

class Twice(StoppingRule):
    def check(self, progress):
        return progress.epoch == 2, {"epoch_loss": progress.loss}
"""


def test_hosts_need_no_file_of_the_user(tmp_path: Path, hosts: HostPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They get a network with the modules that it imports, a loss and a stopping rule as text, as a cluster of several machines needs.
    Names of files are relative to the working directory, which hosts do not share."""
    (tmp_path / "own_network_of_a_test.py").write_text(OWN_NETWORK)
    (tmp_path / "own_sizes_of_a_test.py").write_text("def hidden():\n    return 5\n")
    (tmp_path / "own_loss_of_a_test.py").write_text(OWN_LOSS)
    (tmp_path / "own_rule_of_a_test.py").write_text(OWN_RULE)
    monkeypatch.chdir(tmp_path)
    model = MODELS.find("own_network_of_a_test.py:net", "model")()
    training = Training(batch_size=8, epochs=4, loss={"name": "own_loss_of_a_test.py:Doubled"})
    cohort = Cohort(np.arange(6), epochs=np.full(6, 4), stop={"rule": "own_rule_of_a_test.py:Twice"})
    arguments = small_federation(trouble=False), model, training, FedAvg(), 3
    with closing(LocalEngine(*arguments, 1)) as local, closing(RayEngine(*arguments, pool=hosts)) as remote:
        expected = list(local.train(local.initial_model(), 1, cohort, FedAvg()))
        usual = remote._results

        def without_files(*settings: Any) -> Iterator[Any]:
            for file in tmp_path.glob("*.py"):
                file.unlink()
            yield from usual(*settings)

        monkeypatch.setattr(remote, "_results", without_files)
        found = list(remote.train(remote.initial_model(), 1, cohort, FedAvg()))
        assert [bits(update.state) for update in found] == [bits(update.state) for update in expected]
        assert [update.report for update in found] == [update.report for update in expected]


def test_modules_of_a_package_of_the_user_are_imported_from_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package_of_a_test"
    (folder / "parts").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "nets.py").write_text("from .sizes import WIDTH\nfrom . import parts\nwidth = parts.doubled(WIDTH)\n")
    (folder / "sizes.py").write_text("WIDTH = 4\n")
    (folder / "parts" / "__init__.py").write_text("from .deep import doubled\n")
    (folder / "parts" / "deep.py").write_text("def doubled(n):\n    return 2 * n\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        sent = own_modules([importlib.import_module("package_of_a_test.nets")], {})
    shutil.rmtree(folder)
    names = {name for name in sys.modules if name.startswith("package_of_a_test")}
    for name in names:
        del sys.modules[name]
    load_modules(sent)
    assert sys.modules["package_of_a_test.nets"].width == 8
    assert names <= set(sys.modules)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("module_with_a_mark_of_a_test", b"\xef\xbb\xbftext = '\xc3\xa9'\n"),
        ("module_in_latin_1_of_a_test", b"# coding: latin-1\ntext = '\xe9'\n"),
    ],
)
def test_modules_in_any_encoding_and_below_the_folder_of_python_reach_the_hosts(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some editors begin files with a byte order mark; Python of Linux distributions is in /usr, and files of users may be as well."""
    file = tmp_path / f"{name}.py"
    file.write_bytes(content)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        sent = own_modules([importlib.import_module(name)], {})
    file.unlink()
    del sys.modules[name]
    load_modules(sent)
    assert sys.modules[name].text == "é"


class Tempered(Loss):
    """Cross-entropy of outputs that are divided by a temperature."""

    def __init__(self, temperature: float = 2.0) -> None:
        self.temperature = temperature

    def samples(self, logits: Tensor, labels: Tensor, outputs: Tensor | None = None) -> Tensor:
        return torch.nn.functional.cross_entropy(logits / self.temperature, labels, reduction="none")


@pytest.mark.usefixtures("runs_on_hosts")
@pytest.mark.parametrize("loss", [Tempered, Tempered(0.5)], ids=["class", "object"])
def test_a_loss_that_was_given_in_python_reaches_the_hosts(loss: Any, tmp_path: Path) -> None:
    local, remote = (
        fedcohort.compare(small(rounds=2, engine={"name": name}), loss=loss, runs=tmp_path / name).rows[0].run
        for name in ("local", "ray")
    )
    assert content(remote) == content(local)


FAILS = """
import sys
from fedcohort.algorithms.methods.fedavg import FedAvg

class Raises(FedAvg):
    def finish(self, problem):
        raise ValueError("many\\nlines")

class Exits(FedAvg):
    def finish(self, problem):
        sys.exit("enough")
"""


@pytest.mark.usefixtures("runs_on_hosts")
@pytest.mark.parametrize("plan", slow_after(1, ["threads", "means"]))
def test_an_error_in_code_of_the_user_on_a_host_is_one_line(plan: str, tmp_path: Path) -> None:
    """As in a run on this machine. The cause has the traceback of the host."""
    file = tmp_path / f"fails_{plan}.py"
    file.write_text(FAILS)
    values = {"rounds": 1, "engine": {"name": "ray", "plan": plan}}
    with pytest.raises(
        UsageError, match=r"^round 1: client \d+: ValueError: many lines \(.*fails_\w+\.py:7\)$"
    ) as raised:
        fedcohort.run(small(algorithm={"name": f"{file}:Raises"}, **values), runs=tmp_path)
    assert isinstance(raised.value, ClientError)
    assert "in finish" in str(raised.value.__cause__)
    with pytest.raises(UsageError, match=r"^round 1: Exits\.finish raised SystemExit: enough \(.*fails_\w+\.py:11\)$"):
        fedcohort.run(small(algorithm={"name": f"{file}:Exits"}, **values), runs=tmp_path)


@pytest.mark.usefixtures("hosts")
def test_ray_prints_about_lost_hosts_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output may be a JSON document."""
    from ray._private import worker

    worker.print_to_stdstream({"lines": ["a worker died"], "pid": "raylet", "is_err": False}, ignore_prefix=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "a worker died" in printed.err


def test_ray_does_not_replace_the_handler_of_sigterm(hosts: HostPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's handler would end a run without a word, and a second signal would wait for the clients."""
    monkeypatch.setattr(hosts._ray, "is_initialized", lambda: False)
    monkeypatch.setattr(hosts._ray, "init", lambda **_: signal.signal(signal.SIGTERM, lambda *_: sys.exit(15)))
    before, own = signal.getsignal(signal.SIGTERM), hosts._own_cluster
    hosts._connect(2)
    hosts._own_cluster = own
    assert signal.getsignal(signal.SIGTERM) == before


def test_settings_that_need_a_cluster_are_refused_without_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^engine.plan = 'means': only with engine.name = 'ray'"):
        fedcohort.run(small(engine={"plan": "means"}), runs=tmp_path)
    with pytest.raises(UsageError, match=r"^jobs = 2: a cluster plays one run after another"):
        fedcohort.compare(small(seeds=2, engine={"name": "ray"}), runs=tmp_path, jobs=2)


@pytest.mark.parametrize(
    ("address", "reason"), slow_after(1, [("nowhere", "the form is HOST:PORT"), ("127.0.0.1:1", "refused")])
)
def test_an_address_without_a_cluster_is_one_line(address: str, reason: str) -> None:
    pytest.importorskip("ray")
    source = f"from fedcohort.engines.cluster.host_pool import HostPool; HostPool({address!r})"
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=100, env=environment)
    assert f"UsageError: engine.address = {address!r}: no Ray cluster answers there" in done.stderr.splitlines()[-1]
    assert reason in done.stderr
    assert "if ray start said that token authentication is enabled, set RAY_AUTH_MODE=token" in done.stderr


def test_the_address_that_an_ended_cluster_has_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray keeps the address of the last cluster of the machine, and would try to reach it for many minutes."""
    pytest.importorskip("ray")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(OSError, match="refused"):
            host_pool._reach("auto")


def test_a_signal_while_ray_starts_is_not_an_error_of_ray() -> None:
    """Ray's own handler of SIGTERM raises SystemExit with the number of the signal."""
    with pytest.raises(Signalled) as stopped, host_pool._sigterm_unchanged():
        sys.exit(signal.SIGTERM)
    assert stopped.value.signum == signal.SIGTERM


def test_another_server_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would try for minutes to speak with it. A server that says nothing is given up after some seconds."""
    monkeypatch.setattr(host_pool, "REACH_SECONDS", 0.2)
    accepted: list[socket.socket] = []

    def answer(server: socket.socket, said: bytes) -> None:
        accepted.append(server.accept()[0])
        accepted[-1].sendall(said)

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        for said, reason in ((b"", "timed out"), (b"HTTP/1.0 400 Bad request", "another program answers")):
            thread = threading.Thread(target=answer, args=(server, said))
            thread.start()
            with pytest.raises((OSError, ValueError), match=reason):
                host_pool._reach(f"127.0.0.1:{server.getsockname()[1]}")
            thread.join()
    for connection in accepted:
        connection.close()


def test_without_ray_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'fedcohort\[ray\]'"):
        ray_package.ray_module()


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "cores", "size"), [(0, 2, 2), (0, 5, 1), (3, 2, 3)])
def test_hosts_may_have_several_cores(hosts: int, cores: int, size: int) -> None:
    """In a process of its own, with a private cluster on a machine of five cores."""
    source = "import os, sys; os.cpu_count = lambda: 5; from fedcohort.engines.cluster.host_pool import HostPool"
    source += (
        f"; pool = HostPool('', {hosts}, {cores}); pool.wait_until_ready(); print('size', pool.size); pool.close()"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert f"size {size}" in ended.stdout.splitlines()


def test_a_private_cluster_refuses_hosts_that_it_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    memory = {"memory": 10.0 * host_pool.HOST_BYTES}
    host_pool._check_room(memory, 10, gpu=False)
    host_pool._check_room({"memory": 1.0}, 2, gpu=False)  # one for each core is never refused
    host_pool._check_room(memory | {"GPU": 1.0}, 1, gpu=True)
    with pytest.raises(
        UsageError, match=r"^engine\.workers = 11: this machine has memory for about 10 hosts.*lower it"
    ):
        host_pool._check_room(memory, 11, gpu=False)
    with pytest.raises(UsageError, match=r"^engine\.device = 'cuda': Ray sees no GPU on this machine; use 'cpu'"):
        host_pool._check_room(memory, 1, gpu=True)
