"""Everything that a run consists of while it is played."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedcohort.algorithms import Algorithm, ModelState
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.cohort_sizes import k_in_round
from fedcohort.engines.base import Engine
from fedcohort.federation.client_test_parts import accuracy_by_client
from fedcohort.record import Portrait
from fedcohort.rounds.round_clock import RoundClock
from fedcohort.selection import Selector
from fedcohort.training.evaluation import Evaluation

__all__ = ["RunState"]


@dataclass
class RunState:
    """Everything that a run consists of while it is played: the model, and the parts that have a state of their own.

    Attributes:
        seed: the experiment's seed.
        k: number of clients to select per round; :meth:`k_at` is that of a round.
        clock: time and availability.
        selector: the strategy.
        algorithm: the algorithm.
        engine: trains clients, evaluates models and answers questions.
        model: the global model.
        plan: how the engine trains clients, for the record: ``loop``, ``threads`` or ``stacked``.
        portrait: gives the facts about the clients for the record; called once, when a run begins.
        test_clients: the client of each sample of the server's test set, int64 [n], −1 for none; None if clients have no test samples.
        personal_data: what personal models are measured on: ``test samples`` of each client, ``held-out samples``, or
            ``left-out training samples``: a fifth of them, on which the global model has trained.
        notes: gives what went wrong since the last call, in words, for the note of the round.
        facts: facts about the run for the record, beside those of every run.
        k_steps: changes of k: pairs of a round and the number of clients from that round on.
        every_round: whether every round is written to the record when it ends, because clients train on other machines and a round
            that is lost is their work.
        unseeded: names of generators without a seed from which the network or the loss draws, of which the user has been warned.
    """

    seed: int
    k: int
    clock: RoundClock
    selector: Selector
    algorithm: Algorithm
    engine: Engine
    model: ModelState
    plan: str = "loop"
    portrait: Callable[[], Portrait] = Portrait
    test_clients: Indices | None = None
    personal_data: str = "held-out samples"
    notes: Callable[[], list[str]] = list
    facts: Mapping[str, str] = field(default_factory=dict)
    k_steps: Sequence[tuple[int, int]] = ()
    every_round: bool = False
    unseeded: frozenset[str] = frozenset()

    def k_at(self, t: int) -> int:
        """Number of clients to select in round ``t``."""
        return k_in_round(self.k, self.k_steps, t)

    @property
    def validates(self) -> bool:
        """Whether the strategy learns from the server's validation set, so that every round must evaluate it."""
        return "validation" in self.selector.needs

    @property
    def device(self) -> torch.device:
        """The device that holds the model."""
        return next(iter(self.model.values())).device

    def accuracy_by_client(self, tested: Evaluation) -> Values | None:
        """Accuracy on each client's own test samples, float64 [m], from an evaluation on the test set; None if they have none."""
        if self.test_clients is None:
            return None
        return accuracy_by_client(tested.hits, self.test_clients, len(self.clock.num_samples))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next round depends on, for the checkpoint."""
        return {
            "model": self.model,
            "selector": self.selector.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "engine": self.engine.state_dict(),
            "clock": dict(self.clock.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint; the models of earlier versions have frozen parameters as well."""
        self.model = {name: state["model"][name] for name in self.model}
        self.selector.load_state_dict(state["selector"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.engine.load_state_dict(state["engine"])
        self.clock.load_state_dict(state["clock"])
