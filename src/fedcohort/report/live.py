"""The report while runs go on: a small server on this machine that reads the runs' databases and nothing else.

It runs in a process of its own, so that training is not slowed and either side may be stopped and started again; the page asks for
news by itself. It listens on the loopback address only, answers only requests that were addressed to it by that name (a web site
whose name was pointed at 127.0.0.1 gets nothing), only reads, and writes no file.
"""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from fedcohort.core.errors import UsageError
from fedcohort.record import Run

__all__ = ["PORT", "Live", "beside", "serve"]

PORT = 8765
"""Where it is tried first; the next free one of twenty is taken."""

HOST = "127.0.0.1"

NAMES = (HOST, "localhost", "[::1]")
"""What a request may call this machine."""


class Live:
    """The runs of a folder, and the page that was made of them last.

    Args:
        folder: of run directories; need not be there yet.
        name: of the experiment that is shown where the address names none; by default the one with the latest news.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self.folder, self.name = Path(folder), name
        self._lock = threading.Lock()
        self._made: dict[str, tuple[str, str]] = {}

    def groups(self) -> dict[str, list[Run]]:
        """Runs by the name of their experiment, the one with the latest news first."""
        found: dict[str, list[Run]] = {}
        newest: dict[str, float] = {}
        for path in sorted(self.folder.iterdir(), key=_begun) if self.folder.is_dir() else []:
            try:
                run = Run(path)
                name = run.meta["name"]
            except (UsageError, OSError):  # something else, or a run that is being made
                continue
            found.setdefault(name, []).append(run)
            newest[name] = max(newest.get(name, 0.0), *(file.stat().st_mtime for file in path.glob("run.sqlite*")))
        return {name: found[name] for name in sorted(found, key=lambda name: -newest[name])}

    def chosen(self, groups: dict[str, list[Run]], asked: str | None) -> str:
        """Which experiment is shown."""
        for name in (asked, self.name):
            if name is not None and (name in groups or name == self.name):
                return name
        return next(iter(groups), "")

    def state(self, asked: str | None) -> dict[str, str]:
        """What a page compares with what it has."""
        groups = self.groups()
        return {"version": _version(groups, self.chosen(groups, asked))}

    def page(self, asked: str | None) -> str:
        """The page; made anew only if something happened."""
        from fedcohort.report.gather import Story, gather
        from fedcohort.report.page import page

        groups = self.groups()
        name = self.chosen(groups, asked)
        version = _version(groups, name)
        with self._lock:
            if self._made.get(name, ("", ""))[0] != version:
                runs = groups.get(name, [])
                story = gather(runs, name) if runs else Story(name or "no run yet", (), [], [])
                live = {"version": version, "others": _links(groups, name)}
                self._made[name] = (version, page(story, live=live))
            return self._made[name][1]


def _begun(path: Path) -> tuple[float, str]:
    file = path / "experiment.toml"
    return (file.stat().st_mtime if file.exists() else 0.0), path.name


def _version(groups: dict[str, list[Run]], name: str) -> str:
    facts = [(str(run.path), run.last_round, run.meta["status"]) for run in groups.get(name, [])]
    return hashlib.sha256(repr([facts, list(groups)]).encode()).hexdigest()[:16]


def _links(groups: dict[str, list[Run]], here: str) -> list[dict[str, Any]]:
    links = []
    for name, runs in groups.items():
        going = sum(not run.finished for run in runs)
        words = f"{len(runs)} run{'s' * (len(runs) > 1)}" + (f", {going} not finished" if going else "")
        links.append({"name": name[:60], "href": f"/?name={quote(name)}", "here": name == here, "words": words})
    return links


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        """The page, its script, and whether there is news."""
        if not self._addressed_here():
            self._answer(403, "text/plain", "This page is for this machine only: open it as http://127.0.0.1.\n")
            return
        where = urlsplit(self.path)
        asked = parse_qs(where.query).get("name", [None])[0]
        try:
            if where.path == "/":
                self._answer(200, "text/html", self.server.live.page(asked))
            elif where.path == "/state":
                self._answer(200, "application/json", json.dumps(self.server.live.state(asked)))
            elif where.path == "/vega.js":
                from fedcohort.report.page import scripts

                self._answer(200, "text/javascript", scripts(), keep=True)
            else:
                self._answer(404, "text/plain", "There is nothing here.\n")
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:  # a run that is being deleted, say: the page keeps what it has, and asks again
            self._answer(503, "text/plain", f"{type(error).__name__}: {error}\n")

    do_HEAD = do_GET  # noqa: N815 - the library looks for this name

    def _addressed_here(self) -> bool:
        name = (self.headers.get("Host") or "").lower()
        return name in {f"{one}:{self.server.server_port}" for one in NAMES}

    def _answer(self, status: int, kind: str, text: str, *, keep: bool = False) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=86400" if keep else "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the run."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, live: Live) -> None:
        super().__init__((HOST, port), _Handler)
        self.live = live

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a reader that goes away in the middle of an answer is no error."""


def serve(folder: str | Path, port: int | None = None, name: str | None = None) -> ThreadingHTTPServer:
    """A server for the runs of a folder, listening; ``serve_forever`` is the caller's.

    Raises:
        UsageError: the port, or all of those tried, are taken.
    """
    live = Live(folder, name)
    for number in range(PORT, PORT + 20) if port is None else [port]:
        try:
            return _Server(number, live)
        except OSError:
            continue
    raise UsageError(
        f"--port {port if port is not None else f'{PORT} to {PORT + 19}'}: taken by something else; give another"
    )


@contextmanager
def beside(folder: str | Path, name: str) -> Iterator[str]:
    """A server in a process of its own for as long as the block lasts; gives its address."""
    command = [sys.executable, "-m", "fedcohort", "live", "--runs", str(folder), "--name", name, "--until-closed"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # it ends with its input, also when this process is killed
            process.wait(timeout=10)
