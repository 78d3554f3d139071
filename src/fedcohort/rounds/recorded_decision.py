"""The part of a decision that is recorded: the selected clients first, then the candidates with the best scores."""

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values, nth_highest
from fedcohort.record import KEPT, Reasons
from fedcohort.selection import Cohort, Why

__all__ = ["decisions"]


def decisions(cohort: Cohort) -> Reasons:
    """The recorded candidates of a decision: the selected first, then the best scores, at most :data:`KEPT`.

    Only the recorded candidates are sorted, so that a decision among a million clients is fast.
    """
    why = cohort.why
    if why is None:
        no_candidates: Indices = np.zeros(0, dtype=np.int64)
        return Reasons(no_candidates, [], np.zeros(0), {}, cohort.clients[:KEPT].copy())
    ids = np.asarray(why.candidates, dtype=np.int64)
    by_id = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, cohort.clients, sorter=by_id)
    place = np.minimum(place, max(len(ids) - 1, 0)) if by_id is None else by_id[np.minimum(place, len(ids) - 1)]
    candidate = ids[place] == cohort.clients if len(ids) else np.zeros(len(cohort), dtype=bool)
    inside = place[candidate]
    outside = np.ones(len(ids), dtype=bool)
    outside[inside] = False
    if by_id is None and len(ids) <= KEPT and _are_equal(why.scores):
        others = np.flatnonzero(outside)
    else:
        best = _best(why, KEPT + len(inside), by_id)  # enough others, even if the selected are the best
        others = best[outside[best]][: max(0, KEPT - len(inside))]
    order = np.concatenate([inside[_order(why, inside)][:KEPT], others])
    # a candidate that is listed twice can be among the others as well
    listed_again = [False] * len(others) if by_id is None else np.isin(ids[others], cohort.clients).tolist()
    chosen = [True] * (len(order) - len(others)) + listed_again
    terms = {name: np.asarray(values)[order] for name, values in why.terms.items()}
    return Reasons(ids[order], chosen, why.scores[order], terms, cohort.clients[~candidate][:KEPT])


def _are_equal(scores: Values) -> bool:
    """Whether all scores are the same number; they are then in the order of the ids."""
    return len(scores) > 0 and bool((scores == scores[0]).all())


def _order(why: Why, among: Indices) -> Indices:
    """Sort these positions by score, the highest first, and by id if scores are equal. NaN scores sort last."""
    scores = why.scores[among]
    return np.lexsort((why.candidates[among], -np.where(np.isnan(scores), -np.inf, scores)))


def _best(why: Why, count: int, by_id: Indices | None) -> Indices:
    """The first ``count`` positions in the order of :func:`_order`, without sorting all positions."""
    known = why.scores > -np.inf  # false for NaN and −∞
    scored = np.count_nonzero(known)
    if scored <= count:  # fill up with candidates without a score, by id
        own = np.flatnonzero(known)
        return np.concatenate([own[_order(why, own)], _lowest(~known, by_id, count - len(own))])
    edge = nth_highest(why.scores if scored == len(known) else why.scores[known], count)
    above = np.flatnonzero(why.scores > edge)
    best = np.concatenate([above, _lowest(why.scores == edge, by_id, count - len(above))])
    return best[_order(why, best)]


def _lowest(among: NDArray[np.bool_], by_id: Indices | None, count: int) -> Indices:
    """The ``count`` marked positions with the lowest ids; ``by_id`` sorts all positions by id; None if they are sorted already."""
    if by_id is not None:
        return by_id[among[by_id]][:count]
    length = max(2 * count, 2**12)  # search a growing part from the start: marked positions are usually found early
    while length < len(among) and np.count_nonzero(among[:length]) < count:
        length *= 8
    return np.flatnonzero(among[:length])[:count]
