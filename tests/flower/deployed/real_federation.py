"""A federation of real processes on loopback: a SuperLink with TLS and node authentication, and the processes of data owners."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

import fedcohort
from fedcohort.flower.new_app import new_app
from fedcohort.flower.sites.serve import end_group

__all__ = ["RealFederation", "waited_for"]

PROGRAMS = Path(sys.executable).parent
WAIT = 600.0
REGISTER = """
import sys
from flwr.cli.app import app

for key in sys.argv[1:]:
    app(["supernode", "register", key, "here"], standalone_mode=False)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def waited_for(done: Callable[[], Any], what: str, seconds: float = WAIT) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.2)


class RealFederation:
    """An app of `fedcohort deploy new` with its processes; they are ended, by their ids, when the block ends."""

    def __init__(self, folder: Path, experiment: str, *, sites: int = 3, allow: str | None = None) -> None:
        self.folder, self.port, self.sites = folder, free_port(), sites
        new_app(folder, sites=sites, address=f"127.0.0.1:{self.port}")
        [self.package] = [path.name for path in folder.iterdir() if path.name.endswith("_app")]
        self.write_experiment(experiment)
        if allow is not None:
            for path in folder.glob("site-*.toml"):
                text = path.read_text()
                begin, end = text.index("[allow]"), text.index("[budget]")
                path.write_text(f"{text[:begin]}[allow]\n{allow}\n\n{text[end:]}")
        subprocess.run([folder / "make-keys.sh"], check=True, capture_output=True)
        source = os.pathsep.join([str(Path(fedcohort.__file__).parents[1]), str(Path(__file__).parents[3])])
        self.env = os.environ | {
            "FLWR_HOME": str(folder / "flwr-home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{source}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        }
        (folder / "flwr-home").mkdir()
        (folder / "flwr-home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{folder}/certificates/ca.crt"\n'
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "RealFederation":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes)[::-1]:
            self.end(name)

    def write_experiment(self, text: str) -> None:
        (self.folder / self.package / "experiment.toml").write_text(text)

    @property
    def experiment(self) -> Path:
        return self.folder / self.package / "experiment.toml"

    def start(self, name: str, *command: str) -> None:
        """Start a process that leads a group of its own; its output goes to a file."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a process and its group."""
        process = self.processes.pop(name)
        started = []
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
        if number == signal.SIGKILL:
            process.kill()
        end_group(process)
        for child in started:  # some lead groups of their own
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def output(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start_superlink(self, *, authentication: bool = True) -> None:
        self.start(
            "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-ca-certfile", "certificates/ca.crt", "--ssl-certfile", "certificates/server.pem", "--ssl-keyfile",
            "certificates/server.key", "--disable-runtime-dependency-installation", "--database", "superlink.db",
            *(["--enable-supernode-auth"] if authentication else []),
        )  # fmt: skip

        def answers() -> bool:
            assert self.processes["superlink"].poll() is None, self.output("superlink")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        waited_for(answers, "SuperLink")

    def flwr(self, *words: str, check: bool = True) -> str:
        """The output of a `flwr` command."""
        return self._output_of(str(PROGRAMS / "flwr"), *words, check=check)

    def _output_of(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=WAIT, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.output("superlink")
        return done.stdout + done.stderr

    def register(self) -> None:
        """Register all sites, by `flwr supernode register` called in one process, whose start takes most of the time."""
        keys = [f"keys/site-{i}.pub" for i in range(1, self.sites + 1)]
        self._output_of(sys.executable, "-c", REGISTER, *keys)

    def start_site(self, i: int, module: str = "fedcohort site serve") -> None:
        self.start(f"site-{i}", sys.executable, "-m", *module.split(), f"site-{i}.toml")

    def make_key(self, name: str) -> Path:
        """A new pair of keys in ``keys``; returns the private one."""
        path = self.folder / "keys" / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", path], check=True)
        return path

    def start_stranger(self) -> None:
        """A SuperNode with a key that is not registered."""
        self._start_node("stranger", "flower-supernode", authority="certificates/ca.crt", key=self.make_key("stranger"))

    def start_with_wrong_authority(self) -> None:
        """A SuperNode that trusts another authority than the one of the SuperLink."""
        words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout other.key -subj /CN=other"
        subprocess.run([*words.split(), "-out", "other.crt"], cwd=self.folder, check=True, capture_output=True)
        self._start_node("wrong-authority", "flower-supernode", authority="other.crt", key=self.folder / "keys/site-1")

    def start_forger(self) -> None:
        """A SuperNode that claims the public key of the first site, and does not have its private key."""
        program = sys.executable, "-m", "tests.flower.deployed.rogue_node", "forged", "keys/site-1.pub"
        self._start_node("forger", *program, authority="certificates/ca.crt", key=self.make_key("forger"))

    def start_impostor(self, i: int) -> None:
        """A site with a registered key of its own, which says that its clients are those of another site."""
        text = (self.folder / f"site-{i}.toml").read_text()
        self.make_key("impostor")
        self.flwr("supernode", "register", "keys/impostor.pub", "here")
        assert f"keys/site-{i}" in text
        text = text.replace(f"keys/site-{i}", "keys/impostor").replace(f"state-site-{i}", "state-impostor")
        (self.folder / "impostor.toml").write_text(text)
        self.start("impostor", sys.executable, "-m", "fedcohort", "site", "serve", "impostor.toml")

    def _start_node(self, name: str, *program: str, authority: str, key: Path) -> None:
        self.start(
            name, *program, "--superlink", f"127.0.0.1:{self.port}", "--root-certificates", authority,
            "--auth-supernode-private-key", str(key), "--port", str(free_port()), "--max-retries", "3",
        )  # fmt: skip

    def ended(self, name: str) -> str:
        """Wait until a process has ended by itself; returns what it printed."""
        waited_for(lambda: self.processes[name].poll() is not None, f"the end of {name}", 60)
        return self.output(name)

    def play(self, time_of: str = "simulated", patience: float = 120.0) -> None:
        """Start a run, without waiting for it."""
        self.start(
            "run", "flwr", "run", ".", "here", "--stream", "--run-config", f"time='{time_of}' patience={patience:.1f}"
        )

    def run_of(self, name: str) -> fedcohort.Run | None:
        """The run with this name, once it exists."""
        paths = [path for path in (self.folder / "runs").glob(f"{name}-*") if (path / "run.sqlite").exists()]
        return fedcohort.open_run(paths[0]) if paths else None

    def rounds(self, name: str) -> int:
        """Number of rounds that a run has played."""
        run = self.run_of(name)
        return 0 if run is None else run.last_round

    def finished(self, name: str) -> fedcohort.Run:
        """Wait for the end of a run."""

        def done() -> bool:
            ended = self.processes["run"].poll() is not None
            run = None
            with suppress(fedcohort.UsageError):  # another process is writing it
                run = self.run_of(name)
            finished = run is not None and run.finished
            if ended and not finished:
                time.sleep(2)
                with suppress(fedcohort.UsageError):
                    run = self.run_of(name)
                finished = run is not None and run.finished
                logs = "\n".join(self.output(each)[-3000:] for each in ("run", "superlink", "site-1"))
                assert finished, logs
            return finished

        waited_for(done, f"run {name}")
        self.end("run")
        run = self.run_of(name)
        assert run is not None
        return run


def has_tools() -> bool:
    """Whether keys can be made here, and Flower's programs are installed."""
    return all(shutil.which(name) for name in ("openssl", "ssh-keygen")) and (PROGRAMS / "flower-superlink").exists()
