"""Serve the report while runs are still going on: a small server on this machine that reads the runs' databases.

The server runs in a process of its own: it does not slow the training down, and either process can be stopped and started again. The
page asks for changes by itself. The server listens on the loopback address only, and answers only requests that name this address, so
that a web site with a name that points to 127.0.0.1 gets no data. Every request must give the random token of the address that the
command printed, so that other users of the machine get no data either. It writes no file, and its answers contain no absolute path.
"""

import errno
import hmac
import json
import math
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from fedcohort.core.errors import UsageError
from fedcohort.record import Run
from fedcohort.report.data.cached_run import CachedRun
from fedcohort.report.data.damaged_runs import Inspector, damage_in, separated, without_repeats
from fedcohort.report.data.hidden_paths import without_paths
from fedcohort.report.data.kept_runs import with_tables
from fedcohort.report.data.report_data import Story, gather
from fedcohort.report.live.live_folder import FinishedRuns, scan, seeds_of, version
from fedcohort.report.live.live_progress import Pace, Planned
from fedcohort.report.live.pauses import Pauses
from fedcohort.report.live.quiet_runs import about_quiet

__all__ = ["PORT", "TOKEN", "Live", "LiveServer", "beside", "serve"]

PORT = 8765
"""The first port that is tried; the first free one of twenty is used."""

HOST = "127.0.0.1"

TOKEN = "FEDCOHORT_LIVE_TOKEN"
"""Environment variable with the token of the address, for an address that stays the same when the server starts again."""

LAST_PAGE = 5.0
"""Number of seconds after its command, or after it last sent a page, for which a server waits until an open page, which asks for news
every two seconds, shows the end of the runs."""

LONGEST_WAIT = 30.0
"""Largest number of seconds for which a server goes on after its command: making a page can take many seconds on a busy machine."""

NAMES = (HOST, "localhost", "[::1]")
"""Host names that a request may use for this machine."""


class Live:
    """The runs of a folder, and the last page of each experiment.

    Args:
        folder: folder of run directories; it need not exist yet.
        name: the experiment that is shown if the address names none; by default, the one that changed last.
        token: the secret in the address of the page; links on the page have it too.
        planned: the runs of ``name`` that are going to be played; by default those that have begun.
    """

    def __init__(
        self, folder: str | Path, name: str | None = None, token: str = "", planned: Planned | None = None
    ) -> None:
        self.folder, self.name, self.token = Path(folder), name, token
        self._pace = Pace(name, planned)
        self.pauses = Pauses()
        self._lock = threading.Lock()
        self._known = FinishedRuns[Run]()
        self._inspector = Inspector()
        self._read = FinishedRuns[CachedRun]()  # with their tables, which a new round of another run does not change
        self._pages: dict[tuple[str, int | None], tuple[str, str]] = {}  # by experiment and seed: version and HTML

    def groups(self) -> dict[str, list[Run]]:
        """Runs by the name of their experiment; the experiment that changed last comes first."""
        return scan(self.folder, self._known).groups

    def chosen(self, groups: dict[str, list[Run]], asked: str | None) -> str:
        """The experiment to show: the one that the address asks for, the one that the server was started with, or the latest."""
        for name in (asked, self.name):
            if name is not None and (name in groups or name == self.name):
                return name
        return next(iter(groups), "")

    def state(self, asked: str | None) -> dict[str, str]:
        """The version of the page, except in a pause, and which runs are ``quiet``, in words. A page with another version loads itself
        again."""
        found = scan(self.folder, self._known)
        name = self.chosen(found.groups, asked)
        quiet = about_quiet(found.groups.get(name, []), played=self._pace.planned_for(name) is not None)
        return {"version": self.pauses.told(name, version(found, name)), "quiet": quiet}

    def latest(self, asked: str | None) -> str:
        """The version of a page that is made now."""
        found = scan(self.folder, self._known)
        return version(found, self.chosen(found.groups, asked))

    def page(self, asked: str | None, seed: int | None = None) -> str:
        """The page as HTML; it is made again only if the runs have changed. Damaged runs are listed, and the others are shown.

        ``seed`` is that of the charts of single clients; by default, or if no run has it, the first one.
        """
        found = scan(self.folder, self._known)
        groups = found.groups
        name = self.chosen(groups, asked)
        latest = version(found, name)
        if seed not in seeds_of(groups.get(name, [])):
            seed = None  # such seeds share the page of the first one
        with self._lock:
            if self._pages.get((name, seed), ("", ""))[0] != latest:
                begin = time.thread_time()
                sound, more = separated(groups.get(name, []), self._inspector.damage)
                files = found.signatures
                sound = [self._read.opened(run.path, files[run.path], partial(with_tables, run)) for run in sound]
                self._read.keep(files)
                self._pages = {key: kept for key, kept in self._pages.items() if key[0] != name or kept[0] == latest}
                planned = self._pace.planned_for(name)
                live = {
                    "version": latest,
                    "name": quote(name, safe=""),
                    "seed": seed,
                    "overall": self._pace.overall(name, sound),
                    "planned": planned is not None,
                    "others": self._links(found.counts, name),
                    "token": quote(self.token),
                    "damaged": found.damaged + more,
                }
                comparisons = planned.comparisons if planned is not None else 0
                self._pages[name, seed] = (latest, _page(sound, name, live, self.folder, comparisons))
                self.pauses.made(name, latest, time.thread_time() - begin)
            return self._pages[name, seed][1]

    def _links(self, counts: dict[str, str], current: str) -> list[dict[str, object]]:
        links = []
        for name, words in counts.items():
            address = f"/?{urlencode({'name': name, 'token': self.token}, quote_via=quote)}"
            links.append({"name": name[:60], "href": address, "current": name == current, "words": words})
        return links


def _page(runs: list[Run], name: str, live: dict[str, Any], folder: Path, comparisons: int) -> str:
    """The page of these runs, without absolute paths. Runs that cannot be drawn are listed as damaged.

    ``comparisons`` is the number of differences to references once all runs are there; 0 if it is not known.
    """
    try:
        text = _drawn(runs, name, live, comparisons)
    except Exception:  # copies of a run, or a forged record, which can have valid hashes
        runs, repeated = without_repeats(runs)
        live = live | {"damaged": live["damaged"] + repeated}
        try:
            text = _drawn(runs, name, live, comparisons)
        except Exception:
            runs, more = separated(runs, partial(damage_in, action=lambda run: _drawn([run], name, live)))
            text = _drawn(runs, name, live | {"damaged": live["damaged"] + more}, comparisons)
    scripts = text.index("</script>", text.index('id="payload">'))  # what follows does not depend on the runs
    descriptions = [run.meta.get("experiment", "") for run in runs]
    return without_paths(text[:scripts], descriptions, [folder]) + text[scripts:]


def _drawn(runs: list[Run], name: str, live: dict[str, object], comparisons: int = 0) -> str:
    from fedcohort.report.page import page

    story = gather(runs, name, planned=comparisons) if runs else Story(name or "no run yet", (), [], [])
    return page(story, live=live)


def _whole(text: str) -> int | None:
    """The whole number that a text is; None if it is not one, or longer than any seed."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


class _Handler(BaseHTTPRequestHandler):
    server: "LiveServer"

    def do_GET(self) -> None:
        """Answer with the page, its script, or the version of the page."""
        if not self._names_this_machine():
            self._answer(403, "text/plain", "This page can be opened on this machine only, as http://127.0.0.1.\n")
            return
        where = urlsplit(self.path)
        query = parse_qs(where.query)
        if not self._has_the_token(query.get("token", [""])[0]):
            self._answer(403, "text/plain", "Open the address that the command printed: it ends in a token.\n")
            return
        asked = query.get("name", [None])[0]
        try:
            if where.path == "/":
                shown = self.server.live.latest(asked)
                with self.server.making_a_page(asked):
                    self._answer(200, "text/html", self.server.live.page(asked, _whole(query.get("seed", [""])[0])))
                self.server.shown = shown
            elif where.path == "/state":
                self.server.asked = (time.monotonic(), asked)
                self._answer(200, "application/json", json.dumps(self.server.live.state(asked)))
            elif where.path == "/vega.js":
                from fedcohort.report.page_assets import scripts

                self._answer(200, "text/javascript", scripts(), keep=True)
            else:
                self._answer(404, "text/plain", "There is no such page.\n")
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:  # for example a run that is being deleted: the page keeps its content and asks again
            self._answer(503, "text/plain", f"The page cannot be made at the moment ({type(error).__name__}).\n")

    do_HEAD = do_GET  # noqa: N815 - the library looks for this name

    def _names_this_machine(self) -> bool:
        name = (self.headers.get("Host") or "").lower()
        return name in {f"{own}:{self.server.server_port}" for own in NAMES}

    def _has_the_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.server.live.token.encode())

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


class LiveServer(ThreadingHTTPServer):
    """A server on the loopback address; see :func:`serve`.

    Attributes:
        live: the pages.
        asked: when a page last asked for news, on the monotonic clock in seconds, and the experiment in its address.
        shown: the version of the page that was sent last.
        sent: when a page was last sent, on the same clock.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, live: Live) -> None:
        super().__init__((HOST, port), _Handler)
        self.live, self.shown = live, ""
        self.asked: tuple[float, str | None] = (-math.inf, None)
        self.sent = -math.inf
        self._making: list[str | None] = []  # the experiments in the addresses of pages that are being made and sent

    @contextmanager
    def making_a_page(self, asked: str | None) -> Iterator[None]:
        """Note that a page is being made and sent during a block, and when it was sent."""
        self._making.append(asked)
        try:
            yield
        finally:
            self._making.remove(asked)
            self.sent = time.monotonic()

    def finish(self) -> None:
        """Shut down as soon as a page that is open has got the last rounds, or has not asked for them in time."""
        self.live.pauses.end()
        begin, (when, name), making = time.monotonic(), self.asked, [*self._making]
        never = when == -math.inf  # a page that was sent, and never asked for news, was closed or is hidden
        is_open = not never and begin - max(when, self.sent) < LAST_PAGE
        if making or is_open:
            name = making[-1] if making else name
            while self._waits(begin) and self.shown != self.live.latest(name):
                time.sleep(0.1)
        self.shutdown()

    def _waits(self, begin: float) -> bool:
        """Whether an open page can still get the last rounds; the command ended at ``begin``."""
        now = time.monotonic()
        return now - begin < LONGEST_WAIT and (bool(self._making) or now - max(begin, self.sent) < LAST_PAGE)

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.server_port}/?token={quote(self.live.token)}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a reader may close the page during an answer, which is not an error."""


def serve(
    folder: str | Path,
    port: int | None = None,
    name: str | None = None,
    token: str | None = None,
    planned: Planned | None = None,
) -> "LiveServer":
    """Start to listen for requests for the runs of a folder; the caller calls ``serve_forever``.

    Args:
        folder: folder of run directories.
        port: port to use, 0 for any free one; None tries twenty ports from :data:`PORT`, and then takes any free one.
        name: the experiment that is shown first.
        token: the secret that every request must give; by default the environment variable :data:`TOKEN`, or else a new random one.
        planned: the runs of ``name`` that are going to be played, if they are known.

    Returns:
        The server. Its ``address`` is that of the page.

    Raises:
        UsageError: the port cannot be used.
    """
    live = Live(folder, name, token or os.environ.get(TOKEN) or secrets.token_urlsafe(24), planned)
    for number in range(PORT, PORT + 20) if port is None else ():
        with suppress(OSError):
            return LiveServer(number, live)
    try:
        return LiveServer(port or 0, live)
    except OSError as error:
        problem = "already in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise UsageError(f"--port {port or 0}: {problem}; give another port") from None


@contextmanager
def beside(folder: str | Path, name: str, planned: Planned) -> Iterator[str]:
    """Serve runs from a process of its own until the block ends; yields the address, which is empty if they cannot be served."""
    command = [sys.executable, "-m", "fedcohort", "live", "--runs", str(folder), "--name", name, "--until-closed"]
    expected = [planned.rounds, planned.runs, planned.comparisons]
    command += ["--expected", *map(str, expected), *["--at-most"] * planned.at_most]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # the server ends when its input ends, also if this process is killed
            try:
                process.wait(timeout=LONGEST_WAIT + 10)
            except subprocess.TimeoutExpired:  # the runs are finished: an error about their page would hide that
                process.kill()
