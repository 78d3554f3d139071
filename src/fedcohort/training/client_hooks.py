"""Calls of the client half of an algorithm, with checks of what a user's own class returns."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedcohort.algorithms import Algorithm, Problem, Tensors
from fedcohort.core.errors import UsageError, shown

__all__ = ["Gradients", "corrected", "finished"]


class Gradients(dict[str, Tensor]):
    """The gradients of ``parameters``, by name. Setting an entry sets ``.grad``, so that it counts as a change in place does."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__({name: p.grad for name, p in parameters.items() if p.grad is not None})
        self._parameters = parameters

    def __setitem__(self, name: str, gradient: Tensor) -> None:
        self._parameters[name].grad = gradient
        super().__setitem__(name, gradient)

    def update(self, *given: Any, **named: Tensor) -> None:
        """Set several entries."""
        for name, gradient in dict(*given, **named).items():
            self[name] = gradient

    def __ior__(self, given: Any) -> "Gradients":  # type: ignore[override,misc]
        self.update(given)
        return self


def corrected(algorithm: Algorithm, problem: Problem, gradients: Tensors) -> None:
    """Let the algorithm change the gradients of a step.

    Raises:
        UsageError: it returns something, which would have no effect.
    """
    returned: object = algorithm.correct(problem, gradients)  # type: ignore[func-returns-value]
    if returned is not None:
        raise UsageError(
            f"{type(algorithm).__name__}.correct returned a {type(returned).__name__}; it must change the given gradients, and "
            "return nothing"
        )


def finished(algorithm: Algorithm, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
    """What the algorithm sends beside the model, and the client's new memory.

    Raises:
        UsageError: they have another form.
    """
    returned: object = algorithm.finish(problem)
    if isinstance(returned, tuple) and len(returned) == 2 and all(map(_are_groups, returned)):
        return returned
    wrong = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
    if isinstance(returned, tuple) and len(returned) == 2:
        wrong = shown(next(part for part in returned if not _are_groups(part)))
    raise UsageError(
        f"{type(algorithm).__name__}.finish returned {wrong}; it must return two dictionaries of the form "
        "{'kind': {'name': tensor}}: what is sent beside the model, and the client's new memory"
    )


def _are_groups(part: object) -> bool:
    """Whether this is a dictionary of dictionaries of tensors."""
    return isinstance(part, Mapping) and all(
        isinstance(group, Mapping) and all(isinstance(value, Tensor) for value in group.values())
        for group in part.values()
    )
