"""The round: who is available, who is selected, what they learn, what enters the model. Nothing else knows the order.

Nothing flows backwards: a strategy sees a Round and an Outcome, never a client, a model or an engine.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedcohort.algorithms import Algorithm, Members, ModelState, Update
from fedcohort.algorithms.updates import is_finite
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.streams import rng
from fedcohort.engines.base import Engine
from fedcohort.federation.systems import Clock
from fedcohort.record import Portrait, Reasons, RoundRow
from fedcohort.rounds.ledger import Ledger, Stopwatch, num_bytes
from fedcohort.rounds.reasons import decisions
from fedcohort.rounds.tally import Tally
from fedcohort.selection import Cohort, LocalAccuracy, LocalLoss, LossChange, Question, Round, Selector, Speed, choose

__all__ = ["Game", "play_round"]


@dataclass
class Game:
    """Everything that a run consists of while it is played: ``model``, and the parts that have a state of their own.

    ``portrait`` tells who the clients are, for the record: called once, when a run begins.
    """

    seed: int
    k: int
    clock: Clock
    selector: Selector
    algorithm: Algorithm
    engine: Engine
    model: ModelState
    portrait: Callable[[], Portrait] = Portrait

    @property
    def validates(self) -> bool:
        """Whether the strategy learns from the server's validation set, so that a round ends with it."""
        return "validation" in self.selector.needs

    def state_dict(self) -> dict[str, Any]:
        """All that the next round depends on, for the checkpoint."""
        return {
            "model": self.model,
            "selector": self.selector.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "engine": dict(self.engine.state_dict()),
            "clock": self.clock.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model = state["model"]
        self.selector.load_state_dict(state["selector"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.engine.load_state_dict(state["engine"])
        self.clock.load_state_dict(state["clock"])


def play_round(game: Game, t: int, *, test: bool, clients: LocalAccuracy | None = None) -> RoundRow:
    """Play round ``t``: changes ``game`` and returns what is recorded.

    Args:
        game: everything the run consists of.
        t: round, from 1.
        test: whether to evaluate the new model for the record, and wait for it. A test decides nothing, nor does validation unless
            :attr:`Game.validates`, so a caller can also do it later (:meth:`Engine.evaluate_beside`, :meth:`RoundRow.add_test`,
            :meth:`RoundRow.add_validation`).
        clients: what every client is asked about the new model, for the record only: no strategy hears of it or pays for it.
    """
    clock, selector, algorithm, engine, start = game.clock, game.selector, game.algorithm, game.engine, game.model
    watch, before = Stopwatch(), clock.now
    sent = num_bytes([start, *algorithm.broadcast().values()])
    ledger = Ledger(num_bytes([start]), sent)

    available = clock.available(t)
    if t == 1 and "histogram" in selector.needs:
        m, numbers = selector.census.num_clients, selector.census.num_classes
        ledger.add(
            "Histogram", messages=m, down=0, up=4 * m * numbers, passes=0.0, seconds=0.0,
            discloses="its number of samples of each class, once",
        )  # fmt: skip
    with watch.part("selection"):
        ask = ledger.asking(partial(_answer, game, t, available, ledger), clock.num_samples)
        k = min(clock.invited(game.k), len(available))
        seen = Round(
            t, k, available, rng(game.seed, "select", t), before, _shown(clock.durations), ask,
            _shown(clock.compute_times), _shown(clock.upload_times),
        )  # fmt: skip
        cohort = choose(selector, seen)
    reasons = decisions(cohort)  # now: the strategy's own numbers, which may be among them, will change

    tally = Tally(cohort, start, engine.trainable, selector.needs)
    members = _members(cohort, clock, game.k, t, engine.trainable)
    with watch.part("aggregation"):
        updates = watch.watch("training", engine.train(start, t, cohort, algorithm))
        updates = clock.settle(
            t, updates, bytes_down=sent, wanted=clock.wanted(len(cohort), game.k), cohort=cohort.clients
        )
        updates = tally.arrived(updates)
        updates = selector.admit(updates)
        updates = _filled_in(updates) if cohort.unsent == "unchanged" else updates
        updates = tally.admitted(updates, algorithm, members)
        game.model = algorithm.aggregate(start, updates, members)
    engine.commit([row.client for row in tally.having("admitted") if row.weight > 0])
    tally.settle(algorithm.weighed())

    with watch.part("evaluation"):
        validation = engine.evaluate(game.model, "validation") if test or game.validates else None
        tested = engine.evaluate(game.model, "test") if test else None
        served = _served(engine, game.model, t, clients, clock) if clients is not None else None
    with watch.part("selection"):
        outcome = tally.outcome(t, clock.now - before, validation if game.validates else None)
        selector.observe(outcome)
        tally.heard(outcome)

    seconds = watch.seconds
    seconds["aggregation"] -= seconds.get("training", 0.0)
    ledger.training(
        cohort.clients, uploads=tally.uploads, up=tally.bytes_up, passes=tally.passes, seconds=seconds.get("training", 0.0),
        discloses=tally.disclosed,
    )  # fmt: skip
    row = _row(
        t, len(available), cohort, reasons, tally, ledger, clock, before, served, seconds | {"total": watch.total()},
        wanted=None if selector.variable_size else clock.invited(game.k),
    )  # fmt: skip
    if validation is not None:
        row.add_validation(validation.accuracy, validation.loss)
    if tested is not None:
        row.add_test(tested.accuracy, tested.loss, tested.class_accuracy.tolist())
    return row


def _shown(values: Values) -> Values:
    """The same numbers, which nobody can change through them."""
    view = values.view()
    view.flags.writeable = False
    return view


def _answer(game: Game, t: int, present: Indices, ledger: Ledger, question: Question, clients: Indices) -> Values:
    """What clients answer; simulated time is the clock's to know, a round on trial ours to play, everything else the engine's."""
    away = clients[~np.isin(clients, present)]
    if len(away):
        raise UsageError(
            f"{type(game.selector).__name__}.select in round {t} asks clients {away[:5].tolist()} for {question.kind}, who are not "
            "available; ask some of round.available"
        )
    if isinstance(question, Speed):
        return game.clock.expected(t)[clients]
    if isinstance(question, LossChange):
        return _loss_change(game, t, ledger, question, clients)
    return game.engine.answer(game.model, t, question, clients, game.algorithm)


def _loss_change(game: Game, t: int, ledger: Ledger, question: LossChange, clients: Indices) -> Values:
    """Play a round on copies of model and algorithm, and compare losses. No client commits to what it learned."""
    model, engine = game.model, game.engine
    algorithm = copy.copy(game.algorithm)
    algorithm.load_state_dict(copy.deepcopy(game.algorithm.state_dict()))
    cohort = Cohort(np.array(question.participants, dtype=np.int64))
    down = len(cohort) * num_bytes([model, *algorithm.broadcast().values()])
    sent: list[tuple[int, float]] = []

    def usable() -> Iterator[Update]:
        for update in engine.train(model, t, cohort, algorithm):
            sent.append((update.num_bytes, update.passes))
            if update.failure is None and is_finite(update):
                yield update

    members = _members(cohort, game.clock, len(cohort), t, engine.trainable)
    after = algorithm.aggregate(model, usable(), members)
    engine.commit([])
    one, other = (engine.answer(state, t, LocalLoss(), clients) for state in (model, after))
    change = np.subtract(other, one, out=np.full(len(one), np.nan), where=np.isfinite(one) & np.isfinite(other))
    ledger.add(  # beside what every question costs: the training, and the second model that everybody receives
        question.kind,
        messages=2 * len(cohort) + len(clients),
        down=down + len(clients) * ledger.model_bytes,
        up=sum(size for size, _ in sent),
        passes=sum(passes for _, passes in sent),
        seconds=0.0,
    )
    return np.asarray(change)


def _filled_in(updates: Iterable[Update]) -> Iterator[Update]:
    """Tensors that were not sent enter the average as the client received them, which is what ``state`` has in their place."""
    for update in updates:
        update.sent = None
        yield update


def _served(engine: Engine, model: ModelState, t: int, question: LocalAccuracy, clock: Clock) -> Values:
    """The answer of every client, float64 [m]; NaN for those without data."""
    values = np.full(len(clock.num_samples), np.nan)
    with_data = np.flatnonzero(clock.num_samples)
    values[with_data] = engine.answer(model, t, question, with_data)
    return values


def _members(cohort: Cohort, clock: Clock, k: int, t: int, trainable: frozenset[str]) -> Members:
    def by_client(values: Any) -> dict[int, Any]:
        return {} if values is None else dict(zip(cohort.clients.tolist(), np.asarray(values).tolist(), strict=True))

    return Members(
        num_clients=len(clock.num_samples),
        total_samples=int(clock.num_samples.sum()),
        k=k,
        multiplicity=by_client(cohort.multiplicity),
        inclusion=by_client(cohort.inclusion),
        weights=by_client(cohort.weights),
        t=t,
        trainable=trainable,
    )


def _row(
    t: int,
    available: int,
    cohort: Cohort,
    reasons: Reasons,
    tally: Tally,
    ledger: Ledger,
    clock: Clock,
    before: float,
    served: Values | None,
    seconds: dict[str, float],
    wanted: int | None,
) -> RoundRow:
    trained = tally.having("admitted", "declined")
    notes = [cohort.why.note if cohort.why is not None else ""]
    if wanted is not None and available < min(wanted, len(clock.num_samples)):
        notes.append(f"short round: {available} of {wanted} available")
    if available == 0:
        notes = ["empty round: nobody available"]
    elif not tally.having("admitted"):
        notes.append("nobody admitted: the model stays as it was")
    notes.append(tally.note)
    return RoundRow(
        round=t,
        available=available,
        selected=len(cohort),
        trained=len(trained),
        admitted=len(tally.having("admitted")),
        simulated_time=clock.now,
        round_time=clock.now - before,
        steps=sum(row.steps for row in tally.rows),
        local_accuracy=_mean([row.accuracy for row in trained]),
        train_loss=_mean([row.loss for row in trained]),
        note="; ".join(note for note in notes if note),
        clients=tally.rows,
        decisions=reasons,
        ledger=ledger.rows,
        wall=seconds,
        client_accuracy=served,
    )


def _mean(values: list[float]) -> float:
    known: Values = np.array([value for value in values if np.isfinite(value)])
    return float(known.mean()) if len(known) else float("nan")
