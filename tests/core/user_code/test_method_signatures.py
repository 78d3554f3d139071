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


@pytest.mark.parametrize(
    ("setting", "base", "message"),
    [
        ("selection", "fedcohort.selection.Selector", "Mine: defines no select; a strategy is a class with select(self, round)"),
        ("federation.label_noise", "fedcohort.federation.LabelNoise", "defines no rates; a label noise is a class with rates(self,"),
        ("federation.feature_shift", "fedcohort.federation.FeatureShift", "defines no draw; a feature shift is a class with draw("),
        ("systems.latency", "fedcohort.federation.Latency", "defines no times; a latency law is a class with times(self, num_samples"),
        ("systems.network", "fedcohort.federation.Network", "defines no split; a network law is a class with split(self, num_clie"),
        ("systems.availability", "fedcohort.federation.Availability", "no presence; an availability law is a class with presence(se"),
        ("training.loss", "fedcohort.algorithms.Loss", "client 1: Mine: defines no samples; a loss is a class with samples(self,"),
        ("model", "fedcohort.Model", "Mine: defines no build; a model is a class with build(self, shape, num_classes)"),
    ],
)  # fmt: skip
def test_a_class_without_the_method_of_its_base(
    setting: str, base: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a misspelled name: a line that says which method, not a traceback."""
    module, _, name = base.rpartition(".")
    code = f"from {module} import {name}\nfrom fedcohort.algorithms import parameters\n@parameters\nclass Mine({name}):\n    pass\n"
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    refused(call("run", "--set", f"{setting}=mine.py:Mine", "--set", "rounds=1", "--quiet"), message)


def test_a_feature_shift_that_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom fedcohort.federation import FeatureShift\nclass Mine(FeatureShift):\n"
        "    def draw(self, clients, space, rng):\n        return np.zeros(len(clients))\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    result = call("run", "--set", "federation.feature_shift=mine.py:Mine", "--set", "rounds=1", "--quiet")
    refused(result, "Mine: defines no change; a feature shift is a class with change(self, samples, drawn, space, rng)")
