"""The memories of a site's clients, in versions: the server names the version that a training begins with.

A training makes a new version beside the one that it began with. Only the server knows whether an update was admitted, so it decides
which version the next training begins with. The same request can therefore be answered again, and a server that resumes from an older
checkpoint finds the version that it knows.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedcohort.core.files.durable_files import replace_file
from fedcohort.core.files.state_files import CorruptState, load_state, pack, unpack
from fedcohort.flower.sites.owner_policy import keeping
from fedcohort.flower.sites.protocol import BadMessage
from fedcohort.training.client_memories import Memory

__all__ = ["KEPT", "MemoryVersions"]

KEPT = 4
"""Number of versions that are kept for each client and run."""

_NAME = re.compile(r"[0-9a-z-]{1,60}")


class MemoryVersions:
    """Memories by run, client and version.

    Args:
        folder: where they are kept; None keeps them in this process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._kept: dict[str, dict[str, bytes]] = {}

    def get(self, run: str, client: str, version: str) -> Memory | None:
        """A version of a client's memory; None if it is lost. The version "" is empty.

        Raises:
            BadMessage: the name of the run or of the version cannot be used.
        """
        if not version:
            return {}
        place = self._place(run, client)
        _check(version)
        if self._folder is None:
            data = self._kept.get(place, {}).get(version)
            return None if data is None else _memory(unpack(data))
        path = self._folder / place / f"{version}.safetensors"
        try:
            return _memory(load_state(path)) if path.exists() else None
        except CorruptState:
            return None

    def put(self, run: str, client: str, version: str, begun_with: str, memory: Mapping[str, object]) -> None:
        """Keep a new version, and the one that it began with; the oldest of the others are dropped.

        Raises:
            BadMessage: the name of the run or of the version cannot be used.
            Refused: it cannot be written.
        """
        place = self._place(run, client)
        _check(version)
        data = pack(memory)
        if self._folder is None:
            versions = self._kept.setdefault(place, {})
            versions.pop(version, None)
            versions[version] = data
            for name in _superfluous(list(versions), begun_with):
                del versions[name]
            return
        folder = self._folder / place
        with keeping("the memory of a client"):
            folder.mkdir(parents=True, exist_ok=True)
            others = [path for path in folder.glob("*.safetensors") if path.stem != version]
            written = folder / f"{version}.safetensors"
            replace_file(written, data)
            _make_newest(written, others)
        by_age = sorted([*others, written], key=_time)
        for name in _superfluous([path.stem for path in by_age], begun_with):
            (folder / f"{name}.safetensors").unlink(missing_ok=True)

    def _place(self, run: str, client: str) -> str:
        _check(run)
        return f"{run}/{hashlib.sha256(client.encode()).hexdigest()[:24]}"


def _superfluous(oldest_first: list[str], begun_with: str) -> list[str]:
    return [name for name in oldest_first[:-KEPT] if name != begun_with]


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def _make_newest(written: Path, others: Sequence[Path]) -> None:
    """Let the times of files tell the order in which they were written, also after the clock was set back."""
    newest = max(map(_time, others), default=0)
    if _time(written) <= newest:
        os.utime(written, ns=(newest + 1, newest + 1))


def _check(name: str) -> None:
    """Refuse names that could be a path."""
    if not _NAME.fullmatch(name):
        raise BadMessage(f"{name[:60]!r} is no name of a run or a memory: small letters, digits and hyphens")


def _memory(state: Mapping[str, Memory]) -> Memory:
    return {group: dict(tensors) for group, tensors in state.items()}  # type: ignore[arg-type]
