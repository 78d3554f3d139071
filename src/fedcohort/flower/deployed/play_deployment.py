"""Play the rounds of an experiment in a Flower ServerApp."""

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import get_args

from flwr.serverapp import Grid

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import as_path, check_writable
from fedcohort.core.given_values import flag, seconds, whole_number
from fedcohort.experiment import Experiment, load
from fedcohort.flower.deployed.grid_link import GridLink
from fedcohort.flower.deployed.prepare_deployment import Deployed, Deployment, Time
from fedcohort.record import Run
from fedcohort.runs.play_run import Progress, run_cell

__all__ = ["play_deployment"]

log = logging.getLogger("fedcohort")


def play_deployment(
    grid: Grid,
    experiment: Experiment | str | Path,
    *,
    runs: str | Path = "runs",
    time: Time = "wall",
    patience: float = 600.0,
    min_clients: int | None = None,
    authenticated: bool = True,
    progress: Progress | None = None,
    clock: Callable[[], float] = monotonic,
) -> Run:
    """Play the first seed of an experiment with the sites of a federation as its clients, or resume it after its last checkpoint.

    Args:
        grid: the Grid of the ServerApp.
        experiment: an experiment, or the path of its file. ``federation.clients`` is the number of clients to wait for.
        runs: folder of run directories.
        time: ``wall``: times are seconds, as they are measured. ``simulated``: times and availability are those of the experiment's
            ``[systems]``, which gives the results of the local run; for rehearsals.
        patience: seconds to wait for clients and for replies.
        min_clients: number of clients with which the run begins; by default all of them. The others can join between rounds.
        authenticated: whether the SuperNodes authenticate themselves with registered keys, as sites do unless they are started with
            ``--insecure``. Then the name of a client belongs to the key that it was first used with. False for nodes without keys, to
            which Flower gives a new key at every start: their clients are known by their names alone.
        progress: called after every committed round.
        clock: seconds.

    Returns:
        The run.

    Raises:
        UsageError: the experiment cannot be played with these clients.
    """
    if time not in get_args(Time):
        raise UsageError(f"time = {shown(time)}: valid are {' and '.join(map(repr, get_args(Time)))}")
    patience = seconds("patience", patience)
    authenticated = flag("authenticated", authenticated)
    described = experiment if isinstance(experiment, Experiment) else load(experiment)
    [cell, *_] = described.base.cells()
    everyone = cell.experiment.federation.clients
    if min_clients is not None and whole_number("min_clients", min_clients, 1) > everyone:
        raise UsageError(f"min_clients = {min_clients}: must be at most federation.clients = {everyone}")
    check_writable(as_path(runs, "runs"), "runs =", folder=True)
    given, link = Deployed(time=time), GridLink(grid, patience, clock)
    deployment = Deployment(cell, given, link, runs, min_clients, authenticated)
    run = run_cell(cell, given, runs=runs, progress=progress, preparation=deployment.prepare)
    if not run.rounds["admitted"].any():
        log.warning(
            "no update was admitted in any round: the model is still the initial one; see the clients' status in %s",
            run.path,
        )
    return run
