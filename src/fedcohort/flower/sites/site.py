"""A site: the clients of one data owner. It answers requests of the server with their data, as far as the owner allows it."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError, one_line
from fedcohort.core.files.state_files import pack
from fedcohort.core.threads import one_thread, usual_settings
from fedcohort.engines.base import ClientError
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation
from fedcohort.flower.sites.answer_log import answer_line
from fedcohort.flower.sites.frozen_sums import check_model, check_sums, check_trained
from fedcohort.flower.sites.memory_versions import MemoryVersions
from fedcohort.flower.sites.owner_policy import Allowed, Budget, Refused, Spent
from fedcohort.flower.sites.protocol import ASK, HELLO, TRAIN, BadMessage, Words, packed, unpacked
from fedcohort.flower.sites.site_work import ClientData, ReceivedGroups, Work, cohort_of, epochs_of, federation_of
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.client_memories import Memory

__all__ = ["Plugins", "Site"]

log = logging.getLogger("fedcohort")

Plugins = Callable[[Words], tuple[Model, Training, Algorithm]]
"""Builds model, settings of training and algorithm from their description in a request."""

MOST_COUNTS = 2**23
"""Largest number of class counts in an introduction. Each needs two bytes or more, and a server reads at most 2**24 bytes."""


class Site:
    """Answers the requests of a server, one at a time.

    Args:
        name: name of the site; "" lets the server use the public key of its node.
        clients: data by the name of each client.
        plugins: builds what a request describes.
        allowed: what is disclosed.
        spent: the budget, and what is used of it.
        memories: the clients' memories.
        workers: number of threads, each of which trains one client at a time; 0 means one per core, or one per
            ``threads_per_client`` cores.
        threads_per_client: number of intra-op threads with which a client is trained.
    """

    def __init__(
        self,
        name: str,
        clients: Mapping[str, ClientData],
        plugins: Plugins,
        *,
        allowed: Allowed | None = None,
        spent: Spent | None = None,
        memories: MemoryVersions | None = None,
        workers: int = 1,
        threads_per_client: int = 1,
    ) -> None:
        self.name, self.clients, self.plugins, self.workers = name, dict(clients), plugins, workers
        self.threads_per_client = threads_per_client
        self.allowed = Allowed() if allowed is None else allowed
        self.spent = Spent(Budget()) if spent is None else spent
        self.memories = MemoryVersions() if memories is None else memories
        self._engines: dict[str, LocalEngine] = {}
        self._layout: ModelState = {}  # of the engine's models, without their numbers
        self._lock = threading.Lock()

    def handle(self, request: bytes) -> bytes:
        """The reply to a request. A request that cannot be used, or is not allowed, gets a reply that says so.

        The log gets one line for each request.
        """
        with self._lock:
            words = None
            try:
                with usual_settings(), one_thread():
                    words = unpacked(request)
                    said = self._reply(words)
                    reply = packed(said)
                self.spent.send(len(reply))
                log.info("%s", answer_line(words, said, len(reply), self.spent.left()))
            except Refused as reason:
                return self._refusal(words, str(reason))
            except (BadMessage, UsageError) as reason:
                return self._refusal(words, f"the request cannot be used: {reason}")
            except Exception as error:  # the owner's process goes on; the log has the traceback
                log.exception("a request failed")
                return self._refusal(words, f"the request failed: {type(error).__name__}")
        return reply

    @property
    def at_work(self) -> bool:
        """Whether a request is being answered."""
        return self._lock.locked()

    def close(self) -> None:
        """Release threads and memory. A training that is under way is waited for."""
        for engine in self._engines.values():
            engine.close()
        self._engines = {}

    def _refusal(self, request: Words | None, reason: str) -> bytes:
        said = {"refused": one_line(reason)}
        reply = packed(said)
        log.warning("%s", answer_line(request, said, len(reply), self.spent.left()))
        return reply

    def _reply(self, request: Words) -> dict[str, object]:
        kind = request.text("kind")
        if kind == HELLO:
            return self._hello(request.count("classes"), request.counts("shape") if request.has("shape") else None)
        if kind == ASK:
            return self._answer(request)
        if kind == TRAIN:
            return self._train(request)
        raise BadMessage(f"kind = {kind!r}: valid are {HELLO}, {ASK} and {TRAIN}")

    # what the site says about itself

    def _hello(self, classes: int, shape: Sequence[int] | None) -> dict[str, object]:
        """Names and sizes of the clients, which must have samples of the server's kind."""
        if self.allowed.histogram and classes > (most := MOST_COUNTS // len(self.clients)):
            raise Refused(f"the server has {classes:,} classes; this site counts at most {most:,} for each client")
        clients = []
        for name, data in self.clients.items():
            own = list(data.training.features.shape[1:])
            if shape is not None and own != list(shape):
                raise Refused(f"the server's samples have the shape {list(shape)}, those of client {name!r} {own}")
            if (largest := max(_largest(data.training.labels), _largest(data.held_out.labels))) >= classes:
                raise Refused(
                    f"the server has the classes 0 to {classes - 1}, and client {name!r} has the label {largest}"
                )
            said: dict[str, object] = {
                "name": name, "num_samples": len(data.training), "held_out": len(data.held_out), "histogram": None
            }  # fmt: skip
            if self.allowed.histogram:
                said["histogram"] = np.bincount(data.training.labels.numpy(), minlength=classes).tolist()
            clients.append(said)
        reports = None if self.allowed.reports is None else sorted(self.allowed.reports)
        return {
            "name": self.name,
            "clients": clients,
            "training": self.allowed.training,
            "questions": sorted(self.allowed.questions),
            "reports": reports,
        }

    # questions

    def _answer(self, request: Words) -> dict[str, object]:
        """Answers to a question, or the error of each client that has none."""
        described = dict(request.part("question").values)
        try:
            question = Question.from_json(described)
        except (KeyError, TypeError, ValueError):
            raise BadMessage(f"there is no question {str(described)[:100]}") from None
        self.allowed.check_question(question)
        engine, asked = self._engine(request)
        t, model = request.count("round"), request.tensors("model")
        check_model(model, self._layout)
        self.spent.answer(len(asked), self._epochs(request) if question.trains else 0)
        self._load_memories(request, engine, asked)
        stub = ReceivedGroups(request.groups("received"))

        def answers(clients: list[int]) -> list[list[float]]:
            values = engine.answer(model, t, question, np.array(clients, dtype=np.int64), stub.algorithm)
            return [np.atleast_1d(row).tolist() for row in values]

        rows: list[dict[str, object]] = []
        try:
            values = answers(list(asked))
            rows = [{"name": work.name, "answer": row} for work, row in zip(asked.values(), values, strict=True)]
        except ClientError:
            for client, work in asked.items():
                try:
                    [row] = answers([client])
                    rows.append({"name": work.name, "answer": row})
                except ClientError as error:
                    rows.append({"name": work.name, "error": _cause(error)})
        return {"clients": rows}

    # training

    def _train(self, request: Words) -> dict[str, object]:
        """Updates of some clients, or the error of each client that has none."""
        self.allowed.check_training()
        run, t, model = request.text("run"), request.count("round"), request.tensors("model")
        received, version = request.groups("received"), request.text("made")
        if version in [words.text("memory") for words in request.parts("clients")]:
            raise BadMessage(f"memory {version!r} would be replaced by the training that begins with it")
        self._count_round(request, run, t, {"model": model, "received": received})
        begin = time.monotonic()
        engine, asked = self._engine(request)
        check_model(model, self._layout)
        lost = self._load_memories(request, engine, asked)
        able = [client for client in asked if client not in lost]
        trained: dict[int, Update | str] = {}
        stub = ReceivedGroups(received)
        try:
            trained.update(
                (update.client, update) for update in engine.train(model, t, cohort_of(asked, able), stub.algorithm)
            )
            self._keep_memories(engine, run, version, able, asked)
        except ClientError:
            for client in able:
                trained[client] = self._train_one(engine, model, t, cohort_of(asked, [client]), stub.algorithm)
                self._keep_memories(engine, run, version, [client], asked)
        rows: list[dict[str, object]] = []
        for client, work in asked.items():
            result = trained.get(client, "")
            row: dict[str, object] = {"error": result} if isinstance(result, str) else self._update(result)
            row["memory"] = client in trained and bool(engine.memories.get(client))
            rows.append({"name": work.name} | ({"lost": True} if client in lost else row))
        return {"clients": rows, "seconds": time.monotonic() - begin}

    def _count_round(self, request: Words, run: str, t: int, sent: Mapping[str, object]) -> None:
        """Count a training of the budget; the same work again is no further round.

        Raises:
            Refused: no round is left, or fewer epochs.
        """
        setup = dict(request.part("setup").values)
        numbers = Words(setup.pop("numbers", None), "setup.numbers").values
        asked = {words.text("name"): words.values for words in request.parts("clients")}
        work = {
            name: _digest({**values, "number": numbers.get(name)})
            for name, values in asked.items()
            if name in self.clients
        }
        self.spent.train(run, t, _digest({"setup": setup, **sent}), work, self._epochs(request))

    def _epochs(self, request: Words) -> int:
        """The epochs of all clients that a request lets train."""
        _, training, _ = self.plugins(request.part("setup"))
        return epochs_of(request, training.epochs)

    def _train_one(
        self, engine: LocalEngine, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm
    ) -> Update | str:
        try:
            [update] = engine.train(model, t, cohort, algorithm)
        except ClientError as error:
            return _cause(error)
        return update

    def _update(self, update: Update) -> dict[str, object]:
        """What is sent of an update."""
        sent = None if update.sent is None else sorted(update.sent)
        state = update.state if sent is None else {name: update.state[name] for name in sent}
        return {
            "num_samples": update.num_samples,
            "steps": update.steps,
            "state": state,
            "extra": update.extra,
            "report": self.allowed.reported(update.report),
            "passes": float(update.passes),
            "work": float(update.work),
            "sent": sent,
            "failure": update.failure,
        }

    def _load_memories(self, request: Words, engine: LocalEngine, asked: Mapping[int, Work]) -> set[int]:
        """Give the engine the versions that the request names; returns the clients whose version is lost."""
        found = {
            client: self.memories.get(request.text("run"), work.name, work.memory) for client, work in asked.items()
        }
        engine.load_state_dict({str(client): memory for client, memory in found.items() if memory})
        return {client for client, memory in found.items() if memory is None}

    def _keep_memories(
        self,
        engine: LocalEngine,
        run: str,
        version: str,
        clients: Sequence[int],
        asked: Mapping[int, Work],
    ) -> None:
        """Keep the memories that a training has made as a new version."""
        made = [client for client in engine.memories.proposed if client in clients]
        engine.commit(made)
        for client in made:
            memory: Memory = engine.memories.get(client)
            self.memories.put(run, asked[client].name, version, asked[client].memory, memory)

    # the engine of a run

    def _engine(self, request: Words) -> tuple[LocalEngine, dict[int, Work]]:
        """The engine for what a request describes, and the work for each client that it names, by number."""
        setup = request.part("setup")
        numbers = setup.part("numbers")
        own = {name: numbers.count(name) for name in numbers.values if name in self.clients}
        work = [Work.read(words) for words in request.parts("clients")]
        if unknown := [each.name for each in work if each.name not in own]:
            raise BadMessage(f"this site has no client {unknown[0]!r}")
        names = {number: name for name, number in own.items()}
        if len(names) < len(own):
            raise BadMessage("two clients have the same number")
        key = _digest(setup.values)
        if key not in self._engines:
            self.close()
            engine = self._new_engine(setup, federation_of(setup, names, self.clients))
            self._engines[key], self._layout = engine, {k: v.to("meta") for k, v in engine.initial_model().items()}
        return self._engines[key], {own[each.name]: each for each in work}

    def _new_engine(self, setup: Words, federation: Federation) -> LocalEngine:
        """An engine that omits and trains what the server's does; frozen parameters must have the server's values."""
        parts, seed = self.plugins(setup), setup.count("seed")
        omitted = setup.names("omitted") if setup.has("omitted") else ()
        engine = LocalEngine(
            federation, *parts, seed, self.workers, omitted=omitted, threads_per_client=self.threads_per_client
        )
        try:
            check_sums(setup.tensors("frozen") if omitted else {}, engine.frozen(), engine.trainable)
            if setup.has("trainable") and (trained := set(setup.names("trainable"))) != engine.trainable:
                check_trained(trained, engine.trainable, {*engine.initial_model(), *engine.frozen()})
        except BaseException:
            engine.close()
            raise
        return engine


def _largest(labels: Tensor) -> int:
    """The largest label of a class; -1 if there is none."""
    return int(labels.max()) if len(labels) and labels.dim() == 1 and not labels.is_floating_point() else -1


def _digest(values: Mapping[str, object]) -> str:
    """A hash of a part of a message."""
    return hashlib.sha256(pack(dict(values))).hexdigest()


def _cause(error: ClientError) -> str:
    """The cause of a client's error, in one line."""
    cause = error.__cause__
    return one_line(str(error) if cause is None else f"{type(cause).__name__}: {cause}")
