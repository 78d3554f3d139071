"""Requests and replies of sites in Flower's messages: one array of bytes each. This module imports no torch, so that it loads fast."""

from flwr.app import Array, ArrayRecord, Message, RecordDict

__all__ = ["ACTION", "QUERY", "bytes_in", "reply_message", "request_message"]

ACTION = "site"
"""Name of the query function of the ClientApp."""
QUERY = f"query.{ACTION}"
"""Type of the messages."""
KEY = "fedcohort"
FORMAT = "fedcohort.safetensors"


def request_message(node: int, data: bytes, t: int, ttl: float) -> Message:
    """A request to a node in round ``t``, which expires after ``ttl`` seconds."""
    return Message(_record(data), node, QUERY, group_id=str(t), ttl=ttl)


def reply_message(data: bytes, message: Message) -> Message:
    """The reply to a request."""
    return Message(_record(data), reply_to=message)


def bytes_in(message: Message) -> bytes | None:
    """What a message carries; None if it is not one of these messages."""
    record = message.content.get(KEY)
    if not isinstance(record, ArrayRecord) or set(record) != {"data"}:
        return None
    array = record["data"]
    return bytes(array.data) if array.stype == FORMAT else None


def _record(data: bytes) -> RecordDict:
    return RecordDict({KEY: ArrayRecord({"data": Array(dtype="uint8", shape=(len(data),), stype=FORMAT, data=data)})})
