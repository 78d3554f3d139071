"""Pictures of a federation: single clients that exist, the extremes of all of them, and words that say what is held."""

import re
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.describe_federation import Survey
from fedcohort.record import Portrait
from fedcohort.report import terminal
from fedcohort.report.charts.classes import class_counts
from fedcohort.report.charts.client_traits import sizes
from fedcohort.report.charts.federation import federation
from fedcohort.report.charts.shown_clients import SAMPLE, SHOWN, Clients
from fedcohort.report.federation_page import pictures
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.paper_figures import composed, draw
from fedcohort.runs.prepare_run import look
from tests.experiments import small
from tests.report.pages import Page


def figures(m: int, deadline: float | None = None) -> tuple[Clients, dict[str, Figure]]:
    """Single-class clients of which a few are noisy, and one is very slow."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 500, m)
    counts = np.zeros((m, 10), dtype=np.int64)
    counts[np.arange(m), rng.integers(0, 10, m)] = sizes
    time = rng.exponential(10, m)
    time[m // 3] = 1e4
    wrong = np.where(rng.random(m) < 0.3, 0.6, 0.0)
    facts = {"samples": sizes, "counts": counts, "time": time, "wrong_labels": wrong}
    clients = Clients.of(Portrait(tuple("0123456789"), facts), 0, deadline)
    assert clients is not None
    return clients, {figure.key: figure for figure in federation(clients, PAGE)}


@pytest.mark.parametrize("m", [SHOWN, SHOWN + 1, 20_000])
def test_every_client_that_is_drawn_is_one_that_exists(m: int) -> None:
    clients, found = figures(m)
    facts = clients.facts
    cells = found["classes-of-clients"].data["class_counts"]
    who = cells["client"].astype(int)
    assert cells["client"].nunique() == (m if m <= SHOWN else SAMPLE)
    assert (cells["samples"] == facts["counts"][who, cells["class"].astype(int)]).all()
    assert (found["class-shares"].data["class_shares"]["share"] == 1).all(), "single-class clients stay so"
    sizes = np.sort(facts["samples"])
    drawn = np.sort(facts["samples"][who])
    assert (drawn[0], drawn[-1]) == (sizes[0], sizes[-1])
    noise = found["noise"].data["noise"]
    assert set(noise["value"]) == {0.0, 0.6}
    assert noise["value"].mean() == pytest.approx(facts["wrong_labels"].mean(), abs=0.6 / 100)
    time = found["speed"].data["speed"].groupby("client")["value"].sum()
    np.testing.assert_allclose(time, facts["time"][time.index.astype(int)])
    assert time.max() == 1e4, "the slowest is always drawn"
    if m > SHOWN:
        assert f"{SAMPLE} of {m:,} clients, taken at even intervals in order of size" in found["class-shares"].note
        assert found["speed"].data["speed"]["to"].max() == pytest.approx(1)


def test_the_sample_is_even_over_the_order_of_size() -> None:
    clients, found = figures(20_000)
    drawn = found["classes-of-clients"].data["class_counts"]["client"].astype(int).drop_duplicates()
    sizes = clients.facts["samples"]
    levels = np.linspace(0, 1, SAMPLE)
    np.testing.assert_allclose(np.sort(sizes[drawn]), np.quantile(sizes, levels), atol=1)


def test_the_deadline_is_a_line_and_a_number() -> None:
    clients, found = figures(300, deadline=20.0)
    late = int((clients.facts["time"] > 20).sum())
    assert f"{late} of 300 clients need longer than the deadline, 20" in found["speed"].note
    assert found["speed"].data["deadline_key"]["deadline"].tolist() == [20.0]
    assert "deadline_key" not in figures(300)[1]["speed"].data


def test_equal_clients_are_one_bar_of_whole_numbers() -> None:
    clients = Clients(0, [], {"samples": np.full(50, 125)})
    (sizes,) = federation(clients, PAGE)
    (bar,) = sizes.data["sizes"].to_dict("records")
    assert bar["from"] <= 125 < bar["to"]
    assert (bar["clients"], bar["from"] % 1, bar["to"] % 1) == (50, 0, 0)
    assert sizes.views[0].panels[0].chart.to_dict()["encoding"]["x"]["scale"]["domain"] == [0, bar["to"]]


def test_few_samples_have_whole_numbers_in_legends_and_axes() -> None:
    """The legend of clients with one or two samples read 0, 1, 1, 2, 2, and the bar of one sample lay between 1 and 2. No cell has 0
    samples."""
    counts = np.array([[1, 0], [0, 2], [1, 1], [1, 0]])
    clients = Clients(0, ["a", "b"], {"samples": counts.sum(axis=1), "counts": counts})
    drawn = {figure.key: figure for figure in federation(clients, paper(1))}
    figure = drawn["classes-of-clients"]
    svg = draw(composed(figure, figure.views[0], paper(1)), "svg").decode()
    labels = re.search(r'role-legend-label".*?</g>', svg, re.DOTALL)
    entries = re.findall(r'role-legend-label".*?<text[^>]*>([0-9.]+)<', svg, re.DOTALL)
    assert labels is not None
    assert entries == ["1", "2"]
    sizes = drawn["sizes"].data["sizes"]
    assert sizes[["from", "left", "right", "clients"]].to_numpy().tolist() == [[1, 0.5, 1.5, 2], [2, 1.5, 2.5, 2]]


def made(**values: Any) -> tuple[Survey, Page]:
    experiment = small(**values).single(0)
    dataset, survey = look(experiment, Given())
    return survey, Page(pictures(experiment, dataset, survey, "row"))


def test_one_sample_without_a_client_is_in_the_singular() -> None:
    survey, page = made(federation={"clients": 3, "partition": {"name": "shards", "shards": 1}})
    assert survey.report.dropped == 1
    assert "; 1 belongs to no client." in page.prose
    assert "seed 0, 1 training sample belongs to no client" in page.prose


def test_the_head_says_what_is_held_and_the_facts_how() -> None:
    federation = {
        "clients": 7, "partition": {"name": "shards"}, "holdout": 0.2,
        "label_noise": {"name": "constant", "rate": 0.1}, "feature_shift": {"name": "rotate"},
    }  # fmt: skip
    survey, page = made(name="mine", federation=federation, systems={"deadline": 1000.0})
    held, dropped = int(survey.report.sizes.sum()), survey.report.dropped
    assert dropped > 0
    assert f"7 clients hold {held:,} of the 1,438 training samples of digits" in page.prose
    assert f"{dropped:,} belong to no client" in page.prose
    for words in (
        "mine",
        "shards(",
        "rate = 0.1",
        "rotate(",
        "share 0.2",
        "shifted_exponential(",
        "1,000: ",
        "Distance",
    ):
        assert words in page.prose
    _, whole = made(name="all", federation={"clients": 5, "partition": {"name": "iid"}})
    assert "5 clients hold all 1,438 training samples" in whole.prose
    assert "The labels of the clients' samples, with those held out, seed 0" in page.prose
    assert "The labels that clients train on, seed 0" in whole.prose


def test_the_terminal_explains_the_columns_that_it_has() -> None:
    noisy = {"clients": 5, "label_noise": {"name": "constant", "rate": 0.1}}
    texts = {}
    for holdout in (0.0, 0.2):
        experiment = small(federation={**noisy, "holdout": holdout})
        dataset, survey = look(experiment, Given())
        for width in (50, 200):
            shown = terminal.as_text(terminal.partition(experiment, dataset, survey, width), width)
            texts[holdout, width] = " ".join(shown.split())
    assert "labels that clients have, including wrong ones." in texts[0.0, 200]
    assert "including wrong ones and those of samples that they hold out." in texts[0.2, 200]
    assert "time: simulated time of one round" in texts[0.2, 200]
    hidden = texts[0.2, 50].partition("Hidden for lack of width:")[2]
    assert "time" in hidden
    assert "time: simulated time" not in texts[0.2, 50]


@pytest.mark.parametrize("command", [["data", "describe"], ["report"], ["profile"]])
def test_a_page_is_not_called_a_picture(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "-o", "page.png"])
    assert result.exit_code == 2
    assert "-o page.png: the page is HTML; give a name that ends in .html" in result.output


def test_clients_of_equal_size_have_no_range_of_sizes() -> None:
    """Three clients had "48 to 48 samples, median 48"."""
    equal, one, unequal = (
        sizes(Clients(0, [], {"samples": np.array(samples)}), PAGE).note for samples in ([48] * 3, [1], [48, 49])
    )
    assert equal == "3 clients, seed 0: 48 samples each."
    assert one == "1 client, seed 0: 1 sample."
    assert unequal == "2 clients, seed 0: 48 to 49 samples, median 48.5."


def test_names_of_clients_that_differ_at_their_end_stay_different() -> None:
    """They were shortened in their middle, and then cut at their end, so that both wards were "University H…"."""
    names = tuple(f"University Hospital of the North, Ward {i}" for i in (1, 2))
    counts = np.array([[3, 4], [5, 6]])
    clients = Clients(0, ["a", "b"], {"samples": counts.sum(axis=1), "counts": counts}, names=names)
    figure = class_counts(clients, np.arange(2), PAGE)
    assert figure is not None
    svg = draw(composed(figure, figure.views[0], PAGE), "svg").decode()
    assert {text[-6:] for text in re.findall(r">(University[^<]*)</text>", svg)} == {"Ward 1", "Ward 2"}


def test_names_of_classes_that_differ_at_their_end_stay_different() -> None:
    names = ["Mammogram Ward 1", "Mammogram Ward 2"]
    counts = np.array([[3, 4], [5, 6]])
    figure = class_counts(Clients(0, names, {"samples": counts.sum(axis=1), "counts": counts}), np.arange(2), PAGE)
    assert figure is not None
    svg = draw(composed(figure, figure.views[0], PAGE), "svg").decode()
    assert set(names) <= set(re.findall(r">([^<]*)</text>", svg))
