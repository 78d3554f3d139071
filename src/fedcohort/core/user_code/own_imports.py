"""The modules of users that a file imports: their content counts like that of the file, because its results depend on it."""

import ast
import hashlib
import importlib.util
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import is_file
from fedcohort.core.user_code.own_code import is_of_user

__all__ = ["check_imports_of_own_folder", "content_with_imports", "imported_files"]

_first_seen: dict[Path, str] = {}
"""The hash of each imported file when this process saw it first: Python imports a module once."""


def content_with_imports(path: Path) -> str:
    """SHA-256 of a Python file of a user, together with all modules of the user that it imports, directly or indirectly.

    Without such modules, it is the hash of the file alone. Nothing is run.

    Raises:
        UsageError: an imported module has changed since this process imported it.
    """
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    for name, file in sorted(imported_files(path, content).items()):
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if name in sys.modules and _first_seen.setdefault(file, found) != found:
            raise UsageError(f"{file}: has changed since it was imported by {path.name}; start Python again")
        digest.update(f"{name}:{found}\n".encode())
    return digest.hexdigest()


def check_imports_of_own_folder(path: Path, content: bytes, where: str) -> None:
    """Refuse a file that would import a module of another folder in place of its own one: Python has one module of each name.

    This happens to plug-in files in different folders. Modules with the same content, and installed ones, are not refused.

    Args:
        path: the file.
        content: what it contains.
        where: the setting that names it, and its value, for messages.

    Raises:
        UsageError: there is another module of the same name.
    """
    for name, file in imported_files(path, content).items():
        own = _below(path.parent, name.split("."))
        if own is not None and not _are_equal(own, file):
            raise UsageError(
                f"{where}: imports {name} from {own}, but Python would take {file}; rename one of these files, or start Python "
                "again"
            )


def _are_equal(file: Path, other: Path) -> bool:
    """Whether both files can be read and have the same content."""
    try:
        return file.read_bytes() == other.read_bytes()
    except OSError:
        return False


def imported_files(path: Path, content: bytes, package: str = "") -> dict[str, Path]:
    """The files of users' modules that a file imports, directly or indirectly, by the names of the modules.

    Args:
        path: the file.
        content: what it holds.
        package: the package that it is in; empty for a file that is in none.
    """
    found: dict[str, Path] = {}
    waiting = list(_names(content, package))
    while waiting:
        name = waiting.pop()
        file = None if name in found else _file_of(name, path.parent)
        if file is None or file == path:
            continue
        found[name] = file
        inside = name if file.name == "__init__.py" else name.rpartition(".")[0]
        with suppress(OSError):
            waiting += _names(file.read_bytes(), inside)
    return found


@lru_cache(maxsize=256)
def _names(content: bytes, package: str) -> tuple[str, ...]:
    """The modules that a source text can import, with the packages that they are in; names that are no modules are among them."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # an import of the file says what is wrong
        return ()
    full: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            outer = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (outer, node.module)))
            full.update([module, *(f"{module}.{alias.name}" for alias in node.names)])
    parts = [name.split(".") for name in full]
    return tuple(sorted({".".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}))


def _file_of(name: str, folder: Path) -> Path | None:
    """The file of a module that a user wrote; None if there is none. No package is imported to find it.

    Args:
        name: the module.
        folder: where modules are that are not found in the usual places.
    """
    top, *inner = name.split(".")
    if top in sys.stdlib_module_names:
        return None
    spec = None
    with suppress(Exception):  # finders of others, and modules without a specification
        spec = importlib.util.find_spec(top)
    if spec is None:
        return _below(folder, [top, *inner])
    if spec.origin is None and inner:  # a folder without __init__.py
        choices = (_below(Path(place), inner) for place in spec.submodule_search_locations or ())
        return next((file for file in choices if file is not None and is_of_user(str(file))), None)
    if not spec.origin or not spec.origin.endswith(".py") or not is_of_user(spec.origin):
        return None
    file = Path(spec.origin).resolve()
    if not inner:
        return file
    if file.name != "__init__.py":
        return None
    return _below(file.parent, inner)


def _below(folder: Path, parts: list[str]) -> Path | None:
    """The file of a module in a folder; None if there is none."""
    place = folder.joinpath(*parts)
    choices = (place / "__init__.py", place.with_suffix(".py"))
    return next((choice for choice in choices if is_file(choice)), None)
