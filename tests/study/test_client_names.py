"""Names of clients: those of the data are in the record, and every view of a run shows them beside the numbers."""

import json
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.report.charts import client_table
from fedcohort.report.charts.selection_counts import selections
from fedcohort.report.charts.shown_clients import names_for_charts
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.terminal import as_text, explanation
from fedcohort.study.decisions.explain_decision import explain
from tests.cli.test_cli import call, refused

NAMES = ["bellevue", "charite", "mayo clinic", "st-mary", "ucl"]


def hospitals(names=NAMES, **options):
    """Data of as many clients as there are names, in an order that is not that of the names."""
    rng = np.random.default_rng(0)
    of_client = np.repeat(np.array(names)[::-1], 30)
    features = rng.normal(size=(len(of_client), 3))
    labels = (features[:, 0] > 0).astype(int)
    return fedcohort.from_arrays((features, labels), (features[:20], labels[:20]), clients=of_client, **options)


def play(folder, data=None, **settings: Any):
    described: dict[str, Any] = {
        "model": "logistic",
        "rounds": 3,
        "selection": {"name": "powd", "d": 4, "k": 2},
    } | settings
    return fedcohort.run(
        fedcohort.Experiment(name="named", **described), data=hospitals() if data is None else data, runs=folder
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return play(tmp_path_factory.mktemp("named"), measures={"clients_every": 1})


def test_a_run_knows_the_names_of_its_clients(run):
    assert run.client_names == tuple(NAMES)
    run.verify()


def test_clients_that_mix_several_hospitals_have_no_names(tmp_path):
    mixing: list[dict[str, Any]] = [
        {"federation": {"partition": "iid", "clients": 4}},
        {"algorithm": "centralised", "selection": "all"},
    ]
    for i, settings in enumerate(mixing):
        assert play(tmp_path / str(i), **settings).client_names == ()


def test_a_part_of_the_hospitals_keeps_their_names(tmp_path):
    federation = {"partition": "natural", "clients": 3}
    run = play(tmp_path, federation=federation, selection={"name": "uniform", "k": 2})
    assert len(run.client_names) == 3
    assert set(run.client_names) < set(NAMES)


def test_numbers_from_0_are_not_names(tmp_path):
    assert play(tmp_path / "from 0", hospitals(names=[0, 1, 2, 3, 4])).client_names == ()
    assert play(tmp_path / "others", hospitals(names=[3, 4, 7, 11, 12])).client_names == ("3", "4", "7", "11", "12")


def test_candidates_have_names(run):
    found = explain(run, 2)
    assert {each.client: each.name for each in found.candidates} == {
        each.client: NAMES[each.client] for each in found.candidates
    }
    selected = next(each for each in found.candidates if each.selected)
    shown = as_text(explanation(found))
    assert f"{selected.client}  {selected.name}" in shown
    assert "name" in next(line for line in shown.splitlines() if line.startswith("client"))


def test_a_client_is_found_by_its_name(run):
    client = next(each.client for each in explain(run, 2).candidates if each.selected)
    by_number, by_name = explain(run, 2, client), run.why(2, NAMES[client])
    assert by_name.to_json() == by_number.to_json()
    assert by_name.client_name == NAMES[client]
    assert by_name.words()[0].startswith(f"Client {client} ({NAMES[client]}) was selected in round 2")
    printed = json.loads(call("why", run.path, "--round", 2, "--client", NAMES[client], "--json").stdout)
    assert printed["client_name"] == NAMES[client]
    assert [each["name"] for each in printed["candidates"]] == [NAMES[client]]


def test_unknown_names_are_refused(run, tmp_path):
    expected = "--client charité: the federation has no such client; did you mean 'charite'? (valid: bellevue, "
    with pytest.raises(UsageError) as raised:
        explain(run, 1, "charité")
    assert str(raised.value).startswith(expected)
    assert str(raised.value).endswith("or give its number, from 0")
    refused(call("why", run.path, "--round", 1, "--client", "x"), "--client x: the federation has no such client")
    unnamed = play(tmp_path, hospitals(names=[0, 1, 2, 3, 4]))
    with pytest.raises(UsageError, match="the data do not name its clients; give its number, from 0"):
        explain(unnamed, 1, "charite")


def test_ties_name_the_clients(tmp_path):
    run = play(tmp_path, selection={"name": "ucb", "k": 2, "initial_rounds": 0, "epsilon": 0.0})
    found = explain(run, 2)
    sentence = next(line for line in found.words() if line.startswith("Chance decided"))
    untried = [each.client for each in found.candidates if each.untried]
    assert len(untried) == 3
    assert all(f"{client} ({NAMES[client]})" in sentence for client in untried)


def test_the_page_names_clients(run):
    story = gather([run])
    figure, counts = client_table.client_table(story), selections(story, PAGE)
    assert figure is not None
    assert counts is not None
    assert figure.sheet["name"] == "name"
    rows = figure.data["client_table"]
    assert rows["name"].tolist() == NAMES
    assert rows["last"].tolist() == (100 * run.client_accuracy.iloc[-1]).round(1).tolist()
    drawn = json.dumps([panel.chart.to_dict() for view in counts.views for panel in view.panels])
    assert json.dumps(f"{json.dumps(NAMES)}[datum.value] || datum.value") in drawn
    assert '{"field": "name", "type": "nominal"}' in drawn


def test_charts_of_many_clients_have_no_names():
    assert names_for_charts([f"client-{i}" for i in range(101)]) == []
    (short,) = names_for_charts(["a" * 100])
    assert len(short) == 24
