"""Random changes of training images, drawn anew for every epoch: mirrored, or mirrored and shifted by up to four pixels.

The change of a sample depends on the experiment's seed, the round, the client, the epoch and the sample's position, not on its batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.core.errors import UsageError

__all__ = ["MAX_SHIFT", "Changes", "check_images"]

MAX_SHIFT = 4
"""Maximum shift of an image in each direction, in pixels; pixels from outside the image have the data's mean."""


def check_images(augment: str, shape: tuple[int, ...]) -> None:
    """Refuse to augment samples that are not images.

    Raises:
        UsageError: samples of this shape cannot be mirrored.
    """
    if augment != "none" and len(shape) != 3:
        raise UsageError(
            f"training.augment = {augment!r}: needs images, but the samples have the shape {list(shape)}; use 'none'"
        )


@dataclass(frozen=True)
class Changes:
    """How each sample of a client changes in one epoch.

    Attributes:
        mirrored: which samples are mirrored, bool [n].
        down, right: shift in pixels, int64 [n]; None if samples are not shifted.
    """

    mirrored: Tensor
    down: Tensor | None = None
    right: Tensor | None = None

    @classmethod
    def draw(cls, augment: str, samples: int, draws: np.random.Generator, device: torch.device) -> "Changes":
        """Draw the changes of ``samples`` samples for the next epoch; ``augment`` is ``training.augment``, but not none."""
        mirrored = torch.from_numpy(draws.random(samples) < 0.5).to(device)
        if augment == "flip":
            return cls(mirrored)
        down, right = torch.from_numpy(draws.integers(-MAX_SHIFT, MAX_SHIFT + 1, (2, samples))).to(device)
        return cls(mirrored, down, right)

    def __call__(self, images: Tensor, index: Tensor) -> Tensor:
        """Change standardized images [b, C, H, W], which are the client's samples at positions ``index``."""
        mirrored = self.mirrored[index][:, None, None, None]
        changed = torch.where(mirrored, images.flip(3), images)
        if self.down is None or self.right is None:
            return changed
        b, _, height, width = images.shape
        padded = functional.pad(changed, (MAX_SHIFT, MAX_SHIFT, MAX_SHIFT, MAX_SHIFT)).permute(0, 2, 3, 1)
        rows = torch.arange(height, device=images.device) + MAX_SHIFT - self.down[index][:, None]
        columns = torch.arange(width, device=images.device) + MAX_SHIFT - self.right[index][:, None]
        sample = torch.arange(b, device=images.device)[:, None, None]
        return padded[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
