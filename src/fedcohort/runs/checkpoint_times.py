"""When the rounds of a run are written to its record, and when a checkpoint is.

Short rounds are written together, because a transaction and a checkpoint can take longer than such a round. A process that is killed
then loses the rounds since the last checkpoint, and they are played again with the same bits.
"""

import math
import time
from collections.abc import Callable

from fedcohort.experiment.sections import Measures

__all__ = ["CHECKPOINT_SHARE", "CheckpointTimes"]

CHECKPOINT_SHARE = 0.02
"""Largest share of the time that a run spends on checkpoints whose number of rounds is not given."""


class CheckpointTimes:
    """Says after which rounds the record and a checkpoint are due. The first round of a process always is.

    Args:
        measures: the settings: ``checkpoint_every``, ``checkpoint_seconds``.
        every_round: write every round and a checkpoint after it, unless ``checkpoint_every`` is set.
        clock: gives the time in seconds.
    """

    def __init__(
        self, measures: Measures, *, every_round: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rounds = measures.checkpoint_every or int(every_round or not measures.checkpoint_seconds)
        self._seconds, self._clock = measures.checkpoint_seconds, clock
        self._next_checkpoint = self._next_record = -math.inf

    def checkpoint_due(self, t: int) -> bool:
        """Whether round ``t``, which has just been played, gets a checkpoint."""
        return t % self._rounds == 0 if self._rounds else self._clock() >= self._next_checkpoint

    def checkpoint_took(self, seconds: float) -> None:
        """A checkpoint was written, which took this long."""
        self._next_checkpoint = self._clock() + max(self._seconds, seconds / CHECKPOINT_SHARE)

    def record_due(self) -> bool:
        """Whether the rounds that are not written yet are written now."""
        return self._rounds > 0 or self._clock() >= self._next_record

    def recorded(self) -> None:
        """All finished rounds were written."""
        self._next_record = self._clock() + self._seconds
