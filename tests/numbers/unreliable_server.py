"""A server with clients that are away, fail, come late and answer nonsense, for second implementations of strategies."""

import copy

import numpy as np

from fedcohort import Chooser, ClientResult
from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import Census, Cohort, Context, LocalAccuracy, Outcome, Question, Round, Selector, choose

M, P, K, EPOCHS = 9, 5, 4, 2
SIZES = np.array([1, 30, 30, 7, 1, 88, 12, 30, 55])
LABELS = np.array(
    [
        [1, 0, 0, 0],
        [10, 10, 10, 0],
        [30, 0, 0, 0],
        [0, 0, 3, 4],
        [0, 0, 0, 1],
        [22, 22, 22, 22],
        [0, 12, 0, 0],
        [30, 0, 0, 0],
        [5, 0, 50, 0],
    ]
)
NEWCOMER, FIRST_ROUND_OF_NEWCOMER = M - 1, 6


class UnreliableServer:
    """A chooser with made-up clients.

    Args:
        selector: the strategy.
        seed: seed of the strategy and of the clients.
        k: clients per round; often, fewer are available.
        odd: whether many answers, losses and times are equal, and some are NaN, infinite or huge.
    """

    def __init__(self, selector: Selector, seed: int, k: int = 3, *, odd: bool = True) -> None:
        self.random, self.k, self.odd, self.t = np.random.default_rng(seed), k, odd, 0
        self.chooser = Chooser(selector, Census(SIZES, K, k, LABELS, EPOCHS, P, 8, 50), seed)
        self.answers: list[tuple[Question, Indices, Values]] = []
        self.results: dict[int, ClientResult] = {}

    def ask(self, question: Question, clients: Indices) -> Values:
        n = len(clients)
        answers = self.random.uniform(0.5, 2, n)
        if self.odd:
            answers = self.random.choice([0.5, 0.5, 1.3, 0.02, 7.0, answers[0]], n)
            answers = np.where(self.random.random(n) < 0.1, self.random.choice([np.nan, np.inf, 0.0, 1e6], n), answers)
        if isinstance(question, LocalAccuracy):
            answers = np.clip(answers / 8, 0, 1)
        if question.numbers == 2:
            first = self.random.uniform(0.2, 2, n) if isinstance(question, Context) else answers
            answers = np.stack([first, np.where(np.isnan(answers), np.nan, self.random.uniform(0.1, 2, n))], axis=1)
        self.answers.append((question, clients.copy(), answers.copy()))
        return answers

    def choose(self) -> tuple[Indices, Cohort, Values]:
        """The available clients, the cohort, and the scores by client id (NaN for clients without one)."""
        self.t, self.answers = self.t + 1, []
        here = self.random.random(M) < self.random.choice([0.3, 0.8, 1.0])
        here[NEWCOMER] &= self.t >= FIRST_ROUND_OF_NEWCOMER
        self.cohort = self.chooser.select(np.flatnonzero(here), self.ask)
        assert self.cohort.why is not None
        scores = np.full(M, np.nan)
        scores[self.cohort.why.candidates] = self.cohort.why.scores
        return np.flatnonzero(here), self.cohort, scores

    def train(self) -> Outcome:
        """The outcome of the round, after the strategy has seen it."""
        self.results = {}
        for client in self.cohort.clients.tolist():
            fate, loss, slowness = self.random.random(), float(self.random.uniform(0.5, 3)), self.random.uniform(0.5, 3)
            if self.odd:
                loss = float(self.random.choice([0.5, 0.5, 1.3, 1e4, np.nan, loss]))
                slowness = self.random.choice([1.0, 2.5, slowness])
            duration = float(SIZES[client] * slowness)
            update = self.random.normal(size=P) * self.random.choice([0, 1, 1, 50])
            samples, steps = min(SIZES[client], 16), self.random.integers(1, 9)
            reports = {"loss": loss, "square_loss": 1.21 * loss**2, "samples": float(samples), "steps": float(steps)}
            if fate < 0.15:
                self.results[client] = ClientResult(failure="broken")
            elif fate < 0.3:
                self.results[client] = ClientResult(duration=duration, late="slow")
            else:
                self.results[client] = ClientResult(reports, duration, update, bool(self.random.random() < 0.8))
        longest = max([0.0, *(r.duration for r in self.results.values() if np.isfinite(r.duration))])
        classes = self.random.choice([0.1, 0.1, 0.5, 0.9, np.nan], K)
        self.outcome = self.chooser.outcome(
            self.results, duration=0.9 * longest, accuracy=float(self.random.random()), class_accuracy=classes
        )
        self.chooser.observe(self.outcome)
        return self.outcome

    def reported(self, name: str) -> dict[int, float]:
        """A finite report of the clients that trained, by client id."""
        trained = {client: result.reports[name] for client, result in self.results.items() if result.trained}
        return {client: value for client, value in trained.items() if np.isfinite(value)}

    def frequencies(self, available: Indices, draws: int = 800) -> Values:
        """How often each client is in the cohort of the next round, over independent draws of this round."""
        counts = np.zeros(M)
        for seed in range(draws):
            rng, known = np.random.default_rng(seed), self.chooser.durations
            round_ = Round(self.t + 1, min(self.k, len(available)), available, rng, 0.0, known, self.ask)
            counts[choose(copy.deepcopy(self.chooser.selector), round_).clients] += 1
        return counts / draws


def is_top(cohort: Cohort, scores: Values, available: Indices) -> bool:
    """Whether no available client outside the cohort has a higher score than one inside."""
    outside = np.setdiff1d(available, cohort.clients)
    return bool(scores[cohort.clients].min(initial=np.inf) >= scores[outside].max(initial=-np.inf))


def by_size(durations: Values) -> Values:
    """T̂_i: the measured time, otherwise N_i times the median of T/N over the measured clients, [m]."""
    measured = np.isfinite(durations)
    scale = np.median((durations / SIZES)[measured]) if measured.any() else 1.0
    return np.where(measured, durations, scale * SIZES)


def scaled(values: Values) -> Values:
    """Values scaled to [0, 1]; 0 if all are equal."""
    width = values.max() - values.min()
    return (values - values.min()) / width if width > 0 else np.zeros(len(values))
