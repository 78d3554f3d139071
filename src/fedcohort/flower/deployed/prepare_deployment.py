"""Build everything that a deployed run needs: the server's data, the clients that are connected, the clock, the engine."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from fedcohort.algorithms import Algorithm
from fedcohort.chooser.decision_record import portrait_of
from fedcohort.core.arrays import Indices
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Partition
from fedcohort.flower.deployed.deployable import check_data, check_experiment, check_sites, gather_clients
from fedcohort.flower.deployed.deployment_clocks import ConnectedClock, WallClock
from fedcohort.flower.deployed.grid_engine import GridEngine
from fedcohort.flower.deployed.grid_link import GridLink
from fedcohort.flower.deployed.joining_clients import JoiningClients
from fedcohort.flower.deployed.site_roster import SiteRoster
from fedcohort.flower.roster import looks
from fedcohort.rounds import RunState
from fedcohort.rounds.round_clock import RoundClock
from fedcohort.runs.find_run import find_run
from fedcohort.runs.prepare_run import (
    check_model,
    federate,
    give_tools,
    model_of,
    plugins_of,
)
from fedcohort.runs.run_clock import clock_of
from fedcohort.runs.run_data import load_data
from fedcohort.selection import Census, Selector

__all__ = ["Deployed", "Deployment", "Time"]

Time = Literal["wall", "simulated"]
SIMULATED = (
    "# sites with their own data do not use federation.partition, holdout and label_noise, which are for simulations\n"
)
"""What the description of a deployed run says about settings that describe simulated clients."""


@dataclass(frozen=True)
class Deployed(Given):
    """Objects that replace settings of an experiment in a deployment. Its runs are other runs than those of a simulation.

    Attributes:
        time: the clock of the run.
    """

    time: Time = "wall"
    divides_data: ClassVar[bool] = False

    def key(self) -> str:
        """See :class:`~fedcohort.experiment.given_objects.Given`."""
        return f"{super().key()}|deployed, {self.time} time"

    def note(self) -> str:
        """See :class:`~fedcohort.experiment.given_objects.Given`."""
        head = f"# deployed: the clients are those of a Flower federation, with {self.time} time\n"
        return head + (SIMULATED if self.time == "wall" else "") + super().note()


@dataclass(frozen=True)
class Deployment:
    """Prepares a run over a Grid.

    Attributes:
        cell: the run.
        given: objects that replace settings, and the clock.
        link: carries messages.
        runs: folder of run directories.
        min_clients: number of clients with which the run begins; None for ``federation.clients``.
        authenticated: whether the keys of nodes count.
    """

    cell: Cell
    given: Deployed
    link: GridLink
    runs: str | Path
    min_clients: int | None = None
    authenticated: bool = True

    @contextmanager
    def prepare(self, experiment: Experiment, given: Given) -> Iterator[tuple[RunState, str]]:
        """As :func:`fedcohort.runs.prepare_run.prepare`; waits until ``federation.clients`` clients are connected.

        Raises:
            UsageError: something in the experiment is only for simulations, or the clients do not come or do not fit it.
        """
        check_experiment(experiment, wall=self.given.time == "wall")
        dataset, public = load_data(experiment, given)
        selector, algorithm = plugins_of(experiment, given)
        if algorithm.pools:
            raise UsageError(f"algorithm = {type(algorithm).__name__}: pools the data of all clients; use another one")
        model = model_of(experiment, given)
        check_data(experiment, dataset, model)
        federation = _server_federation(experiment, given, dataset)
        check_model(experiment, given, model, federation)
        give_tools(algorithm, model, federation, public, experiment.seed)
        roster = self._roster(len(dataset.classes), experiment.federation.clients, federation.sample_shape)
        described = experiment.to_dict()
        engine = GridEngine(
            federation, model, experiment.training, algorithm, experiment.seed, experiment.engine.workers,
            link=self.link, roster=roster, run=experiment.key(given.key()),
            described={name: described[name] for name in ("model", "training", "algorithm")},
            deadline=experiment.systems.deadline if self.given.time == "wall" else None,
        )  # fmt: skip
        try:
            census = _census(experiment, selector, algorithm, engine)
            check_sites(selector, census, roster)
            selector.setup(census)
            roster.takes_in = JoiningClients(selector, roster)
            roster.closed = "a rehearsal has the clients of the local run"
            if self.given.time == "wall":
                roster.closed = ""
                roster.ignored.clear()  # sites that could not join while the run was being prepared are asked again
            held_out = np.zeros(census.num_clients, dtype=np.int64)
            held_out[: len(roster.clients)] = [client.held_out for client in roster.clients]
            names = [client.name for client in roster.clients]
            portrait = partial(portrait_of, census, classes=dataset.classes, held_out=held_out, names=names)
            clock = self._clock(experiment, engine, algorithm, census)
            run_state = RunState(
                experiment.seed, experiment.selection.k, clock, selector, algorithm, engine, engine.initial_model(), engine.plan,
                portrait, notes=engine.take_notes,
                facts={"clock": self.given.time, "clients": ", ".join(names)[:1000]},
                k_steps=experiment.selection.k_steps, every_round=True,
            )  # fmt: skip
            yield run_state, public.fingerprint
        finally:
            engine.close()

    def _roster(self, classes: int, expected: int, shape: Sequence[int]) -> SiteRoster:
        """Wait for enough connected clients. A resumed run continues with those of its clients that connect in time."""
        roster, saved = SiteRoster(classes, expected, shape, authenticated=self.authenticated), self._saved()
        if saved is not None:
            roster.load_state_dict(saved)
        enough = expected if self.min_clients is None else self.min_clients
        gather_clients(self.link, roster, expected, enough, after_patience=enough if saved is None else 1)
        if saved is None:
            roster.fix()
        return roster

    def _saved(self) -> Mapping[str, Any] | None:
        """The state of the clock of the run that is resumed, which has the clients; None for a new run."""
        record = find_run(self.cell, self.given, self.runs)
        saved = None if record is None else record.checkpoint(quiet=True)
        return None if saved is None else saved[1]["clock"]

    def _clock(self, experiment: Experiment, engine: GridEngine, algorithm: Algorithm, census: Census) -> RoundClock:
        roster = engine.roster
        present = partial(_present, self.link, roster, engine.notes)
        if self.given.time == "wall":
            epochs = algorithm.local_training(experiment.training).epochs
            return WallClock(census.num_samples.copy(), roster, epochs, present, engine.times, self.link.clock)
        model = engine.initial_model()
        clock = clock_of(experiment, experiment.systems, roster.sizes(), algorithm, model, ConnectedClock)
        clock.roster, clock.present = roster, present
        return clock


def _present(link: GridLink, roster: SiteRoster, notes: list[str]) -> Indices:
    """The connected clients; waits while there are none, at most for the patience of the link."""
    for _ in looks(link.patience):
        notes += roster.meet(link)
        if roster.connected:
            break
    return roster.present()


def _server_federation(experiment: Experiment, given: Given, dataset: Dataset) -> Federation:
    """The server's validation and test sets, and how samples are standardized, without any client's data."""
    if experiment.federation.feature_shift.name != "none":  # it may shift the test set as well, as in the simulation
        federation = federate(experiment, given).federation
    else:
        empty = Partition(np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64))
        federation = gather(dataset, empty, validation=experiment.data.validation, seed=experiment.seed)
    nothing = federation.train[:0]
    return Federation(
        nothing, np.zeros(2, dtype=np.int64), federation.validation, federation.test, federation.classes, federation.shift,
        federation.scale,
    )  # fmt: skip


def _census(experiment: Experiment, selector: Selector, algorithm: Algorithm, engine: GridEngine) -> Census:
    """The facts about the clients that the strategy receives before the first round."""
    start, roster = engine.initial_model(), engine.roster
    training = algorithm.local_training(experiment.training)
    selected = int(np.ceil(round(experiment.systems.overcommit * experiment.selection.k, 9)))
    return Census(
        roster.sizes(),
        roster.classes,
        min(selected, len(roster.sizes())),
        roster.histogram() if "histogram" in selector.needs else None,
        training.epochs,
        sum(start[name].numel() for name in engine.trainable),
        batch_size=training.batch_size,
        rounds=experiment.rounds,
    )
