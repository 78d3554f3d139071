"""What an algorithm sends and lets clients remember belongs to them: nothing changes it later, whatever tensors it returns."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch

from fedcohort.algorithms import Algorithm, Members, ModelState, Problem, Tensors, Training, parameters
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.core.files.state_files import pack
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, bits, members_of, small_federation
from fedcohort.training.client_memories import Memories


@parameters
class Remembers(FedAvg):
    """Clients remember tensors that others change: their parameters, gradients, their last memory, and what the server sent."""

    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.moved: Tensors = {}

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for kind in ("last", "slope", "older", "moved"):
            for name, remembered in problem.memory.get(kind, {}).items():
                if name in gradients:
                    gradients[name].add_(remembered, alpha=0.05)

    def finish(self, problem: Problem) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
        of_clients = {"last": {name: self.kept(p) for name, p in problem.parameters.items()}}
        of_clients["slope"] = {name: self.kept(p.grad) for name, p in problem.parameters.items() if p.grad is not None}
        older = {name: self.kept(value) for name, value in problem.memory.get("last", {}).items()}
        alone = problem.num_samples if isinstance(problem.num_samples, int) else 0
        moved = {name: self.kept(value) for name, value in problem.received.get("moved", {}).items()} if alone else {}
        return of_clients, of_clients | {"older": older, "moved": moved}

    def kept(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def broadcast(self) -> dict[str, Tensors]:
        return {"moved": self.moved} if self.moved else {}

    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        new = super().end(fold, model, members)
        for name, value in new.items():
            self.moved.setdefault(name, torch.zeros_like(value)).mul_(0.5).add_(value - model[name])
        return new


@parameters
class RemembersCopies(Remembers):
    """The same, with copies."""

    def kept(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach().clone()


@pytest.mark.parametrize("limit", [0, 2**30])
@pytest.mark.parametrize("plan", ["loop", "threads", "stacked"])
def test_memories_are_copies_of_what_others_change(plan: Literal["loop", "threads", "stacked"], limit: int) -> None:
    def play(make: Callable[[], Algorithm]) -> tuple[bytes, bytes]:
        algorithm = make()
        training = Training(batch_size=4, epochs=2)
        federation = small_federation(trouble=False)
        with closing(
            LocalEngine(federation, Mlp(hidden=4), training, algorithm, 1, 2, Memories(limit), plan=plan)
        ) as engine:
            model = engine.initial_model()
            for t in range(1, 6):
                clients = [HEALTHY[(t + i) % len(HEALTHY)] for i in range(4)]
                updates = engine.train(model, t, Cohort(np.array(clients)), algorithm)
                model = algorithm.aggregate(model, updates, members_of(clients, t))
                engine.commit(clients[t % 2 :])
            return bits(model), pack(dict(sorted(engine.state_dict().items())))

    assert play(Remembers) == play(RemembersCopies)
