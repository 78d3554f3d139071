"""Train several clients of a perceptron one after another in one call, without Python between them.

A client of a small network trains for less than a millisecond. Preparing its training in Python takes as long, and Python's lock lets
only one thread do so at a time. Here, several clients are prepared together, and all their steps are one call, during which other
threads work. Each client has the bits of :class:`~fedcohort.training.client_session.Session`: the same calls with the same numbers.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcohort.algorithms import Algorithm, ModelState, Tensors, Update
from fedcohort.algorithms.base import Correction
from fedcohort.core.arrays import Indices
from fedcohort.core.random_streams import integers, rngs
from fedcohort.training.client_hooks import finished, stated_correction
from fedcohort.training.client_memories import Memory, Trained
from fedcohort.training.client_problem import AT_ONCE, ClientProblem
from fedcohort.training.client_report import training_report
from fedcohort.training.local_setup import LocalSetup
from fedcohort.training.networks.memory_layouts import channels_last
from fedcohort.training.networks.random_layers import step_generator
from fedcohort.training.networks.received_outputs import CHUNK
from fedcohort.training.programs.plain_network import Program, Series
from fedcohort.training.reused_memory import Buffers
from fedcohort.training.scripts.scripted_passes import OwnCorrection
from fedcohort.training.scripts.scripted_series import ScriptedSeries
from fedcohort.training.stack.stack_setup import client_half_stacks

__all__ = ["ClientSeries"]


class ClientSeries:
    """Trains series of clients.

    Args:
        setup: the model and the settings.
        buffers: memory for the trained models.
    """

    def __init__(self, setup: LocalSetup, buffers: Buffers) -> None:
        self.setup, self._buffers = setup, buffers
        self._finishes = getattr(setup.algorithm.finish, "__func__", None) is not Algorithm.finish
        # otherwise, `finish` may use anything that is left of the training of a single client
        self._suits = not self._finishes or client_half_stacks(type(setup.algorithm))

    def possible(self, epochs: int) -> bool:
        """Whether clients with up to this number of epochs can be trained in a series."""
        return self._program(epochs) is not None

    def _program(self, epochs: int) -> Program | ScriptedSeries | None:
        """The program that trains clients with up to this number of epochs in a series, or the scripts."""
        setup, size = self.setup, self.setup.training.batch_size
        # sums over the samples of several clients may be divided among intra-op threads in another way than those of one client
        if not size or setup.training.augment != "none" or setup.threads_per_client > 1:
            return None
        by_epoch = setup.algorithm.corrects and not setup.own_corrections.possible
        if epochs > 1 and by_epoch:  # a correction may change from one epoch to the next
            return None
        program = setup.plain_steps(size)
        if program is None:
            setup.in_training()  # scripts are those of training, and an evaluation may have come before
            return None if self._finishes else setup.scripted_series(size)
        whole = list(setup.entries) == list(setup.parameters)
        return program if program.is_perceptron and self._suits and whole else None

    def _take(self, program: Program | ScriptedSeries, sizes: Sequence[int]) -> bool:
        """Whether one call can train clients with these numbers of samples."""
        fit = min(sizes) > 0 and sum(sizes) * math.prod(self.setup.federation.sample_shape) <= AT_ONCE
        return fit and all(self._takes(program, samples) for samples in sizes)

    def _takes(self, program: Program | ScriptedSeries | None, samples: int) -> bool:
        """Whether there are scripts for the batches of a client with this number of samples."""
        if not isinstance(program, ScriptedSeries):
            return True
        size = self.setup.training.batch_size
        return {min(samples, size), samples % size or size} <= program.sizes

    def slices(self, clients: Sequence[int], epochs: Sequence[int]) -> list[slice]:
        """Slices of neighbors that one call can train. A client with too many samples, without samples or without epochs is alone."""
        if len(clients) == 1:
            return [slice(0, 1)]
        federation = self.setup.federation
        most = AT_ONCE // math.prod(federation.sample_shape)
        found: list[slice] = []
        samples = most  # of the last slice; no client may join one with this number
        program = self._program(max(epochs, default=1))
        for position, ((start, stop), number) in enumerate(zip(map(federation.span, clients), epochs, strict=True)):
            size = stop - start if number and self._takes(program, stop - start) else 0
            if size and samples + size <= most:
                found[-1] = slice(found[-1].start, position + 1)
                samples += size
            else:
                found.append(slice(position, position + 1))
                samples = size or most
        return found

    def train(
        self,
        model: ModelState,
        t: int,
        clients: Sequence[int],
        epochs: Sequence[int],
        received: Mapping[str, Tensors],
        memories: Sequence[Memory],
        into: Sequence[ModelState] = (),
    ) -> list[Trained] | None:
        """Train these clients in round ``t`` from ``model``; None if that is not :meth:`possible`, if they have too many samples, if
        one of them has none or no epoch, or if the algorithm changes each step of a client in its own way.

        Args:
            model, t, received: as for :meth:`Trainer.train`.
            clients: ids.
            epochs: number of epochs of each client.
            memories: what the algorithm kept for each client.
            into: memory for the trained model of each client, all entries of a model each, which is used if there are no other
                entries than parameters.
        """
        setup = self.setup
        sizes = [stop - start for start, stop in map(setup.federation.span, clients)]
        program = self._program(max(epochs))
        if program is None or min(epochs) == 0 or not self._take(program, sizes):
            return None
        of_algorithm = setup.algorithm.corrects or self._finishes  # it can use the module
        setup.begin(model, t, load=of_algorithm)
        problems: list[ClientProblem] = []
        if of_algorithm:
            problems = [ClientProblem(setup, model, t, c, received, m) for c, m in zip(clients, memories, strict=True)]
        added = self._added(problems, len(clients))
        if added is None:
            return None
        corrections, own = added
        series = self._series(program, model, t, clients, epochs, corrections, into)
        gradients: list[list[Tensor]] = []
        if isinstance(program, Program):
            losses, hits, gradients = program.descend_series(series, setup.optimizer, keep_gradients=self._finishes)
        else:
            setup.forget()  # the module has the last client's model
            losses, hits = program.descend_series(series, setup.optimizer, own)
        updates = self._updates(clients, epochs, series, losses, hits)
        if not self._finishes:
            return [(update, {}) for update in updates]
        return list(self._finished(problems, updates, gradients))

    def _added(
        self, problems: list[ClientProblem], clients: int
    ) -> tuple[list[Correction], OwnCorrection | None] | None:
        """What the algorithm does with the gradients of each client; None if that cannot be said before the steps."""
        if self.setup.own_corrections.possible:
            own = self._own_correction(problems)
            return None if own is None else ([Correction()] * clients, own)
        corrections = self._corrections(problems) if self.setup.algorithm.corrects else [Correction()] * clients
        return (corrections, None) if corrections else None

    def _own_correction(self, problems: list[ClientProblem]) -> OwnCorrection | None:
        """What the algorithm of a user does with the gradients of all these clients; None if there is no script, or not the same."""
        found = [self.setup.own_corrections.of(problem) for problem in problems]
        same = all(one is not None and found[0] is not None and one.source == found[0].source for one in found)
        return found[0] if same and not any(problem.memory for problem in problems) else None

    def _corrections(self, problems: list[ClientProblem]) -> list[Correction]:
        """What the algorithm adds to the gradients of each client; empty if it is not said before the steps, or μ differs."""
        stated = [stated_correction(self.setup.algorithm, problem) for problem in problems]
        known = [correction for correction in stated if correction is not None]
        if len(known) < len(stated) or len({correction.proximal for correction in known}) > 1:
            return []
        return known

    def _series(
        self,
        program: Program | ScriptedSeries,
        model: ModelState,
        t: int,
        clients: Sequence[int],
        epochs: Sequence[int],
        corrections: list[Correction],
        into: Sequence[ModelState],
    ) -> Series:
        """The samples of the clients, their order in each epoch, and memory for the trained models."""
        setup, federation = self.setup, self.setup.federation
        spans = [federation.span(client) for client in clients]
        in_order = max(epochs) == 1  # each sample is used once, so that the samples can be in the order of the steps
        orders: list[Indices] = []  # of the samples of all clients, one client after another
        edges: list[list[int]] = []
        first = 0
        draws = rngs(setup.seed, "batches", t, clients)
        for (start, stop), number, draw in zip(spans, epochs, draws, strict=True):
            ends = [edges[-1][-1] if edges else 0]
            for _ in range(number):
                orders.append(first + draw.permutation(stop - start))
                ends.append(ends[-1] + stop - start)
            edges.append(ends)
            first += stop - start
        order = torch.from_numpy(np.concatenate(orders))
        rows = torch.from_numpy(np.concatenate([np.arange(*span) for span in spans]))
        outputs = self._received_outputs(model, clients, rows)
        if in_order:
            rows, outputs = rows[order], outputs[order] if len(outputs) else outputs
        return Series(
            start=[model[name] for name in setup.parameters],
            trained=self._memory_for_models(model, len(clients), into),
            features=self._features(program, federation.train.pick(rows)),
            labels=federation.train.labels.index_select(0, rows),
            order=order[:0] if in_order else order,
            edges=edges,
            size=setup.training.batch_size or 1,
            shifts=[list(correction.shift.values()) for correction in corrections],
            proximal=corrections[0].proximal,
            clip=setup.training.clip_norm,
            draws=self._generators(program, t, clients, edges),
            buffers=[model[name] for name in self._other_entries()],
            outputs=outputs,
        )

    def _received_outputs(self, model: ModelState, clients: Sequence[int], rows: Tensor) -> Tensor:
        """Outputs of the received model on the samples of all clients, one client after another, which are at these ``rows``; empty
        if the loss does not need them."""
        setup, federation = self.setup, self.setup.federation
        if not setup.loss.needs_outputs:
            return torch.empty(0)
        setup.show(model)
        data, program = [federation.client(client) for client in clients], setup.outputs_program()
        if program is None:
            return torch.cat([setup.received_outputs(samples) for samples in data])
        sizes = [min(CHUNK, len(samples) - start) for samples in data for start in range(0, len(samples), CHUNK)]
        edges = [0, *itertools.accumulate(sizes)]
        with torch.no_grad():
            outputs = program.outputs(federation.prepare(federation.train.pick(rows), setup.dtype), edges)
            return functional.softmax(outputs, dim=-1)

    def _other_entries(self) -> list[str]:
        """The entries of a model that are not trained."""
        return [name for name in self.setup.entries if name not in self.setup.parameters]

    def _entries(self) -> list[str]:
        """The entries of a model, those that are trained first, as :attr:`Series.trained` has them."""
        return [*self.setup.parameters, *self._other_entries()]

    def _features(self, program: Program | ScriptedSeries, raw: Tensor) -> Tensor:
        """Raw features as the steps need them; images that the network flattens first are flat already."""
        setup = self.setup
        if program.flattens_first:
            return setup.federation.standardised(raw, setup.dtype).flatten(1)
        return channels_last(setup.federation.prepare(raw, setup.dtype))

    def _generators(
        self, program: Program | ScriptedSeries, t: int, clients: Sequence[int], edges: list[list[int]]
    ) -> list[list[torch.Generator]]:
        """For each client, the generators of Dropout for its steps; ``edges`` as for :class:`Series`."""
        if not program.draws:
            return [[] for _ in clients]
        size = self.setup.training.batch_size or 1
        firsts = integers(self.setup.seed, "module", t, clients)
        steps = [sum(-(-(b - a) // size) for a, b in itertools.pairwise(own)) for own in edges]
        return [[step_generator(first, i, 0) for i in range(n)] for first, n in zip(firsts, steps, strict=True)]

    def _memory_for_models(
        self, model: ModelState, clients: int, into: Sequence[ModelState]
    ) -> list[list[torch.Tensor]]:
        names = self._entries()
        if len(into) == clients and all(state.keys() == set(names) for state in into):
            return [[state[name] for name in names] for state in into]
        return self._buffers.copies([model[name] for name in names], clients)

    def _updates(
        self, clients: Sequence[int], epochs: Sequence[int], series: Series, losses: Tensor, hits: Tensor
    ) -> list[Update]:
        """The updates, with what clients report; ``losses`` are those of every sample in every step."""
        names = self._entries()
        values = losses.double().numpy()
        squares = np.square(values)
        updates = []
        for i, (client, edges, right) in enumerate(zip(clients, series.edges, hits.tolist(), strict=True)):
            samples = edges[1] - edges[0]
            starts, sizes = _steps(samples, len(edges) - 1, series.size)
            steps = np.add.reduceat(values[edges[0] : edges[-1]], starts) / sizes
            report = training_report(
                loss=float(steps.sum() / len(steps)), square_loss=float(squares[edges[0] : edges[1]].sum() / samples),
                samples=float(samples), steps=float(len(starts)), accuracy=float(right) / samples,
            )  # fmt: skip
            updates.append(
                Update(
                    client=client,
                    num_samples=samples,
                    steps=len(starts),
                    state=dict(zip(names, series.trained[i], strict=True)),
                    report=report,
                    passes=3.0 * epochs[i] + (1 if self.setup.loss.needs_outputs else 0),
                    work=epochs[i] / self.setup.training.epochs,
                )
            )
        return updates

    def _finished(
        self, problems: list[ClientProblem], updates: list[Update], gradients: list[list[Tensor]]
    ) -> Iterator[Trained]:
        """What the algorithm sends and keeps, with each client's trained parameters and last gradients."""
        for problem, update, last in zip(problems, updates, gradients, strict=True):
            problem.parameters = {name: value.detach() for name, value in update.state.items()}
            for parameter, gradient in zip(problem.parameters.values(), last, strict=True):
                parameter.grad = gradient
            problem.steps = update.steps
            problem.forwards += round(update.passes) * update.num_samples
            update.extra, memory = finished(self.setup.algorithm, problem)
            update.passes = problem.forwards / update.num_samples
            yield update, memory


@lru_cache(2**12)
def _steps(samples: int, epochs: int, size: int) -> tuple[Indices, Indices]:
    """Where each step of a client begins among the samples of its epochs, one after another, and how many samples it has."""
    starts = np.concatenate([np.arange(epoch * samples, (epoch + 1) * samples, size) for epoch in range(epochs)])
    return starts, np.diff(starts, append=epochs * samples)
