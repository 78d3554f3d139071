"""Models that draw random numbers when they train, such as models with Dropout.

torch's modules draw from torch's global generator, which all threads share. Whenever such a model processes a batch in training, that
generator is therefore seeded by (seed, round, client) and the number of the step, for the duration of the forward pass, by one thread
at a time. Results do not depend on the number of threads, and an algorithm that evaluates one batch several times (for differences
along a direction, for example) meets the same draws each time. Two things are not covered: other generators, such as numpy's or
Python's, and code outside FedCohort that draws from torch's generator in a thread of its own at the same moment.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, MethodType

import torch
from torch import Tensor, nn

from fedcohort.core.errors import UsageError
from fedcohort.core.network_copies import copy_of
from fedcohort.core.random_streams import torch_seeded
from fedcohort.training.code_reading.code_instructions import codes_in
from fedcohort.training.code_reading.network_libraries import checkpoints, is_of_library

__all__ = ["advances_generators", "draws_at_random", "recomputes", "step_generator", "step_seed"]

TRIES = 8
"""Number of forward passes that show that a model draws. One pass shows that it does not, unless other code draws at that time."""


def draws_at_random(module: nn.Module, inputs: Tensor) -> bool:
    """Whether the model draws, or may draw, from torch's generator in training mode. Runs a copy of the model to find out.

    Args:
        module: any model. Its own errors are ignored; the training will raise them. One that cannot be copied may draw.
        inputs: a standardized batch.

    Raises:
        UsageError: it draws in evaluation mode, so that its evaluation could not be repeated.
    """
    drew: dict[bool, bool | None] = {True: False, False: False}
    try:
        trial = copy_of(module)
    except Exception:
        return True
    with suppress(Exception):
        for training in drew:
            trial.train(training)
            drew[training] = advances_generators(partial(trial, inputs), inputs.device)
    if drew[False]:
        raise UsageError(
            "model: draws random numbers in evaluation mode too, so that its evaluation could not be repeated; draw in training only, "
            "as in functional.dropout(x, training=self.training)"
        )
    return drew[True] is not False


def recomputes(module: nn.Module) -> bool:
    """Whether the code of the network uses ``torch.utils.checkpoint``, which runs parts of the forward pass again in the backward
    pass, with torch's generator in the state that it had.

    The code is that of all methods, and of the functions that they find under a global name, in an attribute or in an enclosing
    function. A function with another name, as after ``import checkpoint as ckpt``, is found as well. Of networks of libraries, it is
    known how they are told to use it.
    """
    parts = list(module.modules())
    classes = {cls for part in parts for cls in type(part).__mro__[:-1]}
    waiting = [value for cls in classes for value in vars(cls).values()]
    waiting += [value for part in parts for value in vars(part).values()]
    return checkpoints(parts) or any(map(_checkpoints, _functions_from(waiting)))


def _functions_from(waiting: list[object]) -> Iterator[FunctionType]:
    """The functions among these values, and those that they find; not those that only PyTorch or a library of networks finds."""
    seen = set[FunctionType]()
    while waiting:
        function = _function_in(waiting.pop())
        if function is None or function in seen or is_of_library(function.__module__):
            continue
        seen.add(function)
        yield function
        if not str(function.__module__).startswith("torch."):
            waiting += _values_named(function)


_CHECKPOINTS = "torch.utils.checkpoint"


def _function_in(value: object) -> FunctionType | None:
    """The function that a value calls; None if it is no function, method or ``functools.partial``."""
    while not isinstance(value, FunctionType):
        if isinstance(value, partial):
            value = value.func
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, staticmethod | classmethod | MethodType):
            value = value.__func__
        else:
            return None
    return value


def _checkpoints(function: FunctionType) -> bool:
    """Whether a function is of ``torch.utils.checkpoint``, or names one of its functions."""
    return function.__module__ == _CHECKPOINTS or any(map(_names_checkpoints, codes_in(function.__code__)))


def _names_checkpoints(code: CodeType) -> bool:
    return not {"checkpoint", "checkpoint_seq", "checkpoint_sequential"}.isdisjoint(code.co_names)


def _values_named(function: FunctionType) -> list[object]:
    """The values of the global names and of the variables of enclosing functions that a function reads."""
    names = {name for code in codes_in(function.__code__) for name in code.co_names}
    found = [function.__globals__[name] for name in names & function.__globals__.keys()]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it has no value yet
            found.append(cell.cell_contents)
    return found


def step_seed(first: int, step: int, number: int) -> int:
    """What seeds torch's generator for a chunk of a step.

    Args:
        first: the integer of the client in this round.
        step: number of the step, from 0.
        number: number of the chunk of the batch, from 0.
    """
    return (first + (step << 16) + number) % 2**63


def step_generator(first: int, step: int, number: int) -> torch.Generator:
    """A generator that draws what torch's draws with :func:`step_seed`, for programs, in which threads share nothing."""
    return torch.Generator().manual_seed(step_seed(first, step, number))


def advances_generators(call: Callable[[], object], device: torch.device) -> bool | None:
    """Whether a call advances torch's generators, of the CPU and of ``device``, always to the same state.

    None means unknown, because other code draws from the generators at the same time.
    """
    states = []
    for _ in range(TRIES):
        with torch.no_grad(), torch_seeded(0, device) as generators:
            before = [generator.get_state() for generator in generators]
            call()
            after = [generator.get_state() for generator in generators]
        if _equal(before, after):
            return False
        states.append(after)
    return True if all(_equal(states[0], state) for state in states) else None


def _equal(states: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(states, others, strict=True))
