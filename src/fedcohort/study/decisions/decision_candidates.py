"""The candidates of a recorded decision, and their scores and outcomes in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedcohort.core.words.formatted_values import UNTRIED, count, counted, in_words, number, weight_percent
from fedcohort.federation.data.array_checks import brief
from fedcohort.record import CLIENT_COLUMNS

__all__ = [
    "Candidate",
    "Tie",
    "client_in_words",
    "outcome_in_words",
    "score_in_words",
    "tie_in_words",
    "tie_of",
    "time_in_words",
]


@dataclass(frozen=True)
class Candidate:
    """A candidate of the decision, or a client that was selected without being one.

    Attributes:
        client: id.
        selected: whether it was selected.
        score: its score; NaN if it has none.
        rank: rank by score among the candidates, 1 for the highest, the mean rank if scores are equal; NaN without a score.
        terms: terms of the score.
        status: what happened to it: admitted, declined, failed, late or diverged; empty if it was not selected.
        detail: the reason, if there is one.
        outcome: for selected clients: samples, steps, simulated time, weight, loss, accuracy, and further numbers that it reported.
        name: its name in the data; empty if the data do not name it.
    """

    client: int
    selected: bool
    score: float
    rank: float
    terms: Mapping[str, float]
    status: str = ""
    detail: str = ""
    outcome: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    @property
    def called(self) -> str:
        """Its id, and its name if it has one."""
        return client_in_words(self.client, self.name)

    @property
    def untried(self) -> bool:
        """Whether its score only says that it was never selected before."""
        return UNTRIED <= self.terms.get("bonus", 0.0) < math.inf


def client_in_words(client: int, name: str) -> str:
    """The id of a client, and its name if it has one.

    >>> client_in_words(3, "st-mary"), client_in_words(3, "")
    ('3 (st-mary)', '3')
    """
    return f"{client} ({brief(name, 40)})" if name else str(client)


@dataclass(frozen=True)
class Tie:
    """Clients with the same score, of which only some were selected. Ties are random.

    Attributes:
        score: their score.
        selected: those that were selected.
        not_selected: those that were not.
    """

    score: float
    selected: Sequence[int]
    not_selected: Sequence[int]


def tie_of(candidates: Sequence[Candidate]) -> Tie | None:
    """The clients between which scores do not decide: the lowest score of a selected client is the highest of one that was not.

    None if there are none, and if clients were not selected in the order of their scores.
    """
    selected = {each.client: each.score for each in candidates if each.selected and not math.isnan(each.score)}
    others = {each.client: each.score for each in candidates if not each.selected and not math.isnan(each.score)}
    if not selected or not others or min(selected.values()) != max(others.values()):
        return None
    score = min(selected.values())
    return Tie(
        score,
        *([client for client, own in sorted(clients.items()) if own == score] for clients in (selected, others)),
    )


LISTED = 6
"""Largest number of clients that a sentence lists."""


def tie_in_words(tie: Tie, candidates: Sequence[Candidate], *, cut: bool) -> str:
    """A sentence about a tie of some of the candidates; ``cut`` says that the record has not all of them."""
    if len(tie.selected) + len(tie.not_selected) == len(candidates) and not cut:
        return "All candidates have the same score, so that it does not decide between them."
    untried = any(each.client == tie.selected[0] and each.untried for each in candidates)
    which = "untried clients" if untried else f"clients with the same score, {number(tie.score)}"
    verbs = [
        "was" if len(clients) == 1 and not more else "were"
        for clients, more in ((tie.selected, False), (tie.not_selected, cut))
    ]
    called = {each.client: each.called for each in candidates}
    selected, others = (
        _first([called[client] for client in clients], more=more)
        for clients, more in ((tie.selected, False), (tie.not_selected, cut))
    )
    return f"Chance decided between {which}: {selected} {verbs[0]} selected, {others} {verbs[1]} not."


def _first(clients: Sequence[str], *, more: bool) -> str:
    """The first of some clients, and how many others there are; ``more`` says that there can be still more."""
    left = len(clients) - LISTED
    others = ["others"] if more else [f"{count(left)} other{'s' * (left > 1)}"] if left > 0 else []
    return in_words([*clients[:LISTED], *others])


def time_in_words(value: float, clock: str) -> str:
    """A duration with its unit."""
    return f"{number(value)} s of wall time" if clock == "wall" else f"{number(value)} of simulated time"


def score_in_words(candidate: Candidate, candidates: Sequence[Candidate], *, random: bool = False) -> str:
    """The score and its terms, written as a formula if the scores are a sum, product or quotient of their first terms.

    Args:
        candidate: the candidate.
        candidates: all candidates of the decision, of which it is one.
        random: whether clients were selected at random in this round, whatever their scores.
    """
    if candidate.untried:
        untried = "it was untried: clients that were never selected have no score yet"
        return f"{untried}; in this round, clients were selected at random" if random else f"{untried}, and come first"
    terms = {name: value for name, value in candidate.terms.items() if not math.isnan(value)}
    if math.isnan(candidate.score):
        return "it has no score" + (f" ({_list(terms)})" if terms else "")
    score = f"its score is {number(candidate.score)}"
    if not terms:
        return score
    if len(terms) == 1 and _gives(candidates, [*terms], lambda values: values[0]):
        return f"{score}, its {next(iter(terms))}"
    used, formula = 0, ""
    if np.isfinite([candidate.score, *terms.values()]).all():
        finite = [one for one in candidates if math.isfinite(one.score)]
        used, formula = _formula([*terms.items()], finite)
    rest = _list(dict([*terms.items()][used:]))
    return score + (f" = {formula}" if formula else "") + (f" ({rest})" if rest else "")


def _formula(terms: Sequence[tuple[str, float]], candidates: Sequence[Candidate]) -> tuple[int, str]:
    """A formula for scores from the first of these terms, and how many terms it uses; 0 if no simple formula fits."""
    names, words = [name for name, _ in terms], [f"{name} {number(value)}" for name, value in terms]
    for n in range(2, len(names) + 1):
        if _gives(candidates, names[:n], sum):
            return n, " + ".join(words[:n])
    if len(names) > 2 and _gives(candidates, names[:3], lambda values: (values[0] + values[1]) * values[2]):
        return 3, f"({words[0]} + {words[1]}) × {words[2]}"
    if len(names) > 1 and _gives(candidates, names, math.prod):
        return len(names), " × ".join(words)
    if len(names) == 2 and _gives(candidates, names, lambda values: values[0] / values[1] if values[1] else math.nan):
        return 2, f"{words[0]} / {words[1]}"
    return 0, ""


def _gives(candidates: Sequence[Candidate], names: Sequence[str], formula: Callable[[Sequence[float]], float]) -> bool:
    """Whether a formula of these terms gives the scores of all candidates that have them.

    These scores must not be all equal: the terms of a single score, such as 0 and 0, can fit a formula by chance.
    """
    known = [(one.score, [one.terms.get(name, math.nan) for name in names]) for one in candidates]
    known = [(score, values) for score, values in known if not np.isnan([score, *values]).any()]
    if len({score for score, _ in known}) < 2:
        return False
    made = [formula(values) for _, values in known]
    return bool(np.isclose(made, [score for score, _ in known], rtol=1e-9, atol=1e-12).all())


def _list(values: Mapping[str, float]) -> str:
    """Names and values, separated by commas."""
    return ", ".join(f"{name} {number(value)}" for name, value in values.items())


def outcome_in_words(candidate: Candidate, clock: str) -> str:
    """What happened to a selected client, in words."""
    outcome = candidate.outcome
    steps, samples = outcome.get("steps", 0), counted(outcome.get("num_samples", 0), "sample")
    worked = f"It trained for {counted(steps, 'step')} on {samples}" if steps else f"It trained on {samples}"
    if "duration" in outcome:
        worked += f" and needed {time_in_words(outcome['duration'], clock)}"
    weight = f" with {weight_percent(outcome['weight'])}% of the weight" if "weight" in outcome else ""
    end = {
        "admitted": f"its update entered the model{weight}",
        "declined": f"its update did not enter the model: {candidate.detail or 'it was declined'}",
        "late": f"it was late: {candidate.detail}",
        "diverged": candidate.detail,
    }.get(candidate.status)
    more = {name: value for name, value in outcome.items() if name not in CLIENT_COLUMNS}
    reported = f" It reported {_list(more)}." if more else ""
    if end is None:
        return f"It failed: {candidate.detail}."
    return f"{worked}; {end}.{reported}"
