"""The standard library's dataclasses, unchecked."""

import dataclasses
from typing import Any


def dataclass(cls: Any, config: Any = None, kw_only: bool = False) -> Any:
    """``cls`` as a plain dataclass."""
    return dataclasses.dataclass(cls, kw_only=kw_only)
