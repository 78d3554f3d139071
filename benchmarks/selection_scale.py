"""Measure selection at scale: the server's time and memory per round for every strategy, with up to a million clients.

    python benchmarks/selection_scale.py [--clients 1000 1000000] [--only oort …] [--k 100] [--json]

Each strategy is measured twice: ``cold``, when no client has taken part before (median of rounds 1 to 3), and ``warm``, after all
clients have taken part (median of 5 rounds). The time is that of ``select``, including the rules that apply to every strategy,
and of ``observe``, without the answers of the benchmark's clients. It is processor time over all threads, so that other work on
the machine does not count. The memory is the peak of the strategy's state and temporary arrays in a warm round, as traced by
Python, per client. Updates, for strategies that need them, have 50 entries.

``fedcor`` selects at random in its first fifteen rounds. ``fedcor, fitted`` is the same strategy after a warm-up of three rounds:
cold is the round with the first fit and a greedy selection, warm are rounds with a greedy selection and without a fit.

The exit code is 1 if a strategy whose card states O(m), O(m log m) or similar needs more than 0.25 s or 400 bytes per client, or
a bandit on contexts (FLASH, its variants, ``restless`` and ``neural``) more than 1 s.
"""

import argparse
import json
import sys
import time
import tracemalloc
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.selection import STRATEGIES, Census, Outcome, Question, Round, Selector, choose

LIMIT_S, LIMIT_BYTES = 0.25, 400
BANDIT_LIMIT_S = 1.0
REPORTS = ("loss", "square_loss", "samples", "steps", "accuracy", "update_norm")
CLASSES, WIDTH = 10, 50

FITTED, WARMUP = "fedcor, fitted", 3
"""FedCor after its warm-up: the name of the row, and the number of rounds before the first fit."""


@dataclass
class Measured:
    """The cost of one strategy with this number of clients."""

    strategy: str
    clients: int
    cost: str
    cold_s: float = float("nan")
    warm_s: float = float("nan")
    bytes_per_client: float = float("nan")
    refused: str = ""

    @property
    def too_much(self) -> bool:
        """Whether it exceeds the limits for strategies that are linear except for a sort, or the limit for bandits on contexts."""
        slowest = max(self.cold_s, self.warm_s)
        if self.cost.startswith(("O(md", "O(m·P_nn")):
            return slowest > BANDIT_LIMIT_S
        linear = self.cost.startswith(("O(m)", "O(m log m)", "O(m + d", "O(mK)", "O(d log d)", "O(m·j_max)"))
        return linear and (slowest > LIMIT_S or self.bytes_per_client > LIMIT_BYTES)


class World:
    """m simulated clients that answer, train and report immediately. The time for this is not counted."""

    def __init__(self, m: int, k: int) -> None:
        draw = rng(0, "benchmark")
        self.m, self.k = m, k
        self.clients = np.arange(m)
        self.sizes = draw.integers(20, 200, m)
        self.durations = self.sizes * draw.uniform(1, 9, m)
        self.values = draw.uniform(0.1, 3, (m, 8))
        self.answering = 0.0

    def census(self, needs: frozenset[str]) -> Census:
        """The census of the clients."""
        histogram = None
        if "histogram" in needs:
            histogram = rng(0, "histogram").multinomial(self.sizes, np.full(CLASSES, 1 / CLASSES))
        return Census(self.sizes, CLASSES, self.k, histogram)

    def ask(self, question: Question, clients: Indices) -> Values:
        """Answers to a question."""
        start = time.process_time()
        answers = self.values[clients, : question.numbers]
        self.answering += time.process_time() - start
        return answers[:, 0] if question.numbers == 1 else answers

    def play(self, selector: Selector, t: int, k: int, *, known: bool) -> float:
        """Play one round, and return the seconds that the strategy took."""
        durations = self.durations if known else np.full(self.m, np.nan)
        seen = Round(
            t, k, self.clients, rng(0, "select", t), 0.0, durations, self.ask, 0.8 * durations, 0.2 * durations
        )
        self.answering = 0.0
        start = time.process_time()
        cohort = choose(selector, seen)
        chosen = time.process_time() - start
        n = len(cohort)
        reports = {name: self.values[cohort.clients, i] for i, name in enumerate(REPORTS)}
        if "update" in selector.needs:
            reports["update"] = rng(0, "updates", t).normal(size=(n, WIDTH))
        fine = np.ones(n, dtype=bool)
        accuracies = np.full(CLASSES, 0.5) + np.arange(CLASSES) / 100
        outcome = Outcome(
            t, cohort, fine, fine, reports, self.durations[cohort.clients], 9.0, 0.5 + t / 1000, accuracies
        )
        start = time.process_time()
        selector.observe(outcome)
        return chosen + time.process_time() - start - self.answering


def measure(name: str, m: int, k: int) -> Measured:
    """Play cold rounds, a round with all clients, warm rounds, and one more round to measure the memory."""
    strategy: Any = STRATEGIES.find(name, "selection.name")
    found, world = Measured(name, m, strategy.card.cost), World(m, k)
    try:
        cold = strategy()
        cold.setup(world.census(cold.needs))
        found.cold_s = median(world.play(cold, t, k, known=False) for t in (1, 2, 3))
        del cold
        census, warm = world.census(strategy.needs), strategy()
        warm.setup(census)
        world.play(warm, 1, m, known=False)
        found.warm_s = median(world.play(warm, t, k, known=True) for t in range(2, 7))
        del warm
        found.bytes_per_client = _peak(strategy(), world, census, k) / m
    except UsageError as refusal:
        found.refused = str(refusal)
    return found


def measure_fitted(m: int, k: int) -> Measured:
    """Measure FedCor after a short warm-up: the round with the first fit, and greedy rounds after it."""
    import torch  # noqa: F401  # otherwise the first fit would import it, within the measured time

    strategy: Any = STRATEGIES.find("fedcor", "selection.name")
    found, world = Measured(FITTED, m, strategy.card.cost), World(m, k)
    durations = 2 * world.durations.nbytes

    def play(t: int, selector: Selector) -> float:
        world.values = rng(0, "benchmark", t).uniform(0.1, 3, (m, 8))  # FedCor learns from changes of losses
        return world.play(selector, t, k, known=True)

    try:
        census, selector = world.census(strategy.needs), strategy(warmup=WARMUP, interval=1_000)
        selector.setup(census)
        *_, found.cold_s = (play(t, selector) for t in range(1, WARMUP + 2))
        found.warm_s = median(play(t, selector) for t in range(WARMUP + 2, WARMUP + 7))
        tracemalloc.start()
        selector = strategy(warmup=WARMUP, interval=1_000, first_steps=1)
        selector.setup(census)
        for t in range(1, WARMUP + 2):
            play(t, selector)
        tracemalloc.reset_peak()
        play(WARMUP + 2, selector)
        found.bytes_per_client = (tracemalloc.get_traced_memory()[1] - durations) / m
        tracemalloc.stop()
    except UsageError as refusal:
        found.refused = str(refusal)
    return found


def _peak(selector: Selector, world: World, census: Census, k: int) -> float:
    """The peak bytes in a warm round: the state, and the temporary arrays of the selection."""
    durations = 2 * world.durations.nbytes  # arrays of the round, not of the strategy
    tracemalloc.start()
    selector.setup(census)
    world.play(selector, 1, world.m, known=False)
    tracemalloc.reset_peak()
    world.play(selector, 2, k, known=True)
    peak = tracemalloc.get_traced_memory()[1] - durations
    tracemalloc.stop()
    return peak


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Measure the server's time and memory per round for every strategy")
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--only", nargs="+", default=[*STRATEGIES.builtin, FITTED])
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for m in options.clients:
        for name in options.only:
            one = (measure_fitted if name == FITTED else partial(measure, name))(m, min(options.k, m))
            found.append(one)
            if not options.json:
                print(_line(one), flush=True)
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    return int(any(one.too_much for one in found))


def _line(one: Measured) -> str:
    head = f"{one.strategy:16} {one.clients:>9,}"
    if one.refused:
        return f"{head}  refuses: {one.refused}"
    times = f"{one.cold_s * 1e3:9.1f} ms cold {one.warm_s * 1e3:9.1f} ms warm {one.bytes_per_client:7.0f} B per client"
    return f"{head} {times}  {one.cost}{'  ABOVE THE LIMIT' if one.too_much else ''}"


if __name__ == "__main__":
    sys.exit(main())
