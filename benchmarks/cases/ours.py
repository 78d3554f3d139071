"""Rounds of FedCohort, as a whole run plays them: selection, training, record and checkpoint."""

import logging
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fedcohort
import fedcohort.rounds
import fedcohort.runs.play_run
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.token_data import from_tokens

from .definitions import VOCABULARY, Case
from .networks import build

__all__ = ["play_run"]

MOST_ROUNDS = 100_000
"""Rounds of the run, which ends with its process."""


def experiment_of(case: Case, plan: str) -> fedcohort.Experiment:
    """The experiment of a case. Without images that are evaluated after every round, the run evaluates only at its end."""
    asks = {"name": "powd", "d": case.candidates} if case.candidates else {"name": "uniform"}
    own = {"own_prox": f"{Path(__file__).with_name('own_algorithms.py')}:OwnProx"}
    algorithm = {"name": own.get(case.algorithm, case.algorithm)} | ({"mu": 0.1} if case.algorithm == "fedprox" else {})
    return fedcohort.Experiment(
        name=f"case-{case.name}",
        seeds=1,
        rounds=MOST_ROUNDS,
        data={"validation": 0.0},
        federation={"clients": case.clients, "partition": {"name": "natural", "min_size": 1}},
        algorithm=algorithm,
        selection={"k": case.k, **asks},
        training={
            "batch_size": case.batch,
            "lr": case.lr,
            "momentum": case.momentum,
            "optimizer": case.optimizer,
            "loss": {"name": case.loss},
            "clip_norm": case.clip,
            "augment": case.augment,
        },
        engine={"plan": plan, "arithmetic": case.arithmetic, "threads_per_client": case.threads_per_client},
        measures={"evaluate_every": 1 if case.test else MOST_ROUNDS},
    )


def dataset(case: Case) -> Dataset:
    """The samples of a case."""
    train, train_labels, test, test_labels = case.arrays()
    pairs, clients = ((train, train_labels), (test, test_labels)), case.client_of_samples()
    if case.features == "tokens":
        return from_tokens(*pairs, vocabulary=VOCABULARY, clients=clients)
    return fedcohort.from_arrays(*pairs, clients=clients, standardise=True)


def play_run(case: Case, plan: str, wait: Callable[[dict[str, Any] | None], None]) -> None:
    """Play a run, and wait for a turn before every ``case.rounds`` rounds.

    Records and checkpoints are due by time. Their clock stands still while the run waits for a turn, so that they are as frequent as
    in a run without pauses.

    Args:
        case: the case.
        plan: plan of the engine.
        wait: called before every turn with the clients and the steps of the rounds before, and the plan; None before the first turn.
    """
    played: list[tuple[list[int], int]] = []
    waited = 0.0
    play_round: Callable[..., Any] = fedcohort.rounds.play_round

    def in_turns(run_state: Any, t: int, **values: Any) -> Any:
        nonlocal waited
        if (t - 1) % case.rounds == 0:
            facts = {
                "clients": [clients for clients, _ in played],
                "steps": sum(steps for _, steps in played),
                "plan": run_state.engine.plan,
            }
            begin = time.monotonic()
            wait(facts if played else None)
            waited += time.monotonic() - begin
            played.clear()
        row = play_round(run_state, t, **values)
        played.append(([one.client for one in row.clients], row.steps))
        return row

    module: Any = fedcohort.runs.play_run
    checkpoint_times = module.CheckpointTimes
    log = logging.getLogger("fedcohort")
    level = log.level
    fedcohort.rounds.play_round = in_turns
    own_times: Any = partial(checkpoint_times, clock=lambda: time.monotonic() - waited)
    module.CheckpointTimes = own_times
    log.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix="fedcohort-cases-") as folder:
            fedcohort.run(
                experiment_of(case, plan),
                data=dataset(case),
                model=lambda: build(case),
                runs=Path(folder),
                progress=False,
            )
    finally:
        fedcohort.rounds.play_round = play_round
        module.CheckpointTimes = checkpoint_times
        log.setLevel(level)
