"""Hostile and damaged data are valid or refused in one line: a seeded part of the campaign, and the cases that matter most by name."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.folder_checks import files_in
from fedcohort.federation.data.load_dataset import load
from tests.cli.test_cli import call, refused
from tests.federation.data.hostile_files import KINDS, cases, problem
from tests.federation.data.test_datasets import cells, hub_folder, image_folder, png


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Every test has an empty cache, and no mirror."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    return tmp_path / "cache" / "datasets"


@pytest.mark.parametrize("case", [*cases(seed=17, count=3 * len(KINDS))], ids=str)
def test_hostile_data_are_valid_or_refused_in_one_line(case, tmp_path):
    (tmp_path / "data").mkdir()
    assert problem(case, tmp_path / "data") == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_hostile_data(seed, tmp_path):
    for case in cases(seed, 200):
        (tmp_path / str(case.number)).mkdir()
        assert problem(case, tmp_path / str(case.number)) == "", f"{case}, seed {seed}"


def test_cases_are_those_of_their_seed():
    assert [(case.kind, case.number) for case in cases(3, 30)] == [(case.kind, case.number) for case in cases(3, 50)][
        :30
    ]
    assert {case.kind for case in cases(3, len(KINDS))} == set(KINDS)


def test_the_harness_sees_tracebacks_long_messages_and_code_that_ran(tmp_path):
    from tests.federation.data.hostile_files import MARKER, HostileCase, _wrong_message

    def raising(error):
        def write(folder, draws):
            def read():
                raise error

            return read

        return HostileCase("", 0, write, 0)

    def marking(folder, draws):
        return (folder / MARKER).touch

    def printing(folder, draws):
        return lambda: print("noise")

    assert "ValueError" in problem(raising(ValueError("x")), tmp_path)
    assert problem(raising(UsageError("x")), tmp_path) == ""
    assert "a message of 301" in _wrong_message("x" * 301)
    assert "control" in _wrong_message("x\x1b")
    assert "printed" in problem(HostileCase("", 0, printing, 0), tmp_path)
    assert problem(HostileCase("", 0, marking, 0), tmp_path) == "code was run"


def describe(folder: Path, *options: str):
    return call("data", "describe", "--set", f"data.name={json.dumps(str(folder))}", *options)


def bad_image(folder: Path, content: bytes) -> Path:
    (image_folder(folder) / "train" / "dog" / "1.png").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be decoded (not an image); replace or remove it"),
        (b"no image", "cannot be decoded (not an image); replace or remove it"),
        (png(1)[:50], "cannot be decoded ("),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n", "cannot be decoded (not an image)"),
        (png(1, size=(3, 3)), "sizes 6x4 and 3x3 (width x height); images must share one size"),
        (
            png(1, mode="I;16"),
            "; images must have 8 bits per channel",
        ),  # Pillow calls the mode I, and since version 10.3 I;16
    ],
)
def test_a_bad_image_is_named(tmp_path, content, message):
    refused(describe(bad_image(tmp_path / "pets", content)), "train image 6", "train/dog/1.png'", message)


def test_a_picture_that_claims_to_be_huge_is_refused(tmp_path):
    from PIL import Image

    Image.new("1", (20_000, 10_000)).save(tmp_path / "bomb.png")
    content = (tmp_path / "bomb.png").read_bytes()
    assert len(content) < 100_000
    refused(describe(bad_image(tmp_path / "pets", content)), "1.png", "DecompressionBomb")


def test_images_without_room_for_them_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    import shutil

    class Full:
        free = 100

    folder = image_folder(tmp_path / "pets")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Full)
    refused(describe(folder), "0.0 GB are free in the cache", "FEDCOHORT_CACHE")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "\u202edog"])
def test_class_names_with_control_characters_are_refused(tmp_path, name):
    folder = image_folder(tmp_path / "pets")
    for split in ("train", "test"):
        (folder / split / "dog").rename(folder / split / name)
    done = describe(folder)
    refused(done, "has control characters in its name, or in that of its folder; rename it with visible characters")
    assert "\x1b" not in done.stderr
    features = np.zeros((4, 2))
    with pytest.raises(UsageError, match="control characters"):
        from_arrays((features, [0, 1, 0, 1]), (features, [0, 1, 0, 1]), classes=["x", name])


def test_names_in_other_languages_are_fine():
    features = np.zeros((4, 2))
    names = ("日本", "ünï\u3000code", "👩‍🔬", "a b")
    made = from_arrays((features, [0, 1, 2, 3]), (features, [0, 1, 2, 3]), classes=names)
    assert made.classes == names


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "pages"])
def test_a_damaged_parquet_file_is_named(tmp_path, damage):
    rows = {"image": cells(*[png(i) for i in range(40)]), "label": [0, 1] * 20}
    folder = hub_folder(tmp_path / "set", {"train": rows, "test": rows})
    file = folder / "test-00000-of-00001.parquet"
    content = file.read_bytes()
    broken = content[:4] + bytes([255]) * 200 + content[204:]
    file.write_bytes({"empty": b"", "cut": content[:-20], "text": b"x,y\n", "pages": broken}[damage])
    refused(describe(folder), "file 'test-00000-of-00001.parquet' is", "copy it again")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 7], "train labels: 7 with 2 classes; must be 0..K-1"),
        ([0, -3], "train labels: -3 with 2 classes"),
        ([0, None], "train labels: must be integers 0..K-1 [N], 1 of 2 are missing"),
    ],
)
def test_labels_of_a_parquet_file(tmp_path, labels, message):
    import pyarrow as pa
    import pyarrow.parquet as pq

    good = {"image": cells(png(1), png(2)), "label": [0, 1]}
    folder = hub_folder(tmp_path / "set", {"train": good, "test": good})
    file = folder / "train-00000-of-00001.parquet"
    table = pq.read_table(file)  # the library itself would not write such labels
    place = table.schema.get_field_index("label")
    pq.write_table(table.set_column(place, table.schema.field("label"), pa.array(labels, pa.int64())), file)
    refused(describe(folder), message)


def test_float_labels_are_refused(tmp_path):
    import datasets

    types = {"image": datasets.Image(), "label": datasets.Value("float64")}
    good = {"image": cells(png(1), png(2)), "label": [0.0, 1.0]}
    folder = hub_folder(tmp_path / "set", {"train": good, "test": good}, types)
    refused(
        describe(folder, "--set", "data.label_column='label'"),
        "label_column = 'label': not a column of type ClassLabel",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("configs:\n- config_name: a\n  data_files: ../../etc/*", "names data outside the folder, '../../etc/*'"),
        ("configs:\n- config_name: a\n  data_files: /etc/passwd", "names data outside the folder, '/etc/passwd'"),
        ("configs:\n- config_name: a\n  data_files: http://x/y.zip", "names data outside the folder, 'http://x/y.zip'"),
        ("a: [", "has settings that are not YAML"),
        ("a: !!python/object/apply:os.system ['true']", "has settings that are not YAML"),
    ],
)
def test_a_description_may_not_name_data_elsewhere(tmp_path, settings, message):
    folder = image_folder(tmp_path / "pets")
    (folder / "README.md").write_text(f"---\n{settings}\n---\n# Pets\n")
    refused(describe(folder), "file 'README.md'", message)


def test_a_description_that_names_its_own_files_is_used(tmp_path):
    rows = {"image": cells(png(1), png(2)), "label": [0, 1]}
    folder = hub_folder(tmp_path / "set", {"train": rows, "test": rows})
    (folder / "a").mkdir()
    for file in folder.glob("*.parquet"):
        file.rename(folder / "a" / file.name)
    files = "".join(f"\n  - split: {s}\n    path: a/{s}-*.parquet" for s in ("train", "test"))
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files:{files}\n---\n")
    assert load(str(folder)).num_train == 2


def test_a_loading_script_is_not_run(tmp_path):
    (image_folder(tmp_path / "pets") / "pets.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    refused(describe(tmp_path / "pets"), "has the loading script 'pets.py'; scripts of data sets are never run")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_an_archive_that_is_larger_than_the_disk_is_not_unpacked(tmp_path):
    import zipfile

    image_folder(tmp_path / "pets")
    file = tmp_path / "pets" / "more.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(60_000):
            archive.writestr(str(i), b"")
    content = file.read_bytes()
    central = content.index(b"PK\x01\x02")
    parts = content[central:].split(b"PK\x01\x02")
    claimed = b"PK\x01\x02".join([parts[0], *(part[:20] + b"\xf0\xff\xff\xff" + part[24:] for part in parts[1:])])
    file.write_bytes(content[:central] + claimed)
    refused(describe(tmp_path / "pets"), "file 'more.zip' would become", "are free")


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    """A class without permission would be missing without a word."""
    import os

    folder, scandir = image_folder(tmp_path / "pets"), os.scandir

    def refuse(path):
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    refused(describe(folder), "/dog' cannot be read (Permission denied)")


def test_a_linked_class_is_not_left_out(tmp_path):
    """The library does not follow links to folders: the class would be missing without a word."""
    folder = image_folder(tmp_path / "pets")
    (folder / "train" / "dog").rename(tmp_path / "dog")
    (folder / "train" / "dog").symlink_to(tmp_path / "dog", target_is_directory=True)
    refused(describe(folder), "'train/dog' is a link to a folder, which is not followed; copy the folder")


@pytest.mark.parametrize("odd", ["link", "loop", "pipe"])
def test_a_link_to_nothing_and_a_pipe_are_not_left_out(odd, tmp_path):
    """The sample would be missing without a word; hidden links, as those of editors, are no samples."""
    folder = image_folder(tmp_path / "pets")
    (folder / "train" / ".#notes").symlink_to("nowhere")
    assert len(files_in(folder, "data")) > 1
    file = min((folder / "train" / "dog").iterdir())
    file.unlink()
    if odd == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("nowhere.png" if odd == "link" else file.name)
    refused(describe(folder), f"'train/dog/{file.name}' is a link to nothing, a pipe or a device; replace it")


# ---- data sets that were not made by from_arrays ----

GOOD: dict = {
    "name": "mine",
    "train_features": np.zeros((4, 2), dtype=np.float32),
    "train_labels": np.array([0, 1, 0, 1]),
    "test_features": np.zeros((2, 2), dtype=np.float32),
    "test_labels": np.array([0, 1]),
    "classes": ("a", "b"),
    "fingerprint": "x",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": np.array([0, 1, 2, 1])}, "mine: train labels: 2 with 2 classes"),
        ({"test_labels": np.array([0, -1])}, "mine: test labels: -1 .*unlabeled"),
        ({"train_labels": np.array([0.0, 1, 0, 1])}, r"train labels: float64 \[4\]; must be int64 \[N\]; .*from_arrays"),
        ({"train_labels": [0, 1, 0, 1]}, "train labels: list; must be int64"),
        ({"train_features": np.zeros((3, 2), dtype=np.float32)}, "train has 3 samples but 4 labels"),
        ({"test_features": np.full((2, 2), np.nan, dtype=np.float32)}, "test features: 4 values are NaN or infinite"),
        ({"test_features": np.zeros((2, 3), dtype=np.float32)}, r"a train sample is float32 \[2\], a test sample float32 \[3\]"),
        ({"train_features": np.zeros((4, 2), dtype=object)}, r"train features: object \[4, 2\]; must be"),
        ({"writers": np.arange(3)}, "4 training samples but 3 ids of clients"),
        ({"classes": ("a", "b\n")}, "class 1, 'b.*n': the name contains control characters"),
        ({"test_features": np.zeros((0, 2), dtype=np.float32), "test_labels": np.zeros(0, dtype=int)}, "test split: has no samples"),
    ],
)  # fmt: skip
def test_a_data_set_checks_its_arrays(change, message):
    assert Dataset(**GOOD).num_classes == 2
    with pytest.raises(UsageError, match=message):
        Dataset(**(GOOD | change))


def test_texts_in_messages():
    assert brief("a\nb\x1b[2J\udc80\u202e") == r"a\nb\x1b[2J\udc80\u202e"
    assert brief("x" * 10**6, 20) == "x" * 10 + "…" + "x" * 9
    assert brief("start" + "\n" * 500 + "end", 40).startswith("start")
    assert brief("start" + "\n" * 500 + "end", 40).endswith("end")
    assert all(len(brief("\n" * n, 30)) <= 30 for n in range(200))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 10**6, "too many nested brackets"),
        ('[["\x1b[2J"]]', "Invalid control character"),
        ('[["\\u001b[2J"]]', "round 1 is ['"),
        ('[["' + "x" * 5000 + '"]]', "round 1 is"),
    ],
)
def test_traces_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "trace.json").write_text(content)
    setting = f"systems.availability={{name='trace',file={json.dumps(str(tmp_path / 'trace.json'))}}}"
    done = call("data", "describe", "--set", setting)
    refused(done, "trace.json", message)
    assert len(done.stderr) < 330
    assert "\x1b" not in done.stderr


def test_clients_without_samples_are_described(tmp_path):
    done = call(
        "data",
        "describe",
        "--set",
        "federation.clients=30",
        "--set",
        'federation.partition={name="dirichlet_class",alpha=0.01,min_size=0}',
    )
    assert done.exit_code == 0
