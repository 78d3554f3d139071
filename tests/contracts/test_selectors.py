"""Every strategy fulfills the contract, and the check detects strategies that do not."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcohort.core.parameters import make, parameters
from fedcohort.selection import STRATEGIES, Card, Census, Cohort, LocalLoss, Outcome, Round, Selector, Why
from fedcohort.selection.strategies.cluster_survey import ClusterSurvey
from fedcohort.selection.strategies.size import BySize
from fedcohort.selection.strategies.stratified import Stratified
from fedcohort.testing import check_selector
from tests.repetitions import slow_unless

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "ucb": [{"initial_rounds": 0, "epsilon": 0.0}, {"initial_rounds": 3, "epsilon": 0.5, "reward_norm": "affine"}],
    "powd": [{"d": 7}],
    "cpowd": [{"d": 7, "batch_size": 1}],
    "rpowd": [{"d": 7}],
    "select_by_loss": [{"d": 7}],
    "flash_printed": [{"head": "lin_ucb", "gamma_scale": 0.1}],
    "conformal": [
        {"score": "s2", "overflow": "max", "alpha_cp": 0.02},
        {"score": "s3", "schedule": "linear", "theta_end": 0.5},
        {"rule": "rank"},
        {"rule": "set_size", "on_empty": "best", "best": 2},
        {"controller": True, "adaptive_alpha": True},
        {"schedule": "cosine", "theta_end": 0.1, "alpha_end": 0.3},
        *({"base": name, "on_empty": "best"} for name in ("pyramidfl", "ocs", "clustered_size", "flash")),
        {"base": {"name": "ucb", "initial_rounds": 0, "epsilon": 0.0}},
    ],
    "utility_time": [{"weakest_w": 5, "strength": "count"}, {"use_time": False}],
    "oort": [
        {"exploration": "size", "pool": 2, "epsilon": 0.1, "epsilon_min": 0.0, "cut_off": 0.05},
        {"blacklist_rounds": 1, "fairness": 0.5, "pacer_window": 2, "pacer_rule": "paper", "utility_scale": "raw"},
        {"epsilon": 0.0, "epsilon_min": 0.0, "pacer_window": 1},
    ],
    "pyramidfl": [
        {"dropout": False, "importance_data": True},
        {"adaptive_epochs": False, "unsent": "unchanged", "epsilon_decay": 0.5},
    ],
    "afl": [{"alpha1": 0.0, "alpha2": 5.0, "alpha3": 1.0}, {"alpha1": 0.99, "alpha3": 0.0}],
    "divfl": [{"subset": 2}, {"start": "everybody"}],
    "tifl": [
        {"interval": 2, "credit": 1, "tiers": 2},
        {"policy": "static", "tiers": 3, "probabilities": [0.7, 0.0, 0.3]},
    ],
    "haccs": [{"epsilon_dp": 0.1, "deterministic": 1.0}, {"deterministic": 0.0, "rho": 1.0}],
    "gpfl_select": [{"a": 0.0, "momentum": 0.0}],
    "cs_ucb": [{"t_max": 3.0}],
    "fedcs": [{"deadline": 2.5, "d": 9, "uploads": "sequential"}, {"deadline": 0.01}],
    "flash": [
        {"head": "lin_ucb", "gamma_rule": "theory"},
        {"head": "greedy", "without": "duration", "scaling": "colnorm"},
        {"head": "eps_greedy", "epsilon": 0.5, "reward_scope": "global", "reward_data": "validation"},
        {"head": "restless", "duration_scope": "round"},
        {"head": "neural", "context_refresh": "selected", "first_round": "random"},
        {"per_arm": True},
        {"eval_point": "local"},
        {"credit": "printed", "first_round": "all", "time_unit": "raw", "reward_unit": "raw"},
        {"without": "train_loss", "context_loss": "ce", "gamma_scale": 0.0},
        {"without": "validation_loss"},
        {"without": "reward", "head": "lin_ucb"},
    ],
    "fedcor": [
        {"warmup": 2, "interval": 2, "first_steps": 5, "steps": 2},
        {
            "warmup": 1,
            "interval": 3,
            "first_steps": 5,
            "steps": 2,
            "kernel": "polynomial",
            "objective": "leave_one_out",
        },
        {"warmup": 3, "interval": 1, "first_steps": 5, "steps": 2, "kernel": "se", "memory": 2, "recipe": "cifar10"},
    ],
    "restless": [{"states": 1, "exploration": 0.0}, {"states": 2, "exploration": 0.0}],
    "neural": [{"style": "ts", "hidden": 0}],
    "stratified": [
        {"by": "label_cluster", "groups": 3, "allocation": "neyman", "epsilon_dp": 0.5},
        {"by": "size_quantile", "groups": 4, "allocation": "equal", "min_one": False},
        {"by": "speed_quantile", "groups": 3, "allocation": "neyman"},
    ],
    "cluster_survey": [
        {"by": "dominant_label", "per_group": 2},
        {"by": "size_quantile", "groups": 4, "chance": "size"},
        {"by": "speed_quantile", "groups": 3, "per_group": 1},
    ],
    "clustered_similarity": [{"dissimilarity": "L1", "linkage_input": "condensed"}, {"dissimilarity": "L2"}],
    "size": [{"replacement": True}],
    "ocs": [{"candidates": 5}],
    "aocs": [{"candidates": 5}, {"j_max": 0}],
    "rizk": [{"xi": 0.0, "estimator": "self_normalised", "importance_data": True}],
    "feel": [{"gradient": "cached"}, {"rho": 1.0}, {"rho": 0.001}],
    "fedcbs": [{"exploration": 0.0, "beta": 3.0}],
    "loss_proportional": [{"temperature": 0.1, "candidates": 5}],
}
"""Settings that are checked in addition to the defaults."""


def is_usual(case: tuple[str, dict[str, Any]]) -> bool:
    """The defaults, and the first of the other settings, are checked by the usual tests."""
    name, values = case
    return values in [{}, *SETTINGS.get(name, [])[:1]]


CASES = [(name, values) for name in STRATEGIES for values in [{}, *SETTINGS.get(name, [])]]


@pytest.mark.filterwarnings("ignore:selection.d = 7")
@pytest.mark.parametrize(
    ("name", "values"), slow_unless(is_usual, CASES), ids=[f"{name}-{values}" for name, values in CASES]
)
def test_every_strategy_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    check_selector(partial(make, STRATEGIES.find(name, "selection.name"), values, "selection"))


class GivenStrata(Stratified):
    """Three given strata, for any number of clients."""

    def setup(self, census: Census) -> None:
        self.by, self.given = "given", [i % 3 for i in range(census.num_clients)]
        super().setup(census)


class GivenGroups(ClusterSurvey):
    """Three given groups, for any number of clients."""

    def setup(self, census: Census) -> None:
        self.by, self.given = "given", [i % 3 for i in range(census.num_clients)]
        super().setup(census)


class GivenImportance(BySize):
    """Every second client has importance 0."""

    def setup(self, census: Census) -> None:
        self.importance = [float(i % 2) for i in range(census.num_clients)]
        super().setup(census)


@pytest.mark.parametrize("strategy", [GivenStrata, GivenGroups, GivenImportance])
def test_strategies_with_values_given_per_client_fulfill_the_contract(strategy: type[Selector]) -> None:
    check_selector(strategy)


VALID_CARD = Card(source="a test", status="ours")


@parameters
class LeastSelected(Selector):
    """Selects the clients that were selected least often; fulfills the contract."""

    card: ClassVar[Card] = VALID_CARD

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.counts = np.zeros(census.num_clients)

    def select(self, round: Round) -> Cohort:
        scores = -self.counts[round.available]
        return Cohort(round.top(scores), why=Why(round.available, scores, note="least selected"))

    def observe(self, outcome: Outcome) -> None:
        self.counts[outcome.cohort.clients] += 1


def test_the_strategy_whose_rules_are_broken_below_fulfills_the_contract() -> None:
    check_selector(LeastSelected)


@parameters
class LeastCounted(LeastSelected):
    """The same, with a dictionary in which every client is 0 at first."""

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.times: Counter[int] = Counter()

    def select(self, round: Round) -> Cohort:
        scores = -np.array([self.times[client] for client in round.available.tolist()], dtype=np.float64)
        return Cohort(round.top(scores), why=Why(round.available, scores, note="least selected"))

    def observe(self, outcome: Outcome) -> None:
        self.times.update(outcome.cohort.clients.tolist())


def test_a_counter_is_a_counter_again_after_a_resume() -> None:
    check_selector(LeastCounted)


@parameters
class KeepsUpdates(LeastSelected):
    """Keeps the last update of every client, in an array whose width the census tells."""

    needs: ClassVar[frozenset[str]] = frozenset({"update"})

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.updates = np.zeros((census.num_clients, census.num_parameters))

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        self.updates[outcome.cohort.clients[outcome.trained]] = outcome.billed_report("update")[outcome.trained]


def test_updates_have_the_length_that_the_census_tells() -> None:
    check_selector(KeepsUpdates)


class SavesNoState(LeastSelected):
    def state_dict(self) -> dict[str, Any]:
        return {}


class SelectsUnavailableClients(LeastSelected):
    def select(self, round: Round) -> Cohort:
        return Cohort(np.arange(round.k), why=Why(round.available, np.zeros(len(round.available)), note="first"))


class SelectsTooFewClients(LeastSelected):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.sample(2), why=Why(round.available, np.zeros(len(round.available)), note="two"))


class GivesNoReasons(LeastSelected):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[np.random.permutation(len(round.available))[: round.k]], why=None)  # noqa: NPY002


class DrawsFromTheGlobalGenerator(LeastSelected):
    def select(self, round: Round) -> Cohort:
        scores = np.random.random(len(round.available))  # noqa: NPY002
        return Cohort(round.top(scores), why=Why(round.available, scores, note="global generator"))


class ModifiesDurations(LeastSelected):
    def select(self, round: Round) -> Cohort:
        round.durations[:] = 0
        return super().select(round)


class ForgetsTheSetupOfTheBase(LeastSelected):
    def setup(self, census: Census) -> None:
        self.times = np.zeros(census.num_clients)


class KeepsStateThatCannotBeSaved(LeastSelected):
    def observe(self, outcome: Outcome) -> None:
        self.last = outcome


class AsksAnUndeclaredQuestion(LeastSelected):
    def select(self, round: Round) -> Cohort:
        losses = np.nan_to_num(round.ask(LocalLoss(), round.available))
        return Cohort(round.top(losses), why=Why(round.available, losses, note="loss"))


class UsesValidationUndeclared(LeastSelected):
    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        self.accuracy = outcome.accuracy


class ReadsModelsInAdmit(LeastSelected):
    def admit(self, updates: Any) -> Any:
        return (update for update in updates if update.state)


class FailsInObserve(LeastSelected):
    def observe(self, outcome: Outcome) -> None:
        raise KeyError("rewards")


class ComplainsItself(LeastSelected):
    def observe(self, outcome: Outcome) -> None:
        assert outcome.duration < 0


class GivesScoresOfTheWrongLength(LeastSelected):
    def select(self, round: Round) -> Cohort:
        return Cohort(round.sample(round.k), why=Why(round.available, np.zeros(1), note="?"))


class SelectsTheFirstNumber(LeastSelected):
    def select(self, round: Round) -> Cohort:
        scores = -self.counts[round.available]
        first = round.available[np.argsort(-scores, kind="stable")][: self.census.k]
        return Cohort(first, why=Why(round.available, scores, note="as many as in the first round"))


class KeepsTheTimesItself(LeastSelected):
    def setup(self, census: Census) -> None:
        super().setup(census)
        self.times: Any = None

    def select(self, round: Round) -> Cohort:
        self.times = round.durations if self.times is None else self.times
        scores = np.nan_to_num(self.times[round.available])
        return Cohort(round.top(scores), why=Why(round.available, scores, note="slowest in the first round"))


class ReadsAReportThatIsNotSent(LeastSelected):
    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        outcome.billed_report("los")


class ReadsUpdatesUndeclared(LeastSelected):
    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        outcome.billed_report("update")


class NamesARuleThatDoesNotExist(LeastSelected):
    stop: ClassVar[dict[str, object]] = {"rule": "conformaal"}

    def select(self, round: Round) -> Cohort:
        return dataclasses.replace(super().select(round), stop=self.stop)


class ReadsAReportOfAnotherRule(NamesARuleThatDoesNotExist):
    stop: ClassVar[dict[str, object]] = {"rule": "losses"}

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        assert np.isfinite(outcome.billed_report("training_loss")).all()
        outcome.billed_report("q_hat")


class KeepsAGenerator(LeastSelected):
    def setup(self, census: Census) -> None:
        super().setup(census)
        self.rng = np.random.default_rng(0)


class KeepsASet(LeastSelected):
    def setup(self, census: Census) -> None:
        super().setup(census)
        self.seen = {1, 2}


class SeedsTheGlobalGenerator(LeastSelected):
    def select(self, round: Round) -> Cohort:
        np.random.seed(round.t)  # noqa: NPY002
        scores = np.random.random(len(round.available))  # noqa: NPY002
        return Cohort(round.top(scores), why=Why(round.available, scores, note="the same under every seed"))


class GivesNoDeclaredWeights(LeastSelected):
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})


@parameters
class ParameterWithoutDocstring(LeastSelected):
    width: int = 3


@parameters
class CardWithoutSource(LeastSelected):
    card: ClassVar[Card] = Card(source=" ", status="ours")


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        (SavesNoState, "resumed after round 6"),
        (SelectsUnavailableClients, "not available"),
        (SelectsTooFewClients, "returned 2 clients instead of 3 in round 1; set variable_size = True in the class"),
        (GivesNoReasons, "has no reasons"),
        (DrawsFromTheGlobalGenerator, "draw from round.rng only"),
        (ModifiesDurations, "read-only .*; change a copy of what was given"),
        (
            ForgetsTheSetupOfTheBase,
            r"ForgetsTheSetupOfTheBase: setup does not set self.census; call super\(\).setup\(census\) first",
        ),
        (KeepsStateThatCannotBeSaved, "saving and loading its state: raised UnsupportedStateError"),
        (AsksAnUndeclaredQuestion, "its card says"),
        (UsesValidationUndeclared, "learns from validation"),
        (ReadsModelsInAdmit, "'_Reply' object has no attribute 'state'"),
        (FailsInObserve, r"FailsInObserve, an ordinary run, round 1: observe: raised KeyError: 'rewards'"),
        (ComplainsItself, r"(?s)round 1: observe: raised AssertionError.* \(.*test_selectors\.py:\d+\)"),
        (GivesScoresOfTheWrongLength, r"Why\.scores has \d+ entries for \d+ candidates; give one for each"),
        (SelectsTheFirstNumber, "k changes, round 2: select: .* returned 3 clients instead of 5"),
        (KeepsTheTimesItself, "and as copies of what it was given"),
        (ReadsAReportThatIsNotSent, r"billed_report\('los'\): no client reports it; did you mean 'loss'"),
        (ReadsUpdatesUndeclared, r"billed_report\('update'\): no client reports it; declare needs = {'update'}"),
        (NamesARuleThatDoesNotExist, "Cohort.stop = .* no such stopping rule; did you mean 'conformal'"),
        (ReadsAReportOfAnotherRule, r"billed_report\('q_hat'\): no client reports it; valid: .*training_loss"),
        (KeepsAGenerator, "not Generator; draw from the generator that a method is given, such as round.rng$"),
        (KeepsASet, "not set; keep a sorted list, or override"),
        (SeedsTheGlobalGenerator, "round 1: draws from numpy.random; draw from round.rng only"),
        (GivesNoDeclaredWeights, r"gives = \['weights'\], but the cohort has no weights"),
        (ParameterWithoutDocstring, "ParameterWithoutDocstring.width: write a docstring"),
        (CardWithoutSource, "card.source: is empty"),
    ],
)
def test_the_check_reports_the_broken_rule(selector: Callable[[], Selector], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_selector(selector)


def test_a_strategy_typed_into_a_console_passes_although_its_docstrings_cannot_be_read() -> None:
    """The check asked for a docstring that was there: fields have theirs in the source only."""
    typed = '''
from tests.contracts.test_selectors import LeastSelected, parameters


@parameters
class Typed(LeastSelected):
    """As typed."""

    width: int = 3
    """A parameter."""
'''
    names: dict[str, Any] = {"__name__": "console"}
    exec(typed, names)
    check_selector(names["Typed"])
