"""Write a page to a file."""

from pathlib import Path

import click

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import replace_file
from fedcohort.core.files.paths import check_target
from fedcohort.core.words import formatted_values

__all__ = ["write_page"]


def write_page(output: str, text: str, *, quiet: bool = False) -> None:
    """Write a page to a file, and print its size.

    Raises:
        UsageError: the file cannot be written.
    """
    check_target(output, "--output")
    file, content = Path(output), text.encode(errors="backslashreplace")  # names of files need not be valid Unicode
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content)
    except OSError as error:
        raise UsageError(f"--output {file}: cannot be written ({error.strerror}); give another file") from None
    if not quiet:
        click.echo(f"{file}: {formatted_values.size(len(content))}")
