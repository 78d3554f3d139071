"""Texts that are divided among speaking roles, as windows of characters: a play in a file, or any list of (role, text).

A text becomes a data set in the way of LEAF's Shakespeare (Caldas et al. 2018, arXiv:1812.01097): the lines of each role are joined,
and cut into windows that do not overlap. A role is a client of ``partition = "natural"``.
"""

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from os import PathLike
from pathlib import Path

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import kind_of
from fedcohort.core.words.formatted_values import counted
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.datasets import held_out
from fedcohort.federation.data.token_data import TokenDataset, from_tokens

__all__ = ["TEST_SHARE", "from_text", "read_play"]

TEST_SHARE = 0.2
"""Share of each role's windows in the test set."""
MAX_BYTES = 100_000_000
"""Maximum size of a text file."""
MAX_ROLE = 60
"""Maximum number of characters of a role."""
NAMES = {"\n": "newline", " ": "space", "\t": "tab", "\r": "return"}
"""Characters → names in tables."""


def from_text(
    lines: Iterable[tuple[str, str]], *, window: int = 32, task: str = "next", name: str = "text"
) -> TokenDataset:
    """Make a data set from what roles say.

    Args:
        lines: (role, text), in order. The lines of a role are joined with line breaks.
        window: number of characters of a sample, L.
        task: ``next``: each position's label is the character after it; ``role``: the label of a window is its role.
        name: name of the data set in messages and tables.

    The tokens are the different characters of the text. The windows of a role do not overlap; a rest that is shorter than a window is
    left out. :data:`TEST_SHARE` of each role's windows, always the same ones, are the test set.

    Raises:
        UsageError: a wrong argument, or a text that is too short for a training and a test window.
    """
    where = brief(name)
    if task not in ("next", "role"):
        raise UsageError(f"{where}: task = {task!r}: valid are 'next' and 'role'")
    if not isinstance(window, Integral) or not 1 <= window <= 100_000:
        raise UsageError(f"{where}: window = {shown(window)}: should be a number of characters from 1 to 100,000")
    said: dict[str, list[str]] = {}
    for role, text in _pairs(lines, where):
        said.setdefault(role, []).append(text)
    texts = {role: "".join(f"{text}\n" for text in parts) for role, parts in said.items()}
    alphabet = "".join(sorted(set("".join(texts.values()))))
    roles, windows = _windows(texts, alphabet, window + (task == "next"), window)
    in_test = held_out(roles, TEST_SHARE)
    if not in_test.any() or in_test.all():
        longest = max(map(len, texts.values()), default=0)
        raise UsageError(
            f"{where}: window = {window}: gives {counted(len(roles), 'window')} of {counted(len(texts), 'role')}, the longest of "
            f"which has {longest:,} characters; use a smaller window (data.window) or a longer text, so that a role has 3 windows"
        )
    labels = windows[:, 1:] if task == "next" else roles
    tokens = windows[:, :window]
    train, test = ((np.ascontiguousarray(tokens[part]), labels[part]) for part in (~in_test, in_test))
    return from_tokens(
        train, test, name=name, clients=np.array(list(texts))[roles[~in_test]],
        vocabulary=[NAMES.get(c, c if c.isprintable() else f"U+{ord(c):04X}") for c in alphabet],
        classes=None if task == "next" else list(texts),
    )  # fmt: skip


def _pairs(lines: Iterable[tuple[str, str]], where: str) -> Iterator[tuple[str, str]]:
    """The pairs (role, text), checked.

    Raises:
        UsageError: something is no such pair, or all of it is a path or a dictionary.
    """
    if isinstance(lines, str | PathLike):
        raise UsageError(
            f"{where}: lines = {shown(lines)}: should be pairs of texts (role, text); to read a text file, name it in the experiment: "
            "data.name = 'play.txt'"
        )
    if isinstance(lines, Mapping):
        raise UsageError(f"{where}: lines is a dictionary; give pairs of texts (role, text): lines.items()")
    for line in lines:
        if not (isinstance(line, tuple | list) and len(line) == 2 and all(isinstance(part, str) for part in line)):
            raise UsageError(f"{where}: lines: {shown(line)} should be a pair of texts (role, text)")
        yield line[0], line[1]


def _windows(texts: dict[str, str], alphabet: str, length: int, step: int) -> tuple[Indices, Indices]:
    """The role of each window, int64 [N], and its characters as positions in the alphabet, int64 [N, length]."""
    points = np.array([ord(c) for c in alphabet], dtype=np.int64)
    roles, windows = [np.zeros(0, dtype=np.int64)], [np.zeros((0, length), dtype=np.int64)]
    for role, text in enumerate(texts.values()):
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
        if len(codes) < length:
            continue
        own = np.lib.stride_tricks.sliding_window_view(np.searchsorted(points, codes), length)[::step]
        roles.append(np.full(len(own), role))
        windows.append(own)
    return np.concatenate(roles), np.concatenate(windows)


def read_play(path: str | Path, *, window: int = 32, task: str = "next") -> TokenDataset:
    """Read a text file with lines ``ROLE: text``, the role in capitals, and make a data set of it, see :func:`from_text`.

    A line without a role belongs to the role before; empty lines, and lines before the first role, are left out.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or has no line with a role.
    """
    given = brief(path)
    try:
        if (kind := kind_of(Path(path))) not in ("", "a file"):  # a pipe would be waited for
            raise UsageError(f"data.name = '{given}': is {kind}; give a text file with lines ROLE: text")
        if Path(path).stat().st_size > MAX_BYTES:
            raise UsageError(
                f"data.name = '{given}': has more than {MAX_BYTES // 1_000_000} MB; use a part of the text"
            )
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"data.name = '{given}': is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"data.name = '{given}': cannot be read ({reason}); give a text file with lines ROLE: text"
        ) from None
    lines: list[tuple[str, str]] = []
    for line in text.splitlines():
        role, colon, rest = line.partition(":")
        role = role.strip()
        if colon and _is_role(role):
            lines.append((role, rest.strip()))
        elif line.strip() and lines:
            lines.append((lines[-1][0], line.strip()))
    if not lines:
        raise UsageError(
            f"data.name = '{given}': has no line of the form ROLE: text, with the role in capitals, as in HAMLET: Ay."
        )
    return from_text(lines, window=window, task=task, name=Path(path).name)


def _is_role(text: str) -> bool:
    """Whether a text before a colon is the name of a role: short, with letters, all of them capitals."""
    return len(text) <= MAX_ROLE and text.isprintable() and any(map(str.isalpha, text)) and text == text.upper()
