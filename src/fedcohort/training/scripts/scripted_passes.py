"""Forward and backward passes of networks on a CPU that PyTorch runs without Python and without autograd (TorchScript).

:mod:`fedcohort.training.scripts.network_scripts` makes them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.algorithms.base import Correction
from fedcohort.algorithms.losses import Loss
from fedcohort.core.random_streams import torch_seeded
from fedcohort.core.script_threads import can_fork
from fedcohort.training.code_reading.loss_code import names_read_by_loss
from fedcohort.training.code_reading.network_watch import NetworkWatch, ReadValues
from fedcohort.training.optimizers import Optimizer
from fedcohort.training.programs.divided_calls import convolution_outputs, linear_outputs, product  # noqa: F401 - scripts call them
from fedcohort.training.programs.divided_functions import (  # noqa: F401 - scripts call them
    attention_gradients,
    attention_outputs,
    gelu_gradients,
    gelu_outputs,
)
from fedcohort.training.programs.optimizer_steps import correct, take_step  # noqa: F401 - scripts call them
from fedcohort.training.programs.shared_gradients import convolution_gradients, finish, nothing_begun  # noqa: F401 - scripts call them
from fedcohort.training.scripts.recorded_passes import pass_by_autograd

__all__ = [
    "SEED",
    "WITHOUT",
    "Network",
    "OwnCorrection",
    "ScriptError",
    "ScriptedPass",
    "compiled_correction",
    "other_calls",
    "source_of",
]

SEED = 7919
"""Seed of the random numbers with which a script is compared with autograd."""
FEW, SHARE = 8, 0.5
"""A script is given up if more than :data:`FEW` batches, and more than this share of them, needed other calls."""
RARE = 0.01
"""Share of batches with other calls up to which a script trains several clients in one call. A single such batch makes that call
useless."""

_PASS = """
def one_pass(
    values: List[Tensor], others: List[Tensor], constants: List[Tensor], inputs: Tensor, labels: Tensor, outputs: Tensor,
    draws: List[Generator], idle: List[Tensor]
):"""

_EPOCH = """
def descend(
    values: List[Tensor], others: List[Tensor], constants: List[Tensor], features: Tensor, labels: Tensor, outputs: Tensor,
    order: Tensor, size: int, rule: str, rates: List[float], nesterov: bool, states: List[List[Tensor]], fresh: bool,
    shifts: List[Tensor], anchors: List[Tensor], mu: float, clip: float, extras: List[Tensor], draws: List[Generator],
    idle: List[Tensor]
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
        received = outputs.index_select(0, index) if len(outputs) > 0 else outputs
        losses, hits, slopes = one_pass(values, others, constants, inputs, batch, received, draws[step : step + 1], idle)
        if len(slopes) == 0:
            break
        last = slopes
        correct(last, values, shifts, anchors, mu, clip)
        last = own_correct(last, values, anchors, extras)
        take_step(values, last, rule, rates, nesterov, states, fresh and start == 0)
        seen.append(losses)
        right = right + hits
    return seen, right, last
"""
"""The steps of :meth:`ScriptedPass.descend`."""

WITHOUT = """
def own_correct(slopes: List[Tensor], values: List[Tensor], anchors: List[Tensor], extras: List[Tensor]):
    return slopes
"""
"""The correction of an algorithm that has none of its own."""


class ScriptError(RuntimeError):
    """A call of a script raised an error. Python raises the same one, and knows the line of code that made the call."""


class OwnCorrection(NamedTuple):
    """What an algorithm of a user does with the gradients of every step; see
    :mod:`fedcohort.training.scripts.scripted_corrections`."""

    source: str
    """Source of the script that computes it."""
    extras: list[Tensor]
    """What the client received beside the model, and its memory."""


def other_calls(changed: list[Tensor], before: list[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What a script returns if the network's Python code has read another number, so that it may make other calls; tensors that the
    script has ``changed`` are again as they were ``before``."""
    for i in range(len(changed)):
        changed[i].copy_(before[i])
    return torch.zeros(0), torch.zeros([], dtype=torch.int64), []


class Network(NamedTuple):
    """What a script is made of; see :class:`~fedcohort.training.scripts.network_scripts.Scripts`."""

    module: nn.Module
    parameters: list[Tensor]
    loss: Loss
    draws: bool
    idle: list[Tensor]
    """The number of idle threads, int64 []; an empty list if no other thread may be asked."""

    def play(
        self, batch: Sequence[Tensor], forward: AbstractContextManager[object] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The pass of a batch by autograd, with random numbers that depend on nothing.

        Args:
            batch: features, labels, and the outputs of the received model if the loss needs them.
            forward: as for :func:`~fedcohort.training.scripts.recorded_passes.pass_by_autograd`.
        """
        features, labels, *outputs = batch
        with torch_seeded(SEED, labels.device) if self.draws else nullcontext():
            return pass_by_autograd(self.module, self.loss, features, labels, forward, *outputs)


class ScriptedPass:
    """The pass of a network in training for batches of one size.

    Attributes:
        source: the script of the pass.
        given: tensors that it is given: the trained parameters, others of the network, and constants.
        draws: whether it draws random numbers.
        idle: the number of idle threads that may be asked for a part of the work, int64 [], in a list that may be empty.
        complete: whether every trained parameter has a gradient, and batches have the memory layout of selected rows.
        takes_long: whether a pass takes so long that each is a call of its own, after which a run can be interrupted.
        reads_numbers: whether the network's Python code reads numbers, so that the script is not used for batches with other numbers.
        uses: number of batches for which the script was used.
        misses: number of those for which the network makes other calls, so that it had no results.
    """

    def __init__(
        self, network: Network, source: str, others: list[Tensor], constants: list[Tensor], with_gradient: list[int],
        features: Tensor, labels: Tensor, outputs: Tensor | None = None,
    ) -> None:  # fmt: skip
        parameters = network.parameters
        self._watch, self._parameters = NetworkWatch(network.module, parameters), parameters
        self.source, self._script = source, _compiled(source)
        self.draws, self.idle = network.draws, network.idle
        self._of_loss = [ReadValues(names, read) for names, read in names_read_by_loss(network.loss) if read]
        self._training = [part.training for part in self._watch.parts]
        self.given = [p.detach() for p in parameters], [other.detach() for other in others], constants
        self._with_gradient = with_gradient
        self._kind = _kind(features), _kind(labels), _kind(_given(outputs))
        self.complete = len(with_gradient) == len(parameters) and _is_of_rows(features)
        self.reads_numbers = f"{other_calls.__name__}(" in source
        self.takes_long = False
        self.uses = self.misses = 0

    @property
    def often_misses(self) -> bool:
        """Whether the network so often makes other calls that the script is not worth it."""
        return self.misses > max(FEW, SHARE * self.uses)

    @property
    def rarely_misses(self) -> bool:
        """Whether nearly all calls for several clients will have results."""
        return self.misses <= RARE * self.uses

    def holds(self) -> bool:
        """Whether the script still computes what the network computes."""
        unchanged = self._watch.unchanged() and all(values.unchanged() for values in self._of_loss)
        return unchanged and [part.training for part in self._watch.parts] == self._training

    def play(
        self,
        features: Tensor,
        labels: Tensor,
        draws: Sequence[torch.Generator] = (),
        outputs: Tensor | None = None,
    ) -> tuple[Tensor, Tensor] | None:
        """Set ``.grad`` to the gradients of the mean loss of this batch; None if the batch has another size or memory layout, if the
        network makes other calls for it, or if there was an error, which autograd then explains better. ``draws`` is the generator of
        a network that draws, and ``outputs`` are those of the received model for the batch, for losses that need them.

        Returns:
            the cross-entropy of each sample and the number of correct predictions.
        """
        received = _given(outputs)
        if (_kind(features), _kind(labels), _kind(received)) != self._kind:
            return None
        try:
            losses, right, gradients = self.run(
                self._script.one_pass, *self.given, features, labels, received, list(draws), self._helpers()
            )
        except RuntimeError:
            return None
        self.uses += 1
        if self._with_gradient and not gradients:
            self.misses += 1
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
        correction: Correction | OwnCorrection | None = None,
        anchors: Sequence[Tensor] = (),
        draws: Sequence[torch.Generator] = (),
        clip: float = 0.0,
        outputs: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Take a step for every batch, as :meth:`Program.descend <fedcohort.training.programs.plain_network.Program.descend>`, up to
        the first one for which the network makes other calls. The length of ``order`` is a multiple of ``size``, the size of the
        script.

        Raises:
            ScriptError: a call raised an error; some steps may have been taken.
        """
        rule, own = optimizer.rule(), correction if isinstance(correction, OwnCorrection) else None
        added = correction if isinstance(correction, Correction) else Correction()
        script = self._script if own is None else _compiled(self.source, own.source)
        given_anchors = list(anchors) if added.proximal or own is not None else []
        try:
            seen, right, gradients = self.run(
                script.descend, *self.given, features, labels, _given(outputs), order, size,
                rule.kind, rule.rates, rule.nesterov, rule.states, rule.fresh,
                list(added.shift.values()), given_anchors, added.proximal, clip,
                [] if own is None else own.extras, list(draws), self._helpers(),
            )  # fmt: skip
        except RuntimeError as error:  # TorchScript's error has many lines
            raise ScriptError(" ".join(str(error).splitlines()[-1:]).removeprefix("RuntimeError: ")) from None
        stops = len(seen) * size < len(order)
        self.uses += len(seen) + stops
        self.misses += stops
        if rule.fresh and not seen:
            optimizer.state.clear()  # no step has set it
        for parameter, gradient in zip(self._parameters, gradients, strict=len(seen) > 0):
            parameter.grad = gradient
        return seen, right

    def _helpers(self) -> list[Tensor]:
        """As ``idle``; a forked process has no threads that may be asked."""
        return self.idle if self.idle and can_fork() else []

    @staticmethod
    def run(function: Callable[..., Any], *given: object) -> Any:
        """Run a function of a script without TorchScript's optimizations, which would change bits from the second call on.

        Nothing that is given requires a gradient. Autograd is on all the same, because recurrent layers do not keep what their
        gradients need otherwise.
        """
        with torch.enable_grad(), torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return function(*given)


def _given(outputs: Tensor | None) -> Tensor:
    """The outputs as scripts are given them: an empty tensor if there are none."""
    return torch.empty(0) if outputs is None else outputs


def _is_of_rows(features: Tensor) -> bool:
    """Whether a batch has the memory layout of selected rows: images with channels last."""
    images = features.dim() == 4
    rows = features.permute(0, 2, 3, 1) if images else features
    return rows.stride() == torch.empty(rows.shape, device="meta").stride()


def _kind(tensor: Tensor) -> tuple[object, ...]:
    """What a script depends on, except for the values."""
    return tensor.shape, tensor.stride(), tensor.dtype


def source_of(lines: Sequence[str], results: str, *, draws: bool, shares: bool) -> str:
    """The script of a pass.

    Args:
        lines: its calls.
        results: names of the losses, of the number of correct predictions, and of the gradients.
        draws: whether it draws random numbers.
        shares: whether it has work for an idle thread.
    """
    begin = ["generator = draws[0]"] * draws + ["begun = nothing_begun()"] * shares
    end = ["finish(begun)"] * shares + [f"return {results}"]
    return "\n    ".join([_PASS, *begin, *lines, *end]) + "\n"


@lru_cache(64)
def _compiled(source: str, own: str = WITHOUT) -> Any:
    """The functions of a script, which calls functions of this module, with the script of an ``own`` correction. Threads with copies
    of a network share them."""
    return torch.jit.CompilationUnit(source + own + _EPOCH)


@lru_cache(64)
def compiled_correction(source: str) -> Any:
    """The function of an own correction."""
    return torch.jit.CompilationUnit(source)
