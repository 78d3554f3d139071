"""The run directory of a deployment: the same record as that of a simulation, with wall time as its clock."""

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import flwr
import numpy as np
from flwr.app import ArrayRecord

from fedcohort.core.arrays import Indices
from fedcohort.core.version import __version__
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.plugin_facts import plugin_facts
from fedcohort.record import Portrait, RoundRow, Run, Writer, create_run, writing
from fedcohort.record.recorded_plugins import FACTS, FILES
from fedcohort.selection import Census, Selector

__all__ = ["RunRecord", "hash_of", "portrait_of"]


def hash_of(arrays: ArrayRecord) -> str:
    """A hash of the names and the values of arrays."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array.numpy()).tobytes())
    return digest.hexdigest()


class RunRecord:
    """The run directory that the decisions are written to.

    Args:
        runs: folder of run directories.
        name: beginning of the directory's name.
        strategy: name of the inner strategy.
        selector: the selection strategy, before its first round.
        k, seed, rounds: settings of the run; ``rounds`` is 0 if the number is unknown.
        start: a hash of the initial arrays.

    Attributes:
        path: the run directory.
    """

    def __init__(
        self,
        runs: str | Path,
        name: str,
        strategy: str,
        selector: Selector,
        *,
        k: int,
        seed: int,
        rounds: int,
        start: str,
    ) -> None:
        self._given = Given(selector=selector)
        self._name, self._strategy = name, strategy
        self._label = f"{type(selector).__name__} + {strategy}"
        self._k, self._seed, self._rounds, self._start = k, seed, rounds, start
        self._stack = ExitStack()
        self._writer: Writer | None = None
        self.path = self._place(Path(runs))

    def saved(self) -> tuple[int, dict[str, Any]] | None:
        """The last round and the state of a run that was interrupted; None if there is none."""
        return Run(self.path).checkpoint() if (self.path / "run.sqlite").exists() else None

    def begin(self, census: Census, names: list[str], last: int) -> None:
        """Create the run directory, or continue after round ``last``."""
        experiment = self._experiment(census.num_clients)
        head = (
            f"# data: of {census.num_clients} clients of a Flower federation: {', '.join(names[:20])}"
            f"{', …' if len(names) > 20 else ''}\n# algorithm: Flower's {self._strategy}\n"
        )
        meta = {
            "name": experiment.name,
            "label": self._label,
            "seed": str(self._seed),
            "key": self._key(self._seed),
            "row": self._key(0),
            "public": "none",
            "given": "selector, Flower app",
            "algorithm": self._strategy,
            "plan": "flower",
            "clock": "wall",
            "ours": "",
            **self._given.classes(),
            "data": hashlib.sha256("\n".join(names).encode()).hexdigest(),
            FACTS: json.dumps(plugin_facts(experiment, {"algorithm", *self._given.sections()})),
            FILES: "{}",
            "fedcohort": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "flwr": flwr.__version__,
        }
        run = create_run(self.path, self._given.note() + head + experiment.to_toml(), meta)
        self._writer = self._stack.enter_context(writing(run))
        if not run.portrait.facts:
            self._writer.describe(portrait_of(census, names=names))
        self._writer.rewind(last)

    def write(self, row: RoundRow, state: Mapping[str, Any]) -> None:
        """Commit a round with its checkpoint."""
        assert self._writer is not None
        self._writer.record([row], self._writer.save(row.round, state))

    def finish(self, model: Mapping[str, Any]) -> None:
        """Save the final model, mark the run as finished, and close it."""
        assert self._writer is not None
        self._writer.finish(model)
        self.close()

    def close(self) -> None:
        """Release the run directory."""
        self._stack.close()
        self._writer = None

    def _experiment(self, clients: int, seed: int | None = None) -> Experiment:
        return Experiment(
            name=self._name,
            rounds=max(self._rounds, 1),
            seed=self._seed if seed is None else seed,
            seeds=1,
            federation={"clients": clients},
            selection={"name": "uniform", "k": self._k},
        )

    def _key(self, seed: int) -> str:
        """A hash of the settings, without the clients: they are known only after first contact."""
        return self._experiment(self._k, seed).key(f"{self._given.key()}|flower {self._strategy}|{self._start}")

    def _place(self, runs: Path) -> Path:
        """The directory of an interrupted run with the same settings, or that of a new run."""
        words = f"{self._name}-{self._label}-seed{self._seed}"
        slug = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")[:80]
        base, number = f"{slug}-{self._key(self._seed)}", 1
        while True:
            path = runs / (base if number == 1 else f"{base}-{number}")
            if not (path / "run.sqlite").exists() or not Run(path).finished:
                return path
            number += 1


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
