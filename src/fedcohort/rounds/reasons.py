"""The reasons of a choice that go into the record: the selected clients first, then the candidates with the best scores."""

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, nth_highest
from fedcohort.record import KEPT, Reasons
from fedcohort.selection import Cohort, Why

__all__ = ["decisions"]


def decisions(cohort: Cohort) -> Reasons:
    """The reasons of a choice: the selected first, then the best scored, at most :data:`KEPT`. Of a million, few are looked at."""
    why = cohort.why
    if why is None:
        nobody: Indices = np.zeros(0, dtype=np.int64)
        return Reasons(nobody, [], np.zeros(0), {}, cohort.clients[:KEPT].copy())
    ids = np.asarray(why.candidates, dtype=np.int64)
    by_id = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, cohort.clients, sorter=by_id)
    place = np.minimum(place, max(len(ids) - 1, 0)) if by_id is None else by_id[np.minimum(place, len(ids) - 1)]
    candidate = ids[place] == cohort.clients if len(ids) else np.zeros(len(cohort), dtype=bool)
    inside = place[candidate]
    best = _best(why, KEPT + len(inside), by_id)  # enough of the others, wherever the selected are
    others = best[~np.isin(best, inside)][: max(0, KEPT - len(inside))]
    order = np.concatenate([inside[_order(why, inside)][:KEPT], others])
    # a candidate that was named twice is one of the others, too
    too = [False] * len(others) if by_id is None else np.isin(ids[others], cohort.clients).tolist()
    chosen = [True] * (len(order) - len(others)) + too
    terms = {name: np.asarray(values)[order] for name, values in why.terms.items()}
    return Reasons(ids[order], chosen, why.scores[order], terms, cohort.clients[~candidate][:KEPT])


def _order(why: Why, among: Indices) -> Indices:
    """The best scored of these positions first, the lowest id first where scores are equal; what is no score comes last."""
    scores = why.scores[among]
    return np.lexsort((why.candidates[among], -np.where(np.isnan(scores), -np.inf, scores)))


def _best(why: Why, count: int, by_id: Indices | None) -> Indices:
    """The ``count`` best positions in that order; a million need not be sorted for a thousand."""
    known = why.scores > -np.inf  # NaN and −∞ are no scores
    scored = np.count_nonzero(known)
    if scored <= count:  # the others count by their ids
        own = np.flatnonzero(known)
        return np.concatenate([own[_order(why, own)], _lowest(~known, by_id, count - len(own))])
    edge = nth_highest(why.scores if scored == len(known) else why.scores[known], count)
    above = np.flatnonzero(why.scores > edge)
    best = np.concatenate([above, _lowest(why.scores == edge, by_id, count - len(above))])
    return best[_order(why, best)]


def _lowest(among: NDArray[np.bool_], by_id: Indices | None, count: int) -> Indices:
    """The ``count`` marked positions with the lowest ids; ``by_id`` sorts all positions by id, None if they are in that order."""
    if by_id is not None:
        return by_id[among[by_id]][:count]
    some = max(2 * count, 2**12)
    while some < len(among) and np.count_nonzero(among[:some]) < count:
        some *= 8
    return np.flatnonzero(among[:some])[:count]
