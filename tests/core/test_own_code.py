"""Which files are code of the user."""

from pathlib import Path

import pytest
import torch

import fedcohort
from fedcohort.core.own_code import is_of_user


@pytest.mark.parametrize(
    "folder",
    [
        ".local/lib/python3.11/site-packages/torch/nn",  # pip install --user
        "software/PyTorch/2.13/lib/python3.11/site-packages/torch",  # a folder of PYTHONPATH, as on clusters
        "usr/local/lib/python3.11/dist-packages/timm",  # a package of the system in an environment of its own
    ],
)
def test_installed_packages_in_other_folders_are_not_of_the_user(folder: str, tmp_path: Path) -> None:
    assert not is_of_user(str(tmp_path / folder / "module.py"))


def test_files_of_the_user() -> None:
    assert is_of_user(__file__)
    assert not is_of_user(str(torch.__file__))
    assert not is_of_user(str(fedcohort.__file__))
