"""The contract of a stopping rule."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.random_streams import rng
from fedcohort.selection import Progress, StoppingRule
from fedcohort.testing.base import check_kind, during_seeded, new_from, require
from fedcohort.training.client_hooks import ending

__all__ = ["check_stopping_rule"]

EPOCHS = 4
HELD_OUT = {"a client": 12, "another client": 5, "a client without held-out samples": 0}
"""Clients by name, with their numbers of held-out samples."""

Check = tuple[bool, Mapping[str, float]]
"""What a rule returns: whether to stop, and what it reports."""


def check_stopping_rule(make: Callable[[], StoppingRule], *, num_classes: int = 3, numeric: bool = False) -> None:
    """Check the contract of :class:`fedcohort.selection.StoppingRule`.

    After each epoch, the rule returns whether to stop, and reports numbers under names of its own, for clients with and without
    held-out samples, also if an epoch has no loss. It does not change earlier reports. A training has the same results whatever other
    trainings do at the same time.

    Args:
        make: returns a new rule.
        num_classes: the number of classes.
        numeric: whether labels are numbers, for which the model has one output.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    rule = new_from(make)
    check_kind(rule, StoppingRule, "fedcohort.selection.StoppingRule")
    alone = {client: list(_training(make(), client, num_classes, numeric)) for client in HELD_OUT}
    together = {client: _training(make(), client, num_classes, numeric) for client in HELD_OUT}
    for epoch in range(EPOCHS):
        for client, checks in together.items():
            where = f"{type(rule).__name__}, {client}, epoch {epoch + 1}"
            found, expected = next(checks), alone[client][epoch]
            complaint = f"{where}: returned {found}, and {expected} in the same training alone; compute it from progress and self only"
            require(_alike(found, expected), complaint)
    for _ in _training(make(), "a client", num_classes, numeric, loss=float("nan")):
        pass


def _training(
    rule: StoppingRule, client: str, num_classes: int, numeric: bool, loss: float | None = None
) -> Iterator[Check]:
    """The checks of a training that goes on whatever the rule says; ``loss`` replaces that of each epoch."""
    before: list[Mapping[str, float]] = []
    for epoch in range(1, EPOCHS + 1):
        where = f"{type(rule).__name__}, {client}, epoch {epoch}{'' if loss is None else ' without a step'}"
        n = HELD_OUT[client]
        outputs = partial(_outputs, epoch, num_classes, numeric)
        progress = Progress(
            epoch=epoch,
            last=epoch == EPOCHS,
            loss=1.0 / epoch + 0.01 * n if loss is None else loss,
            held_out=outputs(n, f"held-out-{n}"),
            before=tuple(before),
            trained=outputs(20, f"trained-{n}"),
            tested=outputs(30, "tested"),
        )
        with during_seeded(where, rule, "Cohort.stop"):
            check = ending(rule, progress)
        before.append(MappingProxyType(check[1]))
        yield check


def _outputs(epoch: int, num_classes: int, numeric: bool, n: int, what: str) -> Callable[[], tuple[Values, Indices]]:
    """What evaluates the model after an epoch on n samples, better after later epochs: probabilities, or numbers, and labels."""
    draw = rng(0, f"contract-{what}", epoch)
    if numeric:
        labels: Any = draw.normal(size=n)
        outputs = labels[:, None] + draw.normal(size=(n, 1)) / epoch
    else:
        labels = draw.integers(0, num_classes, n)
        outputs = (
            draw.dirichlet(np.ones(num_classes), n).reshape(n, num_classes) + epoch * np.eye(num_classes)[labels]
        ) / (1 + epoch)
    return lambda: (outputs.copy(), labels.copy())


def _alike(found: Check, expected: Check) -> bool:
    """Whether two checks are equal; two numbers that are NaN are."""
    same = found[0] == expected[0] and found[1].keys() == expected[1].keys()
    return same and all(np.array_equal(found[1][name], value, equal_nan=True) for name, value in expected[1].items())
