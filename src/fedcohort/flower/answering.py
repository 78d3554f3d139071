"""What a client is willing to answer: FedCohort's questions, added to a Flower ClientApp."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.given_values import as_float
from fedcohort.flower.wire import (
    ACTION,
    INSTRUCTIONS,
    KEY,
    VERSION,
    Introduction,
    introduction_reply,
    numbers_reply,
    refusal_reply,
)
from fedcohort.selection import QUESTIONS, Question

__all__ = ["Asked", "answers", "keyword_of"]

log = logging.getLogger("fedcohort")

Answer = Callable[["Asked"], "float | Sequence[float]"]
OfContext = Callable[[Context], Any]


@dataclass(frozen=True)
class Asked:
    """A question as it reaches a client.

    Attributes:
        question: the question with its settings, such as :class:`fedcohort.selection.LocalLoss`.
        arrays: the current model; empty if the question does not need it.
        context: Flower's context of this node.
        round: the round, from 1.
    """

    question: Question
    arrays: ArrayRecord
    context: Context
    round: int


def keyword_of(kind: str) -> str:
    """The keyword of :func:`answers` for a kind of question: ``local_loss`` for ``LocalLoss``."""
    return "".join("_" * (i > 0 and c.isupper()) + c.lower() for i, c in enumerate(kind))


def answers(
    app: ClientApp,
    *,
    num_samples: int | OfContext,
    name: str | OfContext | None = None,
    histogram: Sequence[int] | OfContext | None = None,
    reports: Iterable[str] = (),
    follows: Iterable[str] = (),
    **questions: Answer,
) -> ClientApp:
    """Let a ClientApp introduce itself and answer questions. It answers nothing that is not named here.

    Args:
        app: the ClientApp; it gets a query function named ``fedcohort``.
        num_samples: number of training samples of this client, or a function of Flower's context that returns it.
        name: name of this client, the same in every run, or a function of the context. By default ``name`` or ``partition-id`` of the
            node's config; without either, the server knows the client by the public key of its node, with
            ``Selecting(…, authenticated=True)``.
        histogram: number of training samples of each class [K], or a function of the context; disclosed to the server.
        reports: names of the numbers in the metrics of its training replies that a strategy may read: ``loss``, ``square_loss``,
            ``samples``, ``steps``, ``accuracy`` and others.
        follows: instructions of a strategy that its training carries out, any of ``epochs``, ``share``, ``unsent``, ``sampling`` and
            ``stop``. They are in the ConfigRecord ``fedcohort`` of the training message, as JSON.
        **questions: a function for each kind of question, by keyword: ``local_loss``, ``local_accuracy``, ``speed``, ``context``,
            ``gradient_norm``, ``update_norm``. It gets an :class:`Asked` and returns one number, or as many as the
            question has.

    Returns:
        The same app.

    Raises:
        UsageError: an unknown question or instruction, something that is not a function, a number of samples that is not whole, or an
            app that already answers.
    """
    for given, value in (("reports", reports), ("follows", follows)):
        if isinstance(value, str):
            raise UsageError(f"answers(…, {given}={value!r}): is a text; give a list of names, such as [{value!r}]")
    sent, followed = frozenset(reports), frozenset(follows)
    if unknown := sorted(followed - set(INSTRUCTIONS)):
        raise UsageError(f"answers(…, follows={unknown}): unknown; valid are {', '.join(INSTRUCTIONS)}")
    functions = _functions(questions)
    if not callable(num_samples):
        _count(num_samples, "num_samples")

    def fedcohort(message: Message, context: Context) -> Message:
        """Introduce this client, or answer a question."""
        said = message.content[KEY]
        assert isinstance(said, Mapping)
        if said.get("version") != VERSION:
            reason = (
                f"the server speaks version {said.get('version')!r} of FedCohort's messages, this client version {VERSION}; install "
                "the same version of FedCohort on both"
            )
            log.warning("%s", reason)
            return refusal_reply(reason, message)
        if said["question"]:
            return _answer(functions, message, context, json.loads(str(said["question"])), int(str(said["round"])))
        counts = _of(histogram, context)
        introduction = Introduction(
            _name(name, context),
            _count(_of(num_samples, context), "num_samples"),
            () if counts is None else tuple(_count(number, "histogram") for number in counts),
            frozenset(functions),
            sent,
            followed,
        )
        return introduction_reply(introduction, message)

    try:
        app.query(ACTION)(fedcohort)
    except ValueError as error:  # Flower keeps the first function of a name, and has none for an app with a client_fn
        raise UsageError(
            f"answers(app, …): {error}; call answers once for a ClientApp, one that uses @app.train()"
        ) from None
    return app


def _functions(questions: Mapping[str, Answer]) -> dict[str, Answer]:
    """The functions by kind of question.

    Raises:
        UsageError: an unknown question, or something that is not a function.
    """
    kinds = {keyword_of(kind): kind for kind in QUESTIONS if kind != "LossChange"}
    for keyword, function in questions.items():
        if keyword not in kinds:
            raise UsageError(f"answers(…, {keyword}=…): there is no such question; {nearest(keyword, kinds)}")
        if not callable(function):
            raise UsageError(f"answers(…, {keyword}={function!r}): must be a function of an Asked that returns numbers")
    return {kinds[keyword]: function for keyword, function in questions.items()}


def _answer(
    functions: Mapping[str, Answer], message: Message, context: Context, described: dict[str, Any], t: int
) -> Message:
    """The answer to a question, or a refusal."""
    function = functions.get(described["kind"])
    if function is None:
        return refusal_reply(f"this client does not answer {described['kind']}", message)
    arrays = next(iter(message.content.array_records.values()), ArrayRecord())
    found = function(Asked(Question.from_json(described), arrays, context, t))
    return numbers_reply(np.atleast_1d(np.asarray(found, np.float64)).tolist(), message)


def _of(given: object, context: Context) -> Any:
    """A value, or what the function returns for this node."""
    return given(context) if callable(given) else given


def _count(given: object, name: str) -> int:
    """A number of samples, also as a float.

    Raises:
        UsageError: it is no whole number of at least 0.
    """
    number = as_float(given)
    if number is None or not number >= 0 or not number.is_integer():
        raise UsageError(f"answers(…, {name}={shown(given)}): should be a whole number of at least 0")
    return int(number)


def _name(given: str | OfContext | None, context: Context) -> str:
    """The name of this client; empty if it has none."""
    if given is not None:
        return str(_of(given, context))
    config = context.node_config
    return str(config.get("name", config.get("partition-id", "")))
