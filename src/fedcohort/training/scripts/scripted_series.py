"""The training of several clients of a network with scripts in one call (TorchScript), see
:mod:`fedcohort.training.client_series`."""

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fedcohort.training.optimizers import Optimizer
from fedcohort.training.programs.optimizer_steps import correct, take_step  # noqa: F401 - scripts call them
from fedcohort.training.programs.plain_network import Series
from fedcohort.training.scripts.scripted_passes import WITHOUT, OwnCorrection, ScriptedPass, other_calls  # noqa: F401 - scripts call it

__all__ = ["ScriptedSeries"]

_SERIES = """
def descend_series(
    values: List[Tensor], others: List[Tensor], constants: List[List[Tensor]], changing: List[Tensor],
    start: List[Tensor], buffers: List[Tensor], trained: List[List[Tensor]], features: Tensor, labels: Tensor, outputs: Tensor,
    order: Tensor, edges: List[List[int]], size: int, rule: str, rates: List[float], nesterov: bool, states: List[List[Tensor]],
    fresh: bool, shifts: List[List[Tensor]], mu: float, clip: float, extras: List[Tensor], draws: List[List[Generator]]
):
    seen: List[Tensor] = []
    right: List[Tensor] = []
    for client in range(len(trained)):
        torch._foreach_copy_(values, start)
        for i in range(len(changing)):
            changing[i].copy_(buffers[i])
        if rule == "adam" or rule == "adamw":
            for state in states:
                torch._foreach_zero_(state)
        hits = torch.zeros([], dtype=torch.int64)
        step = 0
        for epoch in range(len(edges[client]) - 1):
            hits = torch.zeros([], dtype=torch.int64)
            end = edges[client][epoch + 1]
            for begin in range(edges[client][epoch], end, size):
                until = min(begin + size, end)
                index = order[begin:until] if len(order) > 0 else torch.arange(begin, until)
                inputs = features.index_select(0, index)
                inputs = inputs.permute(0, 3, 1, 2) if inputs.dim() == 4 else inputs
                targets = labels.index_select(0, index)
                received = outputs.index_select(0, index) if len(outputs) > 0 else outputs
                generators = draws[client][step : step + 1]
                losses, count, slopes = any_pass(values, others, constants, inputs, targets, received, generators)
                if len(slopes) == 0:
                    raise RuntimeError("the network makes other calls for this batch")
                correct(slopes, values, shifts[client], start, mu, clip)
                slopes = own_correct(slopes, values, start, extras)
                take_step(values, slopes, rule, rates, nesterov, states, fresh and step == 0)
                hits = hits + count
                seen.append(losses)
                step += 1
        right.append(hits)
        for i in range(len(values)):
            trained[client][i].copy_(values[i])
        for i in range(len(changing)):
            trained[client][len(values) + i].copy_(changing[i])
    return torch.cat(seen), torch.stack(right)
"""
"""The steps of :meth:`ScriptedSeries.descend_series`. Each batch has memory of its own, as in the training of a single client."""


class ScriptedSeries:
    """Trains clients of a network one after another, by the scripts of all sizes of batches that are known.

    Args:
        passes: the scripts by batch size, at least one; all of the same network.
        buffers: the entries of the network's state that are not trained.

    Attributes:
        sizes: the sizes of batches that can be trained.
        draws: whether the network draws random numbers.
        flattens_first: False.
    """

    flattens_first = False

    def __init__(self, passes: Mapping[int, ScriptedPass], buffers: Sequence[Tensor]) -> None:
        self.sizes = frozenset(passes)
        one = next(iter(passes.values()))
        self.draws = one.draws
        values, others, _ = one.given
        self._given = values, others, [single.given[2] for single in passes.values()], list(buffers)
        self._sources = tuple((size, single.source) for size, single in passes.items())
        _compiled(self._sources)
        self._reading = {size: single for size, single in passes.items() if single.reads_numbers}

    def descend_series(
        self, series: Series, optimizer: Optimizer, own: OwnCorrection | None = None
    ) -> tuple[Tensor, Tensor]:
        """As :meth:`Program.descend_series <fedcohort.training.programs.plain_network.Program.descend_series>`, without gradients;
        the network is left with the last client's parameters. ``own`` is the same for all clients.

        Raises:
            RuntimeError: an operator cannot be called.
            torch.jit.Error: the network makes other calls for a batch.
        """
        rule = optimizer.rule()
        script = _compiled(self._sources) if own is None else _compiled(self._sources, own.source)
        found: tuple[Tensor, Tensor] = ScriptedPass.run(
            script.descend_series, *self._given, series.start, series.buffers, series.trained, series.features,
            series.labels, series.outputs, series.order, series.edges, series.size, rule.kind, rule.rates, rule.nesterov, rule.states,
            rule.fresh, series.shifts, series.proximal, series.clip, [] if own is None else own.extras,
            series.draws,
        )  # fmt: skip
        self._count(series)
        return found

    def _count(self, series: Series) -> None:
        """Note the uses of scripts that can miss."""
        steps = [edge - start for edges in series.edges if self._reading for start, edge in itertools.pairwise(edges)]
        for size, single in self._reading.items():
            single.uses += sum(n // size if size == series.size else n % series.size == size for n in steps)


@lru_cache(64)
def _compiled(passes: tuple[tuple[int, str], ...], own: str = WITHOUT) -> Any:
    """The functions of a series, which call functions of this module; ``passes`` are the sources of scripts by batch size, and ``own``
    is that of an own correction."""
    sources = [source.replace("def one_pass(", f"def pass_of_{size}(", 1) for size, source in passes]
    calls = [
        f"if len(labels) == {size}:\n        return pass_of_{size}(values, others, constants[{i}], inputs, labels, outputs, draws, [])"
        for i, (size, _) in enumerate(passes)
    ]
    choice = "\n    ".join((_CHOICE, *calls, 'raise RuntimeError("no script for this size")'))
    return torch.jit.CompilationUnit("\n".join((*sources, choice, own, _SERIES)))


_CHOICE = """
def any_pass(
    values: List[Tensor], others: List[Tensor], constants: List[List[Tensor]], inputs: Tensor, labels: Tensor, outputs: Tensor,
    draws: List[Generator]
) -> Tuple[Tensor, Tensor, List[Tensor]]:"""
