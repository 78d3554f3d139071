"""Entries of a network that its models do not have, because clients know them from the beginning and no training changes them.

A model is what clients receive, train and send. The entries of the network's state dictionary that it omits are frozen parameters,
such as a pretrained part, the second names of parameters that two layers share, and buffers with infinite numbers, such as the mask of
an attention: an update with such numbers would count as diverged.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn

from fedcohort.algorithms import ModelState
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import torch_seeded
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.federation.federation import Federation

__all__ = ["FrozenParameters", "omitted_entries", "second_names"]

PASSES = 2
"""Number of passes that show whether a network changes its frozen parameters itself."""
SMALL = 2**20
"""Bytes of frozen parameters up to which all of them are read after every training."""
OFTEN = 16
"""Larger ones are read after the first training, and then after every so many."""


def omitted_entries(first: nn.Module, build: Callable[[], nn.Module], federation: Federation) -> frozenset[str]:
    """The names of the entries that models of a network omit.

    A frozen parameter or a buffer is not among them if the network changes it in its passes, as a mean teacher does, or if it differs
    each time that the network is built: clients must then receive it.

    Args:
        first: the network with its initial weights.
        build: builds it again.
        federation: has samples of the network's kind.
    """
    others = second_names(first)
    kept: dict[str, Tensor] = {name: p for name, p in first.named_parameters() if not p.requires_grad}
    kept |= {name: buffer for name, buffer in _sent_buffers(first).items() if not bool(buffer.isfinite().all())}
    if not kept:
        return frozenset(others)
    module = build()
    with _passed_through(module, federation):
        now = dict(module.named_parameters()) | _sent_buffers(module)
        fixed = {name for name, value in kept.items() if torch.equal(value, now[name])}
    return frozenset(fixed | others.keys())


def _sent_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers in the state dictionary, by name."""
    entries = module.state_dict().keys()
    return {name: buffer for name, buffer in module.named_buffers() if name in entries}


@contextmanager
def _passed_through(module: nn.Module, federation: Federation) -> Iterator[None]:
    """The network after passes in training mode with other weights than the first: mean teachers often begin as a copy of them."""
    samples = max((federation.test, federation.train, federation.validation), key=len)[:2]
    trained = [p for p in module.parameters() if p.requires_grad and p.is_floating_point()]
    before = [p.detach().clone() for p in trained]
    module.train()
    with suppress(Exception), torch.enable_grad():  # an error is shown where clients are trained
        inputs = federation.prepare(samples.features, trained[0].dtype)
        for p in trained:
            p.data.mul_(0.5).add_(0.1)
        for _ in range(PASSES):
            with torch_seeded(0, inputs.device):
                module(inputs).sum().backward()
    try:
        yield
    finally:
        for p, value in zip(trained, before, strict=True):  # networks may share them
            p.data.copy_(value)
            p.grad = None


def second_names(module: nn.Module) -> dict[str, str]:
    """Entries of the state dictionary that are another name of a parameter, with the first name of each.

    Such as the weight of a last layer that is the table of an embedding. Parameters go by their first name everywhere else.
    """
    first: dict[int, str] = {}
    names = [(name, first.setdefault(id(p), name)) for name, p in module.named_parameters(remove_duplicate=False)]
    return {name: other for name, other in names if name != other}


class FrozenParameters:
    """The parameters that models omit, and whether they are still as they were.

    Args:
        module: the network.
        omitted: names of the entries that its models omit.
    """

    def __init__(self, module: nn.Module, omitted: Collection[str]) -> None:
        self._values = {name: p for name, p in module.named_parameters() if name in omitted}
        self._large = num_bytes([self._values]) > SMALL
        self._calls = 0
        self._sums, self._marks = self._sums_now(), self._marks_now()

    def check(self) -> None:
        """Check that no training has changed them: their new values would not be sent.

        Changes of large ones that torch does not know of, as by ``.data``, are found after at most :data:`OFTEN` trainings.

        Raises:
            UsageError: one of them has other values than at first.
        """
        self._calls += 1
        if self._large and self._calls % OFTEN != 1 and self._marks_now() == self._marks:
            return
        for name, now, before in zip(self._values, self._sums_now(), self._sums, strict=True):
            if now != before:
                raise UsageError(
                    f"model: its training changed the parameter {name!r}, which has requires_grad = False and is not sent, because "
                    "trial passes did not change it; make it a buffer (register_buffer)"
                )
        self._marks = self._marks_now()

    def set(self, values: Mapping[str, Tensor]) -> None:
        """Give them these values, by name."""
        with torch.no_grad():
            for name, value in self._values.items():
                value.copy_(values[name])
        self._sums, self._marks = self._sums_now(), self._marks_now()

    def values(self) -> ModelState:
        """Their values, by name."""
        return {name: value.detach() for name, value in self._values.items()}

    def _sums_now(self) -> list[int]:
        """A number for each, in which every bit counts."""
        sums = [_sum_of_bits(value.detach()) for value in self._values.values()]
        return [int(total) for total in torch.stack(sums).tolist()] if sums else []

    def _marks_now(self) -> list[tuple[int, int]]:
        """Where each of them lies, and how often torch has changed it."""
        return [(value.data_ptr(), value._version) for value in self._values.values()]


def _sum_of_bits(value: Tensor) -> Tensor:
    """The sum of the tensor's memory as integers, int64 []; ten times cheaper than a comparison with a copy."""
    dense = value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))
    flat = value.as_strided((value.numel(),), (1,)) if dense else value.flatten().contiguous()
    words = flat.view(torch.uint8)
    words = words.clone() if words.storage_offset() % 8 else words
    whole = len(words) // 8 * 8
    return words[:whole].view(torch.int64).sum() + words[whole:].sum()
