"""Errors in code of users: find the line in the user's file that raised an error, and say it in one line."""

import sys
import sysconfig
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

__all__ = [
    "about_missing_file",
    "ends_in_own_code",
    "is_of_package",
    "is_of_user",
    "last_own_file",
    "place_of",
    "raised_in",
    "with_place",
]

_PACKAGE = Path(__file__).resolve().parents[2]

_INSTALLED = frozenset(("site-packages", "dist-packages"))
"""Folders of installed packages, also of those that pip installed for one user, or that ``PYTHONPATH`` or a ``.pth`` file adds."""


def raised_in(error: BaseException) -> str:
    """The function of the user below which ``error`` was raised, such as ``"Mine.select"``.

    Empty if no function of the user was called: then the error is a bug in FedCohort.
    """
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((frame.f_code.co_qualname for frame in frames if is_of_user(frame.f_code.co_filename)), "")


def ends_in_own_code(error: BaseException) -> bool:
    """Whether a line of the user raised ``error`` itself, as ``sys.exit()`` does: not a function that it called."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(files) and is_of_user(files[-1])


def with_place(error: BaseException) -> str:
    """The type, text and place of an error: ``"ValueError: no data (mine.py:12)"``. The text may fail as well: then it is left out."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place_of(error)}"


def about_missing_file(error: BaseException, file: Path) -> str:
    """What to do about a file of data that ``file``, the copy of a user's file in a run directory, reads and that is not there; empty
    for other errors and files."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str | Path):
        return ""
    if file.parent.name != "plug-ins" or not (file.parent.parent / "run.sqlite").exists():
        return ""
    name = Path(error.filename).name
    return (
        f"it reads {name}, and a run directory holds no files of data; run the experiment file that the run was made with, or put "
        f"{name} into the folder plug-ins of the run directory"
    )


def last_own_file(error: BaseException) -> str:
    """The file of the innermost function of the user below which ``error`` was raised; empty if there is none."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((file for file in reversed(files) if is_of_user(file)), "")


def place_of(error: BaseException) -> str:
    """The place in the user's code where ``error`` was raised: ``" (mine.py:12)"``; empty if it was not raised there."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({error.filename}:{error.lineno})"
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in lines if is_of_user(file)]
    return f" ({own[-1][0]}:{own[-1][1]})" if own else ""


@cache
def is_of_user(file: str) -> bool:
    """Whether a file is neither part of FedCohort nor of Python nor of an installed package."""
    if file.startswith("<frozen") or file == "<string>" or file.endswith((".pyx", ".pxd", ".pxi")):
        return False
    if not _INSTALLED.isdisjoint(Path(file).parts):
        return False
    paths = sysconfig.get_paths()
    installed = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders: list[str | Path] = [_PACKAGE, *installed, Path(sys.base_prefix) / "lib"]
    return not any(Path(file).is_relative_to(folder) for folder in folders)


def is_of_package(given: Callable[..., object]) -> bool:
    """Whether a function or class, perhaps with bound arguments, is of an installed package."""
    while isinstance(given, partial):
        given = given.func
    file: str | None = getattr(sys.modules.get(getattr(given, "__module__", "")), "__file__", None)
    return file is not None and not is_of_user(file)
