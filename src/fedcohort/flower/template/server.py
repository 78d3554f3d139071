"""The ServerApp: it plays the rounds of experiment.toml with the connected sites as its clients."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedcohort.flower import play_deployment

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play all rounds, or go on after the last checkpoint."""
    settings = context.run_config
    run = play_deployment(
        grid,
        Path(__file__).with_name("experiment.toml"),
        runs=str(settings["runs"]),
        time=str(settings["time"]),
        patience=float(str(settings["patience"])),
        progress=lambda _, row: print(f"round {row.round}: test accuracy {row.test_accuracy:.4f}", flush=True),
    )
    print(f"finished: {run.path}", flush=True)
