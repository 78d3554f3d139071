"""Feature shift: each rule's law, who is shifted and who is not, types, blocks, and messages."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from fedcohort.federation import FeatureShift, Space, featureshift, parameters
from fedcohort.federation.data.datasets import Dataset, from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.featureshift import (
    BrightnessContrast,
    DeadPixels,
    Gauss,
    NoFeatureShift,
    Rotate,
    shift_features,
)
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Iid, partition

RULES: list[FeatureShift] = [Gauss(sigma=0.3), Rotate(), BrightnessContrast(), DeadPixels(share=0.2)]


def shifted(samples: np.ndarray, sizes: list[int], rule: FeatureShift, unit: Any = 1.0, **how: Any) -> np.ndarray:
    """A changed copy."""
    values = samples.copy()
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    space = Space(samples.shape[1:], np.asarray(unit), len(sizes))
    shift_features(rule, values, offsets, space, **{"seed": 0, "purpose": "train", **how})
    return values


def pictures(n: int = 60, kind: type = np.uint8, side: int = 8) -> np.ndarray:
    draw = np.random.default_rng(0).integers(0, 256, (n, 3, side, side))
    return draw.astype(kind) if kind == np.uint8 else (draw / 255).astype(kind)


def federation(rule: Any, data: Dataset | None = None, m: int = 8, **how: Any) -> Federation:
    data = data or load("digits")
    return gather(data, partition(Iid(), data.train_labels, m, 1), validation=0.2, seed=1, feature_shift=rule, **how)


# --- the rules -----------------------------------------------------------------------------------------------------------------


def test_gauss_noise_has_variance_sigma_squared_times_i_over_m() -> None:
    m, n = 4, 3_000
    before = np.full((m * n, 1, 4, 4), 0.5, dtype=np.float32)
    noise = (shifted(before, [n] * m, Gauss(sigma=0.2), unit=2.0) - before).reshape(m, -1)
    assert not noise[0].any()  # i = 0
    expected = 0.2**2 * np.arange(m) / m * 2.0**2
    values = noise.shape[1]
    assert noise.var(axis=1)[1:] == pytest.approx(expected[1:], rel=6 * np.sqrt(2 / values))
    assert np.abs(noise.mean(axis=1)).max() < 6 * np.sqrt(expected.max() / values)


def test_gauss_on_bytes_rounds_and_saturates() -> None:
    grey, black, white = (np.full((2_000, 1, 4, 4), level, dtype=np.uint8) for level in (128, 0, 255))
    noisy = [shifted(x, [0, 2_000], Gauss(sigma=0.1), unit=255.0).astype(float) for x in (grey, black, white)]
    deviation = np.sqrt((0.1 * 255) ** 2 / 2 + 1 / 12)  # and the rounding's
    assert noisy[0].std() == pytest.approx(deviation, rel=0.02)
    assert noisy[0].mean() == pytest.approx(128, abs=0.5)
    exact = shifted(grey.astype(np.float32), [0, 2_000], Gauss(sigma=0.1), unit=255.0)
    assert np.array_equal(noisy[0], np.clip(np.rint(exact), 0, 255))
    assert np.mean(noisy[1] == 0) == pytest.approx(0.5, abs=0.03)
    assert np.mean(noisy[2] == 255) == pytest.approx(0.5, abs=0.03)


def test_gauss_counts_in_spans_of_images_and_deviations_of_columns() -> None:
    digits = federation(Gauss(sigma=0.25))  # 0…16, whatever bytes could hold
    plain = federation(None)
    middle = (plain.client(7).features > 5) & (plain.client(7).features < 11)
    noise = (digits.client(7).features.float() - plain.client(7).features.float())[middle]
    assert float(noise.std()) == pytest.approx(0.25 * 16 * np.sqrt(7 / 8), rel=0.1)
    table = load("breast_cancer")
    noise = federation(Gauss(sigma=0.5), table).train.features - federation(None, table).train.features
    ratio = (noise[-57:].std(0) / torch.from_numpy(table.train_features.std(0))).numpy()
    assert ratio.mean() == pytest.approx(0.5 * np.sqrt(7 / 8), rel=0.1)


def test_rotate_turns_groups_of_equal_size() -> None:
    before = pictures(80)
    after = shifted(before, [10] * 8, Rotate())
    turns = []
    for i in range(8):
        mine = slice(10 * i, 10 * i + 10)
        fits = [k for k in range(4) if np.array_equal(after[mine], np.rot90(before[mine], k, axes=(2, 3)))]
        turns += fits
    assert sorted(turns) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_brightness_and_contrast_are_one_affine_map_a_client() -> None:
    before = pictures(40, np.float64)
    after = shifted(before, [20, 20], BrightnessContrast())
    for mine in (slice(0, 20), slice(20, 40)):
        x, y = before[mine].reshape(20, -1), after[mine].reshape(20, -1)
        slope = (y - y.mean(1, keepdims=True)).std(1) / x.std(1)  # b·c
        brightness = y.mean(1) / x.mean(1)  # contrast keeps the mean
        assert np.ptp(slope) < 1e-9
        assert np.ptp(brightness) < 1e-9
        assert 0.5 <= brightness[0] <= 1.5
        assert 0.5 <= slope[0] / brightness[0] <= 1.5
    assert after[:20].mean() / before[:20].mean() != pytest.approx(after[20:].mean() / before[20:].mean())


def test_factors_are_uniform() -> None:
    space = Space((1, 2, 2), np.asarray(1.0), 20_000)
    drawn = BrightnessContrast(low=0.5, high=1.5).draw(np.arange(20_000), space, np.random.default_rng(0))
    assert drawn.min() >= 0.5
    assert drawn.max() <= 1.5
    assert drawn.mean(axis=0) == pytest.approx(1.0, abs=0.01)
    assert drawn.var(axis=0) == pytest.approx(1 / 12, rel=0.03)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03


def test_dead_pixels_are_the_same_in_all_images_of_a_client() -> None:
    before = np.full((30, 3, 8, 8), 200, dtype=np.uint8)
    after = shifted(before, [10, 10, 10], DeadPixels(share=0.2))
    masks = [after[10 * i : 10 * i + 10] == 0 for i in range(3)]
    for mask in masks:
        assert (mask == mask[0, 0]).all()
        assert mask[0, 0].sum() == round(0.2 * 64)
    assert not np.array_equal(masks[0], masks[1])
    assert set(np.unique(after)) == {0, 200}


# --- who is shifted ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_server_sets_labels_and_standardisation_stay(rule: FeatureShift) -> None:
    data = load("digits")
    before, plain, other = data.train_features.copy(), federation(None), federation(rule)
    assert np.array_equal(data.train_features, before)  # the data set itself is nobody's to change
    assert not other.train.features.equal(plain.train.features)
    for split in ("validation", "test"):
        assert getattr(other, split).features.equal(getattr(plain, split).features)
        assert getattr(other, split).labels.equal(getattr(plain, split).labels)
    assert other.train.labels.equal(plain.train.labels)
    assert other.shift.equal(plain.shift)
    assert other.scale.equal(plain.scale)
    assert other.train.features.dtype == torch.uint8


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_the_held_out_part_is_shifted_like_the_training_part(rule: FeatureShift) -> None:
    whole, split = federation(rule), federation(rule, holdout=0.3)
    assert whole.train.features.equal(split.train.features)
    assert not split.held_out(7).features.equal(federation(None, holdout=0.3).held_out(7).features)


def test_a_matched_test_set_looks_like_the_clients() -> None:
    rule, plain = DeadPixels(share=0.3, matched_test=True), federation(None, m=3)
    other = federation(rule, m=3)
    assert other.validation.features.equal(plain.validation.features)
    assert other.test.labels.equal(plain.test.labels)
    always_dead = [
        set(map(tuple, np.argwhere(other.client(i).features.numpy().max(axis=(0, 1)) == 0))) for i in range(3)
    ]
    seen = np.zeros(3)
    for before, after in zip(plain.test.features.numpy(), other.test.features.numpy(), strict=True):
        lost = set(map(tuple, np.argwhere((before != after)[0])))
        assert np.array_equal(after[before != after], np.zeros(len(lost)))
        seen += [lost <= dead for dead in always_dead]
    assert (seen > 0.2 * len(plain.test)).all()
    assert seen.sum() >= len(plain.test)  # every image fits a client


def test_clients_are_the_same_for_train_and_test_but_noise_is_not() -> None:
    before = pictures(20, np.float64)
    for rule, same in ((Rotate(), True), (BrightnessContrast(), True), (DeadPixels(), True), (Gauss(), False)):
        train, test = (shifted(before, [10, 10], rule, purpose=purpose) for purpose in ("train", "test"))
        assert np.array_equal(train, test) == same


# --- what holds for every rule -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rule=st.sampled_from(RULES),
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any),
    kind=st.sampled_from([np.uint8, np.float32, np.float64]),
    seed=st.integers(0, 2**32),
)
def test_same_seed_same_pixels_whatever_the_blocks(rule: Any, sizes: list[int], kind: type, seed: int) -> None:
    before = pictures(sum(sizes), kind, side=4)
    after = shifted(before, sizes, rule, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(featureshift, "VALUES_AT_ONCE", 100)
        again = shifted(before, sizes, rule, seed=seed)
    assert after.dtype == before.dtype
    assert np.isfinite(after).all()
    assert np.array_equal(after, again)


def test_more_clients_than_share_a_generator() -> None:
    m = featureshift.CLIENTS_AT_ONCE * 2 + 5
    before = np.ones((m, 1, 4, 4), dtype=np.float32)
    dead = shifted(before, [1] * m, DeadPixels(share=0.25)) == 0
    assert (dead.sum(axis=(1, 2, 3)) == 4).all()
    assert dead.mean(axis=0) == pytest.approx(0.25, abs=0.06)
    assert not np.array_equal(dead[:1000], dead[featureshift.CLIENTS_AT_ONCE :][:1000])


@pytest.mark.parametrize("rule", [None, NoFeatureShift(), Gauss(sigma=0.0), DeadPixels(share=0.0)])
def test_no_shift_changes_nothing(rule: Any) -> None:
    assert federation(rule).train.features.equal(federation(None).train.features)


# --- messages ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Rotate(), BrightnessContrast(), DeadPixels()], ids=lambda rule: type(rule).__name__)
def test_tables_are_not_images(rule: FeatureShift) -> None:
    with pytest.raises(
        UsageError, match=r"^federation\.feature_shift: \w+ is for images, but a sample has 30 columns; use"
    ):
        federation(rule, load("breast_cancer"))


def test_rotated_images_must_be_square() -> None:
    images, labels = np.zeros((20, 4, 6), dtype=np.uint8), np.arange(20) % 2
    with pytest.raises(
        UsageError, match=r"^federation\.feature_shift: Rotate turns by 90°, so images must be square, not 4×6"
    ):
        federation(Rotate(), from_arrays((images, labels), (images, labels)), m=2)


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ({"name": "gauss", "sigma": -1.0}, r"^federation\.feature_shift\.sigma = -1\.0: should be at least 0"),
        ({"name": "dead_pixels", "share": 2.0}, r"^federation\.feature_shift\.share = 2\.0: should be at most 1"),
        ({"name": "brightness_contrast", "low": 2}, r"^federation\.feature_shift\.low = 2: must be at most high = 1\.5"),
        ({"name": "rotate", "angle": 90}, r"^federation\.feature_shift\.angle: unknown key for 'rotate'"),
        ({"name": "gaus"}, r"^federation\.feature_shift\.name = 'gaus': no such feature shift; did you mean 'gauss'\?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_before_anything_starts(shift: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Experiment(federation={"feature_shift": shift})


def test_toml_round_trip_and_hash() -> None:
    experiment = Experiment(federation={"feature_shift": {"name": "dead_pixels", "share": 0.2, "matched_test": True}})
    assert Experiment(**experiment.to_dict()) == experiment
    assert experiment.federation.feature_shift.build() == DeadPixels(share=0.2, matched_test=True)
    assert experiment.key() != Experiment().key()


def test_a_rule_of_ones_own() -> None:
    @parameters
    class Negative(FeatureShift):
        """Every other client sees negatives."""

        def draw(self, clients: Any, space: Space, rng: Any) -> Any:
            return clients % 2 == 1

        def change(self, samples: Any, drawn: Any, space: Space, rng: Any) -> Any:
            samples[drawn] = space.unit - samples[drawn]
            return samples

    before = pictures(20)
    after = shifted(before, [10, 10], Negative(), unit=255.0)
    assert np.array_equal(after[:10], before[:10])
    assert np.array_equal(after[10:], 255 - before[10:])


def own(drawn: Any = None, changed: Any = lambda samples: samples, words: Any = None) -> FeatureShift:
    """A rule that draws, returns and says this."""

    @parameters
    class Own(FeatureShift):
        images_only = False

        def draw(self, clients: Any, space: Space, rng: Any) -> Any:
            clients[:] = clients[::-1].copy()
            return clients if drawn is None else drawn

        def change(self, samples: Any, drawn: Any, space: Space, rng: Any) -> Any:
            return changed(samples)

        def words(self, drawn: Any) -> Any:
            return words

    return Own()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"drawn": 0.5}, r"draw returned float; it must return an array with one entry for each client, \[2, …\]"),
        ({"drawn": [0, 1]}, "draw returned list"),
        ({"drawn": np.zeros(3)}, r"draw returned float64 \[3\]"),
        (
            {"changed": lambda x: None},
            r"change returned None; it must return the shifted samples, floats \[20, 3, 8, 8\]",
        ),
        ({"changed": lambda x: x[:1]}, r"change returned float32 \[1, 3, 8, 8\]"),
        ({"changed": lambda x: x.mean(axis=1, keepdims=True)}, r"change returned float32 \[20, 1, 8, 8\]"),
        ({"changed": lambda x: x / np.float32(0)}, "change returned samples that are not finite"),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.filterwarnings("ignore:.*encountered in divide:RuntimeWarning")
def test_rules_of_ones_own_that_cannot_be(rule: Any, message: str, kind: Any) -> None:
    with pytest.raises(UsageError, match=rf"^federation\.feature_shift: Own\.{message}"):
        shifted(pictures(20, kind), [10, 10], own(**rule))


@pytest.mark.parametrize("changed", [lambda x: x.tolist(), lambda x: torch.from_numpy(x), lambda x: x.astype(np.int64)])
def test_rules_of_ones_own_may_return_what_becomes_an_array(changed: Any) -> None:
    before = pictures(20)
    assert np.array_equal(shifted(before, [10, 10], own(changed=changed)), before)


def test_words_of_ones_own_are_texts() -> None:
    space = Space((3, 8, 8), np.asarray(1.0), 2)
    assert featureshift.in_words(own(words=["", "dark"]), space, seed=0) == ["", "dark"]
    for words in (None, [""], [0.5, 1.0], np.array(["a", "b"])):
        with pytest.raises(
            UsageError, match=r"Own\.words returned .*; it must return a list of one text for each of 2 clients"
        ):
            featureshift.in_words(own(words=words), space, seed=0)
