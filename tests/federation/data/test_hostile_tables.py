"""Tables, archives and texts with mistakes and hostile content: each is refused in one line that says what is wrong."""

import io
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcohort
from fedcohort.core.errors import UsageError, one_line, shown
from fedcohort.experiment import load as load_experiment
from fedcohort.federation.data import archives
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.data.numeric_labels import label_scale
from fedcohort.federation.data.samples_of_function import dataset_of_result
from fedcohort.federation.data.table_columns import Columns
from fedcohort.federation.standardization import shift_and_scale
from tests.experiments import small

X, Y = np.arange(80.0).reshape(40, 2), np.arange(40) % 2
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": Y, "ward": Y})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))


def refusal(name: Path, **options: Any) -> str:
    """The message that refuses a file, without the setting and the path."""
    with pytest.raises(UsageError) as refused:
        load(str(name), **options)
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) <= 300
    return re.sub(r"^data\.name = '[^']*': ", "", message)


def csv(folder: Path, text: str) -> Path:
    file = folder / "t.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("columns", "threads"), [(5, True), (3000, False)])
def test_the_memory_for_a_wide_parquet_file_is_not_quadratic(
    columns: int, threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several threads, pyarrow needs memory in proportion to the square of the number of columns."""
    pytest.importorskip("pyarrow")
    read, asked = pd.read_parquet, list[bool]()

    def noted(path: Path, *, use_threads: bool = True, **others: Any) -> Any:
        asked.append(use_threads)
        return read(path, use_threads=use_threads, **others)

    monkeypatch.setattr(pd, "read_parquet", noted)
    values = np.random.default_rng(0).standard_normal((20, columns))
    frame = pd.DataFrame(values).rename(columns=str).assign(label=np.arange(20) % 2)
    frame.to_parquet(tmp_path / "t.parquet")
    data = load(str(tmp_path / "t.parquet"))
    assert data.train_features.shape[1:] == (columns,)
    assert asked == [threads]


def test_two_columns_of_the_same_name(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 2},{i / 3}\n" for i in range(20))
    expected = "appears 2 times; give every column a name of its own"
    assert refusal(csv(tmp_path, f"a,label,label\n{rows}")) == f"the column 'label' {expected}"
    assert refusal(csv(tmp_path, f"a,label,a\n{rows}")) == f"the column 'a' {expected}"
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_arrays([arrow.array([0, 1])] * 3, names=["a", "label", "label"])
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "t.parquet")
    assert refusal(tmp_path / "t.parquet") == f"the column 'label' {expected}"
    frame = pd.DataFrame(np.ones((4, 3)), columns=["a", "label", "label"])
    with pytest.raises(UsageError, match="the column 'label' appears 2 times"):
        dataset_of_result(frame, Columns(), "f", "f")


def test_rows_that_are_longer_than_the_first_line(tmp_path: Path) -> None:
    """pandas would make the first column an index, and it would be missing among the features."""
    message = refusal(csv(tmp_path, "b,label\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(20))))
    assert message == "rows have more values than the first line has names; name every column"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_columns": ["a", "b", "a"]}, "data.feature_columns: 'a' appears 2 times; name it once"),
        ({"feature_columns": ["a", "c"]}, "no column 'c'; choose others with data.feature_columns (columns: a, b,"),
        ({"feature_columns": ["a", "label"]}, "data.feature_columns: 'label' is the column of labels; leave it out"),
        ({"client_column": "label"}, "the column 'label' is both data.label_column and data.client_column; choose"),
    ],
)
def test_columns_that_are_chosen_twice_or_are_not_there(options: Any, message: str, tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    assert refusal(tmp_path / "t.csv", **options).startswith(message)


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez_compressed(folder / "t.npz", **arrays)
    return folder / "t.npz"


DIVIDED = {"train_features": X, "train_labels": Y, "test_features": X[:4], "test_labels": Y[:4]}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": X, "labels": Y, "ids": Y}, "unknown array 'ids'; known here are features, labels, clients, classes"),
        ({**DIVIDED, "features": X}, "unknown array 'features'; known here are train_features, train_labels, test_"),
        ({"features": X, "labels": Y[:9]}, "has 40 features, 9 labels; give one of each for every sample"),
        ({"features": X, "labels": Y, "clients": Y[:3]}, "has 40 features, 40 labels, 3 clients; give one of each"),
        ({"features": X, "labels": Y, "classes": [["no", "yes"]]}, "classes must be texts [K], one name for each"),
        ({"features": X, "labels": Y, "classes": "no"}, "classes must be texts [K], one name for each class, not <U2 []"),
        ({"features": X, "labels": Y, "classes": ["no"]}, "t.npz: train labels: 1 with 1 classes; must be 0..K-1"),
        ({"features": X, "labels": Y, "classes": ["no", "no"]}, "t.npz: classes: 'no' appears twice; give every class"),
        ({"features": np.array(1.0), "labels": Y}, "has 0 features, 40 labels; give one of each for every sample"),
        ({**DIVIDED, "clients": Y, "test_clients": Y[:3]}, "has 4 test_features, 4 test_labels, 3 test_clients; give"),
        (
            {**DIVIDED, "clients": Y, "test_clients": Y[:4] + 7},
            "t.npz: no id in test_clients, such as 7, is among those of the training samples, such as 0; use",
        ),
    ],
)  # fmt: skip
def test_archives_whose_arrays_do_not_fit(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert refusal(npz(tmp_path, **arrays)).startswith(message)


def test_a_function_may_return_no_scalars_and_ragged_lists() -> None:
    for features, message in (
        (1.0, r"f features: are no array but float64; must be an array with one entry"),
        ([[1.0], [1.0, 2.0]], "not an array"),
    ):
        with pytest.raises(UsageError, match=message):
            dataset_of_result((features, [0, 1]), Columns(), "f", "f")


def content(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


GOOD = content(features=X, labels=Y)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; write it with numpy.savez"),
        (os.urandom(0) + bytes(range(1, 250)), "is no .npz file, which is a zip archive; write it with numpy.savez"),
        (pickle.dumps({"features": [1]}), "is a pickle, which is not read, because reading it would run code"),
        (b"\x93NUMPY" + bytes(100), "is a single array (.npy) and not an archive of arrays"),
        (GOOD[: len(GOOD) // 2], "is a zip archive that was cut off or damaged: its directory is missing"),
        (
            content(features=np.array([{}, {}], dtype=object), labels=[0, 1]),
            "array 'features' has pickled Python objects, which are not read, because reading them would run code",
        ),
        (GOOD.replace(X[3:30].tobytes(), X[4:31].tobytes()), "is a damaged zip archive (BadZipFile: Bad CRC-32"),
    ],
)
def test_files_that_are_no_good_archives(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(data)
    assert refusal(tmp_path / "t.npz").startswith(message)


def archive(folder: Path, *members: tuple[str, bytes]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(folder / "t.npz", "w") as made:
        warnings.simplefilter("ignore")  # of zipfile, about a name that appears twice
        for name, data in members:
            made.writestr(name, data)
    return folder / "t.npz"


def npy(shape: tuple[int, ...], data: bytes) -> bytes:
    """An array file with a header that need not fit."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + data


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.npy", npy((1,), bytes(4)))] * 2, "array 'a' appears 2 times; give each array one name"),
        ([("a.txt", b"hello")], "'a.txt' in it is no array of numpy"),
        ([("features.npy", npy((750_000_000,), bytes(8)))], "array 'features' should have 3,000,000,000 bytes by its"),
        ([("features.npy", npy((2**40, 2**40), bytes(8)))], "array 'features' should have 4,835,703,278,458,516,69"),
    ],
)
def test_headers_that_do_not_fit(members: Any, message: str, tmp_path: Path) -> None:
    assert refusal(archive(tmp_path, *members)).startswith(message)


def test_an_archive_that_would_fill_the_memory_is_refused_by_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of the archive that claims 3 GB in a few kilobytes, as of zeros; nothing is unpacked."""
    data = bytearray(archive(tmp_path, ("features.npy", npy((10, 75_000_000), bytes(4)))).read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (3_000_000_128).to_bytes(4, "little")
    (tmp_path / "t.npz").write_bytes(data)
    unpacked: list[str] = []
    monkeypatch.setattr(archives, "_array", lambda _, member: unpacked.append(member.filename))
    assert "would become 3.0 GB; if these are your data, write them without compression" in refusal(tmp_path / "t.npz")
    assert unpacked == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("name", ["p.csv", "p.npz", "p.txt", "p.toml", "p.py:f"])
def test_a_pipe_is_called_a_pipe(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name.partition(":")[0])
    read: Callable[[str], object] = load_experiment if name.endswith(".toml") else load
    with pytest.raises(UsageError, match="is a pipe; "):
        read(str(tmp_path / name))


def test_messages_have_no_addresses() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    headings = pd.DataFrame({len: X[:, 0], print: X[:, 1], np.sum: X[:, 1], Odd.__repr__: Y})
    with pytest.raises(UsageError, match="columns: ") as refused:
        dataset_of_result(headings, Columns(), "f", "f")
    assert " at 0x" not in str(refused.value)
    assert "<function Odd.__repr__" not in shown([object()])
    assert shown([object(), Odd(), refusal]) == f"[<object object>, <Odd>, <function {refusal.__name__}>]"
    assert one_line(f"a {refusal!r}, and {test_messages_have_no_addresses!r}.") == (
        "a <function refusal>, and <function test_messages_have_no_addresses>."
    )


def test_values_too_large_to_be_standardized_are_refused(tmp_path: Path) -> None:
    features = np.column_stack([X[:, 0], np.where(Y == 0, 1.7e308, -1.7e308)])
    data = from_arrays((features, Y), (features, Y), standardise=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            UsageError, match=r"^data\.standardise = true: column 2 of 2 of the features has .* 1\.7e\+308"
        ):
            shift_and_scale(data.train_features, True)
        with pytest.raises(UsageError, match=r"^numeric labels: up to 1\.7e\+308"):
            label_scale(features[:, 1])
        np.testing.assert_allclose(shift_and_scale(features * 1e-160, True)[1][1], 1 / 1.7e148)
    frame = pd.DataFrame({"label": Y, "fine": X[:, 0], "huge": features[:, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert load(str(tmp_path / "t.csv")).train_features.shape == (32, 2)
    assert refusal(tmp_path / "t.csv", standardise=True).startswith(
        "column 'huge' has values up to 1.7e+308, too large"
    )


def test_a_changed_text_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("play.txt").write_text("ANNA: hello there, my friend\nBERT: good day to you\n" * 30)
    experiment = small(data={"name": "play.txt", "window": 8})
    key = experiment.key()
    assert small(data={"name": str(tmp_path / "play.txt"), "window": 8}).key() == key
    Path("copy.txt").write_bytes(Path("play.txt").read_bytes())
    assert small(data={"name": "copy.txt", "window": 8}).key() == key, "the content counts, and not the path"
    Path("play.txt").write_text("ANNA: hello there, my fiend\nBERT: good day to you\n" * 30)
    assert small(data={"name": "play.txt", "window": 8}).key() != key
    assert (
        fedcohort.Experiment(public={"name": "copy.txt"}).key()
        != fedcohort.Experiment(public={"name": "play.txt"}).key()
    )
