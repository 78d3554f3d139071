"""Which networks are trained by scripts, and how a script is made.

The operators that PyTorch calls in a pass are written down once (:mod:`fedcohort.training.scripts.call_recorder`), and called again
for every batch of the same size (:mod:`fedcohort.training.scripts.scripted_passes`). That saves the work of Python and of autograd,
which is most of a step of a small network, and threads that train other clients do not wait for Python's lock. A script is used only
if it has the bits of autograd.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice

import torch
from torch import Tensor, nn

from fedcohort.algorithms import Tensors
from fedcohort.algorithms.losses import Loss
from fedcohort.core.script_threads import can_fork
from fedcohort.training.code_reading.forward_code import only_computes
from fedcohort.training.code_reading.loss_code import loss_only_computes, tensors_of_loss
from fedcohort.training.code_reading.network_watch import NetworkWatch
from fedcohort.training.networks.random_layers import recomputes
from fedcohort.training.scripts.call_recorder import ONE_AT_A_TIME, CallRecorder
from fedcohort.training.scripts.reading_functions import WithoutReading
from fedcohort.training.scripts.recorded_passes import python_state
from fedcohort.training.scripts.scripted_passes import SEED, Network, ScriptedPass, source_of

__all__ = ["Scripts"]

USES = 16
"""Number of batches of a size after which it gets a script. Making one takes a tenth of a second."""
SIZES = 8
"""Maximum number of sizes that get one."""
ENOUGH = 2
"""Least number of batches for which a script must have the bits of autograd. For others, the network may read other numbers."""
LONGEST = 0.1
"""Seconds of a pass up to which a script is worth it. In a longer one, Python and autograd take a negligible share: it is worth it
only for passes in which threads are idle."""


LARGE = 2**16
"""Number of weights from which on products with them may be worth dividing."""


class Scripts:
    """The scripted passes of one network, by batch size; a size gets one after it was used :data:`USES` times.

    Args:
        module: the network, on a CPU.
        parameters: its trained parameters.
        loss: the local loss.
        draws: whether the network draws random numbers in training.
    """

    def __init__(self, module: nn.Module, parameters: Tensors, loss: Loss, draws: bool) -> None:
        self._network = Network(module, list(parameters.values()), loss, draws, [])
        self._known: dict[int, ScriptedPass | None] = {}
        self._uses = Counter[int]()
        self._with_long_passes: set[int] = set()  # sizes of batches

    @cached_property
    def possible(self) -> bool:
        """Whether nothing is known that prevents scripts: Python code that does something else than compute, for instance."""
        module, loss = self._network.module, self._network.loss
        return (
            sys.version_info < (3, 14)  # for which PyTorch does not support TorchScript
            and (type(loss).__module__.startswith("fedcohort.") or loss_only_computes(loss))
            and not any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
            and not (self._network.draws and recomputes(module))  # what it draws again would be other numbers
            and only_computes(module)
        )

    def give_up(self) -> None:
        """Use no script from now on."""
        self.possible, self._known = False, {}

    def impossible(self, size: int) -> bool:
        """Whether batches of this size will have no script."""
        return not self.possible or (size in self._known and self._known[size] is None)

    def share_work(self, idle: Tensor) -> bool:
        """Give work to other threads while there are idle ones, with the same bits, if there is a convolution or a large matrix.

        Args:
            idle: the number of idle threads, int64 []; it may change at any time.

        Returns:
            Whether scripts that are made from now on do.
        """
        sizes = ((parameter.dim(), parameter.numel()) for parameter in self._network.module.parameters())
        shares = (
            any(dimensions > 2 or (dimensions == 2 and size >= LARGE) for dimensions, size in sizes) and self.possible
        )
        if shares and can_fork():
            self._network.idle[:] = [idle]
        return bool(self._network.idle)

    def known(self, size: int) -> "ScriptedPass | None":
        """The script for batches of this size, if there is one and the network has not changed since."""
        found = self._known.get(size)
        if found is not None and found.often_misses:
            self._known[size] = found = None
        return found if found is not None and found.holds() else None

    def all_known(self) -> "dict[int, ScriptedPass]":
        """The scripts by batch size, as for :meth:`known`, that have gradients of all parameters, and nearly always results."""
        known = {size: self.known(size) for size in self._known}
        return {size: script for size, script in known.items() if script and script.complete and script.rarely_misses}

    def of(self, features: Tensor, labels: Tensor, outputs: Tensor | None = None) -> "ScriptedPass | None":
        """As :meth:`known`, for this batch, which counts as a use of its size; ``outputs`` are those of the received model, for losses
        that need them."""
        size = labels.shape[0]
        if size not in self._known and len(self._known) < SIZES and self.possible and self._is_worth_it(size):
            self._uses[size] += 1
            if self._uses[size] > USES:
                batch = (features, labels) if outputs is None else (features, labels, outputs)
                self._try(size, batch)
        return self.known(size)

    def _is_worth_it(self, size: int) -> bool:
        """Whether a script would be worth it for the next batch of this size: if its pass takes long, only with idle threads."""
        return size not in self._with_long_passes or self._threads_are_idle()

    def _threads_are_idle(self) -> bool:
        """Whether there are threads that have nothing to do now, and may be asked for a part of the work."""
        return any(int(idle) > 0 for idle in self._network.idle)

    def _try(self, size: int, batch: Sequence[Tensor]) -> None:
        """Make the script for batches of this size, if that is possible and worth it."""
        longest = math.inf if self._threads_are_idle() else LONGEST
        script, seconds = _script_pass(self._network, batch, longest)
        if seconds > longest and self._network.idle:  # threads may be idle later
            self._with_long_passes.add(size)
            del self._uses[size]
            return
        if script is not None:
            script.takes_long = seconds > LONGEST
        self._known[size] = script


def _script_pass(network: Network, batch: Sequence[Tensor], longest: float) -> tuple[ScriptedPass | None, float]:
    """The script for batches like this one, and the seconds of a pass. The module's tensors and gradients stay as they are.

    There is none if a pass is long, if it cannot be written down, if the script has other bits, and if passes may differ from step to
    step.

    Args:
        network: what the script is made of.
        batch: features, labels, and the outputs of the received model if the loss needs them.
        longest: maximum number of seconds of a pass.
    """
    module, parameters = network.module, network.parameters
    if not NetworkWatch(module, parameters).unchanged():
        return None, 0.0
    before, gradients = python_state(module), [parameter.grad for parameter in parameters]
    reset_tensors = _resetting(module, parameters)

    def reset() -> None:
        reset_tensors()
        for parameter in parameters:
            parameter.grad = None

    try:
        reset()
    except RuntimeError:  # a buffer has overlapping memory
        return None, 0.0
    found, seconds = None, 0.0
    with suppress(Exception):  # the network's own errors as well: the training raises them
        begin = time.perf_counter()
        network.play(list(map(_copy, batch)))
        seconds = time.perf_counter() - begin
        if seconds <= longest:
            found = _scripted(network, batch, reset, long=seconds > LONGEST)
    reset()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return (found if python_state(module) == before else None), seconds


def _resetting(module: nn.Module, parameters: list[Tensor]) -> Callable[[], None]:
    """A function that puts back the attributes, buffers and parameters as they are now. Forward passes may change each of them, and
    assign others."""
    tensors = [*parameters, *_other_tensors(module, parameters)]
    values = [tensor.detach().clone() for tensor in tensors]
    parts = [(names, dict(names)) for part in module.modules() for names in (vars(part), part._buffers)]

    @torch.no_grad()
    def reset() -> None:
        for names, known in parts:
            for added in names.keys() - known.keys():
                del names[added]
            names.update(known)
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)

    return reset


def _scripted(
    network: Network, batch: Sequence[Tensor], reset: Callable[[], None], *, long: bool
) -> ScriptedPass | None:
    """The script, if it has the bits of autograd, and if idle threads can help where a pass takes ``long``; ``reset`` undoes what a
    pass changes in the module.

    Raises:
        Exception: the calls cannot be written down, or the script cannot be run.
    """
    module, parameters = network.module, network.parameters
    own = list(map(_copy, batch))
    others = [*_other_tensors(module, parameters), *tensors_of_loss(network.loss)]
    given = [(f"values[{i}]", value) for i, value in enumerate(parameters)]
    given += [(f"others[{i}]", other) for i, other in enumerate(others)]
    changing = {id(buffer) for buffer in module.buffers()}
    fixed = [*parameters, *(other for other in others if id(other) not in changing)]
    recorder = CallRecorder([*given, *zip(("inputs", "labels", "outputs"), own, strict=False)], fixed)
    reset()
    with ONE_AT_A_TIME, recorder:
        results = network.play(own, WithoutReading())
    shares = recorder.shares and bool(network.idle)
    if recorder.draws != network.draws or (long and not shares):
        return None
    with_gradient = [i for i, parameter in enumerate(parameters) if parameter.grad is not None]
    words = [recorder.name(result) for result in results]
    words.append(f"[{', '.join(recorder.name(parameters[i].grad) for i in with_gradient)}]")  # type: ignore[arg-type]
    source = source_of(recorder.lines, ", ".join(words), draws=network.draws, shares=recorder.shares)
    found = ScriptedPass(network, source, others, recorder.constants, with_gradient, *batch)
    compared = islice(_batches(*batch), ENOUGH if long else None)
    return found if _has_bits_of_autograd(found, network, batch, reset, compared, shares) else None


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
    found: ScriptedPass, network: Network, batch: Sequence[Tensor], reset: Callable[[], None],
    batches: Iterable[Sequence[Tensor]], shares: bool,
) -> bool:  # fmt: skip
    """Whether the script has autograd's results, gradients and buffers for :data:`ENOUGH` of the ``batches``, and never others, with
    the help of idle threads as well if it ``shares`` work."""

    def copied(given: Sequence[Tensor]) -> list[Tensor]:
        return [_copy(values, like) for values, like in zip(given, batch, strict=True)]

    def by_script(given: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        features, labels, *outputs = given
        draws = [torch.Generator().manual_seed(SEED)] if network.draws else []
        return found.play(features, labels, draws, *outputs)

    def played(idle: list[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        found.idle = idle
        return _outcome(network, by_script, copied(given), reset)

    def agrees(given: Sequence[Tensor]) -> bool | None:
        """None if the script has no results for this batch."""
        expected, misses = _outcome(network, network.play, copied(given), reset), found.misses
        same = [_all_same(played(idle, given), expected) for idle in helpers]
        return all(same) if found.misses == misses else None

    helpers: list[list[Tensor]] = [[]]
    if shares:
        helpers += [[torch.tensor(number)] for number in sorted({1, max(1, torch.get_num_interop_threads() - 1)})]
    compared = [same for given in batches if (same := agrees(given)) is not None]
    found.idle = network.idle if shares else []
    found.uses = found.misses = 0
    return len(compared) >= ENOUGH and all(compared)


def _outcome(
    network: Network,
    play: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor] | None],
    batch: Sequence[Tensor],
    reset: Callable[[], None],
) -> list[Tensor]:
    """The results of a pass, the gradients, and the buffers after it."""
    reset()
    results = play(batch) or ()
    gradients = [parameter.grad for parameter in network.parameters if parameter.grad is not None]
    return [_copy(tensor) for tensor in (*results, *gradients, *network.module.buffers())]


def _batches(features: Tensor, labels: Tensor, *outputs: Tensor) -> Iterator[Sequence[Tensor]]:
    """Batches that differ in single samples, and in what Python code could read of all of them, such as the largest value; even if
    they have one sample."""
    yield features, labels, *outputs
    numbers = features.is_floating_point()
    changed = features.flip(0) * 0.75 if numbers else features.flip(0, -1)
    yield changed, labels.roll(1, 0), *(given.flip(-1) for given in outputs)
    some = torch.arange(len(features)) // 2
    changed = features[some] * 1.25 + 0.25 if numbers else features[some].roll(1, -1)
    yield changed, labels.flip(0), *(given[some] for given in outputs)


def _all_same(tensors: list[Tensor], others: list[Tensor]) -> bool:
    return len(tensors) == len(others) and all(map(_same, tensors, others))


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.stride() == other.stride() and torch.equal(tensor, other)
