"""Data sets in arrays with names: which names belong together, and what their classes may be called."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.named_arrays import from_archive, from_named_arrays

FEATURES, LABELS = np.arange(80, dtype=np.float32).reshape(40, 2), np.arange(40) % 2
WHOLE: dict[str, Any] = {"features": FEATURES, "labels": LABELS}
DIVIDED: dict[str, Any] = {
    "train_features": FEATURES[:30],
    "train_labels": LABELS[:30],
    "test_features": FEATURES[30:],
    "test_labels": LABELS[30:],
}


def made(arrays: dict[str, Any], **settings: Any) -> Dataset:
    return from_named_arrays(arrays, "data", "mine", **{"standardise": False, "numeric": False} | settings)


def test_a_test_set_of_its_own_stays_as_it_is() -> None:
    data = made(DIVIDED | {"clients": np.arange(30) % 3, "test_clients": np.arange(10) % 3})
    assert data.name == "mine"
    assert data.train_features.tolist() == FEATURES[:30].tolist()
    assert data.test_features.tolist() == FEATURES[30:].tolist()
    assert data.test_labels.tolist() == LABELS[30:].tolist()
    assert data.test_clients is not None
    assert data.test_clients.tolist() == (np.arange(10) % 3).tolist()
    assert not data.standardise
    assert made(DIVIDED, standardise=True).standardise


def test_tables_of_a_file_are_standardized(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **DIVIDED)
    data = from_archive(tmp_path / "mine.npz", "data", numeric=False)
    assert (data.name, data.standardise) == ("mine.npz", True)


def test_samples_in_one_part_are_divided() -> None:
    data = made(WHOLE | {"clients": np.arange(40) % 4})
    assert data.num_train + len(data.test_labels) == 40
    assert 0 < len(data.test_labels) < data.num_train
    assert data.writers is not None
    assert made(WHOLE).writers is None
    assert [made(WHOLE, standardise=own).standardise for own in (True, False)] == [True, False]


@pytest.mark.parametrize("arrays", [WHOLE, DIVIDED])
def test_labels_may_be_numbers(arrays: dict[str, Any]) -> None:
    assert [made(arrays, numeric=own).train_numbers is not None for own in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["no", "yes"], ("no", "yes")),
        (np.array([10, 20]), ("10", "20")),
        (np.array([1, 2], np.uint8), ("1", "2")),
        (np.array(["no", "yes"], dtype=object), ("no", "yes")),
        (None, ("0", "1")),
    ],
)
@pytest.mark.parametrize("arrays", [WHOLE, DIVIDED])
def test_classes_have_names_of_texts_or_integers(arrays: dict[str, Any], names: Any, told: tuple[str, ...]) -> None:
    assert made(arrays | {"classes": names}).classes == told


@pytest.mark.parametrize("names", [np.array([0.5, 1.5]), np.array([["no", "yes"]]), np.array(["no", 1], dtype=object)])
def test_other_names_of_classes_are_refused(names: Any) -> None:
    with pytest.raises(UsageError, match=r"^data: classes must be texts \[K\], one name for each class, not "):
        made(WHOLE | {"classes": names})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "has no arrays; needs features and labels, or train_features"),
        ({"features": FEATURES}, "has features; needs features and labels, or"),
        (WHOLE | {"test_clients": LABELS}, "unknown array 'test_clients'; known here are features, labels, clients, classes"),
        (WHOLE | {"more": LABELS, "also": LABELS, "extra": LABELS, "other": LABELS}, "unknown array 'also'"),
        (DIVIDED | WHOLE, "unknown array 'features'; known here are .*, clients, test_clients, classes"),
    ],
)  # fmt: skip
def test_missing_and_unknown_arrays_are_named(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^data: {message}"):
        made(arrays)
