"""Log every round to TensorBoard, MLflow or Weights & Biases, through their own libraries.

    fedcohort run experiment.toml --track tensorboard:logs --track mlflow:http://localhost:5000 --track wandb:logs

Trackers are off by default, and their libraries are optional dependencies: ``pip install 'fedcohort[tensorboard]'``,
``'fedcohort[mlflow]'`` or ``'fedcohort[wandb]'``. They receive :data:`NUMBERS`, a part of the record. A resumed run continues its log.
"""

import math
import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.files.paths import check_writable
from fedcohort.core.words.formatted_values import by_dotted_key
from fedcohort.experiment import Cell
from fedcohort.record import RoundRow

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TRACKERS", "MLflow", "OneLineErrors", "TensorBoard", "WandB", "tracker"]

NUMBERS = (
    "available", "selected", "trained", "admitted", "simulated_time", "round_time", "test_accuracy", "test_loss",
    "validation_accuracy", "validation_loss", "local_accuracy", "train_loss",
)  # fmt: skip
"""Columns of the record that are logged for each round, besides ``bytes``, ``client_passes`` and own measures."""


def numbers(row: RoundRow) -> dict[str, float]:
    """The numbers that are logged for a round, without those that are unknown."""
    values = {name: float(getattr(row, name)) for name in NUMBERS}
    values["bytes"] = float(sum(entry.bytes_down + entry.bytes_up for entry in row.ledger))
    values |= row.own_measures
    values["client_passes"] = float(sum(entry.passes for entry in row.ledger))
    return {name: value for name, value in values.items() if math.isfinite(value)}


class TensorBoard:
    """Log to TensorBoard: event files in ``<where>/<name>/<label>, seed <seed>``."""

    library = "tensorboard"

    def __init__(self, where: str) -> None:
        self.where = where or "tensorboard"
        self._writers: dict[tuple[str, str, int], SummaryWriter] = {}
        self._excepthook = threading.excepthook
        threading.excepthook = self._without_writers

    def __call__(self, cell: Cell, row: RoundRow) -> None:
        """Write one round."""
        from torch.utils.tensorboard import SummaryWriter

        key = (cell.experiment.name, cell.label, cell.seed)
        if key not in self._writers:
            folder = "/".join([self.where, _plain(key[0]), f"{_plain(cell.label)}, seed {cell.seed}"])
            self._writers[key] = SummaryWriter(folder, purge_step=row.round)
        for name, value in numbers(row).items():
            self._writers[key].add_scalar(name, value, row.round)

    def close(self) -> None:
        """Write buffered rounds, and close the files."""
        try:
            for writer in self._writers.values():
                writer.flush()  # raises what went wrong in the thread that writes
                writer.close()
        finally:
            threading.excepthook = self._excepthook

    def _without_writers(self, raised: threading.ExceptHookArgs) -> None:
        """Print no traceback of the threads that write: the next round or :meth:`close` raises their error."""
        if type(raised.thread).__name__ != "_AsyncWriterThread":
            self._excepthook(raised)


PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""How often and how long MLflow tries to reach a server, unless these environment variables are set already."""


class MLflow:
    """Log to MLflow: one MLflow run per run, in the experiment of that name, at the tracking server or folder ``where``."""

    library = "mlflow"

    def __init__(self, where: str) -> None:
        self.where = where or None
        self._made: Any = None
        self._runs: dict[tuple[str, str, int], str] = {}

    @property
    def _client(self) -> Any:
        """MLflow's client, made at the first use."""
        if self._made is None:
            for setting, value in PATIENCE.items():  # MLflow would try for ten minutes
                os.environ.setdefault(setting, value)
            from mlflow import MlflowClient

            self._made = MlflowClient(tracking_uri=self.where)
        return self._made

    def reach(self) -> None:
        """Ask a server for one experiment; a folder or a database is not touched."""
        if self._client.tracking_uri.startswith(("http://", "https://")):
            self._client.search_experiments(max_results=1)

    def __call__(self, cell: Cell, row: RoundRow) -> None:
        """Log one round."""
        import time

        from mlflow.entities import Metric

        key = (cell.experiment.name, cell.label, cell.seed)
        if key not in self._runs:
            self._runs[key] = self._begin(cell)
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, row.round) for name, value in numbers(row).items()]
        self._client.log_batch(self._runs[key], metrics=metrics)

    def _begin(self, cell: Cell) -> str:
        """The MLflow run of this run; if it was interrupted, the existing one, which is found by the hash of the run."""
        from mlflow.entities import Param

        name, run_key = _plain(cell.experiment.name), cell.experiment.key()
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known is not None else self._client.create_experiment(name)
        existing = self._client.search_runs([experiment], f"tags.`fedcohort.key` = '{run_key}'", max_results=1)
        if existing:
            return str(existing[0].info.run_id)
        tags = {"fedcohort.key": run_key, "mlflow.runName": f"{cell.label}, seed {cell.seed}"[:200]}
        created = self._client.create_run(experiment, tags=tags)
        settings = by_dotted_key(cell.experiment.to_dict())
        params = [Param(key, str(value)[:250]) for key, value in settings.items() if key != "variants"]
        self._client.log_batch(created.info.run_id, params=params[:100])
        return str(created.info.run_id)

    def close(self) -> None:
        """Mark the runs as finished."""
        for run in self._runs.values():
            self._client.set_terminated(run)


class WandB:
    """Log to Weights & Biases: one of its runs per run, in the project with the name of the experiment; its files are in ``where``.

    Without a login, or with ``WANDB_MODE=offline``, nothing is sent: ``wandb sync`` sends the files later.
    """

    library = "wandb"

    def __init__(self, where: str) -> None:
        self.where = where or None
        self._key: tuple[str, str, int] | None = None
        self._run: Any = None

    def reach(self) -> None:
        """Log in if rounds are to be sent, which asks the server; without a login, and offline, nothing is sent."""
        import wandb

        asked = os.environ.get("WANDB_MODE")
        if asked in (None, "", "online") and not wandb.login(prompt=False) and asked:
            raise ValueError("WANDB_MODE = online, and there is no login; run wandb login, or set WANDB_MODE=offline")

    def __call__(self, cell: Cell, row: RoundRow) -> None:
        """Log one round."""
        key = (cell.experiment.name, cell.label, cell.seed)
        if key != self._key:
            self._finish()
            self._run, self._key = self._begin(cell), key
        self._run.log(numbers(row), step=row.round)

    def _begin(self, cell: Cell) -> object:
        """The W&B run of this run; an interrupted one goes on under the same id, the hash of the run."""
        import wandb

        if self.where is not None:
            Path(self.where).mkdir(parents=True, exist_ok=True)
        settings = by_dotted_key(cell.experiment.to_dict())
        return wandb.init(
            project=_plain(cell.experiment.name),
            name=f"{_plain(cell.label)}, seed {cell.seed}",
            id=cell.experiment.key(),
            resume="allow",
            config={key: value for key, value in settings.items() if key != "variants"},
            dir=self.where,
            mode=self._mode(),
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )

    @staticmethod
    def _mode() -> Literal["online", "offline", "disabled"]:
        """``WANDB_MODE`` if it is set; otherwise online with a login, and offline without one: nothing waits for a password."""
        import wandb

        if mode := os.environ.get("WANDB_MODE"):
            return cast(Literal["online", "offline", "disabled"], mode)
        return "online" if wandb.login(prompt=False) else "offline"

    def _finish(self) -> None:
        """Finish the W&B run, if there is one."""
        if self._run is not None:
            self._run.finish()
        self._run = self._key = None

    def close(self) -> None:
        """Finish the W&B run, and wait until its process has written the files, which goes on after the run is finished."""
        import wandb

        self._finish()
        wandb.teardown()


TRACKERS: Mapping[str, Callable[[str], TensorBoard | MLflow | WandB]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


class OneLineErrors:
    """A tracker that reports errors in one line. The finished rounds are recorded, so that the run can be resumed.

    Args:
        text: value of ``--track``.
        tracker: the tracker.
    """

    def __init__(self, text: str, tracker: TensorBoard | MLflow | WandB) -> None:
        self.text, self.tracker = text, tracker

    def reach(self) -> None:
        """Try to reach the server of the tracker, before the first round is played.

        Raises:
            UsageError: it does not answer, or refuses.
        """
        if not isinstance(self.tracker, MLflow | WandB):  # others write files
            return
        try:
            self.tracker.reach()
        except Exception as error:
            raise UsageError(
                f"--track {self.text!r}: {_short(error)}; start the server, give another address, or leave --track out"
            ) from None

    def __call__(self, cell: Cell, row: RoundRow) -> None:
        """Log one round.

        Raises:
            UsageError: the tracker failed.
        """
        try:
            self.tracker(cell, row)
        except Exception as error:  # the libraries raise many types if a server is down or a folder cannot be written
            raise self._failed(error) from None

    def close(self) -> None:
        """Close the tracker.

        Raises:
            UsageError: the tracker failed.
        """
        try:
            self.tracker.close()
        except Exception as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> UsageError:
        return UsageError(
            f"--track {self.text!r}: {_short(error)}; finished rounds are recorded: fix the problem, "
            "or leave --track out, and start the same command again"
        )


def _short(error: Exception) -> str:
    """The beginning of an error's message; those of the libraries are long."""
    words = " ".join(str(error).split()) or type(error).__name__
    return f"{words[:200]}{'…' if len(words) > 200 else ''}"


def tracker(text: str) -> OneLineErrors:
    """A tracker from ``name:where``; without ``:where``, the tracker logs to its default folder or server.

    Raises:
        UsageError: there is no such tracker, or its library is not installed.
    """
    name, _, where = text.partition(":")
    if name not in TRACKERS:
        raise UsageError(f"--track {text!r}: no such tracker; {nearest(name, TRACKERS)}")
    if find_spec(name) is None:
        raise UsageError(f"--track {text!r}: {name} is not installed; pip install 'fedcohort[{name}]'")
    if folder := _folder_of(name, where):
        check_writable(folder, f"--track {name}:", folder=True)
    return OneLineErrors(text, TRACKERS[name](where))


def _folder_of(name: str, where: str) -> str:
    """The folder that a tracker writes; empty if it is not known, as that of a server."""
    if name == "mlflow":
        return "" if "://" in where or where == "databricks" else where
    return where or name


def _plain(words: str) -> str:
    """A name that is safe in paths and URLs."""
    return "".join(c if c.isalnum() or c in " ._-" else "-" for c in words)[:100].strip(". ") or "run"
