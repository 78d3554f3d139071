"""How a command ends without a traceback."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    pass

__all__ = ["Stopped", "Wrong"]


class Wrong(click.ClickException):
    """What users can get wrong: one line on standard error."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"fedcohort: error: {self.message}", err=True)


class Stopped(click.ClickException):
    """Ctrl-C, which nobody got wrong."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"fedcohort: {self.message}", err=True)
