"""Load a data set by its name, from scikit-learn, a text, a user's own file, a folder, a local mirror, or the Hugging Face Hub.

A local mirror is a folder in the layout of the Hugging Face Hub, named by ``data_dir`` or the environment variable
``FEDCOHORT_DATA``. It is searched first, then the Hub.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.paths import is_file, is_folder
from fedcohort.core.files.user_cache import absolute
from fedcohort.federation.data.array_checks import brief
from fedcohort.federation.data.cache_entries import save
from fedcohort.federation.data.dataset_cache import (
    entry_of_scikit_learn,
    entry_of_source,
    load_or_decode,
)
from fedcohort.federation.data.datasets import MAX_NAME, Dataset, from_arrays, held_out, standardised
from fedcohort.federation.data.dialogue_data import DIALOGUES, dialogue
from fedcohort.federation.data.images import decode, read
from fedcohort.federation.data.numeric_labels import bin_edges, binned
from fedcohort.federation.data.own_data import load_own
from fedcohort.federation.data.own_data_names import is_own, is_text
from fedcohort.federation.data.table_columns import Columns
from fedcohort.federation.data.texts import read_play

__all__ = ["EMBEDDED", "NAMES", "SOURCES", "is_found", "is_hub_id", "is_text_file", "load"]

EMBEDDED = ("digits", "breast_cancer", "diabetes")
"""Data sets that are part of scikit-learn."""
SOURCES = {
    "mnist": ("ylecun/mnist",),
    "fashion_mnist": ("zalando-datasets/fashion_mnist",),
    "cifar10": ("uoft-cs/cifar10",),
    "emnist_balanced": ("emnist-balanced",),
    "emnist_letters": ("emnist-letters", "tanganke/emnist_letters"),
    "emnist_digits": ("emnist-digits",),
    "emnist_47_subset": ("emnist-47-subset",),
    "femnist": ("femnist-105-writers", "flwrlabs/femnist"),
}
"""Name → folders of a local mirror, in order of preference; the last one is the Hub id, if it has an owner."""
RENAMED = {
    "emnist": "stood for two data sets; use 'emnist_47_subset' (a mirror's subset of 47 classes), 'emnist_balanced' (47 classes), "
    "'emnist_letters' (26 letters) or 'emnist_digits' (10 digits)",
}
"""Names that are no longer used, and what to use."""
NAMES = (*EMBEDDED, *DIALOGUES, *SOURCES)
FOLDER_OR_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def load(
    name: str,
    *,
    data_dir: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    client_column: str | None = None,
    feature_columns: Sequence[str] | None = None,
    standardise: bool | None = None,
    window: int = 32,
    task: str = "next",
    numeric: bool = False,
) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of

            * ``digits`` (8x8 images, values 0..16) and ``breast_cancer`` (30 float32 features, not standardized), both part
              of scikit-learn, split 80/20 within each class;
            * ``diabetes`` (442 samples, 10 standardized float32 features, numeric labels), part of scikit-learn, split 80/20;
            * ``dialogue`` and ``dialogue_roles``: an invented text of 24 roles, see :mod:`fedcohort.federation.data.dialogue_data`;
            * a text file ``….txt`` with lines ``ROLE: text``, see :func:`fedcohort.federation.data.texts.read_play`;
            * ``mnist``, ``fashion_mnist``, ``cifar10``;
            * ``emnist_balanced`` (47 classes), ``emnist_letters`` (26 letters) and ``emnist_digits`` (10 digits): parts of EMNIST,
              from the folders ``emnist-balanced``, ``emnist-letters`` and ``emnist-digits`` of a mirror; the letters also from the
              Hub's ``tanganke/emnist_letters``. No copy of the others with images and class labels is known on the Hub;
            * ``emnist_47_subset``: the folder ``emnist-47-subset`` of a mirror, a subset with the classes of EMNIST Balanced and
              another split;
            * ``femnist``: a mirror's ``femnist-105-writers``, otherwise the Hub's ``flwrlabs/femnist``;
            * a Hub id ``owner/name`` of any image classification data set;
            * a folder, in the Hub's layout or of images: ``train/<class>/*.png`` and ``test/<class>/*.png``, or only
              ``<class>/*.png``. Write ``./mnist`` for a folder with one of the names above.
            * a table with one row for each sample in a ``.csv``, ``.parquet`` or ``.npz`` file, see
              :func:`fedcohort.federation.data.tables.from_table` and :func:`~fedcohort.federation.data.named_arrays.from_archive`;
            * a function that returns data, ``path/to/file.py:function``, see
              :func:`fedcohort.federation.data.samples_of_function.dataset_of_result`. The file is run.
        data_dir: a local mirror, searched before the Hub; default: the environment variable ``FEDCOHORT_DATA``.
        image_column, label_column: required only if there is not exactly one Image or one ClassLabel column. The label column
            may also be a column of integers 0..K-1. In a table, the label is in the column ``label`` unless another is given.
        client_column: column of a table with the id of the client; ``client`` by default, if there is such a column.
        feature_columns: columns of a table with features; by default all but those with label, client and split.
        standardise: whether features enter the model with mean 0 and standard deviation 1. By default, images and the data sets
            with a name do, and tables and arrays do not.
        window: number of characters of a sample of a text.
        task: what a model predicts from a text file, see :func:`fedcohort.federation.data.texts.from_text`.
        numeric: the labels of a table or function are numbers, for regression.

    Without a ``test`` split, ``validation`` is the test set. Without either, the test set is 10% of each writer's samples if there is
    a column ``writer_id``, and otherwise 20% of each class; these are always the same samples. Images keep their size. If the first
    image is gray, all become gray (C = 1), otherwise RGB (C = 3). A Hub data set is downloaded once; later loads use the cache.

    Raises:
        UsageError: an unknown name, a mirror that does not exist, an ambiguous choice of columns, images of different sizes,
            samples without labels, an empty split, or no connection.
    """
    _check_task(name, task)
    if is_own(name) and not is_folder(absolute(name)):
        if image_column is not None:
            raise UsageError(
                f"data.image_column = {shown(image_column)}: tables and functions have no column of images; leave it out"
            )
        columns = Columns(
            label_column, client_column, None if feature_columns is None else tuple(feature_columns), numeric
        )
        return load_own(name, columns, standardise)
    columns_only = (
        ("client_column", client_column),
        ("feature_columns", feature_columns),
        ("numeric", numeric or None),
    )
    for setting, given in columns_only:
        if given is not None:
            raise UsageError(
                f"data.{setting} = {shown(given)}: only for tables (.csv, .parquet) and functions; leave it out"
            )
    if is_text_file(name):
        check_no_columns(name, image_column, label_column)
        dataset: Dataset = read_play(absolute(name), window=window, task=task)
    else:
        dataset = _load_named(name, _mirror(data_dir), image_column, label_column, window)
    return dataset if standardise is None else standardised(dataset, standardise)


def _check_task(name: str, task: str) -> None:
    """Refuse a task of data that are no text file."""
    if task != "next" and not is_text_file(name):
        other = "name 'dialogue_roles'" if name in DIALOGUES else "leave it out"
        raise UsageError(f"data.task = {shown(task)}: only for text files (.txt); {other}")


def _load_named(
    name: str, mirror: Path | None, image_column: str | None, label_column: str | None, window: int
) -> Dataset:
    """A data set of scikit-learn, the invented text, a data set of a mirror, of a folder or of the Hub."""
    if name in (*EMBEDDED, *DIALOGUES):
        check_no_columns(name, image_column, label_column)
    if name in EMBEDDED:
        return _load_embedded(name)
    if name in DIALOGUES:
        return dialogue(name, window)
    source = _find(name, mirror)

    def decode_source(scratch: Path, out: Path) -> None:
        decode(read(source, name, scratch), out, name, image_column, label_column)

    return load_or_decode(entry_of_source(source, image_column, label_column), brief(name, MAX_NAME), decode_source)


def check_no_columns(name: str, image_column: str | None, label_column: str | None) -> None:
    """Refuse a choice of columns of data without columns.

    Raises:
        UsageError: a column is chosen.
    """
    if image_column or label_column:
        raise UsageError(
            f"data.name = {brief(name)!r}: has no columns to choose; leave out image_column and label_column"
        )


def is_text_file(name: str) -> bool:
    """Whether the name of a data set is that of a text file."""
    return is_text(name) and not is_folder(absolute(name))


def is_found(name: str) -> bool:
    """Whether the name of a data set is that of a user's folder or text file."""
    return name not in NAMES and bool(name) and (is_text_file(name) or is_folder(absolute(name)))


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of an id of the Hub, ``owner/name``."""
    return "/" in name and FOLDER_OR_HUB_ID.fullmatch(name) is not None


def _load_embedded(name: str) -> Dataset:
    """A data set of scikit-learn, from the cache if possible: importing scikit-learn takes longer than a short run."""
    if name == "diabetes":  # the cache has no numeric labels
        return from_scikit_learn(name)
    with suppress(UsageError):  # a cache that cannot be used
        return load_or_decode(entry_of_scikit_learn(name), name, lambda _, out: save(from_scikit_learn(name), out))
    return from_scikit_learn(name)


def from_scikit_learn(name: str) -> Dataset:
    """The data set ``digits``, ``breast_cancer`` or ``diabetes``."""
    from sklearn import datasets as sklearn_datasets

    if name == "diabetes":
        return _diabetes(*sklearn_datasets.load_diabetes(return_X_y=True, scaled=False))

    data = sklearn_datasets.load_digits() if name == "digits" else sklearn_datasets.load_breast_cancer()
    features = data.images.astype(np.uint8) if name == "digits" else data.data.astype(np.float32)
    in_test = held_out(data.target, 0.2)
    train, test = ((features[mask], data.target[mask]) for mask in (~in_test, in_test))
    return from_arrays(train, test, classes=[str(c) for c in data.target_names], name=name, standardise=True)


def _diabetes(features: NDArray[np.float64], progression: NDArray[np.float64]) -> Dataset:
    """The data set ``diabetes``: features with mean 0 and standard deviation 1 over the training samples, labels as published."""
    in_test = held_out(binned(progression, bin_edges(progression)), 0.2)
    training = features[~in_test]
    scaled = ((features - training.mean(axis=0)) / training.std(axis=0)).astype(np.float32)
    train, test = ((scaled[mask], progression[mask]) for mask in (~in_test, in_test))
    return from_arrays(train, test, name="diabetes", numeric=True)


def _mirror(data_dir: str | Path | None) -> Path | None:
    """The folder of the local mirror; None without one."""
    given = data_dir or os.environ.get("FEDCOHORT_DATA")
    if not given:
        return None
    if not is_folder(absolute(given)):
        parameter = "data_dir" if data_dir else "FEDCOHORT_DATA"
        raise UsageError(
            f"{parameter} = '{brief(given)}': no such folder; use the folder of a local mirror, or leave it out"
        )
    return absolute(given)


def _find(name: str, mirror: Path | None) -> Path | str:
    """The folder of a data set, or its Hub id."""
    if name in RENAMED:
        raise UsageError(f"data.name = {name!r}: {RENAMED[name]}")
    candidates = SOURCES.get(name, (name,))
    for candidate in candidates:
        if mirror and FOLDER_OR_HUB_ID.fullmatch(candidate) and is_folder(mirror / candidate):
            return mirror / candidate
    hub_id = candidates[-1]
    if name and is_folder(absolute(hub_id)):
        return absolute(hub_id)
    if is_hub_id(hub_id):
        return hub_id
    if name in SOURCES:
        raise UsageError(
            f"data.name = {name!r}: has no known copy on the Hub; with FEDCOHORT_DATA or data_dir (in commands: --data-dir), name a "
            f"local mirror that has the folder {hub_id!r}"
        )
    if is_file(absolute(name)):
        raise UsageError(
            f"data.name = '{brief(name)}': files of this kind are not read; save it as a table (.csv, .parquet, .npz) or a text "
            "(.txt), or load it in a function ('my.py:load')"
        )
    others = "a Hub id 'owner/name', a folder, a table (.csv, .parquet, .npz) or 'my.py:function' works too"
    hint = f"{nearest(name[:60], NAMES)}; {others}"
    raise UsageError(f"data.name = '{brief(name)}': unknown name, and no such folder; {hint}")
