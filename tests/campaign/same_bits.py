"""The same run in new interpreters under other circumstances: it has the same bits.

The circumstances are hash seeds, threads, locales, time zones, working directories, and a busy machine.
"""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.campaign.attack import Attack, hold
from tests.campaign.directories import contents, only_run, same_directory
from tests.campaign.federations import PAIRS, written
from tests.campaign.forked import play

__all__ = ["SameBits"]

PLAYED = ("UCB, FedAvg", "Oort, FedAdam", "utility per time, SCAFFOLD", "neural bandit, FedAvgM")
CIRCUMSTANCES: dict[str, dict[str, str]] = {
    **{f"PYTHONHASHSEED={seed}": {"PYTHONHASHSEED": str(seed)} for seed in (0, 1, 12345, 4294967295)},
    **{f"{threads} threads": {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} for threads in (1, 2, 4)},
    **{f"LC_ALL={name}": {"LC_ALL": name} for name in ("C", "POSIX", "C.UTF-8", "tr_TR.UTF-8", "de_DE.ISO-8859-1", "no such locale")},
    **{f"TZ={zone}": {"TZ": zone} for zone in ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati", "nonsense")},
    "another working directory": {"CASE_FOLDER": "other working directory, with spaces and ü"},
    "a busy machine": {"CASE_BUSY": "4"},
    "everything at once": {
        "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "4", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "CASE_BUSY": "4", "CASE_FOLDER": "ü",
    },
    "engine.workers=7": {"CASE_WORKERS": "7"},
}  # fmt: skip


class SameBits(Attack):
    """A run repeated under other circumstances."""

    name = "same-bits"
    did = "a run repeated in new interpreters: hash seeds, threads 1/2/4, locales, time zones, directories, a busy machine"
    unit = "runs"
    full = 2 * len(CIRCUMSTANCES)
    least = 2
    small = (0,)
    limit = 240.0

    def prepare(self) -> None:
        """Each run is played once before it is repeated for the first time."""
        self._played: dict[str, dict[str, Any]] = {}

    def _expected(self, pair: str) -> dict[str, Any]:
        """The content of the directory of the first run."""
        if pair not in self._played:
            file = written(
                self.folder / pair, rounds=5, model={"name": "cnn_a" if "FedAdam" in pair else "mlp"}, **PAIRS[pair]
            )
            play(file.parent, "run", file, "--quiet", "--runs", "runs")
            self._played[pair] = contents(only_run(file.parent / "runs"))
        return self._played[pair]

    def case(self, number: int, draw: random.Random) -> int:
        """One circumstance; the pairs take turns."""
        circumstance = list(CIRCUMSTANCES)[(number * 11) % len(CIRCUMSTANCES)]
        pair = PLAYED[(number + number // len(CIRCUMSTANCES)) % len(PLAYED)]
        expected = self._expected(pair)
        settings = {key: value for key, value in CIRCUMSTANCES[circumstance].items() if not key.startswith("CASE_")}
        given = CIRCUMSTANCES[circumstance]
        folder = self.place / given.get("CASE_FOLDER", "here")
        folder.mkdir()
        busy = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(given.get("CASE_BUSY", 0)))
        ]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "fedcohort", "run", str(self._file(pair, folder)), "--quiet",
                 "--runs", str(self.place / "runs"), "--set", f"engine.workers={given.get('CASE_WORKERS', 2)}"],
                cwd=folder, env=os.environ | settings, capture_output=True, timeout=200,
            )  # fmt: skip
        finally:
            for process in busy:
                process.kill()
                process.wait()
        hold(
            done.returncode == 0,
            f"{circumstance}, {pair}: exit code {done.returncode}: {done.stderr[-1500:].decode('utf-8', 'replace')}",
        )
        try:
            same_directory(only_run(self.place / "runs"), expected)
        except Exception as error:
            raise type(error)(f"{circumstance}, {pair}: {error}") from None
        return 1

    def _file(self, pair: str, folder: Path) -> Path:
        """The experiment file, relative to the working directory."""
        return Path(os.path.relpath(self.folder / pair / "experiment.toml", folder))
