"""The number of cores, on systems that know more and less about it."""

import os
from pathlib import Path

import pytest

from fedcohort.core.processor import cores, processor


@pytest.fixture(autouse=True)
def no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that knows nothing about its cores."""
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)


def test_a_system_that_knows_nothing_has_one_core() -> None:
    assert cores() == 1


def test_macos_and_windows_count_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cores() == 5


def test_the_permitted_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 6}, raising=False)
    assert cores() == 3


def test_a_newer_python_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 6}, raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 2, raising=False)
    assert cores() == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\ncpu family\t: 26\nmodel name\t: other\n",
            "AMD EPYC (family 25, model 17)",
        ),
        ("model name\t: ARMv7 Processor\n", "ARMv7 Processor"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "0xd0c"),
    ],
)  # fmt: skip
def test_processors_of_the_same_name_are_told_apart(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert processor() == name
