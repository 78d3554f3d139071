"""One run as charts and tables of a report need it."""

from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.record import Portrait, Run
from fedcohort.report.data.client_rounds import ClientRounds
from fedcohort.report.figures.shortened_names import short
from fedcohort.study.chance import Chance, chance_in
from fedcohort.study.run_measures import bytes_per_round, clients_with_data

if TYPE_CHECKING:
    import pandas as pd

    from fedcohort.experiment import Experiment

__all__ = ["Reading"]


class Reading:
    """One run as charts need it: its tables, and what is computed from them. Everything is read once.

    Attributes:
        run: the run; its tables end at the same round, see :class:`~fedcohort.report.data.cached_run.CachedRun`.
        label: label of its row, shortened for charts.
    """

    def __init__(self, run: Run, label: str) -> None:
        self.run, self.label = run, label

    def called(self, label: str) -> "Reading":
        """The same run under another label; what is computed already is not computed again."""
        other = copy(self)
        other.label = label
        return other

    @cached_property
    def meta(self) -> dict[str, str]:
        """Label, versions and status of the run."""
        return self.run.meta

    @cached_property
    def experiment(self) -> "Experiment":
        """The resolved experiment, as it was recorded."""
        return self.run.described

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row for each round."""
        return self.run.rounds

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row for each selected client of each round."""
        return self.run.clients

    @cached_property
    def ledger(self) -> "pd.DataFrame":
        """Cost: one row for each kind of exchange in each round."""
        return self.run.ledger

    @cached_property
    def wall(self) -> "pd.DataFrame":
        """Wall time of the simulator in seconds, by part of a round."""
        return self.run.wall

    @cached_property
    def portrait(self) -> Portrait:
        """The clients: samples, classes, speed, label noise."""
        return self.run.portrait

    @cached_property
    def client_accuracy(self) -> "pd.DataFrame":
        """Accuracy of the model on each client's own data, rounds × clients; empty if it was not measured."""
        return self.run.client_accuracy

    @property
    def num_clients(self) -> int:
        """Number of clients, m."""
        return int(self.experiment.federation.clients)

    @cached_property
    def clients_with_data(self) -> int:
        """Number of clients with data, see :func:`~fedcohort.study.run_measures.clients_with_data`."""
        return clients_with_data(self.client_accuracy, self.portrait.facts.get("samples"), self.num_clients)

    @property
    def num_rounds(self) -> int:
        """Number of rounds played so far, n."""
        return len(self.rounds)

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.meta["seed"])

    @cached_property
    def finished(self) -> bool:
        """Whether all rounds have been played."""
        return self.meta["status"] == "finished"

    @property
    def ended(self) -> bool:
        """Whether the run has no further round to play."""
        return self.finished or self.num_rounds >= self.experiment.rounds

    @cached_property
    def bytes(self) -> Values:
        """Bytes sent and received up to the end of each round [n]."""
        return np.cumsum(bytes_per_round(self.ledger, self.rounds.index))

    @cached_property
    def selected(self) -> ClientRounds:
        """The clients that were selected in each round."""
        return ClientRounds.of(self.clients, self.num_rounds, self.num_clients)

    @cached_property
    def admitted(self) -> ClientRounds:
        """The clients whose updates entered the model in each round."""
        entered = self.clients[self.clients["status"] == "admitted"]
        return ClientRounds.of(entered, self.num_rounds, self.num_clients)

    @cached_property
    def chance(self) -> Chance:
        """What uniform selection of as many of the available clients gives in each round."""
        return chance_in(self.experiment, self.portrait.facts.get("samples"), self.rounds)

    @cached_property
    def class_accuracy(self) -> Values:
        """Test accuracy of each class [n, K]; NaN where it was not measured."""
        rows = self.rounds["class_accuracy"].tolist()
        width = max((len(row) for row in rows), default=0)
        return np.array([row if row else [np.nan] * width for row in rows], dtype=np.float64).reshape(len(rows), width)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes, shortened for charts; numbers if the run has no names."""
        number = self.class_accuracy.shape[1] or len(self.portrait.classes)
        names = self.portrait.classes or tuple(map(str, range(number)))
        return short(names, 16)

    def decisions(self, *, selected_only: bool = False) -> "pd.DataFrame":
        """Round, client, selected, score and terms of every candidate, or of the selected clients only."""
        return self.run.read_decisions(selected_only=selected_only)

    @property
    def considered(self) -> int:
        """Number of recorded candidates, over all rounds."""
        return self.run.number_of_decisions
