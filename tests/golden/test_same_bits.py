"""The same experiment gives the same bytes: when repeated, with any number of threads, and in any order of runs."""

from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.record import Run
from tests.experiments import UCB, small
from tests.repetitions import slow_after

STRATEGIES = ["uniform", "all", UCB, "powd", "cpowd", "rpowd", "select_by_loss", "utility_time"]


def record(run: Run) -> dict[str, Any]:
    """The parts of a run that must be identical when it is repeated: everything except wall times and paths."""
    ledger = run.ledger.drop(columns="seconds")
    frames = {"rounds": run.rounds, "clients": run.clients, "decisions": run.decisions, "ledger": ledger}
    tables = {name: frame.to_json(double_precision=15) for name, frame in frames.items()}
    return tables | {"model": (run.path / "model.safetensors").read_bytes(), "digest": run.digest()}


@pytest.mark.parametrize("selection", STRATEGIES, ids=lambda s: s if isinstance(s, str) else s["name"])
def test_two_runs_of_one_experiment_are_identical(selection: Any, tmp_path: Path) -> None:
    experiment = small(rounds=4, selection=selection)
    first = fedcohort.run(experiment, runs=tmp_path / "a")
    assert record(first) == record(fedcohort.run(experiment, runs=tmp_path / "b"))


@pytest.mark.parametrize("model", ["mlp", "cnn_a"])
@pytest.mark.parametrize("algorithm", slow_after(1, ["fedavg", "fedsgd"]))
def test_runs_are_identical_for_any_number_of_threads(model: str, algorithm: str, tmp_path: Path) -> None:
    records = []
    for plan, workers in [("loop", 0), ("threads", 2), ("threads", 5)]:
        experiment = small(
            rounds=3,
            model=model,
            algorithm=algorithm,
            selection={"name": "select_by_loss", "k": 5},
            engine={"plan": plan, "workers": workers},
        )
        records.append(record(fedcohort.run(experiment, runs=tmp_path / f"{plan}{workers}")))
    assert records[0] == records[1] == records[2]


def test_the_number_format_that_a_program_set_for_torch_does_not_change_a_run(tmp_path: Path) -> None:
    import torch

    expected = record(fedcohort.run(small(rounds=2), runs=tmp_path / "a"))
    torch.set_default_dtype(torch.float64)
    try:
        assert record(fedcohort.run(small(rounds=2), runs=tmp_path / "b")) == expected
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_inference_mode_of_the_calling_program_does_not_end_a_run(tmp_path: Path) -> None:
    import torch

    expected = record(fedcohort.run(small(rounds=2), runs=tmp_path / "a"))
    with torch.inference_mode():
        assert record(fedcohort.run(small(rounds=2), runs=tmp_path / "b")) == expected
        assert torch.is_inference_mode_enabled()


def test_autocast_of_the_calling_program_does_not_change_a_run(tmp_path: Path) -> None:
    """The calling thread trains a single client, and threads train several."""
    import torch

    experiment = small(rounds=2, model="mlp", selection={"name": "uniform", "k": 1})
    expected = record(fedcohort.run(experiment, runs=tmp_path / "a"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert record(fedcohort.run(experiment, runs=tmp_path / "b")) == expected
        assert torch.is_autocast_enabled("cpu")


def test_the_device_that_a_program_set_for_new_tensors_does_not_end_a_run(tmp_path: Path) -> None:
    import torch

    expected = record(fedcohort.run(small(rounds=2), runs=tmp_path / "a"))
    with torch.device("meta"):
        assert record(fedcohort.run(small(rounds=2), runs=tmp_path / "b")) == expected
        assert torch.get_default_device().type == "meta"


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    first = fedcohort.run(small(), runs=tmp_path)
    second = fedcohort.run(small(seed=1), runs=tmp_path)
    assert first.path != second.path
    assert first.digest() != second.digest()


def test_strategies_under_one_seed_have_the_same_available_clients_sizes_and_times(tmp_path: Path) -> None:
    """In every round the same clients are available; a client has the same size and the same time in all runs."""
    away = {"availability": {"name": "bernoulli", "probability": 0.7}}
    runs = [fedcohort.run(small(selection=s, systems=away), runs=tmp_path) for s in ("all", UCB, "rpowd")]
    sizes = [run.clients.groupby("client")[["num_samples", "duration"]].first() for run in runs]
    for other in sizes[1:]:
        assert other.equals(sizes[0].loc[other.index])
    assert runs[0].rounds["available"].nunique() > 1
    assert len({tuple(run.rounds["available"]) for run in runs}) == 1


def test_the_order_of_runs_does_not_matter(tmp_path: Path) -> None:
    names = ["uniform", "select_by_loss"]
    one = [record(fedcohort.run(small(rounds=3, selection=n), runs=tmp_path / "a")) for n in names]
    other = [record(fedcohort.run(small(rounds=3, selection=n), runs=tmp_path / "b")) for n in reversed(names)]
    assert one == other[::-1]


def test_a_run_changes_neither_torchs_global_generator_nor_its_number_of_threads(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(7)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(7)
    fedcohort.run(small(rounds=2), runs=tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
