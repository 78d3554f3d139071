"""The ClientApp of a deployment: it carries messages between Flower's SuperNode and the data owner's process.

The ClientApp comes from the server in Flower's app bundle, so it gets neither data nor models: the process that the owner started
with ``fedcohort site serve`` decides what is answered.
"""

import socket
import struct
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedcohort.flower.sites.envelope import ACTION, bytes_in, reply_message

__all__ = ["ANSWER_SECONDS", "app", "call_site", "courier_app", "receive", "send"]

ANSWER_SECONDS = 86_400.0
"""Seconds that a ClientApp waits for the owner's process; the server stops waiting earlier."""
_LENGTH = struct.Struct("<Q")


def courier_app(call: Callable[[Context, bytes], bytes]) -> ClientApp:
    """A ClientApp that gets its replies from ``call``."""
    client = ClientApp()

    @client.query(ACTION)
    def site(message: Message, context: Context) -> Message:
        """Carry a request to the site, and its reply back."""
        data = bytes_in(message)
        if data is None:
            raise ValueError("the message does not come from a FedCohort server")
        return reply_message(call(context, data), message)

    return client


def call_site(context: Context, data: bytes) -> bytes:
    """The reply of the owner's process at the socket that the node's config names.

    Raises:
        RuntimeError: the node has no ``site`` in its config, or nothing listens there.
    """
    path = str(context.node_config.get("site", ""))
    if not path:
        raise RuntimeError("the SuperNode has no --node-config \"site='…'\"; start it with `fedcohort site serve`")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(path)
        except OSError as error:
            raise RuntimeError(f"the owner's process does not listen ({error}); start `fedcohort site serve`") from None
        send(connection, data)
        return receive(connection)


def send(connection: socket.socket, data: bytes) -> None:
    """Send bytes with their length."""
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def receive(connection: socket.socket, largest: int = 2**40) -> bytes:
    """Receive what :func:`send` sent.

    Raises:
        ConnectionError: the other side ended before that, or announced more than ``largest`` bytes.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > largest:
        raise ConnectionError(f"{length:,} bytes were announced, at most {largest:,} are read")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    whole = bytearray()
    while len(whole) < count:
        piece = connection.recv(min(count - len(whole), 2**20))
        if not piece:
            raise ConnectionError("the connection ended in the middle of a message")
        whole += piece
    return bytes(whole)


app = courier_app(call_site)
"""The ClientApp that ``fedcohort deploy new`` writes into an app."""
