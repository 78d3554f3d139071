"""Fixtures of the tests of federations."""

from typing import Any

import pytest

from fedcohort.federation import partition as partition_module


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one entry with every draw of a partition."""
    made: list[int] = []
    one_draw = partition_module._one_draw

    def counted(*arguments: Any) -> Any:
        made.append(1)
        return one_draw(*arguments)

    monkeypatch.setattr(partition_module, "_one_draw", counted)
    return made
