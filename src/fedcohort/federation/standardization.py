"""The mean and the standard deviation of features, with which models see them standardized."""

import numpy as np

__all__ = ["shift_and_scale"]


def shift_and_scale(features: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale for mean 0 and standard deviation 1 on the training set, per channel or column; scale 1 for constant ones. Shift
    0 and scale 1 without ``standardise``."""
    shape = (features.shape[1], 1, 1) if features.ndim == 4 else (features.shape[1],)
    if not standardise:
        return np.zeros(shape), np.ones(shape)
    if features.ndim == 4 and features.dtype == np.uint8:
        counts = np.stack([_gray_levels(features, channel) for channel in range(features.shape[1])])
        levels = np.arange(256.0)
        total = counts.sum(axis=1)
        mean = counts @ levels / total
        deviation = np.sqrt(np.maximum(counts @ levels**2 / total - mean**2, 0))
    else:
        axes = (0, 2, 3) if features.ndim == 4 else (0,)
        mean, deviation = features.mean(axis=axes, dtype=np.float64), features.std(axis=axes, dtype=np.float64)
    scale = 1.0 / np.where(deviation > 1e-12, deviation, 1.0)
    return mean.reshape(shape), scale.reshape(shape)


def _gray_levels(features: np.ndarray, channel: int) -> np.ndarray:
    """Number of pixels with each of the 256 levels, int64 [256]; counted in blocks of images to avoid a second copy."""
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(features), 4096):
        counts += np.bincount(features[start : start + 4096, channel].reshape(-1), minlength=256)
    return counts
