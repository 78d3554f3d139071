"""Repetitions of a test: the usual tests play some cases, ``make test-slow`` plays all."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_unless(usual: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """All cases; those that are not usual become slow tests. A case of several parameters is a tuple."""
    return [case if usual(case) else slow(case) for case in cases]


def slow_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """All cases; those after the first ``count`` become slow tests."""
    return [case if number < count else slow(case) for number, case in enumerate(cases)]


def slow(case: Any) -> Any:
    """The case as a slow test."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
