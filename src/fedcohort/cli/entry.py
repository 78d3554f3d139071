"""The ``fedcohort`` command: its subcommands, and how it reports errors.

Modules that are slow to import are imported in the subcommands that need them.
"""

import os
import re
import signal
import sqlite3
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from fedcohort.cli.advise import advise
from fedcohort.cli.catalogue import strategies
from fedcohort.cli.data import data
from fedcohort.cli.deploy import deploy, site
from fedcohort.cli.doctor import doctor
from fedcohort.cli.errors import Stopped, Wrong, show_anywhere
from fedcohort.cli.json_schema import schema
from fedcohort.cli.option_names import with_option_names
from fedcohort.cli.output import drop_output, end_at_closed_pipe, show_all_characters
from fedcohort.cli.pages import figures, live, profile, report
from fedcohort.cli.play_runs import compare, run, sweep
from fedcohort.cli.race import race
from fedcohort.cli.read_runs import diagnose, measure, why
from fedcohort.core.errors import UsageError, one_line
from fedcohort.core.files.durable_files import is_disk_full
from fedcohort.core.signals import Signalled, handle, number_of, raise_again, raise_signalled
from fedcohort.core.user_code.own_code import raised_in, with_place
from fedcohort.core.version import __version__
from fedcohort.core.words.synonyms import meant
from fedcohort.runs.named_warnings import name_of_run

__all__ = ["cli", "main"]


PLAYING = {"run", "compare", "sweep", "race", "advise"}
"""Commands that play rounds, and continue where they were interrupted."""

_DID_YOU_MEAN = re.compile(r"\. \(?Did you mean (one of: )?(?P<names>[^?]*)\?\)?$")
"""How click ends a message about an unknown option or command."""

KEPT = "; finished rounds are kept, and the same command resumes the run"


def main() -> None:
    """Run the ``fedcohort`` command."""
    warnings.showwarning = _warn
    sys.unraisablehook = raise_again
    show_all_characters()
    handle(raise_signalled)
    try:
        _run_command()
    except Signalled as late:  # the command was ending already, and has said why
        os._exit(128 + late.signum)


def _run_command() -> None:
    """See :func:`main`.

    Raises:
        SystemExit: always, with the exit code.
        Signalled: a signal was received after the end of the command.
    """
    try:
        try:
            cli(prog_name="fedcohort")
        finally:
            handle(lambda signum, _: os._exit(128 + signum))  # a signal while threads end is no traceback
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        end_at_closed_pipe()
    except OSError as error:  # standard output is a file on a full disk, or a path cannot be used
        place = "cannot write" if error.filename is None else os.fsdecode(error.filename)
        ended = error.__context__  # Python 3.14 tries again to write what could not be written when the command ended
        if not isinstance(ended, SystemExit) or not ended.code:
            show_anywhere(_disk_full(error) if is_disk_full(error) else Wrong(one_line(f"{place}: {error.strerror}")))
        drop_output(Wrong.exit_code)


class _Commands(click.Group):
    """Commands in the order of their definition. A :class:`UsageError` ends them with a message of one line."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **settings)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise Wrong(_one_line(error, "fedcohort")) from None
        except BrokenPipeError:
            end_at_closed_pipe()
        except KeyboardInterrupt as stopped:
            raise _stopped("interrupted", stopped) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            Path.cwd()
        except FileNotFoundError:  # libraries would end the process, or raise errors of their own
            raise Wrong("the current folder was removed; change to another folder") from None
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise Wrong(with_option_names(str(error))) from None
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:  # one line, as for all other errors of users
            raise Wrong(_one_line(error, f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip())) from None
        except BrokenPipeError:
            end_at_closed_pipe()
        except KeyboardInterrupt as stopped:
            kept = KEPT if ctx.invoked_subcommand in PLAYING else ""
            raise _stopped(f"interrupted{kept}", stopped) from None
        except (OSError, sqlite3.OperationalError) as error:
            if not is_disk_full(error):
                raise
            raise _disk_full(error) from None
        except BaseException as error:
            wrong = _named(error)
            if wrong is None:
                raise
            raise wrong from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Compare client selection strategies for federated learning."""


def _stopped(message: str, interrupt: KeyboardInterrupt) -> Stopped:
    """The end of a command by a signal; further signals do nothing until the message has been printed."""
    if signal.getsignal(signal.SIGTERM) is raise_signalled:  # main() began the command
        handle(lambda *_: None)
    return Stopped(message, number_of(interrupt))


def _disk_full(error: OSError | sqlite3.OperationalError) -> Wrong:
    """The message about a full disk, wherever in a command it was met: at the end, where the output was kept until then."""
    reason, name = getattr(error, "strerror", None) or error, getattr(error, "filename", None)
    file = f" {name}" if name else ""
    return Wrong(f"cannot write{file}: {reason}; free some space, and start the same command again")


def _named(error: BaseException) -> Wrong | None:
    """What a function of a user raised that is no Exception, as one line; None for any other error."""
    function = "" if isinstance(error, Exception | SystemExit) else raised_in(error)
    return Wrong(one_line(f"{function} raised {with_place(error)}")) if function else None


def _one_line(error: click.UsageError, command: str) -> str:
    """The message about a wrong option or argument, and where its help is: at ``command``, unless the error knows better."""
    where = error.ctx.command_path if error.ctx is not None else command
    message = error.format_message().rstrip(".")
    if isinstance(error, click.BadParameter) and error.param is not None and error.param.opts:
        message = message.replace(f"Invalid value for '{error.param.opts[0]}':", error.param.opts[0])
    statement, suggestion = message, ""
    if hint := _DID_YOU_MEAN.search(message):
        statement, suggestion = message[: hint.start()], f" (did you mean {hint['names'].replace(', ', ' or ')}?)"
    if key := _setting_meant(error):
        suggestion = f": give a setting of the experiment as --set {key}=VALUE"
    return one_line(f"{statement}{suggestion}; see `{where} --help`")


def _setting_meant(error: click.UsageError) -> str | None:
    """The key of the experiment that an unknown option such as ``--rounds`` stands for, if the command has ``--set``."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    if not any("--set" in parameter.opts for parameter in error.ctx.command.params):
        return None
    from fedcohort.experiment import Experiment

    word = error.option_name.lstrip("-")
    section, dot, _ = word.partition(".")
    if dot:
        return word if section in Experiment.model_fields else None
    return meant(word, Experiment.model_fields)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(f"fedcohort: warning: {name_of_run()}{' '.join(str(message).split())}", file=sys.stderr)


for command in (
    run, compare, sweep, race, advise, measure, why, diagnose, report, figures, live, profile, data, strategies, doctor, schema,
    deploy, site,
):  # fmt: skip
    cli.add_command(command)
