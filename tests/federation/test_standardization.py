"""Mean and deviation of features: the bits of numpy, without copies of all features."""

import statistics
import tracemalloc

import numpy as np
import pytest
import torch

from fedcohort import UsageError, from_arrays
from fedcohort.federation import standardization
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.federation.standardization import shift_and_scale

SHAPES = [
    (1000, 3, 32, 32), (257, 3, 5, 7), (300, 1, 28, 28), (2001, 1, 3, 5), (77, 2, 1, 1), (1, 3, 9, 9), (1, 1, 1, 1),
    (5000, 7), (4001, 1), (3, 300), (1, 4), (64, 40, 8, 8),
]  # fmt: skip


IN_THIS_ORDER = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4)
"""Earlier versions of numpy add the squares of images of one channel in another order: the last bit may differ."""


def same(ours: np.ndarray, numpys: np.ndarray) -> bool:
    return np.array_equal(ours, numpys) if IN_THIS_ORDER else np.allclose(ours, numpys, rtol=1e-15, atol=0)


@pytest.mark.parametrize("piece", [8 * 128, 2**18])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_deviations_have_the_bits_of_numpy(
    shape: tuple[int, ...], kind: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standardization, "PIECE", piece)
    features = (100 * np.random.default_rng(0).standard_normal(shape)).astype(kind)
    axes = (0, 2, 3) if features.ndim == 4 else (0,)
    deviation = features.std(axis=axes, dtype=np.float64)
    shift, scale = shift_and_scale(features, True)
    assert np.array_equal(shift.ravel(), features.mean(axis=axes, dtype=np.float64))
    assert same(scale.ravel(), 1 / np.where(deviation > 1e-12, deviation, 1))


def test_images_of_bytes_have_mean_and_deviation_of_their_pixels() -> None:
    """They are counted by level, in blocks of 4,096 images; no other test knew the scale of such images."""
    rng = np.random.default_rng(0)
    images = np.stack([rng.integers(low, high, (5000, 4, 3)) for low, high in ((0, 256), (90, 110), (7, 8))], axis=1)
    shift, scale = shift_and_scale(images.astype(np.uint8), True)
    assert shift.shape == scale.shape == (3, 1, 1)
    pixels = [channel.ravel().tolist() for channel in images.swapaxes(0, 1)]
    assert shift.ravel() == pytest.approx([statistics.fmean(channel) for channel in pixels], rel=1e-12)
    deviations = [statistics.pstdev(channel) for channel in pixels]
    assert deviations[2] == 0
    assert scale.ravel() == pytest.approx([1 / deviations[0], 1 / deviations[1], 1], rel=1e-10)
    two = np.array([[0, 200], [100, 100]], np.uint8).reshape(2, 1, 1, 2)  # mean 100, deviation √5,000
    shift, scale = shift_and_scale(two, True)
    assert (float(shift.item()), float(scale.item())) == (100.0, pytest.approx(5000**-0.5))


def test_features_in_another_order_have_the_bits_of_numpy() -> None:
    features = np.asfortranarray(np.random.default_rng(0).standard_normal((500, 6)))
    _, scale = shift_and_scale(features, True)
    assert np.array_equal(scale, 1 / features.std(axis=0, dtype=np.float64))


def test_own_float_images_are_not_copied() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.random((4000, 3, 32, 32), dtype=np.float32), np.arange(4000) % 10
    tracemalloc.start()
    try:
        data = from_arrays((features, labels), (features[:10], labels[:10]), standardise=True)
        shift_and_scale(data.train_features, True)
        assert tracemalloc.get_traced_memory()[1] < 0.3 * features.nbytes
    finally:
        tracemalloc.stop()
    assert np.shares_memory(data.train_features, features)


@pytest.mark.parametrize("row", [0, 399, 799])
def test_values_that_are_not_finite_are_found_in_every_piece(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.federation.data.array_checks.FINITE_AT_ONCE", 1000)
    features, labels = np.zeros((800, 1, 8, 8), dtype=np.float32), np.arange(800) % 2
    features[row, 0, 1, 2:4] = np.nan, np.inf
    with pytest.raises(UsageError, match="2 values are NaN or infinite"):
        from_arrays((features, labels), (features[:0:-1], labels[:0:-1]))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("unit", [1e-12, 1e-31, 1e-36])
def test_columns_in_small_units_are_not_constant(unit: float, kind: str) -> None:
    features = (unit * np.random.default_rng(0).normal(3, 1, (500, 4))).astype(kind)
    shift, scale = shift_and_scale(features, True)
    seen = (features.astype(np.float64) - shift) * scale
    np.testing.assert_allclose([seen.mean(axis=0), seen.std(axis=0)], [[0] * 4, [1] * 4], atol=1e-6)


def test_the_smallest_float64_enter_the_model_standardized() -> None:
    features, labels = 1e-100 * np.random.default_rng(0).normal(3, 1, (500, 4)), np.arange(500) % 2
    data = from_arrays((features, labels), (features, labels), standardise=True)
    federation = gather(data, partition(Iid(), data.train_labels, 5, 0), validation=0.0, seed=0)
    seen = federation.prepare(federation.train.features, torch.float32).numpy()
    np.testing.assert_allclose([seen.mean(axis=0), seen.std(axis=0)], [[0] * 4, [1] * 4], atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-20, 1e-200])
def test_columns_that_differ_by_rounding_only_are_constant(value: float) -> None:
    features = np.full((1001, 2), value)
    features[::2, 1] = np.nextafter(value, 1) if value else value
    assert shift_and_scale(features, True)[1].tolist() == [1, 1]


def test_values_with_squares_of_0_are_refused() -> None:
    features = 1e-200 * np.random.default_rng(0).standard_normal((50, 3))
    features[:, 0] = 0
    with pytest.raises(
        UsageError, match=r"data\.standardise = true: column 2 of 3 .* whose squares are 0; multiply the column by"
    ):
        shift_and_scale(features, True)
