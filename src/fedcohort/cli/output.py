"""Standard output that shows as many characters as it can, and that may be closed by the program that reads it."""

import codecs
import os
import sys
from typing import NoReturn
from unicodedata import east_asian_width

import click

__all__ = ["CLOSED_PIPE", "drop_output", "echo", "end_at_closed_pipe", "show_all_characters"]

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
