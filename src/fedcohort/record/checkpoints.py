"""Write checkpoints, and load the one that a run resumes from.

A checkpoint is one file, ``round-*``, unless the clients' memories are large. A round changes the memories of only some clients. Large
memories are therefore in files of their own, ``memories-*``: each checkpoint adds a file with those that have changed, and refers to
earlier files for all others. A memory is written again if half of its file is out of date, or if there are many files.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.core.files.stamped_entries import Stamp, StampedEntries
from fedcohort.core.files.state_files import CorruptState, load_state, save_state
from fedcohort.record.round_rows import Saved

__all__ = ["CheckpointFiles", "check_own_checkpoints", "last_valid", "removed_on_error"]

log = logging.getLogger("fedcohort")

SEPARATE = 2**20
"""Bytes of memories above which they are in files of their own."""
MOST_FILES = 32
"""Number of files with memories above which half of them become one."""


@dataclass
class _MemoryFile:
    """A file with memories.

    Attributes:
        sha256: its hash.
        size: bytes of the memories in it.
        used: the memories in it that are up to date, by client.
    """

    sha256: str
    size: int
    used: dict[str, Stamp] = field(default_factory=dict)

    @property
    def bytes_used(self) -> int:
        """Bytes of the memories that are up to date."""
        return sum(stamp.size for stamp in self.used.values())

    def forget(self, clients: Iterable[str]) -> None:
        """The memories of these clients are out of date."""
        for client in clients:
            self.used.pop(client, None)


class CheckpointFiles:
    """Writes the files of checkpoints to one folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memories: dict[str, _MemoryFile] = {}  # files of this process, by name
        self._needed: dict[str, frozenset[str]] = {}  # the files with memories that a checkpoint refers to, by its name

    def write(self, round_: int, state: Mapping[str, object]) -> Saved:
        """Write the checkpoint of a round. If that fails, no incomplete file is left.

        Args:
            round_: the round.
            state: the state; its entry ``engine`` holds the clients' memories.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        name, memories = f"round-{round_:06d}.safetensors", state.get("engine")
        if isinstance(memories, StampedEntries) and sum(stamp.size for stamp in memories.stamps.values()) > SEPARATE:
            self._write_memories(f"memories-{round_:06d}.safetensors", memories)
            state = {**state, "engine": {}, "memories": self._places(memories)}
        else:
            self._memories = {}
        saved = Saved(name, self._write(name, state))
        self._needed[name] = frozenset(self._memories)
        return saved

    def needed(self, name: str) -> frozenset[str]:
        """The files with memories that the checkpoint of this name refers to; all that there are if it is damaged."""
        if name not in self._needed:  # it is of an earlier process
            try:
                memories = load_state(self.folder / name).get("memories", {"files": []})
            except (OSError, CorruptState):
                return frozenset(file.name for file in self.folder.glob("memories-*"))
            self._needed[name] = frozenset(file for file, _ in memories["files"])
        return self._needed[name]

    def clear(self, checkpoints: Iterable[str]) -> None:
        """Delete all files but those of these checkpoints; a file in use on Windows is deleted later."""
        names = set(checkpoints)
        kept = names.union(*map(self.needed, names))
        for pattern in ("round-*.safetensors", "memories-*.safetensors"):
            for file in self.folder.glob(pattern):
                if file.name not in kept:
                    with suppress(PermissionError):
                        file.unlink(missing_ok=True)

    def _write(self, name: str, state: Mapping[str, object]) -> str:
        """Write a file completely, or leave the folder as it was; returns its hash."""
        temporary = self.folder / f".{name}"
        with removed_on_error(temporary):
            digest = save_state(temporary, state)
            temporary.replace(self.folder / name)
        return digest

    def _write_memories(self, name: str, memories: StampedEntries[object]) -> None:
        """Write the memories that have changed, and those of files that are hardly used any more."""
        known = {client: stamp for file in self._memories.values() for client, stamp in file.used.items()}
        fresh = {client: stamp for client, stamp in memories.stamps.items() if known.get(client) != stamp}
        for file in self._memories.values():
            file.forget(fresh)
        replaced = self._replaced()
        written = {client for old in replaced for client in self._memories[old].used} | fresh.keys()
        self._memories = {kept: file for kept, file in self._memories.items() if kept not in replaced}
        if written:
            own = {client: stamp for client, stamp in memories.stamps.items() if client in written}
            digest = self._write(name, StampedEntries(own, memories.__getitem__))
            self._memories[name] = _MemoryFile(digest, sum(stamp.size for stamp in own.values()), own)

    def _replaced(self) -> set[str]:
        """The files whose memories are written anew."""
        replaced = {name for name, file in self._memories.items() if 2 * file.bytes_used <= file.size}
        kept = sorted(self._memories.keys() - replaced, key=lambda name: (self._memories[name].bytes_used, name))
        return replaced.union(kept[: len(kept) // 2] if len(kept) >= MOST_FILES else ())

    def _places(self, memories: StampedEntries[object]) -> dict[str, object]:
        """Which file has the memory of which client."""
        number = {client: i for i, file in enumerate(self._memories.values()) for client in file.used}
        return {
            "files": [[name, file.sha256] for name, file in self._memories.items()],
            "clients": np.array([int(client) for client in memories]),
            "file_of_client": np.array([number[client] for client in memories]),
        }


@contextmanager
def removed_on_error(file: Path) -> Iterator[None]:
    """Delete an incomplete file, whose space may be what is missing."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        raise


def check_own_checkpoints(path: Path) -> None:
    """Refuse a run directory whose folder of checkpoints is a link: resuming the run would replace and delete files elsewhere.

    Args:
        path: the run directory.

    Raises:
        UsageError: the folder is a link.
    """
    folder = path / "checkpoint"
    if folder.is_symlink():
        raise UsageError(
            f"{folder}: is a link, and resuming the run would replace and delete files elsewhere; nothing was overwritten; put the "
            "folder with its files in the place of the link"
        )


def last_valid(
    rows: Iterable[tuple[int, str, str]], folder: Path, *, quiet: bool = False
) -> tuple[int, dict[str, Any]] | None:
    """The round and the state of the first checkpoint that is not damaged; None if there is none.

    Args:
        rows: round, file and SHA-256 of each checkpoint, the last one first.
        folder: folder of the files.
        quiet: do not warn that later checkpoints are damaged.

    Raises:
        UsageError: all of them are damaged.
    """
    problems = []
    for round_, name, sha256 in rows:
        file = folder / name
        try:
            state = _with_memories(load_state(file, sha256=sha256), folder)
        except (OSError, CorruptState) as error:
            problems.append(f"{file}: the checkpoint of round {round_} is damaged ({error})")
            continue
        if problems and not quiet:
            log.warning("%s, as after a power loss; the run resumes after round %d", problems[0], round_)
        return int(round_), state
    if not problems:
        return None
    raise UsageError(
        f"{problems[0]}; nothing was overwritten; restore the file, or delete the run directory to start again"
    )


def _with_memories(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The state with the memories that are in files of their own.

    Raises:
        OSError, CorruptState: one of these files is missing or damaged.
    """
    places = state.pop("memories", None)
    if places is None:
        return state
    files = []
    for name, sha256 in places["files"]:
        try:
            files.append(load_state(folder / name, sha256=sha256))
        except CorruptState as error:
            raise CorruptState(f"{name}: {error}") from None
    clients = zip(places["clients"].tolist(), places["file_of_client"].tolist(), strict=True)
    return {**state, "engine": {str(client): files[i][str(client)] for client, i in clients}}
