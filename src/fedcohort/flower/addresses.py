"""The form of a SuperLink's address."""

import re

from fedcohort.core.errors import UsageError, shown

__all__ = ["port_of"]


def port_of(address: str, setting: str) -> str:
    """The port in an address ``HOST:PORT``.

    Args:
        address: the address.
        setting: where it was given, for the message.

    Raises:
        UsageError: the address has another form, or there is no such port.
    """
    port = re.fullmatch(r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})", address)
    if port is None or not 1 <= int(port[1]) <= 65535:
        raise UsageError(f"{setting} = {shown(address)}: should be HOST:PORT, such as 127.0.0.1:8000")
    return port[1]
