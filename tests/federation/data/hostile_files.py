"""Hostile and damaged data: a seeded generator of folders, files, arrays and cache entries that no program should trust.

``cases(seed, count)`` gives cases of all kinds in turn. ``problem(case, folder)`` plays one of them in an empty folder, and says what
went wrong: the data must either load, and then be valid, or be refused by a ``UsageError`` with one line of at most 300 characters
without control characters. Nothing of the data is run, and nothing is printed.

As a program it plays many cases and prints a table by kind; the exit code is 1 if any failed::

    python -m tests.federation.data.hostile_files --count 2000 --seed 1
"""

import argparse
import contextlib
import io
import json
import os
import re
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import unicodedata
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from fedcohort.core.errors import UsageError
from fedcohort.federation.availability import Trace
from fedcohort.federation.data.dataset_cache import load_or_decode
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.load_dataset import load

MARKER = "was-run"
"""Name of the file that hostile code would write beside the data."""
LONGEST = 300
"""Maximum number of characters of a message."""
Draws = np.random.Generator
Reader = Callable[[], object]

NAMES = [
    "a\nb",
    "a\x1b[31mred\x1b[0m",
    "\u202egnp",
    "tab\there",
    "x" * 200,
    "   ",
    "'; DROP",
    "<b>&amp;",
    "ünïcode",
    "日本",
    "\x7f",
    "a\\nb",
]
"""Names of classes and files; those with control characters must be refused or shown with escapes."""


@dataclass(frozen=True)
class HostileCase:
    """One case.

    Attributes:
        kind: what is hostile.
        number: number of the case; with the seed, it determines the case.
        write: writes the files into an empty folder with the case's own draws, and returns what reads them.
        seed: seed of the case's draws.
    """

    kind: str
    number: int
    write: Callable[[Path, Draws], Reader]
    seed: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


def cases(seed: int, count: int) -> Iterator[HostileCase]:
    """``count`` cases, all kinds in turn; the same for the same seed, and the first ones are the same for a larger count."""
    kinds = list(KINDS.items())
    for number in range(count):
        kind, write = kinds[number % len(kinds)]
        yield HostileCase(kind, number, write, seed)


KNOWN_WARNINGS = "was damaged" if pd.__version__ >= "3" else "was damaged|^unclosed file"
"""Warnings that are no problem: our own, and that pandas 2 does not close a table that it cannot read."""


def problem(case: HostileCase, folder: Path) -> str:
    """Play a case in an empty folder; what went wrong, or an empty text. ``FEDCOHORT_CACHE`` should name a folder of its own."""
    draws = np.random.default_rng([case.seed, case.number])
    read = case.write(folder, draws)
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stderr(printed):
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(printed):
            wrong = _wrong(read)
    shown = [text for text in (str(warning.message) for warning in warned) if not re.search(KNOWN_WARNINGS, text)]
    if not wrong and shown:
        wrong = f"warning: {shown[0]}"
    if not wrong and printed.getvalue():
        wrong = f"printed: {printed.getvalue()[:200]!r}"
    if not wrong and list(folder.rglob(MARKER)):
        wrong = "code was run"
    return wrong


def _wrong(read: Reader) -> str:
    try:
        data = read()
    except UsageError as error:
        return _wrong_message(str(error))
    except Exception:
        return traceback.format_exc()
    return _wrong_data(data) if isinstance(data, Dataset) else ""


def _wrong_message(message: str) -> str:
    if len(message) > LONGEST:
        return f"a message of {len(message)} characters: {message}"
    control = [c for c in message if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c == "\u202e"]
    return f"control characters in {message!r}" if control else ""


def _wrong_data(data: Dataset) -> str:
    for features, labels in ((data.train_features, data.train_labels), (data.test_features, data.test_labels)):
        if len(features) != len(labels) or len(labels) == 0:
            return "samples and labels do not fit"
        if labels.min() < 0 or labels.max() >= data.num_classes:
            return "labels out of range"
        if not np.isfinite(features).all():
            return "features that are not finite"
    again = from_arrays(
        (data.train_features, data.train_labels),
        (data.test_features, data.test_labels),
        classes=data.classes,
        writers=data.writers,
        standardise=data.standardise,
    )
    return "" if again.fingerprint == data.fingerprint else "another fingerprint than its content"


# ---- images in folders ----

FORMATS = ["png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"]
MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "YCbCr"]


def _picture(draws: Draws, kind: str = "png", size: tuple[int, int] = (8, 8), mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    noise = Image.fromarray(draws.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    try:
        picture = Image.new(mode, size) if mode in ("I;16", "I", "F") else noise.convert(mode)
        picture.save(buffer, kind)
    except (OSError, ValueError):  # a mode that the format does not have
        buffer = io.BytesIO()
        noise.save(buffer, "png")
    return buffer.getvalue()


def _pets(folder: Path, draws: Draws, kind: str = "png", classes: tuple[str, str] = ("cat", "dog")) -> list[Path]:
    """A good folder of images: two splits, two classes, two images each; the files."""
    files = []
    for split in ("train", "test"):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for i in range(2):
                file = folder / split / name / f"{i}.{'jpg' if kind == 'jpeg' else kind}"
                file.write_bytes(_picture(draws, kind))
                files.append(file)
    return files


def _one(files: list[Path], draws: Draws) -> Path:
    return files[int(draws.integers(len(files)))]


def _reading(folder: Path, **options: Any) -> Reader:
    return lambda: load(str(folder), **options)


def _harm(content: bytes, draws: Draws) -> bytes:
    """The content with a few changed bytes, a cut, a doubled part, zeros, or other content."""
    way, length = int(draws.integers(6)), len(content)
    place = int(draws.integers(max(length, 1)))
    if way == 0:
        changed = bytearray(content)
        for position in draws.integers(0, length, 1 + int(draws.integers(20))):
            changed[position] = int(draws.integers(256))
        return bytes(changed)
    return {
        1: content[:place],
        2: content[:place] + content[place // 2 :],
        3: content[:place] + bytes(length - place),
        4: b"",
        5: draws.bytes(length),
    }[way]


def damaged_image(folder: Path, draws: Draws) -> Reader:
    file = _one(_pets(folder, draws, FORMATS[int(draws.integers(len(FORMATS)))]), draws)
    file.write_bytes(_harm(file.read_bytes(), draws))
    return _reading(folder)


def mixed_images(folder: Path, draws: Draws) -> Reader:
    for file in _pets(folder, draws):
        mode = MODES[int(draws.integers(len(MODES)))]
        side = 8 if draws.random() < 0.9 else int(draws.integers(1, 12))
        file.write_bytes(_picture(draws, size=(8, side), mode=mode))
    return _reading(folder)


def image_bomb(folder: Path, draws: Draws) -> Reader:
    """A small PNG that claims to be very large, with or without its pixels."""
    file = _one(_pets(folder, draws), draws)
    side = int(draws.choice([9_000, 14_000, 30_000, 2**31 - 1]))

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(100_000))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
    return _reading(folder)


def hostile_exif(folder: Path, draws: Draws) -> Reader:
    file = _one(_pets(folder, draws, "jpeg"), draws)
    entry = struct.pack(
        "<HHII", 0x0112, int(draws.integers(1, 13)), int(draws.integers(2**31)), int(draws.integers(2**31))
    )
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", int(draws.integers(1, 3))) + entry
    content = file.read_bytes()
    file.write_bytes(content[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + content[2:])
    return _reading(folder)


def postscript(folder: Path, draws: Draws) -> Reader:
    """PostScript under the name of an image; other programs would run it."""
    file = _one(_pets(folder, draws), draws)
    code = f"({folder / MARKER}) (w) file dup (x) writestring closefile"
    file.write_bytes(f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n{code}\nshowpage\n".encode())
    return _reading(folder)


def class_names(folder: Path, draws: Draws) -> Reader:
    _pets(folder, draws, classes=("cat", NAMES[int(draws.integers(len(NAMES)))]))
    return _reading(folder)


def file_names(folder: Path, draws: Draws) -> Reader:
    file = _one(_pets(folder, draws), draws)
    bad = file.with_name(f"{NAMES[int(draws.integers(len(NAMES)))]}.png")
    file.rename(bad)
    if draws.random() < 0.7:
        bad.write_bytes(_harm(bad.read_bytes(), draws))
    return _reading(folder)


def bytes_in_names(folder: Path, draws: Draws) -> Reader:
    """Names that are not UTF-8."""
    file = _one(_pets(folder, draws), draws)
    with contextlib.suppress(OSError):  # not every file system can have them
        os.rename(os.fsencode(file), os.fsencode(file.parent) + b"/\xff\xfe\x80.png")  # noqa: PTH104
    return _reading(folder)


def name_of_folder(folder: Path, draws: Draws) -> Reader:
    inner = folder / NAMES[int(draws.integers(len(NAMES)))]
    files = _pets(inner, draws)
    if draws.random() < 0.5:
        _one(files, draws).write_bytes(b"")
    return _reading(inner)


def name_of_data(folder: Path, draws: Draws) -> Reader:
    """Names that no data set has."""
    names = [
        "\0",
        "x" * 5000,
        "a/b\0",
        "~" * 300,
        "../" * 2000,
        "a\nb",
        "\udc80",
        "x/" * 300,
        "'" * 90,
        "-",
        ".py:",
        "/dev/null",
    ]
    name = names[int(draws.integers(len(names)))]
    return lambda: load(name, data_dir=folder)


def odd_files(folder: Path, draws: Draws) -> Reader:
    """Links, pipes, empty and hidden folders beside the images or in their place."""
    files = _pets(folder, draws)
    file = _one(files, draws)
    way = int(draws.integers(7))
    if way == 0:
        (folder / "train" / "loop").symlink_to(folder, target_is_directory=True)
    elif way == 1:
        file.unlink()
        file.symlink_to(folder / "nowhere.png")
    elif way == 2 and hasattr(os, "mkfifo"):
        file.unlink()
        os.mkfifo(file)
    elif way == 3:
        (folder / "train" / "empty").mkdir()
    elif way == 4:
        for file in files[:4]:
            file.unlink()
    elif way == 5:
        for file in files:
            file.unlink()
    else:
        (folder / "train" / "metadata.csv").write_text("file_name,label\n../../etc,1\n\x00,,,\n")
    return _reading(folder)


# ---- Parquet ----


def _table(
    folder: Path, columns: dict[str, Any], classes: list[str] | None, split: str = "train", image: bool = True
) -> Path:
    """A Parquet file with the metadata that the library writes, and any content."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label = {"_type": "Value", "dtype": "int64"} if classes is None else {"_type": "ClassLabel", "names": classes}
    features = {name: label for name in columns if name != "image"} | ({"image": {"_type": "Image"}} if image else {})
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{split}-00000-of-00001.parquet"
    pq.write_table(table, file)
    return file


def _cells(draws: Draws, count: int) -> list[dict[str, Any]]:
    return [{"bytes": _picture(draws), "path": f"{i}.png"} for i in range(count)]


def damaged_parquet(folder: Path, draws: Draws) -> Reader:
    file = _table(folder, {"image": _cells(draws, 6), "label": [0, 1] * 3}, ["a", "b"])
    file.write_bytes(_harm(file.read_bytes(), draws))
    return _reading(folder)


def parquet_labels(folder: Path, draws: Draws) -> Reader:
    choices: list[list[Any]] = [
        [0, 1, 2, 0, 1, 1], [-1] * 6, [0, -7, 1, 0, 1, 1], [0.5, 1, 0, 1, 0, 1], [0.0, float("nan"), 1, 0, 1, 1],
        [None] * 6, [0, None, 1, 0, 1, 1], ["a", "b", "a", "b", "a", "b"], [2**63 - 1, 0, 0, 0, 0, 0], [True, False] * 3,
        [[0], [1], [0], [1], [0], [1]], [b"\xff", b"a", b"b", b"", b"c", b"d"], [10**9, 0, 1, 0, 1, 0], [-(2**63), 0, 0, 0, 0, 0],
    ]  # fmt: skip
    labels = choices[int(draws.integers(len(choices)))]
    plain = draws.random() < 0.5
    _table(folder, {"image": _cells(draws, 6), "label": labels}, None if plain else ["a", "b"])
    return _reading(folder, label_column="label") if plain else _reading(folder)


def parquet_images(folder: Path, draws: Draws) -> Reader:
    cells = _cells(draws, 6)
    pipe = folder / "pipe"
    if hasattr(os, "mkfifo"):
        os.mkfifo(pipe)
    bad: list[Any] = [
        None, {"bytes": None, "path": None}, {"bytes": b"", "path": None}, {"bytes": None, "path": str(pipe)},
        {"bytes": None, "path": "/dev/zero"}, {"bytes": None, "path": "a\nb" * 200}, {"bytes": None, "path": "\0"},
        {"bytes": b"\0" * 50, "path": "\x1b[2J"}, {"bytes": None, "path": "https://localhost:1/x.png"},
        {"bytes": None, "path": str(folder)},
    ]  # fmt: skip
    cells[int(draws.integers(6))] = bad[int(draws.integers(len(bad)))]
    _table(folder, {"image": cells, "label": [0, 1] * 3}, ["a", "b"])
    return _reading(folder)


def parquet_columns(folder: Path, draws: Draws) -> Reader:
    """Missing, doubled, long and strange columns, no rows, and splits that do not fit."""
    way = int(draws.integers(7))
    cells, labels = _cells(draws, 6), [0, 1] * 3
    if way == 0:
        _table(folder, {"image": cells}, ["a", "b"])
    elif way == 1:
        _table(folder, {"label": labels}, ["a", "b"], image=False)
    elif way == 2:
        _table(folder, {"image": cells} | {f"label{'x' * 80}{i}": labels for i in range(50)}, ["a", "b"])
    elif way == 3:
        _table(folder, {"image": cells, "a\nb\x1b[1m": labels, "c\u202e": labels}, ["a", "b"])
    elif way == 4:
        _table(folder, {"image": [1, 2, 3, 4, 5, 6], "label": labels}, ["a", "b"])
    elif way == 5:
        _table(folder, {"image": cells, "label": labels}, ["a", "b"])
        _table(folder, {"image": cells, "other": labels}, ["a", "b"], split="test")
    else:
        _table(folder, {"image": cells, "label": labels}, ["a", NAMES[int(draws.integers(len(NAMES)))]])
    return _reading(folder)


def parquet_metadata(folder: Path, draws: Draws) -> Reader:
    """A good table with hostile metadata for the library."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [
        "", "{", "[" * 5000, "null", '{"info": {"features": {"image": {"_type": "Nothing"}}}}', '{"info": []}',
        '{"info": {"features": {"image": {"_type": "os.system"}}}}', '{"info": {"features": {"other": {"_type": "Image"}}}}',
        '{"info": {"features": {"label": {"_type": "ClassLabel", "names": []}, "image": {"_type": "Image"}}}}',
        '{"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", "a"]}, "image": {"_type": "Image"}}}}',
    ]  # fmt: skip
    table = pa.table({"image": _cells(draws, 4), "label": [0, 1, 0, 1]})
    pq.write_table(
        table.replace_schema_metadata({"huggingface": texts[int(draws.integers(len(texts)))]}), folder / "train.parquet"
    )
    return _reading(folder)


# ---- other files ----


class _Runs:
    """An object that writes the marker when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


def pickled_objects(folder: Path, draws: Draws) -> Reader:
    """Files that would run code if they were unpickled: npy, npz and pkl, alone, among images, and in an archive."""
    objects = np.array([_Runs(folder / MARKER)], dtype=object)
    buffer = io.BytesIO()
    way = int(draws.integers(4))
    if way == 0:
        np.savez(buffer, image=objects, label=objects)
    else:
        np.save(buffer, objects)
    name = ["0.npz", "0.npy", "0.pkl", "0.png"][way]
    files = _pets(folder, draws) if draws.random() < 0.5 else []
    (folder / name).write_bytes(buffer.getvalue())
    if draws.random() < 0.5:
        with tarfile.open(folder / "train.tar", "w") as archive:
            archive.add(folder / name, name)
        if not files:
            (folder / name).unlink()
    return _reading(folder)


def archives(folder: Path, draws: Draws) -> Reader:
    """Zip archives: of zeros with a false size, cut, nested, and with paths that leave the folder."""
    file = folder / "train.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../" + MARKER, "x")
        archive.writestr("cat/0.png", _picture(draws))
        archive.writestr("dog/0.png", bytes(2_000_000))
    content = file.read_bytes()
    if draws.random() < 0.5:  # the directory claims 4 GB − 1 B for every member, in many members
        place = content.find(b"PK\x01\x02")
        content = content[: place + 24] + b"\xfe\xff\xff\xff" + content[place + 28 :]
    file.write_bytes(content if draws.random() < 0.6 else _harm(content, draws))
    return _reading(folder)


def descriptions(folder: Path, draws: Draws) -> Reader:
    """A README with settings for the library."""
    _pets(folder, draws)
    lines = [
        "configs:\n- config_name: a\n  data_files: ../../../etc/*",
        "configs:\n- config_name: a\n  data_files: /etc/passwd",
        "configs:\n- config_name: a\n  data_files:\n  - split: train\n    path: https://localhost:1/x.parquet",
        "configs:\n- config_name: a\n  data_files: zip://x::http://localhost:1/x.zip",
        "configs: 3", "[" * 3000, "a: &a [*a]", "a: !!python/object/apply:os.system ['true']", "\x00", "dataset_info: {features: 7}",
        "dataset_info:\n  features:\n  - name: image\n    dtype: text",
    ]  # fmt: skip
    (folder / "README.md").write_text(f"---\n{lines[int(draws.integers(len(lines)))]}\n---\n# x\n")
    return _reading(folder)


def loading_script(folder: Path, draws: Draws) -> Reader:
    inner = folder / "script"
    if draws.random() < 0.5:
        _pets(inner, draws)
    inner.mkdir(exist_ok=True)
    (inner / "script.py").write_text(f"open({str(folder / MARKER)!r}, 'w').close()\n")
    return _reading(inner)


def tables_of_text(folder: Path, draws: Draws) -> Reader:
    contents = {
        "train.csv": "image,label\n/etc/passwd,0\n", "train.json": "[" * 20_000, "train.jsonl": '{"image": 1}\n{"image": [[]]}\n',
        "train.txt": "\x00\x1b[2J", "train.xml": '<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><x>&b;</x>',
        "train.h5": "\x89HDF", "train.arrow": "ARROW1", "train.tsv": "a\tb\n" * 10, "train.tar": "x" * 2000,
    }  # fmt: skip
    name = list(contents)[int(draws.integers(len(contents)))]
    content = contents[name].encode()
    (folder / name).write_bytes(content if draws.random() < 0.7 else _harm(content, draws))
    return _reading(folder)


def traces(folder: Path, draws: Draws) -> Reader:
    """Files of availability."""
    contents = [
        "[" * 50_000, "[[0], [1e999]]", '[["a"]]',
        "[[-1]]", "[[0]" + ", [0]" * 5, "{}", "null", "[[99999999999999999999]]", "\x00\xff",
        "round,client\n1,0\n1e9,3\n",
        "round,client\n0,0\n", "round,client\n9223372036854775807,0\n", "a\x1b[2J,b\n1,2\n", '"' * 100, "",
        "[[0], " + "[0]" * 3 + "]", "[[true]]", "round,client\n1,\n", '[["' + "x" * 5000 + '"]]',
    ]  # fmt: skip
    content = contents[int(draws.integers(len(contents)))].encode()
    file = folder / f"trace.{'json' if draws.random() < 0.5 else 'csv'}"
    file.write_bytes(content if draws.random() < 0.8 else _harm(content, draws))
    law = Trace(file=str(file))
    return lambda: law.presence(3, 2, 0)(1).sum()


# ---- arrays and the cache ----


def arrays(folder: Path, draws: Draws) -> Reader:
    """Arrays from Python."""
    import torch

    good, labels = draws.normal(size=(6, 3)), np.array([0, 1] * 3)
    wrong_features: list[Any] = [
        np.where(draws.random((6, 3)) < 0.3, np.nan, good), good * np.inf, good.astype(object), good.astype(str), good[:0], good[0],
        np.float64(3), None, "text", [[1], [1, 2]], good.astype(complex), np.zeros((6, 0)), np.zeros((2,) * 7), {"a": 1}, object(),
        torch.zeros(6, 3, dtype=torch.bfloat16), torch.zeros(6, 3, device="meta"), torch.eye(6).to_sparse(), np.full((6, 3), 1e300),
        np.zeros(6, dtype=[("x", "f4"), ("y", "i4")]), np.array(["2026-01-01"] * 6, dtype="M8[D]"), [[10**400] * 3] * 6, b"bytes",
    ]  # fmt: skip
    wrong_labels: list[Any] = [
        labels - 1, labels + 10**12, labels / 2, labels.astype(str), labels[:5], labels[:, None], labels.astype(object), [None] * 6,
        [], np.full(6, 2**64 - 1, dtype=np.uint64), [float("nan")] * 6, labels * 2**62, None, "labels",
        torch.zeros(6, dtype=torch.long, device="meta"),
        [0, 1, 10**30, 0, 1, 0],
    ]  # fmt: skip
    features: Any = wrong_features[int(draws.integers(len(wrong_features)))] if draws.random() < 0.6 else good
    given: Any = wrong_labels[int(draws.integers(len(wrong_labels)))] if draws.random() < 0.6 else labels
    options: dict[str, Any] = {"name": NAMES[int(draws.integers(len(NAMES)))]}
    if draws.random() < 0.3:
        options["classes"] = [NAMES[int(i)] for i in draws.integers(0, len(NAMES), 2)]
    if draws.random() < 0.3:
        options["writers"] = [[0.5] * 6, [None] * 6, [1] * 5, "writer", [[1]] * 6, NAMES[:6]][int(draws.integers(6))]
    return lambda: from_arrays((features, given), (good, labels), **options)


def cached_entries(folder: Path, draws: Draws) -> Reader:
    """A damaged entry of the cache, which must be healed: the data are always those that were written."""
    from fedcohort.federation.data.cache_entries import save

    good = from_arrays(
        (draws.integers(0, 256, (8, 1, 4, 4)), [0, 1] * 4),
        (draws.integers(0, 256, (2, 1, 4, 4)), [0, 1]),
        writers=range(8),
        standardise=True,
    )

    def again() -> Dataset:
        healed = load_or_decode(folder / "entry-1", "entry", lambda _, out: save(good, out))
        assert healed.fingerprint == good.fingerprint
        assert np.array_equal(healed.train_features, good.train_features)
        assert np.array_equal(healed.train_labels, good.train_labels)
        return healed

    again()
    file = _one(sorted((folder / "entry-1").iterdir()), draws)
    content = file.read_bytes()
    buffer = io.BytesIO()
    way = int(draws.integers(6))
    if way == 0:
        np.save(buffer, np.array([_Runs(folder / MARKER)], dtype=object))
    elif way == 1:
        np.savez(buffer, x=np.zeros(3))
    elif way == 2:
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({2**60},), }}".ljust(117) + "\n"
        buffer.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    elif way == 3:
        buffer.write(b"[" * 60_000)
    else:
        buffer.write(_harm(content, draws))
    file.unlink()
    if draws.random() < 0.9:
        file.write_bytes(buffer.getvalue())
    return again


KINDS: dict[str, Callable[[Path, Draws], Reader]] = {
    function.__name__.replace("_", " "): function
    for function in (
        damaged_image, mixed_images, image_bomb, hostile_exif, postscript, class_names, file_names, bytes_in_names, name_of_folder,
        name_of_data, odd_files, damaged_parquet, parquet_labels, parquet_images, parquet_columns, parquet_metadata, pickled_objects,
        archives, descriptions, loading_script, tables_of_text, traces, arrays, cached_entries,
    )
}  # fmt: skip
"""What is hostile, and what writes it."""


def main() -> int:
    """Play many cases; a table by kind, and every failure."""
    parser = argparse.ArgumentParser(description="Play hostile data files against FedCohort.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slowest", type=float, default=5.0, help="longest time of a case in seconds")
    options = parser.parse_args()
    played, failed, seconds = Counter[str](), Counter[str](), Counter[str]()
    for case in cases(options.seed, options.count):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FEDCOHORT_CACHE"] = str(Path(folder) / "cache")
            (Path(folder) / "data").mkdir()
            begin = time.perf_counter()
            wrong = problem(case, Path(folder) / "data")
            took = time.perf_counter() - begin
        if not wrong and took > options.slowest and case.number >= len(KINDS):  # the first ones import libraries
            wrong = f"took {took:.1f} s"
        played[case.kind] += 1
        failed[case.kind] += bool(wrong)
        seconds[case.kind] = max(seconds[case.kind], took)  # type: ignore[assignment]
        if wrong:
            print(f"{case}, seed {case.seed}: {wrong}", file=sys.stderr)
    for kind in KINDS:
        print(f"{kind:<20} {played[kind]:>6} played {failed[kind]:>6} failed   slowest {seconds[kind]:.1f} s")
    print(f"{'all':<20} {played.total():>6} played {failed.total():>6} failed")
    return int(failed.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
