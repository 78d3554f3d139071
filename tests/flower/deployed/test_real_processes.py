"""A deployment of real processes on loopback, with TLS and registered keys, has the results of the local run.

The messages pass a SuperLink, SuperNodes and the data owners' processes.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import fedcohort
from fedcohort.experiment import load
from tests.flower.deployed.real_federation import RealFederation, has_tools, waited_for

pytestmark = [
    pytest.mark.timeout(900),
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


def test_two_rounds_of_two_sites_are_those_of_the_local_run(tmp_path: Path) -> None:
    with RealFederation(tmp_path / "app", described("powd", 2, clients=8, holdout=0.0), sites=2, allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        for i in (1, 2):
            there.start_site(i)
        there.play()
        same_as_local(there.finished("powd"), there.experiment, tmp_path / "local")


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
def test_kills_strangers_and_a_wrong_authority(tmp_path: Path) -> None:
    """A killed site costs a round its clients and comes back; a killed SuperLink does not end the run; strangers take no part."""
    selection = 'name = "uniform"\nk = 12'
    with RealFederation(tmp_path / "app", described("kills", 6, selection=selection), allow=ALLOW) as there:
        there.start_superlink()
        there.register()
        for i in (1, 2, 3):
            there.start_site(i)
        there.start_stranger()
        there.start_with_wrong_authority()
        there.play(patience=60)

        def rounds() -> int:
            run = there.run_of("kills")
            return 0 if run is None else run.last_round

        waited_for(lambda: rounds() >= 1, "round 1")
        there.end("site-3", signal.SIGKILL)
        waited_for(lambda: rounds() >= 3, "round 3")
        there.end("superlink", signal.SIGKILL)
        there.end("run")
        there.start_site(3)
        there.start_superlink()
        there.play(patience=120)
        run = there.finished("kills")
        lost = run.clients.query("status == 'failed'")
        assert set(lost["client"]) <= {8, 9, 10, 11}
        assert lost["detail"].str.match("unreachable|timeout").all()
        assert run.rounds["trained"].tolist()[0] == run.rounds["trained"].tolist()[-1] == 12
        assert 8 in run.rounds["trained"].tolist()
        assert "stranger" not in "".join(run.meta["clients"])
        assert (
            there.processes["wrong-authority"].poll() is not None
            or "certificate" in there.output("wrong-authority").lower()
        )


def test_insecure_is_only_for_this_machine(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text('name = "x"\n[superlink]\naddress = "fl.example.org:8000"\n')
    command = [sys.executable, "-m", "fedcohort", "site", "serve", str(site)]
    for words, message in (
        (["--insecure"], "--insecure: only for a server on this machine"),
        ([], "TLS and a key are required"),
    ):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr
