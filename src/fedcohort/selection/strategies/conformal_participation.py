"""Conformal participation: all selected clients train, and those with a small conformal quantile enter the model.

Each selected client (all available ones by default; ``base`` names any other strategy) trains from w^t for at most ``max_epochs``
epochs. After each epoch it computes the conformal quantile q̂_i of its n_c held-out samples, the ⌈(n_c + 1)(1 − alpha)⌉-th smallest
score (+∞ with too few samples), and stops as soon as

    q̂_i ≤ θ                 rule threshold: done
    mean |C_i(x)| ≤ z       rule set_size: done, with C_i(x) = {y : s(x, y) ≤ q̂_i}

R_t is the set of clients that are done, and w^{t+1} = Σ_{R_t} N_i w_i / Σ_{R_t} N_j. The other clients send q̂_i but no model, and
discard what they learned. With rule rank, no client stops early, and R_t are the k clients with the smallest finite q̂. The scores are
those of :mod:`fedcohort.measures.conformal`. A client without held-out samples is never admitted.

In simulated time, a client takes as long as the epochs that it used and its upload, whether it is admitted or not.

If no client is done, ``best`` admits the client with the smallest finite q̂. ``keep`` leaves the model unchanged (X in the thesis): the
next round most likely ends in the same way. ``fail`` ends the run.

Clients evaluate their calibration samples after every epoch and stop when the result is good, so coverage is no longer guaranteed on
these samples. Measure it on other samples (``fedcohort measures --conformal``).

CP thesis, chapters 3 to 5. The extensions that it proposes as further research are included with our formulas:

    schedule       x_t = x_1 + (x_end − x_1)·u, or x_end + (x_1 − x_end)(1 + cos πu)/2, for x = θ, alpha;  u = (t − 1)/(rounds − 1) ≤ 1
    controller     θ_{t+1} = clip(θ_t + κ(φ* − |R_t|/|S_t|), θ_min, θ_max)
    adaptive alpha alpha_{t+1} = clip(alpha_t + κ_a(alpha* − err_t), 0.01, 0.9)

with err_t the share of the server's validation samples outside the new model's prediction sets at the admitted clients' mean quantile
Σ_{R_t} N_i q̂_i / Σ_{R_t} N_j (after Gibbs and Candès 2021, arXiv:2106.00170). Without admitted clients, alpha does not change.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make, parameters
from fedcohort.core.plugins import Card, LabelKind
from fedcohort.measures import conformal
from fedcohort.selection.catalogue import STRATEGIES
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.cohort_checks import choose
from fedcohort.selection.joining import joined_clients
from fedcohort.selection.selector import Selector, UpdateT
from fedcohort.selection.smallest_quantiles import SmallestQuantiles
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["Conformal"]

log = logging.getLogger("fedcohort")

EMPTY_ROUNDS = 2
"""Number of rounds in a row without an admitted client after which a warning says what to change."""

Share = Annotated[float, Gt(0), Lt(1)]


@parameters
class Conformal(Selector):
    """Of all clients that train, those with good models enter. A model is good if its conformal quantile on held-out samples is
    small; by default, all available clients train.
    """

    card: ClassVar[Card] = Card(
        source="CP thesis, chapters 3 to 5; the extensions are ours",
        status="paper",
        asks="all clients of the cohort to train, at most max_epochs epochs with a pass over held-out samples after each; only those "
        "that are done upload",
        discloses="its quantile, the mean size of its prediction sets, whether it met the criterion, its number of held-out samples "
        "and of epochs used",
        knows="N_i; a validation set with adaptive_alpha",
        cost="O(m), m trainings",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})
    variable_size: ClassVar[bool] = True

    base: str | dict[str, Any] = "all"
    """Strategy that selects the cohort: the name of any other strategy, or a table { name = "…", … } with its parameters."""
    rule: Literal["threshold", "rank", "set_size"] = "threshold"
    """Rule for admission: threshold (q̂ ≤ θ), rank (the k smallest q̂ after max_epochs epochs), or set_size (mean set size ≤ z)."""
    score: conformal.AnyScore = "s1"
    """Score of a prediction: s1 = 1 − f, s2 = exp(−k1·f), s3 = 1 − 1/(1 + exp(−k2·f + b)), f the probability of the true class;
    absolute = |y − ŷ| for numeric labels, in standard deviations of the labels, for which θ can exceed 1 and z is the length of the
    prediction intervals."""
    theta: Annotated[float, Gt(0)] = 0.25
    """Threshold θ of q̂; its value in the first round if a schedule or the controller moves it."""
    alpha_cp: Share = 0.1
    """Error rate alpha of the quantile; its value in the first round if it moves. A client needs at least
    1/alpha − 1 held-out samples."""
    max_epochs: Annotated[int, Ge(1)] = 40
    """Largest number of epochs that a client trains (max_LTR)."""
    max_size: Annotated[float, Gt(0)] = 1.5
    """Largest mean size z of prediction sets with rule set_size."""
    overflow: conformal.Overflow = "inf"
    """Value of q̂ if a client holds out too few samples: inf, or max (the largest score)."""
    on_empty: Literal["keep", "best", "fail"] = "best"
    """Action if no client is done: admit the best clients by q̂, keep the model (as in the thesis), or fail (end the run)."""
    best: Annotated[int, Ge(1)] = 1
    """Number of clients that on_empty = best admits (k')."""
    schedule: Literal["none", "linear", "cosine"] = "none"
    """Shape in which θ and alpha move to theta_end and alpha_end over schedule_rounds rounds."""
    theta_end: Annotated[float, Gt(0)] | None = None
    """Final θ of the schedule; θ does not move if this is not set."""
    alpha_end: Share | None = None
    """Final alpha of the schedule; alpha does not move if this is not set."""
    schedule_rounds: Annotated[int, Ge(1)] = 10
    """Number of rounds of the schedule; afterwards the final values hold."""
    controller: bool = False
    """Adjust θ in every round towards a target share of admitted clients."""
    participation: Annotated[float, Ge(0), Le(1)] = 0.5
    """Target share of admitted clients for the controller (φ*)."""
    gain: Annotated[float, Gt(0)] = 0.1
    """Step size of the controller (κ)."""
    theta_min: Annotated[float, Gt(0)] = 0.05
    """Smallest θ of the controller."""
    theta_max: Annotated[float, Gt(0)] = 0.95
    """Largest θ of the controller."""
    adaptive_alpha: bool = False
    """Adjust alpha in every round by the coverage of the new model's prediction sets on the server's validation set."""
    alpha_target: Share | None = None
    """Target error rate of adaptive alpha (alpha*); alpha_cp if not set."""
    alpha_gain: Annotated[float, Gt(0)] = 0.05
    """Step size of adaptive alpha (κ_a); ours."""
    test_set: bool = False
    """Measure every client's prediction sets on the server's test set as well (``test_set_size`` in the record). This measure exists
    only in simulations: the pass over the test set for each client and round is not billed."""
    k1: Annotated[float, Gt(0)] = conformal.K1
    """Steepness of s2."""
    k2: Annotated[float, Gt(0)] = conformal.K2
    """Steepness of s3."""
    b: Annotated[float, Ge(0)] = conformal.B
    """Offset of s3."""

    def __post_init__(self) -> None:
        self.base_strategy = self._base_strategy()
        self._check_parameters()
        own = {"holdout", "validation"} if self.adaptive_alpha else {"holdout"}
        # Which clients are admitted is known only after training, so the base's inclusion probabilities do not hold.
        self.declare(needs=self.base_strategy.needs | own, gives=self.base_strategy.gives - {"inclusion"})

    def _base_strategy(self) -> Selector:
        """The strategy that ``base`` describes."""
        settings = {"name": self.base} if isinstance(self.base, str) else dict(self.base)
        name = settings.pop("name", None)
        if not isinstance(name, str) or name == "conformal":
            raise UsageError(f"selection.base = {self.base!r}: name another strategy, such as 'all' or 'powd'")
        strategy: Selector = make(STRATEGIES.find(name, "selection.base"), settings, "selection.base")
        return strategy

    def _check_parameters(self) -> None:
        """Refuse parameters that contradict each other."""
        for name in ("theta", "theta_end", "theta_min", "theta_max"):
            value = getattr(self, name)
            if self.score != "absolute" and value is not None and value > 1:
                raise UsageError(f"selection.{name} = {value}: should be at most 1, the largest score {self.score}")
        if self.schedule != "none" and self.theta_end is None and self.alpha_end is None:
            raise UsageError(
                f"selection.schedule = {self.schedule!r}: needs a final value; set theta_end, alpha_end, or both"
            )
        if self.controller and (self.theta_end is not None or self.rule != "threshold"):
            raise UsageError(
                "selection.controller = true: it adjusts theta in every round; remove theta_end, and use rule = 'threshold'"
            )
        if self.adaptive_alpha and self.alpha_end is not None:
            raise UsageError("selection.adaptive_alpha = true: it adjusts alpha in every round; remove alpha_end")
        if self.theta_min > self.theta_max:
            raise UsageError(f"selection.theta_min = {self.theta_min}: must be at most theta_max = {self.theta_max}")

    def refuses(self, labels: LabelKind) -> str:
        """The score of the other kind of labels, and what the base strategy refuses."""
        if labels == "numbers" and self.score != "absolute":
            return f"score = {self.score!r} is computed from class probabilities; use score = 'absolute'"
        if labels == "classes" and self.score == "absolute":
            return "score = 'absolute' is a distance of numbers; use score = 's1', 's2' or 's3'"
        return self.base_strategy.refuses(labels)

    def check_clients(self, number: int) -> None:
        """Refuse what the base strategy refuses."""
        self.base_strategy.check_clients(number)

    def setup(self, census: Census) -> None:
        """Start with θ and alpha as given, and set up the base strategy."""
        super().setup(census)
        self.base_strategy.setup(census)
        self.theta_now, self.alpha_now, self.wanted, self.empty_rounds = self.theta, self.alpha_cp, census.k, 0
        self.tie_keys: Values | None = None

    def extend(self, census: Census) -> None:
        """Extend the base strategy; θ and alpha do not depend on the clients."""
        joined_clients(self.census, census)
        self.base_strategy.extend(census)
        self.census = census

    def select(self, round: Round) -> Cohort:
        """Return the base strategy's cohort with a stopping rule."""
        cohort = choose(self.base_strategy, round)
        if cohort.stop is not None:
            raise UsageError(
                f"selection.base = {self.base!r}: its clients end their training by the rule {cohort.stop.get('rule')!r}, and "
                "conformal participation by its own; use another base, or other parameters of this one"
            )
        theta, alpha = self.at(round.t)
        self.wanted = round.k
        if self.rule == "rank" or self.on_empty == "best":
            self.tie_keys = round.rng.random(self.census.num_clients)
        stop = {
            "rule": "conformal", "score": self.score, "alpha": alpha, "overflow": self.overflow, "test_set": self.test_set,
            "theta": theta if self.rule == "threshold" else None,
            "set_size": self.max_size if self.rule == "set_size" else None,
            "k1": self.k1, "k2": self.k2, "b": self.b,
        }  # fmt: skip
        condition = {
            "threshold": f"q̂ ≤ {theta:.4g} within {self.max_epochs} epochs",
            "set_size": f"mean set size ≤ {self.max_size:g} within {self.max_epochs} epochs",
            "rank": f"among the {round.k} smallest q̂ after {self.max_epochs} epochs",
        }[self.rule]
        why = cohort.why or Why(cohort.clients, np.full(len(cohort), np.nan))
        note = f"{why.note or 'selected'}; admitted if {condition} ({self.score}, alpha {alpha:.4g}){self._otherwise}"
        return replace(
            cohort,
            inclusion=None,
            epochs=np.full(len(cohort), self.max_epochs, dtype=np.int64),
            stop=stop,
            why=replace(why, note=note),
        )

    @property
    def _otherwise(self) -> str:
        """Which clients are admitted if none is done, in words."""
        if self.rule == "rank":
            return ""
        smallest = "the client" if self.best == 1 else f"the {self.best} clients"
        return {
            "best": f"; if none is, {smallest} with the smallest q̂",
            "keep": "; if none is, no client is admitted",
            "fail": "; if none is, the run ends",
        }[self.on_empty]

    def at(self, t: int) -> tuple[float, float]:
        """θ and alpha in round ``t``."""
        theta, alpha = self.theta_now, self.alpha_now
        if self.schedule != "none":
            u = min(1.0, (t - 1) / max(self.schedule_rounds - 1, 1))
            u = u if self.schedule == "linear" else (1 - math.cos(math.pi * u)) / 2
            theta = theta if self.theta_end is None else theta + (self.theta_end - theta) * u
            alpha = alpha if self.alpha_end is None else alpha + (self.alpha_end - alpha) * u
        return theta, alpha

    def admit(self, updates: Iterable[UpdateT]) -> Iterator[UpdateT]:
        """Clients that are done; with rule rank, or if no client is done, those with the smallest q̂.

        Of the clients that are not done, at most the ``best`` (or k) updates that may still be admitted are kept in memory.
        """
        arrived = self.base_strategy.admit(updates)
        if self.rule == "rank":
            smallest: SmallestQuantiles[UpdateT] = SmallestQuantiles(self.wanted, self.tie_keys)
            for update in arrived:
                smallest.offer(update)
            yield from smallest
            return
        spare: SmallestQuantiles[UpdateT] = SmallestQuantiles(
            self.best if self.on_empty == "best" else 0, self.tie_keys
        )
        any_arrived, done = False, False
        for update in arrived:
            any_arrived = True
            if update.report.get("done") == 1.0:
                done = True
                spare.clear()
                yield update
            elif not done:
                spare.offer(update)
        if not done:
            yield from spare
        if any_arrived and not done and self.on_empty == "fail":
            raise UsageError(
                f"selection.on_empty = 'fail': no client met the rule {self.rule!r} within max_epochs = {self.max_epochs}; "
                "use 'keep' or 'best', a larger alpha_cp or theta, or more epochs"
            )

    def observe(self, outcome: Outcome) -> None:
        """Pass the outcome to the base strategy, and adjust θ and alpha."""
        self.base_strategy.observe(outcome)
        self.tie_keys = None
        self._warn(outcome)
        if self.controller and len(outcome.cohort):
            missing = self.participation - float(outcome.admitted.mean())
            self.theta_now = float(np.clip(self.theta_now + self.gain * missing, self.theta_min, self.theta_max))
        if self.adaptive_alpha and outcome.admitted.any() and len(outcome.validation_losses):
            target = self.alpha_cp if self.alpha_target is None else self.alpha_target
            moved = self.alpha_now + self.alpha_gain * (target - self._errors(outcome))
            self.alpha_now = float(np.clip(moved, 0.01, 0.9))

    def _warn(self, outcome: Outcome) -> None:
        """Say once what to change if no client is admitted in :data:`EMPTY_ROUNDS` rounds in a row: the model does not change then,
        and the next round is likely to repeat this one."""
        self.empty_rounds = self.empty_rounds + 1 if outcome.trained.any() and not outcome.admitted.any() else 0
        if self.empty_rounds != EMPTY_ROUNDS:
            return
        quantiles = outcome.billed_report("q_hat")  # sent anyway, so that reading it costs nothing
        log.warning(
            "conformal participation: no client was admitted in rounds %d and %d, and the model did not change; %s",
            outcome.t - 1, outcome.t, self._advice(quantiles[outcome.trained], *self.at(outcome.t)),
        )  # fmt: skip

    def _advice(self, quantiles: Values, theta: float, alpha: float) -> str:
        """What to change so that clients are admitted; the quantiles are those of the clients that trained."""
        finite = quantiles[np.isfinite(quantiles)]
        if not len(finite):
            needed, trained = math.ceil(1 / alpha) - 1, len(quantiles)
            return (
                f"alpha = {alpha:.4g} needs {needed} held-out samples, which no client that trained this round has ({trained} did): "
                "raise selection.alpha_cp, or give clients more data (a larger federation.holdout, or fewer clients)"
            )
        rule = f"theta = {theta:.4g}" if self.rule == "threshold" else f"rule = {self.rule!r}"
        looser = "selection.theta" if self.rule == "threshold" else f"selection.max_size (now {self.max_size:.4g})"
        return (
            f"the smallest quantile is {finite.min():.3g} with {rule}: take more steps (a smaller training.batch_size, or more "
            f"selection.max_epochs, now {self.max_epochs}), raise selection.alpha_cp (now {alpha:.4g}) or {looser}, "
            "or give clients more data (a larger federation.holdout, or fewer clients)"
        )

    def _errors(self, outcome: Outcome) -> float:
        """err_t: share of validation samples outside the new model's prediction sets."""
        sizes = self.census.num_samples[outcome.cohort.clients[outcome.admitted]]
        quantiles = outcome.billed_report("q_hat")[outcome.admitted]
        mean = np.average(np.where(np.isnan(quantiles), np.inf, quantiles), weights=sizes)
        if self.score == "absolute":
            return float((np.sqrt(outcome.validation_losses) > mean).mean())
        scores = conformal.scores(np.exp(-outcome.validation_losses), self.score, k1=self.k1, k2=self.k2, b=self.b)
        return float((scores > mean).mean())

    def state_dict(self) -> dict[str, Any]:
        """θ, alpha, and the base strategy's state."""
        others = super().state_dict()
        del others["empty_rounds"]  # only for a warning; a resumed run counts from 0
        base = others.pop("base_strategy")
        return {"stacked": base.state_dict()} | others  # the name that saved states contain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.base_strategy.load_state_dict(state["stacked"])
        super().load_state_dict({name: value for name, value in state.items() if name != "stacked"})
