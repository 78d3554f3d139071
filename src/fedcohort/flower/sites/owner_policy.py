"""What the owner of a site allows: which questions and reports are answered, and how much in total."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.files.durable_files import replace_file
from fedcohort.core.words.report_names import REPORTS
from fedcohort.selection import QUESTIONS, Question

__all__ = ["Allowed", "Budget", "Refused", "Spent", "keeping"]


class Refused(Exception):  # noqa: N818 - an answer to the server, not an error
    """A request that the owner does not allow, or that the site cannot answer now; the text says why."""


@contextmanager
def keeping(what: str) -> Iterator[None]:
    """Write something that a site has to keep.

    Args:
        what: what is written, for the message.

    Raises:
        Refused: it cannot be written, as on a full disk. The site goes on, and answers when there is space again.
    """
    try:
        yield
    except OSError as error:
        raise Refused(f"the site cannot write {what} ({error.strerror or type(error).__name__})") from None


@dataclass(frozen=True)
class Allowed:
    """What a site discloses.

    Attributes:
        training: whether clients train and send their updates.
        questions: kinds of the questions that are answered.
        reports: names of the numbers that are sent with an update; None for all.
        histogram: whether the numbers of samples of each class are sent.

    Raises:
        UsageError: there is no such question, or a report seems to be misspelt; rules of one's own may report other names.
    """

    training: bool = True
    questions: frozenset[str] = frozenset()
    reports: frozenset[str] | None = frozenset()
    histogram: bool = False

    def __post_init__(self) -> None:
        for kind in sorted(self.questions):
            if kind not in QUESTIONS:
                raise UsageError(f"allow.questions = {kind!r}: there is no such question; {nearest(kind, QUESTIONS)}")
        for name in sorted((self.reports or frozenset()) - set(REPORTS)):
            if get_close_matches(name, REPORTS, n=1, cutoff=0.75):
                raise UsageError(f"allow.reports = {name!r}: there is no such report; {nearest(name, REPORTS)}")

    def check_training(self) -> None:
        """Raise :class:`Refused` unless clients may train."""
        if not self.training:
            raise Refused("the owner does not allow training")

    def check_question(self, question: Question) -> None:
        """Raise :class:`Refused` unless this question is answered; a question that trains needs both permissions."""
        if question.kind not in self.questions:
            raise Refused(f"the owner does not allow {question.kind}")
        if question.trains:
            self.check_training()

    def reported(self, report: dict[str, float]) -> dict[str, float]:
        """The numbers of a report that may be sent."""
        return report if self.reports is None else {name: x for name, x in report.items() if name in self.reports}


@dataclass(frozen=True)
class Budget:
    """How much a site does in total, over all runs; None means no limit.

    Attributes:
        rounds: number of rounds in which it trains.
        answers: number of answers to questions, counted for each of its clients.
        bytes: number of bytes that it sends.
        epochs: number of epochs that it trains, counted for each of its clients, also those of the same work again and of
            questions that train.
    """

    rounds: int | None = None
    answers: int | None = None
    bytes: int | None = None
    epochs: int | None = None


@dataclass
class Spent:
    """What a site has done so far. It is kept in a file, so that a restart does not renew the budget.

    Attributes:
        budget: the limits.
        path: the file; None keeps the numbers in memory only.
        rounds, answers, bytes, epochs: what was used of the budget.
        last_round: run, round and content of the last training; the same work again is free.
        last_work: a hash of the work for each client in it, by name.
    """

    budget: Budget
    path: Path | None = None
    rounds: int = 0
    answers: int = 0
    bytes: int = 0
    epochs: int = 0
    last_round: str = ""
    last_work: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            self.rounds, self.answers, self.bytes = (int(kept[name]) for name in ("rounds", "answers", "bytes"))
            self.epochs = int(kept.get("epochs", 0))  # earlier versions did not count them
            self.last_round = str(kept["last_round"])
            self.last_work = {str(name): str(work) for name, work in kept.get("last_work", {}).items()}
        except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self.path}: what the site has spent cannot be read ({error}); restore the file, or delete it to begin anew"
            ) from None

    def train(self, run: str, t: int, begins_with: str, work: Mapping[str, str], epochs: int = 0) -> None:
        """Count a round of a run, and its epochs; the same work that is done again for the same round is not a further round.

        The server chooses the names of runs and rounds, so they do not say that the work is the same. Work that begins with another
        model, or other work for a client, discloses more of its data, and is counted as a further round.

        Args:
            run, t: the run and the round.
            begins_with: a hash of what all clients begin with: the model, the settings, what the algorithm sends.
            work: a hash of the work for each client, by its name; several requests can share the clients of a round.
            epochs: number of epochs of all clients.

        Raises:
            Refused: no round is left, or fewer epochs.
        """
        this = f"{run}/{t}/{begins_with}"
        with self._lock:
            self._check("epochs", self.epochs + epochs)
            known = self.last_work if this == self.last_round else {}
            if this != self.last_round or any(known.get(name, each) != each for name, each in work.items()):
                self._check("rounds", self.rounds + 1)
                self.rounds, self.last_round, known = self.rounds + 1, this, {}
            self.last_work = {**known, **work}
            self.epochs += epochs
            self._keep()

    def answer(self, count: int, epochs: int = 0) -> None:
        """Count answers, and the epochs that clients train for them.

        Raises:
            Refused: fewer are left.
        """
        with self._lock:
            self._check("answers", self.answers + count)
            self._check("epochs", self.epochs + epochs)
            self.answers, self.epochs = self.answers + count, self.epochs + epochs
            self._keep()

    def send(self, count: int) -> None:
        """Count bytes before they are sent.

        Raises:
            Refused: fewer are left.
        """
        with self._lock:
            self._check("bytes", self.bytes + count)
            self.bytes += count
            self._keep()

    def left(self) -> dict[str, int | None]:
        """What is left of each limit; None without a limit."""
        limits = {name: getattr(self.budget, name) for name in ("rounds", "answers", "bytes", "epochs")}
        return {name: None if most is None else most - getattr(self, name) for name, most in limits.items()}

    def _check(self, name: str, wanted: int) -> None:
        most = getattr(self.budget, name)
        if most is not None and wanted > most:
            raise Refused(f"the site's budget of {most:,} {name} is used up")

    def _keep(self) -> None:
        if self.path is not None:
            names: Iterable[str] = ("rounds", "answers", "bytes", "epochs", "last_round", "last_work")
            with keeping("what it has spent of its budget"):
                replace_file(self.path, json.dumps({name: getattr(self, name) for name in names}).encode())
