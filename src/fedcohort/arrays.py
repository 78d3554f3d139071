"""Names for the two kinds of numpy arrays that pass between rooms."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Indices", "Values"]

Indices = NDArray[np.int64]
"""Client ids, counts, offsets."""
Values = NDArray[np.float64]
"""Scores, losses, seconds."""
