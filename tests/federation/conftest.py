"""Fixtures of the tests of federations."""

import pytest

from fedcohort.federation import partition as partition_module


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one entry with every draw of a partition."""
    made: list[int] = []
    check = partition_module._check_assignment

    def counted(*arguments: object) -> None:
        made.append(1)
        check(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_module, "_check_assignment", counted)
    return made
