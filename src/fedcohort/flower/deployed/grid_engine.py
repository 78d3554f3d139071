"""The engine whose clients are at the sites of a Flower federation.

Questions and trainings travel as messages. The server keeps the model, evaluates it, and knows which version of its memory each client
begins with; the memories themselves stay at the sites. Updates come back in the order of the cohort, so the bits of a run are those of
the local engine. A client without a usable reply is a failed client, with its cause.
"""

import itertools
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.engines.base import ClientError, Later
from fedcohort.engines.client_answers import received_for
from fedcohort.engines.local_engine import AHEAD_BYTES, LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.flower.answer_notes import first_notes, unanswered
from fedcohort.flower.deployed.deployable import check_name_for_sites
from fedcohort.flower.deployed.expected_extra import extra_layout
from fedcohort.flower.deployed.grid_link import Arrival, Cause, GridLink
from fedcohort.flower.deployed.reply_checks import Expected, Layout
from fedcohort.flower.deployed.site_roster import SiteRoster
from fedcohort.flower.sites.frozen_sums import sums_of
from fedcohort.flower.sites.protocol import ASK, TRAIN, BadMessage, Words, packed, unpacked
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.evaluation import Evaluation

__all__ = ["GridEngine", "RemoteError"]

WINDOW = 32
"""Maximum number of clients that are asked to train before the update of the first of them is taken."""
LARGEST_ANSWER = 2**20
"""Bytes of a reply to a question, and more for each client, that are read at most."""


class RemoteError(RuntimeError):
    """An error in a client's work at its site; the text is that of the site."""


class GridEngine:
    """Implements :class:`fedcohort.engines.base.Engine` over Flower's Grid.

    Args:
        federation: the server's validation and test sets; training samples in it are not used.
        model, training, algorithm, seed: as for :class:`~fedcohort.engines.local_engine.LocalEngine`.
        workers: number of threads that evaluate models at the server; 0 means one per core.
        link: carries requests to the sites.
        roster: the clients, with their numbers.
        described: the sections model, training and algorithm, from which sites build theirs.
        run: name of the run, small letters, digits and hyphens; sites keep memories under it.
        deadline: seconds to wait for updates; by default the patience of ``link``.
        errors: what an error of a client does: ``raise`` a :class:`ClientError`, or ``fail`` the client.

    Attributes:
        meanwhile: see :class:`~fedcohort.engines.base.Engine`.
        notes: what went wrong since the notes were last taken, in words.
        unanswered: see :class:`~fedcohort.engines.base.MayLackAnswers`.
        times: seconds that the site worked on the last training of a client, and all other seconds until its reply, by client.
    """

    plan = "flower"

    def __init__(
        self,
        federation: Federation,
        model: Model,
        training: Training,
        algorithm: Algorithm,
        seed: int,
        workers: int = 0,
        *,
        link: GridLink,
        roster: SiteRoster,
        described: Mapping[str, object] | None = None,
        run: str = "run",
        deadline: float | None = None,
        errors: Literal["raise", "fail"] = "fail",
    ) -> None:
        self._driver = LocalEngine(federation, model, training, algorithm, seed, workers)
        self._parts = federation, model, training, algorithm, seed
        self.trainable = self._driver.trainable
        self.meanwhile: Callable[[], bool] = lambda: False
        self.link, self.roster, self.run, self.deadline, self.errors = link, roster, run, deadline, errors
        self.notes: list[str] = []
        self.unanswered: frozenset[int] = frozenset()
        self.times: dict[int, tuple[float, float]] = {}
        self._versions: dict[int, str] = {}
        self._proposed: dict[int, str] = {}
        self._extra: Layout | None = None
        self._extra_known = False
        self._model_bytes = max(1, num_bytes([self.initial_model()]))
        self._setup = {
            "seed": seed,
            "clients": len(roster.sizes()),
            "shape": list(federation.sample_shape),
            "classes": list(federation.classes),
            "standardization": {"shift": federation.shift.double(), "scale": federation.scale.double()},
            "sections": dict(described or {}),
            "omitted": sorted(self._driver.omitted),
            "trainable": sorted(self.trainable),
            "frozen": sums_of(self._driver.frozen()),
        }

    def initial_model(self) -> ModelState:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.initial_model()

    def whole(self, model: ModelState) -> ModelState:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.whole(model)

    # training

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """See :class:`~fedcohort.engines.base.Engine`. At most a window of updates waits to be taken."""
        if cohort.stop is not None:
            check_name_for_sites("Cohort.stop.rule", cohort.stop.get("rule"))
        self._proposed, version = {}, f"{t}-{secrets.token_hex(6)}"
        self._driver.begin_beside()
        expected = Expected(model, self.trainable, self._extra_layout(), cohort.share is not None)
        words = self._words(TRAIN, model, t) | {"received": algorithm.broadcast(), "made": version}
        size = max(1, min(WINDOW, AHEAD_BYTES // self._model_bytes))
        for first in range(0, len(cohort), size):
            positions = range(first, min(first + size, len(cohort)))
            work = {int(cohort.clients[position]): _work(cohort, position) for position in positions}
            yield from self._in_order(list(work), self._trained(words, t, work, expected, version))

    def _in_order(self, clients: Sequence[int], updates: Iterator[Update]) -> Iterator[Update]:
        """The updates in the order of the clients."""
        arrived: dict[int, Update] = {}
        due = iter(clients)
        following = next(due, None)
        for update in updates:
            arrived[update.client] = update
            while following in arrived:
                yield arrived.pop(following)
                following = next(due, None)

    def _trained(
        self,
        words: Mapping[str, object],
        t: int,
        work: Mapping[int, dict[str, object]],
        expected: Expected,
        version: str,
    ) -> Iterator[Update]:
        """The updates of some clients, as they arrive."""
        requests, groups = self._requests(words, work)
        asked = {client for group in groups for client in group}
        for client in work:
            if client not in asked:
                yield self._failed(client, Cause.UNREACHABLE.because("its node is not connected"))
        for arrival in self.link.exchange(requests, t, timeout=self.deadline, meanwhile=self.meanwhile):
            group = groups[arrival.position]
            for client, row in self._rows(arrival, group, expected.largest(len(group)), timed=True).items():
                yield row if isinstance(row, Update) else self._update(client, row, expected, version)

    def _rows(
        self, arrival: Arrival, group: Sequence[int], largest: int, *, timed: bool = False
    ) -> "dict[int, Words | Update]":
        """What a reply says about each client of a group, or why the client has no result.

        With ``timed``, the times of the clients are noted. If the site does not say how long it worked, all time counts as work.
        """
        try:
            reply = self._reply(arrival, largest)
            parts = reply.parts("clients")
            said = {words.text("name"): words for words in parts}
            names = [self.roster.clients[client].name for client in group]
            if len(said) < len(parts):
                raise BadMessage("duplicate: it has a client twice")
            if sorted(said) != sorted(names):
                raise BadMessage("it names other clients than those that were asked")
            if timed:
                working = min(reply.number("seconds") if reply.has("seconds") else math.inf, arrival.seconds)
                self.times.update(dict.fromkeys(group, (working, arrival.seconds - working)))
            return {client: said[name] for client, name in zip(group, names, strict=True)}
        except BadMessage as reason:
            failure = Cause.MALFORMED.because(reason)
        except _Failure as reason:
            failure = str(reason)
        return {client: self._failed(client, failure) for client in group}

    def _update(self, client: int, words: Words, expected: Expected, version: str) -> Update:
        try:
            if words.has("lost"):
                self._versions.pop(client, None)
                lost = "its site has lost its memory; it begins without one in its next round"
                raise _Failure(Cause.REFUSED.because(lost))
            if words.has("error"):
                raise self._error(client, words.text("error"))
            update = expected.update(words, client, self.roster.clients[client].num_samples)
            if words.flag("memory"):
                self._proposed[client] = version
        except BadMessage as reason:
            return self._failed(client, Cause.MALFORMED.because(reason))
        except _Failure as reason:
            return self._failed(client, str(reason))
        return update

    def _failed(self, client: int, failure: str) -> Update:
        samples = self.roster.clients[client].num_samples
        return Update(client, samples, 0, {}, passes=0.0, failure=failure)

    def commit(self, admitted: Iterable[int]) -> None:
        """See :class:`~fedcohort.engines.base.Engine`. Sites learn it with the next request, which names the versions."""
        for client in admitted:
            if client in self._proposed:
                self._versions[client] = self._proposed[client]
        self._proposed = {}

    # questions

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        """See :class:`~fedcohort.engines.base.Engine`. A client without a usable answer has NaN, and a note says why."""
        received = received_for(question, algorithm)
        words = self._words(ASK, model, t) | {"received": received, "question": question.to_json()}
        values, reasons = np.full((len(clients), question.numbers), np.nan), {}
        position = {client: i for i, client in enumerate(clients.tolist())}
        requests, groups = self._requests(words, {client: {} for client in position})
        for arrival in self.link.exchange(requests, t):
            group = groups[arrival.position]
            for client, row in self._rows(arrival, group, LARGEST_ANSWER + 1000 * len(group)).items():
                try:
                    values[position[client]] = self._numbers(client, row, question)
                except (BadMessage, _Failure) as reason:
                    reasons[client] = str(reason)
        self.unanswered = frozenset(reasons)
        self.notes += unanswered(question.kind, reasons)
        return values[:, 0] if question.numbers == 1 else values

    def _numbers(self, client: int, row: "Words | Update", question: Question) -> list[float]:
        """The numbers of an answer; NaN for those that are not finite."""
        if isinstance(row, Update):
            raise BadMessage(row.failure)
        if row.has("error"):
            raise self._error(client, row.text("error"))
        numbers = row.numbers("answer", finite=False)
        if len(numbers) != question.numbers:
            raise BadMessage(f"{Cause.MALFORMED}: {len(numbers)} numbers instead of {question.numbers}")
        return numbers

    # evaluation and state

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.evaluate(model, split)

    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.evaluate_beside(model, split, predictions=predictions)

    def take_notes(self) -> list[str]:
        """The notes so far; clears them."""
        notes = list(self.notes)
        self.notes.clear()
        return first_notes(notes)

    def state_dict(self) -> Mapping[str, Any]:
        """The version of each client's memory; the memories stay at the sites."""
        return {str(client): {"version": version} for client, version in self._versions.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`~fedcohort.engines.base.Engine`."""
        self._versions = {int(client): str(kept["version"]) for client, kept in state.items()}
        self._proposed = {}

    def close(self) -> None:
        """See :class:`~fedcohort.engines.base.Engine`. The sites stay."""
        self._driver.close()

    # requests and replies

    def _words(self, kind: str, model: ModelState, t: int) -> dict[str, object]:
        """What all requests of a phase have in common."""
        return {"kind": kind, "run": self.run, "round": t, "model": model}

    def _requests(
        self, words: Mapping[str, object], work: Mapping[int, Mapping[str, object]]
    ) -> tuple[Iterator[tuple[int, bytes]], list[list[int]]]:
        """One request for each node with clients that have work, made when it is sent, and these clients."""
        groups: dict[int, list[int]] = {}
        for client in work:
            if (node := self.roster.node(client)) is not None:
                groups.setdefault(node, []).append(client)

        def request(node: int, group: Sequence[int]) -> tuple[int, bytes]:
            clients = [
                {"name": self.roster.clients[client].name, "memory": self._versions.get(client, "")}
                | dict(work[client])
                for client in group
            ]
            setup = self._setup | {"numbers": self.roster.numbers_at(node)}
            return node, packed({**words, "setup": setup, "clients": clients})

        return itertools.starmap(request, groups.items()), list(groups.values())

    def _reply(self, arrival: Arrival, largest: int) -> Words:
        """The reply of a site that did its work."""
        if arrival.data is None:
            raise _Failure(arrival.failure)
        reply = unpacked(arrival.data, largest)
        if reply.has("refused"):
            raise _Failure(Cause.REFUSED.because(reply.text("refused")))
        return reply

    def _error(self, client: int, error: str) -> Exception:
        """What an error of a client raises: a failure of the client, or the end of the run."""
        if self.errors == "fail":
            return _Failure(Cause.ERROR.because(error))
        failure = ClientError(f"client {client}: {error}")
        failure.__cause__ = RemoteError(error)
        return failure

    def _extra_layout(self) -> Layout | None:
        """The layout of what the algorithm sends beside the model, from a trial on some of the server's own samples."""
        if not self._extra_known:
            self._extra, self._extra_known = extra_layout(*self._parts), True
        return self._extra


class _Failure(Exception):  # noqa: N818 - it becomes the failure of an update
    """Why a client has no result; the text begins with the cause."""


def _work(cohort: Cohort, position: int) -> dict[str, object]:
    """What a client of a cohort is told."""
    told: dict[str, object] = {}
    if cohort.epochs is not None:
        told["epochs"] = int(cohort.epochs[position])
    if cohort.share is not None:
        told["share"] = float(cohort.share[position])
    if cohort.sampling != "shuffled":
        told["sampling"] = cohort.sampling
    if cohort.stop is not None:
        told["stop"] = dict(cohort.stop)
    return told
