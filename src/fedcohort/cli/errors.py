"""Errors that end a command without a traceback."""

import sys
from typing import IO, Any

import click

__all__ = ["Stopped", "Wrong"]


class Wrong(click.ClickException):
    """An error in the command or its input: one line on standard error, and exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"fedcohort: error: {self.message}", file=file or sys.stderr)


class Stopped(click.ClickException):
    """The command was interrupted with Ctrl-C: one line on standard error, and exit code 130."""

    exit_code = 130

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"fedcohort: {self.message}", file=file or sys.stderr)
