"""The options that name files for a table: LaTeX and CSV."""

import click

from fedcohort.cli.options import Option, remember
from fedcohort.core.files.paths import check_target, check_writable

__all__ = ["csv_option", "latex_option"]


def _remember_target(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember the file that an option names, after checking that it may be written."""
    if value is not None:
        check_target(value, option.opts[0], {"latex": ".tex", "csv": ".csv"}[str(option.name)])
        check_writable(value, option.opts[0])
    remember(context, option, value)


latex_option: Option = click.option(
    "--latex",
    metavar="FILE.tex",
    expose_value=False,
    callback=_remember_target,
    help="Also write the table in LaTeX, for a paper that uses booktabs and graphicx.",
)

csv_option: Option = click.option(
    "--csv",
    metavar="FILE.csv",
    expose_value=False,
    callback=_remember_target,
    help="Also write all columns as CSV, with all digits.",
)
