"""Standard output that shows as many characters as it can, and that may be closed by the program that reads it."""

import codecs
import os
import re
import shutil
import sys
import textwrap
from typing import NoReturn
from unicodedata import east_asian_width

import click

__all__ = [
    "CLOSED_PIPE",
    "drop_output",
    "echo",
    "end_at_closed_pipe",
    "folded",
    "show_all_characters",
    "terminal_width",
]

CLOSED_PIPE = 141
"""Exit code if the program that reads the output ends first, as of programs that are ended by the signal SIGPIPE: 128 + 13."""

_SUBSTITUTES = {
    "−": "-", "–": "-", "—": "-", "…": "...", "·": "-", "×": "x", "±": "+/-", "≥": ">=", "≤": "<=", "→": "->", "∞": "inf",
    "“": '"', "”": '"', "‘": "'", "’": "'", "─": "-", "━": "-", "│": "|",
}  # fmt: skip
"""What replaces characters of FedCohort's own texts; all others become question marks."""


def show_all_characters() -> None:
    """Let standard output and standard error replace the characters that their encoding does not have."""
    codecs.register_error("fedcohort.substitute", _substitute)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="fedcohort.substitute")


def _substitute(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    wide = {character: "??" for character in characters if east_asian_width(character) in "WF"}
    return "".join((_SUBSTITUTES | wide).get(character, "?") for character in characters), error.end


def echo(text: str, *, err: bool = False) -> None:
    """Print a line, in the encoding of the stream; click would write UTF-8 into a stream that is ASCII."""
    click.echo(text, file=sys.stderr if err else sys.stdout)


def terminal_width() -> int | None:
    """Width of the terminal in characters, also if ``COLUMNS`` names it; None if the output is not a terminal."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


_BEGINNING = re.compile(r"\s*(?:\S+\s{2,})?")
"""What lines that continue a line are indented below: its indentation, and a name that two spaces or more separate from the rest."""

_COMMAND = re.compile(r"pip (?:un)?install [^\s,;]+(?: --index-url \S+)?")
"""A command that must stay on one line, so that it can be copied."""


def folded(line: str, width: int | None) -> list[str]:
    """The lines that a line of names and texts becomes in a terminal of ``width`` characters; None keeps it whole.

    Words and commands are not cut, so that a line can stay longer than the terminal.
    """
    if width is None or len(line) <= width:
        return [line]
    beginning = _BEGINNING.match(line)
    assert beginning is not None
    indent = " " * min(max(beginning.end(), 2), width // 2)
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", "\xa0"), line)
    lines = textwrap.wrap(
        whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [part.replace("\xa0", " ") for part in lines]


def end_at_closed_pipe() -> NoReturn:
    """End the program without a message, since the program that reads the output has ended."""
    drop_output(CLOSED_PIPE)


def drop_output(exit_code: int) -> NoReturn:
    """End the program; output that cannot be written is dropped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(nowhere, stream.fileno())  # what is left in the buffer would raise the same error at exit
    os.close(nowhere)
    raise SystemExit(exit_code)
