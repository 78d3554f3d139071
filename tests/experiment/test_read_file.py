"""Reading an experiment file: paths in it."""

from pathlib import Path

import pytest

from tests.experiments import small


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


def test_a_description_with_the_times_of_many_clients_can_be_read_again(tmp_path: Path) -> None:
    """The record of a run has such a description; it could not be read, so neither could the run."""
    from fedcohort.experiment import load

    times = [1 + client / 7 for client in range(60_000)]
    latency = {"name": "given_times", "times_of_clients": times}
    experiment = small(federation={"clients": len(times)}, systems={"latency": latency}).single(0)
    file = tmp_path / "experiment.toml"
    file.write_text(experiment.to_toml())
    assert file.stat().st_size > 1_000_000
    for recorded in (False, True):
        assert load(file, recorded=recorded).systems.latency.parameters["times_of_clients"] == times
