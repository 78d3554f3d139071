"""The error for settings, files and inputs that cannot be used, and how values appear in its message.

Any other exception is a bug in FedCohort.
"""

import re
import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import accumulate, islice

from fedcohort.core.words.synonyms import meant

__all__ = ["LONGEST", "LONGEST_VALUE", "UsageError", "nearest", "one_line", "shown", "without_addresses"]

LONGEST = 300
"""Length in characters of the longest message."""

LONGEST_VALUE = 100
"""Length in characters of the longest value in a message."""

LONGEST_LIST = 130
"""Length in characters of the longest list of valid names in a message."""

LONGEST_NAME = 100
"""Length in characters of the longest unknown name for which similar names are searched."""


class UsageError(Exception):
    """A setting, a file or an input that cannot be used.

    The message is one line of at most :data:`LONGEST` characters: the parameter, its value, and a value that works. The command line
    prints it and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def one_line(text: object) -> str:
    """``text`` in one line of at most :data:`LONGEST` characters, without control characters and addresses in memory.

    If it is too long, its longest words are shortened in the middle first, since they are values or paths. Only if that is not enough,
    the middle of the text is left out.
    """
    words = without_addresses(str(text)).split()
    for longest in (LONGEST, 120, 80, 50):
        words = [_without_middle(word, longest) for word in words]
        line = _printable(_without_middle(" ".join(words), 4 * LONGEST))
        if len(line) <= LONGEST:
            return line
    return _without_middle(line, LONGEST)


def without_addresses(text: str) -> str:
    """``text`` without the addresses in memory that the ``repr`` of functions and of many objects has.

    >>> without_addresses("<function mean at 0x7f5a1c0>")
    '<function mean>'
    """
    return re.sub(r" at 0x[0-9a-fA-F]{5,}\b", "", text)


def shown(value: object) -> str:
    """``repr(value)`` for a message: long and nested values are shortened."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # the repr of an object of a user
        text = f"<{type(value).__name__}>"
    return _without_middle(text, LONGEST_VALUE)


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint for an unknown ``word``: the valid name that it is another word for, or the most similar one, and valid names."""
    names = sorted(valid)
    close = (meant(word, names) or _similar(word, names)) if len(word) <= LONGEST_NAME else None
    known = _listed(names)
    return f"did you mean {close!r}? (valid: {known})" if close else f"valid: {known}"


def _similar(word: str, names: list[str]) -> str | None:
    """The most similar name; one of another length only if one of the two holds the other, as ``client`` in ``client_column``.

    >>> _similar("st-mary", ["mayo"]), _similar("time", ["utility_time"])
    (None, 'utility_time')
    """
    close = get_close_matches(word, names, n=len(names) or 1, cutoff=0.5)
    alike = get_close_matches(word, close, n=1, cutoff=0.6)
    return next((name for name in [*alike, *close] if name in alike or word in name or name in word), None)


def _listed(names: list[str]) -> str:
    """Names with commas between them; if they are too long together, only the first ones and the number of all."""
    quoted = [repr(name) if ", " in name else name for name in names]
    known = ", ".join(quoted)
    if len(known) <= LONGEST_LIST:
        return known
    ends = accumulate(len(name) + 2 for name in quoted)
    first = [name for name, end in zip(quoted, ends, strict=True) if end < LONGEST_LIST - 18]
    return f"{', '.join(first or quoted[:1])}, … ({len(names)} names)"


def _without_middle(text: str, longest: int) -> str:
    """``text`` with at most ``longest`` characters; the end is longer than the beginning, because paths end in the file's name."""
    if len(text) <= longest:
        return text
    begin = 2 * longest // 5
    return f"{text[:begin]}…{text[-(longest - begin - 1) :]}"


def _printable(text: str) -> str:
    """``text`` with escapes in place of control characters, surrogates and other characters that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _Short(reprlib.Repr):
    """``repr`` with limits; dictionaries keep their order, and integers may have any length."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxtuple, self.maxdict, self.maxset = 4, 20, 20, 20, 20
        self.maxstring = self.maxlong = self.maxother = LONGEST_VALUE

    def repr_dict(self, x: Mapping[object, object], level: int) -> str:
        """See :class:`reprlib.Repr`."""
        if level <= 0:
            return "{...}" if x else "{}"
        pieces = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        ]
        return f"{{{', '.join([*pieces, *(['...'] if len(x) > self.maxdict else [])])}}}"

    def repr_instance(self, x: object, level: int) -> str:  # noqa: ARG002
        """See :class:`reprlib.Repr`; without addresses in memory."""
        try:
            text = repr(x)
        except Exception:  # the repr of an object of a user
            return f"<{type(x).__name__}>"
        return _without_middle(without_addresses(text), self.maxother)

    def repr_int(self, x: int, level: int) -> str:
        """See :class:`reprlib.Repr`."""
        return super().repr_int(x, level) if x.bit_length() < 10_000 else f"<integer of {x.bit_length()} bits>"


_SHORT = _Short()
