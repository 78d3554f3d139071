"""Counts the steps of all PyTorch optimizers in the process."""

from itertools import count
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

_counter = count()


def _count(*_: Any) -> None:
    next(_counter)


register_optimizer_step_post_hook(_count)


def steps() -> int:
    """Number of steps since the last call."""
    global _counter
    taken, _counter = next(_counter), count()
    return taken
