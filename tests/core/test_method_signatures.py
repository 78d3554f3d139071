"""Classes of users with methods that take other arguments: one line when the class is defined, not a traceback in a round."""

from pathlib import Path
from typing import Any

import pytest

from fedcohort import UsageError
from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.losses import Loss
from fedcohort.selection import Selector, StoppingRule
from tests.cli.test_cli import call, refused


@pytest.mark.parametrize(
    ("base", "method", "function", "message"),
    [
        (Selector, "select", lambda self: None, "Mine.select(self): must take the arguments (self, round)"),
        (Selector, "select", lambda round: None, "Mine.select(round): must take the arguments (self, round)"),
        (Selector, "select", lambda self, r, more: None, "Mine.select(self, r, more): must take the arguments (self, round)"),
        (Selector, "setup", lambda self: None, "Mine.setup(self): must take the arguments (self, census)"),
        (Selector, "observe", lambda self: None, "Mine.observe(self): must take the arguments (self, outcome)"),
        (Selector, "state_dict", lambda self, x: {}, "Mine.state_dict(self, x): must take the arguments (self)"),
        (Selector, "declare", lambda self: {}, "must take the arguments (self, needs, gives, variable_size)"),
        (Algorithm, "add", lambda self, fold, u: 0, "(self, fold, u): must take the arguments (self, fold, update, weight)"),
        (Algorithm, "correct", lambda self, p: 0, "Mine.correct(self, p): must take the arguments (self, problem, gradients)"),
        (Loss, "samples", lambda self, x, y: 0, "Mine.samples(self, x, y): must take the arguments (self, logits, labels, outputs)"),
        (StoppingRule, "check", lambda self: 0, "Mine.check(self): must take the arguments (self, progress)"),
    ],
)  # fmt: skip
def test_methods_with_other_arguments_are_refused(base: type, method: str, function: Any, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        type("Mine", (base,), {method: function})
    assert message in str(refusal.value)


def test_other_names_defaults_and_further_methods_are_free() -> None:
    of_class: dict[str, Any] = {
        "select": lambda this, r, *, fast=True: (this, r, fast),
        "setup": lambda *given: given,
        "observe": lambda self, outcome, more=3: (self, outcome, more),
        "mine": lambda self, a, b: (self, a, b),
        "_own": lambda: None,
    }
    assert issubclass(type("Mine", (Selector,), of_class), Selector)


def test_the_command_line_names_the_method(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from fedcohort.selection import Selector\nclass Mine(Selector):\n    def select(self): pass\n",
        encoding="utf-8",
    )
    result = call("run", "--set", f"selection.name={file}:Mine", "--runs", tmp_path / "runs")
    refused(result, "Mine.select(self): must take the arguments (self, round)")


def test_declarations_of_algorithms_are_checked() -> None:
    with pytest.raises(UsageError, match=r"^Mine\.card = 'x': should be a Card\(source=…, status=…\)$"):
        type("Mine", (Algorithm,), {"card": "x"})
    with pytest.raises(
        UsageError, match=r"^Mine\.needs = 'public': should be a set, such as frozenset\(\{'holdout'\}\)$"
    ):
        type("Mine", (Algorithm,), {"needs": "public"})
