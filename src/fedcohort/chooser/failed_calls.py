"""What a failed call leaves of a strategy, and how calls at the same time are refused."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from fedcohort.core.errors import UsageError
from fedcohort.selection import Selector

__all__ = ["OneCall", "restored_on_failure"]


class OneCall:
    """Lets one call at a time use a strategy. It has no lock, so that it can be copied."""

    def __init__(self) -> None:
        self._free = [True]

    @contextmanager
    def of(self, t: int) -> Iterator[None]:
        """Hold the strategy during a block.

        Args:
            t: the round in which the strategy works meanwhile, for messages.

        Raises:
            UsageError: another call, of another thread or around this one, holds it.
        """
        try:
            free = self._free.pop()  # of several threads, only one gets it
        except IndexError:
            raise UsageError(
                f"the strategy is at work in round {t}: wait until select(…) or observe(…) has returned"
            ) from None
        try:
            yield
        finally:
            self._free.append(free)


@contextmanager
def restored_on_failure(selector: Selector) -> Iterator[None]:
    """Let a strategy select or learn; if that raises an error, its state is as before."""
    before = copy.deepcopy(selector.state_dict())
    try:
        yield
    except BaseException:
        selector.load_state_dict(before)
        raise
