"""What other programs are told: the record's numbers, through their own libraries; nothing unless asked."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.record import Run
from fedcohort.runs.trackers import tracker

SMALL = ["--set", "rounds=3", "--set", "seeds=1", "-q"]


def played(tmp_path: Path, *track: str) -> Run:
    options = [word for text in track for word in ("--track", text)]
    result = CliRunner().invoke(cli, ["run", *SMALL, *options, "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
    return Run(next((tmp_path / "runs").iterdir()))


def test_tensorboard_is_told_the_records_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = played(tmp_path, f"tensorboard:{tmp_path / 'logs'}")
    (folder,) = (tmp_path / "logs").glob("*/*")
    assert folder.name == "uniform, seed 0"
    events = EventAccumulator(str(folder)).Reload()
    told = [(event.step, event.value) for event in events.Scalars("test_accuracy")]
    assert told == [(t, pytest.approx(a)) for t, a in run.rounds["test_accuracy"].items()]
    spent = (run.ledger["bytes_down"] + run.ledger["bytes_up"]).groupby(run.ledger["round"]).sum()
    assert [event.value for event in events.Scalars("bytes")] == [pytest.approx(b) for b in spent]


def test_mlflow_is_told_and_finds_its_run_again(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    where = f"sqlite:///{tmp_path / 'mlflow.sqlite'}" if _has_sql() else str(tmp_path / "mlruns")
    run = played(tmp_path, f"mlflow:{where}")
    client = MlflowClient(tracking_uri=where)
    (experiment,) = [one for one in client.search_experiments() if one.name == "quickstart"]
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "test_accuracy")
    told = sorted((metric.step, metric.value) for metric in history)
    assert told == [(t, pytest.approx(a)) for t, a in run.rounds["test_accuracy"].items()]
    assert found.data.params["selection.k"] == "3"


def _has_sql() -> bool:
    try:
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
    except ImportError:
        return False
    return True


def test_nothing_is_told_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    played(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_a_tracker_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no such tracker.*'mlflow'"):
        tracker("mlfow:here")
    monkeypatch.setattr("fedcohort.runs.trackers.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'fedcohort\[tensorboard\]'"):
        tracker("tensorboard:logs")


def test_several_jobs_have_no_tracker(tmp_path: Path) -> None:
    tell = ["--track", f"tensorboard:{tmp_path}", "--jobs", "2", "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(cli, ["sweep", *SMALL, "--over", "selection.k=[2, 3]", *tell])
    assert result.exit_code == 2
    assert "--jobs 2: trackers work with one process only" in result.output


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_what_cannot_be_told_is_one_line_and_the_round_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip(name)
    (tmp_path / "file").write_text("no folder")
    where = f"{tmp_path / 'file' / 'logs'}" if name == "tensorboard" else "http://127.0.0.1:9"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = CliRunner().invoke(cli, ["run", *SMALL, "--track", f"{name}:{where}", "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert f"--track '{name}:{where}': " in result.output
    assert "Traceback" not in result.output
    assert len(Run(next((tmp_path / "runs").iterdir())).rounds) >= 1
