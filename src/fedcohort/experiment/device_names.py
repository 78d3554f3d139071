"""The names of devices in experiment files."""

import re

__all__ = ["device_name"]


def device_name(name: str) -> str:
    """The name of a device; whether this machine has it is checked when a run begins.

    Raises:
        ValueError: it is no name of a device.
    """
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?|mps|auto", name):
        raise ValueError("should be 'cpu', 'cuda', 'cuda:N' with the number of a GPU, 'mps' or 'auto'")
    return name
