"""Descriptions of experiments that a fuzzer wrote.

They have wrong types, limits, nesting, unicode, long values, ``--set`` options, variants and sweeps. Each ends with exit code 0 or 2;
an error is one line of at most 300 characters; none takes longer than five seconds. The fuzzer is
:mod:`tests.experiment.description_fuzzer`.
"""

import importlib
import random
import time

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
        ended = begin(lambda: self._try(fuzzer, seed), self.place).wait(self.limit - 30)
        hold(ended.code == 0, ended.out[-3000:] or f"exit code {ended.code}: {ended.err[-3000:]}")
        return BLOCK

    def _try(self, fuzzer: object, seed: int) -> int:
        """Try the descriptions, and print what is wrong; 1 if something is."""
        wrong = 0
        for index, case in enumerate(fuzzer.cases(seed, BLOCK)):  # type: ignore[attr-defined]
            start = time.process_time()
            complaint = fuzzer.complaint(fuzzer.outcome(case, self.place / "work"))  # type: ignore[attr-defined]
            if complaint or time.process_time() - start > 6:
                wrong += 1
                print(
                    f"description {index} of fuzzer seed {seed}: {complaint[-1500:] or 'too slow'}; {str(case)[:600]}"
                )
        return int(wrong > 0)
