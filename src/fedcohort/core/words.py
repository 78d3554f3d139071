"""How numbers and settings become text, for the terminal, the page and the figures alike."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "as_json",
    "clock",
    "count",
    "duration",
    "index",
    "percent",
    "setting",
    "signed",
    "size",
]


def as_json(value: Any) -> str:
    """One JSON document; NaN and ±∞ are null, paths are strings."""
    return json.dumps(_json(value), indent=2, ensure_ascii=False, allow_nan=False)


def percent(fraction: float, digits: int = 1) -> str:
    """0.8123 as 81.2, – when it is unknown."""
    return f"{100 * fraction:.{digits}f}" if math.isfinite(fraction) else "–"


def signed(fraction: float) -> str:
    """0.031 as +3.1."""
    return f"{100 * fraction:+.1f}".replace("-", "−") if math.isfinite(fraction) else "–"


def count(number: float, digits: int = 0) -> str:
    """1234.5 as 1,234."""
    return f"{number:,.{digits}f}" if math.isfinite(number) else "–"


def index(value: float) -> str:
    """An index between 0 and 1."""
    return f"{value:.3f}" if math.isfinite(value) else "–"


def size(number: float) -> str:
    """1234567 as 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 99.5 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def duration(seconds: float) -> str:
    """Wall time: 3.1 s, 2:05 min, 1:02:05 h."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes}:{left:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{left:02d} h"


def setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else f"{value:.1f}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{left:02d}" if minutes >= 60 else f"{minutes}:{left:02d}"


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
