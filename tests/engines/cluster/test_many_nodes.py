"""The engine on clusters of several nodes, while nodes and hosts are lost, and a run on a cluster that is killed and resumed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fedcohort

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("nodes", "what"),
    [(1, ""), (3, ""), (3, "killer"), (3, "lose"), (3, "data"), (2, "processors"), (3, "gpus"), (8, "")],
)
def test_the_contract_holds_on_a_cluster(nodes: int, what: str) -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "tests.engines.cluster.many_nodes", str(nodes), what]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the contract holds" in done.stdout


def test_a_run_says_in_one_line_which_host_was_lost(tmp_path: Path) -> None:
    """One host is killed while it works; the run ends as if nothing had happened."""
    pytest.importorskip("ray")
    experiment = tmp_path / "experiment.toml"
    experiment.write_text('rounds = 300\nseeds = 1\n[engine]\nname = "ray"\nworkers = 2\n')
    command = [sys.executable, "-m", "fedcohort", "run", str(experiment), "--runs", str(tmp_path / "runs")]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    lines, killed = [], 0
    for line in process.stderr:
        lines.append(line)
        if re.search(r"round \d+ of", line) and not killed:
            [host, *_] = [
                child
                for child in psutil.Process(process.pid).children(recursive=True)
                if "HostActor" in " ".join(child.cmdline())
            ]
            killed = host.pid
            host.kill()
    assert process.wait() == 0, "".join(lines)
    assert killed
    [told] = [line for line in lines if line.startswith("fedcohort: ") and "was lost" in line]
    assert re.search(rf"host \w{{8}}/{killed} on \S+ was lost \(.+\); its work for clients [\d, ]+ is done again", told)


def test_a_killed_run_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """The driver is killed; its hosts end by themselves."""
    pytest.importorskip("ray")
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        'rounds = 40\nseeds = 1\nselection = "oort"\nalgorithm = "scaffold"\n[engine]\nname = "ray"\nworkers = 2\n'
    )
    command = [sys.executable, "-m", "fedcohort", "run", str(experiment), "--runs"]
    process = subprocess.Popen(
        [*command, str(tmp_path / "killed")],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "round 9 of" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1)
    done = subprocess.run([*command, str(tmp_path / "killed")], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    local = subprocess.run(
        [*command, str(tmp_path / "local"), "--set", "engine.name=local"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert local.returncode == 0, local.stderr
    [one], [other] = (list((tmp_path / folder).iterdir()) for folder in ("killed", "local"))
    assert one.name == other.name
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    columns = ["test_accuracy", "test_loss", "simulated_time"]
    one_rounds, other_rounds = (fedcohort.open_run(path).rounds for path in (one, other))
    shared = [name for name in columns if name in one_rounds]
    assert one_rounds[shared].equals(other_rounds[shared])
