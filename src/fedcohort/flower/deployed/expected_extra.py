"""What an algorithm sends beside the model: found by a trial training on a few of the server's samples, to check what sites send."""

import dataclasses
from contextlib import closing

import numpy as np

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.flower.deployed.reply_checks import Layout, layout_of
from fedcohort.models import Model
from fedcohort.selection import Cohort

__all__ = ["extra_layout"]

SAMPLES, HELD_OUT = 6, 2
"""Number of samples of the trial, and how many of them are held out."""


def extra_layout(
    federation: Federation, model: Model, training: Training, algorithm: Algorithm, seed: int
) -> Layout | None:
    """The layout of the extra tensors of an update; None if the trial fails, for instance because the server has no samples."""
    held = max((federation.validation, federation.test), key=len)
    if len(held) <= HELD_OUT:
        return None
    some = held[:SAMPLES]
    client = dataclasses.replace(
        federation, train=some, offsets=np.array([0, len(some)]), held=np.array([HELD_OUT]), noise=None
    )
    try:
        with closing(LocalEngine(client, model, training, algorithm, seed, 1)) as engine:
            cohort = Cohort(np.array([0]), epochs=np.array([1]))
            [update] = engine.train(engine.initial_model(), 1, cohort, algorithm)
    except Exception:  # without the layout that the trial gives, extra tensors are not checked
        return None
    return None if update.failure is not None else layout_of(update.extra)
