"""Clients whose pixels differ: noise, turned cameras, other light, dead pixels.

A rule is a ``@parameters`` class that extends :class:`FeatureShift`: what it draws for each client, and how that changes samples.
It is applied once, in place, to the clients' packed samples (training part and held-out part alike), a block at a time, so that
no second copy of the images is made and no batch pays for it. uint8 images stay uint8: values are rounded and clipped to 0…255, as
a sensor saturates (noise on a black background therefore shows its upper half only); floats are not clipped. The server's sets
stay as they are, and so do shift and scale of the standardisation, which come from the data set as it is loaded.

With ``matched_test`` the server's test set is changed as well: every test sample as a client drawn with probability N_i/N would
have it, so that the test measures what clients meet. The validation set is the server's own in any case.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from fedcohort.core import streams
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters

__all__ = [
    "BrightnessContrast", "DeadPixels", "FeatureShift", "Gauss", "NoFeatureShift", "Rotate", "Space", "in_words",
    "shift_features", "shift_test",
]  # fmt: skip

Array = NDArray[Any]

CLIENTS_AT_ONCE = 1024
"""Clients that share one generator; part of what decides the draws."""
VALUES_AT_ONCE = 2**22
"""Pixels that are changed at once."""


@dataclass(frozen=True, eq=False)
class Space:
    """Where samples live.

    Attributes:
        shape: of one sample, (C, H, W) or (d,).
        unit: what counts as 1: for images the span of the pixels of the data set (largest minus smallest), for tables the standard
            deviation of each column, float64 [] or [d].
        num_clients: m.
    """

    shape: tuple[int, ...]
    unit: Values
    num_clients: int


@parameters
class NoFeatureShift:
    """All samples as they are."""


@parameters
class FeatureShift:
    """What every rule has in common; a rule adds :meth:`draw` and :meth:`change`."""

    images_only: ClassVar[bool] = True

    matched_test: bool = False
    """Change the server's test set, too: every sample as a client drawn by its number of samples would have it."""

    def check(self, space: Space) -> None:
        """Say what a rule cannot do, as a :class:`UsageError`."""
        if self.images_only and len(space.shape) != 3:
            raise UsageError(
                f"federation.feature_shift: {type(self).__name__} is for images, but a sample has {space.shape[0]} columns; "
                "use gauss or none"
            )

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """What is particular to each of these clients, [len(clients), …]."""
        raise NotImplementedError

    def words(self, drawn: Array) -> list[str]:
        """What was drawn for each client, for people; empty where there is nothing to tell clients apart by."""
        return ["" for _ in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """Changed samples, [n, …]; ``drawn`` has a row for each. Floats; ``samples`` may be changed in place."""
        raise NotImplementedError


@parameters
class Gauss(FeatureShift):
    """More and more noise: client i gets N(0, σ²·i/m), i = 0…m−1, on every pixel or column.

    Li, Diao, Chen, He 2021 (NIID-Bench), arXiv:2102.02079.
    """

    images_only: ClassVar[bool] = False

    sigma: Annotated[float, Ge(0)] = 0.1
    """σ: 1 is the span of the pixels of the data set; for tables, the standard deviation of a column."""

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """Standard deviations."""
        return self.sigma * np.sqrt(clients / space.num_clients)

    def words(self, drawn: Array) -> list[str]:
        """The standard deviation."""
        return [f"σ {sigma:.3f}" for sigma in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """x + noise."""
        kind = np.float32 if samples.dtype == np.float32 else np.float64
        noise: Array = rng.standard_normal(samples.shape, dtype=kind)
        noise *= (_per_sample(drawn, samples) * space.unit).astype(kind)
        noise += samples
        return noise


@parameters
class Rotate(FeatureShift):
    """Turned cameras: clients in four groups of equal size, drawn at random, see everything at 0°, 90°, 180° or 270°."""

    def check(self, space: Space) -> None:
        """Images, and square ones."""
        super().check(space)
        height, width = space.shape[1:]
        if height != width:
            raise UsageError(
                f"federation.feature_shift: Rotate turns by 90°, so images must be square, not {height}×{width}"
            )

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """Quarter turns, counter-clockwise."""
        return rng.permutation(len(clients)) % 4

    def words(self, drawn: Array) -> list[str]:
        """The angle."""
        return [f"{90 * turns}°" for turns in drawn]

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """Every sample by its client's angle."""
        for turns in (1, 2, 3):
            of = drawn == turns
            samples[of] = np.rot90(samples[of], turns, axes=(2, 3))
        return samples


@parameters
class BrightnessContrast(FeatureShift):
    """Other light: each client's images times its brightness b, then stretched around each image's mean by its contrast c.

    b, c ~ U(low, high), independent: x' = c·(b·x − μ) + μ with μ the mean of b·x over the image.
    """

    low: Annotated[float, Ge(0)] = 0.5
    """Smallest factor."""
    high: Annotated[float, Gt(0)] = 1.5
    """Largest factor."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise UsageError(f"federation.feature_shift.low = {self.low:g}: is above high = {self.high:g}")

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
    """Broken sensors: the same round(share·H·W) pixels of all images of a client are 0, in every channel; others for every client."""

    share: Annotated[float, Ge(0), Le(1)] = 0.1
    """Share of dead pixels."""

    def draw(self, clients: Indices, space: Space, rng: np.random.Generator) -> Array:
        """True where the pixel is dead, [n, H, W]."""
        height, width = space.shape[1:]
        dead = round(self.share * height * width)
        flat = np.arange(height * width) < dead
        return rng.permuted(np.tile(flat, (len(clients), 1)), axis=1).reshape(-1, height, width)

    def change(self, samples: Array, drawn: Array, space: Space, rng: np.random.Generator) -> Array:
        """0 where the pixel is dead."""
        samples *= ~drawn[:, None]
        return samples


def in_words(rule: FeatureShift | NoFeatureShift, space: Space, *, seed: int) -> list[str]:
    """How each client's samples differ under ``rule``, [m]; no words without a shift."""
    if isinstance(rule, NoFeatureShift):
        return []
    found: list[str] = []
    for first in range(0, space.num_clients, CLIENTS_AT_ONCE):
        clients = np.arange(first, min(first + CLIENTS_AT_ONCE, space.num_clients))
        found += rule.words(rule.draw(clients, space, streams.rng(seed, "feature-shift", client=first)))
    return found if any(found) else []


def shift_features(
    rule: FeatureShift, features: Array, offsets: Indices, space: Space, *, seed: int, purpose: str
) -> None:
    """Change packed samples in place.

    Args:
        rule: what happens to them.
        features: samples sorted by client, uint8 or floats [N, …]; writable.
        offsets: client i's are ``features[offsets[i]:offsets[i + 1]]``, int64 [m + 1].
        space: what they are.
        seed: the experiment's.
        purpose: ``"train"`` or ``"test"``; clients are the same for both, noise is not.

    Raises:
        UsageError: the rule is not for samples like these.
    """
    rule.check(space)
    work = np.float32 if features.dtype == np.uint8 else features.dtype
    for first in range(0, len(offsets) - 1, CLIENTS_AT_ONCE):
        clients = np.arange(first, min(first + CLIENTS_AT_ONCE, len(offsets) - 1))
        begin, end = int(offsets[clients[0]]), int(offsets[clients[-1] + 1])
        if begin == end:
            continue
        drawn = rule.draw(clients, space, streams.rng(seed, "feature-shift", client=first))
        rng = streams.rng(seed, f"feature-shift-{purpose}", client=first)
        owner = np.repeat(clients - first, np.diff(offsets[first : clients[-1] + 2]))
        for piece in _pieces(begin, end, int(np.prod(space.shape))):
            rows = drawn[owner[piece.start - begin : piece.stop - begin]]
            changed = rule.change(features[piece].astype(work), rows, space, rng)
            if features.dtype == np.uint8:
                changed = np.clip(np.rint(changed, out=changed), 0, 255, out=changed)
            features[piece] = changed


def shift_test(rule: FeatureShift, features: Array, num_samples: Indices, space: Space, *, seed: int) -> None:
    """Change test samples in place, each as a client drawn with probability N_i/N would have it."""
    owners = streams.rng(seed, "feature-shift-owners").choice(
        space.num_clients, len(features), p=num_samples / num_samples.sum()
    )
    order = np.argsort(owners, kind="stable")
    packed = features[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=space.num_clients))])
    shift_features(rule, packed, offsets, space, seed=seed, purpose="test")
    features[order] = packed


def _pieces(begin: int, end: int, size: int) -> Iterator[slice]:
    step = max(1, VALUES_AT_ONCE // size)
    for start in range(begin, end, step):
        yield slice(start, min(start + step, end))


def _per_sample(values: Array, samples: Array) -> Array:
    """One number a sample, in a shape that spreads over the sample's axes."""
    return values.reshape(-1, *[1] * (samples.ndim - 1))
