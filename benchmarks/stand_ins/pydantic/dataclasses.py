"""The dataclasses of the standard library, without checks."""

import dataclasses
from typing import Any


def dataclass(cls: Any, config: Any = None, kw_only: bool = False) -> Any:
    """``cls`` as a dataclass of the standard library."""
    return dataclasses.dataclass(cls, kw_only=kw_only)
