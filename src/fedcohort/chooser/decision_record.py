"""The run directory of a server outside simulations: the same record as that of a simulation, with wall time as its clock."""

import hashlib
import json
import platform
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.core.arrays import Indices
from fedcohort.core.errors import one_line
from fedcohort.core.version import __version__
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.plugin_facts import plugin_facts
from fedcohort.record import Portrait, RoundRow, Saved, Writer, create_run, writing
from fedcohort.record.recorded_plugins import FACTS, FILES
from fedcohort.selection import Census, Selector

__all__ = ["DecisionRecord", "portrait_of"]


class DecisionRecord:
    """A run directory that the decisions of a server are written to.

    Args:
        selector: the selection strategy, before its first round.
        name: name of the experiment.
        label: label of the row.
        federation: whose clients they are, in words.
        algorithm: what merges the updates, in words.
        k, seed, rounds: settings of the run; ``rounds`` is 0 if the number is unknown.
        identity: what determines the results besides these settings and the strategy.
        facts: facts about the run by name, such as versions of packages.

    Attributes:
        path: the run directory; set before :meth:`begin`.
    """

    path: Path

    def __init__(
        self,
        selector: Selector,
        name: str,
        label: str,
        *,
        federation: str,
        algorithm: str,
        k: int,
        seed: int,
        rounds: int,
        identity: str,
        facts: Mapping[str, str],
    ) -> None:
        self._given = Given(selector=selector)
        self._name, self._label, self._federation, self._algorithm = name, label, federation, algorithm
        self._k, self._seed, self._rounds = k, seed, rounds
        self._identity, self._facts = identity, facts
        self._stack = ExitStack()
        weakref.finalize(self, self._stack.close)  # also at the end of a program that does not close it
        self._writer: Writer | None = None

    def key(self, seed: int) -> str:
        """A hash of the settings, without the clients: a server may know them only after first contact."""
        return self._experiment(self._k, seed).key(f"{self._given.key()}|{self._identity}")

    def begin(self, census: Census, names: Sequence[str], last: int, classes: Sequence[str] = ()) -> None:
        """Create the run directory, or continue after round ``last``; ``names`` are those of the clients, by number."""
        experiment = self._experiment(census.num_clients, self._seed)
        listed = f": {', '.join(map(one_line, names[:20]))}{', …' if len(names) > 20 else ''}" if names else ""
        head = (
            f"# data: of {census.num_clients} clients of {self._federation}{listed}\n# algorithm: {self._algorithm}\n"
        )
        meta = {
            "name": experiment.name,
            "label": self._label,
            "seed": str(self._seed),
            "key": self.key(self._seed),
            "row": self.key(0),
            "public": "none",
            "clock": "wall",
            "ours": "\n".join(self._given.ours(experiment)),
            **self._given.classes(),
            "data": hashlib.sha256("\n".join(names).encode()).hexdigest(),
            FACTS: json.dumps(plugin_facts(experiment, {"algorithm", *self._given.sections()})),
            FILES: "{}",
            "fedcohort": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            **self._facts,
        }
        run = create_run(self.path, self._given.note() + head + experiment.to_toml(), meta)
        self._writer = self._stack.enter_context(writing(run))
        if not run.portrait.facts:
            self._writer.describe(portrait_of(census, classes, names=names))
        self._writer.rewind(last)

    def write(self, row: RoundRow, state: Mapping[str, Any] | None = None) -> None:
        """Commit a round, with its checkpoint if there is a ``state``. It survives a power loss: the server's own state may, too."""
        assert self._writer is not None
        saved: Saved | None = None if state is None else self._writer.save(row.round, state)
        self._writer.record([row], saved, durable=True)

    def finish(self, model: Mapping[str, Any]) -> None:
        """Save the final model, mark the run as finished, and close it."""
        assert self._writer is not None
        self._writer.finish(model)
        self.close()

    def close(self) -> None:
        """Release the run directory."""
        self._stack.close()
        self._writer = None

    def _experiment(self, clients: int, seed: int) -> Experiment:
        return Experiment(
            name=self._name,
            rounds=max(self._rounds, 1),
            seed=seed,
            seeds=1,
            federation={"clients": clients},
            selection={"name": "uniform", "k": self._k},
        )


def portrait_of(
    census: Census, classes: Sequence[str] = (), held_out: Indices | None = None, names: Sequence[str] = ()
) -> Portrait:
    """What the server knows about the clients.

    Args:
        census: the clients.
        classes: names of the classes; by default their numbers.
        held_out: number of samples that each client holds out; by default none.
        names: the clients' names, by number; clients that join later have none.
    """
    m = census.num_clients
    facts: dict[str, np.ndarray] = {
        "samples": census.num_samples.astype(np.int64),
        "held_out": np.zeros(m, np.int64) if held_out is None else held_out,
        "wrong_labels": np.zeros(m),
        "time": np.full(m, np.nan),
        "sending": np.full(m, np.nan),
        "presence": np.full(m, np.nan),
    }
    if census.histogram is not None:
        facts["counts"] = census.histogram.astype(np.int64)
    named = any(name != str(i) for i, name in enumerate(names))
    return Portrait(
        tuple(classes) or tuple(str(c) for c in range(census.num_classes)),
        facts,
        (*names, *([""] * (m - len(names)))) if named else (),
    )
