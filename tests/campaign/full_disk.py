"""Fill the disk at every size: a run ends in one line, its record is valid, and with space again it has the same bits.

The disk is a small file system in memory, which only root can mount. Otherwise a library that is loaded before all others counts what
is written below the folder, and refuses more than the size; it needs a C compiler.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.campaign.attack import Attack, Unavailable, hold
from tests.campaign.directories import contents, only_run, same_directory
from tests.campaign.federations import PAIRS, written
from tests.campaign.forked import Ended, command, one_line, play

__all__ = ["FullDisk", "library"]

PAGE = 4096
PLAYED = ("UCB, FedAvg", "utility per time, SCAFFOLD", "conformal participation, FedAvg")


class FullDisk(Attack):
    """No space left on the device, from the first page on."""

    name = "disk"
    did = "a disk of each size from one page to that of the whole run, full in mid-run; then with space again"
    unit = "full disks"
    full = 360
    least = 6
    small = (0, 50)

    def prepare(self) -> None:
        """Find a way to fill a disk; each run is played once before its first case, which tells how much space it needs."""
        self._played: dict[str, tuple[dict[str, Any], int]] = {}
        self._mounts = _can_mount(self.folder)
        self._library = None if self._mounts else library(self.folder)

    def _whole(self, pair: str) -> tuple[dict[str, Any], int]:
        """The content of the undisturbed run, and the pages that a disk for it needs."""
        if pair not in self._played:
            file = written(self.folder / pair, rounds=6, **PAIRS[pair])
            play(file.parent, "run", file, "--quiet", "--runs", "runs")
            path = only_run(file.parent / "runs")
            # the log is as large as the database, and two checkpoints are there at the same time
            pages = 3 * sum(-(-inner.stat().st_size // PAGE) for inner in path.rglob("*") if inner.is_file()) + 8
            self._played[pair] = contents(path), pages
        return self._played[pair]

    def case(self, number: int, draw: random.Random) -> int:
        """A disk of one size; the sizes of a pair are taken in steps of 37 pages, so that few cases cover their range."""
        pair = PLAYED[number % len(PLAYED)]
        expected, needed = self._whole(pair)
        pages = 1 + number // len(PLAYED) * 37 % needed
        disk = self.place / "disk"
        disk.mkdir()
        with self._small(disk, pages):
            ended = self._run(pair, pages)
            if ended.code != 0:
                one_line(ended, longest=600)
                words = ("space", "full")
                hold(
                    any(word in ended.err.lower() for word in words), f"does not say that the disk is full: {ended.err}"
                )
            if self._mounts:
                subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            again = self._run(pair, None)
            hold(again.code == 0, f"{pages} pages; with space again: exit code {again.code}: {again.err[-1000:]}")
            same_directory(only_run(disk / "runs"), expected)
        return int(ended.code != 0)

    def _run(self, pair: str, pages: int | None) -> Ended:
        """Play the run of a pair onto the disk."""
        arguments = ["run", str(self.folder / pair / "experiment.toml"), "--quiet", "--runs", "disk/runs"]
        if self._library is None or pages is None:
            return command(self.place, *arguments).wait()
        limits = {
            "LD_PRELOAD": str(self._library),
            "FULL_BELOW": str(self.place / "disk"),
            "FULL_BYTES": str(pages * PAGE),
        }
        done = subprocess.run(
            [sys.executable, "-m", "fedcohort", *arguments],
            cwd=self.place, env=os.environ | limits, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def _small(self, disk: Path, pages: int) -> Iterator[None]:
        """Make the folder a disk with so many pages."""
        if not self._mounts:
            yield
            return
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={pages * PAGE}", "tmpfs", str(disk)], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)


def _can_mount(folder: Path) -> bool:
    """Whether this process may mount a file system."""
    place = folder / "mount"
    place.mkdir(exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    subprocess.run(["umount", str(place)], check=True)
    return True


def library(folder: Path) -> Path:
    """The library that fills the disk.

    Raises:
        Unavailable: it cannot be compiled.
    """
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise Unavailable("a full disk needs root, or Linux and a C compiler")
    library = folder / "full_disk.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(Path(__file__).with_suffix(".c")), "-ldl"],
        check=True,
    )
    return library
