"""Explain the decision of one round in words and numbers.

Everything comes from the record: the candidates with their scores and the terms of the scores, what happened to the selected
clients, what clients were asked, what that cost, and what they disclosed. No data are loaded, and nothing is computed again.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.words.formatted_values import UNTRIED, number
from fedcohort.core.words.report_names import is_random
from fedcohort.record import KEPT, Run
from fedcohort.study.decisions.decision_candidates import (
    Candidate,
    Tie,
    client_in_words,
    outcome_in_words,
    score_in_words,
    tie_in_words,
    tie_of,
    time_in_words,
)
from fedcohort.study.decisions.explained_client import check_client, number_of
from fedcohort.study.recorded_strategy import strategy_in_words

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Asked", "Candidate", "Explanation", "explain"]

WITHOUT_UPDATE = {"diverged": "diverged", "late": "came late", "failed": "failed"}
"""What happened to selected clients from which the server has no finite update, and what it is called."""


@dataclass(frozen=True)
class Asked:
    """One kind of exchange of the round: a question, or the training.

    Attributes:
        kind: name of the question, or ``training``.
        messages: number of messages, down and up.
        bytes_down, bytes_up: payload.
        passes: forward passes over clients' training data.
        discloses: what the server learned about each client; empty without a message.
    """

    kind: str
    messages: int
    bytes_down: int
    bytes_up: int
    passes: float
    discloses: str


@dataclass(frozen=True)
class Explanation:
    """The decision of one round, or its explanation for one client.

    Attributes:
        label: label and seed of the run.
        strategy: the strategy, k in this round, and the parameters that differ from their defaults.
        round, rounds: the round, and the number of rounds.
        note: the kind of decision, and the effects of rules that all strategies share.
        available, selected, trained, admitted: numbers of clients.
        round_time: duration, in the run's time.
        candidates: the selected clients first, then the candidates with the best scores.
        asked: the questions that clients were asked, and the training.
        client: the client to explain; None for the whole round.
        client_name: its name in the data; empty if the data do not name it.
        earlier: earlier rounds in which that client was selected.
        availability_known: whether it is known that the client was available; unknown for a client that was not compared, if the
            availability law is a plug-in.
        clock: ``simulated``, or ``wall`` (seconds) for a run on real machines.
        labels: ``classes``, or ``numbers`` for a regression, in which the accuracy of a client is its score.
        unlisted: selected clients that are not among the candidates, because the record keeps only some of them.
    """

    label: str
    strategy: str
    round: int
    rounds: int
    note: str
    available: int
    selected: int
    trained: int
    admitted: int
    round_time: float
    candidates: Sequence[Candidate]
    asked: Sequence[Asked]
    client: int | None = None
    client_name: str = ""
    earlier: Sequence[int] = ()
    availability_known: bool = True
    clock: str = "simulated"
    labels: str = "classes"
    unlisted: Sequence[Candidate] = ()

    def __repr__(self) -> str:
        """The decision in one line; the fields have everything."""
        about = "" if self.client is None else f", client {client_in_words(self.client, self.client_name)}"
        return (
            f"<Explanation {self.label}, round {self.round:,} of {self.rounds:,}{about}: {self.selected} of {self.available} "
            f"available clients selected by {self.strategy}, {self.admitted} admitted>"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; if the explanation is about one client, only its own row and its own words."""
        values = asdict(self)
        unlisted = values.pop("unlisted")
        if self.client is not None:
            values["candidates"] = [row for row in (*values["candidates"], *unlisted) if row["client"] == self.client]
        return values | {"tie": asdict(self.tie) if self.tie is not None else None, "words": self.words()}

    @property
    def random(self) -> bool:
        """Whether the strategy selected at random in this round, whatever the scores."""
        return is_random(self.note)

    @property
    def tie(self) -> Tie | None:
        """The clients with the same score of which only some were selected; None without any, and if the round was random."""
        return None if self.random else tie_of(self.candidates)

    def words(self) -> list[str]:
        """The decision in sentences."""
        lines = [f"{self.note[:1].upper()}{self.note[1:]}." if self.note else "The strategy gave no reason."]
        compared = len(self.candidates)
        most = f"at least {compared:,}" if compared >= KEPT else f"{compared:,}"
        lines.append(
            f"Of {self.available:,} available client{'s' * (self.available != 1)}, {most} {_were(compared)} compared and "
            f"{self.selected:,} {_were(self.selected)} selected; {self.trained:,} trained{self._others()}, and "
            f"{self.admitted:,} {_were(self.admitted)} admitted. "
            f"The round took {time_in_words(self.round_time, self.clock)}."
        )
        if self.tie is not None:
            lines.append(tie_in_words(self.tie, self.candidates, cut=compared >= KEPT))
        if self.client is None:
            return lines
        every = (*self.candidates, *self.unlisted)
        candidate = next((candidate for candidate in every if candidate.client == self.client), None)
        return [*self._about(candidate), *lines]

    def _others(self) -> str:
        """How many of the selected clients sent no finite update, and why, with a comma before it; empty if all did."""
        found = Counter(candidate.status for candidate in (*self.candidates, *self.unlisted) if candidate.selected)
        numbers = [f"{found[status]:,} {words}" for status, words in WITHOUT_UPDATE.items() if found[status]]
        return "".join(f", {words}" for words in numbers)

    def _about(self, candidate: Candidate | None) -> list[str]:
        """Sentences about the client; None if the record does not have it among those that were compared."""
        assert self.client is not None
        client = f"Client {client_in_words(self.client, self.client_name)}"
        if candidate is None:
            compared = len(self.candidates)
            left_out = f"was not one of the {compared:,} clients that were compared"
            if compared >= KEPT:
                left_out = f"was not selected, and is not one of the {compared:,} candidates that the record keeps"
            if not self.availability_known:
                unknown = "The record does not say whether it was available."
                return [f"{client} {left_out} in round {self.round}. {unknown}", self._history()]
            return [f"{client} was available in round {self.round}, but {left_out}.", self._history()]
        if candidate in self.unlisted:
            unknown = f"the record keeps the scores of {len(self.candidates):,} candidates, and not this one"
            told = f"{client} was selected in round {self.round}: {unknown}."
            return [told, outcome_in_words(candidate, self.clock), self._history()]
        decision = "selected" if candidate.selected else "not selected"
        score = score_in_words(candidate, self.candidates, random=self.random)
        sentences = [f"{client} was {decision} in round {self.round}: {score}."]
        if math.isfinite(candidate.rank) and len(self.candidates) > 1 and not self.random:
            sentences[0] += " " + self._standing(candidate)
        sentences[0] += self._without_score(candidate)
        if candidate.selected:
            sentences.append(outcome_in_words(candidate, self.clock))
        return [*sentences, self._history()]

    def _without_score(self, candidate: Candidate) -> str:
        """How many of the clients without a score were selected, if the candidate is one of several, with a space before it."""
        alike = [c.selected for c in self.candidates if math.isnan(c.score)]
        if not math.isnan(candidate.score) or len(alike) < 2 or len(self.candidates) >= KEPT:
            return ""
        return f" Of {len(alike):,} clients without a score, {sum(alike):,} {_were(sum(alike))} selected."

    def _standing(self, candidate: Candidate) -> str:
        """The rank of a candidate, and the scores of the selected clients for comparison."""
        others = [c for c in self.candidates if c.client != candidate.client and not math.isnan(c.score)]
        selected = [c.score for c in others if c.selected]
        tied, recorded = sum(c.score == candidate.score for c in others), "recorded " * (len(self.candidates) >= KEPT)
        if candidate.untried and tied:
            return f"{_of_all(tied, len(others), recorded).capitalize()} {'is' if tied == 1 else 'are'} untried, too."
        place = _place(candidate, tied, len(others), recorded)
        if not selected or tied == len(others):
            return f"{place}."
        low, high = min(selected), max(selected)
        untried = any(c.untried for c in self.candidates)
        words = ["untried" if untried and value >= UNTRIED else number(value) for value in (low, high)]
        return f"{place}; the {'other ' if candidate.selected else ''}selected {_between(words)}."

    def _history(self) -> str:
        """The earlier rounds in which the client was selected."""
        if not self.earlier:
            return "It was not selected in an earlier round." if self.round > 1 else "This was the first round."
        last = ", ".join(map(str, self.earlier[-5:]))
        more = "…, " if len(self.earlier) > 5 else ""
        if self.round == 2:
            return "It was selected in the earlier round."
        return f"It was selected in {len(self.earlier):,} of the {self.round - 1:,} earlier rounds: {more}{last}."


def _place(candidate: Candidate, tied: int, others: int, recorded: str) -> str:
    """The rank of a candidate, or how many of the others have the same score; ``recorded`` is empty if all candidates are recorded."""
    if tied:
        return f"It has the same score as {_of_all(tied, others, recorded)}"
    among = f"the {others + 1:,} {recorded}candidates" if recorded else f"{others + 1:,}"
    return f"It is number {number(candidate.rank)} of {among} by score"


def _of_all(number: int, others: int, recorded: str) -> str:
    """A number of the other candidates."""
    return "the other one" if others == 1 else f"{number:,} of {others:,} {recorded}others"


def _were(number: int) -> str:
    """The verb for a number of clients."""
    return "was" if number == 1 else "were"


def _between(ends: Sequence[str]) -> str:
    """What scores selected clients have, from the words for the lowest and the highest."""
    low, high = ends
    if low != high:
        return f"have {low} to {high}"
    return "are untried" if low == "untried" else f"have {low}"


def explain(run: Run, round: int, client: int | str | None = None) -> Explanation:
    """Explain the decision of a round, for the whole round or for one client.

    Args:
        run: the run.
        round: the round, from 1.
        client: id of a client, or its name in the data; None explains the whole round.

    Raises:
        UsageError: the run has no such round or client, or the client was not available in that round.
    """
    row = _round(run, round)
    clients, decisions = run.read_clients(round), run.read_decisions(round=round)
    names = run.portrait.names
    selected = {c["client"]: c for c in _rows(clients)}
    candidates = _candidates(decisions, selected, names)
    listed = {candidate.client for candidate in candidates}
    unlisted = [
        Candidate(client, True, math.nan, math.nan, {}, **_what_happened(client, selected, names))
        for client in selected
        if client not in listed
    ]
    earlier, known = list[int](), True
    if isinstance(client, str):
        client = number_of(client, names)
    if client is not None:
        known = check_client(run, row, client, sorted(listed | selected.keys()))
        before = f"SELECT round FROM clients WHERE client = {int(client)} AND round < {int(round)} ORDER BY round"
        earlier = [int(t) for (t,) in run.query(before)]
    return Explanation(
        label=f"{run.meta['label']}, seed {run.meta['seed']}",
        strategy=strategy_in_words(run, round),
        round=round,
        rounds=run.described.rounds,
        **{name: row[name] for name in ("note", "available", "selected", "trained", "admitted", "round_time")},
        candidates=candidates,
        asked=_exchanges(run, round),
        client=client,
        client_name=names[client] if client is not None and names else "",
        earlier=earlier,
        availability_known=known,
        clock=run.clock,
        labels=run.labels,
        unlisted=unlisted,
    )


def _round(run: Run, round: int) -> dict[str, Any]:
    """The recorded row of a round."""
    if not isinstance(round, Integral) or isinstance(round, bool):
        raise UsageError(f"round = {shown(round)}: should be a whole number, such as 1")
    played = _rows(run.rounds.reset_index())
    row = next((row for row in played if row["round"] == round), None)
    if row is None:
        valid = f"it has rounds 1 to {len(played)}" if played else "it has no finished round yet"
        raise UsageError(f"round = {round}: {run.path} has no such round; {valid}")
    return row


def _exchanges(run: Run, round: int) -> list[Asked]:
    """The exchanges of a round: questions by name, then the training."""
    ledger = run.ledger
    rows = sorted(_rows(ledger[ledger["round"] == round]), key=lambda e: (e["kind"] == "training", e["kind"]))
    return [
        Asked(
            e["kind"],
            e["messages"],
            e["bytes_down"],
            e["bytes_up"],
            e["passes"],
            e["discloses"] if e["messages"] else "",
        )
        for e in rows
    ]


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table as plain values."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _candidates(
    decisions: "pd.DataFrame", selected: Mapping[int, Mapping[str, Any]], names: Sequence[str]
) -> list[Candidate]:
    """The candidates of one round; ``selected`` holds the recorded rows of the selected clients, by id."""
    ranks = decisions["score"].rank(ascending=False)
    terms = decisions.drop(columns=["round", "client", "selected", "score"]).dropna(axis="columns", how="all")
    return [
        Candidate(
            client=row["client"],
            selected=row["selected"],
            score=row["score"],
            rank=rank,
            terms={name: row[name] for name in map(str, terms.columns)},
            **_what_happened(row["client"], selected, names),
        )
        for row, rank in zip(_rows(decisions), ranks.tolist(), strict=True)
    ]


def _what_happened(client: int, selected: Mapping[int, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """What :class:`Candidate` says about a client besides the decision; the arguments are as for :func:`_candidates`."""
    row = selected.get(client, {})
    outcome = {
        name: float(value)
        for name, value in row.items()
        if name not in ("round", "client", "status", "detail") and not math.isnan(value)
    }
    name = names[client] if names else ""
    return {"status": row.get("status", ""), "detail": row.get("detail", ""), "outcome": outcome, "name": name}
