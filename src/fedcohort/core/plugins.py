"""Find plug-ins by name: built-in names, a class in a user's own file, or an entry point of an installed package."""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal
from zlib import crc32

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.paths import is_file, kind_of, resolved
from fedcohort.core.user_code.own_code import about_missing_file, with_place
from fedcohort.core.user_code.own_imports import check_imports_of_own_folder
from fedcohort.core.user_code.python_plugins import is_python_plugin, name_of_class, python_plugin

__all__ = [
    "Card", "LabelKind", "Table", "card_of", "check_card", "from_file", "is_file_name", "is_ours", "put_module_of_file", "short_name",
    "whole_name",
]  # fmt: skip


STATUSES = ("paper", "code", "ours")
"""What a card can say about where a strategy or an algorithm comes from."""


@dataclass(frozen=True)
class Card:
    """What ``fedcohort strategies`` prints about a strategy or an algorithm.

    Attributes:
        source: authors, year, arXiv id or repository.
        status: ``paper`` (as its source describes it), ``code`` (checked against a public implementation), ``ours`` (an
            interpretation or design of the author of the class, and no published method).
        asks: what the server asks clients for, besides training.
        discloses: what the server learns about a client beyond its update.
        knows: what the server must know or hold in order to select, besides the clients' ids.
        cost: server work per round, for m clients, k selected, d candidates, K classes, P parameters.
        score: what it assumes about the score of the task, which is higher for better models: the accuracy, between 0 and 1, or R² of
            numeric labels, which is at most 1 and can be negative.
    """

    source: str
    status: Literal["paper", "code", "ours"]
    asks: str = "nothing"
    discloses: str = "nothing"
    knows: str = "nothing"
    cost: str = "O(m)"
    score: str = "does not use it"

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise UsageError(
                f"Card.status = {shown(self.status)}: use {', '.join(map(repr, STATUSES[:-1]))} or {STATUSES[-1]!r}"
            )


def check_card(cls: type) -> None:
    """Check the attribute ``card`` of a class, if the class itself defines it.

    Raises:
        UsageError: it is neither a :class:`Card` nor a property.
    """
    card = vars(cls).get("card")
    if not isinstance(card, Card | property | None):
        raise UsageError(f"{cls.__name__}.card = {shown(card)}: should be a Card(source=…, status=…)")


def card_of(plugin: object) -> Card | None:
    """The card of a plug-in, which is a class or an object; None without one.

    A class of the user that extends a strategy or an algorithm and has no card of its own is not what the inherited card describes: it
    is an own version, with the status ``ours``, and its source says of what.
    """
    card, cls = getattr(plugin, "card", None), plugin if isinstance(plugin, type) else type(plugin)
    if not isinstance(card, Card):
        return None
    owner = next((base for base in cls.__mro__ if "card" in vars(base)), cls)
    if owner is cls or "card" in vars(plugin) or cls.__module__.partition(".")[0] == "fedcohort":
        return card
    return replace(card, source=f"own version of {owner.__name__}: {card.source}", status="ours")


def is_ours(plugin: object) -> bool:
    """Whether a strategy or an algorithm has the status ``ours``: no card describes the class or object as a published method."""
    card = card_of(plugin)
    return card is None or card.status == "ours"


LabelKind = Literal["classes", "numbers"]
"""What labels are: classes, or numbers (regression)."""


@dataclass(frozen=True)
class Table:
    """The names of plug-ins of one kind, and the class that each name stands for; classes are imported at their first use.

    Attributes:
        kind: what the names stand for, in messages: ``"strategy"``.
        group: entry-point group under which installed packages add names.
        builtin: name → ``"module:Class"``.
        base: the class that all classes in the table extend, as ``"module:Class"``; empty if there is none.
        defines: names that each class defines; for plug-ins without a base class.
    """

    kind: str
    group: str
    builtin: Mapping[str, str]
    base: str = ""
    defines: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from sorted({point.name for point in entry_points(group=self.group)} - set(self.builtin))

    def find(self, name: str, where: str) -> Any:
        """The class called ``name``: built in, installed, ``path/to/file.py:Class``, or handed over in Python.

        Raises:
            UsageError: no plug-in of this kind has the name; the message names the key ``where`` and valid names.
        """
        if not isinstance(name, str):
            raise UsageError(f"{where} = {shown(name)}: should be a name; {nearest('', self)}")
        if name in self.builtin:
            return _imported(self.builtin[name])
        for point in entry_points(group=self.group, name=name):
            try:
                return self._checked(point.load(), name, where)
            except (UsageError, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise UsageError(
                    f"{where} = {name!r}: installed as {point.value}, but cannot be imported: {with_place(error)}"
                ) from error
        if is_file_name(name):
            return self._checked(from_file(name, where), name, where)
        if is_python_plugin(name):
            return self._checked(python_plugin(name, where), name, where)
        hint = f"{nearest(name, self)}; your own: 'path/to/file.py:Class'"
        if name.endswith(".py"):
            hint = f"for a class in this file, write '{name}:Class'"
        raise UsageError(f"{where} = {shown(name)}: no such {self.kind}; {hint}")

    def accepts(self, given: object) -> bool:
        """Whether a class or an object from Python is a plug-in of this kind."""
        return self.is_class_of_kind(given if isinstance(given, type) else type(given))

    def is_class_of_kind(self, cls: type) -> bool:
        """Whether a class extends the base class, or defines the names, of this kind."""
        if self.base:
            return issubclass(cls, _imported(self.base))
        return bool(self.defines) and all(_defines(cls, required) for required in self.defines)

    @property
    def contract(self) -> str:
        """What classes of this kind do, in words: extend a base class, or define names."""
        return f"extends {self.base.replace(':', '.')}" if self.base else f"defines {', '.join(self.defines)}"

    def stored(self, given: object) -> object:
        """What is kept of a class or an object from Python, see :func:`fedcohort.core.user_code.python_plugins.keep`."""
        return given

    def builtin_name(self, cls: type) -> str:
        """The name of a built-in class; empty for any other class."""
        names = (name for name, location in self.builtin.items() if location.endswith(f":{cls.__name__}"))
        return next((name for name in names if _imported(self.builtin[name]) is cls), "")

    def locations_by_class(self) -> dict[str, str]:
        """The built-in classes by their own names, each with its location ``"module:Class"``."""
        return {location.rpartition(":")[2]: location for location in self.builtin.values()}

    def _checked(self, plugin: object, name: str, where: str) -> object:
        """``plugin``, if it extends the base class and defines the names. Built-in classes need no check."""
        missing = [required for required in self.defines if not _defines(plugin, required)]
        if missing:
            raise UsageError(
                f"{where} = {name!r}: defines no {' and no '.join(missing)}; a {self.kind} is a class with {', '.join(self.defines)}"
            )
        if not self.base or (isinstance(plugin, type) and issubclass(plugin, _imported(self.base))):
            return plugin
        a_kind = f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"
        given = plugin.__name__ if isinstance(plugin, type) else f"an object of type {type(plugin).__name__}"
        raise UsageError(f"{where} = {name!r}: {given} is not {a_kind}; {a_kind} extends {self.base.replace(':', '.')}")


def _defines(plugin: object, name: str) -> bool:
    """Whether a class has an attribute, or a field, which may have no default."""
    return hasattr(plugin, name) or name in getattr(plugin, "__pydantic_fields__", ())


def _imported(path: str) -> Any:
    """The class that ``"module:Class"`` stands for."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


_FILE_NAME = re.compile(r"[^\x00-\x1f]+\.py:[^\W\d]\w*")
_LONGEST_FILE_NAME = 4096


def is_file_name(name: str) -> bool:
    """Whether ``name`` has the form of a class in a user's own file, ``path/to/file.py:Class``."""
    return len(name) <= _LONGEST_FILE_NAME and _FILE_NAME.fullmatch(name) is not None


def whole_name(name: str, folder: Path) -> str:
    """``path/to/file.py:Class`` with the whole path of the file, which is relative to ``folder``."""
    path, _, attribute = name.rpartition(":")
    return f"{resolved(path, folder)}:{attribute}"


def short_name(name: str) -> str:
    """``name`` as tables show it: only the class, if it is in a user's own file or was handed over in Python."""
    if is_python_plugin(name):
        return name_of_class(name)
    return name.rpartition(":")[2] if is_file_name(name) else name


class _FromText(SourceFileLoader):
    """Runs a file from the text that was read, never from bytecode that Python cached.

    Python takes cached bytecode for that of a changed file if the file's size and the second of its change are the same.
    """

    def __init__(self, module_name: str, path: Path, content: bytes) -> None:
        super().__init__(module_name, str(path))
        self._content = content

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  # the import system gives it
        return self.source_to_code(self._content, self.path)


def _run(module_name: str, path: Path, content: bytes) -> None:
    """Import a file under a name; its errors are raised."""
    loader = _FromText(module_name, path, content)
    spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise


_modules_of_files: dict[str, str] = {}
"""The names of the modules of plug-ins that another machine has sent without their files, by ``path/to/file.py:Class``."""


def put_module_of_file(name: str, module_name: str) -> None:
    """Let :func:`from_file` take ``path/to/file.py:Class`` from a module that was imported without the file."""
    _modules_of_files[name] = module_name


def from_file(name: str, where: str, kind: str = "Class") -> Any:
    """The object that ``path/to/file.py:Name`` stands for. The file is run once as a module, and again when it has changed.

    It can import modules in its folder, as a script can; installed modules of the same name come first.

    Args:
        name: the name.
        where: the setting that names it, for messages.
        kind: what the object should be, ``Class`` or ``function``, for messages.

    Raises:
        UsageError: the object cannot be imported, or would import a module of another folder in place of one in its own.
    """
    path_text, _, attribute = name.rpartition(":")
    if name in _modules_of_files:
        return getattr(sys.modules[_modules_of_files[name]], attribute)
    path = resolved(path_text, Path.cwd())
    if not is_file(path):
        problem = f"{path_text} is {other}" if (other := kind_of(path)) else f"there is no file {path_text}"
        raise UsageError(f"{where} = {name!r}: {problem}; use 'path/to/file.py:{kind}'")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{where} = {name!r}: the file cannot be read: {error.strerror}") from error
    module_name = f"fedcohort_plugin_{path.stem}_{crc32(os.fsencode(path) + content)}"
    if module_name not in sys.modules:
        check_imports_of_own_folder(path, content, f"{where} = {name!r}")
        try:
            _run(module_name, path, content)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            missing = about_missing_file(error, path)
            raise UsageError(f"{where} = {name!r}: cannot be imported: {missing or with_place(error)}") from error
    module = sys.modules[module_name]
    plugin = None
    with suppress(Exception):  # a file can define __getattr__
        plugin = getattr(module, attribute, None)
    if plugin is None:
        kinds = type | FunctionType
        own = [
            key for key, value in vars(module).items() if isinstance(value, kinds) and value.__module__ == module_name
        ]
        raise UsageError(
            f"{where} = {name!r}: {path_text} defines no {attribute}; it defines {', '.join(own) or f'no {kind.lower()}'}"
        )
    return plugin
