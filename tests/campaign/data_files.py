"""Hostile and damaged data files: images, parquet, npz, folders, arrays and cache entries that no program should trust.

Each loads and is valid, or is refused in one line; nothing of it is executed, nothing is printed. The generator is
:mod:`tests.federation.data.hostile_files`.
"""

import importlib
import itertools
import os
import random
import shutil

from tests.campaign.attack import Attack, hold
from tests.campaign.forked import begin

__all__ = ["DataFiles"]

BLOCK = 20
"""Data files in a case: they share a child process."""


class DataFiles(Attack):
    """Data that are attacks."""

    name = "data-files"
    did = "hostile and damaged images, parquet, npz, folders, arrays and cache entries: valid, or refused in one line"
    unit = "data files"
    full = 100
    least = 2
    small = (0, 1)
    limit = 600.0

    def case(self, number: int, draw: random.Random) -> int:
        """Twenty data files; their kinds take turns."""
        ended = begin(lambda: self._try(number), self.place).wait(self.limit - 30)
        hold(ended.code == 0, ended.out[-3000:] or f"exit code {ended.code}: {ended.err[-3000:]}")
        return BLOCK

    def _try(self, number: int) -> int:
        """Play the data files, and print what is wrong; 1 if something is."""
        files = importlib.import_module("tests.federation.data.hostile_files")
        wrong = 0
        for case in itertools.islice(files.cases(self.seed, BLOCK * (number + 1)), BLOCK * number, None):
            folder = self.place / "data"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(self.place / "cache", ignore_errors=True)
            folder.mkdir()
            os.environ["FEDCOHORT_CACHE"] = str(self.place / "cache")
            problem = files.problem(case, folder)
            if problem:
                wrong += 1
                print(f"{case} of seed {self.seed}: {problem[-1500:]}")
        return int(wrong > 0)
