"""Data sets: embedded ones, one's own arrays, folders, a local mirror, the cache, and every way to get them wrong."""

import io
import json
import logging
import mmap
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedcohort.core.errors import UsageError
from fedcohort.federation.data import images, load_dataset
from fedcohort.federation.data.datasets import Dataset, from_arrays, part
from fedcohort.federation.data.load_dataset import NAMES, load
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import Iid, partition
from tests.repetitions import slow_after

MIRROR = os.environ.get("FEDCOHORT_DATA")
needs_mirror = pytest.mark.skipif(
    not MIRROR or not Path(MIRROR).is_dir(), reason="FEDCOHORT_DATA does not name a local mirror of the image data sets"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Every test has an empty cache, and no mirror unless it names one."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    return tmp_path / "cache" / "datasets"


def no_library(monkeypatch):
    """From now on, reading through the library is a failure of the test."""

    def fail(*args, **kwargs):
        raise AssertionError("the data set was read again")

    monkeypatch.setattr(load_dataset, "read", fail)


def png(color, size=(6, 4), mode="RGB", **options):
    buffer = io.BytesIO()
    Image.new(mode, size, color).save(buffer, "png", **options)
    return buffer.getvalue()


def image_folder(root, splits=("train", "test"), per_class=5, size=(6, 4), mode="RGB"):
    """Class k has images of value 50 k + i, so that every pixel tells its label."""
    for split in splits:
        for k, name in enumerate(("cat", "dog")):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(per_class):
                value = 50 * k + i
                (folder / f"{i}.png").write_bytes(png((value, 0, 200) if mode == "RGB" else value, size, mode))
    return root


def hub_folder(root, splits, features=None):
    """A folder in the Hub's layout: one parquet file a split, made of columns."""
    import datasets

    features = features or {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    root.mkdir(parents=True)
    for split, columns in splits.items():
        rows = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        rows.to_parquet(root / f"{split}-00000-of-00001.parquet")
    return root


def cells(*images):
    return [{"bytes": image, "path": None} for image in images]


def table(num=4, dim=3, dtype=np.float32):
    return np.arange(num * dim, dtype=dtype).reshape(num, dim), np.arange(num) % 2


# ---- embedded ----


def test_digits_are_grey_images_split_within_each_class():
    digits = load("digits")
    assert digits.train_features.shape == (1438, 1, 8, 8)
    assert digits.test_features.shape == (359, 1, 8, 8)
    assert digits.train_features.dtype == np.uint8
    assert digits.train_features.max() == 16
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.int64
    assert digits.classes == tuple("0123456789")
    assert (digits.num_classes, digits.num_train, digits.is_image, digits.writers) == (10, 1438, True, None)
    both = np.bincount(digits.train_labels) + np.bincount(digits.test_labels)
    assert both.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(digits.test_labels).tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]  # 20% each, rounded


def test_no_digit_is_lost_or_in_both_splits():
    from sklearn.datasets import load_digits

    digits = load("digits")
    ours = np.concatenate([digits.train_features, digits.test_features]).reshape(-1, 64)
    theirs = load_digits().data.astype(np.uint8)
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_breast_cancer_is_a_table_as_it_was_measured():
    cancer = load("breast_cancer")
    assert (cancer.train_features.shape, cancer.test_features.shape) == ((456, 30), (113, 30))
    assert cancer.train_features.dtype == np.float32
    assert cancer.train_features.max() > 1000  # square millimetres: nothing is standardised here
    assert cancer.classes == ("malignant", "benign")
    assert not cancer.is_image
    assert np.bincount(cancer.test_labels).tolist() == [42, 71]


def test_the_split_is_the_same_everywhere():
    assert load("digits").fingerprint == load("digits").fingerprint
    # the first test samples of each set, so that another split on another machine or version is noticed
    assert load("digits").test_labels[:12].tolist() == [2, 6, 6, 5, 9, 7, 3, 0, 9, 7, 3, 0]
    assert load("breast_cancer").test_labels[:12].tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1]


def test_embedded_sets_have_no_columns():
    with pytest.raises(UsageError, match="no columns"):
        load("digits", label_column="label")


# ---- one's own arrays ----


def test_arrays_come_back_unchanged():
    features, labels = table()
    made = from_arrays((features, labels), (features[:2], labels[:2]), classes=["no", "yes"], name="mine")
    np.testing.assert_array_equal(made.train_features, features)
    np.testing.assert_array_equal(made.train_labels, labels)
    np.testing.assert_array_equal(made.test_features, features[:2])
    assert (made.name, made.classes, made.num_train, made.is_image) == ("mine", ("no", "yes"), 4, False)


def test_classes_are_numbered_up_to_the_highest_label_of_both_splits():
    features, _ = table()
    made = from_arrays((features, [0, 1, 1, 0]), (features, [0, 0, 2, 1]))
    assert made.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.int64, np.int64),
        (np.uint8, np.int64),
        (np.bool_, np.float32),
    ],
)
def test_tables_are_floats_or_integers(given, kept):
    features, labels = table(dtype=np.float64)
    features = features.astype(given)
    made = from_arrays((features, labels), (features, labels))
    assert made.train_features.dtype == kept
    np.testing.assert_array_equal(made.train_features, features.astype(kept))


@pytest.mark.parametrize(
    ("shape", "made_shape"),
    [
        ((4, 5, 6), (4, 1, 5, 6)),
        ((4, 5, 6, 3), (4, 3, 5, 6)),
        ((4, 5, 6, 1), (4, 1, 5, 6)),
        ((4, 3, 5, 6), (4, 3, 5, 6)),
        ((4, 1, 5, 6), (4, 1, 5, 6)),
        ((4, 2, 5, 6), (4, 2, 5, 6)),
        ((4, 3, 5, 3), (4, 3, 5, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_layouts_of_integer_images(shape, made_shape, dtype):
    images = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    made = from_arrays((images, [0, 1, 0, 1]), (images, [0, 1, 0, 1]))
    assert made.train_features.shape == made_shape
    assert made.train_features.dtype == np.uint8
    assert made.is_image
    expected = images.transpose(0, 3, 1, 2) if shape[1] == 5 and len(shape) == 4 else images.reshape(made_shape)
    np.testing.assert_array_equal(made.train_features, expected)


def test_float_images_stay_float_and_channels_first():
    images = np.random.default_rng(0).normal(size=(4, 9, 8, 1))
    made = from_arrays((images, [0, 1, 0, 1]), (images, [0, 1, 0, 1]))
    assert made.train_features.shape == (4, 9, 8, 1)
    np.testing.assert_array_equal(made.train_features, images.astype(np.float32))


def test_boolean_images_are_black_and_white():
    images = np.eye(4, dtype=bool).reshape(4, 2, 2)
    made = from_arrays((images, [0, 1, 0, 1]), (images, [0, 1, 0, 1]))
    assert made.train_features.dtype == np.uint8
    np.testing.assert_array_equal(made.train_features[:, 0], images * 255)


def test_tensors_are_arrays():
    features, labels = table()
    grad = torch.tensor(features, requires_grad=True)
    made = from_arrays((grad, torch.tensor(labels)), (grad, torch.tensor(labels)))
    assert type(made.train_features) is np.ndarray
    assert made.fingerprint == from_arrays((features, labels), (features, labels)).fingerprint


def test_writers_are_numbered_in_sorted_order():
    part = table()
    made = from_arrays(part, part, writers=["zoe", "amy", "zoe", "bob"])
    assert made.writers is not None
    assert made.writers.tolist() == [2, 0, 2, 1]
    assert made.writers.dtype == np.int64


def test_the_fingerprint_is_that_of_the_content():
    features, labels = table()

    def fingerprint(features=features, labels=labels, test=(features, labels), **options):
        return from_arrays((features, labels), test, **options).fingerprint

    same = fingerprint()
    assert same == fingerprint(features.copy(), name="another name")
    assert len(same) == 64
    assert int(same, 16)
    changed = features.copy()
    changed[-1, -1] += 1
    others = [
        fingerprint(changed),
        fingerprint(labels=labels[::-1]),
        fingerprint(test=(changed, labels)),
        fingerprint(features.astype(np.float64), test=(features.astype(np.float64), labels)),
        fingerprint(classes=["x", "y"]),
        fingerprint(writers=[0, 0, 1, 1]),
        fingerprint(features.reshape(4, 1, 3), test=(features.reshape(4, 1, 3), labels)),
    ]
    assert len({same, *others}) == 8


FEATURES, LABELS = table()
NAN, INF = FEATURES.copy(), FEATURES.astype(np.float64)
NAN[1, 1], INF[0, 0] = np.nan, -np.inf


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ((NAN, LABELS), {}, "train features: 1 value is NaN or infinite as float32"),
        ((INF, LABELS), {}, "train features: 1 value is NaN or infinite as float64"),
        ((np.full((4, 2, 1, 1), 1e300), LABELS), {}, "8 values are NaN or infinite as float32"),
        ((FEATURES[:3], LABELS), {}, "train has 3 samples but 4 labels"),
        ((FEATURES[:0], LABELS[:0]), {}, "and not empty"),
        ((FEATURES, LABELS[:0]), {}, "train split: has no samples"),
        ((FEATURES, LABELS / 1.0), {}, "train labels: must be integers"),
        ((FEATURES, ["a", "b", "a", "b"]), {}, "train labels: must be integers"),
        ((FEATURES, LABELS[:, None]), {}, r"train labels: must be integers .*\[4, 1\]"),
        ((FEATURES, [0, 1, -1, 0]), {}, "train labels: -1 .*unlabeled"),
        ((FEATURES, [0, 1, -2, 0]), {}, "train labels: -2"),
        ((FEATURES, [0, 1, 2, 0]), {"classes": ["a", "b"]}, "train labels: 2 with 2 classes; must be 0..K-1"),
        ((FEATURES, [0, 1, 10**9, 0]), {}, "train labels: 1000000000 with 8 samples"),
        ((FEATURES[0], LABELS), {}, r"float32 \[3\]; must be numbers, tables"),
        ((FEATURES.astype(str), LABELS), {}, "must be numbers"),
        (([[1.0, 2.0], [3.0]], LABELS), {}, "train: not an array|train features: not an array"),
        ((np.full((4, 5, 5), 256), LABELS), {}, r"pixels 256\.\.256; integers must be 0\.\.255"),
        ((np.full((4, 5, 5), -1), LABELS), {}, r"pixels -1\.\.-1"),
        ((FEATURES[:, :2], LABELS), {}, r"a train sample is float32 \[2\], a test sample float32 \[3\]"),
        ((FEATURES.astype(np.float64), LABELS), {}, r"float64 \[3\], a test sample float32 \[3\]"),
        ((FEATURES, LABELS), {"writers": [0, 1]}, "4 training samples but 2 ids of clients"),
        ((FEATURES, LABELS), {"writers": [0.5, 1, 1, 1]}, "writers must be integers or strings"),
    ],
)
def test_arrays_that_cannot_be_used(train, options, message):
    with pytest.raises(UsageError, match=message) as error:
        from_arrays(train, (FEATURES, LABELS), **options)
    assert "\n" not in str(error.value)


def test_columns_of_a_table_that_hold_no_numbers_are_named():
    table = pd.DataFrame({"age": [1, 2, 3, 4], "city": list("abab"), "kind": pd.Categorical(list("xyxy"))})
    with pytest.raises(
        UsageError, match=r"train features: no numbers in columns 'city' \(\w+\) and 'kind' \(category\);"
    ):
        from_arrays((table, LABELS), (table, LABELS))
    with pytest.raises(
        UsageError, match=r"no numbers in column 'city' \(\w+\); encode them, as pandas.get_dummies does"
    ):
        from_arrays((table[["age", "city"]], LABELS), (table, LABELS))
    with pytest.raises(UsageError, match="must be numbers, tables"):
        from_arrays((table[["age"]][:0], LABELS), (table, LABELS))
    numbers = pd.get_dummies(table, columns=["city", "kind"], dtype=int)
    assert from_arrays((numbers, LABELS), (numbers, LABELS)).train_features.shape == (4, 5)


def test_the_test_split_is_checked_too():
    with pytest.raises(UsageError, match="test features: 1 value is"):
        from_arrays((FEATURES, LABELS), (NAN, LABELS))
    with pytest.raises(UsageError, match="test labels: -1"):
        from_arrays((FEATURES, LABELS), (FEATURES, [-1, -1, -1, -1]))


# ---- folders ----


def test_an_image_folder(tmp_path):
    made = load(str(image_folder(tmp_path / "pets")))
    assert made.train_features.shape == made.test_features.shape == (10, 3, 4, 6)  # height before width
    assert made.train_features.dtype == np.uint8
    assert made.classes == ("cat", "dog")
    assert made.writers is None
    for features, labels in ((made.train_features, made.train_labels), (made.test_features, made.test_labels)):
        np.testing.assert_array_equal(features[:, 0, 0, 0] // 50, labels)  # red tells the class
        assert sorted(features[:, 0, 3, 5].tolist()) == [0, 1, 2, 3, 4, 50, 51, 52, 53, 54]
        assert (features[:, 1] == 0).all()
        assert (features[:, 2] == 200).all()


def test_a_folder_with_one_split_is_split_within_each_class(tmp_path):
    made = load(str(image_folder(tmp_path / "pets", splits=(".",), per_class=10, mode="L")))
    assert made.train_features.shape == (16, 1, 4, 6)
    assert np.bincount(made.train_labels).tolist() == [8, 8]
    assert np.bincount(made.test_labels).tolist() == [2, 2]
    everything = np.concatenate([made.train_features, made.test_features])[:, 0, 0, 0]
    assert sorted(everything.tolist()) == [*range(10), *range(50, 60)]


def test_a_class_without_training_images_is_mentioned(tmp_path, caplog):
    folder = image_folder(tmp_path / "set")
    (folder / "test" / "dog").rename(folder / "test" / "dogs")
    load(str(folder))
    assert "class 'dogs' has test images (5) and no training images; if it has another name" in caplog.text


def test_a_readme_beside_images_is_no_card(tmp_path, caplog):
    folder = image_folder(tmp_path / "set", splits=("",))
    (folder / "README.md").write_text("# Photos\n", encoding="utf-8")
    library = logging.getLogger("huggingface_hub.repocard")
    library.addHandler(caplog.handler)  # its loggers do not propagate
    try:
        load(str(folder))
    finally:
        library.removeHandler(caplog.handler)
    assert "card" not in caplog.text
    assert not library.disabled


def test_a_relative_folder_needs_no_mirror(tmp_path, monkeypatch):
    image_folder(tmp_path / "mnist")
    monkeypatch.chdir(tmp_path)
    assert load("./mnist").classes == ("cat", "dog")


def test_validation_stands_in_for_test(tmp_path):
    folder = hub_folder(
        tmp_path / "set",
        {
            "train": {"image": cells(png(1)), "label": [0]},
            "validation": {"image": cells(png(2), png(3)), "label": [1, 1]},
        },
    )
    made = load(str(folder))
    assert (made.train_labels.tolist(), made.test_labels.tolist()) == ([0], [1, 1])


def colored_folder(root, folders):
    """A folder of images: ``folders`` has the color of the five images in each folder."""
    for folder, color in folders.items():
        (root / folder).mkdir(parents=True)
        for number in range(5):
            (root / folder / f"{number}.png").write_bytes(png((color, color, color)))
    return root


def colors(data):
    """The colors of the training samples and of the test samples."""
    return [sorted(np.unique(features).tolist()) for features in (data.train_features, data.test_features)]


@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("Training", "Testing"), ("train", "TEST"), ("Train", "val"), ("train_set", "Test set")],
)
def test_capital_letters_do_not_mix_training_and_test_images(tmp_path, train, test):
    root = colored_folder(tmp_path / "photos", {f"{train}/a": 1, f"{train}/b": 2, f"{test}/a": 3, f"{test}/b": 4})
    assert colors(load(str(root))) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["train", "test", "bullet-train", "crash test", "val"])
def test_a_class_with_the_name_of_a_split_is_a_class(tmp_path, name):
    divided = {f"train/{name}": 1, "train/b": 2, f"test/{name}": 3, "test/b": 4}
    data = load(str(colored_folder(tmp_path / "divided", divided)))
    assert colors(data) == [[1, 2], [3, 4]]
    assert data.classes == tuple(sorted((name, "b")))
    whole = load(str(colored_folder(tmp_path / "whole", {name: 1, "b": 2})))
    assert colors(whole) == [[1, 2], [1, 2]]
    assert whole.num_train == 8


@pytest.mark.parametrize(
    ("folders", "places"),
    [
        ({"cat": 1, "dog/big": 2}, ("cat/", "dog/big/")),
        ({"train/a": 1, "train/b": 1, "test/a": 1, "test/b/big": 2}, ("/", "test/b/big/")),
    ],
)
def test_images_at_different_depths_are_refused(tmp_path, caplog, folders, places):
    """The library ``datasets`` finds no classes in such a folder, although each folder has one name."""
    with pytest.raises(UsageError, match="images lie at different depths, such as ") as error:
        load(str(colored_folder(tmp_path / "photos", folders)))
    assert "put those of each class into a folder of its own, <class>/, without folders in it" in str(error.value)
    assert all(place in str(error.value) for place in places)
    assert not caplog.messages


def test_images_beside_the_splits_do_not_count(tmp_path):
    root = colored_folder(tmp_path / "photos", {"train/a": 1, "train/b": 2, "test/a": 3, "test/b": 4, "figures": 5})
    assert colors(load(str(root))) == [[1, 2], [3, 4]]


def test_folders_within_those_of_classes_are_mentioned(tmp_path, caplog):
    nested = {
        f"{split}/{animal}/{place}": 1 for split in ("train", "test") for animal in ("cat", "dog") for place in "xy"
    }
    assert load(str(colored_folder(tmp_path / "nested", nested))).classes == ("x", "y")
    assert (
        "images lie in folders within 'cat' and 'dog', and the innermost folders are the classes: x, y;" in caplog.text
    )
    caplog.clear()
    for name, folders in (
        ("divided", {"Train/a": 1, "Train/b": 1, "Test/a": 1, "Test/b": 1}),
        ("below", {"data/a": 1, "data/b": 1}),
        ("plain", {"a": 1, "b": 1}),
    ):
        load(str(colored_folder(tmp_path / name, folders)))
    assert not caplog.text


def test_the_name_of_a_file_chooses_no_split(tmp_path):
    root = colored_folder(tmp_path / "photos", {"a": 1, "b": 2})
    (root / "a" / "0.png").rename(root / "a" / "test_0.png")
    (root / "b" / "0.png").rename(root / "b" / "train 0.png")
    assert load(str(root)).num_train == 8


def test_writers_without_a_test_split_give_a_tenth_each(tmp_path):
    import datasets

    writers = ["w1"] * 20 + ["w0"] * 10 + ["w2"] * 2
    columns = {"image": cells(*[png(i, mode="L") for i in range(32)]), "label": [0, 1] * 16, "writer_id": writers}
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["a", "b"]),
        "writer_id": datasets.Value("string"),
    }
    made = load(str(hub_folder(tmp_path / "set", {"train": columns}, features)))
    assert made.writers is not None
    assert np.bincount(made.writers).tolist() == [9, 18, 2]
    assert len(made.test_labels) == 3
    np.testing.assert_array_equal(
        np.asarray(writers)[made.train_features[:, 0, 0, 0]], np.array(["w0", "w1", "w2"])[made.writers]
    )


def test_all_images_follow_the_colours_of_the_first(tmp_path):
    grey, red, clear = png(7, mode="L"), png((255, 0, 0)), png((0, 0, 255, 10), mode="RGBA")
    palette = io.BytesIO()
    Image.new("RGB", (6, 4), (9, 8, 7)).quantize(4).save(palette, "png")
    test = {"image": cells(grey), "label": [0]}
    first_grey = hub_folder(
        tmp_path / "grey", {"train": {"image": cells(grey, red, clear), "label": [0, 1, 0]}, "test": test}
    )
    made = load(str(first_grey))
    assert made.train_features.shape == (3, 1, 4, 6)
    assert made.train_features[:, 0, 0, 0].tolist() == [7, 76, 29]  # PIL: 0.299 R + 0.587 G + 0.114 B
    images = cells(palette.getvalue(), clear, grey)
    made = load(str(hub_folder(tmp_path / "palette", {"train": {"image": images, "label": [0, 1, 0]}, "test": test})))
    assert made.train_features[:, :, 0, 0].tolist() == [[9, 8, 7], [0, 0, 255], [7, 7, 7]]
    assert made.test_features.shape == (1, 3, 4, 6)


def test_images_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a quarter turn: 4 wide and 6 high
    turned = png((1, 2, 3), exif=exif)
    folder = hub_folder(
        tmp_path / "set", {split: {"image": cells(turned), "label": [0]} for split in ("train", "test")}
    )
    assert load(str(folder)).train_features.shape == (1, 3, 6, 4)


def bad_folder(root, problem):
    """Hub folders that cannot be used."""
    import datasets

    good = {"image": cells(png(1), png(2)), "label": [0, 1]}
    two, classes = datasets.ClassLabel(names=["a", "b"]), {"image": datasets.Image(), "label": datasets.Value("int64")}
    if problem == "sizes":
        return hub_folder(root, {"train": {**good, "image": cells(png(1), png(2, (5, 9)))}, "test": good})
    if problem == "sizes of test":
        return hub_folder(root, {"train": good, "test": {**good, "image": cells(png(1, (7, 7)), png(2))}})
    if problem == "unlabelled":
        return hub_folder(root, {"train": good, "test": {**good, "label": [-1, -1]}})
    if problem == "no train":
        return hub_folder(root, {"test": good})
    if problem == "16 bits":
        return hub_folder(root, {"train": {**good, "image": cells(png(1), png(2, mode="I;16"))}, "test": good})
    if problem == "no image":
        return hub_folder(root, {"train": {**good, "image": [None, None]}, "test": good})
    if problem == "broken":
        return hub_folder(root, {"train": {**good, "image": cells(png(1), png(2)[:40])}, "test": good})
    if problem == "too few":
        return hub_folder(root, {"train": good})
    if problem == "two labels":
        features = {"image": datasets.Image(), "fine": two, "coarse": two}
        return hub_folder(root, {"train": {"image": good["image"], "fine": [0, 1], "coarse": [1, 1]}}, features)
    if problem == "no label":
        return hub_folder(root, {"train": {"image": good["image"]}}, {"image": datasets.Image()})
    assert problem == "plain label"
    return hub_folder(root, {"train": good, "test": good}, classes)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("sizes", "train image 1: sizes 6x4 and 5x9 .*must share one size"),
        ("sizes of test", "test image 0: sizes 6x4 and 7x7"),
        ("unlabelled", "test labels: -1 .*unlabeled"),
        ("no train", r"no split 'train' \(splits: test\)"),
        ("16 bits", "train image 1: mode 'I(;16)?'; images must have 8 bits per channel"),
        ("no image", "train image 0: missing"),
        ("broken", "train image 1: cannot be decoded"),
        (
            "too few",
            "test split: has no samples; a fifth of the images of each class would .* but no class has 3 images; add images, or",
        ),
        (
            "two labels",
            r"2 columns of type ClassLabel; choose one with label_column .*fine \(int64\), coarse \(int64\)",
        ),
        ("no label", "the images have no classes; put those of each class into a folder of its own"),
        ("plain label", "no columns of type ClassLabel; choose one with label_column .*label"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path, own_cache, problem, message):
    folder = bad_folder(tmp_path / "set", problem)
    with pytest.raises(UsageError, match=message) as error:
        load(str(folder))
    assert "\n" not in str(error.value)
    assert [p.suffix for p in own_cache.iterdir()] == [".lock"]  # and nothing half-made stays


def test_a_column_may_be_chosen(tmp_path):
    two = bad_folder(tmp_path / "two", "plain label")
    made = load(str(two), label_column="label")
    assert (made.classes, made.train_labels.tolist()) == (("0", "1"), [0, 1])
    with pytest.raises(UsageError, match=r"label_column = 'lable': no such column .*image .*label"):
        load(str(two), label_column="lable")
    with pytest.raises(UsageError, match="image_column = 'label': not a column of type Image"):
        load(str(two), image_column="label", label_column="label")


def test_each_choice_of_columns_has_its_own_cache_entry(tmp_path):
    import datasets

    two = datasets.ClassLabel(names=["a", "b"])
    features = {"image": datasets.Image(), "fine": two, "coarse": two}
    columns = {"image": cells(png(1), png(2)), "fine": [0, 1], "coarse": [1, 1]}
    folder = str(hub_folder(tmp_path / "set", {"train": columns, "test": columns}, features))
    assert load(folder, label_column="fine").train_labels.tolist() == [0, 1]
    assert load(folder, label_column="coarse").train_labels.tolist() == [1, 1]


def test_a_folder_without_images(tmp_path):
    (tmp_path / "set").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "set"))
    (tmp_path / "set" / "train.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UsageError, match=r"no images but a table \(train\.csv\), .*; give the path of one table"):
        load(str(tmp_path / "set"))
    (tmp_path / "set" / "an empty one.csv").touch()
    with pytest.raises(UsageError, match=r"tables \(an empty one\.csv, …\), .*a function .* that joins several"):
        load(str(tmp_path / "set"))
    (tmp_path / "set" / "train.csv").unlink()
    (tmp_path / "set" / "an empty one.csv").unlink()
    (tmp_path / "set" / "train.jsonl").write_text('{"x": 1, "y": 2}\n')
    several = r"no columns of type Image.*x \(int64\), y \(int64\).*put tables into one file .* or name a function"
    with pytest.raises(UsageError, match=several):
        load(str(tmp_path / "set"))


# ---- names and mirrors ----


EMNIST = {"emnist_balanced", "emnist_letters", "emnist_digits", "emnist_47_subset"}


def test_unknown_names():
    names = r"did you mean 'mnist'\? \(valid: breast_cancer, [a-z0-9_, ]+, … \(13 names\)\)"
    with pytest.raises(
        UsageError, match=f"data.name = 'minst': unknown name.*{names}; a Hub id 'owner/name'.*works too$"
    ):
        load("minst")
    for name in ("", "a/b/c", "~~"):
        with pytest.raises(UsageError, match="unknown name"):
            load(name)
    made = {"dialogue", "dialogue_roles"}
    others = {"digits", "breast_cancer", "diabetes", "mnist", "fashion_mnist", "cifar10", "femnist"}
    assert set(NAMES) == made | others | EMNIST


def test_a_file_of_another_kind_is_no_unknown_name(tmp_path):
    """It was "unknown name, and no such folder", although the file was there."""
    file = tmp_path / "samples.tsv"
    file.write_text("a\tlabel\n1\t0\n")
    with pytest.raises(UsageError, match=r"samples\.tsv': files of this kind are not read; save it as a table \(\.csv"):
        load(str(file))


def test_the_argument_wins_over_the_environment(tmp_path, monkeypatch):
    first, second = (
        image_folder(tmp_path / m / "ylecun" / "mnist", mode="L", per_class=n) for m, n in (("a", 2), ("b", 3))
    )
    monkeypatch.setenv("FEDCOHORT_DATA", str(first.parents[1]))
    assert load("mnist").num_train == 4
    assert load("mnist", data_dir=second.parents[1]).num_train == 6
    assert load("ylecun/mnist").num_train == 4


def test_a_partial_copy_of_a_mirror_comes_before_the_hub_name(tmp_path):
    image_folder(tmp_path / "emnist-47-subset", mode="L", per_class=2)
    assert load("emnist_47_subset", data_dir=tmp_path).num_train == 4


def test_a_mirror_that_is_not_there(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"data_dir = .*nowhere.*no such folder"):
        load("mnist", data_dir=tmp_path / "nowhere")
    monkeypatch.setenv("FEDCOHORT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"FEDCOHORT_DATA = .*nowhere.*no such folder"):
        load("digits")


# ---- the cache ----


def test_the_second_load_reads_only_the_cache(tmp_path, own_cache, monkeypatch):
    folder = str(image_folder(tmp_path / "pets"))
    first = load(folder)
    no_library(monkeypatch)
    second = load(folder)
    assert isinstance(second.train_features, np.memmap)
    assert not second.train_features.flags.writeable
    np.testing.assert_array_equal(first.train_features, second.train_features)
    np.testing.assert_array_equal(first.test_labels, second.test_labels)
    assert (first.fingerprint, first.classes) == (second.fingerprint, second.classes)
    federation = gather(second, partition(Iid(), second.train_labels, 2, 0), validation=0.0, seed=0)
    assert federation.train.source.data_ptr() == second.train_features.ctypes.data  # and no copy is made of it
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    assert {p.name for p in entry.iterdir()} == {
        "meta.json",
        *(f"{split}_{part}.npy" for split in ("train", "test") for part in ("features", "labels")),
    }


def test_a_cached_set_has_the_fingerprint_of_its_arrays(tmp_path):
    made = load(str(image_folder(tmp_path / "pets")))
    again = from_arrays(
        (made.train_features, made.train_labels),
        (made.test_features, made.test_labels),
        classes=made.classes,
        standardise=True,
    )
    assert made.fingerprint == again.fingerprint


def test_a_changed_folder_is_read_again(tmp_path):
    folder = image_folder(tmp_path / "pets")
    before = load(str(folder))
    (folder / "train" / "cat" / "0.png").write_bytes(png((40, 0, 200)))  # same name, and nearly the same size
    after = load(str(folder))
    assert before.fingerprint != after.fingerprint
    assert 40 in after.train_features[:, 0, 0, 0]


@pytest.mark.parametrize("file", ["meta.json", "train_features.npy", "test_labels.npy"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "garbage", "header", "zip", "shorter"])
def test_a_damaged_entry_is_made_again(tmp_path, own_cache, file, damage):
    folder = str(image_folder(tmp_path / "pets"))
    good = load(folder)
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    path = entry / file
    content = path.read_bytes()
    path.unlink()  # not in place: `good` still has the old file mapped
    if damage != "gone":
        shorter = io.BytesIO()
        np.save(shorter, np.zeros((3, 4), dtype=np.float32))
        damaged = {
            "empty": b"",
            "cut": content[:-7],
            "garbage": b"\xff" * len(content),
            "header": content[:10] + b"['" + content[12:],
            "zip": b"PK\3\4" + content[4:],
            "shorter": shorter.getvalue(),
        }
        path.write_bytes(damaged[damage])
    with pytest.warns(UserWarning, match="was damaged .* and was made again from the source") as warned:
        again = load(folder)
    assert len(warned) == 1
    assert len(str(warned[0].message)) <= 300
    assert again.fingerprint == good.fingerprint
    np.testing.assert_array_equal(again.train_features, good.train_features)
    np.testing.assert_array_equal(again.test_labels, good.test_labels)
    assert path.read_bytes() == content


def test_an_entry_that_is_a_file_is_replaced(own_cache):
    load("digits")
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    entry.rename(entry.with_name("elsewhere"))
    entry.write_text("a file")
    with pytest.warns(UserWarning, match="'digits': its cached copy .* was damaged"):
        assert load("digits").num_train == 1438
    assert entry.is_dir()


def test_what_a_killed_process_left_is_cleared_away(tmp_path, own_cache):
    folder = str(image_folder(tmp_path / "pets"))
    code = (
        "import os, signal, sys; from fedcohort.federation.data import images, load_dataset;"
        "images._decode_image = lambda *args: os.kill(os.getpid(), signal.SIGKILL); load_dataset.load(sys.argv[1])"
    )
    assert subprocess.run([sys.executable, "-c", code, folder], timeout=120).returncode == -9
    (left_over,) = (p for p in own_cache.iterdir() if p.is_dir())
    assert left_over.name.startswith(".")  # not an entry
    assert load(folder).num_train == 10
    (entry,) = (p for p in own_cache.iterdir() if p.is_dir())
    assert left_over.name.startswith(f".{entry.name}~")


@pytest.mark.slow
def test_processes_may_race(tmp_path, own_cache):
    folder = image_folder(tmp_path / "pets", per_class=50)
    code = "import sys; from fedcohort.federation.data.load_dataset import load; print(load(sys.argv[1]).fingerprint)"
    racers = [
        subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    printed = {racer.communicate(timeout=120)[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert printed == {load(str(folder)).fingerprint}
    assert len([p for p in own_cache.iterdir() if p.is_dir()]) == 1


def test_a_cache_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="FEDCOHORT_CACHE: cannot make the folder"):
        load(str(image_folder(tmp_path / "pets")))


@pytest.mark.parametrize("name", slow_after(1, ["breast_cancer", "digits"]))
def test_embedded_sets_are_kept_too(own_cache, name):
    code = (
        "import sys; from fedcohort.federation.data.load_dataset import load; "
        "print(load(sys.argv[1]).fingerprint, 'sklearn' in sys.modules)"
    )
    found = [
        subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [loaded for _, loaded in found] == ["True", "False"]
    kept, made = load(name), load_dataset.from_scikit_learn(name)
    assert {fingerprint for fingerprint, _ in found} == {kept.fingerprint} == {made.fingerprint}
    for key in ("train_features", "train_labels", "test_features", "test_labels"):
        assert getattr(kept, key).dtype == getattr(made, key).dtype
        assert np.array_equal(getattr(kept, key), getattr(made, key))
    assert kept.classes == made.classes


def test_embedded_sets_need_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "file"))
    assert load("digits").num_train == 1438


def test_importing_is_light():
    code = (
        "import sys, fedcohort.federation.data.load_dataset;"
        "print([m for m in ('torch', 'datasets', 'sklearn', 'PIL', 'pandas') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


# ---- the Hub ----

BOTH_WAYS_OUT = r"Hub cannot be reached \(\w+\).*FEDCOHORT_DATA or data_dir \(in commands: --data-dir\).*connect once"


@pytest.fixture
def hub(monkeypatch):
    """Sets the address of the Hub; the library is on line, whatever HF_HUB_OFFLINE says."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return lambda address: monkeypatch.setattr(constants, "ENDPOINT", address)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture
def connections(monkeypatch):
    """Every connection that is tried: its port, and after how many seconds it is given up.

    The first request of a process is preceded by one that the library makes for itself; it has a limit of its own, 3 s.
    """
    tried, connect = [], socket.socket.connect

    def recorded(self, address):
        tried.append((address[1], self.gettimeout()))
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", recorded)
    return tried


def test_no_connection(hub, connections):
    """It is tried once: the library would try again and again for half a minute."""
    port = free_port()
    hub(f"http://127.0.0.1:{port}")
    with pytest.raises(UsageError, match=BOTH_WAYS_OUT) as error:
        load("mnist")
    assert 0 < images.HUB_TIMEOUT_S <= 10
    assert connections.count((port, images.HUB_TIMEOUT_S)) == 1
    assert len(connections) <= 2
    assert "\n" not in str(error.value)


def test_a_hub_that_never_answers(hub, connections, monkeypatch):
    """It is given up after the time that a short request has, and not tried again."""
    monkeypatch.setattr(images, "HUB_TIMEOUT_S", 0.2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        hub(f"http://127.0.0.1:{port}")
        with pytest.raises(UsageError, match=BOTH_WAYS_OUT):
            load("owner/name")
        assert connections.count((port, 0.2)) == 1
        assert len(connections) <= 2


def test_offline_mode(tmp_path):
    """HF_HUB_OFFLINE is read when the library is imported, hence another process."""
    code = "from fedcohort.federation.data.load_dataset import load; load('cifar10')"
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert "UsageError: data.name = 'cifar10': not in a local mirror, not cached" in done.stderr.splitlines()[-1]


class NotThere(BaseHTTPRequestHandler):
    """A Hub that has nothing."""

    def do_GET(self):
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_data_set_that_the_hub_does_not_have(hub):
    with ThreadingHTTPServer(("127.0.0.1", 0), NotThere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(UsageError, match=r"data\.name = 'owner/nothing': the Hub has no 'owner/nothing'"):
            load("owner/nothing")
        server.shutdown()


def test_what_came_from_the_hub_once_needs_no_hub(hub, monkeypatch):
    import datasets

    hub(f"http://127.0.0.1:{free_port()}")
    rows = datasets.Dataset.from_dict(
        {"img": cells(png(1), png(2)), "label": [0, 1]},
        features=datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}),
    )
    asked = []
    monkeypatch.setattr(images, "_ask_hub", lambda hub_id, name: asked.append(hub_id))
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "load_dataset", lambda path: datasets.DatasetDict(train=rows, test=rows))
        first = load("cifar10")
    assert asked == ["uoft-cs/cifar10"]
    assert load("cifar10").fingerprint == first.fingerprint
    assert load("uoft-cs/cifar10").fingerprint == first.fingerprint
    assert asked == ["uoft-cs/cifar10"]


# ---- the real data sets ----


def check_mirror_set(name: str, train: int, test: int, shape: tuple[int, ...], num_classes: int) -> Dataset:
    made = load(name, data_dir=MIRROR)
    assert made.train_features.shape == (train, *shape)
    assert made.test_features.shape == (test, *shape)
    assert (len(made.train_labels), len(made.test_labels), made.num_classes) == (train, test, num_classes)
    return made


@needs_mirror
def test_femnist_has_its_writers():
    femnist = check_mirror_set("femnist", 14_708, 1_685, (1, 28, 28), 62)
    assert femnist.writers is not None
    sizes = np.bincount(femnist.writers)
    assert (len(femnist.writers), len(sizes), sizes.min(), sizes.max(), np.median(sizes)) == (14_708, 105, 4, 165, 152)
    assert femnist.classes == (*"0123456789", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abcdefghijklmnopqrstuvwxyz")
    per_class = np.bincount(femnist.train_labels)
    assert (per_class[:10].min(), per_class[:10].max()) == (1_008, 1_124)
    assert (per_class[10:].min(), per_class[10:].max()) == (50, 128)
    assert np.median(femnist.train_features[:100]) == 255  # black on white


@needs_mirror
def test_images_agree_with_the_library():
    import datasets

    femnist = load("femnist", data_dir=MIRROR)
    assert MIRROR
    files = {split: f"{MIRROR}/femnist-105-writers/{split}-00000-of-00001.parquet" for split in ("train", "test")}
    for split, features, labels in (
        ("train", femnist.train_features, femnist.train_labels),
        ("test", femnist.test_features, femnist.test_labels),
    ):
        rows = datasets.load_dataset("parquet", data_files=files, split=split, streaming=True)
        for i, row in zip(range(20), rows, strict=False):
            np.testing.assert_array_equal(features[i, 0], np.asarray(row["image"]))
            assert labels[i] == row["character"]


@needs_mirror
@pytest.mark.slow
def test_mnist_is_the_official_one():
    mnist = check_mirror_set("mnist", 60_000, 10_000, (1, 28, 28), 10)
    assert np.bincount(mnist.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.train_features.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert mnist.train_features.std() / 255 == pytest.approx(0.3081, abs=5e-5)


@needs_mirror
@pytest.mark.slow
def test_fashion_mnist():
    fashion = check_mirror_set("fashion_mnist", 60_000, 10_000, (1, 28, 28), 10)
    assert np.bincount(fashion.train_labels).tolist() == [6000] * 10
    assert fashion.train_features.mean() / 255 == pytest.approx(0.2860, abs=5e-5)


@needs_mirror
@pytest.mark.slow
def test_emnist():
    emnist = check_mirror_set("emnist_47_subset", 95_495, 7_050, (1, 28, 28), 47)
    assert np.bincount(emnist.test_labels).tolist() == [150] * 47
    assert np.bincount(emnist.train_labels)[emnist.classes.index("f")] == 776


@needs_mirror
@pytest.mark.slow
def test_cifar10_is_read_once(monkeypatch):
    cifar = check_mirror_set("cifar10", 50_000, 10_000, (3, 32, 32), 10)
    assert np.bincount(cifar.train_labels).tolist() == [5000] * 10
    assert (cifar.classes[0], cifar.classes[9]) == ("airplane", "truck")
    means = cifar.train_features.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(means, [0.4913, 0.4821, 0.4465], atol=5e-5)
    no_library(monkeypatch)
    again = load("cifar10", data_dir=MIRROR)
    assert again.fingerprint == cifar.fingerprint
    assert isinstance(again.train_features.base, mmap.mmap), "of its samples nothing is read before it is used"


def test_the_meta_file_is_plain_json(tmp_path, own_cache):
    load(str(image_folder(tmp_path / "pets")))
    (meta,) = own_cache.glob("*/meta.json")
    content = json.loads(meta.read_text())
    assert set(content) == {"name", "classes", "fingerprint", "arrays", "hash"}
    assert {key: (of["dtype"], of["shape"]) for key, of in content["arrays"].items()} == {
        "train_features": ("|u1", [10, 3, 4, 6]),
        "test_features": ("|u1", [10, 3, 4, 6]),
        "train_labels": ("<i8", [10]),
        "test_labels": ("<i8", [10]),
    }
    assert len({of["xxh3_128"] for of in content["arrays"].values()}) == 2  # both splits are the same


# ---- a part of the training samples ----


def test_a_part_keeps_the_share_of_each_class_and_the_whole_test_set():
    labels = np.repeat([0, 1, 2], [100, 10, 1])
    whole = from_arrays(
        (np.arange(111.0)[:, None], labels), (np.zeros((5, 1)), np.zeros(5, dtype=int)), classes=list("abc")
    )
    half = part(whole, 0.5)
    assert np.bincount(half.train_labels).tolist() == [50, 5, 1]  # at least one sample of each class
    assert np.array_equal(labels[half.train_features[:, 0].astype(int)], half.train_labels)
    assert len(half.test_labels) == 5
    assert np.array_equal(half.train_features, part(whole, 0.5).train_features)
    assert len({whole.fingerprint, half.fingerprint, part(whole, 0.25).fingerprint}) == 3
    assert part(whole, 1.0) is whole


def test_a_part_of_the_writers_are_still_numbered_without_gaps():
    samples = (np.arange(40.0)[:, None], np.zeros(40, dtype=int))
    writers = np.repeat(np.arange(20), 2)
    kept = part(from_arrays(samples, samples, classes=["a"], writers=writers), 0.25)
    assert kept.writers is not None
    assert sorted(set(kept.writers.tolist())) == list(range(len(set(writers[kept.train_features[:, 0].astype(int)]))))


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_no_other_share(share):
    with pytest.raises(UsageError, match="share"):
        part(load("digits"), share)


@pytest.mark.parametrize(
    ("shape", "channels"), [((16, 16, 3), 16), ((3, 16, 16), 0), ((8, 128, 1), 0), ((16, 16, 1), 16), ((16, 16), 0)]
)
def test_float_images_with_channels_last_are_mentioned(
    shape: tuple[int, ...], channels: int, caplog: pytest.LogCaptureFixture
) -> None:
    images = np.random.default_rng(0).random((12, *shape))
    from_arrays((images[:8], np.arange(8) % 2), (images[8:], np.arange(4) % 2), name="own")
    line = f"own: images are [N, C, H, W], so these have {channels} channels of {channels}×{shape[-1]}; "
    assert (line in caplog.text) == bool(channels)
    assert bool(caplog.text) == bool(channels)
