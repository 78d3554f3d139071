"""The engine that trains clients on the hosts of a Ray cluster.

* ``threads`` gives the bits of the local engine's plan of that name, for any number of hosts and whatever hosts are lost.
* ``stacked`` trains the stacks of the local engine on the hosts, with its bits. A stack that computes the mean of its
  models directly stays on its host, because this mean is rounded differently from one of the single models.
* ``means`` leaves the models on the hosts, which send the mean of each block of neighboring clients. The blocks depend only on the
  cohort, so the bits do not depend on the number of hosts; they differ from ``threads`` by rounding.

The driver keeps the clients' memories and evaluates models, so a host can be lost at any time: its work is done again elsewhere.
"""

import dataclasses
import inspect
import itertools
import math
import pickletools
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import numpy as np

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.plugins import is_file_name
from fedcohort.core.threads import one_thread
from fedcohort.core.user_code.python_plugins import is_python_plugin, kept
from fedcohort.engines.base import Later
from fedcohort.engines.client_answers import as_answers, received_for
from fedcohort.engines.cluster.flat_arrays import ModelLayout, NestedArrays, SharedModels, as_arrays, as_tensors
from fedcohort.engines.cluster.host_pool import HostPool, Member
from fedcohort.engines.cluster.messages import Broadcast, Plugins, Setup, TrainedClient, TrainedGroup, clients_of
from fedcohort.engines.cluster.ordered_calls import DEPTH, Call, Result, ordered_results
from fedcohort.engines.cluster.own_modules import OwnModules, own_modules
from fedcohort.engines.cluster.ray_package import ray_module
from fedcohort.engines.cluster.remote_models import RemoteModels
from fedcohort.engines.device import Arithmetic
from fedcohort.engines.local_engine import AHEAD, AHEAD_BYTES, LocalEngine
from fedcohort.engines.work_splitting import (
    in_cohort_order,
    neighbors_of_equal_cost,
    question_pieces,
    samples_to_process,
)
from fedcohort.federation.federation import Federation
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.client_memories import Memories, Trained
from fedcohort.training.evaluation import Evaluation
from fedcohort.training.partial_upload import partial_upload
from fedcohort.training.stopping_rules import class_of, rules_of

__all__ = ["ClusterPlan", "RayEngine"]

ClusterPlan = Literal["threads", "stacked", "means"]

GROUP_CLIENTS = 20
"""Maximum number of clients in one call of the plan ``threads``. Over all processes, a call costs as much processor time as the
training of two or three clients with a small model."""
LARGE_GROUPS, SHARE_LAST = 2, 0.2
"""Number of large calls per host and round that the plan ``threads`` aims at, and the share of the work that is left for one smaller
call per host, so that all hosts end at about the same time."""
SHORT_ROUND, SHORT_GROUP_CLIENTS = 0.3, 40
"""Seconds of a round below which the next one has one large call per host, with at most this number of clients, because calls would
take much of its time."""
BLOCK_CLIENTS = 16, 64
"""Maximum number of clients in a block of the plan ``means``: the first, or the second in cohorts of more than :data:`BLOCKS` such
blocks."""
BLOCKS_MULTIPLE = 4
"""More than one block means a multiple of this number of blocks of equal size, so that two or four hosts end at the same time."""
BLOCKS = 128
ASKED = 1024, 8192
"""Minimum and maximum number of samples of the clients that one call asks."""


class RayEngine:
    """Implements :class:`fedcohort.engines.base.Engine` on a Ray cluster.

    Args:
        federation, model, training, algorithm, seed, arithmetic: as for :class:`fedcohort.engines.local_engine.LocalEngine`.
        workers: maximum number of hosts that this engine uses; 0 means all of the pool.
        pool: the hosts; they stay when the engine is closed.
        plan: how clients are trained, see above.
        memories: stores the clients' memories on the driver.
        device: device of the hosts' tensors. The driver evaluates on its CPU; if hosts have GPUs, in exact arithmetic.
        threads_per_client: number of intra-op threads with which a host trains a client.

    Attributes:
        plan: how clients are trained. Clients that cannot be stacked are trained by ``threads``, with a warning.
        meanwhile: see :class:`~fedcohort.engines.base.Engine`.
    """

    def __init__(
        self,
        federation: Federation,
        model: Model,
        training: Training,
        algorithm: Algorithm,
        seed: int,
        workers: int = 0,
        *,
        pool: HostPool,
        plan: ClusterPlan = "threads",
        memories: Memories | None = None,
        arithmetic: Arithmetic = "exact",
        device: str = "cpu",
        threads_per_client: int = 1,
    ) -> None:
        self._ray = ray_module()
        self._pool, self._hosts = pool, workers or pool.size
        local: Literal["threads", "stacked"] = "stacked" if plan == "stacked" else "threads"
        rounded = arithmetic if device == "cpu" else "exact"  # a CPU need not have what a GPU computes in bfloat16
        self._driver = LocalEngine(federation, model, training, algorithm, seed, 1, plan=local, arithmetic=rounded)
        self._stacked = self._driver.groups is not None
        self.plan: ClusterPlan = plan if plan != "stacked" or self._stacked else "threads"
        self.federation, self.seed, self.trainable = federation, seed, self._driver.trainable
        self.memories = Memories() if memories is None else memories
        self.meanwhile: Callable[[], bool] = lambda: False
        self._sizes = federation.num_samples
        self._layout = ModelLayout(self.initial_model())
        self._models = SharedModels(self._layout, AHEAD_BYTES)
        self._name, self._numbers = uuid.uuid4().hex, itertools.count()
        self._lock, self._closed = threading.Lock(), False
        network = self._driver.omitted, as_arrays({"": self._driver.frozen()}), self._layout
        settings = seed, self._stacked, device, arithmetic, *network, threads_per_client
        self._setup = self._ray.put(Setup(clients_of(federation), _plugins(model, training, algorithm), *settings))
        self._sent: tuple[ModelState, Any] | None = None
        self._weights_are_samples = True  # in the last mean that was asked for; hosts then compute means at once
        self._last_round = math.inf  # seconds
        pool.wait_until_ready()

    def initial_model(self) -> ModelState:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.initial_model()

    def whole(self, model: ModelState) -> ModelState:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.whole(model)

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """See :class:`~fedcohort.engines.base.Engine`. At most a window of updates waits to be taken."""
        began, this_round = time.perf_counter(), self.memories.begin()
        self._driver.begin_beside()
        self._release()
        rule = _modules_of_rule(cohort)
        refs = self._broadcast(model, algorithm.broadcast())
        groups = self._groups(cohort)
        calls = [self._training(refs, t, cohort, group, rule) for group in groups]
        size = max(map(len, groups), default=1)
        with one_thread():
            results = self._results(calls, self._window(size), self.meanwhile)
            updates = (list(self._updates(call, result)) for call, result in zip(calls, results, strict=True))
            mixed = self._driver.mixed(groups)
            for update, memory in in_cohort_order(groups, updates):
                if update.group is not None:
                    update.group[0].mixed_with = mixed
                if memory:
                    self.memories.propose(this_round, update.client, memory)
                yield self._uploaded(update, model, t, cohort)
        self._last_round = time.perf_counter() - began

    def commit(self, admitted: Iterable[int]) -> None:
        """See :class:`~fedcohort.engines.base.Engine`."""
        self.memories.commit(admitted)

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        """See :class:`~fedcohort.engines.base.Engine`."""
        refs = self._broadcast(model, received_for(question, algorithm))
        calls = []
        for piece in question_pieces(self._sizes[clients], self._hosts, ASKED):
            asked: list[int] = clients[piece].tolist()
            memories = self._memories_of(asked) if question.trains else {}
            cost = float(self._sizes[asked].sum())
            calls.append(Call("ask", (self._name, refs, t, question, asked, memories), asked, cost))
        rows = [row for result in self._results(calls, AHEAD) for row in result.value]
        return as_answers(rows, clients, question)

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.evaluate(model, split)

    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self._driver.evaluate_beside(model, split, predictions=predictions)

    def state_dict(self) -> Mapping[str, Any]:
        """See :class:`~fedcohort.engines.base.Engine`."""
        return self.memories.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`~fedcohort.engines.base.Engine`."""
        self.memories.load_state_dict(state)

    def close(self) -> None:
        """See :class:`~fedcohort.engines.base.Engine`. The hosts forget this engine, and stay for the next one."""
        if self._closed:
            return
        self._closed = True
        self._driver.close()
        self._release(close=True)
        self._sent = self._setup = None

    # what the hosts do

    def _groups(self, cohort: Cohort) -> list[Indices]:
        """The parts of a cohort that hosts train, one part in a call, as positions in the cohort."""
        costs = samples_to_process(self._sizes, cohort)
        if self.plan == "means":
            small, large = BLOCK_CLIENTS
            count = len(costs)
            blocks = -(-count // (large if count > BLOCKS * small else small))
            if blocks > 1:
                blocks = min(count, -(-blocks // BLOCKS_MULTIPLE) * BLOCKS_MULTIPLE)
            edges = [count * i // blocks for i in range(blocks + 1)] if blocks else []
            return [np.arange(start, stop) for start, stop in itertools.pairwise(edges)]
        if self.plan == "stacked" and self._driver.groups is not None:
            return self._driver.groups.groups(cohort, costs, self._driver.stacks)
        fitting = max(1, AHEAD_BYTES // (DEPTH * self._hosts * self._layout.num_bytes))
        short = self._last_round < SHORT_ROUND
        most = min(SHORT_GROUP_CLIENTS if short else GROUP_CLIENTS, fitting)
        last = int(np.searchsorted(np.cumsum(costs), (1 - SHARE_LAST) * costs.sum())) if len(costs) else 0
        first_groups = neighbors_of_equal_cost(costs[:last], (1 if short else LARGE_GROUPS) * self._hosts, most)
        last_groups = neighbors_of_equal_cost(costs[last:], self._hosts, most)
        return [
            *(np.arange(group.start, group.stop) for group in first_groups),
            *(np.arange(last + group.start, last + group.stop) for group in last_groups),
        ]

    def _window(self, size: int) -> int:
        """Number of calls that may be begun before the result of the first of them is taken."""
        calls = max(DEPTH * self._hosts, AHEAD // size)
        if self.plan == "means":
            return calls
        fitting = AHEAD_BYTES // (size * self._layout.num_bytes)
        return max(1, min(calls, max(self._hosts, fitting)))

    def _training(
        self, refs: Sequence[object], t: int, cohort: Cohort, group: Indices, rule: OwnModules | None
    ) -> Call:
        epochs = None if cohort.epochs is None else cohort.epochs[group]
        part = Cohort(cohort.clients[group], epochs=epochs, sampling=cohort.sampling, stop=cohort.stop)
        clients = part.clients.tolist()
        keep = None if self.plan == "threads" else next(self._numbers)
        with_mean = self.plan == "means" and self._weights_are_samples
        arguments = self._name, refs, t, part, self._memories_of(clients), rule, keep, with_mean
        return Call("train", arguments, clients, float(samples_to_process(self._sizes, part).sum()))

    def _updates(self, call: Call, result: Result) -> Iterator[Trained]:
        """The updates of a call, and the clients' new memories."""
        trained: TrainedGroup = result.value
        if trained.models is not None:
            states = self._models.states(trained.models)
            for client, state in zip(trained.clients, states, strict=True):
                yield self._update(client, state if client.has_model else {})
            return
        *_, number, _ = call.arguments
        again = partial(self._again, call)
        models = RemoteModels(self._name, number, trained, self._layout, result.member, again, self._weighed)
        for position, client in enumerate(trained.clients):
            update, memory = self._update(client, {})
            if client.has_model:
                update = dataclasses.replace(update, state=None, group=(models, position))
            yield update, memory

    def _update(self, client: TrainedClient, state: ModelState) -> Trained:
        return Update(**client.words, state=state, extra=as_tensors(client.extra)), as_tensors(client.memory)

    def _uploaded(self, update: Update, model: ModelState, t: int, cohort: Cohort) -> Update:
        """The update, or the part of it that the client sends."""
        if cohort.share is None:
            return update
        [position] = np.flatnonzero(cohort.clients == update.client)
        return partial_upload(update, model, self.trainable, float(cohort.share[position]), self.seed, t)

    def _weighed(self, by_samples: bool) -> None:
        self._weights_are_samples = by_samples

    def _again(self, call: Call, lost: Member, error: Exception) -> Member:
        """Train a group again whose host was lost with its models; returns the new host."""
        with self._lock:
            self._pool.lost(lost, call.clients, error)
            [result] = self._results([call], 1)
            return result.member

    def _results(
        self, calls: Sequence[Call], window: int, meanwhile: Callable[[], bool] = lambda: False
    ) -> Iterator[Result]:
        return ordered_results(self._pool, calls, hosts=self._hosts, window=window, meanwhile=meanwhile)

    def _broadcast(self, model: ModelState, beside: dict[str, Tensors]) -> tuple[object, object]:
        """References to the engine's setup and to what the clients receive."""
        if self._sent is not None and self._sent[0] is model and not beside:
            return self._setup, self._sent[1]
        reference = self._ray.put(Broadcast(self._layout.flat([model]), as_arrays(beside)))
        self._sent = None if beside else (model, reference)
        return self._setup, reference

    def _release(self, *, close: bool = False) -> None:
        """Let the hosts forget the models of earlier rounds, or this engine."""
        if self.plan != "threads" or close:
            for member in self._pool.ready:
                with suppress(Exception):
                    member.actor.release.remote(self._name, close=close)

    def _memories_of(self, clients: Iterable[int]) -> dict[int, NestedArrays]:
        memories = {client: self.memories.get(client) for client in clients}
        return {client: as_arrays(memory) for client, memory in memories.items() if memory}


def _plugins(model: Model, training: Training, algorithm: Algorithm) -> Plugins:
    """What users can write, in a form that hosts can read: pickled, with the source of modules that hosts may not have.

    The algorithm is made anew from its parameters, because hosts need only its client half.
    """
    from ray import cloudpickle

    fields = [field.name for field in dataclasses.fields(algorithm) if field.init]
    client_half = type(algorithm)(**{name: getattr(algorithm, name) for name in fields})
    loss_name = str(training.loss.get("name"))
    own_loss = kept(loss_name) if is_python_plugin(loss_name) else None
    parts = model, training, client_half, own_loss
    pickled: bytes = cloudpickle.dumps(parts)  # type: ignore[no-untyped-call]
    loss = type(training.build_loss())
    modules = [inspect.getmodule(type(part)) for part in (*parts, getattr(model, "module", None))]
    # classes and functions are pickled as the names of their modules and their own
    words = {word for _, word, _ in pickletools.genops(pickled) if isinstance(word, str)}
    modules += [sys.modules[word] for word in sorted(words & sys.modules.keys())]
    known = [module for module in modules if module is not None]
    return Plugins(own_modules(known, {loss_name: sys.modules[loss.__module__]}), pickled)


def _modules_of_rule(cohort: Cohort) -> OwnModules | None:
    """The modules of a cohort's stopping rule that is in a file.

    Raises:
        UsageError: there is no such rule, or it does not have such a setting.
    """
    rules_of(cohort.stop)  # so that a mistake is found before hosts work
    rule = class_of(cohort.stop)
    if cohort.stop is None or rule is None or not is_file_name(name := str(cohort.stop["rule"])):
        return None
    return own_modules([], {name: sys.modules[rule.__module__]})
