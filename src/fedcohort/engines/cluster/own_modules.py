"""The users' own modules, which are sent to hosts as text, because the files may not exist on other machines."""

import importlib
import importlib.util
import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import is_file_name, put_module_of_file
from fedcohort.core.user_code.own_code import is_of_user
from fedcohort.core.user_code.own_imports import imported_files

__all__ = ["OwnModules", "load_modules", "own_modules"]


class OwnModules(NamedTuple):
    """Modules of users.

    Attributes:
        sources: what the files of modules, and of those that they import, contain, by name.
        files: where they are on the driver, by name.
        first: the names of those that are imported before anything else; they import the others.
        named: the module of each plug-in ``path/to/file.py:Class`` that hosts find by this name.
    """

    sources: Mapping[str, bytes]
    files: Mapping[str, str]
    first: Sequence[str]
    named: Mapping[str, str]


def own_modules(modules: Collection[ModuleType], named: Mapping[str, ModuleType]) -> OwnModules:
    """The modules that are files of the user's own, and those that they import.

    Args:
        modules: modules that may be.
        named: the module of each plug-in that hosts find by its name; names that are not ``path/to/file.py:Class`` are left out.

    Raises:
        UsageError: a file has changed since its text was last sent, and this process has not imported it again.
    """
    own = {module.__name__: module for module in (*modules, *named.values()) if _is_own(module)}
    files: dict[str, Path] = {}
    for name, module in own.items():
        file = files[name] = Path(str(module.__file__))
        files.update(imported_files(file, file.read_bytes(), module.__package__ or ""))
        for parent in _parents(name):
            with suppress(KeyError, TypeError):  # a folder without __init__.py has no file
                files[parent] = Path(sys.modules[parent].__file__ or "")
    return OwnModules(
        {name: _text_of(name, file) for name, file in files.items() if file.is_file()},
        {name: str(file) for name, file in files.items()},
        list(own),
        {name: module.__name__ for name, module in named.items() if is_file_name(name) and module.__name__ in own},
    )


_SENT: dict[str, tuple[ModuleSpec | None, bytes]] = {}
"""The specification and the text of the modules that were sent, by name. ``importlib.reload`` makes a new specification."""


def _text_of(name: str, file: Path) -> bytes:
    """The text of a module, which hosts run.

    Raises:
        UsageError: this process runs another one.
    """
    spec, text = getattr(sys.modules.get(name), "__spec__", None), file.read_bytes()
    before, sent = _SENT.get(name, (None, text))
    if spec is not None and spec is before and sent != text:
        raise UsageError(f"{file}: has changed since it was imported; use importlib.reload, or start Python again")
    _SENT[name] = spec, text
    return text


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _is_own(module: ModuleType) -> bool:
    """Whether a module is a user's own file, which is not part of an installed package."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.split(".")[0] in ("__main__", "fedcohort"):
        return False
    return is_of_user(file) and file.endswith(".py") and Path(file).is_file()


def load_modules(modules: OwnModules) -> None:
    """Import the modules in this process. Those that it can import itself, such as installed ones, are imported as usual. If the text
    of a module is no longer the one that was sent before, all modules that were sent are imported again.

    Raises:
        UsageError: the file that this machine has of a module differs from that of the driver.
    """
    new = _FROM_TEXT.take(modules)
    for name in modules.first:
        importlib.import_module(name)
    for name, source in new.items():
        file = getattr(sys.modules.get(name), "__file__", None)
        # an installed package can have a name that the pickled objects contain by chance, such as that of a method
        found = file is not None and name not in _FROM_TEXT.loaded and is_of_user(file)
        if found and Path(str(file)).read_bytes() != source:
            raise UsageError(
                f"{file} on {platform.node()} differs from {modules.files[name]} on the machine of the run; copy the file, or take it "
                "away: files of your own are sent to hosts"
            )
    for plugin, name in modules.named.items():
        put_module_of_file(plugin, name)


class _FromText(MetaPathFinder, Loader):
    """Finds modules that were sent, after all other ways to find a module.

    Attributes:
        loaded: the names of those that were found in this way.
    """

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self._sources: dict[str, bytes] = {}
        self._files: dict[str, str] = {}

    def take(self, modules: OwnModules) -> dict[str, bytes]:
        """Find these modules as well from now on, and import all again if one of them has another text than before. Returns the texts
        that are new."""
        new = {name: source for name, source in modules.sources.items() if self._sources.get(name) != source}
        if not self._sources.keys().isdisjoint(new):
            importlib.invalidate_caches()
            for name in self._sources:
                sys.modules.pop(name, None)
            self.loaded.clear()
        self._sources |= modules.sources
        self._files |= modules.files
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        return new

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """The specification of a module that was sent, or of a folder in which there is one."""
        is_folder = any(name.startswith(f"{fullname}.") for name in self._sources)
        if fullname not in self._sources and not is_folder:
            return None
        spec = ModuleSpec(fullname, self, origin=self._files.get(fullname), is_package=is_folder)
        spec.has_location = fullname in self._files
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the text of a module. Errors name its place on the driver."""
        name = module.__name__
        self.loaded.add(name)
        exec(compile(self._sources.get(name, b""), self._files.get(name, f"<{name}>"), "exec"), vars(module))


_FROM_TEXT = _FromText()
