"""The time that each client needs: measured if possible, otherwise as the client stated, or in proportion to its samples."""

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection.questions import Speed
from fedcohort.selection.strategy_inputs import Round

__all__ = ["SENDING_SHARE", "ask_speed", "by_size", "computing_and_sending", "no_stated_times", "times"]

SENDING_SHARE = 0.2
"""Share of a client's time that counts as communication if only the whole time is known."""


def no_stated_times(num_clients: int) -> Values:
    """Computing and sending times before any client has stated them: float64 [m, 2], all NaN.

    Strategies keep these times in the attribute ``said``, because saved states contain them under this name.
    """
    return np.full((num_clients, 2), np.nan, order="F")


def ask_speed(round: Round, stated: Values, clients: Indices) -> None:
    """Ask those of ``clients`` without a stated or measured time for their speed, and write valid answers to ``stated`` [m, 2]."""
    unknown = np.isnan(stated[:, 0]) & np.isnan(round.durations)
    asked = clients[unknown[clients]] if unknown.any() else clients[:0]
    if len(asked):
        answers = round.ask(Speed(), asked)
        with np.errstate(over="ignore", invalid="ignore"):  # clients can state times that cannot be added up
            valid = (answers >= 0).all(axis=1) & np.isfinite(answers.sum(axis=1))  # not NaN
        stated[asked[valid]] = answers[valid]


def times(round: Round, stated: Values) -> Values:
    """The time of every client for nominal work, float64 [m]: measured if possible, otherwise ``stated`` [m, 2]; NaN if unknown."""
    seconds: Values = stated[:, 0] + stated[:, 1]
    measured = np.flatnonzero(np.isfinite(round.durations))
    seconds[measured] = round.durations[measured]
    return seconds


def computing_and_sending(round: Round, stated: Values, clients: Indices) -> tuple[Values, Values]:
    """The time for nominal work and the time for communication of each of ``clients``, float64 [n] each; NaN if unknown.

    These are the measured times, otherwise those in ``stated`` [m, 2], otherwise shares of the measured whole time.
    """
    parts = np.stack([round.compute_times[clients], round.upload_times[clients]], axis=1)
    whole = round.durations[clients, None] * (1 - SENDING_SHARE, SENDING_SHARE)
    for known in (stated[clients], whole):
        parts = np.where(np.isfinite(parts).all(axis=1, keepdims=True), parts, known)
    computing, sending = parts.T
    return computing, sending


def by_size(round: Round, num_samples: Indices) -> Values:
    """The time of every available client, float64 [n], always positive.

    This is the measured time if there is one, and otherwise N_i times the median of T/N over the measured clients.
    """
    known = np.isfinite(round.durations)
    per_sample = round.durations[known] / np.maximum(num_samples[known], 1)
    scale = np.median(per_sample) if known.any() else 1.0
    i = round.available
    seconds: Values = np.where(known[i], round.durations[i], scale * num_samples[i])
    return np.where(seconds > 0, seconds, 1e-12)
