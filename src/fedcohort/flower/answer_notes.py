"""What the note of a round says about answers that could not be used."""

from collections.abc import Mapping, Sequence

from fedcohort.core.words.formatted_values import counted, in_words

__all__ = ["first_notes", "unanswered"]

MOST = 5
"""Largest number of notes of a round, and of clients that a note names."""


def unanswered(kind: str, reasons: Mapping[int, str]) -> list[str]:
    """A note for each reason why clients gave no answer, in the order of the clients.

    Args:
        kind: the kind of question.
        reasons: why there is no answer, by client.

    >>> unanswered("LocalLoss", {3: "no answer within 5 s", 1: "its answer is not 1 number", 0: "no answer within 5 s"})
    ['clients 0 and 3 gave no LocalLoss: no answer within 5 s', 'client 1 gave no LocalLoss: its answer is not 1 number']
    """
    clients: dict[str, list[str]] = {}
    for client in sorted(reasons):
        clients.setdefault(reasons[client], []).append(str(client))
    return [f"client{'s' * (len(own) > 1)} {_named(own)} gave no {kind}: {reason}" for reason, own in clients.items()]


def _named(clients: Sequence[str]) -> str:
    """The first clients, and how many more there are: 0, 3, 4, 7, 8 and 12 more."""
    more = len(clients) - MOST
    return in_words([*clients[:MOST], *([f"{more:,} more"] if more > 0 else [])])


def first_notes(notes: Sequence[str]) -> list[str]:
    """The first notes, each of them once, and how many more there are.

    >>> first_notes(["a", "a", "b", "c", "d", "e", "f", "a"])[-2:]
    ['e', 'and 1 similar note']
    """
    different = list(dict.fromkeys(notes))  # a node that cannot be reached is asked again and again
    more = len(different) - MOST
    return [*different[:MOST], *([f"and {counted(more, 'similar note')}"] if more > 0 else [])]
