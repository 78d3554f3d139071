"""A SuperNode that deceives the SuperLink: ``python -m tests.flower.deployed.rogue_node HOW …`` and the words of ``flower-supernode``.

``twice`` sends every reply a second time, as another message. ``forged KEY.pub`` claims the public key of another node, without its
private key, and prints what the SuperLink returns.
"""

import base64
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode import fleet_http_connection
from flwr.supernode.cli import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


def replace(owner: Any, name: str, value: Any) -> None:
    """Replace a part of Flower in this process."""
    assert hasattr(owner, name)
    setattr(owner, name, value)


def send_twice() -> None:
    """Send every reply a second time, under another id."""
    push = FleetHttpClient.PushMessages

    def twice(client: FleetHttpClient, request: Any) -> Any:
        response = push(client, request)
        again = type(request)()
        again.CopyFrom(request)
        again.messages_list[0].metadata.message_id = again.messages_list[0].metadata.message_id[::-1]
        print("sent again:", push(client, again).objects_to_push, flush=True)
        return response

    replace(FleetHttpClient, "PushMessages", twice)


def claim(path: str) -> None:
    """Claim the public key in a file."""
    key: Any = load_ssh_public_key(Path(path).read_bytes())
    claimed = public_key_to_bytes(key)
    intercept = NodeAuthHttpInterceptor.intercept

    def forged(self: NodeAuthHttpInterceptor, context: Any, call_next: Any) -> Any:
        def with_claim(context: Any) -> Any:
            context.request.headers[FLEET_HTTP_PUBLIC_KEY_HEADER] = base64.b64encode(claimed).decode("ascii")
            response = call_next(context)
            response.read()
            print("the SuperLink returned:", response.status_code, response.text, flush=True)
            return response

        return intercept(self, context, with_claim)

    replace(NodeAuthHttpInterceptor, "intercept", forged)
    replace(fleet_http_connection, "public_key_to_bytes", lambda _: claimed)


if __name__ == "__main__":
    how = sys.argv.pop(1)
    if how == "twice":
        send_twice()
    else:
        claim(sys.argv.pop(1))
    flower_supernode()
