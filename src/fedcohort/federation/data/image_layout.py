"""Images that may have been given with channels last, where channels come first."""

import logging

import numpy as np

__all__ = ["mention_channels_last"]

log = logging.getLogger("fedcohort")

LIKELY = (1, 3, 4)
"""Usual numbers of channels: gray, RGB, and RGB with transparency."""


def mention_channels_last(features: np.ndarray, where: str) -> None:
    """Report square images [N, H, W, C] that were taken for images [N, C, H, W] with many channels, each of them a narrow image.

    Args:
        features: images [N, C, H, W], or a table, about which nothing is said.
        where: name of the data set, for messages.
    """
    if features.ndim != 4:
        return
    _, channels, height, width = features.shape
    if channels == height > max(LIKELY) and width in LIKELY:
        log.warning(
            "%s: images are [N, C, H, W], so these have %d channels of %d×%d; if they are [N, H, W, C], give "
            "features.transpose(0, 3, 1, 2)", where, channels, height, width,
        )  # fmt: skip
