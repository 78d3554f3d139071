"""The command line: one file for each family of commands, and the options they share."""

from fedcohort.cli.entry import cli, main

__all__ = ["cli", "main"]
