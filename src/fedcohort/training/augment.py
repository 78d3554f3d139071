"""Training images changed at random, anew in every pass: mirrored, or mirrored and shifted by up to four pixels.

What happens to a sample depends on the experiment's seed, the round, the client, the pass and the sample's position, not on its batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.core.errors import UsageError

__all__ = ["FAR", "Changes", "check_images"]

FAR = 4
"""Pixels by which an image is shifted at most, in each direction; what comes in is the data's mean."""


def check_images(augment: str, shape: tuple[int, ...]) -> None:
    """Refuse what is no image.

    Raises:
        UsageError: samples of this shape cannot be mirrored.
    """
    if augment != "none" and len(shape) != 3:
        raise UsageError(f"training.augment = {augment!r}: needs images, the samples are {list(shape)}; use 'none'")


@dataclass(frozen=True)
class Changes:
    """What happens to each sample of a client in one pass.

    Attributes:
        mirrored: bool [n].
        down, right: pixels of the shift, int64 [n]; None where nothing is shifted.
    """

    mirrored: Tensor
    down: Tensor | None = None
    right: Tensor | None = None

    @classmethod
    def draw(cls, augment: str, samples: int, draws: np.random.Generator, device: torch.device) -> "Changes":
        """The next pass over ``samples`` samples, for ``training.augment`` other than none."""
        mirrored = torch.from_numpy(draws.random(samples) < 0.5).to(device)
        if augment == "flip":
            return cls(mirrored)
        down, right = torch.from_numpy(draws.integers(-FAR, FAR + 1, (2, samples))).to(device)
        return cls(mirrored, down, right)

    def __call__(self, images: Tensor, index: Tensor) -> Tensor:
        """The samples ``index`` of the client, given as the model sees them [b, C, H, W], changed."""
        mirrored = self.mirrored[index][:, None, None, None]
        changed = torch.where(mirrored, images.flip(3), images)
        if self.down is None or self.right is None:
            return changed
        b, _, height, width = images.shape
        padded = functional.pad(changed, (FAR, FAR, FAR, FAR)).permute(0, 2, 3, 1)
        rows = torch.arange(height, device=images.device) + FAR - self.down[index][:, None]
        columns = torch.arange(width, device=images.device) + FAR - self.right[index][:, None]
        who = torch.arange(b, device=images.device)[:, None, None]
        return padded[who, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
