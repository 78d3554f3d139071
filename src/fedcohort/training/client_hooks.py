"""Calls of the client half of an algorithm and of a stopping rule, with checks of what a user's own class returns."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedcohort.algorithms import Algorithm, Problem, Tensors
from fedcohort.algorithms.base import Correction
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.given_values import as_float
from fedcohort.core.shared_memory import memory_number
from fedcohort.core.words.report_names import MEASURED_BY_ALL
from fedcohort.selection import Progress, StoppingRule

__all__ = [
    "Gradients",
    "broadcast_by",
    "corrected",
    "differentiated",
    "ending",
    "finished",
    "settings_under",
    "stated_correction",
]


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


def settings_under(algorithm: Algorithm, training: Training) -> Training:
    """The settings of local training under the algorithm.

    Raises:
        UsageError: it returns something else, or changes the settings that it is given.
    """
    where = f"{type(algorithm).__name__}.local_training"
    try:
        returned: object = algorithm.local_training(training)
    except UsageError as error:  # such as that of an assignment to a setting
        raise UsageError(f"{where}: {error}") from error
    if not isinstance(returned, Training):
        raise UsageError(
            f"{where} returned {shown(returned)}; it must return settings: dataclasses.replace(training, …)"
        )
    return returned


def broadcast_by(algorithm: Algorithm) -> dict[str, Tensors]:
    """What the algorithm sends to clients beside the model.

    Raises:
        UsageError: it has another form.
    """
    returned: object = algorithm.broadcast()
    if isinstance(returned, dict) and _are_groups(returned):
        return returned
    raise UsageError(
        f"{type(algorithm).__name__}.broadcast returned {shown(returned)}; it must return a dictionary of the form "
        "{'kind': {'name': tensor}}, which may be empty"
    )


def differentiated(algorithm: Algorithm, problem: Problem) -> tuple[Tensor, Tensor]:
    """Let the algorithm put the gradients of a step into the parameters; returns the losses and the right predictions of the batch.

    Raises:
        UsageError: it returns something else.
    """
    returned: object = algorithm.backward(problem)
    if isinstance(returned, tuple) and len(returned) == 2 and all(isinstance(part, Tensor) for part in returned):
        return returned
    raise UsageError(
        f"{type(algorithm).__name__}.backward returned {shown(returned)}; it must return what problem.backward() does: the losses "
        "of the batch, and the number of right predictions, as tensors"
    )


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


def stated_correction(algorithm: Algorithm, problem: Problem) -> Correction | None:
    """What the algorithm says that it adds to the gradients of every step; None if that cannot be said before the steps.

    Raises:
        UsageError: it returns something else.
    """
    returned: object = algorithm.correction(problem)
    if isinstance(returned, Correction | None):
        return returned
    raise UsageError(
        f"{type(algorithm).__name__}.correction returned {shown(returned)}; it must return a Correction(…), or None"
    )


def finished(algorithm: Algorithm, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
    """What the algorithm sends beside the model, and the client's new memory.

    Tensors that others will change, such as the parameters, which the next client trains, are copied.

    Raises:
        UsageError: they have another form.
    """
    returned: object = algorithm.finish(problem)
    if isinstance(returned, tuple) and len(returned) == 2 and all(map(_are_groups, returned)):
        sent, memory = returned
        return _of_its_own(sent, problem), _of_its_own(memory, problem)
    wrong = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
    if isinstance(returned, tuple) and len(returned) == 2:
        wrong = shown(next(part for part in returned if not _are_groups(part)))
    raise UsageError(
        f"{type(algorithm).__name__}.finish returned {wrong}; it must return two dictionaries of the form "
        "{'kind': {'name': tensor}}: what is sent beside the model, and the client's new memory"
    )


def ending(rule: StoppingRule, progress: Progress) -> tuple[bool, dict[str, float]]:
    """Whether the rule ends the training after this epoch, and the numbers that it reports.

    Raises:
        UsageError: it returns something else, or reports a number that every client measures.
    """
    where = f"{type(rule).__name__}.check"
    returned: object = rule.check(progress)
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
        raise UsageError(
            f"{where} returned {shown(returned)}; return whether to stop and the numbers to report, such as (True, {{'gain': 0.1}})"
        )
    ends, report = as_float(returned[0]), {name: as_float(value) for name, value in returned[1].items()}
    if ends not in (0.0, 1.0):
        raise UsageError(f"{where} returned {shown(returned[0])} for whether to stop; return True or False")
    for name, value in report.items():
        if not isinstance(name, str) or value is None:
            raise UsageError(f"{where} reports {shown(name)}: {shown(returned[1][name])}; report numbers, by name")
        if name in MEASURED_BY_ALL:
            raise UsageError(f"{where} reports {name!r}, which is measured for every client; use another name")
    return bool(ends), {name: value for name, value in report.items() if value is not None}


def _of_its_own(groups: dict[str, Tensors], problem: Problem) -> dict[str, Tensors]:
    """``groups`` without gradients, and with copies of the tensors that share memory with those of the problem.

    Later clients train the parameters, the server may change in place what it has sent, and the place of the old memory is used again.
    """
    if not groups:
        return groups
    parameters = problem.parameters.values()
    shared = [*parameters, *problem.anchor.values(), *(p.grad for p in parameters if p.grad is not None)]
    for group in (*problem.received.values(), *problem.memory.values()):
        shared += group.values()
    places = {memory_number(value) for value in shared}
    return {
        kind: {
            name: value.detach().clone() if memory_number(value) in places else value.detach()
            for name, value in group.items()
        }
        for kind, group in groups.items()
    }


def _are_groups(part: object) -> bool:
    """Whether this is a dictionary of dictionaries of tensors."""
    return isinstance(part, Mapping) and all(
        isinstance(group, Mapping) and all(isinstance(value, Tensor) for value in group.values())
        for group in part.values()
    )
