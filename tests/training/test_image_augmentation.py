"""Images changed at random: what happens to them, and that it depends on nothing but names."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedcohort.core.errors import UsageError
from fedcohort.experiment.given_objects import Given
from fedcohort.runs.play_run import run_cell
from fedcohort.training.image_augmentation import MAX_SHIFT, Changes
from tests.experiments import cell, small


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_half_of_the_images_are_mirrored_and_nothing_else() -> None:
    images = torch.rand(1000, 2, 5, 6)
    changes = Changes.draw("flip", 1000, draws(), torch.device("cpu"))
    found = changes(images, torch.arange(1000))
    assert 400 < int(changes.mirrored.sum()) < 600
    assert torch.equal(found[~changes.mirrored], images[~changes.mirrored])
    assert torch.equal(found[changes.mirrored], images[changes.mirrored].flip(3))


def test_images_are_shifted_as_drawn() -> None:
    images = torch.rand(300, 2, 9, 11) + 1
    changes = Changes.draw("flip_shift", 300, draws(), torch.device("cpu"))
    assert changes.down is not None
    assert changes.right is not None
    assert set(changes.down.tolist()) == set(changes.right.tolist()) == set(range(-MAX_SHIFT, MAX_SHIFT + 1))
    found = changes(images, torch.arange(300))
    assert found.shape == images.shape
    for i in range(300):
        down, right = int(changes.down[i]), int(changes.right[i])
        image = images[i].flip(2) if changes.mirrored[i] else images[i]
        expected = torch.zeros_like(image)
        for y in range(9):
            for x in range(11):
                if 0 <= y - down < 9 and 0 <= x - right < 11:
                    expected[:, y, x] = image[:, y - down, x - right]
        assert torch.equal(found[i], expected)


def test_what_happens_to_a_sample_does_not_depend_on_its_batch() -> None:
    images = torch.rand(20, 3, 8, 8)
    changes = Changes.draw("flip_shift", 20, draws(), torch.device("cpu"))
    whole = changes(images, torch.arange(20))
    some = torch.tensor([7, 3, 19])
    assert torch.equal(changes(images[some], some), whole[some])


def test_runs_with_changes_repeat_on_any_number_of_threads(tmp_path: Path) -> None:
    def digest(workers: int, **training: str) -> str:
        experiment = small(
            training={"epochs": 2, **training}, model={"name": "cnn_strided"}, engine={"workers": workers}, rounds=2
        )
        return run_cell(cell(experiment), Given(), runs=tmp_path / f"{workers}{training}").digest()

    changed = digest(1, augment="flip_shift")
    assert digest(2, augment="flip_shift") == changed
    assert digest(1) != changed


def test_tables_cannot_be_mirrored(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"training.augment = 'flip': needs images"):
        run_cell(
            cell(small(data={"name": "breast_cancer"}, federation={"partition": "iid"}, training={"augment": "flip"})),
            Given(),
            runs=tmp_path,
        )


def test_stacks_say_that_they_cannot(tmp_path: Path) -> None:
    experiment = small(training={"augment": "flip"}, engine={"plan": "stacked"}, rounds=1)
    with pytest.warns(UserWarning, match="images are changed at random; clients are trained by threads"):
        run_cell(cell(experiment), Given(), runs=tmp_path)
