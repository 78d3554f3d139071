"""Feature shift: clients with different noise, rotation, brightness or dead pixels in their samples.

A rule is a ``@parameters`` class that extends :class:`FeatureShift`: it defines random parameters of each client, and how they change
samples. It is applied once, in place, to the clients' packed samples (training part and held-out part), one block at a time, so that
there is no second copy of the images and no cost per batch. uint8 images stay uint8: values are rounded and clipped to 0…255, as a
sensor saturates (so noise can only brighten a black background); floats are not clipped. The server's sets do not change, and
neither do shift and scale of the standardization, which come from the original data set.

With ``matched_test``, the server's test set is changed as well: each test sample is shifted as if it belonged to a client drawn with
probability N_i/N, so that the test set has the clients' distribution. The validation set never changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from fedcohort.core import random_streams
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.parameters import parameters
from fedcohort.core.user_code.method_signatures import check_methods, not_defined
from fedcohort.core.user_code.unseeded_draws import is_own, warning_of_draws

__all__ = [
    "BrightnessContrast", "DeadPixels", "FeatureShift", "Gauss", "NoFeatureShift", "Rotate", "Space", "in_words",
    "shift_features", "shift_test",
]  # fmt: skip

Array = NDArray[Any]

CLIENTS_AT_ONCE = 1024
"""Number of clients that share one generator; changing it changes the draws."""
VALUES_AT_ONCE = 2**22
"""Number of pixels that are changed at once."""


@dataclass(frozen=True, eq=False)
class Space:
    """Shape and scale of the samples, and the number of clients.

    Attributes:
        shape: shape of one sample, (C, H, W) or (d,).
        unit: size of a shift of 1: for images, the range of the pixels of the data set (largest minus smallest), float64 []; for
            tables, the standard deviation of each column, float64 [d].
        num_clients: number of clients m.
    """

    shape: tuple[int, ...]
    unit: Values
    num_clients: int


@parameters
class NoFeatureShift:
    """No feature shift."""


@parameters
class FeatureShift:
    """Base of all feature shifts; a subclass adds :meth:`draw` and :meth:`change`."""

    images_only: ClassVar[bool] = True
    """Whether the shift needs images, of shape [C, H, W]; False if it can change tables as well."""

    matched_test: bool = False
    """Also shift the server's test set: each sample as if it belonged to a client drawn in proportion to its number of samples."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, FeatureShift)

    def check(self, space: Space) -> None:
        """Check that the rule suits these samples.

        Raises:
            UsageError: it does not suit them.
        """
        if self.images_only and len(space.shape) != 3:
            raise UsageError(
                f"federation.feature_shift: {type(self).__name__} is for images, but a sample has {space.shape[0]} columns; "
                "use gauss or none"
            )

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """The random parameters of each of these clients, [len(clients), …]."""
        raise not_defined(self, FeatureShift.draw, "a feature shift")

    def words(self, drawn: Array) -> list[str]:
        """The random parameters of each client as text for tables; empty strings if there is nothing to show."""
        return ["" for _ in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """The shifted samples, floats [n, …].

        Args:
            samples: floats [n, …]; may be changed in place.
            drawn: what :meth:`draw` returned for the client of each sample, [n, …].
            space: shape and scale of the samples.
            rng: random numbers for the change.
        """
        raise not_defined(self, FeatureShift.change, "a feature shift")


@parameters
class Gauss(FeatureShift):
    """Gaussian noise that grows with the client id. Client i has N(0, σ²·i/m), i = 0…m−1, on every pixel or column.

    Li, Diao, Chen, He 2021 (NIID-Bench), arXiv:2102.02079.
    """

    images_only: ClassVar[bool] = False

    sigma: Annotated[float, Ge(0)] = 0.1
    """Standard deviation σ; 1 is the range of the pixels of the data set or, for tables, the standard deviation of a column."""

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """Standard deviations, [n]."""
        return self.sigma * np.sqrt(clients / space.num_clients)

    def words(self, drawn: Array) -> list[str]:
        """The standard deviation."""
        return [f"σ {sigma:.3f}" for sigma in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """Samples plus noise."""
        dtype = np.float32 if samples.dtype == np.float32 else np.float64
        noise: Array = rng.standard_normal(samples.shape, dtype=dtype)
        noise *= (_per_sample(drawn, samples) * space.unit).astype(dtype)
        noise += samples
        return noise


@parameters
class Rotate(FeatureShift):
    """Images rotated by 0°, 90°, 180° or 270°. Four groups of clients, of equal size and drawn at random, have one angle each."""

    def check(self, space: Space) -> None:
        """Check that samples are square images."""
        super().check(space)
        height, width = space.shape[1:]
        if height != width:
            raise UsageError(
                f"federation.feature_shift: Rotate turns by 90°, so images must be square, not {height}×{width}"
            )

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """Quarter turns counter-clockwise, [n]."""
        return rng.permutation(len(clients)) % 4

    def words(self, drawn: Array) -> list[str]:
        """The angle."""
        return [f"{90 * turns}°" for turns in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """Rotate every sample by its client's angle."""
        for turns in (1, 2, 3):
            mask = drawn == turns
            samples[mask] = np.rot90(samples[mask], turns, axes=(2, 3))
        return samples


@parameters
class BrightnessContrast(FeatureShift):
    """Another brightness and contrast for each client. The images of a client are multiplied by b, then scaled around their mean by
    c.

    b, c ~ U(low, high), independent; x' = c·(b·x − μ) + μ with μ the mean of b·x over the image.
    """

    low: Annotated[float, Ge(0)] = 0.5
    """Smallest factor."""
    high: Annotated[float, Gt(0)] = 1.5
    """Largest factor."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise UsageError(f"federation.feature_shift.low = {self.low:g}: must be at most high = {self.high:g}")

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """b and c, [n, 2]."""
        return rng.uniform(self.low, self.high, (len(clients), 2))

    def words(self, drawn: Array) -> list[str]:
        """Brightness and contrast."""
        return [f"×{brightness:.2f}, ×{contrast:.2f}" for brightness, contrast in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """c·(b·x − μ) + μ."""
        brightness, contrast = (_per_sample(factor, samples).astype(samples.dtype) for factor in drawn.T)
        samples *= brightness
        mean = samples.mean(axis=(1, 2, 3), keepdims=True)
        samples -= mean
        samples *= contrast
        samples += mean
        return samples


@parameters
class DeadPixels(FeatureShift):
    """Dead pixels, drawn for each client. In all its images and channels, round(share·H·W) pixels are 0."""

    share: Annotated[float, Ge(0), Le(1)] = 0.1
    """Share of dead pixels."""

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """True for dead pixels, [n, H, W]."""
        height, width = space.shape[1:]
        num_dead = round(self.share * height * width)
        flat = np.arange(height * width) < num_dead
        return rng.permuted(np.tile(flat, (len(clients), 1)), axis=1).reshape(-1, height, width)

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """Set dead pixels to 0."""
        samples *= ~drawn[:, None]
        return samples


def in_words(rule: FeatureShift | NoFeatureShift, space: Space, *, seed: int) -> list[str]:
    """The random parameters of each client under ``rule`` as text, [m]; an empty list if there is nothing to show."""
    if isinstance(rule, NoFeatureShift):
        return []
    words: list[str] = []
    for first in range(0, space.num_clients, CLIENTS_AT_ONCE):
        clients = np.arange(first, min(first + CLIENTS_AT_ONCE, space.num_clients))
        words += _checked_words(rule, _drawn(rule, clients, space, seed))
    return words if any(words) else []


def shift_features(
    rule: FeatureShift, features: Array, offsets: Indices, space: Space, *, seed: int, purpose: str
) -> None:
    """Shift packed samples in place.

    Args:
        rule: the feature shift.
        features: samples sorted by client, uint8 or floats [N, …]; writable.
        offsets: client i's samples are ``features[offsets[i]:offsets[i + 1]]``, int64 [m + 1].
        space: shape and scale of the samples.
        seed: the experiment's seed.
        purpose: ``"train"`` or ``"test"``; both have the same draws per client, but different noise.

    Raises:
        UsageError: the rule does not suit these samples.
    """
    rule.check(space)
    dtype = np.float32 if features.dtype == np.uint8 else features.dtype
    for first in range(0, len(offsets) - 1, CLIENTS_AT_ONCE):
        clients = np.arange(first, min(first + CLIENTS_AT_ONCE, len(offsets) - 1))
        begin, end = int(offsets[clients[0]]), int(offsets[clients[-1] + 1])
        if begin == end:
            continue
        drawn = _drawn(rule, clients, space, seed)
        rng = random_streams.rng(seed, f"feature-shift-{purpose}", client=first)
        owner = np.repeat(clients - first, np.diff(offsets[first : clients[-1] + 2]))
        for piece in _pieces(begin, end, int(np.prod(space.shape))):
            rows = drawn[owner[piece.start - begin : piece.stop - begin]]
            samples = features[piece].astype(dtype)
            with warning_of_draws("federation.feature_shift", rule):
                changed = rule.change(samples, rows, space, rng)
            if is_own(rule):
                changed = _checked_samples(rule, changed, features[piece])
            if features.dtype == np.uint8:
                changed = np.clip(np.rint(changed, out=changed), 0, 255, out=changed)
            features[piece] = changed


def shift_test(rule: FeatureShift, features: Array, num_samples: Indices, space: Space, *, seed: int) -> None:
    """Shift test samples in place, each as if it belonged to a client drawn with probability N_i/N."""
    owners = random_streams.rng(seed, "feature-shift-owners").choice(
        space.num_clients, len(features), p=num_samples / num_samples.sum()
    )
    order = np.argsort(owners, kind="stable")
    packed = features[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=space.num_clients))])
    shift_features(rule, packed, offsets, space, seed=seed, purpose="test")
    features[order] = packed


def _drawn(rule: FeatureShift, clients: Indices, space: Space, seed: int) -> Array:
    """What the rule draws for these clients, of which the first is the first of those that share a generator.

    Raises:
        UsageError: a user's own rule returned something else than an array with one entry for each client.
    """
    own = clients.copy() if is_own(rule) else clients
    with warning_of_draws("federation.feature_shift", rule):
        drawn: object = rule.draw(own, space, random_streams.rng(seed, "feature-shift", client=int(clients[0])))
    if tuple(getattr(drawn, "shape", ()))[:1] != clients.shape:
        given = f"{drawn.dtype} {list(drawn.shape)}" if isinstance(drawn, np.ndarray) else type(drawn).__name__
        raise UsageError(
            f"federation.feature_shift: {type(rule).__name__}.draw returned {given}; it must return an array with one entry for each "
            f"client, [{len(clients)}, …]"
        )
    return cast(Array, drawn)


def _checked_words(rule: FeatureShift, drawn: Array) -> list[str]:
    """What the rule says about clients with these random parameters; a user's own rule can return anything."""
    words: object = rule.words(drawn)
    if isinstance(words, list) and len(words) == len(drawn) and all(isinstance(each, str) for each in words):
        return words
    raise UsageError(
        f"federation.feature_shift: {type(rule).__name__}.words returned {shown(words)}; it must return a list of one text for each "
        f"of {len(drawn)} clients, which may be empty"
    )


def _checked_samples(rule: FeatureShift, changed: object, before: Array) -> Array:
    """The samples that a user's own rule returned, as an array that may be changed.

    Raises:
        UsageError: they do not have the shape of those before, or are not finite where those were.
    """
    where = f"federation.feature_shift: {type(rule).__name__}.change returned"
    samples = np.asarray(changed)
    if samples.shape != before.shape or samples.dtype.kind not in "biuf":
        given = shown(changed) if samples.dtype.kind == "O" else f"{samples.dtype} {list(samples.shape)}"
        raise UsageError(f"{where} {given}; it must return the shifted samples, floats {list(before.shape)}")
    if not np.isfinite(samples).all() and np.isfinite(before).all():
        raise UsageError(f"{where} samples that are not finite; divide by no 0, and take no logarithm of 0")
    return samples if samples.dtype.kind == "f" else samples.astype(np.float64)


def _pieces(begin: int, end: int, size: int) -> Iterator[slice]:
    step = max(1, VALUES_AT_ONCE // size)
    for start in range(begin, end, step):
        yield slice(start, min(start + step, end))


def _per_sample(values: Array, samples: Array) -> Array:
    """One number per sample, in a shape that broadcasts over the axes of a sample."""
    return values.reshape(-1, *[1] * (samples.ndim - 1))
