"""What a failed call leaves of a strategy."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from fedcohort.selection import Selector

__all__ = ["restored_on_failure"]


@contextmanager
def restored_on_failure(selector: Selector) -> Iterator[None]:
    """Let a strategy select or learn; if that raises an error, its state is as before."""
    before = copy.deepcopy(selector.state_dict())
    try:
        yield
    except BaseException:
        selector.load_state_dict(before)
        raise
