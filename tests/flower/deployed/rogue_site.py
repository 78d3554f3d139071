"""A data owner's process whose replies cannot be used: ``python -m tests.flower.deployed.rogue_site SITE_FILE``.

It is ``fedcohort site serve``, with other replies about trainings in some rounds; its SuperNode sends every reply twice.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from fedcohort.core.files.state_files import pack, unpack
from fedcohort.flower.sites import serve
from fedcohort.flower.sites.site import Site

Said = dict[str, Any]


def change_rows(said: Said) -> None:
    """One client's update has NaN, that of another has another shape, and a third reports NaN."""
    first, second, third, *_ = sorted(said["clients"], key=lambda row: str(row["name"]))
    name = next(iter(first["state"]))
    first["state"][name] = torch.full_like(first["state"][name], float("nan"))
    second["state"][name] = second["state"][name][:1]
    third["report"]["loss"] = float("nan")


def swell(said: Said) -> None:
    """The reply is larger than what is read."""
    said["more"] = torch.zeros(2**22)


def repeat(said: Said) -> None:
    """One client's update is there twice."""
    said["clients"].append(said["clients"][0])


CHANGES: dict[int, Callable[[Said], None]] = {2: change_rows, 3: swell, 4: repeat}
"""What is done to the reply about the training of a round."""


def main(path: str) -> int:
    """Serve the site."""
    handle, command = Site.handle, serve.supernode_command

    def rogue(site: Site, request: bytes) -> bytes:
        words, reply = unpack(request), handle(site, request)
        if words["kind"] != "train" or words["round"] not in CHANGES:
            return reply
        said = unpack(reply)
        CHANGES[words["round"]](said)
        return pack(said)

    def node(*arguments: Any, **settings: Any) -> list[str]:
        usual = command(*arguments, **settings)
        return [sys.executable, "-m", "tests.flower.deployed.rogue_node", "twice", *usual[1:]]

    for owner, name, value in ((Site, "handle", rogue), (serve, "supernode_command", node)):
        setattr(owner, name, value)
    return serve.serve_site(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
