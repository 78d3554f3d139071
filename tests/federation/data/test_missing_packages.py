"""Data that need the extra ``hub``, where its packages are not installed."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.load_dataset import load
from tests.cli.test_cli import call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images, and an empty cache."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    for label in ("a", "b"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(6):
            Image.new("L", (4, 4), number).save(tmp_path / "images" / label / f"{number}.png")
    return tmp_path / "images"


@pytest.mark.parametrize(("module", "package"), [("datasets", "datasets"), ("pyarrow.parquet", "pyarrow")])
def test_the_error_names_the_package_and_the_command(
    module: str, package: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as error:
        load(str(folder))
    assert str(error.value).startswith("data.name = '")
    assert str(error.value).endswith(
        f"/images': folders of images and data sets of the Hugging Face Hub need the package {package}, which is not installed; "
        "pip install 'fedcohort[hub]'"
    )


def test_the_command_line_says_it_in_one_line(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    result = call("run", "--set", "data.name=mnist", "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "pip install 'fedcohort[hub]'" in result.stderr


def test_a_parquet_file_names_the_command_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_engine(_: Path, **__: object) -> None:
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pd, "read_parquet", no_engine)
    pd.DataFrame({"feature": [1.0, 2.0], "label": [0, 1]}).to_parquet(tmp_path / "table.parquet")
    result = call("run", "--set", f"data.name={tmp_path / 'table.parquet'}", "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    assert result.stderr.endswith(
        "Parquet files need the package pyarrow, which is not installed; pip install 'fedcohort[hub]'\n"
    )


def test_cached_and_embedded_data_need_no_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(str(folder))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert load(str(folder)).fingerprint == before.fingerprint
    assert load("digits").num_train > 1000
