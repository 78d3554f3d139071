"""The error for settings, files and inputs that cannot be used. Any other exception is a bug in FedCohort."""

from collections.abc import Iterable
from difflib import get_close_matches

from fedcohort.core.synonyms import meant

__all__ = ["UsageError", "nearest"]


class UsageError(Exception):
    """A setting, a file or an input that cannot be used.

    The message is one line: the parameter, its value, and a value that works. The command line prints it and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint for an unknown ``word``: the valid name that it is another word for, or the most similar one, and all valid names."""
    names = sorted(valid)
    close = meant(word, names) or next(iter(get_close_matches(word, names, n=1, cutoff=0.5)), None)
    known = ", ".join(names)
    return f"did you mean {close!r}? (valid: {known})" if close else f"valid: {known}"
