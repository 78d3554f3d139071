"""Personal models: measured for the record, on samples that they were not fine-tuned on; nothing else in the run changes."""

import html
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import integer, rng
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.models import Logistic
from fedcohort.record import Run as Record
from fedcohort.record.personal_results import personal_accuracy
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather as read
from fedcohort.report.page import page
from fedcohort.runs.find_run import find_run
from fedcohort.study.summary import over_seeds
from fedcohort.training.personal_models import PersonalAccuracy, measured_samples, with_held_out
from tests.experiments import UCB, blobs, cell, small
from tests.golden.test_same_bits import record
from tests.records import played, seal_again, written
from tests.resume.test_resume import stop_after

MEASURED = {"personal_epochs": 1, "personal_every": 2}
SYSTEMS = {"dropout": 0.2, "availability": {"name": "bernoulli", "probability": 0.6}}


@pytest.mark.parametrize("holdout", [0.0, 0.4])
def test_the_model_is_fine_tuned_as_in_a_plain_loop(holdout: float) -> None:
    data = blobs()
    split = partition(Iid(), data.train_labels, 5, 0)
    federation = gather(data, split, validation=0.1, seed=0, holdout=holdout)
    training = Training(batch_size=8, lr=0.02, momentum=0.0, precision="float64")
    with closing(LocalEngine(federation, Logistic(), training, Scaffold(), 0, plan="loop")) as engine:
        start = engine.initial_model()
        found = engine.answer(start, 7, PersonalAccuracy(2), np.arange(5))
    assert found.shape == (5, 2)
    own = with_held_out(federation)
    for client in range(5):
        train, held = own.client(client), own.held_out(client)
        assert len(held) == (14 if holdout else 7)
        assert len(train) + len(held) == 36
        x, y = federation.prepare(train.features, torch.float64), train.labels
        test = federation.prepare(held.features, torch.float64)
        w, b = (start[name].clone().requires_grad_() for name in ("1.weight", "1.bias"))
        assert found[client, 0] == float(((test @ w.T + b).argmax(1) == held.labels).double().mean())
        order = rng(integer(0, "personal"), "batches", 7, client)
        for _ in range(2):
            for index in torch.from_numpy(order.permutation(len(train))).split(8):
                loss = functional.cross_entropy(x[index] @ w.T + b, y[index])
                for value, slope in zip((w, b), torch.autograd.grad(loss, (w, b)), strict=True):
                    value.data -= 0.02 * slope
        assert found[client, 1] == float(((test @ w.T + b).argmax(1) == held.labels).double().mean())


@pytest.mark.parametrize("numeric", [False, True])
def test_they_are_measured_on_the_test_samples_of_the_client_if_there_are_any(numeric: bool, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    features = draws.normal(size=(120, 3)).astype(np.float32)
    labels = features @ [1.0, 2.0, 0.0] if numeric else (features[:, 0] > 0).astype(int)
    ids = np.arange(120) % 4
    ids[100:] %= 3  # client 3 has no test samples
    train, test = (features[:100], labels[:100]), (features[100:], labels[100:])
    data = fedcohort.from_arrays(train, test, clients=ids[:100], test_clients=ids[100:], numeric=numeric, name="own")
    experiment = fedcohort.Experiment(
        rounds=2,
        seeds=1,
        model="logistic",
        data={"validation": 0.0},
        training={"loss": "mse" if numeric else "ce", "lr": 0.02},
        measures={"personal_epochs": 1},
    )
    comparison = fedcohort.compare(experiment, data=data, runs=tmp_path)
    (run,) = comparison.rows[0].runs.values()
    found = run.personal_accuracy.iloc[-1]
    weights = load_file(run.path / "model.safetensors")
    outputs = features[100:] @ weights["1.weight"].numpy().T + weights["1.bias"].numpy()
    if numeric:
        scaled = (labels - labels[:100].mean()) / labels[:100].std()
        right = 1 - (outputs[:, 0] - scaled[100:]) ** 2
    else:
        right = outputs.argmax(axis=1) == labels[100:]
    expected = [right[ids[100:] == client].mean() for client in range(3)]
    np.testing.assert_allclose(found["before"][:3], expected, atol=1e-5)
    assert np.isfinite(found["after"][:3]).all()
    assert math.isnan(found["before"][3])
    assert math.isnan(found["after"][3])
    assert run.meta["personal data"] == "test samples"
    assert "each client's test samples after 1 local epoch" in " ".join(str(comparison).split())


@pytest.mark.parametrize("selection", [UCB, {"name": "powd"}], ids=str)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_nothing_else_in_the_run_changes(selection: dict[str, object], algorithm: str, tmp_path: Path) -> None:
    plain = fedcohort.run(small(selection=selection, algorithm=algorithm, systems=SYSTEMS), runs=tmp_path)
    measured = fedcohort.run(
        small(selection=selection, algorithm=algorithm, systems=SYSTEMS, measures=MEASURED), runs=tmp_path
    )
    assert plain.path != measured.path
    assert measured.personal_accuracy.index.tolist() == [2, 4, 6]
    for frame in ("rounds", "clients", "decisions"):
        assert getattr(plain, frame).equals(getattr(measured, frame))
    assert plain.ledger.drop(columns="seconds").equals(measured.ledger.drop(columns="seconds"))
    assert (plain.path / "model.safetensors").read_bytes() == (measured.path / "model.safetensors").read_bytes()
    assert plain.digest() != measured.digest()


def test_the_clients_accuracy_is_measured_as_without_personal_models(tmp_path: Path) -> None:
    plain = fedcohort.run(small(measures={"clients_every": 1}), runs=tmp_path)
    both = fedcohort.run(small(measures={"clients_every": 1, "personal_epochs": 1, "personal_every": 1}), runs=tmp_path)
    assert plain.client_accuracy.equals(both.client_accuracy)
    held_out = fedcohort.run(
        small(measures={"clients_every": 1, **MEASURED}, federation={"holdout": 0.2}), runs=tmp_path
    )
    same = held_out.client_accuracy.loc[[2, 4, 6]].to_numpy() == held_out.personal_accuracy["before"].to_numpy()
    assert same.all(), "both are the global model's accuracy on the held-out samples"


def test_plans_and_numbers_of_threads_give_the_same_bits(tmp_path: Path) -> None:
    records = []
    for plan, workers in (("loop", 0), ("threads", 2), ("threads", 5)):
        experiment = small(rounds=2, measures=MEASURED, engine={"plan": plan, "workers": workers})
        run = fedcohort.run(experiment, runs=tmp_path / f"{plan}{workers}")
        records.append((record(run), run.personal_accuracy.to_json(double_precision=15)))
    assert records[0] == records[1] == records[2]


def test_stacks_measure_them_too(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, measures={"personal_epochs": 1}, engine={"plan": "stacked"}), runs=tmp_path)
    threads = fedcohort.run(small(rounds=1, measures={"personal_epochs": 1}), runs=tmp_path)
    assert np.allclose(run.personal_accuracy, threads.personal_accuracy, atol=0.05)


def test_resumed_equals_straight(tmp_path: Path) -> None:
    experiment = small(measures={**MEASURED, "checkpoint_every": 3})
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(5))
    resumed = fedcohort.run(experiment, runs=tmp_path / "broken")
    assert record(resumed) == record(straight)
    assert resumed.personal_accuracy.equals(straight.personal_accuracy)
    assert fedcohort.open_run(resumed.path).personal_accuracy.index.tolist() == [2, 4, 6], "the seals fit"


def test_settings_and_names_of_runs(tmp_path: Path) -> None:
    assert small().key() == small(measures={"personal_epochs": 0, "personal_every": 0}).key()
    assert len({small(measures=m).key() for m in ({}, {"personal_epochs": 1}, MEASURED)}) == 3
    with pytest.raises(
        UsageError, match=r"measures.personal_every = 3: measures nothing without measures.personal_epochs; set it to 1"
    ):
        small(measures={"personal_every": 3})
    plain = fedcohort.run(small(rounds=1), runs=tmp_path)
    assert plain.personal_accuracy.empty
    found = plain.summary()
    assert all(map(math.isnan, (found.personal_accuracy, found.worst_personal_accuracy, found.personal_gain)))
    last = fedcohort.run(small(rounds=3, measures={"personal_epochs": 2}), runs=tmp_path)
    assert last.personal_accuracy.index.tolist() == [3], "by default, only the last round"
    assert "(measures.personal_epochs); mean over clients." in page(read([last])), "one seed gives no mean over seeds"


def test_clients_without_held_out_samples_have_no_accuracy(tmp_path: Path) -> None:
    experiment = small(
        rounds=1,
        federation={"clients": 300, "partition": {"name": "quantity", "beta": 0.2, "min_size": 0}},
        measures={"personal_epochs": 1},
    )
    run = fedcohort.run(experiment, runs=tmp_path)
    sizes = run.portrait.facts["samples"]
    known = np.isfinite(run.personal_accuracy["after"].loc[1].to_numpy())
    assert known.tolist() == (np.rint(0.2 * sizes) >= 1).tolist()
    assert 0 < known.sum() < 300


def test_a_personal_model_that_diverges_counts_as_wrong(tmp_path: Path) -> None:
    run = fedcohort.run(
        small(rounds=1, training={"lr": 1e30}, measures={"personal_epochs": 1}, systems={"dropout": 1.0}), runs=tmp_path
    )
    before, after = (run.personal_accuracy[when].loc[1].to_numpy() for when in ("before", "after"))
    assert (after == 0).all()
    assert (before > 0).any()


def test_a_diverged_personal_model_of_a_regression_has_no_score_of_the_mean(tmp_path: Path) -> None:
    """Its score was 0, that of always predicting the mean, and its gain +∞."""
    experiment = small(
        rounds=1, data={"name": "diabetes"}, federation={"clients": 4, "partition": "iid"}, systems={"dropout": 1.0},
        model="logistic", training={"loss": "mse", "lr": 1e30}, measures={"personal_epochs": 1},
    )  # fmt: skip
    compared = fedcohort.compare(experiment, runs=tmp_path)
    run = compared.rows[0].runs[0]
    before, after = (run.personal_accuracy[when].loc[1].to_numpy() for when in ("before", "after"))
    assert np.isfinite(before).all()
    assert (after == -math.inf).all()
    summary = run.summary()
    assert summary.personal_accuracy == summary.worst_personal_accuracy == summary.personal_gain == -math.inf
    text = " ".join(terminal.as_text(terminal.comparison(compared)).split())
    assert "mean over clients and of the worst client. A personal model whose training diverged counts as −∞." in text
    assert "counts as −∞." in page(read([run]))


def test_centralized_training_measures_its_only_client(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1, algorithm="centralised", measures={"personal_epochs": 1}), runs=tmp_path)
    assert run.personal_accuracy.shape == (1, 2)
    assert (run.personal_accuracy > 0.5).to_numpy().all()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> fedcohort.Comparison:
    experiment = small(
        rounds=3, seeds=2, measures={"personal_epochs": 2}, variants=[{"label": "AFL", "selection": {"name": "afl"}}]
    )
    return fedcohort.compare(experiment, runs=tmp_path_factory.mktemp("runs"))


def test_means_and_the_worst_tenth_are_in_tables(compared: fedcohort.Comparison) -> None:
    for row, own in zip(compared.rows, compared.table.to_dict("records"), strict=True):
        last = [run.personal_accuracy.loc[3] for run in row.runs.values()]
        assert own["personal_accuracy"] == pytest.approx(np.mean([one["after"].mean() for one in last]))
        worst = [np.sort(one["after"])[:2].mean() for one in last]  # ⌈0.1·12⌉ clients
        assert own["worst_personal_accuracy"] == pytest.approx(np.mean(worst))
        gains = [(one["after"] - one["before"]).mean() for one in last]
        assert own["personal_gain"] == pytest.approx(np.mean(gains))
        summary = row.runs[0].summary()
        assert summary.personal_accuracy == pytest.approx(last[0]["after"].mean())
        assert summary.personal_gain == pytest.approx(gains[0])
    shown, number = str(compared), f"{100 * compared.table['personal_accuracy'][0]:.1f}"
    assert "personal" in shown
    assert number in shown
    assert "on each client's left-out training samples after 2 local epochs" in " ".join(shown.split())
    assert {run.meta["personal data"] for row in compared.rows for run in row.runs.values()} == {
        "left-out training samples"
    }
    assert f"& {number} &" in compared.to_latex()
    assert r"Personal (\%) & Worst tenth" in compared.to_latex()
    run = compared.rows[0].runs[0]
    measures = terminal.as_text(terminal.summaries(["a"], [over_seeds([run.summary()])]))
    assert f"accuracy of personal models {100 * run.summary().personal_accuracy:.1f}" in " ".join(measures.split())
    json.dumps(compared.to_json(), allow_nan=False)


def test_tables_for_papers_and_notebooks_say_what_they_are(compared: fedcohort.Comparison) -> None:
    """The columns stood there without a word."""
    says = "Personal models: accuracy in % on each client's left-out training samples after 2 local epochs"
    assert says.replace("%", r"\%") in compared.to_latex()
    assert says in html.unescape(str(compared._repr_mimebundle_()["text/html"]))


def test_the_report_shows_them_only_if_they_were_measured(compared: fedcohort.Comparison, tmp_path: Path) -> None:
    runs = [run for row in compared.rows for run in row.runs.values()]
    text = page(read(runs))
    for row in compared.table.to_dict("records"):
        for field in ("personal_accuracy", "worst_personal_accuracy"):
            assert f"{100 * row[field]:.1f}</td>" in text
    assert text.count('data-field="personal_worst"') == 2
    plain = page(read([fedcohort.run(small(rounds=1), runs=tmp_path)]))
    assert "personal" not in plain[plain.find('id="fairness"') : plain.find('class="figures"')]
    assert "personal" not in str(fedcohort.compare(small(rounds=1), runs=tmp_path)).lower()


def test_the_best_personal_models_are_marked(tmp_path: Path) -> None:
    """The note says that the best mean is marked; only the worst tenth of the global model was."""
    runs = []
    for label, name, after in (("a", "uniform", 0.2), ("b", "ucb", 0.4)):
        rows = [played(1, [0], personal_accuracy=np.array([[0.1, after], [0.1, after]]))]
        runs.append(written(tmp_path / label, rows, label=label, selection={"name": name}, measures=MEASURED))
    text = page(read(runs))
    for field in ("personal", "personal_worst"):
        assert text.count(f'<td class="best" data-field="{field}"') == 1


def test_unfinished_runs_count_their_common_rounds(tmp_path: Path) -> None:
    rows = [
        played(t, [0], personal_accuracy=np.array([[0.1 * t, 0.2 * t], [0.3 * t, 0.3 * t]]) if t % 2 == 0 else None)
        for t in range(1, 5)
    ]
    run = written(tmp_path / "run", rows, measures=MEASURED)
    assert run.personal_accuracy.loc[4].to_numpy().tolist() == pytest.approx([0.4, 1.2, 0.8, 1.2])
    assert run.summary().personal_accuracy == pytest.approx(1.0)
    assert run.summary().personal_gain == pytest.approx(0.2)
    assert run.summary().worst_personal_accuracy == pytest.approx(0.8)


def test_a_changed_accuracy_is_found(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=2, measures=MEASURED), runs=tmp_path)
    with closing(sqlite3.connect(run.path / "run.sqlite")) as database, database:
        database.execute("UPDATE personal_accuracy SET accuracies = zeroblob(length(accuracies))")
    with pytest.raises(UsageError, match="differs from what was recorded"):
        fedcohort.open_run(run.path)


def test_a_run_of_an_earlier_version_has_none_and_can_be_resumed(tmp_path: Path) -> None:
    experiment = small(rounds=4)
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "old", progress=stop_after(2))
    found = find_run(cell(experiment), Given(), tmp_path / "old")
    assert found is not None
    with closing(sqlite3.connect(found.path / "run.sqlite")) as database, database:
        database.execute("DROP TABLE personal_accuracy")
        seal_again(database)
    assert personal_accuracy(Record(found.path)).empty
    resumed = fedcohort.run(experiment, runs=tmp_path / "old")
    assert resumed.path == found.path
    assert record(fedcohort.open_run(resumed.path)) == record(straight)


def test_errors_name_the_client() -> None:
    from fedcohort.engines.base import ClientError

    data = blobs()
    split = partition(Iid(), data.train_labels, 5, 0)
    federation = gather(data, split, validation=0.1, seed=0)

    class Breaks(Logistic):
        def build(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
            module = super().build(shape, num_classes)

            def fail(part: torch.nn.Module, _: object) -> None:
                if part.training:
                    raise ArithmeticError("broken")

            module.register_forward_pre_hook(fail)
            return module

    with closing(LocalEngine(federation, Breaks(), Training(), FedAvg(), 0, plan="loop")) as engine:
        model = engine.initial_model()
        with pytest.raises(ClientError, match="client 3: ArithmeticError: broken"):
            engine.answer(model, 1, PersonalAccuracy(1), np.array([3]))


class OfItsBatch(nn.Module):
    """Batch norm without running statistics: one sample alone has no variance."""

    def __init__(self, track: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10, track_running_stats=track))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def test_a_network_that_cannot_evaluate_one_sample_is_refused_before_the_first_round(tmp_path: Path) -> None:
    """The run ended in its last round, in which personal models are measured."""
    few = {"clients": 300, "partition": "iid"}
    with pytest.raises(
        UsageError,
        match=r"^measures\.personal_epochs = 1: the network cannot evaluate one sample alone \(ValueError: .*\), and the personal "
        r"model of client 0 is measured on 1 sample, 128 at a time; use batch norm with track_running_stats = True, or leave",
    ):
        fedcohort.run(small(federation=few, measures={"personal_epochs": 1}), model=OfItsBatch(), runs=tmp_path)
    assert list(tmp_path.iterdir()) == []
    for federation, model in ((few, OfItsBatch(track=True)), ({"clients": 100, "partition": "iid"}, OfItsBatch())):
        settings = small(rounds=1, federation=federation, measures={"personal_epochs": 1})
        assert fedcohort.run(settings, model=model, runs=tmp_path).finished


def test_samples_of_personal_models_are_counted() -> None:
    test_clients = SimpleNamespace(test_clients=np.array([0, -1, 2, 2]), num_clients=4)
    assert measured_samples(test_clients).tolist() == [1, 0, 2, 0]  # type: ignore[arg-type]
