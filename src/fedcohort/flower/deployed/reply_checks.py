"""Read the updates in a site's reply, and refuse what does not fit the model: a reply that cannot be used is a failed client."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcohort.algorithms import ModelState, Tensors, Update
from fedcohort.core.errors import one_line
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.core.words.report_names import MEASURED_BY_SERVER
from fedcohort.flower.sites.protocol import BadMessage, Words

__all__ = ["Expected", "Layout", "layout_of"]

Layout = dict[str, dict[str, tuple[torch.dtype, torch.Size]]]
"""Group → name → number format and shape."""

MOST_REPORTS, LONGEST_NAME = 100, 60
OVERHEAD = 2**20
"""Bytes that a reply may have besides its tensors, and for each of its clients."""


def layout_of(groups: Mapping[str, Tensors]) -> Layout:
    """The layout of groups of tensors."""
    return {
        group: {name: (value.dtype, value.shape) for name, value in tensors.items()}
        for group, tensors in groups.items()
    }


@dataclass(frozen=True)
class Expected:
    """What an update must look like.

    Attributes:
        model: the model that the clients received.
        trainable: names of its trainable parameters; only these may be left out.
        extra: layout of what the algorithm sends beside the model; None if it is not known.
        partial: whether clients were told to send a part of their update.
    """

    model: ModelState
    trainable: frozenset[str]
    extra: Layout | None
    partial: bool = False

    def largest(self, clients: int) -> int:
        """Largest number of bytes of a reply about so many clients."""
        model = num_bytes([self.model])
        beside = sum(
            dtype.itemsize * shape.numel() for group in (self.extra or {}).values() for dtype, shape in group.values()
        )
        if self.extra is None:
            beside = 8 * model
        return OVERHEAD + clients * (model + beside + OVERHEAD)

    def update(self, words: Words, client: int, num_samples: int) -> Update:
        """The update of a client.

        Raises:
            BadMessage: something in it does not fit.
        """
        if (said := words.count("num_samples")) != num_samples:
            raise BadMessage(f"it has {said} samples, and had {num_samples} on first contact")
        sent = frozenset(words.names("sent")) if words.has("sent") else None
        failure = one_line(words.text("failure")) if words.has("failure") else None
        return Update(
            client=client,
            num_samples=num_samples,
            steps=words.count("steps"),
            state=self._state(words.tensors("state"), sent),
            extra=self._extra(words.groups("extra"), failed=failure is not None),
            report=_report(words.part("report")),
            passes=words.number("passes"),
            work=words.number("work"),
            sent=sent,
            failure=failure,
        )

    def _state(self, state: Tensors, sent: frozenset[str] | None) -> ModelState:
        """The tensors of a model; those that were not sent are those that the client received."""
        names = frozenset(self.model) if sent is None else sent
        if sent is not None and not self.partial:
            raise BadMessage("it sent a part of its update, and was not told to")
        if missing := frozenset(self.model) - names - self.trainable:
            raise BadMessage(f"tensor {min(missing)!r} was left out, which is not trained")
        if different := names ^ frozenset(state) or names - frozenset(self.model):
            raise BadMessage(f"its tensors are not those of the model: {min(different)[:LONGEST_NAME]!r}")
        for name, value in state.items():
            _check(value, (self.model[name].dtype, self.model[name].shape), name)
        return {name: state[name] if name in state else self.model[name].clone() for name in self.model}

    def _extra(self, extra: dict[str, Tensors], *, failed: bool) -> dict[str, Tensors]:
        """What the algorithm sends beside the model; a client that failed may send nothing."""
        if self.extra is None or (failed and not extra):
            return extra
        found = {group: set(tensors) for group, tensors in extra.items()}
        if found != {group: set(tensors) for group, tensors in self.extra.items()}:
            raise BadMessage("what it sent beside the model is not what the algorithm sends")
        for group, tensors in extra.items():
            for name, value in tensors.items():
                _check(value, self.extra[group][name], f"{group}.{name}")
        return extra


def _check(value: Tensor, wanted: tuple[torch.dtype, torch.Size], name: str) -> None:
    dtype, shape = wanted
    if value.dtype != dtype or value.shape != shape:
        raise BadMessage(
            f"tensor {name!r} is {value.dtype} {list(value.shape)}, not {dtype} {list(shape)}".replace("torch.", "")
        )


def _report(words: Words) -> dict[str, float]:
    """The numbers that a client reports."""
    names = list(words.values)
    if len(names) > MOST_REPORTS or any(len(name) > LONGEST_NAME for name in names):
        raise BadMessage(
            f"its report has {len(names)} names; at most {MOST_REPORTS} of {LONGEST_NAME} letters are read"
        )
    if hidden := [name for name in names if not name.isprintable()]:
        raise BadMessage(f"it reports {hidden[0]!r}, a name with characters that cannot be printed")
    if reserved := [name for name in names if name.startswith(MEASURED_BY_SERVER)]:
        raise BadMessage(f"it reports {reserved[0]!r}, which only the server can measure")
    values = Words({"report": list(words.values.values())}, words.where).numbers("report")
    return dict(zip(names, values, strict=True))
