"""Names for things that can be plugged in: an explicit table, a user's own file, or an installed package's entry point."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from fedcohort.core.errors import UsageError, nearest

__all__ = ["Card", "Table", "from_file", "is_file_name", "short_name"]


@dataclass(frozen=True)
class Card:
    """What ``fedcohort strategies`` says about a strategy or an algorithm.

    Attributes:
        source: authors, year, arXiv id or repository.
        status: ``paper`` (as its source says), ``code`` (checked against a public implementation), ``ours`` (our reading or design).
        asks: what clients are asked for, beside training.
        discloses: what the server learns of a client beyond its update.
        knows: what the server must know or have in order to choose, beside the clients' ids.
        cost: server work per round; m clients, k chosen, d candidates, K classes, P parameters.
    """

    source: str
    status: Literal["paper", "code", "ours"]
    asks: str = "nothing"
    discloses: str = "nothing"
    knows: str = "nothing"
    cost: str = "O(m)"


@dataclass(frozen=True)
class Table:
    """Name → class, imported when it is asked for.

    Attributes:
        kind: what the names are, for messages: ``"strategy"``.
        group: entry-point group under which installed packages add names.
        builtin: name → ``"module:Class"``.
        base: ``"module:Class"`` that all of them extend; empty if there is none.
    """

    kind: str
    group: str
    builtin: Mapping[str, str]
    base: str = ""

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from sorted({point.name for point in entry_points(group=self.group)} - set(self.builtin))

    def find(self, name: str, where: str) -> Any:
        """The class called ``name``: built in, installed, or ``path/to/file.py:Class``.

        Raises:
            UsageError: nothing has that name, or not what it should be; the message names the key ``where`` and what would work.
        """
        if name in self.builtin:
            return _imported(self.builtin[name])
        for point in entry_points(group=self.group, name=name):
            try:
                return self._checked(point.load(), name, where)
            except UsageError:
                raise
            except (Exception, SystemExit) as error:
                raise UsageError(
                    f"{where} = {name!r}: installed as {point.value}, but cannot be imported: {type(error).__name__}: {error}"
                ) from error
        if is_file_name(name):
            return self._checked(from_file(name, where), name, where)
        hint = f"{nearest(name, self)}; your own: 'path/to/file.py:Class'"
        raise UsageError(f"{where} = {name!r}: no such {self.kind}; {hint}")

    def _checked(self, found: Any, name: str, where: str) -> Any:
        """``found``, if it extends the base; the built-in ones do."""
        if not self.base or (isinstance(found, type) and issubclass(found, _imported(self.base))):
            return found
        what = f"{found.__name__} is no {self.kind}" if isinstance(found, type) else f"is a {type(found).__name__}"
        article = "an" if self.kind[0] in "aeiou" else "a"
        raise UsageError(f"{where} = {name!r}: {what}; {article} {self.kind} extends {self.base.replace(':', '.')}")


def _imported(path: str) -> Any:
    """The class that ``"module:Class"`` stands for."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def is_file_name(name: str) -> bool:
    """Whether ``name`` means a class in a user's own file, ``path/to/file.py:Class``."""
    return ".py:" in name


def short_name(name: str) -> str:
    """``name`` for tables: of a class in a user's own file, the class."""
    return name.rpartition(":")[2] if is_file_name(name) else name


def from_file(name: str, where: str) -> Any:
    """The object that ``path/to/file.py:Name`` stands for; the file is run once, as a module of its own, again when it has changed."""
    path_text, _, attribute = name.rpartition(":")
    path = Path(path_text).expanduser().resolve()
    if not path.is_file():
        raise UsageError(f"{where} = {name!r}: there is no file {path_text}")
    module_name = f"fedcohort_plugin_{path.stem}_{crc32(str(path).encode() + path.read_bytes())}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[module_name]
            raise UsageError(
                f"{where} = {name!r}: {path_text} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    found = getattr(sys.modules[module_name], attribute, None)
    if found is None:
        raise UsageError(f"{where} = {name!r}: {path_text} defines no {attribute}")
    return found
