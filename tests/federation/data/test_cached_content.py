"""What is read from the cache is what was hashed: every change of a file is found before the arrays are used."""

import errno
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from fedcohort.core.errors import UsageError
from fedcohort.federation.data import cache_entries, dataset_cache
from fedcohort.federation.data.cache_entries import META, DamagedEntryError, has_hashes, read_entry, read_meta
from fedcohort.federation.data.dataset_cache import clear_left_overs, load_or_decode
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.load_dataset import load

FILES = ["meta.json", "train_features.npy", "train_labels.npy", "test_features.npy", "test_labels.npy", "writers.npy"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Every test has an empty cache, and no mirror."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    (tmp_path / "cache" / "datasets").mkdir(parents=True)
    return tmp_path / "cache" / "datasets"


def made(seed: int = 0) -> Dataset:
    """A data set with writers, and with enough values that a changed byte can be anywhere."""
    draws = np.random.default_rng(seed)
    features, labels = draws.normal(size=(60, 40)).astype(np.float32), draws.integers(0, 3, 60)
    return from_arrays(
        (features[:40], labels[:40]),
        (features[40:], labels[40:]),
        classes=list("abc"),
        writers=np.arange(40) % 7,
        name="made",
        standardise=True,
    )


def entry_in(root: Path, seed: int = 0) -> Path:
    entry = root / "made-1"
    load_or_decode(entry, "made", lambda _, out: cache_entries.save(made(seed), out))
    return entry


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("Unable to allocate"), r"\(Cannot allocate memory\); free some memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), r"\(Cannot allocate memory\); free some memory"),
        (OSError(errno.EMFILE, "Too many open files"), r"\(Too many open files\); raise the limit of open files"),
    ],
)
def test_an_entry_for_which_memory_is_lacking_is_not_damaged(
    error: Exception, words: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_in(own_cache)

    def no_map(file: Path) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(cache_entries, "map_array", no_map)
        with pytest.raises(UsageError, match=rf"^FEDCOHORT_CACHE: '.*train_features\.npy' cannot be read {words}"):
            load_or_decode(entry, "made", lambda *_: pytest.fail("the entry is as it was written"))
    assert read_entry(entry, "made") is not None


def flip(file: Path, position: int, bit: int = 0) -> None:
    """Change one bit; in a new file, because a map of the old one may be in use."""
    content = bytearray(file.read_bytes())
    content[position % len(content)] ^= 1 << bit
    file.unlink()
    file.write_bytes(content)


def same(one: Dataset, other: Dataset) -> bool:
    arrays = ("train_features", "train_labels", "test_features", "test_labels", "writers")
    return (
        all(np.array_equal(getattr(one, key), getattr(other, key)) for key in arrays) and one.classes == other.classes
    )


@pytest.mark.parametrize("file", FILES)
def test_every_changed_bit_is_found(own_cache, file):
    entry = entry_in(own_cache)
    content = (entry / file).read_bytes()
    draws = np.random.default_rng(1)
    for position in draws.integers(0, len(content), 60):
        flip(entry / file, int(position), int(draws.integers(8)))
        try:
            read = read_entry(entry, "made")
        except DamagedEntryError:
            pass
        else:  # a bit that means nothing, such as in the padding of a header
            assert read is not None
            assert file != "meta.json"
            assert position < 128
            assert same(read, made())
        (entry / file).write_bytes(content)
    assert read_entry(entry, "made") is not None


def test_two_thousand_overwritten_bytes_of_features_change_no_accuracy(own_cache):
    """The attack that was seen: another accuracy under the same fingerprint."""
    good = load("digits")
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    file = entry / "train_features.npy"
    content = bytearray(file.read_bytes())
    content[5000:7000] = bytes(2000)
    file.unlink()
    file.write_bytes(content)
    with pytest.warns(
        UserWarning, match=r"'digits': its cached copy .* was damaged \(train_features.npy is not as it was written\)"
    ):
        healed = load("digits")
    assert np.array_equal(healed.train_features, good.train_features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load("digits").fingerprint == good.fingerprint


@pytest.mark.parametrize("labels", ["range", "negative"])
def test_cached_labels_out_of_range_are_never_used(own_cache, labels):
    """Also if the hash was made of the wrong labels."""
    entry = entry_in(own_cache)
    wrong = np.load(entry / "train_labels.npy")
    wrong[3] = 7 if labels == "range" else -4
    np.save(entry / "train_labels.npy", wrong)
    with pytest.raises(DamagedEntryError, match=r"train_labels.npy is not as it was written"):
        read_entry(entry, "made")
    meta = json.loads((entry / "meta.json").read_text())
    meta.pop("hash")
    meta["arrays"]["train_labels"]["xxh3_128"] = cache_entries._hash_of(wrong)
    meta["hash"] = cache_entries._hash_of_meta(meta)
    (entry / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DamagedEntryError, match=r"do not fit together: made: train labels: (7|-4) with 3 classes"):
        read_entry(entry, "made")


def old(entry: Path) -> Path:
    """The entry as earlier versions wrote it, without hashes."""
    meta = json.loads((entry / "meta.json").read_text())
    plain = {"classes": meta["classes"], "fingerprint": meta["fingerprint"], "arrays": list(meta["arrays"])}
    (entry / "meta.json").write_text(json.dumps(plain))
    return entry


@pytest.mark.parametrize("file", ["train_features.npy", "test_labels.npy", "writers.npy"])
def test_an_entry_of_an_earlier_version_is_checked_by_its_fingerprint(own_cache, file):
    entry = old(entry_in(own_cache))
    flip(entry / file, -3)
    with pytest.raises(DamagedEntryError):
        read_entry(entry, "made")


def test_an_entry_of_an_earlier_version_gets_hashes(own_cache):
    entry = old(entry_in(own_cache))
    assert not has_hashes(entry)

    def never(*_):
        raise AssertionError("the entry is whole")

    assert same(load_or_decode(entry, "made", never), made())
    assert has_hashes(entry)
    assert same(load_or_decode(entry, "made", never), made())


def test_without_the_hash_library_the_fingerprint_is_checked(own_cache, monkeypatch):
    entry = entry_in(own_cache)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert read_entry(entry, "made") is not None
    flip(entry / "train_features.npy", 4000)
    with pytest.raises(DamagedEntryError, match="fingerprint"):
        read_entry(entry, "made")
    shutil.rmtree(entry)
    assert not has_hashes(entry_in(own_cache))  # and the entries that are made without it have none
    assert read_entry(entry, "made") is not None


def test_damage_without_a_source_is_named_and_stays_named(own_cache):
    entry = entry_in(own_cache)
    flip(entry / "test_features.npy", 2000)

    def gone(*_):
        raise UsageError(f"data set = 'made': the Hub cannot be reached; {'long ' * 100}")

    for _ in range(2):
        with pytest.raises(
            UsageError, match=r"cached copy 'made-1' was damaged \(test_features.npy.* cannot be made again: .*Hub"
        ) as error:
            load_or_decode(entry, "x" * 500, gone)
        assert len(str(error.value)) <= 300


def test_a_source_that_has_changed_meanwhile_is_reported(own_cache):
    entry = entry_in(own_cache)
    flip(entry / "test_features.npy", 2000)
    with pytest.warns(
        UserWarning, match="made again from the source; the source has changed, so its fingerprint is another"
    ):
        entry_again = load_or_decode(entry, "made", lambda _, out: cache_entries.save(made(seed=1), out))
    assert entry_again.fingerprint == made(seed=1).fingerprint


def test_a_file_that_reads_back_differently_is_no_traceback(own_cache):
    def broken(_, out):
        cache_entries.save(made(), out)
        flip(out / "train_features.npy", 900)

    with pytest.raises(UsageError, match=r"FEDCOHORT_CACHE: .* reads back differently .*another disk"):
        load_or_decode(own_cache / "made-1", "made", broken)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), NotImplementedError("no flock")])
def test_a_cache_that_cannot_be_locked_is_still_read(own_cache, monkeypatch, error):
    entry = entry_in(own_cache)
    old(entry)  # so that hashes should be added, too

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(dataset_cache, "FileLock", refuse)
    assert same(load_or_decode(entry, "made", lambda *_: None), made())
    with pytest.raises(UsageError, match=r"FEDCOHORT_CACHE: .* (cannot be written|without locks).*name another folder"):
        load_or_decode(own_cache / "other", "made", lambda *_: None)
    assert load("digits").num_train == 1438  # an embedded data set needs no cache


def test_an_entry_of_a_cache_that_can_neither_be_used_nor_replaced_is_named(own_cache, monkeypatch):
    entry = entry_in(own_cache)
    (entry / META).write_text("{}")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(dataset_cache, "FileLock", refuse)
    words = rf"^data set = 'made': its cached copy '{entry.name}' cannot be used \(meta\.json is not as it was written\) or replaced; "
    with pytest.raises(UsageError, match=words):
        load_or_decode(entry, "made", lambda *_: None)


def test_a_full_disk_is_one_line_and_leaves_nothing(own_cache):
    def full(_, out):
        (out / "train_features.npy").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(
        UsageError, match=r"^FEDCOHORT_CACHE: no space in '.*' \(.*No space left on device\); free some space"
    ):
        load_or_decode(own_cache / "made-1", "made", full)
    assert [p.name for p in own_cache.iterdir()] == ["made-1.lock"]


def test_left_overs_of_other_entries_are_cleared_unless_they_are_being_made(own_cache):
    for name in (".gone-1~abc", ".running-1~abc"):
        (own_cache / name / "arrays").mkdir(parents=True)
    with FileLock(own_cache / "running-1.lock"):
        entry_in(own_cache)
        assert {p.name for p in own_cache.iterdir() if p.is_dir()} == {"made-1", ".running-1~abc"}
    assert [p.name for p in clear_left_overs(own_cache)] == [".running-1~abc"]


KILLED = """
import os, signal, sys, threading, time
from fedcohort.federation.data import cache_entries, dataset_cache
from fedcohort.federation.data.load_dataset import load
seconds = float(sys.argv[2])
kill = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGKILL))
import datasets  # so that the time counts from the beginning of the creation
kill.start()
load(sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_creation(folder: Path, seconds: float) -> int:
    """Create the cache entry of a folder in a process that is killed after so many seconds; returns its exit code."""
    return subprocess.run([sys.executable, "-c", KILLED, str(folder), str(seconds)], timeout=120).returncode


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
@pytest.mark.slow  # a small part of the campaign kills creations as well
def test_killed_creations_leave_an_entry_that_is_whole_or_missing(tmp_path, own_cache):
    from tests.federation.data.test_datasets import image_folder

    folder = image_folder(tmp_path / "pets", per_class=40)
    good = load(str(folder)).fingerprint
    for seconds in (0.01, 0.12, 0.25):
        for path in own_cache.iterdir():
            dataset_cache.remove(path)
        assert kill_creation(folder, seconds) == -9
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an entry that is whole or missing is not damaged
            assert load(str(folder)).fingerprint == good
        assert len([p for p in own_cache.iterdir() if p.is_dir()]) == 1


def test_two_processes_heal_one_entry_at_once(tmp_path, own_cache):
    from tests.federation.data.test_datasets import image_folder

    folder = image_folder(tmp_path / "pets", per_class=20)
    good = load(str(folder)).fingerprint
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    flip(entry / "train_features.npy", 1000)
    code = "import sys; from fedcohort.federation.data.load_dataset import load; print(load(sys.argv[1]).fingerprint)"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [racer.communicate(timeout=120) for racer in racers]
    assert {out.strip() for out, _ in said} == {good}
    assert sum("was damaged" in err for _, err in said) == 1
    assert [p.name for p in own_cache.iterdir() if p.is_dir()] == [entry.name]


@pytest.mark.slow
def test_a_run_says_in_one_line_that_damage_was_mended(own_cache, tmp_path):
    command = [
        sys.executable,
        "-m",
        "fedcohort",
        "run",
        "--set",
        "rounds=2",
        "--runs",
        str(tmp_path / "runs"),
        "--quiet",
    ]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (first.returncode, first.stderr) == (0, "")
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    flip(entry / "train_labels.npy", 600)
    again = subprocess.run([*command, "--set", "rounds=3"], capture_output=True, text=True, timeout=120)
    assert again.returncode == 0
    (line,) = again.stderr.splitlines()
    assert line.startswith("fedcohort: warning: data set = 'digits': its cached copy")


def test_an_entry_is_checked_by_its_fast_hashes_and_not_by_its_fingerprint(own_cache, monkeypatch):
    """The fingerprint of a large data set takes many times as long as the hashes that were written with the entry."""
    entry = entry_in(own_cache)
    xxh3, hashed, fingerprints = cache_entries._hash_of, [], []

    def counted(array):
        hashed.append(array.shape)
        return xxh3(array)

    monkeypatch.setattr(cache_entries, "_hash_of", counted)
    monkeypatch.setattr(cache_entries, "fingerprint_of_content", lambda *arrays: fingerprints.append(arrays))
    read = read_entry(entry, "made")
    assert read is not None
    assert same(read, made())
    assert sorted(hashed) == sorted(getattr(made(), file.removesuffix(".npy")).shape for file in FILES[1:])
    assert not fingerprints


def test_a_pipe_in_place_of_the_description_of_an_entry_is_damage(tmp_path: Path) -> None:
    """Reading it would wait for ever."""
    os.mkfifo(tmp_path / META)
    with pytest.raises(DamagedEntryError, match=r"^meta\.json is not a file$"):
        read_meta(tmp_path)
