"""A round of federated training. Only this module knows the order of its steps.

Information flows in one direction: a strategy sees a Round and an Outcome, never a client, a model or an engine.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.core.arrays import Values, read_only
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.random_streams import rng
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.core.user_code.unseeded_draws import is_own, warning_of_draws, warning_of_draws_in
from fedcohort.core.words.formatted_values import counted
from fedcohort.record import Reasons, RoundRow
from fedcohort.rounds.asking_clients import answer
from fedcohort.rounds.client_outcomes import WEIGHT_0, Tally
from fedcohort.rounds.ledger import Ledger, Stopwatch
from fedcohort.rounds.recorded_decision import decisions
from fedcohort.rounds.round_facts import members, round_notes, round_row
from fedcohort.rounds.run_state import RunState
from fedcohort.selection import Cohort, LocalAccuracy, Question, Round, choose
from fedcohort.selection.cohort import requested_epochs
from fedcohort.selection.cohort_checks import admitted, naming_strategy
from fedcohort.training.client_hooks import broadcast_by
from fedcohort.training.evaluation import Evaluation
from fedcohort.training.personal_models import PersonalAccuracy
from fedcohort.training.stopping_rules import beside_strategy, class_of

__all__ = ["play_round"]

log = logging.getLogger("fedcohort")


def play_round(
    run_state: RunState,
    t: int,
    *,
    test: bool,
    local_accuracy: LocalAccuracy | None = None,
    personal_accuracy: PersonalAccuracy | None = None,
) -> RoundRow:
    """Play round ``t`` and return what is recorded of it; changes ``run_state``.

    The strategy selects among the available clients. They train, and the algorithm aggregates the updates that arrive and are
    admitted. The new model is evaluated, and the strategy observes the outcome.

    Args:
        run_state: the run.
        t: round, from 1.
        test: whether to evaluate the new model for the record before returning. Test results never affect later rounds, and
            validation results only if :attr:`RunState.validates`, so a caller can also add them later
            (:meth:`Engine.evaluate_beside`, :meth:`RoundRow.add_test`, :meth:`RoundRow.add_validation`).
        local_accuracy: a question about the new model to all clients, for the record only: no strategy sees the answers, and nothing
            is billed.
        personal_accuracy: another such question, about the new model after local epochs of each client.
    """
    playing = _Playing(run_state, t)
    cohort = playing.select()
    reasons = decisions(cohort)  # before training, because they may share arrays that the strategy changes later
    tally = playing.train_and_aggregate(cohort)
    results = playing.evaluate(test, local_accuracy, personal_accuracy)
    playing.observe(tally, results)
    return playing.recorded(cohort, reasons, tally, results)


class _Results(NamedTuple):
    """The new model on the validation set, on the test set, and on the data of each client, as it is and after local epochs; None if
    it was not evaluated there."""

    validation: Evaluation | None
    test: Evaluation | None
    by_client: Values | None
    personal: Values | None


class _Playing:
    """The steps of one round, in their order. Each step adds its wall time and its cost.

    Args:
        run_state: the run.
        t: round, from 1.
    """

    def __init__(self, run_state: RunState, t: int) -> None:
        self.run_state, self.t = run_state, t
        self.watch, self.began = Stopwatch(), run_state.clock.now
        self.sent_down = num_bytes([run_state.model, *broadcast_by(run_state.algorithm).values()])
        self.ledger = Ledger(num_bytes([run_state.model]), self.sent_down)
        self.available = run_state.clock.available(t)

    def select(self) -> Cohort:
        """Let the strategy select clients; it can ask the available ones questions."""
        run_state, clock, t = self.run_state, self.run_state.clock, self.t
        if t == 1 and "histogram" in run_state.selector.needs:
            census = run_state.selector.census
            self.ledger.histograms(census.num_clients, census.num_classes)
        with self.watch.part("selection"):
            answers = partial(answer, run_state, t, self.available, self.ledger)
            ask = self.ledger.asking(answers)
            k = min(clock.number_to_select(run_state.k_at(t)), len(self.available))
            seen = Round(
                t, k, self.available, rng(run_state.seed, "select", t), self.began, read_only(clock.durations), ask,
                read_only(clock.compute_times), read_only(clock.upload_times),
            )  # fmt: skip
            with warning_of_draws("selection", run_state.selector):
                return beside_strategy(choose(run_state.selector, seen), run_state.selector)

    def train_and_aggregate(self, cohort: Cohort) -> Tally:
        """Train the cohort and aggregate the updates; updates are processed one by one, as they arrive."""
        run_state, start, t = self.run_state, self.run_state.model, self.t
        clock, algorithm, engine = run_state.clock, run_state.algorithm, run_state.engine
        tally = Tally(cohort, start, engine.trainable, run_state.selector.needs)
        known = members(cohort, clock.num_samples, run_state.k_at(t), t, engine.trainable)
        parts = {"algorithm": algorithm} | self._of_strategy(cohort)
        with self.watch.part("aggregation"), warning_of_draws_in(parts, run_state.unseeded):
            updates = self.watch.watch("training", self._trained(cohort))
            awaited = clock.number_to_await(len(cohort), run_state.k_at(t))
            updates = clock.settle(
                t, updates, bytes_down=self.sent_down, awaited=awaited, cohort=cohort.clients,
                in_parts=cohort.share is not None,
                requested=None if cohort.stop is None else requested_epochs(cohort, clock.epochs) / clock.epochs,
            )  # fmt: skip
            updates = tally.arrived(updates)
            updates = admitted(run_state.selector, updates)
            updates = _filled_in(updates) if cohort.unsent == "unchanged" else updates
            updates = tally.admitted(updates, algorithm, known)
            run_state.model = _checked(algorithm.aggregate(start, updates, known), start, algorithm)
        tally.settle(algorithm)
        engine.commit([row.client for row in tally.having("admitted")])
        return tally

    def _of_strategy(self, cohort: Cohort) -> dict[str, object]:
        """What runs of the strategy while clients train, by setting: its rule of admission and its stopping rule."""
        selector = self.run_state.selector
        rule = class_of(cohort.stop)
        admits: dict[str, object] = {"selection": selector} if is_own(type(selector).admit) else {}
        return admits if rule is None else admits | {"Cohort.stop": rule}

    def _trained(self, cohort: Cohort) -> Iterator[Update]:
        """The updates of the cohort, as they arrive. A mistake in the strategy's ``Cohort.stop`` is found only now."""
        run_state = self.run_state
        with naming_strategy("Cohort.stop", f"{type(run_state.selector).__name__}.select in round {self.t}"):
            updates = run_state.engine.train(run_state.model, self.t, cohort, run_state.algorithm)
            if self.t == 1 and is_own(run_state.algorithm.backward):
                updates = _naming_no_training(updates, run_state)
            yield from updates

    def evaluate(self, test: bool, local: LocalAccuracy | None, personal: PersonalAccuracy | None) -> _Results:
        """Evaluate the new model; see :func:`play_round` for the arguments."""
        run_state, engine = self.run_state, self.run_state.engine
        with self.watch.part("evaluation"):
            validation = engine.evaluate(run_state.model, "validation") if test or run_state.validates else None
            tested = engine.evaluate(run_state.model, "test") if test else None
            by_client, tuned = (_all_answers(run_state, self.t, question) for question in (local, personal))
        return _Results(validation, tested, by_client, tuned)

    def observe(self, tally: Tally, results: _Results) -> None:
        """Let the strategy observe the outcome, and bill the reports that it reads."""
        run_state = self.run_state
        with self.watch.part("selection"):
            duration = run_state.clock.now - self.began
            outcome = tally.outcome(self.t, duration, results.validation if run_state.validates else None)
            with warning_of_draws("selection", run_state.selector):
                run_state.selector.observe(outcome)
            tally.bill_reports(outcome)
            tally.check_needs(outcome, type(run_state.selector).__name__)

    def recorded(self, cohort: Cohort, reasons: Reasons, tally: Tally, results: _Results) -> RoundRow:
        """The record of the round."""
        seconds = self.watch.seconds
        seconds["aggregation"] -= seconds.get("training", 0.0)
        self.ledger.training(
            cohort.clients, uploads=tally.uploads, up=tally.bytes_up, passes=tally.passes,
            seconds=seconds.get("training", 0.0), discloses=tally.disclosed,
        )  # fmt: skip
        now = self.run_state.clock.now
        row = round_row(
            self.t, tally.rows, reasons, self.ledger.rows, available=len(self.available), time=now, duration=now - self.began,
            note=self._note(cohort, tally), wall=seconds | {"total": self.watch.total()},
        )  # fmt: skip
        row.client_accuracy, row.personal_accuracy = results.by_client, results.personal
        if results.validation is not None:
            row.add_validation(results.validation.accuracy, results.validation.loss)
        if results.test is not None:
            row.add_test(results.test.accuracy, results.test.loss, results.test.class_accuracy.tolist())
            by_client = self.run_state.accuracy_by_client(results.test)
            row.client_accuracy = row.client_accuracy if by_client is None else by_client
        return row

    def _note(self, cohort: Cohort, tally: Tally) -> str:
        """What was special about the round, in words."""
        run_state, available = self.run_state, len(self.available)
        wanted = run_state.clock.number_to_select(run_state.k_at(self.t))
        short = not run_state.selector.variable_size and available < min(wanted, len(run_state.clock.num_samples))
        why = ", since their weights are 0" if any(row.detail == WEIGHT_0 for row in tally.rows) else ""
        notes = round_notes(cohort, tally.rows, available, wanted, short=short, why=why)
        return "; ".join(note for note in [*notes, tally.note, *run_state.notes()] if note)


def _checked(model: object, start: ModelState, given: Algorithm) -> ModelState:
    """The aggregated model, if it has the tensors of the model that clients received; the algorithm of a user can return anything."""
    algorithm = type(given).__name__
    if not isinstance(model, Mapping):
        raise UsageError(
            f"{algorithm}.aggregate returned {type(model).__name__}; it must return a model: tensors by name"
        )
    if model.keys() != start.keys():
        different = shown(min(model.keys() ^ start.keys(), key=str))
        where = "in one of them only"
        if model.keys() > start.keys():
            where = "in the returned one only; return the names that it received, of which frozen parameters are none"
        raise UsageError(
            f"{algorithm}.aggregate returned a model with other tensors than it received: {different} is {where}"
        )
    for name, value in model.items():
        if not isinstance(value, Tensor):
            raise UsageError(
                f"{algorithm}.aggregate returned {type(value).__name__} for {name!r}; it must return tensors"
            )
        if (value.shape, value.dtype) != (start[name].shape, start[name].dtype):
            found, expected = (f"of shape {list(one.shape)} and type {one.dtype}" for one in (value, start[name]))
            raise UsageError(f"{algorithm}.aggregate returned {name!r} {found}; it must be {expected}")
    if not type(given).__module__.startswith("fedcohort."):
        _report_not_finite(cast(ModelState, model), start, algorithm)
    return cast(ModelState, model)


def _report_not_finite(model: ModelState, start: ModelState, algorithm: str) -> None:
    """Say that the aggregation of a user, not the training, made the first entry that is no number: no update has one."""
    wrong = next((name for name, value in model.items() if not bool(value.isfinite().all())), None)
    if wrong is not None and all(bool(value.isfinite().all()) for value in start.values()):
        log.warning("%s.aggregate returned NaN or infinite entries in %r, from updates without any", algorithm, wrong)


def _filled_in(updates: Iterable[Update]) -> Iterator[Update]:
    """Let tensors that a client did not send enter the average as the client received them; ``state`` contains them."""
    for update in updates:
        update.sent = None
        yield update


def _naming_no_training(updates: Iterator[Update], run_state: RunState) -> Iterator[Update]:
    """The updates; warns if the first of them that has steps is the model that the client received, since it had no gradients."""
    start, checked = run_state.model, False
    for update in updates:
        if not checked and update.failure is None and update.steps:
            checked = True
            trained = [name for name in update.state if name in run_state.engine.trainable]
            if trained and all(bool((update.state[name] == start[name]).all()) for name in trained):
                log.warning(
                    "client %d took %s in round 1, and its model did not change: %s.backward leaves no gradients in the parameters' "
                    ".grad, or only zeros", update.client, counted(update.steps, "step"), type(run_state.algorithm).__name__,
                )  # fmt: skip
        yield update


def _all_answers(run_state: RunState, t: int, question: Question | None) -> Values | None:
    """The answer of every client about the current model, float64 [m] or [m, question.numbers]; NaN for clients without data."""
    if question is None:
        return None
    num_samples = run_state.clock.num_samples
    shape = (len(num_samples), question.numbers) if question.numbers > 1 else (len(num_samples),)
    values = np.full(shape, np.nan)
    with_data = np.flatnonzero(num_samples)
    values[with_data] = run_state.engine.answer(run_state.model, t, question, with_data)
    return values
