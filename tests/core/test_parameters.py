"""Objects of plug-ins that are created in Python with parameters that are not valid: one line names the parameter."""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from fedcohort import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection.strategies.oort import Oort
from fedcohort.selection.strategies.uniform import Uniform


class Mine(Oort):
    """A subclass of a user."""


oort: Any = Oort
uniform: Any = Uniform


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Oort(epsilon=-3), r"^Oort\.epsilon = -3: should be at least 0$"),
        (lambda: Mine(epsilon=-3), r"^Mine\.epsilon = -3: "),
        (lambda: oort(alpha=1.0, seed=3), r"^Oort\.alpha: unknown key; did you mean 'alpha_oort'\? .* \(and 1 more error\)$"),
        (lambda: oort(0.5), r"^Oort: 0\.5 has no name; give parameters by name: epsilon, "),
        (lambda: uniform(3), r"^Uniform: 3 has no name; it takes no parameters$"),
        (lambda: make(Oort, {"epsilon": -3}, "selection"), r"^selection\.epsilon = -3: should be at least 0$"),
    ],
)  # fmt: skip
def test_a_parameter_that_is_not_valid_is_named_in_one_line(create: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        create()
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_classes_with_checked_parameters_stay_dataclasses() -> None:
    given = Oort(epsilon=0.5)
    assert pickle.loads(pickle.dumps(given)) == given == copy.deepcopy(given)
    assert "epsilon" in inspect.signature(Oort).parameters
