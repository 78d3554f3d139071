"""The page while runs go on: on this machine only, reading only, and back after either side was away."""

import http.client
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.record import writing
from fedcohort.report.live import Live, serve
from fedcohort.report.read_runs import find_runs
from tests.experiments import small
from tests.records import played, written


@contextmanager
def serving(folder: Path, name: str | None = None) -> Iterator[int]:
    server = serve(folder, 0, name)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def ask(port: int, path: str = "/", method: str = "GET", host: str | None = None) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_it_serves_the_report_and_tells_news(tmp_path: Path, runs: Path) -> None:
    shutil.copytree(find_runs([runs])[0].path, tmp_path / "one")
    with serving(tmp_path) as port:
        status, text, headers = ask(port)
        assert status == 200
        assert 'id="figure-accuracy"' in text
        assert "data-live" in text
        assert headers["Cache-Control"] == "no-store"
        before = json.loads(ask(port, "/state")[1])["version"]
        assert f'data-live="{before}"' in text
        assert json.loads(ask(port, "/state")[1])["version"] == before
        with sqlite3.connect(tmp_path / "one" / "run.sqlite") as database:
            database.execute("DELETE FROM rounds WHERE round > 5")
            database.execute("UPDATE meta SET value = 'running' WHERE key = 'status'")
        database.close()
        assert json.loads(ask(port, "/state")[1])["version"] != before
        assert "round 5 of 8" in ask(port)[1]
        script = ask(port, "/vega.js")
        assert script[0] == 200
        assert "vegaEmbed" in script[1]


def test_news_are_a_round_a_status_and_another_run(tmp_path: Path) -> None:
    """What a page compares is another one after each of these, and the same while nothing happens."""
    run = written(tmp_path / "one", [played(1)], rounds=2)
    live = Live(tmp_path)
    seen = [live.state(None)["version"]]
    assert live.state(None)["version"] == seen[0]
    with writing(run) as writer:
        writer.record(played(2))
    seen.append(live.state(None)["version"])
    with writing(run) as writer:
        writer.finish({"w": torch.zeros(1)})
    assert run.last_round == 2
    seen.append(live.state(None)["version"])
    written(tmp_path / "two", [played(1)], seed=1)
    seen.append(live.state(None)["version"])
    assert len(set(seen)) == 4
    assert live.state(None)["version"] == seen[-1]


def test_it_is_for_this_machine_only(runs: Path) -> None:
    with serving(runs) as port:
        assert ask(port, "/state", host=f"localhost:{port}")[0] == 200
        for host in (
            "evil.example",
            f"evil.example:{port}",
            f"127.0.0.1.evil.example:{port}",
            "127.0.0.1",
            f"127.0.0.1:{port + 1}",
        ):
            status, text, _ = ask(port, "/", host=host)
            assert status == 403, host
            assert "figure" not in text
        assert ask(port, "/../run.sqlite")[0] == 404
        assert ask(port, "/state", method="POST")[0] == 501
        assert ask(port, "/state", method="HEAD")[1] == ""
        with pytest.raises(OSError, match=r"refused|unreachable|assign"):
            http.client.HTTPConnection("127.0.0.2", port, timeout=5).request("GET", "/state")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path) as port, pytest.raises(UsageError, match=f"--port {port}: already in use"):
        serve(tmp_path, port)


def test_several_experiments_and_none_yet(tmp_path: Path) -> None:
    live = Live(tmp_path / "not-there-yet")
    assert "no run yet" in live.page(None)
    for rounds, name in enumerate(("first", "second <b>"), start=1):
        fedcohort.run(small(rounds=rounds, name=name), runs=tmp_path / "not-there-yet")
    text = live.page(None)
    assert "second &lt;b&gt;" in text
    assert "/?name=first" in text
    assert live.chosen(live.groups(), "first") == "first"
    assert live.chosen(live.groups(), "unheard of") in ("first", "second <b>")
    (tmp_path / "not-there-yet" / "half-made").mkdir()
    assert len(live.groups()) == 2


def test_run_live_serves_beside_the_run(tmp_path: Path) -> None:
    """The address is up while rounds are played, and gone afterwards."""
    result = CliRunner().invoke(
        cli, ["run", "--live", "--set", "rounds=3", "--set", "seeds=1", "--runs", str(tmp_path / "runs"), "-q"]
    )
    assert result.exit_code == 0, result.output
    address = result.stderr.split("live at http://127.0.0.1:")[1].split("/")[0]
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection("127.0.0.1", int(address), timeout=5).request("GET", "/state")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_it_needs_no_write_access(tmp_path: Path, runs: Path) -> None:
    """Somebody else may watch: a process without the right to write makes the page of a finished run."""
    folder = Path("/tmp") / f"fedcohort-watched-{os.getpid()}"
    shutil.copytree(find_runs([runs])[0].path, folder / "one")
    try:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        script = (
            "import os, pandas; from pathlib import Path; from fedcohort.record import Run; "
            f"os.setuid(65534); r = Run(Path({str(folder / 'one')!r})); print(len(r.rounds), os.access(r.path, os.W_OK))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "8 False", done.stderr
    finally:
        shutil.rmtree(folder)
