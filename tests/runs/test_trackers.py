"""What other programs are told: the record's numbers, through their own libraries; nothing unless asked."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.record import Run
from fedcohort.runs import trackers
from fedcohort.runs.trackers import TRACKERS, WandB, tracker
from tests import records
from tests.experiments import cell, small

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


def test_tensorboard_shows_each_round_once_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds 3 and 4 are played again after a crash: what was told of rounds 1 and 2 stays, and the rest is replaced."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seconds = itertools.count(1_700_000_000)  # files are read in the order of the seconds in their names
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))
    once = cell(small(rounds=5))
    for rounds, accuracies in (((1, 2, 3, 4), (0.125, 0.25, 0.375, 0.5)), ((3, 4, 5), (0.625, 0.75, 0.875))):
        process = tracker(f"tensorboard:{tmp_path}")
        for t, accuracy in zip(rounds, accuracies, strict=True):
            process(once, records.played(t, test_accuracy=accuracy))
        process.close()
    events = EventAccumulator(str(tmp_path / "small" / "uniform, seed 0")).Reload()
    told = [(event.step, event.value) for event in events.Scalars("test_accuracy")]
    assert told == [(1, 0.125), (2, 0.25), (3, 0.625), (4, 0.75), (5, 0.875)]


@pytest.mark.slow
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


def wandb_records(file: Path) -> list[Any]:
    """The records of a W&B file: 7 bytes, then blocks of 32 KiB with pieces of crc (4), length (2), type (1) and content."""
    from wandb.proto import wandb_internal_pb2

    content, at, found, begun = file.read_bytes(), 7, [], b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        begun, at = begun + content[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined,unused-ignore]
            record.ParseFromString(begun)
            found.append(record)
            begun = b""
    return found


@pytest.mark.slow
def test_wandb_is_told_every_round_and_sends_nothing_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs pip install 'fedcohort[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = played(tmp_path, f"wandb:{tmp_path / 'logs'}")
    (file,) = (tmp_path / "logs/wandb").glob("offline-run-*/*.wandb")
    assert file.stem == f"run-{run.meta['key']}"
    written = wandb_records(file)
    (begun,) = {one.run.display_name for one in written if one.HasField("run")}
    assert begun == "uniform, seed 0"
    rounds = [
        {"".join([item.key, *item.nested_key]): json.loads(item.value_json) for item in one.history.item}
        for one in written
        if one.HasField("history")
    ]
    told = [(values["_step"], values["test_accuracy"]) for values in rounds]
    assert told == [(t, pytest.approx(a)) for t, a in run.rounds["test_accuracy"].items()]


def test_wandb_asks_for_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a login it is offline; with one, online; a mode that is set is kept."""
    wandb = pytest.importorskip("wandb", reason="needs pip install 'fedcohort[wandb]'")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for known, mode in ((False, "offline"), (True, "online")):
        monkeypatch.setattr(wandb, "login", lambda *, prompt, known=known: known and not prompt)
        assert WandB._mode() == mode
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert WandB._mode() == "disabled"


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


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_what_cannot_be_told_is_one_line_and_the_round_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A folder that cannot be written, or a server that does not answer, is refused before the first round; here, that changes."""
    pytest.importorskip(name)
    monkeypatch.setattr(trackers, "check_writable", lambda *_, **__: None)
    monkeypatch.setattr(trackers.MLflow, "reach", lambda _: None)
    (tmp_path / "file").write_text("no folder")
    where = f"{tmp_path / 'file' / 'logs'}" if name != "mlflow" else "http://127.0.0.1:9"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = CliRunner().invoke(cli, ["run", *SMALL, "--track", f"{name}:{where}", "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert f"--track '{name}:" in result.output
    assert where[-20:] in result.output
    assert "Traceback" not in result.output
    assert len(Run(next((tmp_path / "runs").iterdir())).rounds) >= 1


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_server_that_does_not_answer_is_refused_before_the_first_round(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    runs = tmp_path / "runs"
    tell = ["--track", "mlflow:http://127.0.0.1:9", "--runs", str(runs)]
    result = CliRunner().invoke(cli, [command, *SMALL, *tell])
    assert result.exit_code == 2
    assert result.output.startswith("fedcohort: error: --track 'mlflow:http://127.0.0.1:9': ")
    assert result.output.endswith("start the server, give another address, or leave --track out\n")
    assert not list(runs.glob("*/run.sqlite"))


@pytest.mark.parametrize(("mode", "reached"), [(None, True), ("online", True), ("offline", False), ("disabled", False)])
def test_weights_and_biases_is_asked_before_the_first_round(
    mode: str | None, reached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would otherwise end after its first round, as soon as that is logged."""
    wandb = pytest.importorskip("wandb", reason="needs pip install 'fedcohort[wandb]'")

    def login(*, prompt: bool) -> bool:
        raise ConnectionError(f"no answer, prompt {prompt}")

    monkeypatch.setattr(wandb, "login", login)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("WANDB_MODE", mode)
    asked = tracker(f"wandb:{tmp_path / 'logs'}")
    if reached:
        with pytest.raises(UsageError, match=r"wandb:.*: no answer, prompt False; start the server, give another"):
            asked.reach()
    else:
        asked.reach()


def test_weights_and_biases_online_needs_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="needs pip install 'fedcohort[wandb]'")
    monkeypatch.setattr(wandb, "login", lambda *, prompt: prompt)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(UsageError, match="WANDB_MODE = online, and there is no login; run wandb login"):
        tracker(f"wandb:{tmp_path / 'logs'}").reach()
    monkeypatch.delenv("WANDB_MODE")
    tracker(f"wandb:{tmp_path / 'logs'}").reach()  # without a login, it writes files


class Diary:
    """A tracker that writes down what it is told and when it was closed."""

    library = "json"
    told: list[Any]
    fails: str

    def __init__(self, where: str) -> None:
        self.where = where

    def __call__(self, cell: Any, row: Any) -> None:
        if self.fails == "round":
            raise OSError("no space left")
        Diary.told.append((self.where, row.round))

    def close(self) -> None:
        Diary.told.append((self.where, "closed"))
        if self.fails == "close":
            raise OSError("no space left")


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch) -> type[Diary]:
    """``--track json:where``, under the name of a library that is always there."""
    monkeypatch.setitem(TRACKERS, "json", Diary)
    Diary.told, Diary.fails = [], ""
    return Diary


def test_every_tracker_is_told_each_round_and_closed_once_at_the_end(tmp_path: Path, diary: type[Diary]) -> None:
    played(tmp_path, "json:a", "json:b")
    for where in ("a", "b"):
        assert [what for name, what in diary.told if name == where] == [1, 2, 3, "closed"]


def test_trackers_are_closed_too_if_the_run_ends_early(tmp_path: Path, diary: type[Diary]) -> None:
    diary.fails = "round"
    result = CliRunner().invoke(cli, ["run", *SMALL, "--track", "json:a", "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert diary.told == [("a", "closed")]


def test_a_tracker_that_cannot_be_closed_is_one_line_and_the_run_is_finished(
    tmp_path: Path, diary: type[Diary]
) -> None:
    diary.fails = "close"
    result = CliRunner().invoke(cli, ["run", *SMALL, "--track", "json:a", "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("fedcohort: error: ")]
    assert "json:a" in line
    assert "no space left" in line
    assert Run(next((tmp_path / "runs").iterdir())).finished
