"""Write a page to a file."""

from pathlib import Path

import click

from fedcohort.core.files.durable_files import write_named_file
from fedcohort.core.files.paths import check_target
from fedcohort.core.words import formatted_values

__all__ = ["write_page"]


def write_page(output: str, text: str, *, quiet: bool = False) -> None:
    """Write a page to a file, and print its size.

    Raises:
        UsageError: the file cannot be written.
    """
    check_target(output, "--output")
    size = write_named_file(output, text, f"--output {output}")
    if not quiet:
        click.echo(f"{Path(output)}: {formatted_values.size(size)}")
