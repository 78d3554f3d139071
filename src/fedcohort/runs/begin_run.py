"""Create the directory of a run, with its description, the facts about it, and copies of the users' own files."""

import hashlib
import json
import platform
from pathlib import Path

import numpy
import torch

from fedcohort.algorithms import Algorithm, Training
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.tensor_sizes import num_bytes
from fedcohort.core.version import __version__
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.plugin_facts import plugin_facts
from fedcohort.experiment.plugin_files import copied
from fedcohort.experiment.tasks import label_kind
from fedcohort.record import Run, create_run
from fedcohort.record.recorded_plugins import FACTS, FILES
from fedcohort.rounds import RunState
from fedcohort.runs.initial_weights import check_resumed_weights, weights_of
from fedcohort.runs.run_data import key_of

__all__ = ["begin_run"]


def begin_run(path: Path, cell: Cell, given: Given, run_state: RunState, fingerprint: str) -> Run:
    """Create the run directory, or open it if the run was interrupted.

    Raises:
        UsageError: the interrupted run began with other weights.
    """
    experiment = cell.experiment
    public = experiment.public.words
    description, files = _with_own_files(experiment)
    if given.public_data is not None:
        public = f"proxy: {given.public_data.name}, labels discarded"
    meta = {
        "name": experiment.name,
        "label": cell.label,
        "seed": str(cell.seed),
        "key": key_of(experiment, given),
        "row": key_of(experiment.single(0), given),
        "public": public,
        "given": given.names(),
        "algorithm": _title(run_state.algorithm, experiment.training),
        "plan": run_state.plan,
        **({} if run_state.test_clients is None else {"client data": "test samples"}),
        **({"personal data": run_state.personal_data} if experiment.measures.personal_epochs else {}),
        "ours": "\n".join(given.ours(experiment)),
        **({"labels": "numbers"} if label_kind(experiment.training) == "numbers" else {}),
        **given.classes(),
        **weights_of(experiment, given, run_state),
        "model bytes": str(num_bytes([run_state.model])),
        **run_state.facts,
        "data": fingerprint,
        FACTS: json.dumps(plugin_facts(experiment, given.sections())),
        FILES: json.dumps({name: hashlib.sha256(content).hexdigest() for name, content in files.items()}),
        **_versions(),
    }
    run = create_run(path, given.note() + description, meta, files)
    check_resumed_weights(run, experiment, given, run_state)
    return run


def _title(algorithm: Algorithm, training: Training) -> str:
    """The algorithm's name in tables.

    Raises:
        UsageError: the algorithm of a user returns no text.
    """
    title: object = algorithm.title(training)
    if not isinstance(title, str):
        raise UsageError(
            f"{type(algorithm).__name__}.title returned {shown(title)}; it must return the algorithm's name, a text"
        )
    return title


def _with_own_files(experiment: Experiment) -> tuple[str, dict[str, bytes]]:
    """The description for the run directory, and copies of the users' own files, which it refers to: the originals may change."""
    names, files = copied(experiment.own_files())
    return experiment.to_toml(names), files


def _versions() -> dict[str, str]:
    """Versions of the software, for the record."""
    return {
        "fedcohort": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
