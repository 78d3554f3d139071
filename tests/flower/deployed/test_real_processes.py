"""A deployment of real processes on loopback, with TLS and registered keys, has the results of the local run.

The messages pass a SuperLink, SuperNodes and the data owners' processes.
"""

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from safetensors.torch import load_file

import fedcohort
from fedcohort.cli.entry import cli
from fedcohort.experiment import load
from tests.flower.deployed.real_federation import RealFederation, has_tools, waited_for

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not has_tools(), reason="openssl, ssh-keygen or Flower's programs are missing"),
]

EXPERIMENT = """
name = "{name}"
rounds = {rounds}
seeds = 1

[federation]
clients = {clients}
holdout = {holdout}

[selection]
{selection}
"""
STRATEGIES = {
    "powd": 'name = "powd"\nk = 3\nd = 6',
    "oort": 'name = "oort"\nk = 3',
    "ucb": 'name = "ucb"\nk = 3\ninitial_rounds = 2',
    "flash": 'name = "flash"\nk = 3',
}
ALLOW = (
    'questions = ["LocalLoss", "Context"]\n'
    'reports = ["loss", "square_loss", "samples", "steps", "accuracy", "training_loss", "held_out_loss"]'
)


def described(name: str, rounds: int, clients: int = 12, holdout: float = 0.2, selection: str | None = None) -> str:
    return EXPERIMENT.format(
        name=name, rounds=rounds, clients=clients, holdout=holdout, selection=selection or STRATEGIES[name]
    )


def same_as_local(run: fedcohort.Run, experiment: Path, runs: Path) -> None:
    local = fedcohort.run(load(experiment), runs=runs)
    assert [c.tolist() for c in run.selections] == [c.tolist() for c in local.selections]
    assert run.rounds["test_accuracy"].tolist() == local.rounds["test_accuracy"].tolist()
    assert run.decisions.equals(local.decisions)
    models = [load_file(each.path / "model.safetensors") for each in (run, local)]
    assert all(models[0][name].numpy().tobytes() == value.numpy().tobytes() for name, value in models[1].items())


def test_a_round_of_two_sites_is_that_of_the_local_run(tmp_path: Path) -> None:
    """Their processes answer the census and the training. Questions and further rounds, which are slow tests, start more processes."""
    experiment = described("uniform", 1, clients=8, holdout=0.0, selection='name = "uniform"\nk = 3')
    with RealFederation(tmp_path / "app", experiment, sites=2, allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        for i in (1, 2):
            there.start_site(i)
        there.play()
        same_as_local(there.finished("uniform"), there.experiment, tmp_path / "local")


@pytest.mark.slow
def test_four_strategies_have_the_results_of_the_local_run_over_five_rounds(tmp_path: Path) -> None:
    with RealFederation(tmp_path / "app", described("powd", 5), allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        for i in (1, 2, 3):
            there.start_site(i)
        for name in STRATEGIES:
            there.write_experiment(described(name, 5))
            there.play()
            same_as_local(there.finished(name), there.experiment, tmp_path / "local")


@pytest.mark.slow
def test_a_killed_site_and_a_killed_server_cost_what_they_had(tmp_path: Path) -> None:
    """A killed site costs a round its clients and comes back; a killed SuperLink does not end the run."""
    selection = 'name = "uniform"\nk = 12'
    with RealFederation(tmp_path / "app", described("kills", 6, selection=selection), allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        for i in (1, 2, 3):
            there.start_site(i)
        there.play(patience=60)
        waited_for(lambda: there.rounds("kills") >= 1, "round 1")
        there.end("site-3", signal.SIGKILL)
        waited_for(lambda: there.rounds("kills") >= 3, "round 3")
        there.end("superlink", signal.SIGKILL)
        there.end("run")
        there.start_site(3)
        there.start_superlink()
        there.play(patience=120)
        run = there.finished("kills")
        lost = run.clients.query("status == 'failed'")
        assert set(lost["client"]) <= {8, 9, 10, 11}
        assert lost["detail"].str.match("unreachable|timeout").all()
        trained = run.rounds["trained"].tolist()
        assert trained[0] == trained[-1] == 12
        assert set(trained) == {8, 12}


@pytest.mark.slow
def test_strangers_wrong_authorities_and_forged_identities_are_refused_by_name(tmp_path: Path) -> None:
    """The first three are not let in by the SuperLink, which says why; the last one is, and the server refuses its clients."""
    experiment = described("doors", 50, clients=8, holdout=0.0, selection='name = "uniform"\nk = 8')
    with RealFederation(tmp_path / "app", experiment, sites=2, allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        for i in (1, 2):
            there.start_site(i)
        there.start_stranger()
        assert "Failed to activate SuperNode" in there.ended("stranger")
        key = public_bytes(there.folder / "keys" / "stranger.pub")
        assert f"{key!r}, exception: No SuperNode found with the given public key" in there.output("superlink")
        there.start_with_wrong_authority()
        assert "CERTIFICATE_VERIFY_FAILED" in there.ended("wrong-authority")
        there.start_forger()
        said = there.ended("forger")
        assert 'the SuperLink returned: 401 {"detail":"Invalid SuperNode authentication"}' in said
        for name in ("stranger", "wrong-authority", "forger"):
            assert "SuperNode ID" not in there.output(name)  # printed by nodes that were let in
        there.play(patience=60)
        waited_for(lambda: there.rounds("doors") >= 1, "round 1")
        there.start_impostor(2)
        waited_for(lambda: "SuperNode ID" in there.output("impostor"), "the impostor")  # the SuperLink let it in
        there.end("site-2")
        played = there.rounds("doors")
        waited_for(lambda: there.rounds("doors") > played + 2, "rounds without the second site")
        run = there.run_of("doors")
        assert run is not None
        notes = " ".join(run.rounds["note"])
        assert re.search(
            r"node \d+ takes no part: forged identity: client '4' belongs to a node with another key", notes
        )
        assert run.rounds["trained"].tolist()[0] == 8
        assert run.rounds["trained"].tolist()[-1] == 4
        assert set(run.clients[run.clients["round"] == run.last_round]["client"]) == {0, 1, 2, 3}
        assert "trained" not in there.output("impostor")


@pytest.mark.slow
def test_replies_that_cannot_be_used_are_refused_by_name(tmp_path: Path) -> None:
    """One of two sites sends them from its own process; its SuperNode sends everything twice. The other site is not affected."""
    experiment = described("replies", 5, clients=8, holdout=0.0, selection='name = "uniform"\nk = 8')
    with RealFederation(tmp_path / "app", experiment, sites=2, allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        there.start_site(1)
        there.start_site(2, "tests.flower.deployed.rogue_site")
        there.play(patience=120)
        run = there.finished("replies")
        found = run.clients.set_index(["round", "client"]).sort_index()
        assert {found.loc[(t, client), "status"] for t in range(1, 6) for client in range(4)} == {"admitted"}
        assert {found.loc[(t, client), "status"] for t in (1, 5) for client in range(4, 8)} == {"admitted"}
        changed = found.loc[2]
        assert changed["status"].tolist() == [*["admitted"] * 4, "diverged", "failed", "failed", "admitted"]
        details = dict(zip(changed.index.tolist(), changed["detail"].tolist(), strict=True))
        assert "NaN or infinite entries" in details[4]
        assert re.match(r"malformed: tensor '.*' is float32 \[1.*\], not float32 \[", details[5])
        assert details[6] == "malformed: message.clients.report.report holds nan, which is no number"
        for t, reason in ((3, "malformed: oversized: "), (4, "malformed: duplicate: it has a client twice")):
            refused = found.loc[t].loc[4:]
            assert set(refused["status"]) == {"failed"}
            assert refused["detail"].str.startswith(reason).all()
        assert run.rounds["trained"].tolist() == [8, 5, 4, 4, 8]
        # a second reply under another id does not pass the SuperLink; the first one counts
        assert "sent again: []" in there.output("site-2")
        said = there.output("superlink")
        assert "Failed to store Message reply: duplicate reply for reply_to_message_id" in said
        assert said.count("Failed to store Message reply: ") >= 5  # also where the first one has been collected already
        # the owner sees what was answered
        assert re.search(
            r"run \w+, round 5: trained clients [0-3, ]{10}; [\d,]+ bytes sent; left of the budget: rounds 995, ",
            there.output("site-1"),
        )


def public_bytes(path: Path) -> bytes:
    """A public key in the form in which the SuperLink prints it."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    key: Any = load_ssh_public_key(path.read_bytes())
    return public_key_to_bytes(key)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--insecure"], "--insecure: only for a server on this machine"), ([], "TLS and a key are required")],
)
def test_insecure_is_only_for_this_machine(words: list[str], message: str, tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text('name = "x"\n[superlink]\naddress = "fl.example.org:8000"\n')
    done = CliRunner().invoke(cli, ["site", "serve", str(site), *words])
    assert done.exit_code == 2
    assert message in done.stderr
