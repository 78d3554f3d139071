"""The weights with which a network of the user begins, which may come from a file: whether they are still those of a run's record."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from fedcohort.algorithms import ModelState
from fedcohort.core.errors import UsageError
from fedcohort.engines.initial_network import build_module
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.record import Run
from fedcohort.rounds import RunState
from fedcohort.runs.prepare_run import federate, model_of
from fedcohort.runs.run_data import fingerprint_of, has_own_model
from fedcohort.training.networks.model_states import DTYPES, state_of

__all__ = ["WEIGHTS", "check_finished_weights", "check_resumed_weights", "weights_of"]

WEIGHTS = "initial weights"
"""The name of the fingerprint in the record."""


def weights_of(experiment: Experiment, given: Given, run_state: RunState) -> dict[str, str]:
    """The fingerprint of the initial weights, by its name in the record.

    Empty for the models of FedCohort and for modules that were given in Python: their weights follow from the key of the run.
    """
    return {WEIGHTS: _fingerprint(_initial(run_state))} if _builds(experiment, given) else {}


def check_resumed_weights(record: Run, experiment: Experiment, given: Given, run_state: RunState) -> None:
    """Refuse to resume a run whose network begins with other weights now; ``run_state`` has the new ones.

    Raises:
        UsageError: the weights are others.
    """
    if WEIGHTS in record.meta and _builds(experiment, given):
        _check(record, experiment, given, _initial(run_state), partial(_initial, run_state))


def check_finished_weights(record: Run, experiment: Experiment, given: Given) -> None:
    """Refuse to open a finished run if its network begins with other weights now. A network that cannot be built is not checked.

    Raises:
        UsageError: the weights are others.
    """
    if WEIGHTS not in record.meta or not _builds(experiment, given):
        return
    samples, model = _kind_of_samples(experiment, given), model_of(experiment, given)

    def built() -> ModelState:
        module = build_module(model, samples, experiment.seed)
        return state_of(module.to(dtype=DTYPES[experiment.training.precision]))

    try:
        now = built()
    except Exception:  # such as a missing file: a run directory has a copy of the code, and none of the weights
        return
    _check(record, experiment, given, now, built)


def _initial(run_state: RunState) -> ModelState:
    """All entries of the network before the first round."""
    return run_state.engine.whole(run_state.engine.initial_model())


class _Kind(NamedTuple):
    """See :class:`~fedcohort.engines.initial_network.SampleKind`."""

    sample_shape: tuple[int, ...]
    num_outputs: int
    device: torch.device


_KINDS: dict[tuple[str, str], _Kind] = {}
"""By the fingerprint of the data and their settings, because dividing the data for every finished run would take long."""


def _kind_of_samples(experiment: Experiment, given: Given) -> _Kind:
    """What a network must know of the experiment's samples."""
    key = fingerprint_of(experiment, given), experiment.data.model_dump_json()
    if key not in _KINDS:
        federation = federate(experiment, given).federation
        _KINDS[key] = _Kind(federation.sample_shape, federation.num_outputs, federation.device)
    return _KINDS[key]


def _builds(experiment: Experiment, given: Given) -> bool:
    """Whether a function or class of the user builds the network."""
    return has_own_model(experiment, given) and not hasattr(given.model, "state_dict")


def _check(record: Run, experiment: Experiment, given: Given, now: ModelState, again: Callable[[], ModelState]) -> None:
    """Refuse weights ``now`` that differ from the record, unless the network has other weights each time that it is built."""
    fingerprint = _fingerprint(now)
    if fingerprint == record.meta[WEIGHTS] or fingerprint != _fingerprint(again()):
        return
    name = repr(experiment.model.name) if given.model is None else getattr(given.model, "__name__", "…")
    raise UsageError(
        f"{record.path}: began with other weights than model = {name} has now, such as those of another file; restore the file, "
        "delete the directory to start again, or use another directory (in commands: --runs)"
    )


def _fingerprint(model: ModelState) -> str:
    """A hash of all entries of a model."""
    digest = hashlib.sha256()
    for name, value in model.items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()[:16]
