"""Forward and backward passes of networks on a CPU that PyTorch runs without Python and without autograd (TorchScript).

The operators that PyTorch calls in a pass are written down once (:mod:`fedcohort.training.call_recorder`), and called again for every
batch of the same size. That saves the work of Python and of autograd, which is most of a step of a small network, and threads that
train other clients do not wait for Python's lock. A script is used only if it has the bits of autograd.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.algorithms import Tensors
from fedcohort.algorithms.base import Correction
from fedcohort.algorithms.losses import Loss
from fedcohort.core.random_streams import torch_seeded
from fedcohort.training.call_recorder import CallRecorder, WithoutReading
from fedcohort.training.forward_code import only_computes
from fedcohort.training.network_watch import NetworkWatch
from fedcohort.training.optimizer_steps import correct, take_step  # noqa: F401 - scripts call them
from fedcohort.training.optimizers import Optimizer
from fedcohort.training.recorded_passes import pass_by_autograd, python_state

__all__ = ["ScriptedPass", "Scripts"]

USES = 16
"""Number of batches of a size after which it gets a script. Making one takes a tenth of a second."""
SIZES = 8
"""Maximum number of sizes that get one."""
LONGEST = 0.1
"""Seconds of a pass up to which a script is worth it. In a longer one, Python and autograd take a negligible share."""
SEED = 7919
"""Seed of the random numbers with which a script is compared with autograd."""

_ONE_AT_A_TIME = threading.Lock()
"""PyTorch notes in a global variable, which two threads would not restore, that calls are seen."""

_PASS = """
def one_pass(
    values: List[Tensor], others: List[Tensor], constants: List[Tensor], inputs: Tensor, labels: Tensor, draws: List[Generator]
):"""

_EPOCH = """
def descend(
    values: List[Tensor], others: List[Tensor], constants: List[Tensor], features: Tensor, labels: Tensor, order: Tensor, size: int,
    rule: str, rates: List[float], nesterov: bool, states: List[List[Tensor]], fresh: bool,
    shifts: List[Tensor], anchors: List[Tensor], mu: float, draws: List[Generator]
):
    seen: List[Tensor] = []
    last: List[Tensor] = []
    right = torch.zeros([], dtype=torch.int64)
    for start in range(0, len(order), size):
        index = order[start : start + size]
        inputs = features.index_select(0, index)
        inputs = inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs
        step = start // size
        batch = labels.index_select(0, index)
        losses, hits, last = one_pass(values, others, constants, inputs, batch, draws[step : step + 1])
        correct(last, values, shifts, anchors, mu)
        take_step(values, last, rule, rates, nesterov, states, fresh and start == 0)
        seen.append(losses)
        right = right + hits
    return seen, right, last
"""
"""The steps of :meth:`ScriptedPass.descend`."""


class Scripts:
    """The scripted passes of one network, by batch size; a size gets one after it was used :data:`USES` times.

    Args:
        module: the network, on a CPU.
        parameters: its trained parameters.
        loss: the local loss.
        draws: whether the network draws random numbers in training.
    """

    def __init__(self, module: nn.Module, parameters: Tensors, loss: Loss, draws: bool) -> None:
        self._network = _Network(module, list(parameters.values()), loss, draws)
        self._known: dict[int, ScriptedPass | None] = {}
        self._uses = Counter[int]()

    @cached_property
    def possible(self) -> bool:
        """Whether nothing is known that prevents scripts: Python code that does something else than compute, for instance."""
        module, loss = self._network.module, self._network.loss
        return (
            sys.version_info < (3, 14)  # for which PyTorch does not support TorchScript
            and type(loss).__module__.startswith("fedcohort.")  # other losses may do anything in their code
            and not loss.needs_outputs
            and not any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
            and only_computes(module)
        )

    def known(self, size: int) -> "ScriptedPass | None":
        """The script for batches of this size, if there is one and the network has not changed since."""
        found = self._known.get(size)
        return found if found is not None and found.holds() else None

    def all_known(self) -> "dict[int, ScriptedPass]":
        """The scripts by batch size, as for :meth:`known`, that have gradients of all parameters."""
        known = {size: self.known(size) for size in self._known}
        return {size: script for size, script in known.items() if script is not None and script.complete}

    def of(self, features: Tensor, labels: Tensor) -> "ScriptedPass | None":
        """As :meth:`known`, for this batch, which counts as a use of its size."""
        size = len(labels)
        if size not in self._known and len(self._known) < SIZES and self.possible:
            self._uses[size] += 1
            if self._uses[size] > USES:
                self._known[size] = _script_pass(self._network, features, labels)
        return self.known(size)


class _Network(NamedTuple):
    """What a script is made of; see :class:`Scripts`."""

    module: nn.Module
    parameters: list[Tensor]
    loss: Loss
    draws: bool

    def play(
        self, features: Tensor, labels: Tensor, forward: AbstractContextManager[object] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The pass of a batch by autograd, with random numbers that depend on nothing; ``forward`` as for
        :func:`~fedcohort.training.recorded_passes.pass_by_autograd`."""
        with torch_seeded(SEED, labels.device) if self.draws else nullcontext():
            return pass_by_autograd(self.module, self.loss, features, labels, forward)


class ScriptedPass:
    """The pass of a network in training for batches of one size.

    Attributes:
        source: the script of the pass.
        given: tensors that it is given: the trained parameters, others of the network, and constants.
        draws: whether it draws random numbers.
        complete: whether every trained parameter has a gradient, and batches have the memory layout of selected rows.
    """

    def __init__(
        self, network: _Network, source: str, others: list[Tensor], constants: list[Tensor], with_gradient: list[int],
        features: Tensor, labels: Tensor,
    ) -> None:  # fmt: skip
        parameters = network.parameters
        self._watch, self._parameters = NetworkWatch(network.module, parameters), parameters
        self.source, self._script = source, _compiled(source)
        self.draws = network.draws
        self._training = [part.training for part in self._watch.parts]
        self.given = [p.detach() for p in parameters], [other.detach() for other in others], constants
        self._with_gradient = with_gradient
        self._kind = _kind(features), _kind(labels)
        self.complete = len(with_gradient) == len(parameters) and _is_of_rows(features)

    def holds(self) -> bool:
        """Whether the script still computes what the network computes."""
        return self._watch.unchanged() and [part.training for part in self._watch.parts] == self._training

    def play(
        self, features: Tensor, labels: Tensor, draws: Sequence[torch.Generator] = ()
    ) -> tuple[Tensor, Tensor] | None:
        """Set ``.grad`` to the gradients of the mean loss of this batch; None if the batch has another size or memory layout, or if
        there was an error, which autograd then explains better. ``draws`` is the generator of a network that draws.

        Returns:
            the cross-entropy of each sample and the number of correct predictions.
        """
        if (_kind(features), _kind(labels)) != self._kind:
            return None
        try:
            losses, right, gradients = self.run(self._script.one_pass, *self.given, features, labels, list(draws))
        except RuntimeError:
            return None
        for parameter in self._parameters:
            parameter.grad = None
        for number, gradient in zip(self._with_gradient, gradients, strict=True):
            self._parameters[number].grad = gradient
        return losses, right

    def descend(
        self,
        features: Tensor,
        labels: Tensor,
        order: Tensor,
        size: int,
        optimizer: Optimizer,
        correction: Correction | None = None,
        anchors: Sequence[Tensor] = (),
        draws: Sequence[torch.Generator] = (),
    ) -> tuple[list[Tensor], Tensor]:
        """Take a step for every batch, as :meth:`Program.descend <fedcohort.training.plain_network.Program.descend>`; the length of
        ``order`` is a multiple of ``size``, the size of the script."""
        rule, added = optimizer.rule(), correction or Correction()
        try:
            seen, right, gradients = self.run(
                self._script.descend, *self.given, features, labels, order, size, rule.kind, rule.rates, rule.nesterov,
                rule.states, rule.fresh, list(added.shift.values()), list(anchors) if added.proximal else [], added.proximal,
                list(draws),
            )  # fmt: skip
        except RuntimeError as error:  # TorchScript's error has many lines
            raise RuntimeError(" ".join(str(error).splitlines()[-1:])) from None
        for parameter, gradient in zip(self._parameters, gradients, strict=len(order) > 0):
            parameter.grad = gradient
        return seen, right

    @staticmethod
    def run(function: Callable[..., Any], *given: object) -> Any:
        """Run a function of a script without TorchScript's optimizations, which would change bits from the second call on.

        Nothing that is given requires a gradient. Autograd is on all the same, because recurrent layers do not keep what their
        gradients need otherwise.
        """
        with torch.enable_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return function(*given)


def _is_of_rows(features: Tensor) -> bool:
    """Whether a batch has the memory layout of selected rows: images with channels last."""
    images = features.dim() == 4
    rows = features.permute(0, 2, 3, 1) if images else features
    return rows.stride() == torch.empty(rows.shape, device="meta").stride()


def _kind(tensor: Tensor) -> tuple[object, ...]:
    """What a script depends on, except for the values."""
    return tensor.shape, tensor.stride(), tensor.dtype


def _script_pass(network: _Network, features: Tensor, labels: Tensor) -> ScriptedPass | None:
    """The script for batches like this one; the module, its buffers and its gradients stay as they are.

    None if a pass is long, if it cannot be written down, if the script has other bits, and if passes may differ from step to step.
    """
    module, parameters = network.module, network.parameters
    if not NetworkWatch(module, parameters).unchanged():
        return None
    before, buffers = python_state(module), [buffer.clone() for buffer in module.buffers()]
    gradients = [parameter.grad for parameter in parameters]

    @torch.no_grad()
    def reset() -> None:
        for buffer, value in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(value)
        for parameter in parameters:
            parameter.grad = None

    try:
        reset()
    except RuntimeError:  # a buffer has overlapping memory
        return None
    found = None
    with suppress(Exception):  # the network's own errors as well: the training raises them
        begin = time.perf_counter()
        network.play(_copy(features), _copy(labels))
        if time.perf_counter() - begin <= LONGEST:
            found = _scripted(network, features, labels, reset)
    reset()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return found if python_state(module) == before else None


def _scripted(network: _Network, features: Tensor, labels: Tensor, reset: Callable[[], None]) -> ScriptedPass | None:
    """The script, if it has the bits of autograd; ``reset`` undoes what a pass changes in the module.

    Raises:
        Exception: the calls cannot be written down, or the script cannot be run.
    """
    module, parameters = network.module, network.parameters
    inputs, targets = _copy(features), _copy(labels)
    others = _other_tensors(module, parameters)
    given = [(f"values[{i}]", value) for i, value in enumerate(parameters)]
    given += [(f"others[{i}]", other) for i, other in enumerate(others)]
    changing = {id(buffer) for buffer in module.buffers()}
    fixed = [*parameters, *(other for other in others if id(other) not in changing)]
    recorder = CallRecorder([*given, ("inputs", inputs), ("labels", targets)], fixed)
    reset()
    with _ONE_AT_A_TIME, recorder:
        results = network.play(inputs, targets, WithoutReading())
    if recorder.draws != network.draws:
        return None
    with_gradient = [i for i, parameter in enumerate(parameters) if parameter.grad is not None]
    words = [recorder.name(result) for result in results]
    words.append(f"[{', '.join(recorder.name(parameters[i].grad) for i in with_gradient)}]")  # type: ignore[arg-type]
    lines = [_PASS, *(["generator = draws[0]"] if network.draws else []), *recorder.lines, f"return {', '.join(words)}"]
    source = "\n    ".join(lines) + "\n"
    found = ScriptedPass(network, source, others, recorder.constants, with_gradient, features, labels)
    return found if _has_bits_of_autograd(found, network, features, labels, reset) else None


@lru_cache(64)
def _compiled(source: str) -> Any:
    """The functions of a script, which calls functions of this module. Threads with copies of a network share them."""
    return torch.jit.CompilationUnit(source + _EPOCH)


def _other_tensors(module: nn.Module, parameters: list[Tensor]) -> list[Tensor]:
    """What a pass may read besides the trained parameters: other parameters, buffers, and tensors that are attributes."""
    tensors = [*module.parameters(), *module.buffers()]
    tensors += [value for part in module.modules() for value in vars(part).values() if isinstance(value, Tensor)]
    unique = {id(tensor): tensor for tensor in tensors}
    for parameter in parameters:
        unique.pop(id(parameter), None)
    return list(unique.values())


def _copy(values: Tensor, like: Tensor | None = None) -> Tensor:
    """A copy in the memory layout of ``like``."""
    return torch.empty_like(values if like is None else like).copy_(values)


def _has_bits_of_autograd(
    found: ScriptedPass, network: _Network, features: Tensor, labels: Tensor, reset: Callable[[], None]
) -> bool:
    """Whether the script has autograd's results, gradients and buffers for two batches."""

    def outcome(play: Callable[[Tensor, Tensor], tuple[Tensor, Tensor] | None], *batch: Tensor) -> list[Tensor]:
        reset()
        results = play(_copy(batch[0], features), _copy(batch[1], labels)) or ()
        gradients = [parameter.grad for parameter in network.parameters if parameter.grad is not None]
        return [_copy(tensor) for tensor in (*results, *gradients, *network.module.buffers())]

    for batch in ((features, labels), (features.flip(0), labels.roll(1, 0))):
        draws = [torch.Generator().manual_seed(SEED)] if network.draws else []
        expected, played = outcome(network.play, *batch), outcome(partial(found.play, draws=draws), *batch)
        if len(played) < len(expected) or not all(map(_same, played, expected)):
            return False
    return True


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.stride() == other.stride() and torch.equal(tensor, other)
