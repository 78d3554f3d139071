"""Errors in code of users become one line that names the function and the line of code."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.own_code import about_missing_file, last_own_file, place_of, raised_in, with_place
from fedcohort.selection import Selector

__all__ = ["ProgressError", "naming_own_code", "passed_on"]


class ProgressError(Exception):
    """A user's progress function raised ``error``, which users may do to end a run: it reaches the caller unchanged."""

    def __init__(self, error: Exception | SystemExit) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def passed_on(progress: Callable[..., None], *arguments: object) -> None:
    """Call a user's progress function.

    Raises:
        ProgressError: the function raised an error.
    """
    try:
        progress(*arguments)
    except (Exception, SystemExit) as error:
        raise ProgressError(error) from error


@contextmanager
def naming_own_code(where: str = "") -> Iterator[None]:
    """Raise errors of users' functions that are called in this block as :class:`UsageError`, with the original error as its cause.

    All other errors pass unchanged: they are bugs in FedCohort.

    Args:
        where: when the functions are called, for messages, such as ``"round 3"``.

    Raises:
        UsageError: a function of the user raised an error; the message names the function, the file and the line.
        ClientError: the function worked for a client; the message also names the client. It is a :class:`UsageError` as well.
    """
    try:
        yield
    except (UsageError, ProgressError):
        raise
    except (Exception, SystemExit) as raised:  # sys.exit() would end the command without a word
        error = raised
        if isinstance(raised, RuntimeError) and isinstance(raised.__cause__, StopIteration):
            error = raised.__cause__  # a generator that the error passed has replaced it
        explained = _explained(error, f"{where}: " if where else "")
        if explained is None:
            raise
        raise explained from error.__cause__ if isinstance(explained, RuntimeError) else error


def _explained(error: Exception | SystemExit, where: str) -> UsageError | None:
    """The error to raise; None if the error was not raised in code of the user."""
    from fedcohort.engines.base import ClientError, OwnClientError

    if isinstance(error, ClientError):
        cause = error.__cause__
        if isinstance(cause, UsageError):
            return OwnClientError(f"{where}{error}")
        if cause is None or not raised_in(cause):
            return None
        return OwnClientError(f"{where}{error}{place_of(cause)}")
    function = raised_in(error)
    if not function:
        return None
    advice = about_missing_file(error, Path(last_own_file(error))) or _about_histogram(error)
    return UsageError(f"{where}{function} raised {with_place(error)}{'; ' if advice else ''}{advice}")


def _about_histogram(error: BaseException) -> str:
    """What to declare if a strategy uses label counts, which are None unless it needs them; empty for other errors."""
    if not isinstance(error, AttributeError | TypeError) or "NoneType" not in str(error):
        return ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        strategy = frame.f_locals.get("self")
        if isinstance(strategy, Selector) and "histogram" in frame.f_code.co_names:
            needs = strategy.needs | {"histogram"}
            declared = f"needs = frozenset({{{', '.join(map(repr, sorted(needs)))}}})"
            return (
                ""
                if needs == strategy.needs
                else f"census.histogram is None: add {declared} to {type(strategy).__name__}"
            )
    return ""
