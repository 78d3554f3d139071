"""A run over Flower's Grid is the local run, with the same record; it goes on after its processes died, and clients come and go."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from safetensors.torch import load_file

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.federation import Federation, Samples
from fedcohort.flower import play_deployment
from fedcohort.flower.sites.envelope import reply_message
from fedcohort.flower.sites.memory_versions import MemoryVersions
from fedcohort.flower.sites.owner_policy import Allowed
from fedcohort.flower.sites.protocol import HELLO
from fedcohort.flower.sites.site import Site
from fedcohort.flower.sites.site_file import installed_plugins
from fedcohort.runs.play_run import Progress
from fedcohort.runs.prepare_run import federate
from fedcohort.selection import STRATEGIES
from fedcohort.testing import LoopGrid
from tests.experiments import small
from tests.flower.deployed.sites import EVERYTHING, grid_of, is_training, sites_of, words_of

ROUNDS, SITES = 5, 3
CASES: dict[str, dict[str, Any]] = {
    "powd": {"selection": {"name": "powd", "k": 3, "d": 6}},
    "oort": {"selection": {"name": "oort", "k": 3}},
    "ucb": {"selection": {"name": "ucb", "k": 3, "initial_rounds": 2}},
    "flash": {"selection": {"name": "flash", "k": 3}, "federation": {"clients": 12, "holdout": 0.2}},
    "scaffold": {"algorithm": {"name": "scaffold"}},
    "haccs": {"selection": {"name": "haccs", "k": 3}},
    "conformal": {
        "selection": {"name": "conformal", "k": 3, "max_epochs": 3},
        "federation": {"clients": 12, "holdout": 0.2},
    },
}
OPEN = dataclasses.replace(EVERYTHING, histogram=True)


def clients_of(experiment: Experiment) -> Federation:
    return federate(experiment, Given()).federation


def grid(
    experiment: Experiment, *, allowed: Allowed = OPEN, memories: MemoryVersions | None = None, **settings: Any
) -> LoopGrid:
    """The clients of an experiment at three sites; the nodes are numbered in another order than the clients."""
    sites = sites_of(clients_of(experiment), SITES, installed_plugins, allowed=allowed, memories=memories)
    return grid_of(sites, nodes=[30, 10, 20], order=lambda replies: replies[::-1], **settings)


def played(
    where: LoopGrid, experiment: Experiment, runs: Path, time: Any = "simulated", **settings: Any
) -> fedcohort.Run:
    run = play_deployment(where, experiment, runs=runs, time=time, patience=5.0, clock=where.clock, **settings)
    return fedcohort.open_run(run.path)


def model_of(run: fedcohort.Run) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in sorted(load_file(run.path / "model.safetensors").items())}


def picks(run: fedcohort.Run) -> list[list[int]]:
    return [clients.tolist() for clients in run.selections]


@pytest.mark.parametrize("name", CASES)
def test_the_run_is_the_local_run(name: str, tmp_path: Path) -> None:
    experiment = small(rounds=ROUNDS, **CASES[name])
    local = fedcohort.run(experiment, runs=tmp_path / "local")
    there = played(grid(experiment), experiment, tmp_path / "there")
    assert picks(there) == picks(local)
    assert len({tuple(clients) for clients in picks(local)}) > 1 or name == "conformal"  # which selects all clients
    wall = {"wall", *(column for column in local.rounds.columns if "seconds" in column)}
    for column in set(local.rounds.columns) - wall:
        if local.rounds[column].dtype.kind in "if":
            np.testing.assert_array_equal(there.rounds[column], local.rounds[column], column)
    assert there.decisions.equals(local.decisions)
    assert there.clients.equals(local.clients)
    assert there.ledger.drop(columns="seconds").equals(local.ledger.drop(columns="seconds"))
    assert model_of(there) == model_of(local)
    assert there.path.name != local.path.name


@pytest.mark.parametrize("time", ["wall", "simulated"])
def test_the_description_says_which_settings_sites_with_their_own_data_do_not_use(time: str, tmp_path: Path) -> None:
    experiment = small(rounds=1)
    head = (played(grid(experiment), experiment, tmp_path, time=time).path / "experiment.toml").read_text()
    assert head.startswith(f"# deployed: the clients are those of a Flower federation, with {time} time\n")
    assert ("# sites with their own data do not use federation.partition, holdout and label_noise" in head) == (
        time == "wall"
    )


def test_clients_that_refuse_a_question_are_not_billed_for_answers(tmp_path: Path) -> None:
    """Every client of power-of-choice is asked; those of one of the three sites do not answer."""
    experiment = small(rounds=1, selection={"name": "powd", "k": 3, "d": 12})
    sites = sites_of(clients_of(experiment), SITES, installed_plugins, allowed=OPEN)
    sites[1].allowed = dataclasses.replace(OPEN, questions=frozenset({"LocalAccuracy"}))
    run = played(grid_of(sites), experiment, tmp_path)
    (asked,) = run.ledger.query("kind == 'LocalLoss'").to_dict("records")
    answered = 12 - len(sites[1].clients)
    assert answered == 8
    assert (asked["messages"], asked["bytes_up"], asked["passes"]) == (12 + answered, 4 * answered, answered)
    assert asked["bytes_down"] == 12 * int(run.meta["model bytes"]), "the model went to all that were asked"


def test_sites_with_several_threads_per_client_have_the_bits_of_a_simulation_with_as_many(tmp_path: Path) -> None:
    experiment = small(rounds=2, model={"name": "mlp", "hidden": 512})
    two, one = (
        model_of(fedcohort.run(experiment.with_engine(threads_per_client=number), runs=tmp_path / "local"))
        for number in (2, 1)
    )
    sites = sites_of(clients_of(experiment), SITES, installed_plugins, allowed=OPEN, threads_per_client=2)
    assert model_of(played(grid_of(sites), experiment, tmp_path / "there")) == two != one


def test_with_wall_time_the_record_has_the_seconds_that_clients_took(tmp_path: Path) -> None:
    experiment = small(rounds=3, **CASES["powd"])
    where = grid(experiment, seconds=lambda position, message: 1.0 + position)
    run = played(where, experiment, tmp_path, "wall")
    local = fedcohort.run(experiment, runs=tmp_path / "local")
    assert picks(run) == picks(local)  # no time enters the decisions of power-of-choice
    assert model_of(run) == model_of(local)
    assert run.clock == "wall"
    trained = run.clients.set_index(["round", "client"])["duration"]
    assert {(client % SITES) + 1.0 for _, client in trained.index} == set(trained.round(9))
    # a question to all sites takes 3 virtual seconds, and a training as long as its slowest site
    slowest = [max(client % SITES for client in clients) + 1.0 for clients in picks(run)]
    times = np.diff(run.rounds["simulated_time"], prepend=0.0)
    assert all(at_least <= time <= 3.0 + at_least for time, at_least in zip(times, slowest, strict=True))


class ServerDied(BaseException):
    pass


@pytest.mark.parametrize("name", ["scaffold", "powd"])
def test_a_run_goes_on_after_the_server_died(name: str, tmp_path: Path) -> None:
    experiment = small(rounds=4, **CASES[name])
    whole = played(grid(experiment), experiment, tmp_path / "whole")
    memories = MemoryVersions()
    trainings = []

    def dying(position: int, message: Message, reply: Message) -> Message:
        if is_training(message):
            trainings.append(position)
            if len(trainings) == 8:
                raise ServerDied
        return reply

    with pytest.raises(ServerDied):
        played(grid(experiment, memories=memories, tamper=dying), experiment, tmp_path / "killed")
    [path] = (tmp_path / "killed").iterdir()
    assert 0 < fedcohort.open_run(path).last_round < 4
    again = grid(experiment, memories=memories)
    again.nodes[:] = [7, 8, 9]  # the SuperLink died as well: nodes have new ids
    for context, node in zip(again._contexts, again.nodes, strict=True):
        context.node_id = node
    resumed = played(again, experiment, tmp_path / "killed")
    assert resumed.path == path
    assert model_of(resumed) == model_of(whole)
    assert picks(resumed) == picks(whole)


@pytest.mark.parametrize("authenticated", [False, True])
def test_a_run_whose_sites_have_no_keys_goes_on_when_all_of_them_were_started_again(
    authenticated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower gives a node without a key a new random one at every start, which is no forged identity."""
    experiment = small(rounds=2, selection={"name": "uniform", "k": 12})
    where, start = grid(experiment), b"first"
    monkeypatch.setattr(
        where,
        "get_nodes",
        lambda: [SimpleNamespace(node_id=node, public_key=start + b" %d" % node) for node in where.get_node_ids()],
    )

    def dying(_: Any, row: Any) -> None:
        raise ServerDied

    settings: dict[str, Any] = {"runs": tmp_path, "time": "simulated", "patience": 0.3, "clock": where.clock}
    with pytest.raises(ServerDied):
        play_deployment(where, experiment, progress=dying, authenticated=authenticated, **settings)
    start = b"second"
    if authenticated:
        message = "forged identity: client '.*' belongs to a node with another key .*set authenticated = false"
        with pytest.raises(UsageError, match=message):
            play_deployment(where, experiment, authenticated=True, **settings)
    run = play_deployment(where, experiment, authenticated=False, **settings)
    assert fedcohort.open_run(run.path).rounds["available"].tolist() == [12, 12]


def test_a_run_that_is_resumed_goes_on_with_the_clients_that_come(tmp_path: Path) -> None:
    experiment = small(rounds=3, selection={"name": "uniform", "k": 12})
    where = grid(experiment)

    def dying(_: Any, row: Any) -> None:
        raise ServerDied

    with pytest.raises(ServerDied):
        played(where, experiment, tmp_path, progress=dying)
    where.offline.add(2)
    resumed = play_deployment(where, experiment, runs=tmp_path, time="simulated", patience=0.3, clock=where.clock)
    assert fedcohort.open_run(resumed.path).rounds["available"].tolist()[-1] == 8
    assert len(fedcohort.open_run(resumed.path).meta["clients"].split(", ")) == 12


def test_clients_leave_and_come_back_between_rounds(tmp_path: Path) -> None:
    experiment = small(rounds=4, selection={"name": "uniform", "k": 12})
    where = grid(experiment)

    def leaving(_: Any, row: Any) -> None:
        where.offline = {1: {1}, 2: {1}, 3: set()}.get(row.round, set())

    run = played(where, experiment, tmp_path, progress=leaving)
    assert run.rounds["available"].tolist() in ([12, 8, 8, 12], [12, 12, 8, 8])  # a round is reported in the next one
    assert (run.rounds["trained"] <= run.rounds["available"]).all()


LATE = [1, 4, 7, 10]
"""The names of the clients of the second site, which joins later; the others are numbered first."""


def joined(
    experiment: Experiment, runs: Path, progress: Progress | None = None, where: LoopGrid | None = None
) -> fedcohort.Run:
    """A run that the second site joins after the first round."""
    where = grid(experiment) if where is None else where
    where.offline = {1}

    def joining(run: Any, row: Any) -> None:
        where.offline = set()
        if progress is not None:
            progress(run, row)

    return played(where, experiment, runs, "wall", min_clients=8, progress=joining)


def check_joined(run: fedcohort.Run, experiment: Experiment) -> None:
    """Check that the late clients took part, as themselves."""
    notes = " ".join(run.rounds["note"])
    assert run.rounds["available"].tolist()[0] == 8
    assert run.rounds["available"].tolist()[-2:] == [12, 12]
    assert all(f"client '{client}' joined as client {8 + i}" in notes for i, client in enumerate(LATE))
    sizes = clients_of(experiment).num_samples
    late = run.clients[run.clients["client"] >= 8]
    late = late[late["status"].isin(["admitted", "declined"])]
    assert (late["num_samples"].to_numpy() == sizes[[LATE[client - 8] for client in late["client"]]]).all()


@pytest.mark.parametrize("name", ["powd", "oort", "haccs"])
def test_clients_join_between_rounds(name: str, tmp_path: Path) -> None:
    experiment = small(rounds=5, **CASES[name])
    run = joined(experiment, tmp_path)
    check_joined(run, experiment)
    assert run.decisions.query("round >= 4")["client"].max() >= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_clients_join_a_run_with_any_strategy(name: str, tmp_path: Path) -> None:
    experiment = small(rounds=6, selection={"name": name, "k": 3}, federation={"clients": 12, "holdout": 0.2})
    run = joined(experiment, tmp_path)
    check_joined(run, experiment)
    assert run.decisions.query("round >= 4")["client"].max() >= 8  # among the candidates


def test_a_strategy_that_cannot_take_in_clients_says_so_and_goes_on(tmp_path: Path) -> None:
    experiment = small(rounds=3, selection={"name": "haccs", "k": 3, "epsilon_dp": 1.0})
    run = joined(experiment, tmp_path)
    assert set(run.rounds["available"]) == {8}
    assert "takes no part: selection.epsilon_dp = 1: clients cannot join, because" in " ".join(run.rounds["note"])


@pytest.mark.parametrize(
    ("name", "allowed", "reason"),
    [
        ("haccs", EVERYTHING, "HACCS needs the label counts of all clients, which site 'site-1' does not disclose"),
        ("uniform", dataclasses.replace(OPEN, training=False), "site 'site-1' allows no training"),
    ],
)
def test_a_site_that_allows_too_little_cannot_join(name: str, allowed: Allowed, reason: str, tmp_path: Path) -> None:
    experiment = small(rounds=3, selection={"name": name, "k": 3})
    sites = sites_of(clients_of(experiment), SITES, installed_plugins, allowed=OPEN)
    sites[1].allowed = allowed
    run = joined(experiment, tmp_path, where=grid_of(sites))
    assert set(run.rounds["available"]) == {8}
    assert f"takes no part: {reason}" in " ".join(run.rounds["note"])


def test_a_run_that_clients_have_joined_is_resumed_with_them(tmp_path: Path) -> None:
    experiment = small(rounds=5, **CASES["ucb"])
    whole = joined(experiment, tmp_path / "whole")

    def dying(_: Any, row: Any) -> None:
        if row.round == 4:
            raise ServerDied

    with pytest.raises(ServerDied):
        joined(experiment, tmp_path / "killed", dying)
    resumed = played(grid(experiment), experiment, tmp_path / "killed", "wall", min_clients=8)
    assert picks(resumed) == picks(whole)
    assert model_of(resumed) == model_of(whole)
    assert {client for clients in picks(whole) for client in clients} & {8, 9, 10, 11}


def test_a_lost_node_costs_one_round_its_clients(tmp_path: Path) -> None:
    experiment = small(rounds=3, selection={"name": "uniform", "k": 12})
    where = grid(experiment)
    killed: list[int] = []

    def dying(position: int, message: Message, reply: Message) -> Message:
        if is_training(message) and position == 2 and len(killed) < 1:
            killed.append(1)
            where.offline.add(2)
            return where._reply(2, message)
        return reply

    where.tamper = dying
    run = played(where, experiment, tmp_path)
    assert run.rounds["trained"].tolist() == [8, 8, 8]
    assert run.rounds["available"].tolist() == [12, 8, 8]
    lost = run.clients.query("round == 1 and status == 'failed'")
    assert sorted(lost["client"]) == [2, 5, 8, 11]
    assert lost["detail"].str.startswith("unreachable: ").all()


def test_a_site_whose_words_cannot_be_stored_does_not_end_the_run(tmp_path: Path) -> None:
    """Its clients fail, with the reason in characters that can be printed; its answers count as none."""

    def hostile(position: int, message: Message, reply: Message) -> Message:
        words = words_of(reply)
        if position != 0 or "clients" not in words or words_of(message)["kind"] == HELLO:
            return reply
        for row in words["clients"]:
            row |= {"answer": [10**400]} if "answer" in row else {"failure": "\x1b[2J\ud800"}
        return reply_message(pack(words), message)

    experiment = small(rounds=3, selection={"name": "powd", "k": 10, "d": 12})
    run = played(grid(experiment, tamper=hostile), experiment, tmp_path)
    failed = run.clients.query("status == 'failed'")
    assert len(failed)
    assert set(failed["detail"]) == {r"\x1b[2J\ud800"}
    assert run.rounds["trained"].tolist() == [10 - sum(failed["round"] == t) for t in (1, 2, 3)]


REFUSED: dict[str, tuple[Mapping[str, Any], Allowed, str]] = {
    "a question": (
        {"selection": {"name": "powd", "k": 3, "d": 6}},
        Allowed(),
        "asks clients for LocalLoss, which no site allows",
    ),
    "reports": (
        {"selection": {"name": "oort", "k": 3}},
        Allowed(),
        "reads the reports samples, square_loss, which no site",
    ),
    "label counts": ({"selection": {"name": "haccs", "k": 3}}, EVERYTHING, "'site-0' does not disclose"),
    "training": ({}, Allowed(training=False), "allows no training: its owner has to set"),
    "dropout": (
        {"systems": {"dropout": 0.1}},
        OPEN,
        "dropout: describes simulated clients; leave it out, or set time = 'simulated'",
    ),
    "clients": (
        {"federation": {"clients": 13}},
        OPEN,
        "federation.clients = 13: only 12 clients introduced themselves",
    ),
    "fewer clients": (
        {"federation": {"clients": 11}},
        OPEN,
        "federation.clients = 11: the connected sites have 12 clients",
    ),
    "pooled data": ({"algorithm": {"name": "centralised"}}, OPEN, "pools the data of all clients"),
    "clients_every": ({"measures": {"clients_every": 1}}, OPEN, "measures.clients_every: asks all clients"),
    "personal_epochs": ({"measures": {"personal_epochs": 1}}, OPEN, "measures.personal_epochs: asks all clients"),
    "plan": ({"engine": {"plan": "stacked"}}, OPEN, "engine: a deployment has the plan 'threads'"),
    "threads": (
        {"engine": {"threads_per_client": 4}},
        OPEN,
        "engine.threads_per_client = 4: leave it out; each site has its own",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_played_is_refused_before_the_first_round(name: str, tmp_path: Path) -> None:
    settings, allowed, message = REFUSED[name]
    where = grid(small(), allowed=allowed)
    with pytest.raises(UsageError, match=message):
        play_deployment(where, small(**settings), runs=tmp_path, patience=0.3, clock=where.clock)
    assert not list(tmp_path.iterdir())


def test_a_partition_of_the_servers_data_is_not_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The clients have data of their own: how a simulation would divide those of the server would mislead."""
    draws = np.random.default_rng(0)
    np.savez(tmp_path / "server.npz", features=draws.normal(size=(60, 4)), labels=draws.integers(0, 3, 60))
    experiment = small(data={"name": str(tmp_path / "server.npz")}, federation={"clients": 2}, rounds=1)
    with pytest.raises(UsageError, match="only 0 clients introduced themselves"):
        play_deployment(grid_of([]), experiment, runs=tmp_path, patience=0.1)
    assert not [line for line in caplog.messages if line.startswith("federation.partition")]
    with caplog.at_level("WARNING", logger="fedcohort"):
        fedcohort.run(experiment, runs=tmp_path)
    assert [line for line in caplog.messages if line.startswith("federation.partition: not given")]


def test_a_network_in_a_file_is_refused_before_sites_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net: ...\n")
    (tmp_path / "experiment.toml").write_text('[model]\nname = "net.py:Net"\n')
    where = grid(small())
    with pytest.raises(UsageError, match=r"model.name = '.*net.py:Net': is a file, and sites do not run files of the"):
        play_deployment(where, tmp_path / "experiment.toml", runs=tmp_path / "runs", clock=where.clock)
    assert where.messages == []


def test_a_loss_in_a_file_is_refused_before_sites_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from fedcohort.algorithms import Loss\n\n\nclass Own(Loss): ...\n")
    (tmp_path / "experiment.toml").write_text('[training]\nloss = { name = "own.py:Own" }\n')
    where = grid(small())
    with pytest.raises(
        UsageError, match=r"training.loss.name = '.*own.py:Own': is a file, and sites do not run files of"
    ):
        play_deployment(where, tmp_path / "experiment.toml", runs=tmp_path / "runs", clock=where.clock)
    assert where.messages == []


@pytest.mark.parametrize(
    ("data", "model", "reason"),
    [
        ("diabetes", "mlp", "data.name = 'diabetes': has numeric labels; a deployment needs"),
        ("dialogue", "lstm", "data.name = 'dialogue': has sequences of tokens; a deployment needs"),
    ],
)
def test_data_that_sites_do_not_train_on_are_refused_before_sites_are_waited_for(
    data: str, model: str, reason: str, tmp_path: Path
) -> None:
    where = grid(small())
    where.offline = {0, 1, 2}
    with pytest.raises(UsageError, match=reason):
        played(where, small(data={"name": data}, model=model, federation={"clients": 4, "partition": "iid"}), tmp_path)


def test_samples_of_another_shape_are_refused_on_first_contact(tmp_path: Path) -> None:
    experiment = small(rounds=1)
    sites = sites_of(clients_of(experiment), SITES, installed_plugins, allowed=OPEN)
    for name, data in sites[1].clients.items():
        flat = Samples(data.training.features.flatten(1), data.training.labels)
        sites[1].clients = {name: dataclasses.replace(data, training=flat)}
    where = grid_of(sites)
    with pytest.raises(
        UsageError, match=r"refused: the server's samples have the shape \[1, 8, 8\], those of client '10' \[64\]"
    ):
        play_deployment(where, experiment, runs=tmp_path, patience=0.3, clock=where.clock)
    assert not list(tmp_path.iterdir())


def test_a_name_is_bound_to_the_key_of_its_first_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger with a client's name: refused while the client is connected, and after it has left."""
    experiment = small(rounds=2, selection={"name": "uniform", "k": 12})
    sites = sites_of(clients_of(experiment), SITES, installed_plugins, allowed=OPEN)
    where = grid_of([*sites, Site("stranger", sites[0].clients, installed_plugins, allowed=OPEN)])
    keys = {node: b"key %d" % node for node in where.nodes}

    @dataclasses.dataclass
    class Info:
        node_id: int
        public_key: bytes

    monkeypatch.setattr(where, "get_nodes", lambda: [Info(node, keys[node]) for node in where.get_node_ids()])
    where.offline = {3}

    def swapped(_: Any, row: Any) -> None:
        where.offline = {0}  # the stranger connects when the client has left

    run = played(where, experiment, tmp_path, progress=swapped)
    assert run.rounds["available"].tolist()[0] == 12
    again = small(rounds=3, selection={"name": "uniform", "k": 12})
    where.offline = set()
    with pytest.raises(UsageError, match=r"only 8 clients introduced .*another connected node also has the client"):
        play_deployment(where, again, runs=tmp_path, patience=0.3, clock=where.clock)


def test_settings_are_checked(tmp_path: Path) -> None:
    where = grid(small())
    with pytest.raises(UsageError, match="time = 'lunar': valid are 'wall' and 'simulated'"):
        play_deployment(where, small(), runs=tmp_path, time="lunar")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="min_clients = 0"):
        play_deployment(where, small(), runs=tmp_path, min_clients=0)
    with pytest.raises(UsageError, match=r"min_clients = 2\.5: should be a whole number of at least 1"):
        play_deployment(where, small(), runs=tmp_path, min_clients=2.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"min_clients = 13: must be at most federation.clients = 12"):
        play_deployment(where, small(), runs=tmp_path, min_clients=13)
    where.offline = {0}
    with pytest.raises(UsageError, match=r"min_clients = 9: only 8 clients introduced themselves within 0.3 s"):
        play_deployment(where, small(), runs=tmp_path, min_clients=9, patience=0.3, clock=where.clock)
    with pytest.raises(UsageError, match="patience = 0"):
        play_deployment(where, small(), runs=tmp_path, patience=0)
