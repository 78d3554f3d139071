"""Uniform chance of a run: among the clients that were available and have data, the same in tables, charts and captions."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort import measures
from fedcohort.core.words.formatted_values import index
from fedcohort.record import Portrait
from fedcohort.report import terminal
from fedcohort.report.charts.client_traits import presence as presence_chart
from fedcohort.report.charts.participation import fairness, participation
from fedcohort.report.charts.selection_counts import selections
from fedcohort.report.charts.shown_clients import Clients
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.page import page
from fedcohort.study.chance import about_chance
from fedcohort.study.run_measures import Measured
from tests.experiments import small
from tests.records import played, written
from tests.report.pages import Page

AVAILABILITY = {"name": "markov", "p_on": 0.15, "p_off": 0.2}
ROWS = [{"label": "UCB", "selection": {"name": "ucb"}}]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> fedcohort.Comparison:
    experiment = small(
        rounds=10,
        seeds=2,
        federation={"clients": 20, "partition": {"name": "quantity", "beta": 0.05, "min_size": 0}},
        systems={"availability": AVAILABILITY},
        variants=ROWS,
    )
    return fedcohort.compare(experiment, runs=tmp_path_factory.mktemp("chance"))


def test_tables_charts_and_captions_have_one_number_of_chance(compared: fedcohort.Comparison) -> None:
    """The table said 0.787 for every seed; uniform selection of the clients that were there gives less."""
    runs = [run for row in compared.rows for run in row.runs.values()]
    by_hand = []
    for run in compared.rows[0].runs.values():
        there = run.described.systems.availability.build().presence(20, 10, run.described.seed)
        has_data = run.portrait.facts["samples"] > 0
        assert not has_data.all()
        masks = [there(t) & has_data for t in range(1, 11)]
        assert [int(mask.sum()) for mask in masks] == run.rounds["available"].tolist()
        by_hand.append(
            measures.uniform_chance(20, run.rounds["selected"].tolist(), dict(enumerate(masks, 1)).__getitem__)
        )
    mean = float(np.mean([chance.reference.mean for chance in by_hand]))
    assert mean < measures.jain_random(20, 3, 10).mean - 0.1
    assert compared.table["jain_random"].tolist() == pytest.approx([mean, mean])
    story = gather(runs)
    curve = fairness(story, PAGE)
    assert curve is not None
    assert curve.data["jain_reference"]["mean"].iloc[-1] == pytest.approx(mean)
    assert (
        "Thin dotted line in a gray band: mean of uniform chance among the available clients with data, with the band"
        in curve.note
    )
    counts = selections(story, PAGE)
    assert counts is not None
    first = by_hand[0].reference
    said = f"gives a Jain's index of {index(first.mean)} on average ({index(first.q05)} to {index(first.q95)} in 90% of runs)"
    assert f"Uniform chance among the available clients with data {said}" in counts.note
    printed = " ".join(terminal.as_text(terminal.comparison(compared, width=200)).split())
    assert f"uniform chance gives {index(mean)} on average among the available clients with data." in printed
    shown = Page(page(story))
    coverage = float(np.mean([chance.participation.coverage for chance in by_hand]))
    assert f"({index(mean)})" in shown.texts["fairness"][0]["jain"]
    assert f"({index(coverage)})" in shown.texts["fairness"][0]["coverage"]
    assert shown.prose.count("gives the mean in parentheses among the available clients with data.") == 2


def test_each_client_has_its_own_range_under_uniform_chance(compared: fedcohort.Comparison) -> None:
    """Clients that are seldom there are seldom selected: one range for all made uniform selection look unfair."""
    figure = selections(gather([run for row in compared.rows for run in row.runs.values()]), PAGE)
    assert figure is not None
    chance = figure.data["selections_chance"]
    own = chance[chance["strategy"] == "uniform"]
    uniform = Measured(compared.rows[0].runs[0]).chance.uniform
    assert own["client"].tolist() == list(range(20))
    assert own["mean"].tolist() == pytest.approx(uniform.expected.tolist())
    assert own["mean"].nunique() > 3
    never = uniform.present == 0
    assert never.any()
    assert (own["high"][never] == 0).all()
    marks = [layer["mark"]["type"] for layer in figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]]
    assert marks == ["rect", "bar", "bar", "tick"]
    assert "Gray, for each client: the range that contains 90% of runs under uniform chance." in figure.note


def test_where_availability_is_not_recorded_the_caption_says_what_is_assumed(tmp_path: Path) -> None:
    """As on real machines: 7 of 12 clients were there, and the record does not say which."""
    rounds = [played(t, [t % 5, 5, 6], available=7) for t in range(1, 9)]
    run = written(tmp_path / "a", rounds)
    assert not Measured(run).chance.known
    assert Measured(run).chance.uniform.reference == measures.jain_random(12, 3, 8)
    words = "if all clients are available, since it is not recorded which ones were"
    for figure in (selections(gather([run]), PAGE), fairness(gather([run]), PAGE)):
        assert figure is not None
        assert f"niform chance {words}" in figure.note
    told = " ".join(terminal.as_text(terminal.comparison(gather([run]).comparison, width=200)).split())  # type: ignore[arg-type]
    assert re.search(rf"uniform chance gives 0\.\d+ on average {words}\.", told)
    known = written(tmp_path / "b", [played(t, [t % 5, 5, 6]) for t in range(1, 9)])
    assert Measured(known).chance.known
    figure = selections(gather([known]), PAGE)
    assert figure is not None
    assert "Uniform chance gives a Jain's index of" in figure.note


def test_the_caption_says_if_availability_is_not_computed_for_very_many_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the record lacks what follows from the law and the seed."""
    monkeypatch.setattr("fedcohort.study.chance.MOST", 12 * 8 - 1)
    values: dict[str, Any] = {"selection": {"name": "uniform", "k": 3}, "rounds": 8}
    law = {"name": "bernoulli", "probability": 0.8}
    run = written(
        tmp_path / "a",
        [played(t, [1, 2, 3], available=9) for t in range(1, 9)],
        systems={"availability": law},
        **values,
    )
    chance = Measured(run).chance
    assert not chance.known
    assert chance.too_many
    assert chance.uniform.reference == measures.jain_random(12, 3, 8)
    words = "if all clients are available, since it is not computed which ones were for more than 95 clients × rounds"
    figure = selections(gather([run]), PAGE)
    assert figure is not None
    assert f"Uniform chance {words} gives a Jain's index of" in figure.note


def test_one_round_without_a_client_limits_uniform_selection(tmp_path: Path) -> None:
    """Of two clients, both are available in most rounds; a caption of several runs says so if it is so for one of them."""
    law = {"name": "bernoulli", "probability": 0.8}
    values: dict[str, Any] = {"federation": {"clients": 2}, "selection": {"name": "uniform", "k": 1}, "rounds": 8}
    present = small(**values, systems={"availability": law}).systems.availability.build().presence(2, 8, 0)
    available = [int(present(t).sum()) for t in range(1, 9)]
    assert max(available) == 2 > min(available)
    rounds = [played(t, [0][:number], available=number) for t, number in enumerate(available, 1)]
    some = Measured(written(tmp_path / "some", rounds, **values, systems={"availability": law})).chance
    whole = Measured(written(tmp_path / "all", [played(t, [0], available=2) for t in range(1, 9)], **values)).chance
    assert [(chance.known, chance.limited) for chance in (some, whole)] == [(True, True), (True, False)]
    assert some.uniform.present.tolist() == sum(present(t).astype(int) for t in range(1, 9)).tolist()
    assert about_chance([whole, some]) == " among the available clients with data"
    assert about_chance([whole]) == ""


def test_clients_without_data_are_not_called_unavailable(tmp_path: Path) -> None:
    """Of 200 clients, 80 have no data: the chart of availability showed them as never available."""
    samples = np.where(np.arange(200) < 120, 5, 0)
    facts = {"samples": samples, "presence": np.where(samples > 0, 1.0, 0.0)}
    assert presence_chart(Clients(0, [], facts), PAGE) is None, "every client with data is always available"
    facts["presence"] = np.where(samples > 0, 0.5, 0.0)
    figure = presence_chart(Clients(0, [], facts), PAGE)
    assert figure is not None
    assert (figure.data["presence"]["value"] == 0.5).all()
    assert "80 clients without data, which cannot be selected, have no bar." in figure.note
    assert "all 120 clients in order" in figure.note
    portrait = Portrait(("a",), {"samples": samples, "presence": facts["presence"]})
    rounds = [played(t, [t, 5], available=119 + t % 2) for t in (1, 2, 3)]
    drawn = participation(
        gather([written(tmp_path / "a", rounds, portrait=portrait, federation={"clients": 200})]), PAGE
    )
    assert drawn is not None
    assert drawn.note.endswith("Clients without data do not count as available: they cannot be selected.")


@pytest.mark.parametrize("rounds", [[[], [0], [0, 1, 2]], [[], [], []]])
def test_jains_index_begins_with_the_first_selection(rounds: list[list[int]], tmp_path: Path) -> None:
    """It was 1, that of a perfectly even choice, until then."""
    (tmp_path / "trace.json").write_text(json.dumps(rounds))
    trace = {"name": "trace", "file": str(tmp_path / "trace.json")}
    experiment = small(rounds=3, federation={"clients": 4, "partition": "iid"}, systems={"availability": trace})
    run = fedcohort.run(experiment, runs=tmp_path / "runs", progress=False)
    story = gather([run])
    figure = fairness(story, PAGE)
    if not any(rounds):
        assert figure is None
        assert "No client was selected in any round." in Page(page(story)).prose
        return
    assert figure is not None
    for name in ("jain", "jain_reference"):
        assert figure.data[name]["x"].tolist() == [2, 3]
        assert figure.data[name]["mean"].iloc[0] == pytest.approx(1 / 4)
    assert figure.data["jain"]["mean"].iloc[1] == pytest.approx(
        measures.jain(run.clients["client"].value_counts().reindex(range(4), fill_value=0))
    )
