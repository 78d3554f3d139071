"""The command line: one file for each family of commands, and the options that several of them share."""

import os
from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.core.signals import handle

if TYPE_CHECKING:
    from fedcohort.cli.entry import cli

__all__ = ["cli", "main"]

__getattr__, __dir__ = lazy_names(__name__, {"cli": "entry:cli"})


def main() -> None:
    """Run the ``fedcohort`` command."""
    handle(_end_at_once)
    from fedcohort.cli import entry  # a signal during this import, which takes a moment, is no traceback

    entry.main()


def _end_at_once(signum: int, _: object) -> None:
    """A handler of signals for the time before a command begins."""
    os.write(2, b"fedcohort: interrupted\n")
    os._exit(128 + signum)
