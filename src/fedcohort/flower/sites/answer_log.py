"""The owner's log: one line for each request, with what was answered, how much was sent, and what is left of the budget."""

from collections.abc import Mapping

from fedcohort.core.errors import one_line
from fedcohort.flower.sites.protocol import ASK, HELLO, BadMessage, Words

__all__ = ["NAMED", "answer_line", "budget_words"]

NAMED = 10
"""Maximum number of clients that a line names."""


def answer_line(
    request: Words | None, reply: Mapping[str, object], num_bytes: int, left: Mapping[str, int | None]
) -> str:
    """The line about a reply.

    Args:
        request: the request; None if it could not be read.
        reply: what the site says.
        num_bytes: number of bytes that it sends.
        left: what is left of each limit of the budget, see :meth:`~fedcohort.flower.sites.owner_policy.Spent.left`.
    """
    done = f"refused: {reply['refused']}" if "refused" in reply else _answered(request, reply)
    return f"{_about(request)}{done}; {num_bytes:,} bytes sent; {budget_words(left)}"


def budget_words(left: Mapping[str, int | None]) -> str:
    """What is left of a budget."""
    limits = [f"{name} {count:,}" for name, count in left.items() if count is not None]
    return f"left of the budget: {', '.join(limits)}" if limits else "no budget is set"


def _about(request: Words | None) -> str:
    """The run and the round of a request; empty if it names none."""
    try:
        return "" if request is None else one_line(f"run {request.text('run')}, round {request.count('round')}:") + " "
    except BadMessage:
        return ""


def _answered(request: Words | None, reply: Mapping[str, object]) -> str:
    rows = reply.get("clients")
    rows = rows if isinstance(rows, list) else []
    failed = [row["name"] for row in rows if "error" in row or "lost" in row or row.get("failure")]
    done = [row["name"] for row in rows if row["name"] not in failed]
    kind = "" if request is None else request.text("kind")
    if kind == HELLO:
        what = "introduced"
    else:
        what = f"answered {request.part('question').text('kind')} for" if kind == ASK and request else "trained"
    return f"{what} {_names(done)}" + (f", and not {_names(failed)}" if failed else "")


def _names(names: list[str]) -> str:
    if not names:
        return "no client"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{'client' if len(names) == 1 else 'clients'} {', '.join(names[:NAMED])}{more}"
