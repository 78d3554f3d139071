"""What a run keeps of its clients: the numbers of the federation, for pictures that need no data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.experiment.given_objects import Given
from fedcohort.runs.prepare_run import federate, look
from tests.experiments import cell, small

HARD: dict[str, Any] = {
    "federation": {"clients": 9, "holdout": 0.2, "label_noise": {"name": "beta", "a": 30}},
    "systems": {"availability": {"name": "bernoulli", "probability": 0.5}},
}


@pytest.mark.parametrize("values", [{}, HARD], ids=["plain", "hard"])
def test_a_run_keeps_who_its_clients_are(values: dict[str, Any], tmp_path: Path) -> None:
    experiment = small(rounds=2, **values)
    run = fedcohort.run(experiment, runs=tmp_path)
    federation = federate(cell(experiment).experiment, Given()).federation
    _, survey = look(cell(experiment).experiment, Given())
    kept = run.portrait
    assert kept.classes == federation.classes
    np.testing.assert_array_equal(kept.facts["samples"], federation.num_samples)
    np.testing.assert_array_equal(kept.facts["held_out"], federation.num_held_out)
    np.testing.assert_array_equal(kept.facts["counts"], federation.histogram())
    np.testing.assert_array_equal(kept.facts["counts"].sum(axis=1), kept.facts["samples"])
    np.testing.assert_allclose(kept.facts["wrong_labels"], survey.wrong_labels)
    np.testing.assert_allclose(kept.facts["time"], survey.time)
    np.testing.assert_allclose(kept.facts["sending"], survey.sending)
    np.testing.assert_allclose(kept.facts["presence"], survey.presence)


def test_a_network_without_sizes_is_refused_in_a_look_at_the_clients() -> None:
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    with pytest.raises(UsageError, match=r"^model = Sequential: has lazy layers, .* use layers with sizes"):
        look(cell(small()).experiment, Given(model=lazy))


def test_image_augmentation_of_a_table_is_refused_in_a_look_at_the_clients() -> None:
    federation = {"clients": 4, "partition": "iid"}
    table = small(data={"name": "breast_cancer"}, federation=federation, training={"augment": "flip"})
    with pytest.raises(
        UsageError, match=r"^training\.augment = 'flip': needs images, but the samples have the shape \[30\]"
    ):
        look(cell(table).experiment, Given())
