"""Check the replies of a training round: a reply that cannot be used is a failed client, with the cause."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message

from fedcohort.algorithms import ModelState
from fedcohort.core.errors import one_line
from fedcohort.flower.roster import failure_of
from fedcohort.flower.wire import LARGEST_COUNT, MalformedReply

__all__ = ["NUM_EXAMPLES", "Checked", "as_state", "check_replies"]

NUM_EXAMPLES = "num-examples"
"""Name of the metric with the number of samples, if the inner strategy weighs replies by no other."""
LARGEST_ITEM = 8
"""Bytes of the largest number that torch knows."""


@dataclass
class Checked:
    """The reply of one selected client.

    Attributes:
        client: number of the client.
        message: the reply; None if there is none that can be used.
        state: its arrays; empty without a message.
        metrics: its metrics that are single numbers.
        failure: why there is no usable reply; empty if there is one.
        late: why the server did not wait; empty if it did.
    """

    client: int
    message: Message | None
    state: ModelState
    metrics: Mapping[str, float]
    failure: str = ""
    late: str = ""


def as_state(arrays: ArrayRecord) -> ModelState:
    """The arrays as tensors, in copies; arrays of other types than numbers that torch knows are left out."""
    state: ModelState = {}
    for name, array in arrays.items():
        values = array.numpy()
        if _is_known(values.dtype):
            state[str(name)] = torch.from_numpy(np.array(values, values.dtype.newbyteorder("="), order="C"))
    return state


def _is_known(dtype: np.dtype[Any]) -> bool:
    """Whether torch has tensors of this type, in whatever order its bytes are."""
    return (dtype.kind in "fib" and dtype.itemsize <= LARGEST_ITEM) or dtype == np.uint8


def check_replies(
    sent: Mapping[int, Message], replies: Iterable[Message], like: ArrayRecord, weight: str | None, *, timeout: float
) -> list[Checked]:
    """The reply of each client, in the order of ``sent``.

    Args:
        sent: the message to each client, after it was sent.
        replies: all replies, in any order.
        like: the arrays that were sent.
        weight: name of the metric that the inner strategy weighs replies by; None if it has none.
        timeout: seconds that the server waited, for the message; infinite if that is not known.
    """
    of_message = {
        message.metadata.message_id: client for client, message in sent.items() if message.metadata.message_id
    }
    of_node = {message.metadata.dst_node_id: client for client, message in sent.items()}
    received: dict[int, list[Message]] = {client: [] for client in sent}
    for reply in replies:
        client = of_message.get(reply.metadata.reply_to_message_id, of_node.get(reply.metadata.src_node_id))
        if client is not None:
            received[client].append(reply)
    checked = [_checked(client, own, like, weight, timeout) for client, own in received.items()]
    _refuse_others(checked, _names, "records or metrics have other names")
    _refuse_others(checked, _lengths, "metrics have other lengths")
    return checked


def _checked(
    client: int,
    replies: list[Message],
    like: ArrayRecord,
    weight: str | None,
    timeout: float,
) -> Checked:
    if not replies:
        within = f" within {timeout:g} s" if math.isfinite(timeout) else ""  # another strategy waits for this one
        return Checked(client, None, {}, {}, late=f"no reply{within}")
    if len(replies) > 1:
        return Checked(client, None, {}, {}, failure=f"duplicate: it sent {len(replies)} replies to one message")
    reply = replies[0]
    if reply.has_error():
        return Checked(client, None, {}, {}, failure=failure_of(reply))
    try:
        state = _arrays(reply, like)
        return Checked(client, reply, state, _metrics(reply, weight))
    except MalformedReply as reason:
        return Checked(client, None, {}, {}, failure=f"malformed reply: {reason}")


def _arrays(reply: Message, like: ArrayRecord) -> ModelState:
    """The arrays of a reply; they have the names, shapes and kinds of the model's, perhaps in another precision."""
    shapes = {name: tuple(array.shape) for name, array in like.items()}
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise MalformedReply(f"it has {len(records)} ArrayRecords instead of 1")
    record = records[0]
    if differing := sorted(set(record) ^ set(shapes)):
        raise MalformedReply(f"its arrays are not those of the model: {', '.join(map(repr, differing[:5]))}")
    for name, shape in shapes.items():
        if tuple(record[name].shape) != shape:
            raise MalformedReply(f"array {name!r} has the shape {list(record[name].shape)} instead of {list(shape)}")
    try:
        values = {name: array.numpy() for name, array in record.items()}
    except Exception as error:  # damaged bytes can raise any error
        raise MalformedReply(f"its arrays cannot be read ({error})") from None
    for name, array in like.items():
        _check_values(str(name), values[name], shapes[name], np.dtype(array.dtype))
    return as_state(record)


def _check_values(name: str, values: object, shape: tuple[int, ...], wanted: np.dtype[Any]) -> None:
    """Refuse what is no array of the model's shape and kind, or has numbers that its type cannot hold."""
    if not isinstance(values, np.ndarray):
        raise MalformedReply(f"array {name!r} holds a {type(values).__name__} instead of an array")
    dtype = values.dtype
    if values.shape != shape or dtype.kind != wanted.kind or (_is_known(wanted) and not _is_known(dtype)):
        raise MalformedReply(f"array {name!r} holds {dtype} {list(values.shape)}, which is not what the model has")
    if wanted != dtype and _overflows(values, wanted):
        raise MalformedReply(f"array {name!r} has numbers that {wanted}, the type of the model, cannot hold")


def _overflows(values: np.ndarray, wanted: np.dtype[Any]) -> bool:
    """Whether numbers of another precision than the model's would be infinite, or others, in the model."""
    with np.errstate(all="ignore"):
        cast = values.astype(wanted)
    if values.dtype.kind != "f":
        return not np.array_equal(cast, values)
    return bool((np.isfinite(values) & ~np.isfinite(cast)).any())


def _metrics(reply: Message, weight: str | None) -> dict[str, float]:
    """The metrics of a reply that are single numbers; those that are counts are in the range of counts."""
    records = list(reply.content.metric_records.values())
    if len(records) != 1:
        raise MalformedReply(f"it has {len(records)} MetricRecords instead of 1")
    numbers = {str(name): float(value) for name, value in records[0].items() if isinstance(value, int | float)}
    if weight is not None and not (math.isfinite(numbers.get(weight, math.nan)) and numbers[weight] > 0):
        raise MalformedReply(f"its metric {weight!r} is {numbers.get(weight)}; must be a number above 0")
    for name in {weight or NUM_EXAMPLES, NUM_EXAMPLES, "steps"}:
        if math.isfinite(value := numbers.get(name, math.nan)) and not 0 <= value < LARGEST_COUNT:
            raise MalformedReply(f"its metric {name!r} is {value:g}; must be at least 0 and below {LARGEST_COUNT:,}")
    return numbers


def _refuse_others(checked: list[Checked], words_of: Callable[[Message], tuple[str, ...]], what: str) -> None:
    """Refuse replies about which other words are true than about most: Flower would refuse the whole round, or end the run."""
    words = {row.client: words_of(row.message) for row in checked if row.message is not None}
    if len(set(words.values())) < 2:
        return
    usual = Counter(words.values()).most_common(1)[0][0]
    for row in checked:
        if row.message is not None and words[row.client] != usual:
            row.message, row.state = None, {}
            listed = ", ".join(words[row.client][:8])
            row.failure = one_line(f"malformed reply: its {what} ({listed}) than most replies")


def _names(message: Message) -> tuple[str, ...]:
    """The names of the records of a reply and of its metrics."""
    content = message.content
    metrics = next(iter(content.metric_records.values()))
    return (*content.array_records, *content.metric_records, *sorted(map(str, metrics)))


def _lengths(message: Message) -> tuple[str, ...]:
    """Whether each metric of a reply is a number, or how many numbers it has."""
    metrics = next(iter(message.content.metric_records.values()))
    return tuple(
        f"{name}: {f'a list of {len(value)}' if isinstance(value, list) else 'a number'}"
        for name, value in sorted(metrics.items(), key=lambda item: str(item[0]))
    )
