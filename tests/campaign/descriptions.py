"""Descriptions of experiments that a fuzzer wrote.

They have wrong types, limits, nesting, unicode, long values, ``--set`` options, variants and sweeps. Each ends with exit code 0 or 2;
an error is one line of at most 300 characters; none takes longer than five seconds. The fuzzer is
:mod:`tests.experiment.description_fuzzer`.
"""

import importlib
import math
import random
from typing import Any

from tests.campaign.attack import Attack, hold
from tests.campaign.forked import begin

__all__ = ["Descriptions"]

BLOCK = 100
"""Descriptions in a case: they share a child process."""


class Descriptions(Attack):
    """Fuzzed experiment files and options."""

    name = "descriptions"
    did = (
        "fuzzed experiment files and `--set` options: exit code 0 or 2, one line, at most 300 characters and 5 seconds"
    )
    unit = "descriptions"
    full = 200
    least = 4
    small = (0,)
    limit = 600.0

    def case(self, number: int, draw: random.Random) -> int:
        """A hundred descriptions."""
        fuzzer = importlib.import_module("tests.experiment.description_fuzzer")
        seed = draw.getrandbits(48)
        (self.place / "work").mkdir()
        slowest = math.inf if number in self.small else fuzzer.MAX_SECONDS  # the usual tests assert no seconds
        ended = begin(lambda: self._try(fuzzer, seed, slowest), self.place).wait(self.limit - 30)
        hold(ended.code == 0, ended.out[-3000:] or f"exit code {ended.code}: {ended.err[-3000:]}")
        return BLOCK

    def _try(self, fuzzer: Any, seed: int, slowest: float) -> int:
        """Try the descriptions, and print what is wrong; 1 if something is."""
        wrong = 0
        for index, case in enumerate(fuzzer.cases(seed, BLOCK)):
            if complaint := fuzzer.complaint(fuzzer.outcome(case, self.place / "work"), slowest):
                wrong += 1
                print(f"description {index} of fuzzer seed {seed}: {complaint[-1500:]}; {str(case)[:600]}")
        return int(wrong > 0)
