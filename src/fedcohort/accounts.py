"""Book-keeping of one round: who did what, what it cost, how long it took. It watches the stream of updates and changes nothing."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedcohort.algorithms.base import LARGE, Algorithm, Members, ModelState, Update, is_finite
from fedcohort.core.arrays import Indices, Values, nth_highest
from fedcohort.record import KEPT, ClientRow, LedgerRow, Reasons
from fedcohort.selection.base import Cohort, Outcome, Question, Why
from fedcohort.training.forward import Evaluation

__all__ = ["Ledger", "Stopwatch", "Tally", "decisions", "num_bytes"]

T = TypeVar("T")

ALWAYS = frozenset({"loss", "square_loss", "samples", "steps", "accuracy"})
"""What is measured of every client that trains; it is sent, and costs 4 bytes a number, where the strategy asks for it. What else a
client reports always costs that, and is kept in the record."""

MEASURED = "test_"
"""How the names of reports begin that no client sends and no strategy sees: a simulation measures them on the server's test set."""


def num_bytes(groups: Iterable[Mapping[str, torch.Tensor]]) -> int:
    """Uncompressed bytes of tensors."""
    return sum(t.numel() * t.element_size() for group in groups for t in group.values())


class Stopwatch:
    """Wall seconds of the parts of a round; never simulated time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(name, start)

    def watch(self, name: str, stream: Iterable[T]) -> Iterator[T]:
        """Time what a stream takes to produce its items, not what is done with them."""
        iterator = iter(stream)
        while True:
            start = time.perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._add(name, start)
            yield item

    def total(self) -> float:
        """Seconds since the round began."""
        return time.perf_counter() - self._start

    def _add(self, name: str, start: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class Ledger:
    """The cost of a round's questions and of its training.

    Args:
        model_bytes: what a client receives that is asked about the model.
        training_bytes: what a client receives that trains; the model, unless the algorithm sends more.
    """

    def __init__(self, model_bytes: int, training_bytes: int | None = None) -> None:
        self.model_bytes = model_bytes
        self.training_bytes = model_bytes if training_bytes is None else training_bytes
        self.rows: list[LedgerRow] = []
        self.trained: dict[int, float] = {}  # who trained for a question, and the passes that it took

    def asking(
        self, answer: Callable[[Question, Indices], Values], num_samples: Indices
    ) -> Callable[[Question, Indices], Values]:
        """``answer``, with what every question costs written down."""

        def ask(question: Question, clients: Indices) -> Values:
            """The answers, and a line of the ledger."""
            clients = np.asarray(clients, dtype=np.int64)
            start = time.perf_counter()
            nothing = np.zeros(0 if question.numbers == 1 else (0, question.numbers))
            values = answer(question, clients) if len(clients) else nothing
            cost = question.cost(values)
            if question.trains:
                self.trained.update(zip(clients.tolist(), cost.tolist(), strict=True))
            received = self.training_bytes if question.trains else self.model_bytes
            self.add(
                question.kind,
                messages=2 * len(clients),
                down=len(clients) * received * question.downloads_model,
                up=len(clients) * 4 * question.numbers,
                passes=float(cost.sum()),
                seconds=time.perf_counter() - start,
                discloses=question.told,
            )
            return values

        return ask

    def training(
        self, clients: Indices, *, uploads: int, up: int, passes: float, seconds: float, discloses: str
    ) -> None:
        """The cohort's training. Who trained for a question already has received the model, and does not train again."""
        before = [self.trained[client] for client in clients.tolist() if client in self.trained]
        self.add(
            "training",
            messages=len(clients) + uploads,
            down=(len(clients) - len(before)) * self.training_bytes,
            up=up,
            passes=max(passes - sum(before), 0.0),
            seconds=seconds,
            discloses=discloses,
        )

    def add(
        self, kind: str, *, messages: int, down: int, up: int, passes: float, seconds: float, discloses: str = ""
    ) -> None:
        """One more exchange; several of one kind in a round are summed."""
        before = next((row for row in self.rows if row.kind == kind), None)
        if before is not None:
            self.rows.remove(before)
            messages, down, up = messages + before.messages, down + before.bytes_down, up + before.bytes_up
            passes, seconds = passes + before.passes, seconds + before.seconds
        self.rows.append(LedgerRow(kind, messages, down, up, passes, seconds, discloses))


class Tally:
    """What became of each selected client, gathered as the updates stream by.

    Args:
        cohort: the choice.
        start: the model the clients received.
        trainable: names that norms of updates are taken over.
        needs: what the strategy wants to see of updates (``update_norm``, ``update``).
    """

    def __init__(self, cohort: Cohort, start: ModelState, trainable: frozenset[str], needs: frozenset[str]) -> None:
        self.cohort = cohort
        self.rows = [ClientRow(int(client), "failed", "no answer") for client in cohort.clients]
        self.bytes_up = self.uploads = 0
        self.passes = 0.0
        self.note = ""
        self._position = {int(client): i for i, client in enumerate(cohort.clients)}
        self._reports: dict[str, list[tuple[int, float]]] = {}
        self._updates: dict[int, Values] = {}
        self._start, self._trainable, self._needs = start, sorted(trainable), needs
        self._worked_out: set[str] = set()  # by the server, from updates
        self._read: set[str] = set()

    def arrived(self, updates: Iterable[Update]) -> Iterator[Update]:
        """Let finite results pass; write down clients that failed or were late, and drop updates with NaN or ±∞ (R4)."""
        for update in updates:
            row = self.rows[self._position[update.client]]
            row.num_samples, row.steps, row.duration = update.num_samples, update.steps, update.duration
            self.passes += update.passes
            if update.failure is not None:
                row.status, row.detail = "failed", update.failure
                continue
            if update.late is not None:
                row.status, row.detail = "late", update.late
                continue
            if not is_finite(update):
                self.bytes_up, self.uploads = self.bytes_up + update.num_bytes, self.uploads + 1
                row.status, row.detail = "diverged", "its update has NaN or infinite entries and was dropped"
                continue
            row.status, row.detail = "declined", ""
            row.loss = update.report.get("loss", math.nan)
            row.accuracy = update.report.get("accuracy", math.nan)
            self._look_at(update)
            yield update

    def admitted(self, updates: Iterable[Update], algorithm: Algorithm, members: Members) -> Iterator[Update]:
        """Write down who enters the model, and with which weight."""
        largest = 0.0
        for update in updates:
            row = self.rows[self._position[update.client]]
            row.status, row.weight = "admitted", algorithm.weigh(update, members)
            self.uploads += 1
            self.bytes_up += update.num_bytes  # whoever is declined was told before it sent its model
            largest = max(largest, row.weight)
            yield update
        if algorithm.weights in LARGE and largest > 0:
            self.note = f"largest weight {largest:.4g}"

    @property
    def disclosed(self) -> str:
        """What the server learned of clients that trained, in words."""
        more = sorted({name for row in self.rows for name in row.reports if self._is_sent(name)} | self._read)
        return ", ".join(["its update and number of samples", *more])

    def settle(self, changed: Mapping[int, float]) -> None:
        """Weights, or what the algorithm ``changed`` of them in the end, become shares of their sum."""
        for row in self.having("admitted"):
            row.weight = changed.get(row.client, row.weight)
        total = sum(row.weight for row in self.rows)
        for row in self.rows:
            row.weight = row.weight / total if total > 0 else 0.0

    def having(self, *statuses: str) -> list[ClientRow]:
        """The rows with one of these statuses."""
        return [row for row in self.rows if row.status in statuses]

    def heard(self, outcome: Outcome) -> None:
        """What the strategy has asked for of that which is measured of everybody was sent."""
        self._read = set(outcome.read & ALWAYS & self._reports.keys())
        self.bytes_up += 4 * sum(len(self._reports[name]) for name in self._read)

    def _is_sent(self, name: str) -> bool:
        return not name.startswith(MEASURED) and name not in self._worked_out

    def outcome(self, t: int, duration: float, validation: Evaluation | None) -> Outcome:
        """What the strategy is told; None without validation."""
        n = len(self.cohort)
        reports: dict[str, Values] = {}
        for name, pairs in self._reports.items():
            reports[name] = np.full(n, np.nan)
            for position, value in pairs:
                reports[name][position] = value
        if self._updates:
            width = len(next(iter(self._updates.values())))
            reports["update"] = np.full((n, width), np.nan)
            for position, values in self._updates.items():
                reports["update"][position] = values
        told: dict[str, Any] = {}
        if validation is not None:
            told = {
                "accuracy": validation.accuracy,
                "class_accuracy": validation.class_accuracy,
                "validation_losses": validation.losses,
            }
        return Outcome(
            t=t,
            cohort=self.cohort,
            trained=np.array([row.status in ("admitted", "declined") for row in self.rows], dtype=bool),
            admitted=np.array([row.status == "admitted" for row in self.rows], dtype=bool),
            reports=reports,
            durations=np.array([_known(row, duration) for row in self.rows], dtype=np.float64),
            duration=duration,
            **told,
        )

    def _look_at(self, update: Update) -> None:
        position = self._position[update.client]
        report = dict(update.report)
        if self._needs & {"update_norm", "update"}:
            difference = self._difference(update)
            if "update_norm" not in report:  # a client that sends a part says how large the whole is
                report["update_norm"] = float(np.linalg.norm(difference))
                self._worked_out.add("update_norm")
            if "update" in self._needs:
                self._updates[position] = difference
        row = self.rows[position]
        row.reports = {name: value for name, value in report.items() if name not in ALWAYS}
        for name in [name for name in report if name.startswith(MEASURED)]:  # for the record alone
            del report[name], update.report[name]
        self.bytes_up += 4 * sum(self._is_sent(name) for name in row.reports)
        for name, value in report.items():
            self._reports.setdefault(name, []).append((position, value))

    def _difference(self, update: Update) -> Values:
        parts = [
            (update.state[name].double() - self._start[name].double()).flatten().cpu().numpy()
            for name in self._trainable
        ]
        return np.concatenate(parts)


def _known(row: ClientRow, waited: float) -> float:
    """What the server knows of a client's time: nothing if it failed; at least as long as it waited if the client was late."""
    if row.status == "failed":
        return math.nan
    return waited if row.status == "late" else row.duration


def decisions(cohort: Cohort) -> Reasons:
    """The reasons of a choice: the selected first, then the best scored, at most :data:`KEPT`. Of a million, few are looked at."""
    why = cohort.why
    if why is None:
        nobody: Indices = np.zeros(0, dtype=np.int64)
        return Reasons(nobody, [], np.zeros(0), {}, cohort.clients[:KEPT].copy())
    ids = np.asarray(why.candidates, dtype=np.int64)
    by_id = None if (ids[1:] > ids[:-1]).all() else np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, cohort.clients, sorter=by_id)
    place = np.minimum(place, max(len(ids) - 1, 0)) if by_id is None else by_id[np.minimum(place, len(ids) - 1)]
    candidate = ids[place] == cohort.clients if len(ids) else np.zeros(len(cohort), dtype=bool)
    inside = place[candidate]
    best = _best(why, KEPT + len(inside), by_id)  # enough of the others, wherever the selected are
    others = best[~np.isin(best, inside)][: max(0, KEPT - len(inside))]
    order = np.concatenate([inside[_order(why, inside)][:KEPT], others])
    # a candidate that was named twice is one of the others, too
    too = [False] * len(others) if by_id is None else np.isin(ids[others], cohort.clients).tolist()
    chosen = [True] * (len(order) - len(others)) + too
    terms = {name: np.asarray(values)[order] for name, values in why.terms.items()}
    return Reasons(ids[order], chosen, why.scores[order], terms, cohort.clients[~candidate][:KEPT])


def _order(why: Why, among: Indices) -> Indices:
    """The best scored of these positions first, the lowest id first where scores are equal; what is no score comes last."""
    scores = why.scores[among]
    return np.lexsort((why.candidates[among], -np.where(np.isnan(scores), -np.inf, scores)))


def _best(why: Why, count: int, by_id: Indices | None) -> Indices:
    """The ``count`` best positions in that order; a million need not be sorted for a thousand."""
    known = why.scores > -np.inf  # NaN and −∞ are no scores
    scored = np.count_nonzero(known)
    if scored <= count:  # the others count by their ids
        own = np.flatnonzero(known)
        return np.concatenate([own[_order(why, own)], _lowest(~known, by_id, count - len(own))])
    edge = nth_highest(why.scores if scored == len(known) else why.scores[known], count)
    above = np.flatnonzero(why.scores > edge)
    best = np.concatenate([above, _lowest(why.scores == edge, by_id, count - len(above))])
    return best[_order(why, best)]


def _lowest(among: NDArray[np.bool_], by_id: Indices | None, count: int) -> Indices:
    """The ``count`` marked positions with the lowest ids; ``by_id`` sorts all positions by id, None if they are in that order."""
    if by_id is not None:
        return by_id[among[by_id]][:count]
    some = max(2 * count, 2**12)
    while some < len(among) and np.count_nonzero(among[:some]) < count:
        some *= 8
    return np.flatnonzero(among[:some])[:count]
