"""Stopping rules: the conformal rule on worked scores, a user's own rule, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort, Context, Progress, StoppingRule
from fedcohort.testing.base import HEALTHY, bits, small_federation
from fedcohort.training.client_hooks import ending
from fedcohort.training.stopping_rules import ConformalRule, LossesRule, rules_of
from tests.experiments import small

WORKED = np.array([0.02, 0.05, 0.07, 0.10, 0.12, 0.18, 0.22, 0.30, 0.55])


def progress(right: Any, *, epoch: int = 1, last: bool = False) -> Progress:
    """A client whose held-out samples of class 0 have these probabilities; class 1 has the rest."""
    f = np.asarray(right, dtype=np.float64)
    found = np.stack([f, 1 - f], axis=1), np.zeros(len(f), dtype=np.int64)
    return Progress(epoch, last, 0.5, lambda: found)


@pytest.mark.parametrize(("alpha", "q", "done"), [(0.3, 0.22, 1), (0.2, 0.30, 0), (0.1, 0.55, 0), (0.05, math.inf, 0)])
def test_the_worked_example(alpha: float, q: float, done: int) -> None:
    """S19: θ = 0.25, nine samples."""
    stop, said = ConformalRule(alpha=alpha).check(progress(1 - WORKED))
    assert (stop, said["done"], said["calibration"]) == (bool(done), done, 9)
    assert said["q_hat"] == pytest.approx(q)


def test_mean_set_size_by_hand() -> None:
    """q̂ = 0.22: f ≥ 0.78 is in the set; of nine samples seven have class 0, and class 1 has at most 0.55."""
    _, said = ConformalRule(alpha=0.3).check(progress(1 - WORKED))
    assert said["set_size"] == pytest.approx(7 / 9)
    stop, said = ConformalRule(alpha=0.1, theta=None, set_size=1.2).check(
        progress(1 - WORKED)
    )  # f ≥ 0.45: class 1 once
    assert (stop, said["set_size"]) == (True, pytest.approx(10 / 9))
    stop, said = ConformalRule(alpha=0.05, theta=None, set_size=1.2).check(progress(1 - WORKED))
    assert (stop, said["set_size"]) == (False, 2.0)  # everything is in every set


def test_a_quantile_or_a_set_size_equal_to_its_limit_is_done() -> None:
    """Nine samples with f = ¾: q̂ = ¼ exactly, and every set has exactly one class."""
    right = np.full(9, 0.75)
    for limits in ({"theta": 0.25}, {"theta": None, "set_size": 1.0}, {"theta": 0.25, "set_size": 1.0}):
        stop, said = ConformalRule(alpha=0.3, **limits).check(progress(right))
        assert (stop, said["q_hat"], said["set_size"], said["done"]) == (True, 0.25, 1.0, 1)
    for limits in ({"theta": 0.2499}, {"theta": None, "set_size": 0.9999}, {"theta": 0.25, "set_size": 0.9999}):
        assert ConformalRule(alpha=0.3, **limits).check(progress(right))[0] is False


def test_nothing_held_out_and_nan_never_qualify() -> None:
    stop, said = ConformalRule(theta=1.0, overflow="max").check(progress([]))
    assert (stop, said["q_hat"], said["done"]) == (False, math.inf, 0)
    stop, said = ConformalRule(theta=1.0, alpha=0.4, overflow="max").check(progress([math.nan] * 3))
    assert (stop, said["q_hat"]) == (False, math.inf)


def test_without_a_criterion_only_the_last_epoch_is_looked_at() -> None:
    rule = ConformalRule(theta=None, alpha=0.3)
    assert rule.check(progress(1 - WORKED)) == (False, {})
    stop, said = rule.check(progress(1 - WORKED, last=True))
    assert (stop, said["done"]) == (False, 0)
    assert said["q_hat"] == pytest.approx(0.22)


OWN_RULE = '''
"""Stop when the loss of an epoch is hardly below that of the epoch before."""

from fedcohort.core.parameters import parameters
from fedcohort.selection import Progress, StoppingRule


@parameters
class Plateau(StoppingRule):
    """Stop on a plateau."""

    least: float = 0.05
    """Smallest gain that is worth an epoch."""

    def check(self, progress: Progress) -> tuple[bool, dict[str, float]]:
        gain = progress.before[-1]["epoch_loss"] - progress.loss if progress.before else float("inf")
        return gain < self.least, {"epoch_loss": progress.loss, "gain": gain}
'''


@parameters
class ChangesWhatItGets(StoppingRule):
    """Writes into all arrays."""

    def check(self, progress: Progress) -> Any:
        for evaluate in (progress.held_out, progress.trained, progress.tested):
            probabilities, labels = evaluate()
            probabilities[:], labels[:] = 0.5, 0
        return False, {}


def test_a_rule_cannot_change_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.engines.threaded_cohort.rules_of", lambda _: ChangesWhatItGets)
    federation = small_federation(trouble=False)
    before = federation.train.labels.clone(), federation.test.labels.clone()
    engine = LocalEngine(federation, Mlp(hidden=8), Training(batch_size=4), FedAvg(), 3, 2)
    cohort = Cohort(np.array(HEALTHY), epochs=np.full(len(HEALTHY), 2), stop={"rule": "own"})
    assert all(update.failure is None for update in engine.train(engine.initial_model(), 1, cohort, FedAvg()))
    engine.close()
    assert torch.equal(federation.train.labels, before[0])
    assert torch.equal(federation.test.labels, before[1])


def test_a_rule_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(OWN_RULE, encoding="utf-8")
    engine = LocalEngine(small_federation(), Mlp(hidden=8), Training(batch_size=4, lr=0.05), FedAvg(), 3, 2)
    model, clients = engine.initial_model(), np.array(HEALTHY)

    def train(epochs: Any, **values: Any) -> Any:
        return list(engine.train(model, 1, Cohort(clients, epochs=np.array(epochs), **values), FedAvg()))

    stopped = train([9] * len(clients), stop={"rule": f"{tmp_path / 'rules.py'}:Plateau", "least": 0.04})
    used = [int(update.report["epochs"]) for update in stopped]
    assert len(set(used)) > 1
    for update, plain in zip(stopped, train(used), strict=True):
        assert bits(update.state) == bits(plain.state)
        assert update.work == update.report["epochs"]
        assert update.report["gain"] < 0.04 or update.report["epochs"] == 9
    engine.close()


class Returns(StoppingRule):
    """Returns what it is given."""

    def __init__(self, returned: Any) -> None:
        self._returned = returned

    def check(self, progress: Progress) -> Any:
        return self._returned


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (True, r"^Returns\.check returned True; return whether to stop and the numbers to report, such as \(True, "),
        (None, r"^Returns\.check returned None; return whether to stop"),
        ((True, None), r"^Returns\.check returned \(True, None\); return whether to stop"),
        ((math.nan, {}), r"^Returns\.check returned nan for whether to stop; return True or False$"),
        (("no", {}), r"^Returns\.check returned 'no' for whether to stop; return True or False$"),
        ((False, {"gain": "1.0"}), r"^Returns\.check reports 'gain': '1\.0'; report numbers, by name$"),
        ((False, {"gain": np.ones(3)}), r"^Returns\.check reports 'gain': array\(\[1\., 1\., 1\.\]\); report numbers, by name$"),
        ((False, {"gain": 10**400}), r"^Returns\.check reports 'gain': 10+\.+0+; report numbers, by name$"),
        ((False, {"gain": None}), r"^Returns\.check reports 'gain': None; report numbers, by name$"),
        ((False, {3: 1.0}), r"^Returns\.check reports 3: 1\.0; report numbers, by name$"),
        ((False, {"loss": 0.0}), r"^Returns\.check reports 'loss', which is measured for every client; use another name$"),
        ((False, {"update_norm": 0.0}), r"^Returns\.check reports 'update_norm', which is measured for every client"),
    ],
)  # fmt: skip
def test_a_rule_that_returns_something_else_is_named(returned: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ending(Returns(returned), progress([]))


def test_a_rule_may_return_numbers_of_numpy_and_torch() -> None:
    returned = np.bool_(True), {"gain": np.float32(0.5), "steps left": torch.tensor(2), "found": True}
    assert ending(Returns(returned), progress([])) == (True, {"gain": 0.5, "steps left": 2.0, "found": 1.0})
    assert ending(Returns((torch.tensor(False), {})), progress([])) == (False, {})


def test_a_rule_without_check_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^StoppingRule: defines no check; a stopping rule is a class with check\("):
        ending(StoppingRule(), progress([]))


def test_the_stacked_plan_trains_clients_that_stop_early_one_by_one() -> None:
    settings = Training(batch_size=4, optimizer="sgd")
    cohort = Cohort(
        np.array(HEALTHY), epochs=np.full(len(HEALTHY), 4), stop={"rule": "conformal", "alpha": 0.7, "theta": 0.6}
    )
    found = []
    for plan in ("threads", "stacked"):
        engine = LocalEngine(small_federation(), Mlp(hidden=8), settings, FedAvg(), 3, 2, plan=plan)
        updates = list(engine.train(engine.initial_model(), 1, cohort, FedAvg()))
        found.append([(update.report, bits(update.state)) for update in updates])
        engine.close()
    assert found[0] == found[1]


def test_each_client_has_a_rule_of_its_own(tmp_path: Path) -> None:
    """A rule that counts its checks on ``self`` would stop the clients after the first one at their first check."""
    file = tmp_path / "rules.py"
    file.write_text(
        "from fedcohort.selection import StoppingRule, parameters\n\n\n@parameters\nclass Third(StoppingRule):\n"
        "    checks = 0\n\n    def check(self, progress):\n        self.checks += 1\n"
        "        return self.checks >= 3, {'checks': float(self.checks)}\n",
        encoding="utf-8",
    )
    clients = np.array(HEALTHY)
    cohort = Cohort(clients, epochs=np.full(len(clients), 5), stop={"rule": f"{file}:Third"})
    for workers in (1, 2):
        engine = LocalEngine(
            small_federation(trouble=False), Mlp(hidden=8), Training(batch_size=4), FedAvg(), 3, workers, plan="threads"
        )
        try:
            for t in (1, 2):
                updates = list(engine.train(engine.initial_model(), t, cohort, FedAvg()))
                assert [update.report["epochs"] for update in updates] == [3.0] * len(clients)
                assert [update.report["checks"] for update in updates] == [3.0] * len(clients)
        finally:
            engine.close()


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ({}, "Cohort.stop = {}: it does not name a rule"),
        ({"rule": "conformall"}, "Cohort.stop.rule = 'conformall': no such stopping rule; did you mean 'conformal'"),
        ({"rule": "conformal", "alpha": 2}, "Cohort.stop (conformal).alpha = 2"),
    ],
)
def test_what_is_refused(stop: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        rules_of(stop)
    assert str(caught.value).startswith(message)


def test_a_rule_in_a_file_is_found_beside_the_file_of_its_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run begins in another folder, in which the rule's file is only looked for if it is not beside the strategy."""
    rule = "from fedcohort.selection import StoppingRule, parameters\n@parameters\nclass First(StoppingRule):\n"
    rule += "    def check(self, progress):\n        return True, {'own': %d}\n"
    strategy = "import numpy as np\nfrom fedcohort.selection import Cohort, Uniform\nclass Short(Uniform):\n"
    strategy += "    def select(self, round):\n        clients = round.sample(round.k)\n"
    strategy += (
        "        return Cohort(clients, epochs=np.full(len(clients), 3), stop={'rule': 'rules/first.py:First'})\n"
    )
    (tmp_path / "mine" / "rules").mkdir(parents=True)
    (tmp_path / "here" / "rules").mkdir(parents=True)
    (tmp_path / "mine" / "short.py").write_text(strategy)
    (tmp_path / "mine" / "rules" / "first.py").write_text(rule % 1)
    (tmp_path / "here" / "rules" / "first.py").write_text(rule % 2)
    monkeypatch.chdir(tmp_path / "here")
    chosen = {"name": str(tmp_path / "mine" / "short.py:Short"), "k": 3}
    run = fedcohort.run(small(rounds=1, selection=chosen), runs=tmp_path / "runs")
    assert run.clients["own"].tolist() == [1.0, 1.0, 1.0]
    assert run.clients["epochs"].tolist() == [1.0, 1.0, 1.0]
    (tmp_path / "mine" / "rules" / "first.py").unlink()
    run = fedcohort.run(small(rounds=1, selection=chosen), runs=tmp_path / "others")
    assert run.clients["own"].tolist() == [2.0, 2.0, 2.0]


def test_losses_are_reported_after_the_last_epoch() -> None:
    """Robust loss at p = z = (.7, .2, .1), y = 0: CE .356675, entropy .801819, RCE 1.2."""
    found = np.array([[0.7, 0.2, 0.1], [0.1, 0.9, 0.0]]), np.array([0, 1])
    held = np.array([[0.5, 0.25, 0.25]]), np.array([1])
    rule = LossesRule(loss="robust", alpha=0.1, beta=4.0)
    assert rule.check(Progress(1, False, 0.5, lambda: held, (), lambda: found)) == (False, {})
    stop, said = rule.check(Progress(2, True, 0.5, lambda: held, (), lambda: found))
    first = 0.356675 + 0.1 * 0.801819 + 4 * 1.2
    second = 0.105361 + 0.1 * 0.325083 + 4 * 4 * 0.1
    assert stop is False
    assert said["training_loss"] == pytest.approx((first + second) / 2, abs=1e-6)
    assert said["held_out_loss"] == pytest.approx(math.log(4))
    nothing = np.zeros((0, 3)), np.zeros(0, dtype=np.int64)
    _, said = LossesRule().check(Progress(2, True, 0.5, lambda: nothing, (), lambda: found))
    assert said["held_out_loss"] == said["training_loss"] == pytest.approx((0.356675 + 0.105361) / 2, abs=1e-6)


def test_reported_losses_are_those_of_the_model_sent_and_the_model_is_the_same_without_them() -> None:
    federation, training = small_federation(trouble=False), Training(batch_size=4, epochs=2)
    engine = LocalEngine(federation, Mlp(hidden=8), training, FedAvg(), seed=3, workers=1)
    try:
        model, client = engine.initial_model(), HEALTHY[0]
        stop = {"rule": "losses", "loss": "robust", "alpha": 0.1, "beta": 4.0, "log_zero": -4.0}
        (plain,) = engine.train(model, 1, Cohort(np.array([client])), FedAvg())
        (update,) = engine.train(model, 1, Cohort(np.array([client]), stop=stop), FedAvg())
        assert bits(update.state) == bits(plain.state)
        answer = engine.answer(update.state, 1, Context(loss="robust"), np.array([client]))[0]
        assert [update.report["training_loss"], update.report["held_out_loss"]] == pytest.approx(answer, rel=1e-5)
        assert update.passes > plain.passes + 1
    finally:
        engine.close()
