"""What a request asks of the clients of a site, and the data of these clients as a federation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedcohort.algorithms import Algorithm, Tensors
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.plugins import is_file_name
from fedcohort.federation.federation import Federation, Samples
from fedcohort.flower.sites.protocol import BadMessage, Words
from fedcohort.selection import Cohort

__all__ = [
    "ClientData",
    "ReceivedGroups",
    "Work",
    "check_not_a_file",
    "client_data",
    "cohort_of",
    "epochs_of",
    "federation_of",
]

MOST_CLIENTS = 10**7
"""Largest number of clients of a federation, each of which needs 16 bytes at every site."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """The data of one client.

    Attributes:
        training: the samples that it trains on.
        held_out: the samples that it holds out.
    """

    training: Samples
    held_out: Samples


def client_data(federation: Federation, client: int) -> ClientData:
    """The data of one client of a federation, in copies."""
    parts = federation.client(client), federation.held_out(client)
    return ClientData(*(Samples(part.features.clone(), part.labels.clone()) for part in parts))


@dataclass(frozen=True)
class Work:
    """What one client is to do.

    Attributes:
        name: the client.
        memory: version of the memory that it begins with.
        epochs, share: see :class:`~fedcohort.selection.Cohort`; None for ordinary training.
        sampling, stop: likewise.
    """

    name: str
    memory: str
    epochs: int | None
    share: float | None
    sampling: str
    stop: Mapping[str, object] | None

    @staticmethod
    def read(words: Words) -> "Work":
        """The work in a request.

        Raises:
            BadMessage: it is not complete.
            UsageError: its stopping rule is in a file.
        """
        return Work(
            words.text("name"),
            words.text("memory"),
            words.count("epochs") if words.has("epochs") else None,
            words.number("share") if words.has("share") else None,
            words.text("sampling") if words.has("sampling") else "shuffled",
            _installed_rule(words.part("stop")) if words.has("stop") else None,
        )


def check_not_a_file(where: str, name: object) -> None:
    """Refuse a plug-in in a file. A server could otherwise run any Python file that a site has.

    Raises:
        UsageError: the name, which the server has sent as the setting ``where``, is that of a file.
    """
    if isinstance(name, str) and is_file_name(name):
        raise UsageError(f"{where} = {shown(name)}: a site runs no files that a server names")


def _installed_rule(stop: Words) -> Mapping[str, object]:
    """The stopping rule in a request, which is built in or installed."""
    check_not_a_file("Cohort.stop.rule", stop.values.get("rule"))
    return stop.values


def cohort_of(asked: Mapping[int, Work], clients: Sequence[int]) -> Cohort:
    """The clients' work as a cohort."""
    work = [asked[client] for client in clients]
    epochs = [each.epochs for each in work if each.epochs is not None]
    share = [each.share for each in work if each.share is not None]
    return Cohort(
        np.array(clients, dtype=np.int64),
        epochs=np.array(epochs, dtype=np.int64) if epochs else None,
        share=np.array(share, dtype=np.float64) if share else None,
        sampling=cast(Any, work[0].sampling) if work else "shuffled",  # checked by Cohort
        stop=work[0].stop if work else None,
    )


def epochs_of(request: Words, nominal: int) -> int:
    """The epochs of all clients that a request names; ``nominal`` is the number of those that it tells none."""
    work = [Work.read(words) for words in request.parts("clients")]
    return sum(nominal if each.epochs is None else each.epochs for each in work)


class ReceivedGroups:
    """What the server's half of the algorithm has broadcast; engines read nothing else of it."""

    def __init__(self, groups: dict[str, Tensors]) -> None:
        self.groups = groups

    def broadcast(self) -> dict[str, Tensors]:
        """See :class:`fedcohort.algorithms.Algorithm`."""
        return self.groups

    @property
    def algorithm(self) -> Algorithm:
        """This object, for an engine."""
        return cast(Algorithm, self)


def federation_of(setup: Words, names: Mapping[int, str], clients: Mapping[str, ClientData]) -> Federation:
    """The clients of a site in a federation in which all others have no samples.

    Args:
        setup: what the server says about the federation.
        names: name of each client of the site, by number.
        clients: their data, by name.

    Raises:
        BadMessage: the setup does not fit together.
        UsageError: the server's samples have another shape.
    """
    if (number_of_clients := setup.count("clients")) > MOST_CLIENTS:
        raise BadMessage(f"{number_of_clients:,} clients; at most {MOST_CLIENTS:,} are possible")
    if not names:
        raise BadMessage("this site has none of the clients that it names")
    sizes = np.zeros((number_of_clients, 2), dtype=np.int64)
    parts: list[Samples] = []
    for number in sorted(names):
        data = clients[names[number]]
        if number >= len(sizes):
            raise BadMessage(f"client number {number} of {len(sizes)} clients")
        sizes[number] = len(data.training), len(data.held_out)
        parts += [data.training, data.held_out]
    features = torch.cat([part.features for part in parts])
    train = Samples(features, torch.cat([part.labels for part in parts]))
    shape = tuple(setup.counts("shape"))
    if tuple(features.shape[1:]) != shape:
        raise UsageError(f"the server's samples have the shape {list(shape)}, this site's {list(features.shape[1:])}")
    standard = setup.tensors("standardization")
    offsets = np.concatenate([[0], np.cumsum(sizes.sum(axis=1))])
    held = sizes[:, 1].copy() if sizes[:, 1].any() else None
    nothing = train[:0]
    classes = tuple(setup.names("classes"))
    return Federation(
        train, offsets, nothing, nothing, classes, _of(standard, "shift"), _of(standard, "scale"), held
    )  # fmt: skip


def _of(tensors: Tensors, name: str) -> Tensor:
    if name not in tensors:
        raise BadMessage(f"the request has no {name}")
    return tensors[name].double()
