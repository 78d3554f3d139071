"""Names that a package exports but imports only at their first use, so that importing the package is fast."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, locations: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose names are imported at first use (PEP 562).

    Args:
        package: name of the package.
        locations: name → ``"module:attribute"``. The module is relative to the package, unless it begins with ``fedcohort.``.
    """

    def get(name: str) -> Any:
        if name not in locations:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = locations[name].partition(":")
        path = module if module.startswith("fedcohort.") else f"{package}.{module}"
        return getattr(importlib.import_module(path), attribute)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *locations})

    return get, names
