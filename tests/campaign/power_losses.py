"""Every state in which a power loss can leave a run directory, seen while a run is played.

A :class:`Recorder` watches a process from inside: every statement of its SQLite connections, every rename, removal and ``fsync``.
Before each of them it takes the files of the run directory, and from the syncs before it knows what is on the disk for certain. A
power loss then leaves, in any combination:

* the log of the database as it was synced, followed by any part of what was written since,
* files that were not synced, with what was synced of them,
* directories that were not synced, with the names that they had.
"""

import itertools
import os
import pickle
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["LOG", "State", "record_states"]

State = dict[str, bytes]
"""The files below the folder of runs, by relative path."""

LOG = "run.sqlite-wal"
HEADER, FRAME_HEADER = 32, 24
"""Bytes of the header of SQLite's log, and of the header of each of its frames."""

PASSING = ("run.sqlite-shm", "run.lock")
"""Files that are made anew: the index of the log, which lies in memory, and the lock."""

MOVES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
"""Audit events of Python after which a directory has other names."""


class Recorder:
    """What is on the disk for certain, and the states that a power loss can leave.

    Args:
        folder: the folder of runs.

    Attributes:
        states: all states, without repetitions, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.states: dict[int, State] = {}
        self._synced: dict[int, bytes] = {}  # the synced bytes of a file, by inode
        self._seen: dict[int, bytes] = {}  # the last bytes of a file, by inode
        self._names: dict[str, dict[str, int]] = {}  # the synced names of a directory, with inodes
        self._log: dict[str, bytes] = {}  # the synced log, by path
        self._full: dict[str, bool] = {}  # whether commits are synced, by path of the log
        self._committing: set[str] = set()  # logs with a synced commit that has begun
        self._lock = threading.RLock()
        self._busy = False

    def install(self) -> None:
        """Watch this process from now on."""
        sync, connect = os.fsync, sqlite3.connect

        def fsync(descriptor: int) -> None:
            self.look()
            sync(descriptor)
            self._note(descriptor)

        def connected(database: Any, *arguments: Any, **values: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(database, *arguments, **values)
            if "mode=ro" not in str(database):
                log = f"{Path(database).resolve()}-wal"
                connection.set_trace_callback(lambda statement: self._statement(log, statement))
            return connection

        os.fsync = fsync  # type: ignore[assignment]
        if hasattr(os, "fdatasync"):
            os.fdatasync = fsync  # type: ignore[assignment]
        sqlite3.connect = connected  # type: ignore[assignment]
        sys.addaudithook(lambda event, _: self.look() if event in MOVES else None)

    def look(self) -> None:
        """Add the states in which a power loss now would leave the folder."""
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                inodes, directories = self._files()
                self._settle_commits(inodes)
                for state in self._losses(inodes, directories):
                    self.states.setdefault(hash(frozenset(state.items())), state)
            finally:
                self._busy = False

    def _files(self) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """The inodes of the files and the names in the directories at this moment, by relative path."""
        files: dict[str, int] = {}
        directories: dict[str, dict[str, int]] = {}
        for root, _, names in os.walk(self.folder):
            here = os.path.relpath(root, self.folder)
            directories[here] = {}
            for name in names:
                if name in PASSING:
                    continue
                path = Path(root, name)
                try:
                    inode = path.stat().st_ino
                    self._seen[inode] = path.read_bytes()
                except FileNotFoundError:
                    continue
                files[str(Path(here, name))] = inode
                directories[here][name] = inode
        return files, directories

    def _settle_commits(self, inodes: dict[str, int]) -> None:
        """The log is on the disk up to the end of a synced commit; without a log, the database is synced."""
        for path, inode in inodes.items():
            log = str(self.folder / path)
            if path.endswith(LOG) and log in self._committing:
                self._log[log] = self._seen[inode]
        self._committing.clear()

    def _statement(self, log: str, statement: str) -> None:
        """Called before each statement of a connection."""
        self.look()
        words = statement.upper().replace("=", " ").split()
        if words[:2] == ["PRAGMA", "SYNCHRONOUS"] and len(words) > 2:
            self._full[log] = words[2] in ("FULL", "EXTRA", "2", "3")
        if words[:1] in (["COMMIT"], ["END"]) and self._full.get(log, True):
            self._committing.add(log)
        if "WAL_CHECKPOINT" in statement.upper() or "JOURNAL_MODE" in statement.upper():
            self._log.pop(log, None)  # what was in the log is now synced in the database, and the log begins again
            self._committing.add(log)

    def _note(self, descriptor: int) -> None:
        """A file or directory is on the disk."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self.folder != path and self.folder not in path.parents:
            return
        if path.is_dir():
            entries = {
                entry.name: entry.inode() for entry in os.scandir(path) if entry.is_file() and entry.name not in PASSING
            }
            self._names[os.path.relpath(path, self.folder)] = entries
        else:
            self._synced[path.stat().st_ino] = path.read_bytes()

    def _losses(self, files: dict[str, int], directories: dict[str, dict[str, int]]) -> Iterator[State]:
        """The states that a power loss can leave now."""
        log = next((path for path in files if path.endswith(LOG)), None)
        reverted = {
            str(Path(here, name)): inode
            for here, names in directories.items()
            for name, inode in self._with_log(self._names.get(here, {}), names).items()
        }
        for names, lost in itertools.product((files, reverted), (False, True)):
            state = {path: self._content(path, inode, lost=lost) for path, inode in names.items()}
            if log is None or log not in state:
                yield state
                continue
            synced = self._log.get(str(self.folder / log), b"")
            whole = self._seen[files[log]]
            for cut in cuts(synced, whole):
                yield state | {log: whole[:cut] + synced[cut:]}

    def _with_log(self, synced: dict[str, int], names: dict[str, int]) -> dict[str, int]:
        """The synced names, and that of the log beside a database: SQLite syncs it together with the log."""
        return synced | {LOG: names[LOG]} if LOG in names and "run.sqlite" in synced else synced

    def _content(self, path: str, inode: int, *, lost: bool) -> bytes:
        """The bytes of a file; of those that were not synced, what was."""
        if lost and not path.endswith(("run.sqlite", LOG)):
            return self._synced.get(inode, b"")
        return self._seen[inode]


def cuts(synced: bytes, whole: bytes) -> list[int]:
    """Where the log can end: between its frames, in the middle of their headers and of their pages, from what is synced on."""
    page = int.from_bytes(whole[8:12], "big") or 4096
    same = next(
        (i for i, (a, b) in enumerate(zip(synced, whole, strict=False)) if a != b), min(len(synced), len(whole))
    )
    places = {same, len(whole)}
    for start in range(HEADER, len(whole), FRAME_HEADER + page):
        places |= {start, start + FRAME_HEADER // 2, start + FRAME_HEADER + page // 2}
    return sorted(place for place in places if same <= place <= len(whole))


def record_states(folder: Path, arguments: list[str], file: Path) -> None:
    """Play ``fedcohort ARGUMENTS…`` in this process, and write the states of the folder of runs to a file."""
    from fedcohort.cli import main

    recorder = Recorder(folder)
    recorder.install()
    sys.argv = ["fedcohort", *arguments]
    try:
        main()
    except SystemExit as leaving:
        if leaving.code:
            raise
    recorder.look()
    file.write_bytes(pickle.dumps(list(recorder.states.values())))
