"""Decode image data sets from folders and from the Hugging Face Hub, with the library ``datasets``."""

import errno
import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import is_disk_full, reserve
from fedcohort.federation.data.array_checks import brief, check_classes, check_clients, check_labels, numbered
from fedcohort.federation.data.cache_entries import SPLITS, save
from fedcohort.federation.data.datasets import MAX_NAME, Dataset, from_arrays, held_out
from fedcohort.federation.data.folder_checks import (
    broken_parquet,
    check_folder,
    check_room,
    described,
    files_in,
    first_cause,
)
from fedcohort.federation.data.image_folders import check_depths, mention_inner_folders, split_patterns

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image as Picture

__all__ = ["decode", "read"]

log = logging.getLogger("fedcohort")

WRITER_COLUMN = "writer_id"
HUB_TIMEOUT_S = 5.0
ERRORS_OF_DISKS = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EROFS)
"""Errors that the cache reports; all others are those of the data."""
EXTERNAL_FORMATS = ("EPS", "WMF")
"""Formats of images that other programs or the operating system would draw."""


def read(source: Path | str, name: str, scratch: Path) -> Any:
    """A ``datasets.DatasetDict``. The Arrow copy of a folder goes to ``scratch``, that of a Hub data set to the Hugging Face cache.

    Raises:
        UsageError: the data set cannot be read, or the Hub cannot be reached.
        OSError: there is no space for the Arrow copy in ``scratch``.
    """
    where = f"data.name = '{brief(name)}'"
    datasets = _hugging_face(where)
    if isinstance(source, str):
        _ask_hub(source, name)
    else:
        check_folder(source, where)
    bars_disabled, level = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    cards = logging.getLogger("huggingface_hub.repocard")
    cards_disabled, cards.disabled = cards.disabled, True  # a README.md need not be the card of a data set
    try:
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # errors are in the message
        if isinstance(source, str):
            return datasets.load_dataset(source)
        datasets.disable_progress_bars()  # progress bars are only for downloads
        files = [file for file, _ in files_in(source, where)]
        patterns = split_patterns(source, files)
        check_depths(source, files, patterns, where)
        mention_inner_folders(source, files, where)
        return datasets.load_dataset(str(source), data_files=patterns, cache_dir=str(scratch))
    except ConnectionError as error:
        raise _offline(name, error) from error
    except UsageError:
        raise
    except Exception as error:  # the library has about twenty error types; each message describes the problem
        if isinstance(source, Path) and is_disk_full(first_cause(error)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        known = "" if isinstance(source, str) else broken_parquet(source) or _without_images(error)
        raise UsageError(f"{where}: cannot be read: {known or described(error)}") from error
    finally:
        datasets.logging.set_verbosity(level)
        cards.disabled = cards_disabled
        if not bars_disabled:
            datasets.enable_progress_bars()


def _without_images(error: Exception) -> str:
    """That a folder has no files of a kind that can be read, if this is the error; the library names files of other purposes."""
    if type(error).__name__ != "DataFilesNotFoundError":
        return ""
    return (
        "the folder has neither images in <class>/ nor Parquet files; for a table (.csv, .npz), give the path of the file, and for "
        "anything else a function ('my.py:load')"
    )


def _hugging_face(where: str) -> "ModuleType":
    """The library ``datasets``.

    Raises:
        UsageError: it, or pyarrow, is not installed.
    """
    try:
        import datasets
        import pyarrow.parquet  # noqa: F401 - the check of a folder uses it
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where}: folders of images and data sets of the Hugging Face Hub need the package {str(error.name).partition('.')[0]}, "
            "which is not installed; pip install 'fedcohort[hub]'"
        ) from None
    library: ModuleType = datasets
    return library


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
            f"data.name = '{brief(name)}': the Hub has no '{brief(hub_id)}', or requires a login; check the name, or log in to the Hub"
        ) from None
    except Exception as error:
        raise _offline(name, error) from error


def _offline(name: str, error: Exception) -> UsageError:
    return UsageError(
        f"data.name = '{brief(name)}': not in a local mirror, not cached, and the Hub cannot be reached ({type(error).__name__}); "
        "name a local mirror with FEDCOHORT_DATA or data_dir (in commands: --data-dir), or connect once so that the Hub copy is cached"
    )


def decode(splits: object, out: Path, name: str, image_column: str | None, label_column: str | None) -> None:
    """Write the arrays and ``meta.json`` of a cache entry into ``out``.

    Args:
        splits: a ``datasets.DatasetDict``.
        out: folder of the new cache entry.
        name: name of the data set, for messages.
        image_column, label_column: names of the columns; None if there is exactly one column of the type.

    Raises:
        UsageError: missing splits or columns, samples without labels, or images that cannot be used.
    """
    where = brief(name)
    with _one_line(where):
        decoded = _decode(splits, out, where, image_column, label_column)
        save(replace(decoded, name=brief(name, MAX_NAME)), out)


@contextmanager
def _one_line(where: str) -> Iterator[None]:
    """Turn every error of a library into a :class:`UsageError`, except errors of the disk, and print no warnings."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UsageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in ERRORS_OF_DISKS:
            raise
        raise UsageError(f"{where}: cannot be used ({described(error)})") from error


def _decode(splits: Any, out: Path, name: str, image_column: str | None, label_column: str | None) -> Dataset:
    """The data set; its features are maps of files in ``out``. See :func:`decode`."""
    from datasets import ClassLabel, Image

    if "train" not in splits:
        raise UsageError(f"{name}: no split 'train' (splits: {brief(', '.join(splits), 100)}); rename one")
    train, test = splits["train"], splits.get("test", splits.get("validation"))
    image = _column(train.features, Image, "image_column", image_column, name)
    label = _column(train.features, ClassLabel, "label_column", label_column, name)
    has_writers = WRITER_COLUMN in train.features
    train_labels = check_labels(train[label][:], f"{name}: train")
    if test is None:
        in_test = held_out(numbered(_writers(train, name)), 0.1) if has_writers else held_out(train_labels, 0.2)
        if not in_test.any():
            share, group, least = ("tenth", "writer", 5) if has_writers else ("fifth", "class", 3)
            raise UsageError(
                f"{name}: test split: has no samples; a {share} of the images of each {group} would be test images, but no {group} "
                f"has {least} images; add images, or a test split"
            )
        train, test = train.select(np.flatnonzero(~in_test)), train.select(np.flatnonzero(in_test))
        train_labels = train_labels[~in_test]
    test_labels = check_labels(test[label][:], f"{name}: test")
    classes = check_classes(getattr(train.features[label], "names", None), train_labels, test_labels, name)
    writers = _writers(train, name) if has_writers else None
    cells = [rows.select_columns(image).cast_column(image, Image(decode=False)) for rows in (train, test)]
    first = _decode_image(cells[0][0][image], f"{name}: train image 0")
    features = [
        _decode_images(rows, out / f"{split}_features.npy", first, f"{name}: {split}")
        for split, rows in zip(SPLITS, cells, strict=True)
    ]
    return from_arrays(
        (features[0], train_labels),
        (features[1], test_labels),
        classes=classes,
        name=name,
        writers=writers,
        standardise=True,
    )


def _writers(rows: Any, name: str) -> NDArray[Any]:
    """The writer of each sample."""
    return check_clients(rows[WRITER_COLUMN][:], name, "writers")


def _column(features: Any, column_type: type, parameter: str, requested: str | None, where: str) -> str:
    """The column with the name ``requested``, or the only column of a type."""
    columns = brief(", ".join(f"{c} ({getattr(f, 'dtype', type(f).__name__)})" for c, f in features.items()), 110)
    matching: list[str] = [c for c, feature in features.items() if isinstance(feature, column_type)]
    if requested is None and len(matching) == 1:
        return matching[0]
    if requested is None and not matching and parameter == "image_column":
        raise UsageError(
            f"{where}: no columns of type Image (columns: {brief(columns, 60)}), and folders are for images; put tables into one file "
            "(.csv, such as by pandas.concat) with a column of clients, or name a function in a Python file that returns the data"
        )
    if requested is None and not matching and len(features) == 1:
        raise UsageError(
            f"{where}: the images have no classes; put those of each class into a folder of its own, <class>/, at least two of them"
        )
    if requested is None:
        problem = f"{len(matching) or 'no'} columns of type {column_type.__name__}; choose one with {parameter}"
        raise UsageError(f"{where}: {problem} (columns: {columns})")
    integers = parameter == "label_column" and "int" in str(getattr(features.get(requested), "dtype", ""))
    if requested not in matching and not integers:
        problem = f"not a column of type {column_type.__name__}" if requested in features else "no such column"
        raise UsageError(f"{where}: {parameter} = '{brief(requested, 40)}': {problem} (columns: {columns})")
    return requested


def _decode_images(cells: Any, file: Path, first: "Picture", where: str) -> NDArray[np.uint8]:
    """Decode into ``file``, uint8 [N, C, H, W] with the size and color mode of ``first``, one batch in memory at a time."""
    mode = "L" if first.mode in ("1", "L", "LA") else "RGB"
    shape = (len(cells), len(mode), first.height, first.width)
    pixels = _reserve(file, shape, where)
    done = 0
    for batch in cells.iter(batch_size=1024):
        for cell in next(iter(batch.values())):
            image = _decode_image(cell, f"{where} image {done}", mode)
            if image.size != first.size:
                sizes = " and ".join(f"{width}x{height}" for width, height in (first.size, image.size))
                place = _place(cell, f"{where} image {done}")
                raise UsageError(
                    f"{place}: sizes {sizes} (width x height); images must share one size, so resize them first"
                )
            pixels[done] = np.asarray(image).reshape(*shape[2:], len(mode)).transpose(2, 0, 1)
            done += 1
    pixels.flush()
    return pixels


def _reserve(file: Path, shape: tuple[int, ...], where: str) -> "np.memmap[Any, np.dtype[np.uint8]]":
    """A new mapped array; its room on the disk is taken at once, because a full disk would end the process later."""
    check_room(file.parent, int(np.prod(shape, dtype=object)), where)
    pixels = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    start = file.stat().st_size - pixels.nbytes  # the header before it is on the disk already
    with file.open("r+b") as reserved:
        reserve(reserved.fileno(), start, pixels.nbytes)
    return pixels


def _decode_image(cell: Any, where: str, mode: str | None = None) -> "Picture":
    """A PIL image with 8 bits per channel, turned upright, from a cell of an undecoded Image column; in a color mode if given."""
    from PIL import Image, ImageOps

    if cell is None or (cell["bytes"] is None and cell["path"] is None):
        raise UsageError(f"{where}: missing; every sample needs an image")
    where = _place(cell, where)
    if cell["bytes"] is None and not Path(cell["path"]).is_file():
        raise UsageError(f"{where}: is not a file; every sample needs an image")
    try:
        with io.BytesIO(cell["bytes"]) if cell["bytes"] is not None else Path(cell["path"]).open("rb") as content:
            image: Picture = Image.open(content, formats=_formats())
            image.load()
        if image.mode[0] not in "IF":
            image = image if image.getexif().get(0x0112, 1) == 1 else ImageOps.exif_transpose(image)
            return image if mode is None else image.convert(mode)
    except Exception as error:  # a damaged file can make the decoder of a format fail in any way
        raise UsageError(f"{where}: cannot be decoded ({_reason(error)}); replace or remove it") from None
    raise UsageError(f"{where}: mode {image.mode!r}; images must have 8 bits per channel")


@cache
def _formats() -> tuple[str, ...]:
    """The formats of images that are decoded in this process."""
    from PIL import Image

    Image.init()
    return tuple(name for name in Image.OPEN if name not in EXTERNAL_FORMATS)


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    return "not an image" if isinstance(error, UnidentifiedImageError) else described(error, 60)


def _place(cell: Any, where: str) -> str:
    """The place of an image, with its file if it is known."""
    return f"{where} ('{brief(cell['path'])}')" if cell.get("path") else where
