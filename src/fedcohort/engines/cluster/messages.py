"""What the driver and the hosts of a cluster send to each other: data, settings, models and updates."""

import platform
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.own_code import place_of, raised_in, with_place
from fedcohort.engines.base import ClientError
from fedcohort.engines.cluster.flat_arrays import Bytes, ModelLayout, NestedArrays
from fedcohort.engines.cluster.own_modules import OwnModules
from fedcohort.engines.device import Arithmetic
from fedcohort.federation.federation import Federation, Samples

__all__ = [
    "Broadcast", "Facts", "Failed", "HostError", "Plugins", "Setup", "TrainedClient", "TrainedGroup", "clients_of", "federation_of",
]  # fmt: skip


class Facts(NamedTuple):
    """What a host says of itself: its node, machine and process, and what the bits of its arithmetic can depend on."""

    node: str
    machine: str
    pid: int
    processor: str
    instructions: str

    @property
    def name(self) -> str:
        """The host in words."""
        return f"host {self.node[:8]}/{self.pid} on {self.machine}"


@dataclass(frozen=True)
class Failed:
    """An error in the work of a host.

    Attributes:
        message: what happened; in code of the user also the file and the line.
        traceback: the traceback as text.
        own: whether the error is one in code of the user, or in a setting.
        lacking: the machine that lacks a file or a package; empty for other errors.
    """

    message: str
    traceback: str
    own: bool = False
    lacking: str = ""

    @staticmethod
    def of(error: BaseException) -> "Failed":
        """The error that is being handled, in a form that every process can read."""
        lines = "".join(traceback.format_exception(error))
        cause = error.__cause__ or error if isinstance(error, ClientError) else error
        lacking = platform.node() if isinstance(cause, FileNotFoundError | ModuleNotFoundError) else ""
        if isinstance(error, ClientError):
            own = bool(raised_in(cause))
            return Failed(str(error) + place_of(cause), lines, own or isinstance(cause, UsageError), lacking)
        function = raised_in(error)
        if function and not isinstance(error, UsageError):
            return Failed(f"{function} raised {with_place(error)}", lines, True, lacking)
        return Failed(str(error) or type(error).__name__, lines, isinstance(error, UsageError))

    def error(self) -> ClientError:
        """The error that the driver raises; its cause holds the traceback of the host."""
        error = ClientError(self.message + self._about_machine())
        error.__cause__ = (OwnHostError if self.own else HostError)(self.traceback)
        return error

    def _about_machine(self) -> str:
        """Where a file or a package is lacking, if it is another machine than this one."""
        if self.lacking in ("", platform.node()):
            return ""
        return f", on {self.lacking}: files must be at the same place, and packages installed, on every machine of the cluster"


class HostError(Exception):
    """The traceback of an error on a host."""


class OwnHostError(HostError, UsageError):
    """The traceback of an error in the user's code or in a setting, on a host."""

    def __init__(self, lines: str) -> None:
        Exception.__init__(self, lines)  # a traceback has many lines


class Plugins(NamedTuple):
    """The parts of an engine that users can write: the model, the settings of the training, the algorithm and the loss, if it was
    given in Python, all pickled; and the modules of users that they need."""

    modules: OwnModules
    pickled: bytes


@dataclass(frozen=True)
class Setup:
    """What a host needs in order to train the clients of an engine.

    Attributes:
        clients: the data, see :func:`clients_of`.
        plugins: model, settings of the training, algorithm.
        seed: the experiment's seed.
        stacked: whether clients are trained in stacks.
        device: device of the tensors.
        arithmetic: see :mod:`fedcohort.engines.device`.
        omitted: names of the entries of the network that models do not have.
        frozen: the values of those that are parameters.
        layout: where the entries of a model lie in its bytes.
        threads_per_client: number of intra-op threads with which a client is trained.
    """

    clients: Mapping[str, Any]
    plugins: Plugins
    seed: int
    stacked: bool
    device: str
    arithmetic: Arithmetic
    omitted: frozenset[str]
    frozen: NestedArrays
    layout: ModelLayout
    threads_per_client: int


@dataclass(frozen=True)
class Broadcast:
    """What all clients receive: the model as one row of bytes, and the tensors that the algorithm sends beside it."""

    model: Bytes
    received: NestedArrays


class TrainedClient(NamedTuple):
    """An update without its model: the fields of :class:`~fedcohort.algorithms.Update` that are numbers and words, the tensors beside
    the model, the client's new memory, whether there is a model, and whether all its numbers are finite."""

    words: dict[str, Any]
    extra: NestedArrays
    memory: NestedArrays
    has_model: bool
    finite: bool


class TrainedGroup(NamedTuple):
    """The result of a group of clients: one entry for each, and their models, uint8 [n, bytes]; None if the host kept the models.
    A client without a result has a row of zeros. A host that keeps the models can send their mean, weighted by samples, as one such
    row."""

    clients: list[TrainedClient]
    models: Bytes | None
    mean: Bytes | None = None


def clients_of(federation: Federation) -> dict[str, Any]:
    """The training data of all clients and the test set as numpy arrays. Some stopping rules measure something on the test set."""
    return {
        "train": _arrays(federation.train),
        "test": _arrays(federation.test),
        "test_clients": federation.test_clients,
        "offsets": federation.offsets,
        "held": federation.held,
        "shift": federation.shift.cpu().numpy(),
        "scale": federation.scale.cpu().numpy(),
        "classes": federation.classes,
        "vocabulary": federation.vocabulary,
        "integers": federation.integers,
    }


def _arrays(samples: Samples) -> tuple[object, object, object]:
    rows = None if samples.rows is None else samples.rows.cpu().numpy()
    return samples.source.cpu().numpy(), samples.labels.cpu().numpy(), rows


def _samples(arrays: tuple[object, object, object]) -> Samples:
    source, labels, rows = arrays
    return Samples(torch.from_numpy(source), torch.from_numpy(labels), None if rows is None else torch.from_numpy(rows))


def federation_of(clients: Mapping[str, Any], where: str) -> Federation:
    """The federation of :func:`clients_of`, whose tensors are views of the arrays and must not be changed."""
    train = _samples(clients["train"])
    return Federation(
        train=train,
        offsets=clients["offsets"],
        validation=Samples(train.source[:0], train.labels[:0]),
        test=_samples(clients["test"]),
        test_clients=clients["test_clients"],
        classes=clients["classes"],
        shift=torch.from_numpy(clients["shift"]),
        scale=torch.from_numpy(clients["scale"]),
        held=clients["held"],
        integers=clients["integers"],
        vocabulary=clients["vocabulary"],
    ).to(where)
