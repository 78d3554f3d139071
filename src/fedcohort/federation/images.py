"""Decode image data sets from folders and from the Hugging Face Hub, with the library ``datasets``."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.federation.array_checks import check_classes, check_labels, check_writers
from fedcohort.federation.dataset_cache import SPLITS, save
from fedcohort.federation.datasets import from_arrays, held_out

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ["decode", "read"]

WRITER_COLUMN = "writer_id"
HUB_TIMEOUT_S = 5.0


def read(source: Path | str, name: str, scratch: Path) -> Any:
    """A ``datasets.DatasetDict``. The Arrow copy of a folder goes to ``scratch``, that of a Hub data set to the Hugging Face cache.

    Raises:
        UsageError: the data set cannot be read, or the Hub cannot be reached.
    """
    import datasets

    if isinstance(source, str):
        _ask_hub(source, name)
    bars_disabled = datasets.are_progress_bars_disabled()
    try:
        if isinstance(source, str):
            return datasets.load_dataset(source)
        datasets.disable_progress_bars()  # progress bars are only for downloads
        return datasets.load_dataset(str(source), cache_dir=str(scratch))
    except ConnectionError as error:
        raise _offline(name, error) from error
    except Exception as error:  # the library has about twenty error types; each message describes the problem
        raise UsageError(f"data set = {name!r}: cannot be read: {type(error).__name__}: {error}") from error
    finally:
        if not bars_disabled:
            datasets.enable_progress_bars()


def _ask_hub(hub_id: str, name: str) -> None:
    """Check the connection with one short request; without a connection, the library would repeat its requests for half a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().dataset_info(hub_id, timeout=HUB_TIMEOUT_S)
    except OfflineModeIsEnabled:
        pass  # HF_HUB_OFFLINE=1: the library reads only its cache and sends no request
    except RepositoryNotFoundError:
        raise UsageError(
            f"data set = {name!r}: the Hub has no {hub_id!r}, or it requires a login; check the name, or log in to the Hub"
        ) from None
    except Exception as error:
        raise _offline(name, error) from error


def _offline(name: str, error: Exception) -> UsageError:
    return UsageError(
        f"data set = {name!r}: not in a local mirror, not cached, and the Hub cannot be reached ({type(error).__name__}); "
        "name a local mirror with FEDCOHORT_DATA or --data-dir, or connect once so that the Hub copy is cached"
    )


def decode(splits: Any, out: Path, name: str, image_column: str | None, label_column: str | None) -> None:
    """Write the arrays and ``meta.json`` of a cache entry into ``out``.

    Args:
        splits: a ``datasets.DatasetDict``.
        out: folder of the new cache entry.
        name: name of the data set, for messages.
        image_column, label_column: names of the columns; None if there is exactly one column of the type.

    Raises:
        UsageError: missing splits or columns, samples without labels, or images that cannot be used.
    """
    from datasets import ClassLabel, Image

    if "train" not in splits:
        raise UsageError(f"{name}: no split 'train' (splits: {', '.join(splits)})")
    train, test = splits["train"], splits.get("test", splits.get("validation"))
    image = _column(train.features, Image, "image_column", image_column, name)
    label = _column(train.features, ClassLabel, "label_column", label_column, name)
    has_writers = WRITER_COLUMN in train.features
    train_labels = check_labels(train[label][:], f"{name}: train")
    if test is None:
        in_test = (
            held_out(check_writers(train[WRITER_COLUMN][:], name), 0.1) if has_writers else held_out(train_labels, 0.2)
        )
        train, test = train.select(np.flatnonzero(~in_test)), train.select(np.flatnonzero(in_test))
        train_labels = train_labels[~in_test]
    test_labels = check_labels(test[label][:], f"{name}: test")
    classes = check_classes(getattr(train.features[label], "names", None), train_labels, test_labels, name)
    writers = check_writers(train[WRITER_COLUMN][:], name) if has_writers else None
    cells = [rows.select_columns(image).cast_column(image, Image(decode=False)) for rows in (train, test)]
    first = _decode_image(cells[0][0][image], f"{name}: train image 0")
    features = [
        _decode_images(rows, out / f"{split}_features.npy", first, f"{name}: {split}")
        for split, rows in zip(SPLITS, cells, strict=True)
    ]
    checked = from_arrays(
        (features[0], train_labels), (features[1], test_labels), classes=classes, name=name, writers=writers
    )
    save(checked, out)


def _column(features: Any, column_type: type, parameter: str, requested: str | None, where: str) -> str:
    """The column with the name ``requested``, or the only column of a type."""
    columns = ", ".join(f"{c} ({getattr(f, 'dtype', type(f).__name__)})" for c, f in features.items())
    matching: list[str] = [c for c, feature in features.items() if isinstance(feature, column_type)]
    if requested is None and len(matching) == 1:
        return matching[0]
    if requested is None:
        problem = f"{len(matching) or 'no'} columns of type {column_type.__name__}; choose one with {parameter}"
        raise UsageError(f"{where}: {problem} (columns: {columns})")
    integers = parameter == "label_column" and "int" in str(getattr(features.get(requested), "dtype", ""))
    if requested not in matching and not integers:
        problem = f"not a column of type {column_type.__name__}" if requested in features else "no such column"
        raise UsageError(f"{where}: {parameter} = {requested!r}: {problem} (columns: {columns})")
    return requested


def _decode_images(cells: Any, file: Path, first: "Picture", where: str) -> NDArray[np.uint8]:
    """Decode into ``file``, uint8 [N, C, H, W] with the size and color mode of ``first``, one batch in memory at a time."""
    mode = "L" if first.mode in ("1", "L", "LA") else "RGB"
    shape = (len(cells), len(mode), first.height, first.width)
    pixels = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    _reserve(file)
    done = 0
    for batch in cells.iter(batch_size=1024):
        for cell in next(iter(batch.values())):
            image = _decode_image(cell, f"{where} image {done}")
            if image.size != first.size:
                sizes = " and ".join(f"{width}x{height}" for width, height in (first.size, image.size))
                raise UsageError(f"{where} image {done}: sizes {sizes} (width x height); images must share one size")
            pixels[done] = np.asarray(image.convert(mode)).reshape(*shape[2:], len(mode)).transpose(2, 0, 1)
            done += 1
    pixels.flush()
    return pixels


def _reserve(file: Path) -> None:
    """Reserve the space of a mapped file: on a full disk, the first use of a mapped page would end the process.

    Raises:
        OSError: the disk is full.
    """
    if hasattr(os, "posix_fallocate"):
        with file.open("rb+") as mapped:
            os.posix_fallocate(mapped.fileno(), 0, file.stat().st_size)


def _decode_image(cell: Any, where: str) -> "Picture":
    """A PIL image with 8 bits per channel, turned upright, from a cell of an undecoded Image column."""
    from PIL import Image, ImageOps

    if cell is None or (cell["bytes"] is None and cell["path"] is None):
        raise UsageError(f"{where}: missing; every sample needs an image")
    try:
        image: Picture = Image.open(cell["path"] if cell["bytes"] is None else io.BytesIO(cell["bytes"]))
        image.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{where}: cannot be decoded ({error})") from None
    if image.mode[0] in "IF":
        raise UsageError(f"{where}: mode {image.mode!r}; images must have 8 bits per channel")
    is_upright = image.getexif().get(0x0112, 1) == 1
    return image if is_upright else ImageOps.exif_transpose(image)
