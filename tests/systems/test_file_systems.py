"""File systems without locks, files in use that cannot be removed or renamed, and Python without TorchScript."""

import sys
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
from PIL import Image

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.federation.data.load_dataset import load
from fedcohort.record.run_lock import is_being_written, locked
from fedcohort.training.programs import plain_network
from tests.experiments import small
from tests.golden.test_same_bits import record


def test_a_file_system_without_locks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("the file system has no locks")

    (tmp_path / "run.lock").touch()
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(UsageError, match=r"cannot be written \(the file system has no locks\); give another directory"):
        locked(tmp_path).__enter__()
    assert not is_being_written(tmp_path)


def test_checkpoints_in_use_are_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows keeps a file as long as it is mapped; here, the first attempt to remove each file is refused."""
    refused: list[str] = []
    unlink = Path.unlink

    def careful(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("round-") and path.name not in refused:
            refused.append(path.name)
            raise PermissionError(13, "The file is being used by another process")
        unlink(path, missing_ok)

    expected = record(fedcohort.run(small(rounds=5), runs=tmp_path / "a"))
    monkeypatch.setattr(Path, "unlink", careful)
    run = fedcohort.run(small(rounds=5), runs=tmp_path / "b")
    assert record(run) == expected
    assert len(refused) >= 3
    assert len(list((run.path / "checkpoint").iterdir())) <= 2


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists the mapped files")
def test_no_file_is_mapped_when_its_entry_of_the_cache_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows would refuse to rename the folder."""
    renamed: list[Path] = []
    rename = Path.rename

    def watched(path: Path, target: Any) -> Path:
        assert f"{path}/" not in Path("/proc/self/maps").read_text()
        renamed.append(path)
        return rename(path, target)

    folder = tmp_path / "images"
    for label in ("a", "b"):
        (folder / label).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (64, 64), number).save(folder / label / f"{number}.png")
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Path, "rename", watched)
    fingerprint = load(str(folder)).fingerprint
    (features,) = (tmp_path / "cache").glob("datasets/*/train_features.npy")
    damaged = np.load(features)
    np.save(features, damaged + 1)
    with pytest.warns(UserWarning, match="was made again"):
        assert load(str(folder)).fingerprint == fingerprint
    assert features.parent in renamed
    assert len(renamed) == 3


def test_torchscript_is_not_used_where_it_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_network._without_python.cache_clear()
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    try:
        assert plain_network._without_python() == {}
    finally:
        plain_network._without_python.cache_clear()
