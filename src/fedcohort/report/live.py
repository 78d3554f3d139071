"""Serve the report while runs are still going on: a small server on this machine that reads the runs' databases.

The server runs in a process of its own: it does not slow the training down, and either process can be stopped and started again. The
page asks for changes by itself. The server listens on the loopback address only, and answers only requests that name this address, so
that a web site with a name that points to 127.0.0.1 gets no data. It writes no file.
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
from fedcohort.report.read_runs import Story, begun, gather

__all__ = ["PORT", "Live", "beside", "serve"]

PORT = 8765
"""The first port that is tried; the first free one of twenty is used."""

HOST = "127.0.0.1"

NAMES = (HOST, "localhost", "[::1]")
"""Host names that a request may use for this machine."""


class Live:
    """The runs of a folder, and the last page of each experiment.

    Args:
        folder: folder of run directories; it need not exist yet.
        name: the experiment that is shown if the address names none; by default, the one that changed last.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self.folder, self.name = Path(folder), name
        self._lock = threading.Lock()
        self._pages: dict[str, tuple[str, str]] = {}  # by experiment: version and HTML

    def groups(self) -> dict[str, list[Run]]:
        """Runs by the name of their experiment; the experiment that changed last comes first."""
        runs: dict[str, list[Run]] = {}
        newest: dict[str, float] = {}
        for path in sorted(self.folder.iterdir(), key=begun) if self.folder.is_dir() else []:
            try:
                run = Run(path)
                name = run.meta["name"]
            except (UsageError, OSError):  # not a run, or a run that is being created
                continue
            runs.setdefault(name, []).append(run)
            newest[name] = max(newest.get(name, 0.0), *(file.stat().st_mtime for file in path.glob("run.sqlite*")))
        return {name: runs[name] for name in sorted(runs, key=lambda name: -newest[name])}

    def chosen(self, groups: dict[str, list[Run]], asked: str | None) -> str:
        """The experiment to show: the one that the address asks for, the one that the server was started with, or the latest."""
        for name in (asked, self.name):
            if name is not None and (name in groups or name == self.name):
                return name
        return next(iter(groups), "")

    def state(self, asked: str | None) -> dict[str, str]:
        """The version of the page; a page that shows another version loads itself again."""
        groups = self.groups()
        return {"version": _version(groups, self.chosen(groups, asked))}

    def page(self, asked: str | None) -> str:
        """The page as HTML; it is made again only if the runs have changed."""
        from fedcohort.report.page import page

        groups = self.groups()
        name = self.chosen(groups, asked)
        version = _version(groups, name)
        with self._lock:
            if self._pages.get(name, ("", ""))[0] != version:
                runs = groups.get(name, [])
                story = gather(runs, name) if runs else Story(name or "no run yet", (), [], [])
                live = {"version": version, "others": _links(groups, name)}
                self._pages[name] = (version, page(story, live=live))
            return self._pages[name][1]


def _version(groups: dict[str, list[Run]], name: str) -> str:
    facts = [(str(run.path), run.last_round, run.meta["status"]) for run in groups.get(name, [])]
    return hashlib.sha256(repr([facts, list(groups)]).encode()).hexdigest()[:16]


def _links(groups: dict[str, list[Run]], current: str) -> list[dict[str, Any]]:
    links = []
    for name, runs in groups.items():
        going = sum(not run.finished for run in runs)
        words = f"{len(runs)} run{'s' * (len(runs) > 1)}" + (f", {going} not finished" if going else "")
        links.append({"name": name[:60], "href": f"/?name={quote(name)}", "current": name == current, "words": words})
    return links


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        """Answer with the page, its script, or the version of the page."""
        if not self._names_this_machine():
            self._answer(403, "text/plain", "This page can be opened on this machine only, as http://127.0.0.1.\n")
            return
        where = urlsplit(self.path)
        asked = parse_qs(where.query).get("name", [None])[0]
        try:
            if where.path == "/":
                self._answer(200, "text/html", self.server.live.page(asked))
            elif where.path == "/state":
                self._answer(200, "application/json", json.dumps(self.server.live.state(asked)))
            elif where.path == "/vega.js":
                from fedcohort.report.page_assets import scripts

                self._answer(200, "text/javascript", scripts(), keep=True)
            else:
                self._answer(404, "text/plain", "There is no such page.\n")
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:  # for example a run that is being deleted: the page keeps its content and asks again
            self._answer(503, "text/plain", f"{type(error).__name__}: {error}\n")

    do_HEAD = do_GET  # noqa: N815 - the library looks for this name

    def _names_this_machine(self) -> bool:
        name = (self.headers.get("Host") or "").lower()
        return name in {f"{own}:{self.server.server_port}" for own in NAMES}

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

    def log_message(self, *_: object) -> None:
        """Print nothing: the run uses the terminal."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, live: Live) -> None:
        super().__init__((HOST, port), _Handler)
        self.live = live

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a reader may close the page during an answer, which is not an error."""


def serve(folder: str | Path, port: int | None = None, name: str | None = None) -> ThreadingHTTPServer:
    """Start to listen for requests for the runs of a folder; the caller calls ``serve_forever``.

    Args:
        folder: folder of run directories.
        port: port to use, 0 for any free one; None tries twenty ports from :data:`PORT`.
        name: the experiment that is shown first.

    Raises:
        UsageError: the port, or every port that was tried, is in use.
    """
    live = Live(folder, name)
    for number in range(PORT, PORT + 20) if port is None else [port]:
        try:
            return _Server(number, live)
        except OSError:
            continue
    raise UsageError(
        f"--port {port if port is not None else f'{PORT} to {PORT + 19}'}: already in use; give another port"
    )


@contextmanager
def beside(folder: str | Path, name: str) -> Iterator[str]:
    """Serve runs from a process of its own until the block ends; yields the address."""
    command = [sys.executable, "-m", "fedcohort", "live", "--runs", str(folder), "--name", name, "--until-closed"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # the server ends when its input ends, also if this process is killed
            process.wait(timeout=10)
