"""Reading an experiment file: paths in it."""

from pathlib import Path

import pytest


def test_a_data_folder_is_found_from_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.experiment import load

    (tmp_path / "here" / "pictures").mkdir(parents=True)
    (tmp_path / "here" / "digits").mkdir()
    file = tmp_path / "here" / "mine.toml"
    file.write_text('data.name = "pictures"\n[[variants]]\nlabel = "b"\ndata.name = "digits"\n')
    monkeypatch.chdir(tmp_path)
    rows = dict(load(file).rows())
    assert rows["uniform"].data.name == str(tmp_path / "here" / "pictures")
    assert rows["b"].data.name == "digits"
