"""The run directory of a Flower federation: where it is, and how an interrupted run is found again."""

import hashlib
import re
from pathlib import Path
from typing import Any

import flwr
import numpy as np
from flwr.app import ArrayRecord

from fedcohort.chooser.decision_record import DecisionRecord
from fedcohort.record import Run
from fedcohort.selection import Selector

__all__ = ["RunRecord", "hash_of"]


def hash_of(arrays: ArrayRecord) -> str:
    """A hash of the names and the values of arrays."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array.numpy()).tobytes())
    return digest.hexdigest()


class RunRecord(DecisionRecord):
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
        label = f"{type(selector).__name__} + {strategy}"
        super().__init__(
            selector, name, label, federation="a Flower federation", algorithm=f"Flower's {strategy}",
            k=k, seed=seed, rounds=rounds, identity=f"flower {strategy}|{start}",
            facts={"given": "selector, Flower app", "algorithm": strategy, "plan": "flower", "flwr": flwr.__version__},
        )  # fmt: skip
        self.path = self._place(Path(runs), name, label, seed)

    def saved(self) -> tuple[int, dict[str, Any]] | None:
        """The last round and the state of a run that was interrupted; None if there is none."""
        return Run(self.path).checkpoint() if (self.path / "run.sqlite").exists() else None

    def _place(self, runs: Path, name: str, label: str, seed: int) -> Path:
        """The directory of an interrupted run with the same settings, or that of a new run."""
        slug = re.sub(r"[^a-z0-9.]+", "-", f"{name}-{label}-seed{seed}".lower()).strip("-")[:80]
        base, number = f"{slug}-{self.key(seed)}", 1
        while True:
            path = runs / (base if number == 1 else f"{base}-{number}")
            if not (path / "run.sqlite").exists() or not Run(path).finished:
                return path
            number += 1
