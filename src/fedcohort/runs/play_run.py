"""Play a run and write its record."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fedcohort.core.threads import one_thread, usual_settings
from fedcohort.core.user_code.python_plugins import check_unchanged
from fedcohort.engines.base import Later
from fedcohort.engines.device import moved
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.own_measures import OwnMeasure
from fedcohort.experiment.python_objects import names_in
from fedcohort.record import RoundRow, Run, Saved, Writer, locked
from fedcohort.rounds import RunState
from fedcohort.runs.begin_run import begin_run
from fedcohort.runs.checkpoint_times import CheckpointTimes
from fedcohort.runs.errors_in_own_code import ProgressError, naming_own_code, passed_on
from fedcohort.runs.find_run import (
    check_intact,
    check_same_data,
    check_same_files,
    find_run,
    on_device,
    run_path,
    with_plan,
)
from fedcohort.runs.initial_weights import check_finished_weights
from fedcohort.runs.named_warnings import named_warnings
from fedcohort.runs.own_measures import own_measures, values_of
from fedcohort.runs.prepare_run import prepare
from fedcohort.runs.run_data import fingerprint_of, on_data
from fedcohort.runs.stop_after_round import Interrupted, Stop, finish_the_round
from fedcohort.selection import LocalAccuracy
from fedcohort.training.personal_models import PersonalAccuracy

__all__ = ["Interrupted", "Preparation", "Progress", "run_cell"]

Progress = Callable[[Cell, RoundRow], None]
"""Called after every finished round, in order, in the thread that plays the run; the next round may be training already. Short rounds
are recorded together, about ``measures.checkpoint_seconds`` later; if the call raises an error, they are recorded before the run
ends."""

Preparation = Callable[[Experiment, Given], AbstractContextManager[tuple[RunState, str]]]
"""Builds everything that a run needs before its first round; :func:`~fedcohort.runs.prepare_run.prepare` is an example."""


def run_cell(
    cell: Cell,
    given: Given,
    *,
    runs: str | Path = "runs",
    progress: Progress | None = None,
    trust: bool = False,
    preparation: Preparation = prepare,
) -> Run:
    """Play one cell of an experiment, or resume it after its last checkpoint. A finished run is opened, not repeated.

    Args:
        cell: the run.
        given: objects from Python that replace settings.
        runs: folder of run directories.
        progress: called after every finished round.
        trust: resume a run directory even if its copies of plug-in files are not the files of the experiment.
        preparation: builds everything that the run needs.

    Raises:
        UsageError: something in the description, the data or the run directory cannot be used, the disk is full, or a function of the
            user raised an error, which is the cause.
        Interrupted: Ctrl-C, SIGTERM or SIGHUP; everything up to the last finished round is kept.
    """
    try:
        with naming_own_code():
            return _run_cell(cell, given, runs, progress, trust, preparation)
    except ProgressError as stopped:
        error = stopped.error
    raise error


def _run_cell(
    cell: Cell, given: Given, runs: str | Path, progress: Progress | None, trust: bool, preparation: "Preparation"
) -> Run:
    """See :func:`run_cell`."""
    for name in names_in(cell.experiment):
        check_unchanged(name)
    cell = on_data(on_device(cell), given)
    record = find_run(cell, given, runs)
    if record is not None:
        check_intact(record)
        cell = with_plan(cell, record.described.engine.plan)
        if record.finished:
            check_same_data(record, fingerprint_of(cell.experiment, given), cell.experiment)
            check_finished_weights(record, cell.experiment, given)
            return Run(record.path)
        if not trust:
            check_same_files(record, cell.experiment)
    measures = own_measures(cell.experiment, given)
    # a process that was forked lacks the threads that torch had: with more than one, it would wait for them for ever
    with usual_settings(), one_thread(), preparation(cell.experiment, given) as (run_state, fingerprint):
        cell = with_plan(cell, run_state.plan)
        if record is not None:
            check_same_data(record, fingerprint, cell.experiment)
        path = record.path if record is not None else run_path(cell, given, runs)
        with locked(path):
            record = begin_run(path, cell, given, run_state, fingerprint)
            check_same_data(record, fingerprint, cell.experiment)
            if not record.finished:  # another process may have finished it in the meantime
                _play(record, cell, run_state, measures, progress)
    return Run(path)


def _play(
    record: Run, cell: Cell, run_state: RunState, measures: Mapping[str, OwnMeasure], progress: Progress | None
) -> None:
    """Play the rounds that are missing; the caller holds the lock of the run."""
    seconds = cell.experiment.measures.durable_seconds
    with named_warnings(cell), Writer(record.path, durable_seconds=seconds) as writer, finish_the_round() as stop:
        first = _restore(record, run_state, writer)
        _Rounds(cell, run_state, writer, measures, progress).play(first, stop)


def _restore(record: Run, run_state: RunState, writer: Writer) -> int:
    """Put the run_state into the state of the last checkpoint, and return the next round; also record the facts about the clients."""
    if not record.portrait.facts:
        writer.describe(run_state.portrait())
    saved = record.checkpoint()
    last = 0
    if saved is not None:
        last = saved[0]
        run_state.load_state_dict(moved(saved[1], run_state.device))
    writer.rewind(last)
    return last + 1


@dataclass(frozen=True)
class _PlayedRound:
    """A round that is not finished yet, because its model is still being evaluated while the next round trains.

    Attributes:
        row: its record.
        validation, test: evaluations in progress; None if there is none.
        saved: its checkpoint, if it has one.
        run_state: the run.
        measures: own measures by name, computed from ``test``.
    """

    row: RoundRow
    validation: Later | None
    test: Later | None
    saved: Saved | None
    run_state: RunState
    measures: Mapping[str, OwnMeasure]

    @property
    def ready(self) -> bool:
        """Whether the evaluations are done."""
        return all(later.done() for later in (self.validation, self.test) if later is not None)

    def complete(self) -> None:
        """Wait for the evaluations, and add them and the time of waiting to the row."""
        begin = time.perf_counter()
        if self.validation is not None:
            result = self.validation()
            self.row.add_validation(result.accuracy, result.loss)
        if self.test is not None:
            result = self.test()
            self.row.add_test(result.accuracy, result.loss, result.class_accuracy.tolist())
            by_client = self.run_state.accuracy_by_client(result)
            self.row.client_accuracy = self.row.client_accuracy if by_client is None else by_client
            if self.measures:
                self.row.own_measures = values_of(self.measures, result)
        waited = time.perf_counter() - begin
        self.row.wall["evaluation"] = self.row.wall.get("evaluation", 0.0) + waited
        self.row.wall["total"] += waited


class _Rounds:
    """Play the rounds of a run and write them to the record.

    A round is submitted when it has been played, and settled (finished) as soon as its model has been evaluated. While the clients of
    the next round train, the engine calls :meth:`settle` whenever it has to wait. Rounds are settled in order, and written one by one
    or, if they are short, together; see :class:`~fedcohort.runs.checkpoint_times.CheckpointTimes`.

    Args:
        cell: the cell of the experiment.
        run_state: the run, ready for its next round.
        writer: writes the record.
        measures: own measures by name.
        progress: called after every finished round.
    """

    def __init__(
        self,
        cell: Cell,
        run_state: RunState,
        writer: Writer,
        measures: Mapping[str, OwnMeasure],
        progress: Progress | None,
    ) -> None:
        self.cell, self.run_state, self.writer = cell, run_state, writer
        self.measures, self.progress = measures, progress
        self._times = CheckpointTimes(cell.experiment.measures, every_round=run_state.every_round)
        self._submitted: _PlayedRound | None = None
        self._unwritten: list[RoundRow] = []
        self._recording = 0.0  # seconds; known only when a round is recorded, so it is part of the next round's row

    def play(self, first: int, stop: Stop) -> None:
        """Play all rounds from ``first`` on, and finish the run.

        Raises:
            Interrupted: ``stop`` was set; the current round is finished and written.
        """
        rounds, path = self.cell.experiment.rounds, self.writer.path
        self.run_state.engine.meanwhile = self.settle
        with one_thread():
            self._try_measures()
            try:
                for t in range(first, rounds + 1):
                    stopping = self._play_round(t, stop)
                    if stopping and t < rounds:
                        message = f"stopped after round {t:,} of {rounds:,}; the same command resumes it ({path})"
                        raise Interrupted(message, stop.signum)
            finally:
                self._write()
        self.writer.finish(self.run_state.engine.whole(self.run_state.model))
        if stop.asked:  # the caller may have further runs to play
            raise Interrupted(f"stopped after the last round of {rounds:,}; the run is finished ({path})", stop.signum)

    def _try_measures(self) -> None:
        """Call each own measure once, so that an error in one is found before the first round is trained."""
        if self.measures:
            values_of(self.measures, self._test()(), first=True)

    def _test(self) -> Later:
        """Begin to evaluate the model on the test set."""
        return self.run_state.engine.evaluate_beside(self.run_state.model, "test", predictions=bool(self.measures))

    def settle(self, *, wait: bool = False) -> bool:
        """Finish the submitted round if its model has been evaluated.

        Args:
            wait: wait until it has been evaluated.

        Returns:
            Whether the submitted round still waits for its evaluation.
        """
        played = self._submitted
        if played is not None and (wait or played.ready):
            self._submitted = None
            self._finish(played)
        return self._submitted is not None

    def _finish(self, played: _PlayedRound) -> None:
        """Complete a round, report it, and write it, if its checkpoint or the time says so."""
        played.complete()
        self._unwritten.append(played.row)
        if played.saved is not None or self._times.record_due():
            self._write(played.saved)
        if self.progress is not None:
            passed_on(self.progress, self.cell, played.row)

    def _write(self, saved: Saved | None = None) -> None:
        """Write the finished rounds, and the checkpoint of the last of them."""
        rows, self._unwritten = self._unwritten, []
        if rows:
            begin = time.perf_counter()
            self.writer.record(rows, saved)
            self._recording += time.perf_counter() - begin
            self._times.recorded()

    def _play_round(self, t: int, stop: Stop) -> bool:
        """Play round ``t``, submit it, and settle the one before; returns whether ``stop`` was set in time, so that it is written."""
        from fedcohort.rounds import play_round

        experiment, run_state = self.cell.experiment, self.run_state
        last = t == experiment.rounds
        try:
            with naming_own_code(f"round {t}"):
                row = play_round(
                    run_state, t, test=False, local_accuracy=self._question(t), personal_accuracy=self._personal(t)
                )
        except Exception:
            self.settle(wait=True)
            raise
        row.wall["recording"], self._recording = self._recording, 0.0
        self.settle(wait=True)
        stopping = stop.asked
        saved = self._save(t) if last or stopping or self._times.checkpoint_due(t) else None
        tested = last or t % experiment.measures.evaluate_every == 0
        validates = experiment.data.validation > 0 and not run_state.validates
        validation = run_state.engine.evaluate_beside(run_state.model, "validation") if validates else None
        test = self._test() if tested else None
        self._submitted = _PlayedRound(row, validation, test, saved, run_state, self.measures)
        if last or stopping:
            self.settle(wait=True)
        return stopping

    def _save(self, t: int) -> Saved:
        """Write the checkpoint of round ``t``, which has just been played."""
        begin = time.perf_counter()
        saved = self.writer.save(t, self.run_state.state_dict())
        took = time.perf_counter() - begin
        self._times.checkpoint_took(took)
        self._recording += took
        return saved

    def _question(self, t: int) -> LocalAccuracy | None:
        """The question to all clients about the new model, for the record; see ``measures.clients_every``.

        Clients with test samples of their own are not asked: the evaluation on the test set gives their accuracies.
        """
        experiment = self.cell.experiment
        every = experiment.measures.clients_every
        if not every or self.run_state.test_clients is not None or (t < experiment.rounds and t % every):
            return None
        return LocalAccuracy(held_out=experiment.federation.holdout > 0)

    def _personal(self, t: int) -> PersonalAccuracy | None:
        """The question about the new model after local epochs, for the record; see ``measures.personal_epochs``."""
        experiment = self.cell.experiment
        epochs, every = experiment.measures.personal_epochs, experiment.measures.personal_every
        if not epochs or (t < experiment.rounds and (not every or t % every)):
            return None
        return PersonalAccuracy(epochs)
