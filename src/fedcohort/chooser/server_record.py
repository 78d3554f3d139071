"""Record the decisions of a server of your own, so that FedCohort's commands can explain, measure and compare them."""

import copy
import logging
import math
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.chooser.argument_checks import at_most_one, class_accuracies, client_accuracies
from fedcohort.chooser.chooser import Chooser
from fedcohort.chooser.decision_record import DecisionRecord
from fedcohort.chooser.epochs_done import epochs_done
from fedcohort.chooser.observed_round import ObservedRound
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import as_path
from fedcohort.core.given_values import as_float, whole_number
from fedcohort.core.words.formatted_values import counted
from fedcohort.core.words.report_names import NUMBER_OF_SAMPLES, TRAINING
from fedcohort.record import ClientRow, RoundRow, Run
from fedcohort.rounds.client_outcomes import ALWAYS
from fedcohort.rounds.client_result import ClientResult
from fedcohort.rounds.round_facts import mean_of_known, round_notes, round_row
from fedcohort.selection import Outcome
from fedcohort.selection.strategy_inputs import epochs_used

__all__ = ["ServerRecord"]

log = logging.getLogger("fedcohort")

NO_RESULT = "no result"
"""Why a client without a :class:`ClientResult` has no update."""
MOST_STEPS = 2**53
"""Number of steps from which on a client's report of them is not recorded."""


class ServerRecord(DecisionRecord):
    """A run directory with the decisions of a :class:`Chooser`, for ``fedcohort why``, ``report``, ``measures`` and ``compare``.

    Its times are seconds. The directory holds no model and not the state of the chooser: save both yourself. A directory of an
    unfinished run is continued: after a restart, restore the chooser first, and the record continues after its round.

    Args:
        path: the run directory, such as ``"runs/hospitals-seed0"``.
        chooser: the chooser, before its first round or restored.
        rounds: planned number of rounds.
        name: name of the experiment, the title of reports.
        label: label of the row; by default the name of the strategy's class.
        client_names: the clients' names, by number.
        classes: names of the classes, if the census has label counts; by default their numbers.

    Attributes:
        path: the run directory.

    Raises:
        UsageError: an argument cannot be used, the directory cannot be written, or it has another run, one that is finished, or one
            with more rounds than the chooser.
    """

    def __init__(
        self,
        path: str | Path,
        chooser: Chooser,
        *,
        rounds: int,
        name: str = "server",
        label: str = "",
        client_names: Sequence[str] = (),
        classes: Sequence[str] = (),
    ) -> None:
        if not isinstance(chooser, Chooser):
            raise UsageError(f"chooser = {shown(chooser)}: give a fedcohort.Chooser")
        if not isinstance(label, str):
            raise UsageError(f"label = {shown(label)}: must be text")
        census = chooser.census
        _names([label], 1, "label", "row")
        names = _names(client_names, census.num_clients, "client_names", "clients")
        named_classes = _names(classes, census.num_classes, "classes", "classes")
        super().__init__(
            chooser.strategy, name, label or type(chooser.strategy).__name__, federation="a server of the user's own",
            algorithm="that of the server", k=census.k, seed=chooser.seed, rounds=whole_number("rounds", rounds, 1),
            identity="own server",
            facts={"given": "Chooser and ServerRecord", "algorithm": "", "plan": "server"},
        )  # fmt: skip
        self.path, self._chooser = as_path(path, "path"), chooser
        self._lock = threading.RLock()  # the record can be used from several threads
        self._check_place(names)
        self.begin(census, names, chooser.t, named_classes)
        self._last, self._warned = chooser.t, False

    def add(
        self,
        outcome: Outcome,
        *,
        test_accuracy: float = math.nan,
        test_loss: float = math.nan,
        class_accuracy: ArrayLike = (),
        client_accuracy: ArrayLike | None = None,
        note: str = "",
    ) -> None:
        """Record a round, after :meth:`Chooser.observe` and before :meth:`Chooser.save`. It then survives a power loss.

        Args:
            outcome: the outcome of the round.
            test_accuracy, test_loss: results of the new model on test data; NaN in rounds without a test.
            class_accuracy: test accuracy of each class [K].
            client_accuracy: accuracy of the new model on each client's data [m], NaN where it was not measured; None without any.
            note: anything that should be known about the round.

        Raises:
            UsageError: the outcome is not that of the round that the chooser has just observed, an argument cannot be used, or the
                directory cannot be written.
        """
        with self._lock:
            observed = self._observed(outcome)
            if (loss := as_float(test_loss)) is None:
                raise UsageError(f"test_loss = {shown(test_loss)}: must be a number, or NaN without a test")
            if not isinstance(note, str):
                raise UsageError(f"note = {shown(note)}: must be text")
            census, accuracy = self._chooser.census, at_most_one("test_accuracy", test_accuracy)
            of_classes = class_accuracies(class_accuracy, census.num_classes)
            of_clients = None if client_accuracy is None else client_accuracies(client_accuracy, census.num_clients)
            self._check_bytes(observed)
            row = self._row(observed, _storable(note))
            row.add_validation(outcome.accuracy, mean_of_known(outcome.validation_losses))
            row.add_test(accuracy, loss, of_classes.tolist())
            row.client_accuracy = of_clients
            self.write(row)
            self._last = outcome.t

    def _observed(self, outcome: Outcome) -> ObservedRound:
        """The round that the chooser has just observed.

        Raises:
            UsageError: ``outcome`` is not its outcome, or the round cannot be added.
        """
        chooser = self._chooser
        if self._writer is None:
            raise UsageError(f"{self.path}: this record is closed; make a new ServerRecord to continue it")
        if chooser.waits:
            raise UsageError(
                f"round {chooser.t} is not observed yet: call chooser.observe(outcome) before add(outcome)"
            )
        if not isinstance(outcome, Outcome):
            raise UsageError(f"outcome = {shown(outcome)}: give what chooser.outcome(…) returned")
        if outcome.t != chooser.t or self._last != chooser.t - 1:
            raise UsageError(
                f"outcome: is that of round {outcome.t}; the record has {counted(self._last, 'round')} and the chooser {chooser.t}: "
                "add every round once, before the next one begins"
            )
        observed = chooser.observed
        if observed is None or observed.outcome is not outcome:
            raise UsageError(
                f"outcome: is not the one that this chooser observed in round {chooser.t}; give add(…) the outcome that "
                "chooser.observe(…) was given"
            )
        return observed

    def finish(self) -> None:  # type: ignore[override]
        """Mark the run as finished, and close the record: ``compare`` then takes it without ``--partial``."""
        with self._lock:
            if self._writer is not None:
                super().finish({})

    def close(self) -> None:
        """Release the run directory. Unless :meth:`finish` was called, the run can be continued."""
        with self._lock:
            super().close()

    def __enter__(self) -> "ServerRecord":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_place(self, names: Sequence[str]) -> None:
        """Refuse a directory with another run, with clients of other names, or with rounds that the chooser does not know."""
        if not (self.path / "run.sqlite").exists():
            if self._chooser.t:
                raise UsageError(
                    f"{self.path}: is new, but the chooser has {counted(self._chooser.t, 'round')}; record from the first round on"
                )
            return
        run = Run(self.path)
        found, named = run.described, run.portrait.names
        if run.meta.get("key") != self.key(self._chooser.seed):
            raise UsageError(
                f"{self.path}: has a run with other settings ({run.meta['label']}, seed {run.meta['seed']}, k {found.selection.k}, "
                f"rounds {found.rounds}); give those, or another directory"
            )
        if run.finished:
            raise UsageError(f"{self.path}: has a finished run; give another directory")
        if self._chooser.t > run.last_round:
            raise UsageError(
                f"{self.path}: has {counted(run.last_round, 'round')}, but the chooser has {self._chooser.t}: rounds are missing"
            )
        if not self._chooser.t and run.last_round > 1:  # one round: the server ended before it first saved the chooser
            raise UsageError(
                f"{self.path}: has {counted(run.last_round, 'round')} already, and the chooser none; call chooser.restore(…) first, "
                "or give another directory"
            )
        if other := [i for i, (now, then) in enumerate(zip(names, named, strict=False)) if now != then]:
            raise UsageError(
                f"client_names: client {other[0]} is {shown(names[other[0]])}, but in the run in {self.path} it is "
                f"{shown(named[other[0]])}; give the names in the order of that run"
            )

    def _check_bytes(self, observed: ObservedRound) -> None:
        """Warn once if no bytes of models are counted."""
        if not self._warned and observed.outcome.trained.any() and not observed.ledger.model_bytes:
            self._warned = True
            log.warning(
                "%s: counts 0 bytes for each model that clients receive or send; give chooser.select(…, model_bytes=…)",
                self.path,
            )

    def _row(self, observed: ObservedRound, note: str) -> RoundRow:
        """The record of the round."""
        chooser, outcome, cohort = self._chooser, observed.outcome, observed.outcome.cohort
        assert observed.reasons is not None  # since the beginning of the round
        rows = self._clients(observed)
        uploaded = np.array([_has_sent(row, observed) for row in rows], dtype=bool)
        uploads = int(uploaded.sum())
        models = uploads if cohort.share is None else float(cohort.share[uploaded].sum())
        epochs = epochs_done(cohort, epochs_used(outcome), chooser.census.epochs)
        each = dict(zip(cohort.clients.tolist(), (3.0 * epochs).tolist(), strict=True))
        each |= observed.ledger.trained  # clients that trained to answer a question said how many passes that took
        passes = sum(
            each[row.client] for row in rows if row.status != "failed" or row.client in observed.ledger.trained
        )
        trained = [row for row in rows if row.status in ("admitted", "declined")]
        own = [observed.results.get(row.client, ClientResult()).reports for row in trained]
        billed = sorted(name for name in outcome.billed & ALWAYS if any(name in reports for reports in own))
        more = sorted({name for row in rows for name in row.reports} | set(billed))
        sent = sum(len(row.reports) for row in trained) + sum(name in reports for reports in own for name in billed)
        ledger = copy.deepcopy(observed.ledger)  # if the round cannot be written, it can be added again
        ledger.training(
            cohort.clients, uploads=uploads, up=round(models * ledger.model_bytes) + 4 * sent, passes=passes,
            seconds=outcome.duration, discloses=", ".join([TRAINING if uploads else NUMBER_OF_SAMPLES, *more]),
        )  # fmt: skip
        selection, total = observed.watch.seconds.get("selection", 0.0), observed.watch.total()
        available, k = len(observed.available), chooser.census.k
        short = not chooser.selector.variable_size and available < k
        notes = round_notes(cohort, rows, available, k, short=short)
        row = round_row(
            outcome.t, rows, observed.reasons, ledger.rows, available=available, time=observed.clock, duration=outcome.duration,
            note="; ".join(part for part in [*notes, note] if part),
            wall={"selection": selection, "training": total - selection, "total": total},
        )  # fmt: skip
        if not all(client.steps for client in trained):
            row.steps = 0  # unknown
        return row

    def _clients(self, observed: ObservedRound) -> list[ClientRow]:
        """What happened to each selected client."""
        rows, outcome = [], observed.outcome
        for i, client in enumerate(outcome.cohort.clients.tolist()):
            result = observed.results.get(client, ClientResult(failure=NO_RESULT))
            status, detail = _status(result, trained=bool(outcome.trained[i]), admitted=bool(outcome.admitted[i]))
            reports = dict(result.reports) if outcome.trained[i] else {}
            steps = reports.get("steps", math.nan)
            rows.append(
                ClientRow(
                    client,
                    status,
                    _storable(detail),
                    num_samples=int(self._chooser.census.num_samples[client]),
                    steps=int(steps) if 0 <= steps < MOST_STEPS else 0,
                    duration=float(outcome.durations[i]),
                    weight=result.weight if status == "admitted" else 0.0,
                    loss=reports.get("loss", math.nan),
                    accuracy=reports.get("accuracy", math.nan),
                    reports={_storable(name): float(value) for name, value in reports.items() if name not in ALWAYS},
                )
            )
        total = sum(row.weight for row in rows)
        for row in rows:
            row.weight = row.weight / total if total > 0 else math.nan if row.status == "admitted" else 0.0
        return rows


def _has_sent(row: ClientRow, observed: ObservedRound) -> bool:
    """Whether a client sent its update. A client that the strategy declined is told so before; one that the server left out of the
    model has sent it."""
    let_in = observed.let_in
    left_out = row.status == "declined" and (let_in is None or row.client in let_in)
    return left_out or row.status in ("admitted", "diverged")


def _status(result: ClientResult, *, trained: bool, admitted: bool) -> tuple[str, str]:
    """What happened to a client, and the reason."""
    if admitted:
        return "admitted", ""
    if trained:
        return "declined", ""
    if result.late:
        return "late", result.late
    if result.failure:
        return "failed", result.failure
    return "diverged", "its update has NaN or infinite entries and was dropped"


def _storable(text: str) -> str:
    """Text with escapes in place of lone surrogates, which a file cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _names(given: Sequence[str], number: int, argument: str, things: str) -> list[str]:
    """The names that were given, none or one for each thing.

    Raises:
        UsageError: they are something else.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{argument} = {shown(given)}: give a list of names, one for each of the {number} {things}")
    names = [str(each) for each in given]
    if names and len(names) != number:
        raise UsageError(f"{argument}: has {len(names)} names, but the census has {number} {things}; give one for each")
    if wrong := [name for name in names if name != _storable(name)]:
        raise UsageError(f"{argument}: has {shown(wrong[0])}, which is not valid Unicode; give another name")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{argument}: has {shown(twice)} twice; names must differ")
    return names
