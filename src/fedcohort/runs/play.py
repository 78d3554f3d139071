"""Play a run and keep its record: resume, rounds, finish."""

import hashlib
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.experiment import Cell, Experiment
from fedcohort.record import RoundRow, Run, Saved, Writer, create_run, writing

if TYPE_CHECKING:
    from fedcohort.engines.base import Later
from fedcohort.runs.find import check_same_data, find_run, on_device, run_path, with_plan
from fedcohort.runs.given import Given
from fedcohort.runs.prepare import fingerprint_of, prepare

__all__ = ["Interrupted", "Progress", "run_cell"]

Progress = Callable[[Cell, RoundRow], None]
"""Called after every committed round, in the thread that plays; the next round may be training already."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Ctrl-C: the round was finished and recorded; the message says how to go on."""


def run_cell(cell: Cell, given: Given, *, runs: str | Path = "runs", progress: Progress | None = None) -> Run:
    """Run one cell of an experiment, or continue where it was interrupted; a finished run is opened, not repeated.

    Raises:
        UsageError: something in the description, the data or the run directory cannot be used.
        Interrupted: Ctrl-C was pressed; everything up to the last finished round is kept.
    """
    cell = on_device(cell)
    done = find_run(cell, given, runs)
    if done is not None:
        done.verify()
        cell = with_plan(cell, done.experiment.engine.plan)
    experiment = cell.experiment
    if done is not None and done.finished:
        check_same_data(done, fingerprint_of(experiment, given), experiment)
        return done
    from fedcohort.engines.device import moved

    with prepare(experiment, given) as (game, fingerprint):
        cell = with_plan(cell, game.engine.plan)
        experiment = cell.experiment
        path = done.path if done is not None else run_path(cell, given, runs)
        meta = {
            "name": experiment.name,
            "label": cell.label,
            "seed": str(cell.seed),
            "key": experiment.key(given.key()),
            "row": experiment.single(0).key(given.key()),
            "public": experiment.public.words
            if given.public_data is None
            else f"proxy: {given.public_data.name}, labels discarded",
            "given": given.names(),
            "algorithm": game.algorithm.title(experiment.training),
            "plan": game.engine.plan,
            "ours": "\n".join(experiment.ours()),
            **given.classes(),
        }
        description, files = _with_own_files(experiment)
        record = create_run(path, given.note() + description, meta | {"data": fingerprint, **_versions()}, files=files)
        check_same_data(record, fingerprint, experiment)
        with writing(record) as writer, _finish_the_round() as stop:
            if not record.portrait.facts:
                writer.describe(game.portrait())
            saved = record.checkpoint()
            first = 1
            if saved is not None:
                first = saved[0] + 1
                game.load_state_dict(moved(saved[1], game.engine.device))
            writer.rewind(first - 1)
            _play(cell, game, writer, first, stop, progress, path)
    return Run(path)


def _play(
    cell: Cell, game: Any, writer: Writer, first: int, stop: threading.Event, progress: Progress | None, path: Path
) -> None:
    """All rounds. What of a round's model is measured for the record alone is measured beside the training of the next round, and the
    round is committed as soon as that is done."""
    from fedcohort.core.threads import one_thread
    from fedcohort.rounds import play_round
    from fedcohort.selection.base import LocalAccuracy

    experiment, measures = cell.experiment, cell.experiment.measures
    question, every = LocalAccuracy(held_out=experiment.federation.holdout > 0), measures.clients_every
    waiting: tuple[Callable[[], None], list[Later]] | None = None
    recording = 0.0  # a round's own recording is only known once it is recorded: the next round's row carries it

    def played(row: RoundRow, validate: "Later | None", test: "Later | None", saved: Saved | None) -> None:
        nonlocal waiting

        def commit() -> None:
            """Wait for what is measured, then record the round and tell."""
            nonlocal recording
            begin = time.perf_counter()
            if validate is not None:
                found = validate()
                row.add_validation(found.accuracy, found.loss)
            if test is not None:
                found = test()
                row.add_test(found.accuracy, found.loss, found.class_accuracy.tolist())
            waited = time.perf_counter() - begin
            row.wall["evaluation"] = row.wall.get("evaluation", 0.0) + waited
            row.wall["total"] += waited
            begin = time.perf_counter()
            writer.record(row, saved)
            recording += time.perf_counter() - begin
            if progress is not None:
                progress(cell, row)

        waiting = commit, [later for later in (validate, test) if later is not None]

    def settle(*, wait: bool = False) -> bool:
        """Commit the round that waits for it, if what is measured of it is there; whether one is left."""
        nonlocal waiting
        if waiting is not None and (wait or all(later.done() for later in waiting[1])):
            commit, waiting = waiting[0], None
            commit()
        return waiting is not None

    game.engine.meanwhile = settle
    with one_thread():
        for t in range(first, experiment.rounds + 1):
            last = t == experiment.rounds
            served = every > 0 and (last or t % every == 0)
            try:
                row = play_round(game, t, test=False, clients=question if served else None)
            except Exception:
                settle(wait=True)
                raise
            row.wall["recording"], recording = recording, 0.0
            settle(wait=True)
            begin, stopping = time.perf_counter(), stop.is_set()
            due = last or stopping or t % measures.checkpoint_every == 0
            saved = writer.save(t, game.state_dict()) if due else None
            recording += time.perf_counter() - begin
            tested = last or t % measures.evaluate_every == 0
            validate = None if game.validates else game.engine.evaluate_beside(game.model, "validation")
            test = game.engine.evaluate_beside(game.model, "test") if tested else None
            played(row, validate, test, saved)
            if last or stopping:
                settle(wait=True)
            if stopping and not last:
                raise Interrupted(
                    f"stopped after round {t} of {experiment.rounds}; the same command goes on from there ({path})"
                )
    writer.finish(game.model)


def _with_own_files(experiment: Experiment) -> tuple[str, dict[str, bytes]]:
    """The description for a run's directory, and copies of the users' own files that it then refers to: they may change or go."""
    text, files = experiment.to_toml(), {}
    for file in experiment.own_files():
        content = file.read_bytes()
        name = f"plug-ins/{file.stem}-{hashlib.sha256(content).hexdigest()[:8]}.py"
        files[name] = content
        text = text.replace(f"{file}:", f"{name}:")
    return text, files


@contextmanager
def _finish_the_round() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of breaking the round; a second one breaks it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask_to_stop(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _versions() -> dict[str, str]:
    import numpy
    import torch

    return {
        "fedcohort": version("fedcohort"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
