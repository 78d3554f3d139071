"""The steps of own algorithms without Python: :meth:`Algorithm.correct <fedcohort.algorithms.Algorithm.correct>` as a script.

The calls of PyTorch that a correction makes are written down once, as those of a network are
(:mod:`fedcohort.training.scripts.network_scripts`), and made again after every backward pass. That is possible if its Python code
does nothing but compute, and reads nothing but the parameters, the received parameters, what the server sent, the client's memory,
and the settings of training with the learning rate. Steps that depend on their number, on random numbers or on the values of tensors
have no script.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.algorithms import Algorithm, Problem, Tensors
from fedcohort.algorithms.base import adds_correction
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.random_streams import torch_seeded
from fedcohort.training.client_hooks import Gradients
from fedcohort.training.code_reading.attribute_places import attribute_places
from fedcohort.training.code_reading.forward_code import Check, runs_unnamed
from fedcohort.training.code_reading.network_watch import ReadValues
from fedcohort.training.scripts.call_recorder import ONE_AT_A_TIME, CallRecorder
from fedcohort.training.scripts.reading_functions import WithoutReading
from fedcohort.training.scripts.scripted_passes import SEED, OwnCorrection, ScriptedPass, compiled_correction

__all__ = ["OwnCorrections"]

FORMS = 4
"""Maximum number of forms of what is received and remembered, or of learning rates, that get a script."""

_HEAD = """
def own_correct(slopes: List[Tensor], values: List[Tensor], anchors: List[Tensor], extras: List[Tensor]):
    """


class _Seen(NamedTuple):
    """What a correction with a script may read of a :class:`Problem`; reading anything else is an error."""

    parameters: Tensors
    anchor: Tensors
    received: Mapping[str, Tensors]
    memory: Mapping[str, Tensors]
    training: Training
    lr: float | Tensor


class OwnCorrections:
    """The scripts of an algorithm's own correction, one for each form of what clients receive and remember.

    Args:
        algorithm: the algorithm.
        scripts: whether the network can have scripts.

    Attributes:
        possible: whether nothing is known that prevents scripts.
        scripts: see above.
    """

    def __init__(self, algorithm: Algorithm, scripts: bool) -> None:
        self.scripts = scripts
        check = Check([algorithm])
        own = algorithm.corrects and not adds_correction(algorithm) and "correct" not in vars(algorithm)
        plain = getattr(algorithm.backward, "__func__", None) is Algorithm.backward and not runs_unnamed(algorithm)
        computes = scripts and own and plain and check.function(type(algorithm).correct, algorithm)
        self.possible = bool(computes) and not (check.stored or check.reads_any or check.reads_lists)
        self._algorithm = algorithm
        places = attribute_places(algorithm, check.loaded | {"correct", "backward"})
        read = [*places, *check.read] if self.possible else []
        self._read = [ReadValues(names, watched) for names, watched in read if watched]
        self._sources: dict[object, str] = {}

    def of(self, problem: Problem) -> OwnCorrection | None:
        """The correction of the steps of this client; None if there is none, or not yet, before its network has gradients."""
        gradients = [parameter.grad for parameter in problem.parameters.values()]
        if not self.possible or not all(values.unchanged() for values in self._read):
            return None
        extras = _extras(problem)
        named = [*extras, *((("anchor", "", name), tensor) for name, tensor in problem.anchor.items())]
        kinds = tuple((*names, tensor.shape, tensor.stride(), tensor.dtype) for names, tensor in named)
        form = problem.lr, tuple(problem.received), tuple(problem.memory), kinds
        if form not in self._sources:
            slopes = [gradient for gradient in gradients if gradient is not None]
            if len(slopes) < len(gradients) or len(self._sources) == FORMS:
                return None
            source = None
            with suppress(Exception):  # the algorithm's own errors as well: the training raises them
                source = _source(self._algorithm, problem, slopes)
            if source is None:
                self.possible = False
                return None
            self._sources[form] = source
        return OwnCorrection(self._sources[form], [tensor for _, tensor in extras])


def _extras(problem: Problem) -> list[tuple[tuple[str, str, str], Tensor]]:
    """What the client received beside the model, and its memory, with names."""
    groups = ("received", problem.received), ("memory", problem.memory)
    return [
        ((where, kind, name), tensor)
        for where, kinds in groups
        for kind, tensors in kinds.items()
        for name, tensor in tensors.items()
    ]


def _source(algorithm: Algorithm, problem: Problem, slopes: Sequence[Tensor]) -> str | None:
    """The script of a correction; None if it has other bits than the algorithm.

    Raises:
        Exception: the calls cannot be written down, or the algorithm reads something else.
    """
    seen = _copies(problem, slopes)
    extras = [tensor for _, tensor in _extras(seen)]  # type: ignore[arg-type]
    gradients, parameters = Gradients(seen.parameters), seen.parameters.values()
    fixed = [*parameters, *seen.anchor.values(), *extras]
    given: list[tuple[str, Tensor]] = []
    tensors = gradients.values(), parameters, seen.anchor.values(), extras
    for name, group in zip(("slopes", "values", "anchors", "extras"), tensors, strict=True):
        given += [(f"{name}[{i}]", tensor) for i, tensor in enumerate(group)]
    recorder = CallRecorder(given, fixed, {"slopes": len(gradients)})
    with ONE_AT_A_TIME, torch_seeded(SEED, torch.device("cpu")), recorder, WithoutReading():
        returned: object = algorithm.correct(seen, gradients)  # type: ignore[arg-type,func-returns-value]
    reads = any(line.startswith("if ") for line in recorder.lines)
    if returned is not None or reads or recorder.draws or recorder.shares or recorder.constants:
        return None
    results = ", ".join(map(recorder.name, _slopes(seen)))
    source = _HEAD + "\n    ".join([*recorder.lines, f"return [{results}]"]) + "\n"
    tried = (_agrees(source, algorithm, problem, slopes, scale) for scale in (1.0, -0.75))
    return source if all(tried) else None


def _agrees(source: str, algorithm: Algorithm, problem: Problem, slopes: Sequence[Tensor], scale: float) -> bool:
    """Whether the script has the bits of the algorithm, for gradients and parameters that are multiplied by ``scale``."""
    seen, also = (_copies(problem, [slope * scale for slope in slopes], scale) for _ in range(2))
    algorithm.correct(seen, Gradients(seen.parameters))  # type: ignore[arg-type]
    extras = [tensor for _, tensor in _extras(also)]  # type: ignore[arg-type]
    values = [parameter.detach() for parameter in also.parameters.values()]
    lists = _slopes(also), values, list(also.anchor.values()), extras
    found: list[Tensor] = ScriptedPass.run(compiled_correction(source).own_correct, *lists)
    return all(
        a.dtype == b.dtype and _order(a) == _order(b) == _order(value) and torch.equal(a, b)
        for a, b, value in zip(found, _slopes(seen), values, strict=True)
    )


def _slopes(seen: _Seen) -> list[Tensor]:
    """The gradients as they are now."""
    return [parameter.grad for parameter in seen.parameters.values() if parameter.grad is not None]


def _order(tensor: Tensor) -> list[int]:
    """The order of a tensor's values in memory."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _copies(problem: Problem, slopes: Sequence[Tensor], scale: float = 1.0) -> _Seen:
    """What a correction may read, with gradients that it may change, in memory of their own."""

    def copied(group: Mapping[str, Tensor], factor: float = 1.0) -> dict[str, Tensor]:
        return {
            name: tensor.detach().clone() if factor == 1 else tensor.detach() * factor for name, tensor in group.items()
        }

    received, memory = (
        {kind: copied(group) for kind, group in part.items()} for part in (problem.received, problem.memory)
    )
    parameters: dict[str, Tensor] = {
        name: nn.Parameter(value) for name, value in copied(problem.parameters, scale).items()
    }
    for parameter, slope in zip(parameters.values(), slopes, strict=True):
        # in the memory layout of autograd's gradients
        parameter.grad = torch.empty_like(parameter).copy_(slope.detach())
    return _Seen(parameters, copied(problem.anchor), received, memory, problem.training, problem.lr)
