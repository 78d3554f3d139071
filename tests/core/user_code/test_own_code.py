"""Which files are code of the user."""

from pathlib import Path

import pytest
import torch

import fedcohort
from fedcohort.core.user_code.own_code import is_of_user


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


def test_a_folder_beside_the_package_whose_name_begins_like_it_is_of_the_user() -> None:
    """Errors in such a file were taken for bugs of FedCohort."""
    package = Path(fedcohort.__file__).parent
    assert is_of_user(str(package.with_name("fedcohort_own") / "strategy.py"))
    assert is_of_user(str(package.with_name("fedcohort_own.py")))
