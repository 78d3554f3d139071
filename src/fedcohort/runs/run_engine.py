"""Build the engine of a run: where and how its clients are trained."""

import logging
from typing import Literal

from fedcohort.algorithms import Algorithm
from fedcohort.core.errors import UsageError
from fedcohort.engines.cluster import host_pool
from fedcohort.engines.cluster.ray_engine import RayEngine
from fedcohort.engines.device import check_precision, pick_device
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment import Experiment
from fedcohort.federation.federation import Federation
from fedcohort.models import Model

__all__ = ["driver_device", "engine_of"]

log = logging.getLogger("fedcohort")
"""Reports which plan was chosen for ``engine.plan = "auto"``, and why."""


def driver_device(experiment: Experiment) -> str:
    """The device of the tensors in this process: the experiment's, or the CPU if clients are trained on a cluster."""
    check_precision(experiment.engine.device, experiment.training.precision)
    return "cpu" if experiment.engine.name == "ray" else pick_device(experiment.engine.device)


def engine_of(
    experiment: Experiment, model: Model, federation: Federation, algorithm: Algorithm, cohort: int
) -> LocalEngine | RayEngine:
    """The engine of the experiment, for about ``cohort`` clients a round.

    Raises:
        UsageError: the plan needs a cluster.
    """
    settings, training, seed = experiment.engine, experiment.training, experiment.seed
    if settings.name == "local":
        plan = _plan(experiment, model, federation, algorithm, cohort)
        return LocalEngine(
            federation, model, training, algorithm, seed, settings.workers, plan=plan, arithmetic=settings.arithmetic,
            threads_per_client=settings.threads_per_client,
        )  # fmt: skip
    pool = host_pool.shared_pool(
        settings.address, settings.workers, settings.threads_per_client, gpu=settings.device == "cuda",
        patience=settings.patience,
    )  # fmt: skip
    return RayEngine(
        federation, model, training, algorithm, seed, settings.workers,
        pool=pool, plan=settings.plan if settings.plan in ("stacked", "means") else "threads",
        arithmetic=settings.arithmetic, device=settings.device, threads_per_client=settings.threads_per_client,
    )  # fmt: skip


def _plan(
    experiment: Experiment, model: Model, federation: Federation, algorithm: Algorithm, cohort: int
) -> Literal["loop", "threads", "stacked"]:
    """How clients are trained: the plan of the experiment, or for "auto" the plan that is fastest for ``cohort`` clients a round.

    Raises:
        UsageError: the plan needs a cluster.
    """
    engine = experiment.engine
    if engine.plan == "means":
        raise UsageError("engine.plan = 'means': only with engine.name = 'ray'; use 'threads', 'stacked' or 'auto'")
    if engine.plan != "auto":
        return engine.plan
    if engine.threads_per_client > 1:
        return "threads"
    from fedcohort.engines.plans import choose_plan

    choice = choose_plan(
        federation, model, experiment.training, algorithm, experiment.seed, engine.workers, cohort, engine.arithmetic
    )
    log.info("%s", choice)
    return choice.plan
