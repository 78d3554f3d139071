"""Data sets: what the clients' samples are cut from, as plain arrays of train and test.

Samples are decoded once and kept as ``.npy`` files in the user's cache directory (the environment variable
``FEDCOHORT_CACHE`` names another), so that a second load maps files into memory and imports nothing. A local mirror, a
folder in the layout of the Hugging Face Hub named by ``data_dir`` or ``FEDCOHORT_DATA``, is read first; the Hub otherwise.
"""

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from platformdirs import user_cache_dir

from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.streams import rng

__all__ = ["NAMES", "Dataset", "cache_folder", "from_arrays", "load"]

EMBEDDED = ("digits", "breast_cancer")
SOURCES = {  # folders of a local mirror in order of preference; the last one is the Hub id
    "mnist": ("ylecun/mnist",),
    "fashion_mnist": ("zalando-datasets/fashion_mnist",),
    "cifar10": ("uoft-cs/cifar10",),
    "emnist": ("emnist-47-subset", "tanganke/emnist_letters"),
    "femnist": ("femnist-105-writers", "flwrlabs/femnist"),
}
SPLITS = ("train", "test")
NAMES = (*EMBEDDED, *SOURCES)
WRITER_COLUMN = "writer_id"
FOLDER_OR_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
HUB_TIMEOUT_S = 5.0
CACHE_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test samples of one classification task. Arrays may be read-only maps of files; nobody writes to them."""

    name: str
    train_features: NDArray[Any]
    """Images: uint8 (of one's own also float32) [N, C, H, W]. Tables: float32 or float64 [N, d]."""
    train_labels: NDArray[np.int64]
    """[N], 0..K-1."""
    test_features: NDArray[Any]
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]
    """The names of the K classes."""
    fingerprint: str
    """sha256 of the content: arrays, types, shapes and class names. Where the samples came from does not matter."""
    writers: NDArray[np.int64] | None = None
    """[N], 0..W-1: who made each training sample, the natural clients; None where that is unknown."""

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def num_train(self) -> int:
        return len(self.train_labels)

    @property
    def is_image(self) -> bool:
        return self.train_features.ndim == 4


def load(
    name: str, *, data_dir: str | Path | None = None, image_column: str | None = None, label_column: str | None = None
) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of

            * ``digits`` (8x8 images, values 0..16) and ``breast_cancer`` (30 float32 features, not standardised), both part
              of scikit-learn, split 80/20 within each class;
            * ``mnist``, ``fashion_mnist``, ``cifar10``;
            * ``emnist``: the 47 classes of a mirror's ``emnist-47-subset``, else the 26 letters of the Hub's
              ``tanganke/emnist_letters`` (no EMNIST Balanced with images and class labels is known on the Hub);
            * ``femnist``: a mirror's ``femnist-105-writers``, else the Hub's ``flwrlabs/femnist``;
            * a Hub id ``owner/name`` of any image classification data set;
            * a folder, in the Hub's layout or of images: ``train/<class>/*.png`` and ``test/<class>/*.png``, or
              ``<class>/*.png`` alone. Write ``./mnist`` for a folder that has a name of this list.
        data_dir: a local mirror, looked into before the Hub; default: the environment variable ``FEDCOHORT_DATA``.
        image_column, label_column: needed only where there is not exactly one Image or one ClassLabel column. A column of
            integers 0..K-1 will do as label column.

    Without a ``test`` split, ``validation`` is the test set; without both, 10% of each writer's samples where there is a
    column ``writer_id``, else 20% of each class, always the same ones. Images keep their size; if the first is grey, all
    become grey (C = 1), else RGB (C = 3). A Hub data set is fetched once, then the cache answers without the Hub.

    Raises:
        UsageError: an unknown name, a mirror that does not exist, columns that cannot be told apart, images of different
            sizes, unlabelled samples, an empty split, or no connection.
    """
    mirror = _mirror(data_dir)
    if name in EMBEDDED:
        if image_column or label_column:
            raise UsageError(f"data set = {name!r}: has no columns to choose; leave out image_column and label_column")
        return _embedded(name)
    source = _find(name, mirror)

    def decode(scratch: Path, out: Path) -> None:
        _decode(_read(source, name, scratch), out, name, image_column, label_column)

    return _kept(_cache_entry(source, image_column, label_column), name, decode)


def from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    *,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    writers: Any = None,
) -> Dataset:
    """Make a data set of one's own arrays: numpy arrays, torch tensors or nested lists.

    Args:
        train, test: (features, labels). Labels are integers 0..K-1 [N]. Features are

            * tables [N, d]: float32 and float64 stay, all other numbers become float32;
            * images of integers 0..255, [N, H, W], [N, C, H, W] or [N, H, W, C] with C 1 or 3 (where both fit: the former):
              become uint8 [N, C, H, W]; likewise images of booleans, as 0 and 255;
            * images of floats, [N, H, W] or [N, C, H, W]: become float32 [N, C, H, W].
        classes: the names of the K classes; default: ``"0"`` up to the highest label.
        writers: who made each training sample [N], integers or strings; numbered 0..W-1 in sorted order.

    Arrays that have the right type already are not copied; leave them unchanged afterwards.

    Raises:
        UsageError: what is wrong, and in which array.
    """
    train_features, test_features = _features(train[0], f"{name}: train"), _features(test[0], f"{name}: test")
    train_labels, test_labels = _labels(train[1], f"{name}: train"), _labels(test[1], f"{name}: test")
    for split, features, labels in (("train", train_features, train_labels), ("test", test_features, test_labels)):
        if len(features) != len(labels):
            raise UsageError(f"{name}: {split} has {len(features)} samples but {len(labels)} labels")
    kinds = [f"{features.dtype} {list(features.shape[1:])}" for features in (train_features, test_features)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{name}: a train sample is {kinds[0]}, a test sample {kinds[1]}; they must be alike")
    classes = _classes(classes, train_labels, test_labels, name)
    writers = None if writers is None else _writers(writers, name)
    if writers is not None and len(writers) != len(train_labels):
        raise UsageError(f"{name}: {len(train_labels)} training samples but {len(writers)} writers")
    digest = hashlib.sha256(json.dumps(classes).encode())
    for array in (train_features, train_labels, test_features, test_labels, writers):
        digest.update(b"none" if array is None else f"{array.dtype.str}{array.shape}".encode())
        digest.update(b"" if array is None else np.ascontiguousarray(array).data)
    return Dataset(name, train_features, train_labels, test_features, test_labels, classes, digest.hexdigest(), writers)


def part(dataset: Dataset, share: float) -> Dataset:
    """The data set with only a share of its training samples: of each class the same share, at least one sample, always the same ones.

    The test set stays whole. What is left is copied into memory; ``share = 1`` gives the data set itself.

    Raises:
        UsageError: a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise UsageError(f"share = {share:g}: use a share of the training samples above 0, at most 1")
    if share == 1:
        return dataset
    kept = np.flatnonzero(_drawn(dataset.train_labels, share, "datasets.part", least=1))
    return replace(
        dataset,
        train_features=dataset.train_features[kept],
        train_labels=dataset.train_labels[kept],
        writers=None if dataset.writers is None else np.unique(dataset.writers[kept], return_inverse=True)[1],
        fingerprint=f"{dataset.fingerprint}:{share:g}",
    )


# ---- arrays ----


def _array(values: Any, where: str) -> NDArray[Any]:
    try:
        return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: not an array ({error})") from None


def _features(values: Any, where: str) -> NDArray[Any]:
    where = f"{where} features"
    features = _array(values, where)
    if features.dtype.kind not in "biuf" or features.ndim not in (2, 3, 4) or 0 in features.shape:
        raise UsageError(
            f"{where}: {features.dtype} {list(features.shape)}; must be numbers, tables [N, d] or images [N, H, W], "
            "[N, C, H, W] or [N, H, W, C], and not empty"
        )
    if features.ndim == 3:
        features = features[:, None]
    if features.ndim == 2 or features.dtype.kind == "f":
        keep = features.ndim == 2 and features.dtype == np.float64
        with np.errstate(over="ignore"):
            features = np.ascontiguousarray(features, dtype=np.float64 if keep else np.float32)
        if bad := features.size - np.count_nonzero(np.isfinite(features)):
            raise UsageError(f"{where}: {bad} values are NaN or infinite as {features.dtype}; drop or replace them")
        return features
    if features.shape[1] not in (1, 3) and features.shape[3] in (1, 3):
        features = features.transpose(0, 3, 1, 2)
    if features.dtype == np.bool_:
        features = features * np.uint8(255)
    elif features.dtype != np.uint8 and not 0 <= features.min() <= features.max() <= 255:
        raise UsageError(f"{where}: pixels {features.min()}..{features.max()}; integers must be 0..255, or use floats")
    return np.ascontiguousarray(features, dtype=np.uint8)


def _labels(values: Any, where: str) -> NDArray[np.int64]:
    labels = _array(values, f"{where} labels")
    if labels.ndim == 1 and len(labels) == 0:
        raise UsageError(f"{where} split: empty")
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        raise UsageError(f"{where} labels: must be integers 0..K-1 [N], not {labels.dtype} {list(labels.shape)}")
    return labels.astype(np.int64, copy=False)


def _classes(
    given: Sequence[str] | None, train: NDArray[np.int64], test: NDArray[np.int64], where: str
) -> tuple[str, ...]:
    """The class names, after a look at whether all labels have one."""
    num_samples = len(train) + len(test)
    for split, labels in (("train", train), ("test", test)):
        low, high = int(labels.min()), int(labels.max())
        num_classes = num_samples if given is None else len(given)
        if low < 0 or high >= num_classes:
            hint = "; -1 usually marks unlabelled samples" if low == -1 else ""
            limit = f"{num_classes} {'samples' if given is None else 'classes'}"
            raise UsageError(f"{where}: {split} labels: {low if low < 0 else high} with {limit}; must be 0..K-1{hint}")
    numbers = range(max(int(train.max()), int(test.max())) + 1)
    return tuple(str(c) for c in (numbers if given is None else given))


def _writers(values: Any, where: str) -> NDArray[np.int64]:
    ids = _array(values, f"{where}: writers")
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise UsageError(f"{where}: writers must be integers or strings [N], not {ids.dtype} {list(ids.shape)}")
    return np.unique(ids, return_inverse=True)[1].astype(np.int64, copy=False)


def _held_out(groups: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    """Mask of the test samples: ``share`` of each group."""
    return _drawn(groups, share, "datasets.split")


def _drawn(groups: NDArray[np.int64], share: float, purpose: str, least: int = 0) -> NDArray[np.bool_]:
    """Mask of ``share`` of each group, rounded, ``least`` or more, drawn once and for all."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.lexsort((rng(0, purpose).random(len(group)), group))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(rank < np.maximum(np.floor(share * counts + 0.5), least)[group])


def _embedded(name: str) -> Dataset:
    """Kept in the cache as well, where there can be one: scikit-learn takes longer to load than a short run."""
    with suppress(OSError, NotImplementedError, UsageError):  # the second is a file system without locks
        entry = cache_folder("datasets") / f"{name}-{CACHE_FORMAT}-scikit-learn-{version('scikit-learn')}"
        return _kept(entry, name, lambda _, out: _save(_of_scikit_learn(name), out))
    return _of_scikit_learn(name)


def _of_scikit_learn(name: str) -> Dataset:
    from sklearn import datasets as sklearn_datasets

    data = sklearn_datasets.load_digits() if name == "digits" else sklearn_datasets.load_breast_cancer()
    features = data.images.astype(np.uint8) if name == "digits" else data.data.astype(np.float32)
    test = _held_out(data.target, 0.2)
    parts = [(features[mask], data.target[mask]) for mask in (~test, test)]
    return from_arrays(parts[0], parts[1], classes=[str(c) for c in data.target_names], name=name)


# ---- where a data set is, and the cache of decoded images ----


def _path(given: str | Path) -> Path:
    try:
        return Path(given).expanduser().resolve()
    except RuntimeError:  # ~somebody who has no home here
        return Path(given)


def _mirror(data_dir: str | Path | None) -> Path | None:
    given = data_dir or os.environ.get("FEDCOHORT_DATA")
    if not given:
        return None
    if not _path(given).is_dir():
        parameter = "data_dir" if data_dir else "FEDCOHORT_DATA"
        raise UsageError(
            f"{parameter} = {str(given)!r}: no such folder; name the folder of a local mirror or leave it out"
        )
    return _path(given)


def _find(name: str, mirror: Path | None) -> Path | str:
    """The folder of a data set, or its Hub id."""
    candidates = SOURCES.get(name, (name,))
    for candidate in candidates:
        if mirror and FOLDER_OR_HUB_ID.fullmatch(candidate) and (mirror / candidate).is_dir():
            return mirror / candidate
    hub_id = candidates[-1]
    if name and _path(hub_id).is_dir():
        return _path(hub_id)
    if "/" in hub_id and FOLDER_OR_HUB_ID.fullmatch(hub_id):
        return hub_id
    hint = f"{nearest(name, NAMES)}; a Hub id 'owner/name' or an existing folder works too"
    raise UsageError(f"data set = {name!r}: unknown name and no such folder; {hint}")


def cache_folder(name: str) -> Path:
    """A folder in the user's cache (``FEDCOHORT_CACHE``), which is made.

    Raises:
        UsageError: it cannot be.
    """
    root = _path(os.environ.get("FEDCOHORT_CACHE") or user_cache_dir("fedcohort")) / name
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"FEDCOHORT_CACHE: cannot make the folder {str(root)!r} ({error.strerror})") from None
    return root


def _cache_entry(source: Path | str, image_column: str | None, label_column: str | None) -> Path:
    """A folder's entry: another one after any file came, went or changed. A Hub id's: always the same, to work offline."""
    root = cache_folder("datasets")
    files = sorted(f for f in source.rglob("*") if f.is_file()) if isinstance(source, Path) else []
    states = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    key = json.dumps([CACHE_FORMAT, str(source), image_column, label_column, states])
    return root / f"{Path(source).name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _open(entry: Path, name: str) -> Dataset | None:
    """The data set in a cache entry; None when there is none or not a whole one."""
    try:
        meta = json.loads((entry / "meta.json").read_text("utf-8"))
        arrays = {k: (_map if "features" in k else np.load)(entry / f"{k}.npy") for k in meta["arrays"]}
        found = Dataset(name, classes=tuple(meta["classes"]), fingerprint=meta["fingerprint"], **arrays)
        whole = all(len(arrays[f"{split}_features"]) == len(arrays[f"{split}_labels"]) for split in SPLITS)
        return found if whole else None
    except Exception:  # a damaged file may break numpy in any way
        return None


def _map(file: Path) -> NDArray[Any]:
    """A file as a read-only array, which all processes that map it share.

    Only the array is read-only. The map is not, what is written to is copied (mode ``c``): torch has no read-only tensors, and could
    not hold a map of mode ``r``.
    """
    array: NDArray[Any] = np.load(file, mmap_mode="c")
    array.flags.writeable = False
    return array


def _kept(entry: Path, name: str, decode: Callable[[Path, Path], None]) -> Dataset:
    """The data set in a cache entry, which ``decode(scratch, out)`` writes if it is not there."""
    if (cached := _open(entry, name)) is not None:
        return cached
    with FileLock(f"{entry}.lock"):  # the second of two processes waits, then finds the entry; a killed one lets go
        if _open(entry, name) is None:
            _build(entry, decode)
    if (built := _open(entry, name)) is None:
        raise RuntimeError(f"the cache entry {entry} was written but cannot be read")
    return built


def _build(entry: Path, decode: Callable[[Path, Path], None]) -> None:
    """Decode beside ``entry``, then rename: an entry is whole or not there. The caller holds the lock."""
    scratch = entry.with_name(f".{entry.name}")
    arrays = scratch / "arrays"
    for left_over in (scratch, entry):
        shutil.rmtree(left_over, ignore_errors=True)
        with suppress(OSError):
            left_over.unlink()
    try:
        arrays.mkdir(parents=True)
        decode(scratch / "huggingface", arrays)
        arrays.rename(entry)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _save(dataset: Dataset, out: Path) -> None:
    """Write ``meta.json`` of a cache entry, and those of its arrays that are not there."""
    arrays = {
        f"{split}_{what}": getattr(dataset, f"{split}_{what}") for what in ("features", "labels") for split in SPLITS
    }
    if dataset.writers is not None:
        arrays["writers"] = dataset.writers
    for key, array in arrays.items():
        if not (out / f"{key}.npy").exists():
            np.save(out / f"{key}.npy", array)
    meta = {"classes": dataset.classes, "fingerprint": dataset.fingerprint, "arrays": list(arrays)}
    (out / "meta.json").write_text(json.dumps(meta), "utf-8")


# ---- reading with Hugging Face's datasets ----


def _read(source: Path | str, name: str, scratch: Path) -> Any:
    """A DatasetDict. A folder's Arrow copy goes to ``scratch``, a Hub data set's to the Hugging Face cache."""
    import datasets

    if isinstance(source, str):
        _ask_hub(source, name)
    silent = datasets.are_progress_bars_disabled()
    try:
        if isinstance(source, str):
            return datasets.load_dataset(source)
        datasets.disable_progress_bars()  # bars are for downloads
        return datasets.load_dataset(str(source), cache_dir=str(scratch))
    except ConnectionError as error:
        raise _offline(name, error) from error
    except Exception as error:  # the library has some twenty kinds, and each says what is wrong with the data set
        raise UsageError(f"data set = {name!r}: cannot be read: {type(error).__name__}: {error}") from error
    finally:
        if not silent:
            datasets.enable_progress_bars()


def _ask_hub(hub_id: str, name: str) -> None:
    """One short request before the library's own, which it repeats for half a minute when there is no connection."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().dataset_info(hub_id, timeout=HUB_TIMEOUT_S)
    except OfflineModeIsEnabled:
        pass  # HF_HUB_OFFLINE=1: the library looks into its own cache only, which is quick
    except RepositoryNotFoundError:
        raise UsageError(f"data set = {name!r}: not on the Hub as {hub_id!r}, or only after a login") from None
    except Exception as error:
        raise _offline(name, error) from error


def _offline(name: str, error: Exception) -> UsageError:
    return UsageError(
        f"data set = {name!r}: not in a local mirror, not cached, and the Hub cannot be reached ({type(error).__name__}); "
        "name a local mirror with FEDCOHORT_DATA or --data-dir, or connect once so that the Hub copy is cached"
    )


def _decode(splits: Any, out: Path, name: str, image_column: str | None, label_column: str | None) -> None:
    """Write the arrays and ``meta.json`` of a cache entry into ``out``."""
    from datasets import ClassLabel, Image

    if "train" not in splits:
        raise UsageError(f"{name}: no split 'train' (splits: {', '.join(splits)})")
    train, test = splits["train"], splits.get("test", splits.get("validation"))
    image = _column(train.features, Image, "image_column", image_column, name)
    label = _column(train.features, ClassLabel, "label_column", label_column, name)
    has_writers = WRITER_COLUMN in train.features
    train_labels = _labels(train[label][:], f"{name}: train")
    if test is None:
        mask = _held_out(_writers(train[WRITER_COLUMN][:], name), 0.1) if has_writers else _held_out(train_labels, 0.2)
        train, test = train.select(np.flatnonzero(~mask)), train.select(np.flatnonzero(mask))
        train_labels = train_labels[~mask]
    test_labels = _labels(test[label][:], f"{name}: test")
    classes = _classes(getattr(train.features[label], "names", None), train_labels, test_labels, name)
    writers = _writers(train[WRITER_COLUMN][:], name) if has_writers else None
    cells = [rows.select_columns(image).cast_column(image, Image(decode=False)) for rows in (train, test)]
    first = _image(cells[0][0][image], f"{name}: train image 0")
    features = [
        _images(c, out / f"{s}_features.npy", first, f"{name}: {s}") for s, c in zip(SPLITS, cells, strict=True)
    ]
    checked = from_arrays(
        (features[0], train_labels), (features[1], test_labels), classes=classes, name=name, writers=writers
    )
    _save(checked, out)


def _column(features: Any, kind: type, parameter: str, wanted: str | None, where: str) -> str:
    """The one column of a kind, or the wanted one."""
    columns = ", ".join(f"{c} ({getattr(f, 'dtype', type(f).__name__)})" for c, f in features.items())
    matching: list[str] = [c for c, feature in features.items() if isinstance(feature, kind)]
    if wanted is None and len(matching) == 1:
        return matching[0]
    if wanted is None:
        problem = f"{len(matching) or 'no'} columns of type {kind.__name__}; choose one with {parameter}"
        raise UsageError(f"{where}: {problem} (columns: {columns})")
    integers = parameter == "label_column" and "int" in str(getattr(features.get(wanted), "dtype", ""))
    if wanted not in matching and not integers:
        problem = f"not a column of type {kind.__name__}" if wanted in features else "no such column"
        raise UsageError(f"{where}: {parameter} = {wanted!r}: {problem} (columns: {columns})")
    return wanted


def _images(cells: Any, file: Path, first: Any, where: str) -> NDArray[np.uint8]:
    """Decode into ``file``, uint8 [N, C, H, W] of the size and colours of ``first``, with one batch in memory at a time."""
    mode = "L" if first.mode in ("1", "L", "LA") else "RGB"
    shape = (len(cells), len(mode), first.height, first.width)
    pixels = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    done = 0
    for batch in cells.iter(batch_size=1024):
        for cell in next(iter(batch.values())):
            image = _image(cell, f"{where} image {done}")
            if image.size != first.size:
                sizes = " and ".join(f"{width}x{height}" for width, height in (first.size, image.size))
                raise UsageError(f"{where} image {done}: sizes {sizes} (width x height); images must share one size")
            pixels[done] = np.asarray(image.convert(mode)).reshape(*shape[2:], len(mode)).transpose(2, 0, 1)
            done += 1
    pixels.flush()
    return pixels


def _image(cell: Any, where: str) -> Any:
    """A PIL image, upright, of 8 bits a channel, from a cell of an undecoded Image column."""
    from PIL import Image, ImageOps

    if cell is None or cell["bytes"] is None is cell["path"]:
        raise UsageError(f"{where}: missing")
    try:
        image: Any = Image.open(cell["path"] if cell["bytes"] is None else io.BytesIO(cell["bytes"]))
        image.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{where}: cannot be decoded ({error})") from None
    if image.mode[0] in "IF":
        raise UsageError(f"{where}: mode {image.mode!r}; images must have 8 bits a channel")
    turned = image.getexif().get(0x0112, 1) != 1
    return ImageOps.exif_transpose(image) if turned else image
