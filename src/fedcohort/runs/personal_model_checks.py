"""Whether the personal models of a user's network can be measured, before clients train for it."""

import numpy as np
import torch

from fedcohort.core.errors import UsageError
from fedcohort.core.words.formatted_values import counted
from fedcohort.engines.initial_network import build_module
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.federation import Federation
from fedcohort.models import Model
from fedcohort.runs.run_data import has_own_model
from fedcohort.training.evaluation import BLOCK
from fedcohort.training.networks.model_states import DTYPES
from fedcohort.training.personal_models import measured_samples

__all__ = ["check_personal_models"]


def check_personal_models(experiment: Experiment, given: Given, model: Model, federation: Federation) -> None:
    """Refuse a network that cannot evaluate a single sample, if a client measures its personal model on a block of one.

    Batch norm without running statistics is such a network. Otherwise, the run would end in the round in which personal models are
    measured, which is often the last one.

    Raises:
        UsageError: the message names the client.
    """
    epochs = experiment.measures.personal_epochs
    if not epochs or not has_own_model(experiment, given):
        return
    sizes = measured_samples(federation)
    alone = np.flatnonzero((sizes % BLOCK == 1) & (federation.num_samples > 0))
    if not len(alone):
        return
    dtype = DTYPES[experiment.training.precision]
    module = build_module(model, federation, experiment.seed).to(dtype=dtype).eval()
    try:
        with torch.no_grad():
            module(federation.prepare(federation.test[:1].features, dtype))
    except Exception as error:
        client = alone[0]
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"measures.personal_epochs = {epochs}: the network cannot evaluate one sample alone ({reason}), and the personal model of "
            f"client {client} is measured on {counted(sizes[client], 'sample')}, {BLOCK} at a time; use batch norm with "
            "track_running_stats = True, or leave measures.personal_epochs out"
        ) from error
