"""The contracts of label noise and feature shifts."""

from collections.abc import Callable

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.federation.featureshift import FeatureShift, Space, in_words, shift_features
from fedcohort.federation.labelnoise import LabelNoise, Noise, corrupt
from fedcohort.testing.base import check_kind, during_seeded, new_from, require

__all__ = ["check_feature_shift", "check_label_noise"]

SIZES = (9, 16, 5, 0, 30, 7)
"""Samples of the six clients; one has none."""
SEEDS = (0, 1)
TABLE = (5,)
"""Shape of a sample of a table."""


def check_label_noise(make: Callable[[], LabelNoise], *, num_classes: int = 10) -> None:
    """Check the contract of :class:`fedcohort.federation.LabelNoise`.

    The rule gives each client a rate from 0 to 1, for any number of clients, and draws from its argument ``rng`` only.

    Args:
        make: returns a new rule.
        num_classes: the number of classes, which ``matrix`` must fit.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    rule = new_from(make)
    check_kind(rule, LabelNoise, "fedcohort.federation.LabelNoise")
    used = make()
    for sizes in (SIZES, (40,), (3,) * 25):
        for seed in SEEDS:
            where = f"{type(rule).__name__}, {len(sizes)} clients, seed {seed}"
            rules = {"a rule": make(), "another rule": make(), "a rule that was used before": used}
            with during_seeded(where, rule, "federation.label_noise"):
                found = {name: _noise(each, sizes, num_classes, seed) for name, each in rules.items()}
            for name, noise in found.items():
                same = np.array_equal(noise.noisy, found["a rule"].noisy) and np.array_equal(
                    noise.rates, found["a rule"].rates
                )
                require(same, f"{where}: {name} gave other rates; draw from rng only, and keep nothing on self")


def _noise(rule: LabelNoise, sizes: tuple[int, ...], num_classes: int, seed: int) -> Noise:
    """The label noise of clients that hold all samples in order."""
    labels: Indices = np.arange(sum(sizes)) % num_classes
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return corrupt(rule, labels, np.arange(len(labels)), offsets, num_classes=num_classes, seed=seed)


def check_feature_shift(make: Callable[[], FeatureShift], *, shape: tuple[int, ...] = (1, 8, 8)) -> None:
    """Check the contract of :class:`fedcohort.federation.FeatureShift`.

    ``draw`` returns an entry for each of the given clients, which may be some of all. ``change`` returns finite samples of the
    same shape, each of which depends on no other sample, for bytes and for floats. Both draw from their argument ``rng`` only. A rule
    that is not for images only is checked on tables as well.

    Args:
        make: returns a new rule.
        shape: the shape of a sample, (C, H, W) for images.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    rule = new_from(make)
    check_kind(rule, FeatureShift, "fedcohort.federation.FeatureShift")
    for each in {shape} if rule.images_only or len(shape) == 1 else {shape, TABLE}:
        unit = np.ones(each) if len(each) == 1 else np.asarray(1.0)
        space = Space(each, unit, len(SIZES))
        try:
            rule.check(space)
        except UsageError as error:
            raise AssertionError(
                f"{type(rule).__name__}: refuses samples of the shape {each}; give another: {error}"
            ) from None
        _check_drawn(make, space)
        _check_alone(make, space)
        kinds = (np.float32, np.float64) if len(each) == 1 else (np.uint8, np.float32, np.float64)
        for kind in kinds:
            for seed in SEEDS:
                _check_shifted(make, space, kind, seed)


def _samples(space: Space, kind: type) -> np.ndarray:
    """One sample for each place of all clients: positive floats of about 1, or bytes."""
    values = rng(0, "contract-samples").uniform(0.1, 1.0, (sum(SIZES), *space.shape))
    return (255 * values).astype(kind) if kind is np.uint8 else values.astype(kind)


def _check_drawn(make: Callable[[], FeatureShift], space: Space) -> None:
    """Check that draw returns an entry for each given client, the same for one generator, and that there is a text for each."""
    rule = make()
    for clients in (np.arange(len(SIZES)), np.arange(3, 5), np.arange(5, 6)):
        where = f"{type(rule).__name__}.draw, clients {clients.tolist()} of {len(SIZES)}"
        with during_seeded(where, rule, "federation.feature_shift"):
            first, second, third = (
                each.draw(clients.copy(), space, rng(1, "contract-shift")) for each in (rule, rule, make())
            )
        shape = tuple(getattr(first, "shape", ()))
        complaint = f"{where}: returned {list(shape) or type(first).__name__}; return an array with one entry for each given client"
        require(shape[:1] == clients.shape, complaint)
        same = np.array_equal(first, second) and np.array_equal(first, third)
        require(same, f"{where}: the same generator gave other numbers; draw from rng only, and keep nothing on self")
    where = f"{type(rule).__name__}.words"
    with during_seeded(where, rule, "federation.feature_shift"):
        in_words(rule, space, seed=0)


def _check_alone(make: Callable[[], FeatureShift], space: Space) -> None:
    """Check that the change of a sample does not depend on others, if it draws nothing: samples are changed in blocks of any size."""
    rule, samples = make(), _samples(space, np.float64)
    where = f"{type(rule).__name__}.change"
    with during_seeded(where, rule, "federation.feature_shift"):
        drawn = rule.draw(np.arange(len(SIZES)), space, rng(1, "contract-shift"))[
            np.repeat(np.arange(len(SIZES)), SIZES)
        ]

        def changed(rows: slice, seed: int) -> np.ndarray:
            return np.array(rule.change(samples[rows].copy(), drawn[rows].copy(), space, rng(seed, "contract-change")))

        whole = changed(slice(None), 0)
        if whole.shape != samples.shape or not np.allclose(whole, changed(slice(None), 1), equal_nan=True):
            return  # it draws, or is refused below
        parts = np.concatenate([changed(slice(7), 0), changed(slice(7, None), 0)])
    complaint = f"{where}: changes a sample otherwise if other samples are given; samples come in blocks of any size"
    require(np.allclose(whole, parts, equal_nan=True), complaint)


def _check_shifted(make: Callable[[], FeatureShift], space: Space, kind: type, seed: int) -> None:
    """Check that samples are shifted in the same way by two rules, and by a rule that was used before."""
    used = make()
    where = f"{type(used).__name__}, {np.dtype(kind).name} samples {list(space.shape)}, seed {seed}"
    offsets = np.concatenate([[0], np.cumsum(SIZES)])

    def shifted(rule: FeatureShift, seed: int) -> np.ndarray:
        values = _samples(space, kind)
        shift_features(rule, values, offsets, space, seed=seed, purpose="train")
        return values

    rules = {"a rule": make(), "another rule": make(), "a rule that was used before": used}
    with during_seeded(where, used, "federation.feature_shift"):
        shifted(used, seed + 1)
        found = {name: shifted(rule, seed) for name, rule in rules.items()}
    for name, samples in found.items():
        same = np.array_equal(samples, found["a rule"])
        require(same, f"{where}: {name} gave other samples; draw from rng only, and keep nothing on self")
