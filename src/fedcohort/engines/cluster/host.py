"""A host: one process of a Ray cluster, which trains clients and answers questions for them.

Everything that a host needs is available to every other host: data and settings lie in Ray's object store, and the clients' memories
stay with the driver and travel with the work. Any host can therefore do any work again, with the same bits.
"""

import os
import platform
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
import torch

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.training_settings import Training
from fedcohort.algorithms.updates import is_finite
from fedcohort.algorithms.weighted_means import RunningMean
from fedcohort.core.arrays import Values
from fedcohort.core.freed_memory import keep_freed_memory
from fedcohort.core.processor import processor
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.core.user_code.own_code import ends_in_own_code
from fedcohort.core.user_code.python_plugins import put
from fedcohort.engines import device
from fedcohort.engines.client_answers import forward_answers, trial_answers
from fedcohort.engines.cluster.flat_arrays import Bytes, ModelLayout, NestedArrays, ReusedRows, as_arrays, as_tensors
from fedcohort.engines.cluster.kept_models import KeptModels, KeptStack, KeptStates
from fedcohort.engines.cluster.messages import (
    Broadcast,
    Facts,
    Failed,
    Setup,
    TrainedClient,
    TrainedGroup,
    federation_of,
)
from fedcohort.engines.cluster.own_modules import OwnModules, load_modules
from fedcohort.engines.cluster.ray_package import lost_errors
from fedcohort.engines.initial_network import build_module
from fedcohort.engines.stacked_cohort import GroupTrainer
from fedcohort.engines.threaded_cohort import CohortTrainer
from fedcohort.engines.work_splitting import samples_to_process
from fedcohort.federation.federation import Federation
from fedcohort.models import Model
from fedcohort.selection import Cohort, Question
from fedcohort.training.client_memories import Memory
from fedcohort.training.networks.model_states import DTYPES
from fedcohort.training.stack import Stack
from fedcohort.training.trainer import Trainer

__all__ = ["Host"]

T = TypeVar("T")

ENGINES = 2
"""Maximum number of engines whose models and data a host keeps ready."""


@dataclass
class _Site:
    """The clients of one engine in this process, and the models that were trained here in the current round."""

    setup: Setup
    federation: Federation
    trainer: Trainer
    layout: ModelLayout
    rows: ReusedRows
    groups: GroupTrainer | None
    memories: dict[int, Memory] = field(default_factory=dict)
    kept: dict[int, KeptModels] = field(default_factory=dict)

    @staticmethod
    def open(setup: Setup) -> "_Site":
        """The clients of an engine, from what the driver sent."""
        from ray import cloudpickle

        load_modules(setup.plugins.modules)
        parts: tuple[Model, Training, Algorithm, object] = cloudpickle.loads(setup.plugins.pickled)
        model, training, algorithm, own_loss = parts
        if own_loss is not None:
            put(str(training.loss["name"]), own_loss)
        federation = federation_of(setup.clients, setup.device)

        def module() -> Any:
            built = build_module(model, federation, setup.seed)
            return device.in_bfloat16(built) if setup.arithmetic == "bf16" else built

        trainer = Trainer(
            federation, module(), training, algorithm, setup.seed,
            omitted=setup.omitted, threads_per_client=setup.threads_per_client,
        )  # fmt: skip
        setup.layout.check(trainer.entries)
        trainer.frozen.set(as_tensors(setup.frozen)[""])  # another processor may have drawn others
        site = _Site(setup, federation, trainer, setup.layout, ReusedRows(setup.layout.num_bytes), None)
        if setup.stacked:
            own = module().to(dtype=DTYPES[training.precision])
            own.load_state_dict(as_tensors(setup.frozen)[""], strict=False)
            stack = Stack(federation, own, training, algorithm, setup.seed)
            size = max(1, num_bytes([trainer.entries]))
            site.groups = GroupTrainer(stack, size, site.memory)
        return site

    def memory(self, client: int) -> Memory:
        """The memory of a client that came with the current work."""
        return self.memories.get(client, {})


class Host:
    """The work of a host. :mod:`fedcohort.engines.cluster.host_pool` makes a Ray actor of it."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()
        keep_freed_memory()
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self._sites: OrderedDict[str, _Site] = OrderedDict()
        self._broadcasts: dict[str, tuple[str, ModelState, dict[str, Tensors]]] = {}

    def facts(self) -> Facts:
        """Facts about this host; its answer says that it is ready."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        return Facts(node, platform.node(), os.getpid(), processor(), torch.backends.cpu.get_cpu_capability())

    def pid(self) -> int:
        """The number of this process."""
        return os.getpid()

    def train(
        self,
        engine: str,
        refs: Sequence[Any],
        t: int,
        cohort: Cohort,
        memories: Mapping[int, NestedArrays],
        rule: OwnModules | None,
        keep: int | None,
        with_mean: bool,
    ) -> TrainedGroup | Failed:
        """Train a part of a cohort, one client after another or in one stack.

        Args:
            engine: name of the engine.
            refs: the engine's :class:`Setup` and the round's :class:`Broadcast` in Ray's object store.
            t: round, from 1.
            cohort: the clients and how they are trained.
            memories: what the algorithm kept for each client; clients without an entry have no memory.
            rule: the modules of the cohort's stopping rule, if it is in a file of the user's own.
            keep: number under which the models stay here until the next round; None to send them. The models of a stack stay
                here only if the stack computes their mean directly; otherwise they are sent.
            with_mean: whether to send the mean of models that stay here, weighted by samples.
        """

        def work() -> TrainedGroup:
            if rule is not None:
                load_modules(rule)
            site, model, received = self._open(engine, refs, memories)
            if keep is not None and site.setup.stacked:
                return _stacked(site, keep, list(_train(site, model, t, cohort, received, [])), model)
            return _one_after_another(site, model, t, cohort, received, keep, with_mean=with_mean)

        return self._answer(work)

    def ask(
        self,
        engine: str,
        refs: Sequence[Any],
        t: int,
        question: Question,
        clients: list[int],
        memories: Mapping[int, NestedArrays],
    ) -> Values | Failed:
        """The answers of some clients, one row each."""

        def work() -> Values:
            site, model, received = self._open(engine, refs, memories)
            if question.trains:
                rows = trial_answers(site.trainer, model, t, clients, received, site.memory)
            else:
                rows = forward_answers(site.trainer, model, t, question, clients)
            return np.array(rows, dtype=np.float64)

        return self._answer(work)

    def mean(self, engine: str, group: int, weights: Mapping[int, float]) -> Bytes | Failed:
        """Σ a_i w_i/Σ a_i over models of a group that was kept, as one row of bytes; ``weights`` by position in the group."""

        def work() -> Bytes:
            site = self._sites[engine]
            return site.layout.flat([site.kept[group].mean(weights)])

        return self._answer(work)

    def state(self, engine: str, group: int, position: int) -> Bytes | Failed:
        """One model of a group that was kept, as one row of bytes."""
        return self._answer(
            lambda: self._sites[engine].layout.flat([self._sites[engine].kept[group].state_of(position)])
        )

    def release(self, engine: str, *, close: bool = False) -> None:
        """Forget the models that were kept, or everything about the engine."""
        self._broadcasts.pop(engine, None)
        if close:
            self._sites.pop(engine, None)
        elif engine in self._sites:
            self._sites[engine].kept.clear()

    def _open(
        self, engine: str, refs: Sequence[Any], memories: Mapping[int, NestedArrays]
    ) -> tuple[_Site, ModelState, dict[str, Tensors]]:
        """The engine's clients, and what they received; both are read from the object store once."""
        import ray

        setup, broadcast = refs
        if engine not in self._sites:
            self._sites[engine] = _Site.open(ray.get(setup))
            while len(self._sites) > ENGINES:
                self._sites.popitem(last=False)
        self._sites.move_to_end(engine)
        site = self._sites[engine]
        if engine not in self._broadcasts or self._broadcasts[engine][0] != broadcast.hex():
            sent: Broadcast = ray.get(broadcast)
            [state] = site.layout.states(sent.model)
            model = device.moved(state, site.federation.device)
            received = device.moved(as_tensors(sent.received), site.federation.device)
            self._broadcasts[engine] = broadcast.hex(), model, received
        site.memories = {
            client: device.moved(as_tensors(memory), site.federation.device) for client, memory in memories.items()
        }
        _, model, received = self._broadcasts[engine]
        return site, model, received

    def _answer(self, work: Callable[[], T]) -> T | Failed:
        """The result of ``work``, or its error in a form that every process can read.

        Errors of Ray, such as data that did not arrive, are raised: they are no error of a client, and another host does the work.
        """
        try:
            return work()
        except lost_errors():
            raise
        except Exception as error:
            return Failed.of(error)
        except SystemExit as error:
            if not ends_in_own_code(error):  # Ray ends this process
                raise
            return Failed.of(error)


def _train(
    site: _Site, model: ModelState, t: int, cohort: Cohort, received: dict[str, Tensors], into: Sequence[ModelState]
) -> Iterator[tuple[Update, Memory]]:
    """Updates and new memories of a part of a cohort. Models can be trained in the memory ``into``, which saves a copy."""
    if site.groups is not None and cohort.stop is None and cohort.sampling == "shuffled":
        yield from site.groups.train(model, t, cohort, received, np.arange(len(cohort.clients)))
        return
    trainer = CohortTrainer(model, t, cohort, received, lambda: nullcontext(site.trainer), site.memory)
    costs = samples_to_process(site.federation.num_samples, cohort)
    for part in trainer.parts(costs, 1):
        yield from trainer.train(part, into[part])


def _stacked(site: _Site, keep: int, results: Sequence[tuple[Update, Memory]], model: ModelState) -> TrainedGroup:
    """The result of a stack. Its models stay here, under the number ``keep``, if it computes their mean directly."""
    stack = KeptStack.of([update for update, _ in results])
    clients = [_parts(update, memory, check=stack is not None) for update, memory in results]
    if stack is not None:
        site.kept[keep] = stack
        return TrainedGroup(clients, None)
    rows = site.rows.take(len(results))
    for (update, _), target in zip(results, site.layout.views(rows), strict=True):
        site.layout.copy(update.state or model, target)
    return TrainedGroup(clients, rows)


def _one_after_another(
    site: _Site,
    model: ModelState,
    t: int,
    cohort: Cohort,
    received: dict[str, Tensors],
    keep: int | None,
    *,
    with_mean: bool,
) -> TrainedGroup:
    """Train a part of a cohort; arguments as for :meth:`Host.train`."""
    on_device = keep is not None and site.federation.device.type != "cpu"
    rows = None if on_device else site.rows.take(len(cohort.clients))
    targets = [] if rows is None else site.layout.views(rows)
    clients, states, running = [], [], RunningMean()
    trained = _train(site, model, t, cohort, received, targets)
    for (update, memory), target in zip(trained, targets or repeat(None), strict=False):
        clients.append(_parts(update, memory, check=keep is not None))
        # copied at once, so that the next client's model can use the same memory: fresh pages cost more than a copy
        states.append(_in_place(site, update.state or model, target))
        if with_mean and update.state and update.num_samples:
            running.add(states[-1], float(update.num_samples))
    if keep is None:
        return TrainedGroup(clients, rows)
    site.kept[keep] = KeptStates(states)
    return TrainedGroup(clients, None, site.layout.flat([running.result()]) if running.total else None)


def _in_place(site: _Site, state: ModelState, target: ModelState | None) -> ModelState:
    """The state in the memory of ``target``; itself without a target."""
    return state if target is None or _same(state, target) else site.layout.copy(state, target)


def _same(state: ModelState, target: ModelState) -> bool:
    """Whether the entries of both are the same memory."""
    return all(value.data_ptr() == target[name].data_ptr() for name, value in state.items())


FIELDS = ("client", "num_samples", "steps", "report", "passes", "work", "failure")
"""The fields of an update that are numbers and words; the server sets the others."""


def _parts(update: Update, memory: Memory, *, check: bool) -> TrainedClient:
    """The parts of an update; its numbers are checked only if the model stays here."""
    words = {name: getattr(update, name) for name in FIELDS}
    if update.pending is not None:
        models, position = update.pending
        return TrainedClient(words, as_arrays(update.extra), as_arrays(memory), True, models.is_finite(position))
    finite = not check or is_finite(Update(update.client, update.num_samples, update.steps, update.state))
    return TrainedClient(words, as_arrays(update.extra), as_arrays(memory), bool(update.state), finite)
