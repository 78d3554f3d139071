"""The command line: one file for each family of commands, and one for all options."""

from fedcohort.cli.entry import cli, main

__all__ = ["cli", "main"]
