"""Notes below the explanation of a decision: what columns of its tables mean."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from fedcohort.core.formatted_values import in_words
from fedcohort.report.cost_notes import MESSAGES

if TYPE_CHECKING:
    from fedcohort.study.explain_decision import Explanation

__all__ = ["TRAINING_SCORE", "about_columns", "about_messages"]

TRAINING_SCORE = "training score"
"""Heading of what the accuracy is in a regression; the score is what the strategy compared."""


def about_columns(decision: "Explanation", headings: Collection[str]) -> str:
    """What columns of the table of candidates mean, in sentences: those of ``headings``, which are shown."""
    asked = any("loss" in each.terms for each in decision.candidates)
    meanings: list[tuple[tuple[str, ...], Callable[[list[str]], str]]] = [
        (("score",), lambda _: "what the strategy compared"),
        (("samples",), lambda _: "training samples of the client"),
        (("steps",), lambda _: "mini-batches that it trained on"),
        (("time",), lambda _: "seconds of wall time" if decision.clock == "wall" else "simulated time"),
        (("weight %",), lambda _: "share of the weights of all admitted updates"),
        (("coefficient",), lambda _: "factor with which the update entered the model"),
        (("loss",) if asked else (), lambda _: "what the strategy knew before it selected"),
        (("loss in training" if asked else "loss", "accuracy", TRAINING_SCORE), _about_results),
    ]
    sentences = []
    for names, meaning in meanings:
        found = [name for name in names if name in headings]
        if found:
            words = in_words([name.removesuffix(" %") for name in found])
            sentences.append(f"{words[0].upper()}{words[1:]}: {meaning(found)}.")
    return " ".join(sentences)


def _about_results(found: list[str]) -> str:
    """On which samples the loss and the accuracy were measured, and the unit of the accuracy."""
    unit = "; an accuracy of 1 is 100%" if "accuracy" in found else ""
    if TRAINING_SCORE in found:
        unit = "; the score is 1 − mean squared error / variance of labels"
    return f"on the client's own data during training{unit}"


def about_messages(decision: "Explanation") -> str:
    """What counts as a message of the training if some clients were declined; empty without any."""
    declined = any(each.status == "declined" for each in decision.candidates)
    if not declined or all(exchange.kind != "training" for exchange in decision.asked):
        return ""
    return MESSAGES
