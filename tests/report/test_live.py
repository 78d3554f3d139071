"""The page while runs go on: on this machine only, reading only, and back after either side was away."""

import errno
import hmac
import html
import http.client
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from click.testing import CliRunner

import fedcohort
from fedcohort.cli import cli
from fedcohort.cli.awaited_runs import awaited
from fedcohort.core.errors import UsageError
from fedcohort.record import Run, writing
from fedcohort.record.database import SEALED
from fedcohort.report.data.report_data import find_runs
from fedcohort.report.live import live_server as live_module
from fedcohort.report.live.live_server import Live, serve
from tests.experiments import small
from tests.records import played, seal_again, written

TOKEN = "the-token-of-the-tests"


@contextmanager
def serving(folder: Path, name: str | None = None) -> Iterator[int]:
    server = serve(folder, 0, name, TOKEN)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def ask(
    port: int, path: str = "/", method: str = "GET", host: str | None = None, query: str = f"?token={TOKEN}"
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path + query, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_an_open_page_gets_the_last_rounds_before_the_server_ends(tmp_path: Path) -> None:
    """The server ended with its command, so that an open page never showed the end."""
    run = written(tmp_path / "one", [played(1, [0])], rounds=2)
    server = serve(tmp_path, 0, None, TOKEN)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    ask(server.server_port)
    ask(server.server_port, "/state")
    with writing(run) as writer:
        writer.record([played(2, [0])])
        writer.finish({})
    ending = threading.Thread(target=server.finish)
    ending.start()
    ending.join(0.3)
    assert ending.is_alive(), "the page has not asked again yet"
    assert 'data-live="' + json.loads(ask(server.server_port, "/state")[1])["version"] in ask(server.server_port)[1]
    ending.join(2)
    assert not ending.is_alive()
    server.server_close()


def test_a_page_that_is_slow_to_make_gets_the_last_rounds_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the server ended while it made the page of the rounds before, and the open page never showed the end."""
    monkeypatch.setattr(live_module, "LAST_PAGE", 0.5)
    run = written(tmp_path / "one", [played(1, [0])], rounds=2)
    server = serve(tmp_path, 0, None, TOKEN)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    ask(server.server_port, "/state")
    begun, may_end, made = threading.Event(), threading.Event(), server.live.page

    def slowly(asked: str | None, seed: int | None = None) -> str:
        text = made(asked, seed)
        begun.set()
        may_end.wait(30)
        return text

    monkeypatch.setattr(server.live, "page", slowly)
    page = threading.Thread(target=ask, args=(server.server_port,))
    page.start()
    assert begun.wait(30)
    with writing(run) as writer:
        writer.record([played(2, [0])])
        writer.finish({})
    ending = threading.Thread(target=server.finish)
    ending.start()
    ending.join(1.5)
    assert ending.is_alive(), "a page is being made"
    may_end.set()
    page.join(30)
    assert 'data-live="' + json.loads(ask(server.server_port, "/state")[1])["version"] in ask(server.server_port)[1]
    ending.join(5)
    assert not ending.is_alive()
    server.server_close()


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
    """The page waited for a folder with the name of a file for ever."""
    (tmp_path / "x.toml").write_text("")
    result = CliRunner().invoke(cli, ["live", "--runs", str(tmp_path / "x.toml")])
    assert result.exit_code == 2
    assert "x.toml: is a file; give the folder of the runs" in result.output


def test_a_server_without_an_open_page_ends_at_once(tmp_path: Path) -> None:
    written(tmp_path / "one", [played(1, [0])], rounds=2)
    server = serve(tmp_path, 0, None, TOKEN)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    ask(server.server_port)  # a page that was closed, or is hidden, asks for no news
    begin = time.monotonic()
    server.finish()
    assert time.monotonic() - begin < 2
    server.server_close()


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
            for table in SEALED:
                database.execute(f"DELETE FROM {table} WHERE round > 5")
            database.execute("UPDATE meta SET value = 'running' WHERE key = 'status'")
            seal_again(database)
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
        writer.record([played(2)])
    seen.append(live.state(None)["version"])
    with writing(run) as writer:
        writer.finish({"w": torch.zeros(1)})
    assert run.last_round == 2
    seen.append(live.state(None)["version"])
    written(tmp_path / "two", [played(1)], seed=1)
    seen.append(live.state(None)["version"])
    assert len(set(seen)) == 4
    assert live.state(None)["version"] == seen[-1]


def flip(file: Path, where: int = -100) -> None:
    """Change one byte of a file."""
    content = bytearray(file.read_bytes())
    content[where] ^= 1
    file.write_bytes(content)


def change_a_number(run: Path) -> None:
    with sqlite3.connect(run / "run.sqlite") as database:
        database.execute("UPDATE rounds SET test_accuracy = 0.75 WHERE round = 1")
    database.close()


def make_a_folder(run: Path) -> None:
    (run / "run.sqlite").unlink()
    (run / "run.sqlite").mkdir()


def make_a_pipe(file: Path) -> None:
    """A pipe without a writer: opening it would wait for ever."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def forge(statement: str, *values: str) -> Callable[[Path], None]:
    """Change a record and make its hashes valid again, as anyone can."""

    def change(run: Path) -> None:
        with sqlite3.connect(run / "run.sqlite") as database:
            database.execute(statement, values)
            seal_again(database)
        database.close()

    return change


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no database": (lambda run: (run / "run.sqlite").write_bytes(b"no database"), "run.sqlite: the run"),
    "an empty database": (lambda run: (run / "run.sqlite").write_bytes(b""), "run.sqlite: the run"),
    "a folder as database": (make_a_folder, "no run.sqlite"),
    "a number": (change_a_number, "round 1 or the description differs"),
    "the description": (lambda run: flip(run / "experiment.toml"), "experiment.toml: is missing, or differs"),
    "a pipe as description": (
        lambda run: make_a_pipe(run / "experiment.toml"),
        "experiment.toml: is missing, or differs",
    ),
    "a pipe as database": (lambda run: make_a_pipe(run / "run.sqlite"), "no run.sqlite"),
    "no description": (lambda run: (run / "experiment.toml").unlink(), "experiment.toml: is missing, or differs"),
    "no name": (forge("DELETE FROM meta WHERE key = 'name'"), "KeyError"),
    "no status": (forge("DELETE FROM meta WHERE key = 'status'"), "its status is None"),
    "another format": (forge("UPDATE meta SET value = '99' WHERE key = 'format'"), "written in format 99"),
    "numbers that are none": (
        forge("UPDATE rounds SET class_accuracy = 'x'"),
        "run.sqlite: the run's database is damaged",
    ),
}
"""Ways to damage a run, and a part of the reason that the page gives."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_listed_beside_the_others(tmp_path: Path, kind: str) -> None:
    damage, expected = DAMAGE[kind]
    written(tmp_path / "sound", [played(1), played(2)])
    written(tmp_path / "<b>bad", [played(1), played(2)], label="ucb")
    damage(tmp_path / "<b>bad")
    live = Live(tmp_path)
    text = live.page(None)
    assert 'id="figure-accuracy"' in text
    [(name, why)] = re.findall(r"<li><strong>(.*?)</strong>: (.*?)</li>", text)
    assert name == "&lt;b&gt;bad"
    assert expected in html.unescape(why)
    assert str(tmp_path) not in text
    version = live.state(None)["version"]
    assert f'data-live="{version}"' in text
    assert live.state(None)["version"] == version


def test_a_copy_of_a_run_does_not_hide_the_page(tmp_path: Path) -> None:
    for label in ("ucb", "uniform"):
        written(tmp_path / label, [played(1)], label=label)
    shutil.copytree(tmp_path / "ucb", tmp_path / "zcopy")
    text = Live(tmp_path).page(None)
    assert re.findall(r"<li><strong>(.*?)</strong>: (.*?)</li>", text) == [
        ("zcopy", "the same run as ucb, which is shown")
    ]
    assert 'id="figure-accuracy"' in text


def test_a_run_without_its_database_is_not_left_out_of_a_report(tmp_path: Path) -> None:
    for label in ("ucb", "uniform"):
        with writing(written(tmp_path / label, [played(1)], label=label)) as writer:
            writer.finish({"w": torch.zeros(1)})
    (tmp_path / "notes").mkdir()
    assert len(find_runs([tmp_path])) == 2
    (tmp_path / "ucb" / "run.sqlite").unlink()
    with pytest.raises(
        UsageError, match=r"ucb.*run\.sqlite: is missing, but model\.safetensors of the same run is there"
    ):
        find_runs([tmp_path])


def test_a_run_that_is_deleted_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in ("stays", "goes"):
        written(tmp_path / label, [played(1)], label=label)
    live = Live(tmp_path)
    read = Run.meta.fget  # type: ignore[attr-defined]

    def delete_before(run: Run) -> dict[str, str]:
        if run.path.name == "goes":
            shutil.rmtree(run.path)
        return dict(read(run))

    monkeypatch.setattr(Run, "meta", property(delete_before))
    text = live.page(None)
    assert "cannot be shown" not in text
    assert "stays" in text


def test_a_run_that_is_restored_is_shown_again(tmp_path: Path) -> None:
    for label, seed in (("ucb", 0), ("uniform", 0)):
        run = written(tmp_path / label, [played(1)], label=label, seed=seed)
        with writing(run) as writer:
            writer.finish({"w": torch.zeros(1)})
    live = Live(tmp_path)
    model = (tmp_path / "ucb" / "model.safetensors").read_bytes()
    assert "cannot be shown" not in live.page(None)
    flip(tmp_path / "ucb" / "model.safetensors", -1)
    assert "model.safetensors: is missing, or differs" in live.page(None)
    (tmp_path / "ucb" / "model.safetensors").write_bytes(model)
    assert "cannot be shown" not in live.page(None)


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


@pytest.mark.parametrize(
    "query", ["", "?token=", "?token=wrong", f"?token={TOKEN}x", "?token=%C3%A9", f"?name={TOKEN}"]
)
def test_every_answer_needs_the_token(runs: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Mock(side_effect=hmac.compare_digest)
    monkeypatch.setattr(hmac, "compare_digest", compared)
    with serving(runs) as port:
        for path in ("/", "/state", "/vega.js", "/nothing"):
            for method in ("GET", "HEAD"):
                status, text, _ = ask(port, path, method, query=query)
                assert status == 403, path
                assert TOKEN not in text
                assert "figure" not in text
        assert compared.call_count == 8  # in a time that does not depend on how much of the token is right
        assert ask(port, "/state")[0] == 200


def test_the_token_is_another_one_each_time_unless_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCOHORT_LIVE_TOKEN", raising=False)
    addresses = []
    for value in (None, None, "a token of mine", "a token of mine"):
        if value:
            monkeypatch.setenv("FEDCOHORT_LIVE_TOKEN", value)
        server = serve(tmp_path, 0)
        addresses.append(server.address.partition("?")[2])
        server.server_close()
    first, second, *own = addresses
    assert first != second
    assert all(len(token) >= len("token=") + 32 for token in (first, second))
    assert own == ["token=a%20token%20of%20mine"] * 2


def test_the_page_and_its_links_have_the_token(tmp_path: Path) -> None:
    for name in ("first", "second"):
        written(tmp_path / name, [played(1)], name=name)
    with serving(tmp_path) as port:
        text = ask(port)[1]
        assert f'src="/vega.js?token={TOKEN}"' in text
        links = [html.unescape(link) for link in re.findall(r'href="(/[^"]+)"', text)]
        assert sorted(links) == [f"/?name={name}&token={TOKEN}" for name in ("first", "second")]
        for link in [*links, f"/vega.js?token={TOKEN}"]:
            assert ask(port, link, query="")[0] == 200


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path) as port, pytest.raises(UsageError, match=f"--port {port}: already in use"):
        serve(tmp_path, port)


def test_without_a_port_any_free_one_is_taken_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With twenty pages on a machine, `--live` printed an error about an option that its command does not have."""
    real, tried = live_module.LiveServer, []

    def others_have_it(port: int, live: Live) -> live_module.LiveServer:
        tried.append(port)
        if port:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return real(port, live)

    monkeypatch.setattr(live_module, "LiveServer", others_have_it)
    server = serve(tmp_path)
    server.server_close()
    assert tried == [*range(live_module.PORT, live_module.PORT + 20), 0]


def test_a_port_that_needs_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "LiveServer", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(UsageError, match=r"^--port 80: cannot be used \(Permission denied\); give another port$"):
        serve(tmp_path, 80)


def test_a_run_goes_on_without_a_page_that_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "beside", lambda *_: nullcontext(""))
    words = ["run", "--live", "--set", "rounds=1", "--set", "seeds=1", "--runs", str(tmp_path / "runs"), "-q"]
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.stderr) == (0, "fedcohort: no live page; the runs go on without it\n")


def test_several_experiments_and_none_yet(tmp_path: Path) -> None:
    live = Live(tmp_path / "not-there-yet")
    assert "no run yet" in (text := live.page(None))
    assert "No run has begun yet." in text, "Reproduction was a heading without a word"
    assert "This file contains all data" not in text, "of a page that is no file"
    for rounds, name in enumerate(("first", "second <b>"), start=1):
        fedcohort.run(small(rounds=rounds, name=name), runs=tmp_path / "not-there-yet")
    text = live.page(None)
    assert "second &lt;b&gt;" in text
    assert "/?name=first" in text
    assert live.chosen(live.groups(), "first") == "first"
    assert live.chosen(live.groups(), "unheard of") in ("first", "second <b>")
    (tmp_path / "not-there-yet" / "half-made").mkdir()
    assert len(live.groups()) == 2


@pytest.mark.slow
def test_run_live_serves_beside_the_run(tmp_path: Path) -> None:
    """The address is up while rounds are played, and gone afterwards."""
    result = CliRunner().invoke(
        cli, ["run", "--live", "--set", "rounds=3", "--set", "seeds=1", "--runs", str(tmp_path / "runs"), "-q"]
    )
    assert result.exit_code == 0, result.output
    address, token = re.findall(r"live at http://127\.0\.0\.1:(\d+)/\?token=(\S+)", result.stderr)[0]
    assert len(token) >= 32
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection("127.0.0.1", int(address), timeout=5).request("GET", "/state")


def test_the_command_says_what_to_do_with_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed an address only. A server that is asked to end before it begins is enough to see what is printed."""
    server = Mock(address="http://127.0.0.1:1/?token=x")
    monkeypatch.setattr("fedcohort.report.live.live_server.serve", lambda *_, **__: server)
    result = CliRunner().invoke(cli, ["live", "--runs", str(tmp_path)])
    assert result.stdout == "http://127.0.0.1:1/?token=x\n"
    opened = "Open this address in a browser on this machine. Ctrl-C ends the page.\n"
    assert result.stderr == f"{opened}Waiting for the first run in the folder {tmp_path}: it has none now.\n"


def test_a_page_without_runs_says_what_it_waits_for(runs: Path, tmp_path: Path) -> None:
    """It waited in silence, also for a name that is spelled wrong and in a folder that does not exist."""
    (name,) = {run.meta["name"] for run in find_runs([runs])}
    assert awaited(str(runs), None) == awaited(str(runs), name) == ""
    about = f"Waiting for runs of the experiment 'odd' (--name) in the folder {runs}: it has runs of {name!r}."
    assert awaited(str(runs), "odd") == about
    none = str(tmp_path / "none")
    assert awaited(none, None) == f"Waiting for the first run in the folder {none}: there is no such folder yet."


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
