"""Notes below the explanation of a decision: what columns of its tables mean."""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from fedcohort.core.words.formatted_values import in_words
from fedcohort.report.notes.cost_notes import MESSAGES

if TYPE_CHECKING:
    from fedcohort.study.decisions.explain_decision import Explanation

__all__ = ["TRAINING_SCORE", "about_columns", "about_messages", "beside_terms"]

TRAINING_SCORE = "training score"
"""Heading of what the accuracy is in a regression; the score is what the strategy compared."""


def beside_terms(heading: str, terms: Collection[str]) -> str:
    """The heading of a column about the training: it says so if a term of the score, such as an answer, has the same name."""
    return f"{heading} in training" if heading in terms else heading


def about_columns(decision: "Explanation", headings: Collection[str]) -> str:
    """What columns of the table of candidates mean, in sentences: those of ``headings``, which are shown."""
    terms = {name for each in decision.candidates for name in each.terms}
    trained = partial(_beside_terms, terms)
    meanings: list[tuple[tuple[str, ...], Callable[[list[str]], str]]] = [
        (("score",), lambda _: "what the strategy compared"),
        (trained("samples"), lambda _: "training samples of the client"),
        (trained("steps"), lambda _: "mini-batches that it trained on"),
        (trained("time"), lambda _: "seconds of wall time" if decision.clock == "wall" else "simulated time"),
        (trained("weight %"), lambda _: "share of the weights of all admitted updates"),
        (trained("coefficient"), lambda _: "factor with which the update entered the model"),
        (("loss",) if "loss" in terms else (), lambda _: "what the strategy knew before it selected"),
        (trained("loss", "accuracy", TRAINING_SCORE), _about_results),
    ]
    sentences = []
    for names, meaning in meanings:
        found = [name for name in names if name in headings]
        if found:
            words = in_words([name.removesuffix(" %") for name in found])
            sentences.append(f"{words[0].upper()}{words[1:]}: {meaning(found)}.")
    return " ".join(sentences)


def _beside_terms(terms: Collection[str], *headings: str) -> tuple[str, ...]:
    """:func:`beside_terms` of several headings."""
    return tuple(beside_terms(heading, terms) for heading in headings)


def _about_results(found: list[str]) -> str:
    """On which samples the loss and the accuracy were measured, and the unit of the accuracy."""
    unit = "; an accuracy of 1 is 100%" if any(name.startswith("accuracy") for name in found) else ""
    if any(name.startswith(TRAINING_SCORE) for name in found):
        unit = "; the score is 1 − mean squared error / variance of labels"
    return f"on the client's own data during training{unit}"


def about_messages(decision: "Explanation") -> str:
    """What counts as a message of the training if some clients were declined; empty without any."""
    declined = any(each.status == "declined" for each in decision.candidates)
    if not declined or all(exchange.kind != "training" for exchange in decision.asked):
        return ""
    return MESSAGES
