"""Models that draw random numbers when they train, as Dropout does.

torch's modules draw from torch's own generator, which all threads share. So whenever such a model sees a batch in training, that
generator is seeded by (seed, round, client) and the number of the step, for the length of the forward pass, by one thread at a
time: results do not depend on the number of threads, and an algorithm that looks at one batch several times (differences along
a direction, say) meets the same draws each time. Two things are beyond this: other generators, numpy's or Python's, and code outside
FedCohort that draws from torch's generator in a thread of its own at that very moment.
"""

import copy
from contextlib import suppress

import torch
from torch import Tensor, nn

from fedcohort.core.errors import UsageError
from fedcohort.core.streams import torch_seeded

__all__ = ["draws_at_random"]

TRIES = 8
"""Forward passes of a model that draws; of one that does not, one is enough, unless somebody else draws meanwhile."""


def draws_at_random(module: nn.Module, inputs: Tensor) -> bool:
    """Whether the model draws, or may draw, from torch's generator in training mode; found by trying, on a copy.

    Args:
        module: any model; an error of its own is left for the training to tell.
        inputs: a batch, as the model sees it.

    Raises:
        UsageError: it does so in evaluation mode, so that no test of it could be repeated.
    """
    drew: dict[bool, bool | None] = {True: False, False: False}
    with suppress(Exception):
        tried = copy.deepcopy(module)
        for training in drew:
            drew[training] = _draws(tried.train(training), inputs)
    if drew[False]:
        raise UsageError(
            "model: draws random numbers in evaluation mode too, so that no test of it could be repeated; draw in training only, "
            "as in functional.dropout(x, training=self.training)"
        )
    return drew[True] is not False


def _draws(module: nn.Module, inputs: Tensor) -> bool | None:
    """Whether the model leaves the generators elsewhere, always at the same place; None if that cannot be told, because somebody
    else draws from them at this very moment.
    """
    places = []
    for _ in range(TRIES):
        with torch.no_grad(), torch_seeded(0, inputs.device) as generators:
            before = [generator.get_state() for generator in generators]
            module(inputs)
            after = [generator.get_state() for generator in generators]
        if _equal(before, after):
            return False
        places.append(after)
    return True if all(_equal(places[0], place) for place in places) else None


def _equal(states: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(states, others, strict=True))
