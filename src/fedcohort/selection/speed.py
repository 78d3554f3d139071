"""How long clients need: measured where they took part; before that as they say themselves, or in proportion to their samples."""

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection.inputs import Round
from fedcohort.selection.questions import Speed

__all__ = ["ask_speed", "by_size", "nobody_said", "times"]


def nobody_said(num_clients: int) -> Values:
    """Nobody has said anything yet: computing and sending times, float64 [m, 2], NaN."""
    return np.full((num_clients, 2), np.nan, order="F")


def ask_speed(round: Round, said: Values, clients: Indices) -> None:
    """Ask those of ``clients`` of whom nothing is known, once; their answers go into ``said``."""
    silent = np.isnan(said[:, 0]) & np.isnan(round.durations)
    new = clients[silent[clients]] if silent.any() else clients[:0]
    if len(new):
        answers = round.ask(Speed(), new)
        fine = (np.isfinite(answers) & (answers >= 0)).all(axis=1)
        said[new[fine]] = answers[fine]


def times(round: Round, said: Values) -> Values:
    """The time of every client for nominal work, float64 [m]: as measured, else as said; NaN where nothing is known."""
    seconds: Values = said[:, 0] + said[:, 1]
    measured = np.flatnonzero(np.isfinite(round.durations))
    seconds[measured] = round.durations[measured]
    return seconds


def by_size(round: Round, num_samples: Indices) -> Values:
    """The time of every available client: as measured, else ∝ N_i on the scale (median of T/N) of the clients that were measured."""
    known = np.isfinite(round.durations)
    per_sample = round.durations[known] / np.maximum(num_samples[known], 1)
    scale = np.median(per_sample) if known.any() else 1.0
    i = round.available
    seconds: Values = np.where(known[i], round.durations[i], scale * num_samples[i])
    return np.where(seconds > 0, seconds, 1e-12)
