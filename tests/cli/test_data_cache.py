"""``fedcohort data cache``: list, verify and clear the decoded data sets."""

import json
import os
import time
from pathlib import Path

import pytest
from filelock import FileLock

from fedcohort.federation.data.load_dataset import load
from tests.cli.test_cli import call, refused
from tests.federation.data.test_datasets import image_folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with three entries: two of one folder, and the digits."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    folder = image_folder(tmp_path / "pets")
    load(str(folder))
    (folder / "train" / "cat" / "9.png").write_bytes((folder / "train" / "cat" / "0.png").read_bytes())
    load(str(folder))
    load("digits")
    return tmp_path / "cache" / "datasets"


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def listed(*options: object) -> dict:
    return json.loads(call("data", "cache", "--json", *options).stdout)


def age(entry: Path, days: float) -> None:
    for path in [*entry.iterdir(), entry]:
        os.utime(path, (time.time(), time.time() - days * 86_400))


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink()
    file.write_bytes(content)


def test_an_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    assert call("data", "cache").stdout.strip() == "The cache has no entries."
    empty = listed("--verify", "--clear-older-than", 0)
    assert (empty["entries"], empty["removed"]) == ([], [])
    refused(call("data", "cache", "--clear", "x"), "--clear 'x': not in the cache; the cache is empty")


def test_entries_have_names_sizes_and_ages(cache, tmp_path):
    age(cache / entries(cache)[0], 12.0)
    found = listed()["entries"]
    assert [entry["name"] for entry in found] == entries(cache)
    assert [entry["data"] for entry in found] == ["digits", str(tmp_path / "pets"), str(tmp_path / "pets")]
    for entry in found:
        assert entry["bytes"] == sum(file.stat().st_size for file in (cache / entry["name"]).iterdir())
        assert "damage" not in entry
    assert found[0]["days"] == pytest.approx(12.0, abs=0.1)
    assert found[1]["days"] < 1
    shown = call("data", "cache").stdout
    assert all(name in shown for name in entries(cache))
    assert "12 days" in shown
    assert "131 kB" in shown
    assert "3 entries" in shown


@pytest.mark.parametrize("width", [40, 60, 200])
def test_paths_of_data_sets_are_whole_in_narrow_terminals(cache, tmp_path, monkeypatch, width):
    """They were broken in the middle, after every joint, in a column of eight characters."""
    monkeypatch.setenv("COLUMNS", str(width))
    for options in ([], ["--verify"]):
        lines = call("data", "cache", *options).stdout.splitlines()
        whole = [line for line in lines if str(tmp_path / "pets") in line]
        assert len(whole) == 2, "one for each entry"
        assert all(any(name in line for line in lines) for name in entries(cache))
        assert ("Data sets:" in lines) == (width < 200)
        alone = [line.strip() for line in whole]
        assert (alone == [str(tmp_path / "pets")] * 2) == (width < 200)


def test_verify_checks_every_entry(cache):
    assert [entry["damage"] for entry in listed("--verify")["entries"]] == [None] * 3
    assert "as written" in call("data", "cache", "--verify").stdout
    names = entries(cache)
    damage(cache / names[1] / "train_features.npy")
    (cache / names[2] / "meta.json").unlink()
    done = call("data", "cache", "--verify", "--json")
    assert done.exit_code == 2
    assert [entry["damage"] for entry in json.loads(done.stdout)["entries"]] == [
        None,
        "train_features.npy is not as it was written",
        "meta.json is missing",
    ]
    assert done.stderr == (
        f"fedcohort: error: 2 of 3 entries are damaged, first '{names[1]}' (train_features.npy is not as it was written); the next "
        "use mends them from their source, and --clear NAME removes them\n"
    )
    assert call("data", "cache").exit_code == 0  # which checks nothing


def test_clear_by_name(cache, tmp_path):
    digits, old, new = entries(cache)
    assert listed("--clear", new)["removed"] == [new]
    assert entries(cache) == [digits, old]
    (cache / "no-data-set").mkdir()
    refused(call("data", "cache", "--clear", ""), "--clear '': not in the cache")
    (cache / "no-data-set").rmdir()
    refused(call("data", "cache", "--clear", "digit"), "--clear 'digit': not in the cache; did you mean 'digits'?")
    assert entries(cache) == [digits, old]
    shown = call("data", "cache", "--clear", "digits", "--clear", "pets").stdout
    assert shown.startswith("Removed 2 entries")
    assert entries(cache) == []
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]
    assert load("digits").num_train == 1438


def test_clear_all_entries_of_a_data_set(cache, tmp_path):
    assert len(listed("--clear", tmp_path / "pets")["removed"]) == 2
    assert entries(cache) == [entries(cache)[0]]


def test_clear_by_age(cache):
    for name, days in zip(entries(cache), (40, 20, 0), strict=True):
        age(cache / name, days)
    digits, older, newer = entries(cache)
    assert listed("--clear-older-than", 30)["removed"] == [digits]
    assert listed("--clear-older-than", 19.5)["removed"] == [older]
    assert listed("--clear-older-than", 1)["removed"] == []
    assert entries(cache) == [newer]
    for wrong in ("-1", "nan"):
        refused(
            call("data", "cache", "--clear-older-than", wrong), "--clear-older-than", "use a number of days, 0 or more"
        )
    refused(call("data", "cache", "--clear-older-than", "soon"), "soon")


def test_data_in_use_can_be_cleared(cache):
    digits = load("digits")
    listed("--clear", "digits")
    assert int(digits.train_features.max()) == 16  # the map keeps the file


def test_an_entry_that_is_being_made_is_not_removed(cache):
    name = entries(cache)[0]
    with FileLock(cache / f"{name}.lock"):
        refused(call("data", "cache", "--clear", name), f"--clear '{name}': another process is making this entry")
    assert name in entries(cache)


def test_what_killed_processes_left_is_removed_with_the_entries(cache):
    (cache / ".gone-1~abc" / "arrays").mkdir(parents=True)
    assert len(listed()["entries"]) == 3  # it is no entry
    listed("--clear", "digits")
    assert not (cache / ".gone-1~abc").exists()


def test_an_entry_with_an_odd_name_or_content_is_shown_and_removed(cache):
    (cache / "a\x1b[2Jb").mkdir()
    (cache / "file").write_text("x")
    shown = call("data", "cache").stdout
    assert "\x1b[2J" not in shown
    assert listed("--clear-older-than", 0)["entries"] == []
    assert entries(cache) == []
