"""An engine whose clients live in other processes. What crosses the border is bytes: JSON for words, safetensors for arrays.

It shows that nothing in the contracts leans on shared memory: a federation's clients could as well be on other machines. The server's
half (folding updates, evaluation) stays in this process. Every request has exactly one reply, in order.
"""

import dataclasses
import importlib
import itertools
import json
import multiprocessing
import os
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.core.parameters import make
from fedcohort.engines.base import ClientError, Later
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.federation.federation import Federation, Samples
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.answers import answer
from fedcohort.training.evaluation import Evaluation
from fedcohort.training.partial_upload import partial_upload
from fedcohort.training.stopping_rules import rules_of
from fedcohort.training.trainer import Trainer
from fedcohort.training.trial_training import norm_and_passes

__all__ = ["Pool", "ProcessEngine"]


# --- the border ------------------------------------------------------------------------------------------------------------


def send(connection: Connection, words: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
    """One message: the length of the JSON, the JSON, the arrays."""
    header = json.dumps(words, allow_nan=False).encode()
    connection.send_bytes(len(header).to_bytes(4, "little") + header + pack(arrays or {}))


def receive(connection: Connection) -> tuple[dict[str, Any], dict[str, Any]]:
    """What :func:`send` sent."""
    data = connection.recv_bytes()
    end = 4 + int.from_bytes(data[:4], "little")
    return json.loads(data[4:end]), unpack(data[end:])


def recipe(part: Any) -> dict[str, Any]:
    """A plug-in as its name and its parameters."""
    parameters = {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}
    return {"class": f"{type(part).__module__}:{type(part).__qualname__}", "parameters": parameters}


def follow(recipe: Mapping[str, Any]) -> Any:
    """The plug-in, built anew."""
    module, _, name = recipe["class"].partition(":")
    return make(getattr(importlib.import_module(module), name), recipe["parameters"], module)


# --- a worker --------------------------------------------------------------------------------------------------------------


@dataclass
class Site:
    """Some clients of one engine, in a worker: their data and memories, and what this round's broadcast brought."""

    federation: Federation
    trainer: Trainer
    seed: int
    memories: dict[int, dict[str, Tensors]] = field(default_factory=dict)
    pending: dict[int, dict[str, Tensors]] = field(default_factory=dict)
    model: ModelState = field(default_factory=dict)
    asked_about: ModelState = field(default_factory=dict)
    received: dict[str, Tensors] = field(default_factory=dict)
    t: int = 0


def open_site(words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Site:
    """Build the clients from what was sent at the start; the server's sets were not."""
    features, labels = arrays["features"], arrays["labels"]
    nothing = Samples(features[:0], labels[:0])
    federation = Federation(
        train=Samples(features, labels),
        offsets=arrays["offsets"],
        validation=nothing,
        test=nothing,
        classes=tuple(words["classes"]),
        shift=arrays["shift"],
        scale=arrays["scale"],
        held=arrays["held"],
    )
    module = build_module(follow(words["model"]), federation, words["seed"])
    training = make(Training, words["training"], "training")
    algorithm, seed = follow(words["algorithm"]), words["seed"]
    return Site(federation, Trainer(federation, module, training, algorithm, seed, omitted=words["omitted"]), seed)


def train(
    site: Site, client: int, epochs: int | None, share: float | None, sampling: str, stop: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A client's update in two parts: words and arrays."""
    new_rule = rules_of(stop)
    update, memory = site.trainer.train(
        site.model,
        site.t,
        client,
        epochs=epochs,
        sampling=sampling,
        stop=None if new_rule is None else new_rule(),
        received=site.received,
        memory=site.memories.get(client),
    )
    if share is not None:
        update = partial_upload(update, site.model, frozenset(site.trainer.parameters), share, site.seed, site.t)
    if memory:
        site.pending[client] = memory
    apart = ("state", "extra", "sent", "duration")  # arrays; a set; simulated time, which the server adds
    words = {f.name: getattr(update, f.name) for f in dataclasses.fields(update) if f.init and f.name not in apart}
    words["sent"] = None if update.sent is None else sorted(update.sent)
    return words, {"state": update.state, "extra": update.extra}


def serve(connection: Connection) -> None:
    """The worker's loop: a request, a reply, until the other side hangs up."""
    torch.set_num_threads(1)
    sites: dict[int, Site] = {}
    while True:
        try:
            words, arrays = receive(connection)
        except EOFError:
            os._exit(0)  # nothing to tidy up, and torch takes its time
        client = words.get("client")
        try:
            reply: tuple[Any, Any] = handle(sites, words, arrays)
        except Exception as error:
            who = "a worker" if client is None else f"client {client}"
            what = f"{who}: {type(error).__name__}: {error}"
            reply = {"error": what, "traceback": traceback.format_exc()}, {}
        send(connection, *reply)


def handle(sites: dict[int, Site], words: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a request does."""
    engine, do = words["engine"], words["do"]
    if do == "open":
        sites[engine] = open_site(words, arrays)
        return {}, {}
    if do == "close":
        del sites[engine]
        return {}, {}
    site = sites[engine]
    if do == "round":
        site.t, site.model, site.received, site.pending = words["t"], arrays["model"], arrays["received"], {}
        return {}, {}
    if do == "train":
        return train(site, words["client"], words["epochs"], words["share"], words["sampling"], words["stop"])
    if do == "load model":
        site.trainer.load(arrays["model"])
        site.trainer.module.eval()
        site.asked_about, site.received = arrays["model"], arrays["received"]
        return {}, {}
    if do == "ask":
        question, trainer, client = Question.from_json(words["question"]), site.trainer, words["client"]
        if question.trains:
            memory = site.memories.get(client, {})
            t, received = words["t"], site.received
            update, _ = trainer.train(site.asked_about, t, client, received=received, memory=memory)
            return {}, {"values": norm_and_passes(update, site.asked_about, trainer)}
        values = answer(trainer.module, site.federation, trainer.dtype, question, words["t"], client, site.seed)
        return {}, {"values": values}
    if do == "commit":
        site.memories |= {client: site.pending[client] for client in words["clients"] if client in site.pending}
        site.pending = {}
        return {}, {}
    if do == "memories":
        return {}, {str(client): memory for client, memory in site.memories.items()}
    if do == "remember":
        site.memories = {int(client): memory for client, memory in arrays.items()}
        return {}, {}
    raise ValueError(f"unknown request {do!r}")


# --- the server ------------------------------------------------------------------------------------------------------------


class WorkerError(Exception):
    """The traceback of another process."""


class Pool:
    """Worker processes, started once; several engines may live in them."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connections: list[Connection] = []
        self.processes = []
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self.connections.append(here)
            self.processes.append(process)

    def close(self) -> None:
        """Hang up; the workers then end."""
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.join()


class ProcessEngine:
    """Implements :class:`fedcohort.engines.base.Engine`; client i lives in worker i mod ``workers``.

    Args:
        federation, model, training, algorithm, seed: as for :class:`fedcohort.engines.local_engine.LocalEngine`.
        workers: processes used.
        pool: where the workers are; it stays when the engine is closed.
    """

    _ids = itertools.count()

    def __init__(
        self,
        federation: Federation,
        model: Model,
        training: Training,
        algorithm: Algorithm,
        seed: int,
        workers: int = 2,
        *,
        pool: Pool,
    ) -> None:
        self.workers = workers
        self._id = next(self._ids)
        self._connections = pool.connections[:workers]
        self._server = LocalEngine(_without_clients(federation), model, training, algorithm, seed, workers=1)
        self.trainable = self._server.trainable
        self.meanwhile: Callable[[], bool] = lambda: False
        self._open = True
        words = {
            "model": recipe(model),
            "algorithm": recipe(algorithm),
            "training": dataclasses.asdict(training),
            "seed": seed,
            "classes": federation.classes,
            "omitted": sorted(self._server.omitted),
        }
        for worker in range(workers):  # all at once: the first engine of a process waits for torch
            self._request(worker, {"do": "open", **words}, self._slice(federation, worker))
        for worker in range(workers):
            self._reply(worker)

    def initial_model(self) -> ModelState:
        return self._server.initial_model()

    def whole(self, model: ModelState) -> ModelState:
        return self._server.whole(model)

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        for worker in range(self.workers):
            self._exchange(worker, {"do": "round", "t": t}, {"model": model, "received": algorithm.broadcast()})
        clients = [int(client) for client in cohort.clients]
        epochs = [None] * len(clients) if cohort.epochs is None else cohort.epochs.tolist()
        shares = [None] * len(clients) if cohort.share is None else cohort.share.tolist()
        stop = None if cohort.stop is None else dict(cohort.stop)
        requests = [
            {"do": "train", "client": c, "epochs": e, "share": s, "sampling": cohort.sampling, "stop": stop}
            for c, e, s in zip(clients, epochs, shares, strict=True)
        ]
        for words, arrays in self._in_order(requests):
            sent = words.pop("sent")
            yield Update(**words, **arrays, sent=None if sent is None else frozenset(sent))

    def commit(self, admitted: Iterable[int]) -> None:
        clients = [int(client) for client in admitted]
        for worker in range(self.workers):
            self._exchange(worker, {"do": "commit", "clients": clients})

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        received = algorithm.broadcast() if question.trains and algorithm is not None else {}
        for worker in range(self.workers):
            self._exchange(worker, {"do": "load model"}, {"model": model, "received": received})
        words = {"do": "ask", "t": t, "question": question.to_json()}
        rows = [arrays["values"] for _, arrays in self._in_order([{**words, "client": int(c)} for c in clients])]
        values = np.array(rows, dtype=np.float64).reshape(len(clients), question.numbers)
        return values[:, 0] if question.numbers == 1 else values

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        return self._server.evaluate(model, split)

    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        return self._server.evaluate_beside(model, split, predictions=predictions)

    def state_dict(self) -> Mapping[str, Any]:
        memories: dict[str, Any] = {}
        for worker in range(self.workers):
            memories |= self._exchange(worker, {"do": "memories"})[1]
        return memories

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for worker in range(self.workers):
            own = {client: memory for client, memory in state.items() if self._home(int(client)) == worker}
            self._exchange(worker, {"do": "remember"}, own)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for worker in range(self.workers):
            self._exchange(worker, {"do": "close"})
        self._server.close()

    # requests and replies

    def _home(self, client: int) -> int:
        return client % self.workers

    def _in_order(self, requests: Iterable[Mapping[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Replies in the order of the requests, which go out when at most a few earlier ones are unanswered."""
        coming = iter(requests)
        waiting: deque[int] = deque()
        try:
            while True:
                for words in itertools.islice(coming, 2 * self.workers - len(waiting)):
                    waiting.append(self._home(words["client"]))
                    self._request(waiting[-1], words)
                if not waiting:
                    return
                yield self._reply(waiting.popleft())
        finally:
            for worker in waiting:  # replies that nobody wants any more
                receive(self._connections[worker])

    def _request(self, worker: int, words: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
        send(self._connections[worker], {"engine": self._id, **words}, arrays)

    def _reply(self, worker: int) -> tuple[dict[str, Any], dict[str, Any]]:
        words, arrays = receive(self._connections[worker])
        if "error" in words:
            raise ClientError(words["error"]) from WorkerError(words["traceback"])
        return words, arrays

    def _exchange(
        self, worker: int, words: Mapping[str, Any], arrays: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self._request(worker, words, arrays)
        return self._reply(worker)

    def _slice(self, federation: Federation, worker: int) -> dict[str, Any]:
        """The arrays of a worker's clients; the ids stay, the others have no samples."""
        here = np.arange(federation.num_clients) % self.workers == worker
        sizes = np.diff(federation.offsets)
        index = torch.from_numpy(np.flatnonzero(np.repeat(here, sizes)))
        return {
            "features": federation.train[index].features,
            "labels": federation.train.labels[index],
            "offsets": np.concatenate([[0], np.cumsum(np.where(here, sizes, 0))]),
            "held": np.where(here, federation.num_held_out, 0),
            "shift": federation.shift,
            "scale": federation.scale,
        }


def _without_clients(federation: Federation) -> Federation:
    """What the server knows: its own two sets."""
    nobody = np.zeros_like(federation.offsets)
    return dataclasses.replace(federation, train=federation.train[:0], offsets=nobody, held=None, noise=None)
