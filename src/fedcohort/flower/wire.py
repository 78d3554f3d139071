"""The messages between the server and the clients about selection: JSON and numbers in Flower's records, never pickle."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedcohort.core.arrays import Values
from fedcohort.core.errors import one_line
from fedcohort.selection import Cohort, Question

__all__ = [
    "ACTION", "INSTRUCTIONS", "KEY", "LARGEST_COUNT", "QUERY", "VERSION", "Introduction", "MalformedReply", "ask_message",
    "hello_message", "instructions_for", "introduction_of", "introduction_reply", "numbers_of", "numbers_reply", "refusal_reply",
]  # fmt: skip

VERSION = 1
"""Version of these messages; server and clients must agree."""
KEY = "fedcohort"
"""Name of the records that belong to FedCohort."""
ACTION = "fedcohort"
QUERY = f"query.{ACTION}"
"""Type of the messages that ask clients."""
INSTRUCTIONS = ("epochs", "share", "unsent", "sampling", "stop")
"""What a strategy can tell a client to do in its training; see :class:`fedcohort.selection.Cohort`."""
LARGEST_COUNT = 2**53
"""Number that no count in a message reaches."""
LONGEST = 2**20
"""Largest number of characters of an introduction that the server reads."""


class MalformedReply(Exception):  # noqa: N818 - the server records it, and continues
    """A reply that cannot be used; the message says why, in one line without control characters."""

    def __init__(self, text: object) -> None:
        super().__init__(one_line(text))


@dataclass(frozen=True)
class Introduction:
    """What a client says about itself on first contact.

    Attributes:
        name: its name, the same in every run; empty if it has none.
        num_samples: number of training samples.
        histogram: number of samples of each class; empty if the client does not disclose it.
        answers: kinds of the questions that it answers.
        reports: names of the numbers that it sends with an update.
        follows: names of the :data:`INSTRUCTIONS` that its training follows.
    """

    name: str
    num_samples: int
    histogram: tuple[int, ...] = ()
    answers: frozenset[str] = frozenset()
    reports: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()


def hello_message(node: int) -> Message:
    """Ask a node to introduce its client."""
    return Message(RecordDict({KEY: ConfigRecord({"version": VERSION, "question": ""})}), node, QUERY)


def ask_message(node: int, question: Question, t: int, arrays: ArrayRecord | None) -> Message:
    """Ask a node a question in round ``t``; ``arrays`` is the model, None if the question does not need it."""
    content = RecordDict(
        {KEY: ConfigRecord({"version": VERSION, "round": t, "question": json.dumps(question.to_json())})}
    )
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content, node, QUERY, group_id=str(t))


def introduction_reply(introduction: Introduction, message: Message) -> Message:
    """The reply to :func:`hello_message`."""
    said = {
        "name": introduction.name,
        "num_samples": introduction.num_samples,
        "histogram": list(introduction.histogram),
        **{name: sorted(getattr(introduction, name)) for name in ("answers", "reports", "follows")},
    }
    return Message(
        RecordDict({KEY: ConfigRecord({"version": VERSION, "introduction": json.dumps(said)})}), reply_to=message
    )


def numbers_reply(numbers: Sequence[float], message: Message) -> Message:
    """The answer to :func:`ask_message`."""
    return Message(RecordDict({KEY: MetricRecord({"answer": [float(x) for x in numbers]})}), reply_to=message)


def refusal_reply(reason: str, message: Message) -> Message:
    """The reply to a question that the client does not answer."""
    return Message(RecordDict({KEY: ConfigRecord({"version": VERSION, "refused": reason})}), reply_to=message)


def instructions_for(cohort: Cohort, position: int) -> ConfigRecord | None:
    """The instructions for one client of a cohort, each as JSON; None for ordinary training."""
    said: dict[str, Any] = {}
    if cohort.epochs is not None:
        said["epochs"] = int(cohort.epochs[position])
    if cohort.share is not None and (cohort.share < 1).any():
        said |= {"share": float(cohort.share[position]), "unsent": cohort.unsent}
    if cohort.sampling != "shuffled":
        said["sampling"] = cohort.sampling
    if cohort.stop is not None:
        said["stop"] = dict(cohort.stop)
    return ConfigRecord({name: json.dumps(value) for name, value in said.items()}) if said else None


def introduction_of(message: Message) -> Introduction:
    """The introduction in a reply.

    Raises:
        MalformedReply: there is none, or it cannot be used.
    """
    record = _config(message)
    if record.get("version") != VERSION:
        raise MalformedReply(
            f"it speaks version {record.get('version')!r} of FedCohort's messages, the server version {VERSION}; install the same "
            "version of FedCohort on both"
        )
    text = record.get("introduction")
    if not isinstance(text, str) or len(text) > LONGEST:
        raise MalformedReply("it did not introduce itself")
    try:
        values = json.loads(text)
        said = Introduction(
            str(values["name"])[:200],
            _count(values["num_samples"], "num_samples"),
            tuple(_count(number, "histogram") for number in values["histogram"]),
            **{name: frozenset(map(str, values[name])) for name in ("answers", "reports", "follows")},
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # of lists within lists within lists
        raise MalformedReply(f"its introduction cannot be read ({error})") from None
    if not said.name.isprintable():
        raise MalformedReply(f"its name {said.name!r} has characters that cannot be printed; give it another name")
    if said.histogram and sum(said.histogram) != said.num_samples:
        raise MalformedReply(
            f"its label counts (histogram) add up to {sum(said.histogram)}, and it has {said.num_samples} samples (num_samples)"
        )
    return said


def numbers_of(message: Message, question: Question) -> Values:
    """The numbers in the answer to a question, float64 [question.numbers]; NaN for a number that is not finite.

    Raises:
        MalformedReply: the client refused, or its answer cannot be used.
    """
    record = message.content.get(KEY)
    if isinstance(record, ConfigRecord) and "refused" in record:
        raise MalformedReply(f"refused: {record['refused']!s}")
    numbers = record.get("answer") if isinstance(record, MetricRecord) else None
    if not isinstance(numbers, list) or len(numbers) != question.numbers:
        raise MalformedReply(f"its answer is not {question.numbers} number{'s' * (question.numbers > 1)}")
    values: Values = np.array([float(x) if math.isfinite(x) else math.nan for x in numbers])
    return values


def _config(message: Message) -> Mapping[str, object]:
    record = message.content.get(KEY)
    return record if isinstance(record, ConfigRecord) else {}


def _count(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST_COUNT:
        raise ValueError(f"{name} = {value!r}")
    return value
