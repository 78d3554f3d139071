"""Select clients for a server of your own: a strategy with its census, its seed and its state, without a simulation.

A :class:`Chooser` calls a strategy in the same way as a simulated round does: the same random numbers for the same seed and round, the
same edge rules, the same ledger. The server decides when a round begins, carries the questions to the clients, and says what happened.
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.chooser.argument_checks import (
    as_numbers,
    at_most_one,
    check_outcome,
    check_reported,
    check_selector,
    checked_asking,
    checked_census,
    checked_upload_times,
    class_accuracies,
    duration_of,
    ids_of,
)
from fedcohort.chooser.failed_calls import OneCall, restored_on_failure
from fedcohort.chooser.known_times import KnownTimes, remember
from fedcohort.chooser.observed_round import ObservedRound
from fedcohort.chooser.round_reports import RoundReports, decides, reported
from fedcohort.chooser.saved_state import StateFile, check_state, settings_of
from fedcohort.core.arrays import Indices, read_only
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import as_path
from fedcohort.core.given_values import whole_number
from fedcohort.core.random_streams import rng
from fedcohort.record import Reasons
from fedcohort.rounds.client_result import ClientResult, check_results
from fedcohort.rounds.ledger import Ledger, Stopwatch
from fedcohort.rounds.recorded_decision import decisions
from fedcohort.selection import Census, Cohort, Outcome, Question, Round, Selector, choose
from fedcohort.selection.cohort_checks import admitted
from fedcohort.selection.joining import extend_or_restore

__all__ = ["Ask", "Chooser", "ClientResult"]

Ask = Callable[[Question, Indices], ArrayLike]
"""Carries a question to clients: ``ask(question, clients)`` returns float64 [n] or [n, question.numbers], NaN without an answer."""

OWN_STATE = ("t", "clock", "durations", "compute_times", "upload_times")
"""Attributes that are saved beside the state of the strategy."""


class Chooser:
    """Selects the clients of one round after another, and learns from the outcomes.

    Args:
        selector: the strategy; the chooser works on a copy.
        census: the clients. ``census.k`` is the number of clients to select unless ``k`` is given.
        seed: seed of all random draws, ≥ 0.
        k: number of clients to select in a round.

    Attributes:
        selector: the strategy.
        census: the clients.
        seed: the seed.
        t: the current round, from 1; 0 before the first.
        clock: sum of the durations of all rounds so far.
        durations: last known time of each client for nominal work, float64 [m]; NaN if never measured.
        compute_times, upload_times: the parts of ``durations``, if the server knows them.
        ledger: the cost of the questions of the current round.
        available: ids of the clients that could take part in the current round, int64 [n].
        results: the results that :meth:`outcome` received in the current round, by id; after :meth:`observe`, those of its outcome.
        reasons: what is recorded of the decision of the current round.
        watch: wall time of the current round, from its beginning, and of the selection in it.
        observed: the last round that was observed; None before the first, and after a restore.
        strategy: the strategy as it was given, before its first round.

    Raises:
        UsageError: a setting cannot be used, or the census lacks something that the strategy needs.
    """

    def __init__(self, selector: Selector, census: Census, seed: int = 0, k: int | None = None) -> None:
        check_selector(selector)
        seed, census = whole_number("seed", seed, 0), checked_census(census)
        census = dataclasses.replace(census, k=whole_number("k", census.k if k is None else k, 1))
        if census.k > census.num_clients:
            raise UsageError(f"k = {census.k}: should be at most the number of clients, {census.num_clients}")
        if "histogram" in selector.needs and census.histogram is None:
            raise UsageError(
                f"{type(selector).__name__} needs the label counts of all clients: give Census(…, histogram=…)"
            )
        self.census, self.seed, self.t, self.clock = census, seed, 0, 0.0
        self.selector, self.strategy = copy.deepcopy(selector), copy.deepcopy(selector)
        self.available: Indices = np.zeros(0, dtype=np.int64)
        self.results: Mapping[int, ClientResult] = {}
        self.reasons: Reasons | None = None
        self.observed: ObservedRound | None = None
        self._outcomes: list[tuple[Outcome, Mapping[int, ClientResult]]] = []  # those of the current round
        self.durations, self.compute_times, self.upload_times = (np.full(census.num_clients, np.nan) for _ in range(3))
        self.ledger, self.watch = Ledger(0), Stopwatch()
        self._waiting: Cohort | None = None  # the cohort whose outcome has not been observed
        self._calls = OneCall()
        self._file = StateFile()
        self._reports = RoundReports(self.selector, census.num_parameters)
        self._let_in: frozenset[int] | None = None  # the clients that the strategy admits in this round
        self.selector.setup(census)

    def select(self, available: Iterable[int], ask: Ask | None = None, *, model_bytes: int = 0) -> Cohort:
        """Begin the next round, and let the strategy choose its clients.

        Args:
            available: ids of the clients that can take part, in any order. Clients without samples are left out (R7).
            ask: carries the strategy's questions to clients; required only by strategies that ask.
            model_bytes: bytes of the model, which a client receives with a question about it and for training, for :attr:`ledger`.

        Raises:
            UsageError: the last round has no outcome, an argument cannot be used, or the strategy breaks its contract.
            Exception: what ``ask`` raised. In all these cases the strategy is as it was before, and the round can begin again.
        """
        present, model_bytes = self._present(available), whole_number("model_bytes", model_bytes, 0)
        with self._between_rounds("call observe(outcome) before the next select(…)"):
            t, self.ledger, self.watch = self.t + 1, Ledger(model_bytes), Stopwatch()
            if t == 1 and "histogram" in self.selector.needs:
                self.ledger.histograms(self.census.num_clients, self.census.num_classes)
            carried = checked_asking(ask, present, t, type(self.selector).__name__, self.ledger.unanswered)
            round_ = Round(
                t, min(self.census.k, len(present)), present, rng(self.seed, "select", t), self.clock, read_only(self.durations),
                self.ledger.asking(carried), read_only(self.compute_times), read_only(self.upload_times),
            )  # fmt: skip
            with self._restored_on_failure():
                cohort = choose(self.selector, round_)
            self.reasons = decisions(cohort)  # now: they may share arrays that the strategy changes when it observes
            self.t, self._waiting, self.available, self._let_in = t, cohort, present, None
            self.results, self._outcomes = {}, []
        return cohort

    def admits(self, results: Mapping[int, ClientResult]) -> list[int]:
        """The clients whose updates enter the model. The others are declined, as :meth:`outcome` says.

        Ask before you merge the updates. Only strategies that decide by what clients report after their training, such as conformal
        participation, decline any.

        Args:
            results: the results of the round, as for :meth:`outcome`.

        Raises:
            UsageError: no round has begun, a result cannot be used, or the strategy breaks its contract.
        """
        cohort = self._checked_results(results)
        clients = [update.client for update in admitted(self.selector, reported(cohort, results))]
        self._let_in = frozenset(clients)
        return clients

    def _checked_results(self, results: Mapping[int, ClientResult]) -> Cohort:
        """The current cohort; refuses results of other clients, and what are no results."""
        cohort = self._current()
        check_results(results, cohort.clients, self.t)
        return cohort

    def outcome(
        self,
        results: Mapping[int, ClientResult],
        *,
        duration: float | None = None,
        accuracy: float | None = None,
        class_accuracy: ArrayLike = (),
        validation_losses: ArrayLike = (),
    ) -> Outcome:
        """The outcome of the current round, for :meth:`observe`.

        Args:
            results: the result of each selected client, by id; a client without a result counts as failed.
            duration: seconds of the round; by default, the longest time of a client.
            accuracy: accuracy of the new model on the server's validation set, in [0, 1]; required by strategies that need it.
            class_accuracy: the same per class [K].
            validation_losses: cross-entropy of the new model on each validation sample.

        Raises:
            UsageError: no round has begun, a client was not selected, a result is no :class:`ClientResult`, or something that
                the strategy needs is missing.
        """
        cohort = self._checked_results(results)
        if self._let_in is None and decides(self.selector) and any(result.trained for result in results.values()):
            raise UsageError(
                f"{type(self.selector).__name__} decides which updates enter the model: call chooser.admits(results) first"
            )
        if "validation" in self.selector.needs and accuracy is None:
            raise UsageError(
                f"{type(self.selector).__name__} learns from a validation set: give outcome(…, accuracy=…)"
            )
        self.results = dict(results)
        rows = [results.get(client, ClientResult(failure="no result")) for client in cohort.clients.tolist()]
        longest = max((row.duration for row in rows if math.isfinite(row.duration)), default=0.0)
        waited = longest if duration is None else duration_of("duration", duration)
        made = Outcome(
            t=self.t,
            cohort=cohort,
            trained=np.array([row.trained for row in rows], dtype=bool),
            admitted=np.array(
                [
                    row.trained and row.admitted and (self._let_in is None or client in self._let_in)
                    for client, row in zip(cohort.clients.tolist(), rows, strict=True)
                ],
                dtype=bool,
            ),
            reports=self._reports.of(cohort, rows),
            durations=np.array([math.nan if r.failure else waited if r.late else r.duration for r in rows], np.float64),
            duration=waited,
            accuracy=math.nan if accuracy is None else at_most_one("accuracy", accuracy),
            class_accuracy=class_accuracies(class_accuracy, self.census.num_classes),
            validation_losses=as_numbers(validation_losses, "validation_losses"),
        )
        self._outcomes.append((made, self.results))
        return made

    def observe(self, outcome: Outcome, *, upload_times: ArrayLike | None = None) -> None:
        """Let the strategy learn from the outcome of the current round, and update the known times of its clients.

        Args:
            outcome: the outcome, from :meth:`outcome` or made by the server.
            upload_times: the part of each client's time that was communication, aligned with the cohort; None if unknown.

        Raises:
            UsageError: no round has begun, the outcome is that of another round, an argument cannot be used, or no client sent a
                report that the strategy reads; nothing has changed.
        """
        with self._one_call():
            cohort = self._current()
            check_outcome(outcome, self.t, cohort)
            results = next((given for made, given in self._outcomes if made is outcome), self.results)
            uploads = None if upload_times is None else checked_upload_times(upload_times, outcome)
            with self._restored_on_failure():
                self.selector.observe(outcome)
                derived = frozenset({"update", "update_norm"})
                check_reported(outcome, results, derived, type(self.selector).__name__)
            known = KnownTimes(self.durations, self.compute_times, self.upload_times)
            remember(known, outcome, results, self.census.epochs, uploads)
            self.clock += outcome.duration if math.isfinite(outcome.duration) else 0.0
            self._reports.keep_length(results)
            self.observed = ObservedRound(
                outcome, results, self.reasons, self.available, self._let_in, self.ledger, self.watch, self.clock
            )
            self.results, self._outcomes, self._waiting = results, [], None

    @property
    def waits(self) -> bool:
        """Whether the current round waits for its outcome."""
        return self._waiting is not None

    def extend(self, census: Census) -> None:
        """Take in clients that joined since the last round: those without samples until now. See :meth:`Selector.extend`.

        Raises:
            Exception: the current round has no outcome yet, or what the strategy raised; nothing has changed.
        """
        with self._between_rounds("call observe(outcome) before extend(…)"):
            extend_or_restore(self.selector, dataclasses.replace(checked_census(census), k=self.census.k))
            self.census = self.selector.census

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next round depends on: arrays, numbers and strings. Later rounds do not change it.

        Raises:
            UsageError: the outcome of the current round was not observed.
        """
        with self._between_rounds("save the chooser after observe(outcome)"):
            own = {name: getattr(self, name) for name in OWN_STATE} | {"state": self.selector.state_dict()}
            return self._identity() | {"settings": settings_of(self.strategy)} | copy.deepcopy(own)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            UsageError: the state belongs to another strategy, to other settings of it, or to another seed, k or number of clients,
                or is none; nothing has changed.
        """
        with self._one_call():
            check_state(state, self._identity(), settings_of(self.strategy), self.census.num_clients)
            state = copy.deepcopy(dict(state))
            with restored_on_failure(self.selector):
                self.selector.load_state_dict(state["state"])
            for name in OWN_STATE:
                setattr(self, name, state[name])
            self._waiting = self.observed = None

    def save(self, path: str | Path) -> None:
        """Write :meth:`state_dict` to a file, in one step; then it survives a power loss. The file holds data only (safetensors).

        Raises:
            UsageError: the file cannot be written, or another chooser has written to it since this one saved or restored it.
        """
        self._file.write(as_path(path, "path"), self.state_dict())

    def restore(self, path: str | Path) -> None:
        """Restore the state that :meth:`save` wrote.

        Raises:
            UsageError: the file is damaged, or its state belongs to another chooser.
        """
        self.load_state_dict(self._file.read(as_path(path, "path")))

    def _one_call(self) -> AbstractContextManager[None]:
        """Refuse calls from ``ask`` or from other threads during a block, in which the strategy and the round may change."""
        return self._calls.of(self.t + (self._waiting is None))

    @contextmanager
    def _between_rounds(self, advice: str) -> Iterator[None]:
        """:meth:`_one_call`, if the current round has an outcome."""
        with self._one_call():
            if self._waiting is not None:
                raise UsageError(f"round {self.t} has no outcome yet: {advice}")
            yield

    @contextmanager
    def _restored_on_failure(self) -> Iterator[None]:
        """Let the strategy select or learn; if that or ``ask`` fails, its state is as before."""
        with restored_on_failure(self.selector), self.watch.part("selection"):
            yield

    def _identity(self) -> dict[str, Any]:
        return {
            "strategy": type(self.selector).__name__, "seed": self.seed, "k": self.census.k,
            "clients": self.census.num_clients,
        }  # fmt: skip

    def _current(self) -> Cohort:
        if self._waiting is None:
            raise UsageError("no round is waiting for its outcome: call select(…) first")
        return self._waiting

    def _present(self, available: Iterable[int]) -> Indices:
        """The available clients, checked: distinct, ascending, with samples."""
        ids = ids_of(available, self.census.num_clients)
        present: Indices = ids[self.census.num_samples[ids] > 0]
        return present
