"""Planted federations: made-up clients whose rewards are known, to see whether a strategy's score finds the good ones.

No model is trained. A client's loss changes by its gain when it is selected and by a tenth of that otherwise; its time is a shifted
exponential one. What a bandit can learn is planted:

    speed      equal gains; only the times differ
    loss       the gain is proportional to the present loss, which grows back while the client is not selected
    noise      half of the clients have wrong labels: no gain, and a validation loss that does not fall
    nothing    gains differ in every round, without a pattern, and times are equal: nothing can be learned
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcohort import Chooser, ClientResult
from fedcohort.selection import Census, Question, Selector

__all__ = ["KINDS", "Planted", "mean_reward", "regret_by_round"]

KINDS = ("speed", "loss", "noise", "nothing")

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Planted:
    """A planted federation of ``m`` clients."""

    kind: str
    seed: int
    m: int = 50
    k: int = 10
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, KINDS.index(self.kind)])
        spread = 0.0 if self.kind == "nothing" else 10.0
        self.seconds = 100 * (1 + spread * self.rng.exponential(size=self.m))
        self.wrong = self.rng.permutation(self.m) < self.m // 2 if self.kind == "noise" else np.zeros(self.m, bool)
        self.first = self.rng.uniform(1.5, 3.0, self.m)
        self.loss, self.held_out = self.first.copy(), self.first.copy()

    def ask(self, question: Question, clients: Array) -> Array:  # noqa: ARG002
        """Training loss and loss on held-out samples of each client."""
        return np.stack([self.loss, self.held_out], axis=1)[clients]

    def gains(self) -> Array:
        """The loss that each client's own training takes away in this round."""
        if self.kind == "loss":
            return 0.2 * self.loss
        if self.kind == "nothing":
            return 0.02 * self.rng.exponential(size=self.m)
        return np.where(self.wrong, 0.001, 0.02)

    def play(self, selected: Array, gains: Array) -> None:
        """Change the losses: down for the selected clients, and a little for the others."""
        change = np.where(selected, gains, 0.1 * gains) * self.rng.uniform(0.7, 1.3, self.m)
        if self.kind == "loss":
            self.loss = np.where(selected, self.loss - change, self.loss + 0.1 * (self.first - self.loss))
            self.held_out = self.loss.copy()
            return
        direction = np.where(self.loss > self.first, -1.0, 1.0)  # back and forth, so that a gain never ends
        self.loss = self.loss + direction * change
        falling = 0.99 * self.held_out + 0.01 * 0.3 * self.first
        self.held_out = np.where(self.wrong, self.first, falling) * self.rng.uniform(0.99, 1.01, self.m)


def rewards_by_round(strategy: Selector, kind: str, seed: int, rounds: int) -> Array:
    """The reward of each round of a strategy, of the best clients, and of all clients with equal chance, [rounds, 3].

    The reward of a client is its gain per second; the reward of a round is the sum over its k clients. A round with another number of
    clients, such as the first one of FLASH, has no rewards: NaN.
    """
    world = Planted(kind, seed)
    census = Census(np.full(world.m, 100), 10, world.k, rounds=rounds)
    chooser = Chooser(strategy, census, seed=seed)
    found = np.full((rounds, 3), np.nan)
    for t in range(rounds):
        cohort = chooser.select(range(world.m), world.ask)
        gains = world.gains()
        rates = gains / world.seconds
        if len(cohort.clients) == world.k:
            known = 0.02 / world.seconds if kind == "nothing" else rates  # nobody can know the gains of this round
            found[t] = rates[cohort.clients].sum(), np.sort(known)[-world.k :].sum(), world.k * rates.mean()
        chooser.observe(
            chooser.outcome({int(i): ClientResult(duration=float(world.seconds[i])) for i in cohort.clients})
        )
        world.play(np.isin(np.arange(world.m), cohort.clients), gains)
    return found


def mean_reward(strategy: Selector, kind: str, seed: int, rounds: int) -> tuple[float, float, float]:
    """The mean of :func:`rewards_by_round` over rounds. The first tenth of the rounds does not count."""
    mine, best, uniform = np.nansum(rewards_by_round(strategy, kind, seed, rounds)[rounds // 10 :], axis=0) / rounds
    return float(mine), float(best), float(uniform)


def regret_by_round(strategy: Selector, kind: str, seed: int, rounds: int) -> tuple[Array, Array]:
    """The regret up to the end of each round, of a strategy and of a choice with equal chance, [rounds] each.

    The regret of a round is the reward of the best clients minus the own one; it is 0 in rounds without rewards.
    """
    mine, best, uniform = rewards_by_round(strategy, kind, seed, rounds).T
    own, chance = (np.nancumsum(best - each) for each in (mine, uniform))
    return own, chance
