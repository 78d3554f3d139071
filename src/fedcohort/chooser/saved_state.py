"""The state of a chooser: its file, whether it belongs to this chooser, and can be used."""

import glob
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.durable_files import remove_leftovers, replace_file
from fedcohort.core.files.state_files import CorruptState, load_state, pack
from fedcohort.core.given_values import as_float
from fedcohort.selection import Selector

__all__ = ["StateFile", "check_state", "settings_of"]

_HASH = "sha256"
"""Key of the hash of a state in its file."""
_WRITING = Lock()
"""Several threads may save the state of a chooser."""
LEFTOVER_SECONDS = 3600.0
"""Age in seconds from which a temporary file is removed: its process was killed while it was writing."""


class StateFile:
    """The file of a chooser's state. It is noticed if another chooser has saved its state there."""

    def __init__(self) -> None:
        self._seen: tuple[Path, int, int, int] | None = None  # what was written or read last

    def write(self, path: Path, state: Mapping[str, Any]) -> None:
        """Write a state to a file, with its hash.

        Raises:
            UsageError: the file cannot be written, or another chooser has written to it since this one wrote or read it.
        """
        with _WRITING:
            if self._is_of_another(path):
                raise UsageError(
                    f"{path}: another chooser has saved its state there since this one saved or restored it; end one of the two "
                    "servers, or give each a file of its own"
                )
            try:
                replace_file(path, pack({**state, _HASH: _hash(state)}))
                written = path.stat().st_mtime
                remove_leftovers(path.parent.glob(f".{glob.escape(path.name[:40])}.*"), written - LEFTOVER_SECONDS)
                self._seen = _stamp(path)
            except OSError as error:
                raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from None

    def read(self, path: Path) -> dict[str, Any]:
        """Read what :meth:`write` wrote. Files of earlier versions have no hash.

        Raises:
            UsageError: the file cannot be read, or is damaged.
        """
        try:
            seen = _stamp(path)
            state = load_state(path)
            saved = state.pop(_HASH, None)
            if saved is not None and saved != _hash(state):
                raise CorruptState("it is damaged: its content is not what was saved")
        except (OSError, CorruptState) as error:
            raise UsageError(f"{path}: cannot be restored ({getattr(error, 'strerror', None) or error})") from None
        self._seen = seen
        return state

    def _is_of_another(self, path: Path) -> bool:
        with suppress(OSError):  # there is no file
            now = _stamp(path)
            return self._seen is not None and now[0] == self._seen[0] and now != self._seen
        return False


def _stamp(path: Path) -> tuple[Path, int, int, int]:
    """A file, and numbers that differ for every content that is written to it.

    Raises:
        OSError: there is no such file.
    """
    found = path.stat()
    return path.resolve(), found.st_ino, found.st_mtime_ns, found.st_size


def _hash(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(pack(state)).hexdigest()


def settings_of(strategy: Selector) -> dict[str, str]:
    """The parameters of a strategy by name, as JSON; without those of other types than numbers, texts, lists and dictionaries."""
    settings = {}
    for name in getattr(strategy, "__pydantic_fields__", {}):
        try:
            settings[name] = json.dumps(getattr(strategy, name), sort_keys=True)
        except (TypeError, ValueError):  # an object of the user
            continue
    return settings


def check_state(state: object, identity: Mapping[str, Any], settings: Mapping[str, str], clients: int) -> None:
    """Refuse what is no state of a chooser, and the state of another one.

    Args:
        state: what the server gave.
        identity: the chooser's strategy, seed, k and number of clients, by name.
        settings: :func:`settings_of` the chooser's strategy. Those that the state lacks are not compared: states of earlier versions
            have none.
        clients: number of clients m.

    Raises:
        UsageError: the message names the difference.
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"state = {shown(state)}: give what state_dict() returned")
    for name, value in identity.items():
        if type(state.get(name)) is not type(value) or state[name] != value:
            raise UsageError(f"the saved state has {name} = {shown(state.get(name))}, but this chooser has {value!r}")
    saved = state.get("settings")
    saved = saved if isinstance(saved, Mapping) else {}
    if different := [name for name in settings if name in saved and saved[name] != settings[name]]:
        name = different[0]
        raise UsageError(
            f"the saved state has {name} = {_value(saved[name])} of {identity['strategy']}, but this chooser has "
            f"{_value(settings[name])}; give the strategy the settings that it was saved with"
        )
    t, clock = state.get("t"), as_float(state.get("clock"))
    usable = {
        "t": isinstance(t, int) and not isinstance(t, bool) and t >= 0,
        "clock": clock is not None and clock >= 0,
        **{name: _is_vector(state.get(name), clients) for name in ("durations", "compute_times", "upload_times")},
        "state": isinstance(state.get("state"), Mapping),
    }
    if wrong := [name for name, is_usable in usable.items() if not is_usable]:
        has = f"{wrong[0]} = {shown(state[wrong[0]])}, which cannot be used" if wrong[0] in state else f"no {wrong[0]}"
        raise UsageError(f"the saved state has {has}; use save and restore")


def _is_vector(value: object, length: int) -> bool:
    """Whether a value is an array of floats [length]."""
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.shape == (length,)


def _value(setting: object) -> str:
    """The value of one of :func:`settings_of`, for a message."""
    try:
        return shown(json.loads(str(setting)))
    except ValueError:
        return shown(setting)
