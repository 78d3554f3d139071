"""Numeric labels: training, R², quantile bins, conformal participation, refusals, and what tables and pages call the score."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score
from torch.nn import functional

import fedcohort
from fedcohort import measures
from fedcohort.algorithms import ALGORITHMS
from fedcohort.algorithms.losses import Huber, SquaredError
from fedcohort.algorithms.sample_measures import sample_losses, total_score
from fedcohort.core.errors import UsageError
from fedcohort.core.words.score_style import ACCURACY, R_SQUARED, score_style
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data.numeric_labels import bin_edges, bin_names, binned, check_numbers, readable
from fedcohort.record import Run
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page
from fedcohort.runs.prepare_run import federate, look
from fedcohort.selection import STRATEGIES
from fedcohort.study.compare_existing_runs import side_by_side
from fedcohort.study.decisions.explain_decision import explain
from fedcohort.study.measured_values import result
from fedcohort.study.summary import over_seeds
from fedcohort.training.evaluation import r_squared
from tests.cli.test_cli import call
from tests.experiments import small

FOUR = {"clients": 4, "holdout": 0.2, "partition": {"name": "iid"}}


def numbers(**values: Any) -> Experiment:
    """A regression on the data set diabetes with four clients, three rounds and one seed."""
    usual: dict[str, Any] = {
        "name": "numbers", "rounds": 3, "data": {"name": "diabetes"}, "federation": FOUR, "model": "logistic",
        "training": {"loss": "mse", "lr": 0.02},
    }  # fmt: skip
    return small(**{**usual, **values})


# --- data and labels ---------------------------------------------------------------------------------------------------------


def test_diabetes_has_numeric_labels_and_standardized_features() -> None:
    data = fedcohort.load_dataset("diabetes")
    assert data.train_numbers is not None
    assert data.test_numbers is not None
    assert len(data.train_numbers) + len(data.test_numbers) == 442
    both = np.concatenate([data.train_numbers, data.test_numbers])
    assert (both.min(), both.max()) == (25, 346)
    np.testing.assert_allclose(data.train_features.std(axis=0), 1, atol=1e-5)
    assert "numeric labels" in repr(data)
    shares = np.bincount(data.test_labels) / np.bincount(data.train_labels)
    assert shares.max() < 0.35  # every bin is split alike


def test_bins_have_about_as_many_samples_each_and_repeated_numbers_share_one() -> None:
    labels = np.random.default_rng(0).exponential(size=1000)
    edges = bin_edges(labels)
    assert np.bincount(binned(labels, edges)).tolist() == [100] * 10
    few = np.repeat([1.0, 2.0, 5.0], [80, 10, 10])
    assert np.bincount(binned(few, bin_edges(few))).tolist() == [80, 10, 10]
    assert bin_names(bin_edges(few).tolist()) == ("below 2", "2 to 5", "from 5")
    assert bin_names(bin_edges(np.ones(5)).tolist()) == ("all",)


BAD_LABELS = {
    "text": (["a", "b"], "must be numbers"),
    "two columns": ([[1.0], [2.0]], "must be numbers"),
    "none": ([], "and not empty"),
    "NaN": ([1.0, math.nan], "1 are NaN or infinite"),
}


@pytest.mark.parametrize(("labels", "message"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_labels_that_are_no_numbers_are_refused(labels: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_numbers(labels, "mine: train")


def test_arrays_have_numeric_labels_only_if_asked_for() -> None:
    features, labels = np.zeros((4, 2)), np.array([0.5, 1.5, 2.5, 3.5])
    with pytest.raises(UsageError, match=r"numbers for regression: data\.numeric = true"):
        fedcohort.from_arrays((features, labels), (features, labels))
    with pytest.raises(UsageError, match="numeric labels have no classes"):
        fedcohort.from_arrays((features, labels), (features, labels), numeric=True, classes=["a"])
    data = fedcohort.from_arrays((features, labels), (features, labels), numeric=True)
    other = fedcohort.from_arrays((features, labels + 1e-9), (features, labels), numeric=True)
    assert data.fingerprint != other.fingerprint
    integers = fedcohort.from_arrays((features, labels.astype(int)), (features, labels.astype(int)), numeric=True)
    assert integers.train_numbers is not None
    assert integers.train_numbers.dtype == np.float64


def test_a_share_of_the_data_keeps_numbers_and_bins_together() -> None:
    federated = federate(numbers(data={"name": "diabetes", "share": 0.5}), Given())
    data = federated.dataset
    assert data.train_numbers is not None
    whole = fedcohort.load_dataset("diabetes")
    assert whole.train_numbers is not None
    assert len(data.train_numbers) == len(data.train_labels) == pytest.approx(len(whole.train_labels) / 2, abs=5)
    assert (data.train_labels == binned(data.train_numbers, bin_edges(whole.train_numbers))).all()


@pytest.mark.parametrize("rule", ["dirichlet_class", "shards", "iid"])
def test_partitions_use_bins_and_samples_keep_their_numbers(rule: str) -> None:
    experiment = numbers(federation={**FOUR, "partition": {"name": rule}})
    federated = federate(experiment, Given())
    federation, data = federated.federation, federated.dataset
    assert federation.is_numeric
    assert federation.num_outputs == 1
    assert federation.numbers is not None
    assert data.train_numbers is not None
    stored = federation.numbers.in_units(federation.train.labels.numpy())
    np.testing.assert_allclose(stored, data.train_numbers[federated.split.order])
    np.testing.assert_allclose(stored.mean(), data.train_numbers.mean())
    counts = federation.histogram()
    assert counts.shape == (4, data.num_classes)
    assert counts.sum() == federation.num_samples.sum()
    _, survey = look(experiment, Given())
    assert survey.report.counts.sum() == len(data.train_labels)


# --- losses and scores -------------------------------------------------------------------------------------------------------


def test_losses_are_those_of_torch() -> None:
    rng = torch.Generator().manual_seed(0)
    outputs, labels = torch.randn(9, 1, generator=rng), torch.randn(9, dtype=torch.float64, generator=rng)
    wanted = labels.float()
    assert torch.equal(
        SquaredError().samples(outputs, labels), functional.mse_loss(outputs[:, 0], wanted, reduction="none")
    )
    huber = functional.huber_loss(outputs[:, 0], wanted, reduction="none", delta=0.5)
    assert torch.equal(Huber(delta=0.5).samples(outputs, labels), huber)
    assert float(total_score(outputs, labels)) == pytest.approx(
        9 - float(sample_losses(outputs, labels).sum()), abs=1e-5
    )


def test_r_squared_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    labels, predictions = rng.normal(3, 2, 50), rng.normal(3, 2, 50)
    ours = r_squared(float(np.square(labels - predictions).mean()), 50, labels.sum(), np.square(labels).sum())
    assert ours == pytest.approx(r2_score(labels, predictions))
    assert math.isnan(r_squared(0.0, 3, 6.0, 12.0))  # all labels are 2
    assert math.isnan(r_squared(math.nan, 0, 0.0, 0.0))


def test_the_record_has_r_squared_and_the_absolute_error_in_units_of_the_labels(tmp_path: Path) -> None:
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def mine(predictions: np.ndarray, labels: np.ndarray) -> float:
        seen.append((predictions, labels))
        return 0.0

    run = fedcohort.run(numbers(), measures=[mine], runs=tmp_path)
    predictions, labels = seen[-1]
    last = run.rounds.iloc[-1]
    assert predictions.shape == labels.shape
    assert last["test_accuracy"] == pytest.approx(r2_score(labels, predictions), rel=1e-5)
    assert last["mae"] == pytest.approx(mean_absolute_error(labels, predictions))
    assert 25 <= labels.min() < labels.max() <= 346
    assert last["class_accuracy"] == []
    assert run.labels == "numbers"
    with pytest.raises(UsageError, match="'mae' is measured in every run with numeric labels"):
        fedcohort.run(numbers(), measures={"mae": mine}, runs=tmp_path)


def test_federated_linear_regression_reaches_the_error_of_least_squares(tmp_path: Path) -> None:
    data = fedcohort.load_dataset("diabetes")
    assert data.train_numbers is not None
    assert data.test_numbers is not None
    best = LinearRegression().fit(data.train_features, data.train_numbers)
    error = mean_absolute_error(data.test_numbers, best.predict(data.test_features))
    training = {"loss": "mse", "lr": 0.01, "momentum": 0.0}
    experiment = numbers(rounds=25, selection="all", training=training, data={"name": "diabetes", "validation": 0.0})
    run = fedcohort.run(experiment, runs=tmp_path)
    assert run.rounds["mae"].iloc[-1] == pytest.approx(error, rel=0.05)


def test_clients_report_their_score_in_units_of_the_common_variance(tmp_path: Path) -> None:
    experiment = numbers(rounds=1, measures={"clients_every": 1}, federation={"clients": 4, "partition": "iid"})
    run = fedcohort.run(experiment, runs=tmp_path)
    scores = run.client_accuracy.iloc[-1].to_numpy()
    assert np.isfinite(scores).all()
    federation = federate(experiment, Given()).federation
    model = {name: value.numpy() for name, value in _final(run).items()}
    outputs = federation.standardised(federation.client(2).features, torch.float32).numpy() @ model["1.weight"].T
    errors = (outputs + model["1.bias"])[:, 0] - federation.client(2).labels.numpy()
    assert scores[2] == pytest.approx(1 - np.square(errors).mean(), rel=1e-4)


def _final(run: Run) -> Mapping[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(run.path / "model.safetensors")


# --- identical bits ----------------------------------------------------------------------------------------------------------


def test_threads_and_the_loop_give_the_same_bits_and_stacks_fall_back_to_threads(tmp_path: Path) -> None:
    runs = [fedcohort.run(numbers(engine={"plan": plan}), runs=tmp_path / plan) for plan in ("loop", "threads")]
    with pytest.warns(UserWarning, match="labels are numbers; clients are trained by threads"):
        runs.append(fedcohort.run(numbers(engine={"plan": "stacked"}), runs=tmp_path / "stacked"))
    assert len({run.digest() for run in runs}) == 1


def test_a_killed_regression_resumes(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(_: object, row: Any) -> None:
        if row.round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        fedcohort.run(numbers(selection="ucb"), runs=tmp_path / "a", progress=kill)
    resumed = fedcohort.run(numbers(selection="ucb"), runs=tmp_path / "a")
    assert resumed.digest() == fedcohort.run(numbers(selection="ucb"), runs=tmp_path / "b").digest()


# --- strategies and algorithms -----------------------------------------------------------------------------------------------

NUMERIC: dict[str, dict[str, Any]] = {
    "flash": {"context_loss": "ce"},
    "conformal": {"score": "absolute", "rule": "rank", "max_epochs": 2},
}
"""Parameters with which strategies take numeric labels."""


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_every_strategy_plays_a_regression_or_refuses_it_before_training(name: str, tmp_path: Path) -> None:
    strategy = STRATEGIES.find(name, "")(**NUMERIC.get(name, {}))
    federation = {"clients": 6, "holdout": 0.2, "partition": {"name": "iid"}}
    settings: dict[str, Any] = {"selection": {"name": name, "k": 2, **NUMERIC.get(name, {})}, "federation": federation}
    if strategy.refuses("numbers"):
        with pytest.raises(UsageError, match="cannot work with numeric labels"):
            numbers(**settings)
        assert not list(tmp_path.iterdir())
        return
    rounds = fedcohort.run(numbers(**settings, rounds=2), runs=tmp_path).rounds
    assert np.isfinite(rounds[["test_accuracy", "test_loss", "mae"]].to_numpy()).all()


@pytest.mark.parametrize("name", ALGORITHMS.builtin)
def test_every_algorithm_plays_a_regression_or_refuses_it_before_training(name: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"algorithm": name, "public": {"name": "holdout"}}
    if ALGORITHMS.find(name, "")().refuses("numbers"):
        with pytest.raises(UsageError, match="cannot work with numeric labels"):
            numbers(**settings)
        return
    if name == "fedprox":
        settings["algorithm"] = {"name": "fedprox", "dynamic": True}
    rounds = fedcohort.run(numbers(**settings, rounds=2), runs=tmp_path).rounds
    assert np.isfinite(rounds["test_accuracy"]).all()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "class score": ({"selection": {"name": "conformal"}}, "score = 's1' is computed from class probabilities"),
    "its base": (
        {"selection": {"name": "conformal", "score": "absolute", "base": "utility_time"}},
        "it compares the accuracies of classes",
    ),
    "robust context": ({"selection": {"name": "neural", "context_loss": "robust"}}, "use 'ce', the loss of the task"),
    "label noise": (
        {"federation": {**FOUR, "label_noise": {"name": "constant", "rate": 0.1}}},
        "exchanges classes, but training.loss = 'mse' is for numbers",
    ),
    "absolute score of classes": (
        {"training": {"loss": "ce"}, "selection": {"name": "conformal", "score": "absolute"}},
        r"cannot work with classes \(training.loss = 'ce'\): score = 'absolute' is a distance of numbers",
    ),
    "large threshold of classes": (
        {"training": {"loss": "ce"}, "selection": {"name": "conformal", "theta": 1.5}},
        "selection.theta = 1.5: should be at most 1",
    ),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_settings_for_the_other_kind_of_labels_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        numbers(**settings)
    assert "\n" not in str(caught.value)


def test_the_loss_must_be_for_the_labels_of_the_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'ce': is for classes, and the labels of 'diabetes' are numbers; use 'mse'"):
        fedcohort.run(numbers(training={"loss": "ce"}), runs=tmp_path)
    with pytest.raises(UsageError, match="'mse': is for numeric labels, and those of 'digits' are classes; use 'ce'"):
        fedcohort.run(numbers(data={"name": "digits"}), runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_object_that_refuses_numbers_is_refused(tmp_path: Path) -> None:
    from fedcohort.selection import UtilityTime

    with pytest.raises(UsageError, match="UtilityTime cannot work with numeric labels"):
        fedcohort.run(numbers(), selector=UtilityTime(), runs=tmp_path)


# --- conformal participation -------------------------------------------------------------------------------------------------


def test_residuals_and_their_quantile() -> None:
    residuals = measures.conformal.absolute_residuals([[1.0], [2.0], [math.nan]], [1.5, 1.0, 0.0])
    assert residuals.tolist() == [0.5, 1.0, math.inf]
    with pytest.raises(UsageError, match="give one prediction for each label"):
        measures.conformal.absolute_residuals([1.0], [1.0, 2.0])


def test_clients_enter_by_the_quantile_of_their_absolute_residuals(tmp_path: Path) -> None:
    selection = {
        "name": "conformal",
        "score": "absolute",
        "theta": 1.4,
        "alpha_cp": 0.2,
        "max_epochs": 3,
        "test_set": True,
    }
    run = fedcohort.run(numbers(selection=selection), runs=tmp_path)
    clients = run.clients
    assert clients["set_size"].tolist() == pytest.approx((2 * clients["q_hat"]).tolist())
    admitted = clients["status"] == "admitted"
    assert (clients["q_hat"][admitted] <= 1.4).all()
    assert (clients["q_hat"][~admitted] > 1.4).all()
    assert admitted.any()
    short = {**selection, "rule": "set_size", "max_size": 2.8}
    assert (
        fedcohort.run(numbers(selection=short), runs=tmp_path).clients["status"].tolist() == clients["status"].tolist()
    )


def test_adaptive_alpha_counts_labels_outside_the_intervals(tmp_path: Path) -> None:
    selection = {"name": "conformal", "score": "absolute", "rule": "rank", "adaptive_alpha": True, "max_epochs": 1}
    run = fedcohort.run(numbers(selection=selection), runs=tmp_path)
    alphas = [note.rpartition("alpha ")[2].rstrip(")") for note in run.rounds["note"]]
    assert len(set(alphas)) > 1


# --- words -------------------------------------------------------------------------------------------------------------------


def test_scores_are_written_in_percent_or_as_numbers() -> None:
    assert (ACCURACY.spread(0.812, 0.035), R_SQUARED.spread(0.812, 0.035)) == ("81.2 ± 3.5", "0.812 ± 0.035")
    assert (ACCURACY.with_unit(0.5), R_SQUARED.with_unit(-0.25)) == ("50.0%", "−0.250")
    assert (ACCURACY.signed(0.031), R_SQUARED.signed(-0.031)) == ("+3.1", "−0.031")
    assert (R_SQUARED.value(-2.64e36), R_SQUARED.signed(-2.64e36)) == ("−2.64e+36", "−2.64e+36"), "not 37 digits"
    assert (R_SQUARED.value(-999.4), R_SQUARED.value(-1234.5), R_SQUARED.signed(2e7)) == (
        "−999.400",
        "−1,234",
        "+2e+07",
    )
    assert (ACCURACY.target(0.54), R_SQUARED.target(0.54)) == ("54%", "0.54")
    assert (ACCURACY.value(math.nan), R_SQUARED.value(math.nan)) == ("–", "–")
    assert R_SQUARED.interval(-0.1, math.inf) == "[−0.100, ∞]"
    assert score_style([]) is ACCURACY
    with pytest.raises(UsageError, match="compare them separately"):
        score_style(["classes", "numbers"])


def test_tables_and_pages_speak_of_r_squared(tmp_path: Path) -> None:
    settings = {"seeds": 2, "rounds": 2, "measures": {"clients_every": 1}}
    compared = fedcohort.compare(numbers(**settings, variants=[{"label": "all", "selection": "all"}]), runs=tmp_path)
    value = R_SQUARED.value(compared.table["accuracy"][0])
    runs = [run for row in compared.rows for run in row.runs.values()]
    texts = {
        "table": str(compared),
        "latex": compared.to_latex(),
        "seeds": terminal.as_text(terminal.results("x", [result(run) for run in runs])),
        "measures": terminal.as_text(terminal.summaries(["x"], [over_seeds([runs[0].summary()])])),
        "page": re.sub("<[^>]*>", " ", page(gather(runs)).partition("<script")[0]),
        "repr": f"{compared!r} {runs[0]!r}",
        "why": terminal.as_text(terminal.explanation(explain(runs[0], 2))),
    }
    for where, text in texts.items():
        assert "accuracy" not in text.lower().replace("measures.target_accuracy", ""), where
    assert all("R²" in texts[where] for where in ("table", "seeds", "measures", "page", "repr"))
    assert "test R$^2$ after the last round" in texts["latex"]
    assert value in texts["table"]
    assert value in texts["latex"]
    assert value in texts["page"]
    assert "mae" in texts["table"]
    assert "percentage points" not in "".join(texts.values())
    assert compared.table["difference_high"].max() < 5


def test_classes_and_numbers_are_not_compared(tmp_path: Path) -> None:
    runs = [fedcohort.run(experiment, runs=tmp_path) for experiment in (numbers(rounds=1), small(rounds=1))]
    with pytest.raises(UsageError, match="compare them separately"):
        side_by_side(runs)


def test_prediction_intervals_of_a_finished_regression(tmp_path: Path) -> None:
    from fedcohort.experiment.given_objects import Given
    from fedcohort.study.conformal_coverage import conformal, predict

    run = fedcohort.run(numbers(rounds=2), runs=tmp_path)
    validation, test = predict(run, Given())
    for alpha in (0.1, 0.4):
        found = conformal(run, alpha)
        ascending = np.sort(np.abs(validation.labels - validation.probabilities[:, 0]))
        assert found.threshold == ascending[math.ceil((len(ascending) + 1) * (1 - alpha)) - 1]
        assert found.sets.size == 2 * found.threshold
        assert found.sets.empty == 0
        inside = np.abs(test.labels - test.probabilities[:, 0]) <= found.threshold
        assert found.sets.coverage == inside.mean()
        spread = math.sqrt(alpha * (1 - alpha) * (1 / found.num_calibration + 1 / len(inside)))
        assert abs(found.sets.coverage - (1 - alpha)) < 4 * spread
    labels = np.concatenate([validation.labels, test.labels])
    assert labels.min() > 20, "in the units of the labels"
    text = call("measures", run.path, "--conformal", "0.4").stdout
    assert "coverage of prediction intervals" in text
    assert "accuracy" not in text.lower().replace("measures.target_accuracy", "")
    (said,) = json.loads(call("measures", run.path, "--conformal", "0.4", "--json").stdout)["runs"]
    assert said["conformal"]["labels"] == "numbers"


def _large(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples with prices from about 50,000 to 400,000."""
    draws = np.random.default_rng(3)
    return draws.normal(size=(rows, 4)).astype(np.float32), draws.lognormal(12, 0.5, size=rows)


def test_large_numbers_are_written_out_in_names_of_bins(tmp_path: Path) -> None:
    features, labels = _large(150)
    rows = [",".join(map(repr, [*map(float, own), float(price)])) for own, price in zip(features, labels, strict=True)]
    (tmp_path / "flats.csv").write_text("\n".join(["a,b,c,d,label", *rows]))
    data = fedcohort.from_arrays((features[:120], labels[:120]), (features[120:], labels[120:]), numeric=True)
    assert "e+05" in "".join(data.classes), "fingerprints of data depend on these names"
    experiment = numbers(data={"name": str(tmp_path / "flats.csv"), "numeric": True}, rounds=1)
    (tmp_path / "flats.toml").write_text(experiment.to_toml())
    call("data", "describe", tmp_path / "flats.toml", "-o", tmp_path / "clients.html")
    texts = {
        "terminal": call("data", "describe", tmp_path / "flats.toml").stdout,
        "page": (tmp_path / "clients.html").read_text(),
        "run": page(gather([fedcohort.run(experiment, runs=tmp_path)])),
        "notebook": str(data._repr_mimebundle_()),
    }
    for where, text in texts.items():
        assert re.search(r"(below|to|from)\s\d+,\d00", text), where
        assert not re.search(r"(below|from|to) \d[.\d]*e\+", text), where
    years = ("below 1990", "1990 to 1995", "from 1995")
    assert readable(years) == years
    assert readable(("2e+05", "1e+06"), numeric=False) == ("2e+05", "1e+06"), "names of classes"


def test_equal_test_labels_are_named_as_the_reason_for_no_r_squared(tmp_path: Path) -> None:
    features, labels = _large(120)
    labels[90:] = 3.0
    data = fedcohort.from_arrays((features[:90], labels[:90]), (features[90:], labels[90:]), numeric=True)
    experiment = numbers(data={"name": "arrays"}, seeds=1)
    compared = fedcohort.compare(experiment, data=data, runs=tmp_path)
    (finding,) = (one for one in compared.health if one.kind == "chance")
    assert finding.text == "there is no test R², because all labels of the test set are equal"
