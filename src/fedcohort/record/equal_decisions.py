"""The rows of a decision in which all candidates have the same score, as under uniform selection.

There can be a thousand of them in a round of a millisecond. They are written by one statement, without Python between rows, and the
text that is hashed for the seal is composed from the columns. Rows and text are those of decisions that are written row by row.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from fedcohort.record.round_rows import Reasons

__all__ = ["EqualDecisions", "equal_decisions"]

EqualRow = tuple[int, int, int, int, float, str]
"""Round, position, client, selected, score, terms."""


@dataclass(frozen=True)
class EqualDecisions(Sequence[EqualRow]):
    """The rows of the table ``decisions`` for one round.

    Attributes:
        round: the round.
        clients: ids of the candidates, the selected ones first.
        selected: number of selected candidates.
        score: the score of every candidate.
    """

    round: int
    clients: list[int]
    selected: int
    score: float

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, position: int) -> EqualRow: ...
    @overload
    def __getitem__(self, position: slice) -> list[EqualRow]: ...
    def __getitem__(self, position: int | slice) -> EqualRow | list[EqualRow]:
        if isinstance(position, slice):
            return [self[i] for i in range(len(self))[position]]
        place = range(len(self))[position]
        return self.round, place, self.clients[place], int(place < self.selected), self.score, "{}"

    def __iter__(self) -> Iterator[EqualRow]:
        return map(self.__getitem__, range(len(self)))

    def text(self) -> str:
        """``repr(row)`` of all rows, one after another."""
        begin, parts = f"({self.round}, ", [f"{i}, {client}" for i, client in enumerate(self.clients)]
        texts = []
        for chosen, some in ((1, parts[: self.selected]), (0, parts[self.selected :])):
            end = f", {chosen}, {self.score!r}, '{{}}')"
            texts.append(begin + (end + begin).join(some) + end if some else "")
        return "".join(texts)

    def insert(self, db: sqlite3.Connection) -> None:
        """Insert the rows."""
        try:
            db.execute(
                "INSERT INTO decisions SELECT ?, key, value, key < ?, ?, '{}' FROM json_each(?)",
                (self.round, self.selected, self.score, str(self.clients)),
            )
        except sqlite3.OperationalError as error:
            if "json_each" not in str(error):
                raise
            db.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?)", self)  # an SQLite without JSON


def equal_decisions(round_: int, reasons: Reasons) -> EqualDecisions | None:
    """The rows of a decision if all candidates have the same finite score without terms; None for other decisions."""
    scores = reasons.scores
    if reasons.terms or len(reasons.strangers) or not len(scores):
        return None
    score, selected = float(scores[0]) + 0.0, sum(reasons.selected)  # SQLite has no −0
    if not (abs(score) < float("inf") and (scores == score).all() and all(reasons.selected[:selected])):
        return None
    return EqualDecisions(round_, reasons.clients.tolist(), selected, score)
