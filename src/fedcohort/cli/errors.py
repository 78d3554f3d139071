"""Errors that end a command without a traceback."""

import contextlib
import signal
import sys
from typing import IO, Any

import click

__all__ = ["Stopped", "Wrong", "show_anywhere"]


class Wrong(click.ClickException):
    """An error in the command or its input: one line on standard error, and exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"fedcohort: error: {self.message}", file=file or sys.stderr)


class Stopped(click.ClickException):
    """The command was ended by Ctrl-C, SIGTERM or SIGHUP: one line on standard error, and exit code 130, 143 or 129.

    Args:
        message: how to go on.
        signum: number of the signal.
    """

    def __init__(self, message: str, signum: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum  # type: ignore[misc]  # click declares it for the class

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"fedcohort: {self.message}", file=file or sys.stderr)


def show_anywhere(error: Wrong) -> None:
    """Show an error; on standard output if standard error cannot be written, such as a file on a full disk."""
    try:
        error.show()
        sys.stderr.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            error.show(sys.stdout)
