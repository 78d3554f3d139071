"""Pages about numeric labels say what the classes in their charts are."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.experiment.given_objects import Given
from fedcohort.report import terminal
from fedcohort.report.charts.accuracy import accuracy, differences
from fedcohort.report.charts.client_accuracy import client_accuracy
from fedcohort.report.charts.client_table import client_table
from fedcohort.report.charts.final_accuracy import bars
from fedcohort.report.charts.loss import loss
from fedcohort.report.charts.own_measures import own_measures
from fedcohort.report.data.report_data import gather
from fedcohort.report.federation_page import pictures
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.headline.headline import answers
from fedcohort.report.notes.failed_training import about_judged
from fedcohort.report.page import page
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.runs.prepare_run import look
from tests.experiments import IID, small
from tests.records import played, written
from tests.report.pages import Page


def test_scores_of_clients_have_three_digits(tmp_path: Path) -> None:
    """An R² of 0.656 was 0.7, as if it were a percentage."""
    run = fedcohort.run(small(rounds=1, measures={"clients_every": 1}, **IID, **DIABETES), runs=tmp_path)
    figure = client_table(gather([run]))
    assert figure is not None
    shown, own = figure.data["client_table"], run.clients.set_index("client")["accuracy"]
    assert shown.loc[own.index, "accuracy"].tolist() == own.round(3).tolist()
    assert shown["last"].tolist() == run.client_accuracy.iloc[-1].round(3).tolist()


RANGES = "Labels are numbers: each class here is a range of them, with about as many training samples as the others."

DIABETES: dict[str, Any] = {"data": {"name": "diabetes"}, "training": {"loss": "mse"}, "model": "logistic"}


@pytest.mark.parametrize(("settings", "times"), [(DIABETES, 2), ({}, 0)], ids=["numbers", "classes"])
def test_classes_of_numeric_labels_are_explained(settings: dict[str, Any], times: int, tmp_path: Path) -> None:
    """Two charts have them: the samples of each class of each client, and the shares of classes."""
    experiment = small(rounds=1, **IID, **settings)
    run = fedcohort.run(experiment, runs=tmp_path)
    assert Page(page(gather([run]))).prose.count(RANGES) == times
    dataset, survey = look(experiment, Given())
    assert Page(pictures(experiment, dataset, survey)).prose.count(RANGES) == times


def test_the_mean_absolute_error_is_explained_where_its_column_is(tmp_path: Path) -> None:
    about = "mae: mean absolute error on the test set, in the units of the labels."
    compared = fedcohort.compare(small(rounds=1, seeds=1, variants=VARIANTS, **IID, **DIABETES), runs=tmp_path)
    wide = terminal.as_text(terminal.comparison(compared, 300), 300)
    narrow = terminal.as_text(terminal.comparison(compared, 40), 40)
    assert " mae " in wide
    assert about in wide
    hidden = " ".join(narrow.split()).partition("Hidden for lack of width: ")[2]
    assert "mae, " in hidden
    assert about not in " ".join(narrow.split())
    assert about in compared.to_latex()
    displayed = str(compared._repr_mimebundle_()["text/html"])
    assert about in displayed
    assert 'alt="Test R² over rounds"' in displayed


def diverging(*rates: float) -> fedcohort.Experiment:
    """Two strategies with each of these learning rates: the models of 1,000 have no finite score."""
    numbers = IID | DIABETES | {"measures": {"clients_every": 1}}
    return small(rounds=1, seeds=2, sweep={"training.lr": list(rates)}, variants=VARIANTS, **numbers)


VARIANTS = [{"label": "power-of-choice", "selection": {"name": "powd", "d": 4}}]


def test_a_page_with_rows_without_scores_has_its_charts(tmp_path: Path) -> None:
    """Rows of which the models diverged ended the report with a traceback, or made all charts of the page empty."""
    compared = fedcohort.compare(diverging(0.05, 1000.0), runs=tmp_path)
    assert compared.table["accuracy"].notna().tolist() == [True, False, True, False]
    runs = [run for row in compared.rows for run in row.runs.values()]
    payload = Page(page(gather(runs))).payload  # which refuses infinite numbers
    assert {each["strategy"] for each in payload["data"]["tradeoff_bytes"]} == {
        "uniform, lr=0.05",
        "power-of-choice, lr=0.05",
    }
    figure = next(each for each in client_accuracy(gather(runs), PAGE) if each.key == "client-distribution")
    assert len(figure.data["clients_last"]) == 2 * 2 * 4
    left_out = "Clients whose score is −∞, because the model diverged, are not drawn: 8 of {!r} and 8 of {!r}."
    assert figure.note.endswith(left_out.format("uniform, lr=1000.0", "power-of-choice, lr=1000.0"))


def test_the_headline_of_one_row_says_under_which_seeds_it_diverged(tmp_path: Path) -> None:
    """It said that the row was not tested in any of its rounds."""
    numbers: dict[str, Any] = {
        "facts": {"labels": "numbers"},
        "training": {"loss": "mse"},
        "data": {"name": "diabetes"},
    }

    def one(seed: int, *scores: float) -> fedcohort.Run:
        rounds = [
            played(t, [0, 1], test_accuracy=score, test_loss=1 - score, class_accuracy=[])
            for t, score in enumerate(scores, start=1)
        ]
        return written(tmp_path / str(seed), rounds, seed=seed, **numbers)

    runs = [one(0, 0.2, math.nan), one(1, 0.1, 0.3), one(2, math.nan, math.nan)]
    for shown, words in ((runs, "its model diverged under seeds 0 and 2 of 3."), (runs[:1], "its model diverged.")):
        result, *_ = dict(answers(gather(shown))[0].answers)["Result"]
        assert result == f"'uniform' has no test R² in round 2: {words}"


def test_the_mean_score_ends_where_the_model_of_a_seed_diverged(tmp_path: Path) -> None:
    """It went on over the other seed; over time, the seed even kept the score that it had before."""
    numbers: dict[str, Any] = {
        "data": {"name": "diabetes"},
        "training": {"loss": "mse"},
        "facts": {"labels": "numbers"},
    }

    def one(label: str, seed: int, pace: float, *scores: float, **values: Any) -> fedcohort.Run:
        rounds = [
            played(t, [0, 1], test_accuracy=score, test_loss=1 - score, simulated_time=pace * t, class_accuracy=[])
            for t, score in enumerate(scores, start=1)
        ]
        return written(tmp_path / f"{label}{seed}", rounds, label=label, seed=seed, **numbers, **values)

    sound = [one("sound", seed, 1.0, 0.1, 0.2, 0.3, 0.4) for seed in (0, 1)]
    powd = {"name": "powd", "d": 4}
    wild = [
        one("wild", 0, 1.0, 0.2, 0.4, math.nan, math.nan, selection=powd),
        one("wild", 1, 1.5, 0.3, 0.3, 0.6, 0.8, selection=powd),
    ]
    figure = accuracy(gather([*sound, *wild]), PAGE)
    assert figure is not None
    tables = {name: table.groupby("strategy") for name, table in figure.data.items() if "strategy" in table}
    assert tables["accuracy_rounds"].get_group("wild")["mean"].tolist() == pytest.approx([0.25, 0.35])
    assert tables["accuracy_rounds"].get_group("sound")["x"].tolist() == [1, 2, 3, 4]
    last = tables["accuracy_time"].get_group("wild").iloc[-1]
    assert (last["x"], last["mean"]) == (2.0, pytest.approx(0.35))
    note = "Lines end where a model has diverged and has no R²: 'wild' from round 3 on (seed 0)."
    assert note in figure.note
    alone = accuracy(gather(sound), PAGE)
    assert alone is not None
    assert "diverged" not in alone.note
    losses = loss(gather([*sound, *wild]), PAGE)
    assert losses is not None
    assert losses.data["test_loss"].groupby("strategy").get_group("wild")["x"].tolist() == [1, 2]
    assert "infinite or not a number under a seed: 'wild' from round 3 on (seed 0)." in losses.views[0].note


def test_rows_without_a_difference_are_not_said_to_be_included_in_differences(tmp_path: Path) -> None:
    """Where the reference diverged, no row had a difference, and a note said that they included two rows that failed."""
    numbers: dict[str, Any] = {
        "data": {"name": "diabetes"},
        "training": {"loss": "mse"},
        "facts": {"labels": "numbers"},
    }

    def noted(reference: float) -> str:
        runs = [
            written(
                tmp_path / f"{label}{reference}",
                [played(1, [0, 1], test_accuracy=score, test_loss=1 - score, class_accuracy=[])],
                label=label, selection=selection, **numbers,
            )
            for label, score, selection in (("uniform", reference, "uniform"), ("low", -0.5, {"name": "powd", "d": 4}))
        ]  # fmt: skip
        return about_judged(gather(runs).comparison)

    assert noted(0.4) == "Differences include rows in which training failed, with the test R² that they reached: 'low'."
    assert noted(-0.4).endswith(": 'uniform' and 'low'.")
    assert noted(math.nan) == ""


def test_without_a_score_there_is_no_difference_and_no_word_about_its_interval(tmp_path: Path) -> None:
    """Tables of two seeds said "One seed gives no interval", and charts without a number were drawn."""
    compared = fedcohort.compare(diverging(1000.0), runs=tmp_path)
    story = gather([run for row in compared.rows for run in row.runs.values()])
    screen = " ".join(terminal.as_text(terminal.comparison(compared)).split())
    assert "over 2 seeds (0, 1). Difference to 'uniform, lr=1000.0', paired over seeds. No verdict:" in screen
    assert "ne seed gives no interval" not in screen + Page(page(story)).prose + to_latex(compared)
    assert differences(story, PAGE) is None
    assert bars(story, PAGE) is None


@pytest.mark.parametrize(
    ("scores", "page_axis", "paper_axis"),
    [
        ((-0.5, -0.1), [-0.5, 0.0], [-0.5, 0.0]),
        ((-0.5, 0.4), [-0.5, 0.42], [-0.6, 0.6]),
        ((0.2, 0.99), [0.0, 1.0], [0.0, 1.0]),
    ],
    ids=["all below 0", "on both sides", "nearly 1"],
)
def test_the_axis_of_bars_has_their_beginning_at_0(
    scores: tuple[float, float], page_axis: list[float], paper_axis: list[float], tmp_path: Path
) -> None:
    """With scores below 0 only, it ended below 0, and bars began outside of the chart."""
    runs = [
        written(
            tmp_path / label,
            [played(1, [0, 1], test_accuracy=score, test_loss=1 - score, class_accuracy=[])],
            label=label,
            data={"name": "diabetes"},
            training={"loss": "mse"},
            facts={"labels": "numbers"},
        )
        for label, score in zip(("first", "second"), scores, strict=True)
    ]
    for style, axis in ((PAGE, page_axis), (paper(1), paper_axis)):
        figure = bars(gather(runs), style)
        assert figure is not None
        chart = figure.views[0].panels[0].chart.to_dict(validate=False)
        assert chart["layer"][0]["encoding"]["x"]["scale"]["domain"] == pytest.approx(axis)


def test_a_table_for_a_paper_says_what_the_score_of_a_client_is(tmp_path: Path) -> None:
    """It is no R² of the client's own labels, as the caption said."""
    compared = fedcohort.compare(diverging(0.05), runs=tmp_path)
    caption = to_latex(compared)
    assert "Over clients: score on each client's own training samples" in caption
    assert "Score of a client: 1 $-$ mean squared error in units of the variance of all training labels." in caption
    displayed = str(compared._repr_mimebundle_()["text/html"])
    assert "Over clients: score on each client&#x27;s own training samples" in displayed


def test_without_a_score_there_is_no_distribution_over_clients(tmp_path: Path) -> None:
    """The scores of the first round are finite, and those of the last one are not."""
    rounds = [
        played(t, [0, 1], client_accuracy=np.full(12, score), test_accuracy=score)
        for t, score in ((1, -0.5), (2, -np.inf))
    ]
    numbers: dict[str, Any] = {"data": {"name": "diabetes"}, "training": {"loss": "mse"}}
    story = gather([written(tmp_path / "run", rounds, **numbers)])
    assert [each.key for each in client_accuracy(story, PAGE)] == ["client-accuracy"]
    assert Page(page(story)).payload


def test_the_mean_absolute_error_ends_where_a_model_diverged_and_is_never_negative(tmp_path: Path) -> None:
    """Its line went on over the other seeds, while the table had no mean, and its band reached below 0."""
    compared = fedcohort.compare(diverging(0.05, 1000.0), runs=tmp_path)
    figure = own_measures(gather([run for row in compared.rows for run in row.runs.values()]), PAGE)
    assert figure is not None
    assert "Lines end where a model has diverged and has no R²: " in figure.note
