"""Read an experiment file."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import as_path, is_folder, kind_of, resolved
from fedcohort.experiment.experiment import Experiment
from fedcohort.experiment.handed_over import read_comments
from fedcohort.experiment.nested_values import merge, parse_overrides
from fedcohort.experiment.plain_values import MAX_CHARACTERS, check_values, parsed
from fedcohort.experiment.plugin_files import anchored, named_files
from fedcohort.federation.data.own_data_names import is_table

__all__ = ["in_run_directory", "load"]

_RUN_DIRECTORY = ("run.sqlite", "run.lock", "model.safetensors", "checkpoint")
"""Files and folders by which a run directory is known."""


def load(path: str | Path, overrides: Iterable[str] = (), *, recorded: bool = False, trust: bool = False) -> Experiment:
    """Read an experiment file. The plug-in files that it names are run.

    Args:
        path: a TOML file.
        overrides: ``section.key=value`` settings that replace those of the base; values are TOML, or plain words.
        recorded: the file is the description in a run directory and is only read: no plug-in is imported, see
            :meth:`Experiment.recorded`.
        trust: run the plug-in files that the experiment names even if the file is the description in a run directory.

    Raises:
        UsageError: the file is missing or not TOML, a setting in it is not valid, or it is the description in a run directory, names
            plug-in files, and ``trust`` is not set.
    """
    file = as_path(path, "path")
    if is_table(file.name) or file.suffix.lower() == ".txt":
        raise UsageError(f"{file}: is data, not an experiment; name it as data.name in an experiment file (.toml)")
    if file.suffix.lower() == ".py":
        raise UsageError(
            f"{file}: is Python code, not an experiment; run it with python, or name what it defines, such as '{file.name}:Name', in "
            "an experiment file (.toml)"
        )
    if file.suffix.lower() in (".html", ".htm"):
        raise UsageError(f"{file}: is a web page, not an experiment; give the path of an experiment file (.toml)")
    try:
        text = _text(file)
        values = parsed(text, str(file))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not valid TOML: {error}{_about_line(text, str(error))}") from None
    check_values(values, str(file))
    if not recorded:
        if not trust and in_run_directory(file):
            _ask_for_consent(file, values)  # before overrides, which compare the old plug-in with the new one
        values = {"name": file.stem, **anchored(values, file.parent)}
    for row in [values, *_mappings(values.get("variants")), *_sweep_of_data(values, file.parent)]:
        _anchor(row, ("systems", "availability"), "file", file.parent)
        for section in ("data", "public"):
            _anchor(row, (section,), "name", file.parent, only=_is_data)
    values = merge(values, parse_overrides(overrides), where="")
    experiment = Experiment.recorded(values) if recorded else Experiment(**values)
    return experiment.with_handed_over(named) if (named := read_comments(text)) else experiment


def in_run_directory(file: Path) -> bool:
    """Whether an experiment file is the description in a run directory, even if its record is missing."""
    return any(os.path.lexists(file.parent / name) for name in _RUN_DIRECTORY)


def _ask_for_consent(file: Path, values: Mapping[str, object]) -> None:
    """Refuse to run the plug-in files that the description in a run directory names: they came with the directory.

    Args:
        file: the description.
        values: its contents.

    Raises:
        UsageError: there are such files.
    """
    own = named_files(values)
    if own:
        raise UsageError(
            f"{file}: names plug-in files of a run directory, which would be run: {', '.join(own)}; if you have read and trust them, "
            "add --trust-plugins (in Python: trust=True)"
        )


def _text(file: Path) -> str:
    """The text of an experiment file."""
    kind = kind_of(file)
    named_pipe = kind == "a pipe" and not str(file).startswith(
        ("/dev/fd/", "/dev/stdin", "/proc/")
    )  # it would be waited for
    if kind in ("a folder", "a socket") or named_pipe:
        raise UsageError(f"{file}: is {kind}; give the path of an experiment file (.toml)")
    try:
        with file.open(encoding="utf-8-sig") as opened:
            return opened.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise UsageError(f"{file}: no such experiment file; give the path of a .toml file") from None
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start})"
        if file.suffix != ".toml":
            raise UsageError(f"{file}: {problem}, so no experiment file; give the path of a .toml file") from None
        raise UsageError(f"{file}: cannot be read: {problem}; save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file}: cannot be read: {reason}") from None


def _about_line(text: str, message: str) -> str:
    """What helps if the line of an error has the quotes of a word processor, or a text without any; empty if it has neither."""
    place = re.search(r"at line (\d+),", message)
    line = text.split("\n")[int(place[1]) - 1] if place else ""
    curly = re.search("[“”„‟‘’‚]", line)
    if curly:
        return f'; the line has a curly quote ({curly[0]}), and TOML needs straight ones (")'
    bare = (
        re.fullmatch(r"[^#\"']*=\s*([^\W\d][\w./:+-]*)\s*(#.*)?", line) if message.startswith("Invalid value") else None
    )
    if bare is None:
        return ""
    flag = bare[1].lower()
    return f"; write {flag}" if flag in ("true", "false") else f'; a text needs quotes: "{bare[1]}"'


def _anchor(
    values: Mapping[str, object],
    section: tuple[str, ...],
    key: str,
    folder: Path,
    only: Callable[[Path], bool] = lambda _: True,
) -> None:
    """Make the path ``values[section][key]``, which is relative to the experiment file, absolute; in place.

    Args:
        only: tells which paths to change; other values are names.
    """
    inner: object = values
    for part in section:
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    if isinstance(inner, dict) and isinstance(inner.get(key), str) and inner[key]:
        path = resolved(inner[key], folder)
        if only(path):
            inner[key] = str(path)


def _is_data(path: Path) -> bool:
    """Whether a path is that of data: a folder, unless it has a built-in name, a table, or a text."""
    from fedcohort.federation.data.load_dataset import NAMES, is_text_file

    return path.name not in NAMES and (is_folder(path) or is_table(path.name) or is_text_file(str(path)))


def _mappings(value: object) -> list[Mapping[str, object]]:
    """The tables in a list; none if it is no list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _sweep_of_data(values: Mapping[str, object], folder: Path) -> list[Mapping[str, object]]:
    """The rows of the sweep that name data by sections; names under the key ``data.name`` are made absolute, in place."""
    sweep = values.get("sweep")
    if not isinstance(sweep, dict):
        return []
    if isinstance(sweep.get("data.name"), list):
        rows = [{"data": {"name": choice}} for choice in sweep["data.name"]]
        for row in rows:
            _anchor(row, ("data",), "name", folder, only=_is_data)
        sweep["data.name"] = [row["data"]["name"] for row in rows]
    return [{"data": choice} for choice in _mappings(sweep.get("data"))]
