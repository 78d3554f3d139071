"""What lies in the cache of decoded data sets: list, check and remove its entries."""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.files.user_cache import cache_folder
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.cache_entries import DamagedEntryError, read_entry, read_meta
from fedcohort.federation.data.dataset_cache import clear_left_overs, remove, scratch_folder

__all__ = ["CachedData", "cached_data", "check", "entries_named", "entries_older", "remove_entries"]

SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class CachedData:
    """One entry of the cache.

    Attributes:
        entry: the folder of the entry.
        data: the name under which the data set was loaded first; empty if it is unknown.
        num_bytes: size of its files.
        days: age in days, since its features were written.
        damage: what is wrong with it: None if it was not checked, empty if it is as it was written.
    """

    entry: Path
    data: str
    num_bytes: int
    days: float
    damage: str | None = None

    @property
    def name(self) -> str:
        """Name of the entry: the name of the data set with a hash or the version of its source."""
        return brief(self.entry.name, 255)


def cached_data() -> list[CachedData]:
    """All entries, sorted by name; nothing is checked.

    Raises:
        UsageError: the cache cannot be read.
    """
    root = cache_folder("datasets")
    try:
        entries = sorted(p for p in root.iterdir() if not p.name.startswith(".") and p.suffix != ".lock")
    except OSError as error:
        raise UsageError(f"FEDCOHORT_CACHE: cannot read '{brief(root, 80)}' ({error.strerror})") from None
    return [_look_at(entry) for entry in entries]


def _look_at(entry: Path) -> CachedData:
    data = ""
    with suppress(DamagedEntryError):
        data = read_meta(entry).name
    files = [entry]
    with suppress(OSError):  # a file in place of a folder; or another process removes the entry meanwhile
        files += entry.iterdir()
    sizes, written = 0, [time.time()]
    for file in files:
        with suppress(OSError):
            state = file.stat()
            sizes += 0 if file.is_dir() else state.st_size
            written.append(state.st_mtime)
    return CachedData(entry, data, sizes, max(0.0, time.time() - min(written)) / SECONDS_PER_DAY)


def check(cached: CachedData) -> CachedData:
    """The same entry after all its content was compared with its hashes; ``damage`` says what is wrong."""
    damage = ""
    try:
        if read_entry(cached.entry, cached.name) is None:
            damage = "it was removed meanwhile"
    except DamagedEntryError as error:
        damage = str(error)
    return replace(cached, damage=damage)


def entries_named(names: Sequence[str], entries: list[CachedData]) -> list[CachedData]:
    """The entries with these names, and all entries of the data sets with these names.

    Raises:
        UsageError: nothing in the cache has such a name.
    """
    missing = [name for name in names if not any(_is_called(entry, name) for entry in entries)]
    if missing:
        known = {brief(known) for entry in entries for known in (entry.name, entry.data) if known}
        hint = brief(nearest(missing[0][:60], known), 160) if known else "the cache is empty"
        raise UsageError(f"--clear '{brief(missing[0])}': not in the cache; {hint}")
    return [entry for entry in entries if any(_is_called(entry, name) for name in names)]


def _is_called(entry: CachedData, name: str) -> bool:
    """Whether a name is that of an entry, of its data set, or of the folder that it came from."""
    return bool(name) and name in (entry.name, entry.data, entry.name.rpartition("-")[0])


def entries_older(days: float, entries: list[CachedData]) -> list[CachedData]:
    """The entries that are older than ``days``."""
    return [entry for entry in entries if entry.days > days]


def remove_entries(entries: Iterable[CachedData]) -> list[CachedData]:
    """Remove entries, and what killed processes left; running processes that have mapped their files go on.

    Returns:
        The removed entries.

    Raises:
        UsageError: an entry is being made by another process, or its files cannot be removed.
    """
    removed = []
    for cached in entries:
        try:
            with FileLock(f"{cached.entry}.lock", timeout=0):
                aside = scratch_folder(cached.entry)
                cached.entry.rename(aside / "removed")
                remove(aside)
        except Timeout:
            raise UsageError(
                f"--clear '{cached.name}': another process is making this entry; wait for its end"
            ) from None
        except FileNotFoundError:
            continue
        except (OSError, NotImplementedError) as error:
            problem = getattr(error, "strerror", None) or error
            raise UsageError(f"--clear '{cached.name}': cannot be removed ({brief(problem)})") from None
        removed.append(cached)
    clear_left_overs(cache_folder("datasets"))
    return removed
