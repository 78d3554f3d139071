"""The one error users meet. Everything they can get wrong ends here; a traceback is for our bugs."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UsageError", "nearest"]


class UsageError(Exception):
    """A setting, a file or an input that cannot be used.

    The message is one line that names the parameter, its value and what would work. The command line prints it and exits
    with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


def nearest(word: str, valid: Iterable[str]) -> str:
    """What to say after an unknown ``word``: the nearest valid names, or all of them when none is near."""
    names = sorted(valid)
    close = get_close_matches(word, names, n=1, cutoff=0.5)
    known = ", ".join(names)
    return f"did you mean {close[0]!r}? (valid: {known})" if close else f"valid: {known}"
