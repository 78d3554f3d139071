"""States in files: every number format comes back, any safetensors reader can open them, and large ones are never in memory whole."""

import hashlib
import os
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load

from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import CorruptState, as_before, load_state, pack, save_state, unpack

FORMATS = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip


def everything() -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    return {
        "tensors": {
            str(dtype): (torch.rand(3, 5, generator=draw) * 9 - 2).abs().to(dtype) for dtype in reversed(FORMATS)
        },
        "shapes": [torch.tensor(7), torch.empty(0, 4), torch.arange(6.0).reshape(2, 3).T, torch.ones(1, dtype=torch.int8)],
        "arrays": {"a": np.arange(5), "nothing": np.zeros((2, 0)), "every other": np.arange(10.0)[::2], "yes": np.array([True])},
        "plain": [1, 2.5, "wörd", None, True, float("inf"), {"deep": [np.float64(0.1), np.int64(2**60)]}],
        "empty": {},
    }  # fmt: skip


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == expected.dtype and np.array_equal(found, expected)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def test_everything_comes_back_from_bytes_and_from_a_file(tmp_path: Path) -> None:
    state, file = everything(), tmp_path / "state.safetensors"
    digest = save_state(file, state)
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.read_bytes() == pack(state)
    for found in (unpack(pack(state)), load_state(file, sha256=digest)):
        assert same(found, state)
        assert pack(found) == pack(state)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_is_not_read(tmp_path: Path) -> None:
    """Reading the one would wait, and the other has no end."""
    os.mkfifo(tmp_path / "pipe")
    for file, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(CorruptState, match=f"it is {kind}"):
            load_state(file, sha256="0" * 64)


def test_a_shape_that_does_not_fit_its_tensor_is_corrupt() -> None:
    data = pack({"a": np.arange(6.0)})
    with pytest.raises(CorruptState, match="it cannot be parsed: shape"):
        unpack(data.replace(rb"\"shape\": [6]", rb"\"shape\": [9]"))


def test_large_tensors_are_hashed_beside_the_writing(tmp_path: Path) -> None:
    large = torch.randn(700, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state, file = {"a": large, "turned": large.T, "small": torch.arange(3), "half": large.half()}, tmp_path / "large"
    assert save_state(file, state) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert same(load_state(file), state)


def test_any_reader_of_safetensors_can_open_it() -> None:
    found = load(pack({"a": torch.arange(3), "b": [np.ones((2, 2)), torch.tensor([True])]}))
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        "0": [0, 1, 2],
        "1": [[1.0, 1.0], [1.0, 1.0]],
        "2": [True],
    }


def test_a_state_without_arrays() -> None:
    assert unpack(pack({})) == {}
    assert unpack(pack({"a": [1, None]})) == {"a": [1, None]}


def test_what_was_read_may_be_changed_and_its_file_deleted(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    save_state(file, {"a": torch.zeros(4)})
    before = file.read_bytes()
    found = load_state(file)
    found["a"][1] = 5
    assert file.read_bytes() == before
    file.unlink()
    assert found["a"].tolist() == [0, 5, 0, 0]


def test_other_things_are_no_state() -> None:
    with pytest.raises(TypeError, match=r"a state may hold arrays, numbers, .* not set"):
        pack({"a": {1, 2}})
    with pytest.raises(UsageError, match=r"^selector\.models = <object.*: a state may hold .* override state_dict"):
        pack({"selector": {"models": [1, object()]}})


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b[:20], lambda b: b"", lambda b: b"\xff" * 8 + b[8:]])
def test_a_damaged_file_is_found_without_a_hash(change: Any, tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    file.write_bytes(change(pack({"a": torch.arange(100)})))
    with pytest.raises(CorruptState):
        load_state(file)


def test_another_hash_is_found(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    digest = save_state(file, {"a": torch.arange(100)})
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptState, match="SHA-256"):
        load_state(file, sha256=digest)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.slow
def test_memories_that_lie_in_a_file_never_come_into_memory_as_a_whole(tmp_path: Path) -> None:
    """256 MiB of clients' memories, saved and loaded again under a limit of 64 MiB of anonymous memory."""
    done = subprocess.run(
        [sys.executable, "-c", _LARGE, str(tmp_path)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    saving, loading = map(int, done.stdout.split())
    assert saving < 64
    assert loading < 64


_LARGE = """
import resource, sys, threading
from pathlib import Path
import torch
from fedcohort.core.files.state_files import load_state, save_state
from fedcohort.training.client_memories import Memories

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon"))

def peak_of(work):
    before, peak, done = anonymous(), [0], threading.Event()
    def watch():
        while not done.wait(0.002):
            peak[0] = max(peak[0], anonymous())
    thread = threading.Thread(target=watch)
    thread.start()
    work()
    done.set()
    thread.join()
    return max(peak[0], anonymous()) - before

folder = Path(sys.argv[1])
store = Memories(0, folder)
for start in range(0, 64, 8):
    round = store.begin()
    for client in range(start, start + 8):
        store.propose(round, client, {"c": {"w": torch.full((2**20,), float(client))}})
    store.commit(range(start, start + 8))
file, other = folder / "state", Memories(0, folder)
save = peak_of(lambda: save_state(file, {"engine": store.state_dict()}))
load = peak_of(lambda: other.load_state_dict(load_state(file)["engine"]))
assert all(float(other.get(client)["c"]["w"][77]) == client for client in range(64))
print(save, load)
"""


def test_numbers_of_numpy_tuples_and_keys_come_back_as_they_were() -> None:
    state = {
        "rate": np.float32(0.1),
        "count": np.int64(3),
        "pair": (1, (np.bool_(True), [2])),
        "by key": {(1, "a"): 1, 5: 2, None: 3, np.int64(7): 4},
        "other order": np.array([1.0, 2.0], ">f8"),
    }
    back = unpack(pack(state))
    assert repr(back["rate"] * 0.9) == repr(np.float32(0.1) * 0.9)  # a number of Python would be rounded later
    assert [type(back[name]) for name in ("rate", "count", "pair")] == [np.float32, np.int64, tuple]
    assert back["pair"] == state["pair"]
    assert back["by key"] == state["by key"]
    assert back["other order"].tolist() == [1.0, 2.0]


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (endless(), "is nested too deeply or contains itself"),
        (np.array([None]), r"^x = array.*not ndarray of object; override state_dict"),
        (np.array(["a"]), "not ndarray of <U1"),
        (np.ones(2, complex), "not ndarray of complex128"),
        (np.ma.ones(2), "not MaskedArray of float64"),
        (torch.ones(2).to_sparse(), "^x = .*override state_dict"),
        (np.datetime64("2020"), "not datetime64"),
        ({frozenset[int](): 1}, "^x, a key = .*not"),
    ],
)
def test_what_cannot_come_back_is_refused(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pack({"x": value})


def test_arrays_that_cannot_be_written_to_are_stored_without_a_warning() -> None:
    """A strategy may keep what it was given, such as the numbers of an outcome. PyTorch warns once per process."""
    code = (
        "import numpy as np\n"
        "from fedcohort.core.files.state_files import pack, unpack\n"
        "given = np.arange(5.0)\n"
        "given.setflags(write=False)\n"
        "assert unpack(pack({'given': given}))['given'].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dictionaries_get_the_types_that_they_had_before_reading() -> None:
    before = {"n": Counter({9: 1}), "by_client": defaultdict(list, {7: [1]}), "nested": {"n": Counter(), "list": []}}
    state = {
        "n": Counter({3: 2, 1: 5}), "by_client": defaultdict(list, {2: [0.5]}), "nested": {"n": Counter({"a": 1}), "list": [1, 2]},
        "new": OrderedDict(a=1),
    }  # fmt: skip
    read = unpack(pack(state))
    found = as_before(read, before)
    assert found == state
    assert [type(found[name]) for name in ("n", "by_client", "new")] == [Counter, defaultdict, dict]
    assert type(found["nested"]["n"]) is Counter
    assert list(found["n"]) == [3, 1]
    assert (found["n"][100], found["by_client"][100]) == (0, [])
    assert before["n"] == Counter({9: 1})
    assert as_before([1], Counter()) == [1]
