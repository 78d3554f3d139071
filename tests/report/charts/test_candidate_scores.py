"""Maps of scores show every selected client, also those without a score."""

import math
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.record import ClientRow, RoundRow
from fedcohort.report.charts.candidate_scores import candidates
from fedcohort.report.charts.selection_reasons import reasons
from fedcohort.report.charts.shown_clients import SHOWN
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.figure import Figure
from fedcohort.report.figures.paper_figures import composed, draw
from tests.records import played, written
from tests.report.pages import caption

Decision = tuple[int, bool, float, dict[str, float]]
"""A candidate of a round: its id, whether it was selected, its score, and the terms of the score."""


def run_of(path: Path, *, clients: int = 12, rounds: int = 3, unscored: bool = True) -> fedcohort.Run:
    """In each round, client 0 is selected with the highest score, and client 1 without any; client 2 is not selected."""
    value = math.nan if unscored else 0.5
    rows = [
        played(
            t,
            [0, 1],
            decisions=[
                (0, True, 2.0 + t, {"loss": 2.0 + t}),
                (2, False, 1.0, {"loss": 1.0}),
                (1, True, value, {"loss": value}),
            ],
        )
        for t in range(1, rounds + 1)
    ]
    return written(path, rows, label="oort", selection={"name": "oort"}, federation={"clients": clients})


def score_map(run: fedcohort.Run) -> Figure:
    ((_, figures),) = reasons(gather([run]), PAGE)
    return next(figure for figure in figures if figure.key.startswith("map"))


def test_selected_clients_without_a_score_have_a_circle(tmp_path: Path) -> None:
    """They had no mark, so that the map showed fewer selected clients than there were."""
    run = run_of(tmp_path / "a")
    figure = score_map(run)
    circles = figure.data["map_oort_0_without"]
    assert circles[["round", "client"]].to_numpy().tolist() == [[1, 1], [2, 1], [3, 1]]
    cells = figure.data["map_oort_0"]
    assert set(cells["client"]) == {0, 2}
    assert int((cells["selected"] > 0).sum()) + len(circles) == int(run.rounds["selected"].sum())
    assert (
        "A dot is a client that was selected. A circle is a client that was selected without this value." in figure.note
    )
    svg = draw(composed(figure, figure.views[0], paper(1)), "svg").decode()
    assert svg.count('aria-roledescription="point"') == 6, "a dot and a circle in each round"
    ((_, figures),) = reasons(gather([run]), PAGE)
    terms = next(one for one in figures if one.key.startswith("terms"))
    assert "Clients that were selected without a score are left out." in terms.note


def test_candidates_that_the_record_leaves_out_are_mentioned(tmp_path: Path) -> None:
    """An empty cell can be a client that was selected: the record keeps 1,000 candidates of a round."""
    selected = [ClientRow(client, "admitted") for client in range(1_200)]
    best: list[Decision] = [(client, True, 2_000.0 - client, {"loss": 2_000.0 - client}) for client in range(1_000)]
    values: dict[str, Any] = {
        "label": "oort",
        "selection": {"name": "oort"},
        "federation": {"clients": 1_300, "partition": "iid"},
    }
    rounds = [played(t, selected, decisions=best, available=1_300) for t in (1, 2)]
    run = written(tmp_path / "a", rounds, **values)
    kept = "Of a round with more candidates, the record keeps 1,000, selected ones first; any other is an empty cell"
    assert f"{kept}, even if it was selected." in score_map(run).note
    assert "of 1,000 clients that were recorded as candidates" in score_map(run).note
    ((_, figures),) = reasons(gather([run]), PAGE)
    terms = next(one for one in figures if one.key.startswith("terms"))
    assert "of each round, but at most the 1,000 with the highest scores, which are recorded." in terms.note
    few = [(client, client < 3, score, loss) for client, _, score, loss in best]
    run = written(tmp_path / "b", [played(1, [0, 1, 2], decisions=few, available=1_300)], **values)
    assert f"{kept}." in score_map(run).note
    ((_, figures),) = reasons(gather([run]), PAGE)
    assert "at most" not in next(one for one in figures if one.key.startswith("terms")).note


def test_without_such_clients_there_are_no_circles(tmp_path: Path) -> None:
    figure = score_map(run_of(tmp_path / "a", unscored=False))
    assert [name for name in figure.data if name.endswith("_without")] == []
    assert "circle" not in figure.note


@pytest.mark.parametrize("unscored", [False, True])
def test_a_term_that_is_the_score_has_no_view_of_its_own(tmp_path: Path, unscored: bool) -> None:
    """The views "score" and "loss" of strategies that rank by loss were the same."""
    figure = score_map(run_of(tmp_path / "a", unscored=unscored))
    assert [view.name for view in figure.views] == ["score"]
    assert "The score is the loss. A dot is a client that was selected." in figure.note
    rows = [
        played(
            t, [0], decisions=[(0, True, 3.0, {"loss": 1.0, "bonus": 2.0}), (1, False, 2.0, {"loss": t, "bonus": 0.0})]
        )
        for t in (1, 2)
    ]
    other = score_map(written(tmp_path / "b", rows, label="oort", selection={"name": "oort"}))
    assert [view.name for view in other.views] == ["score", "loss", "bonus"]
    assert "The score is" not in other.note


@pytest.mark.parametrize(("rounds", "heads"), [(3, ["round", "selected"]), (400, ["from round", "selected"])])
def test_tooltips_say_yes_or_no_about_one_round_and_name_the_first_of_several(
    rounds: int, heads: list[str], tmp_path: Path
) -> None:
    """A client was "selected: 100%" in a round, and cells of several rounds named one of them."""
    cells = (
        score_map(run_of(tmp_path / "a", rounds=rounds, unscored=False))
        .views[0]
        .panels[0]
        .chart.to_dict(validate=False)
    )
    layer = cells["layer"][0] if "layer" in cells else cells
    shown = {each["title"]: each["field"] for each in layer["encoding"]["tooltip"] if each.get("title") in heads}
    assert list(shown) == heads
    assert shown["selected"] == ("chosen" if rounds == 3 else "selected")


@pytest.mark.parametrize(("clients", "rounds"), [(12, 400), (SHOWN + 1, 3)])
def test_blocks_of_rounds_and_samples_of_clients_have_circles_too(clients: int, rounds: int, tmp_path: Path) -> None:
    figure = score_map(run_of(tmp_path / "a", clients=clients, rounds=rounds))
    circles = figure.data["map_oort_0_without"]
    assert set(circles["client"]) == {1}
    assert circles["round"].tolist() == sorted(figure.data["map_oort_0"]["round"].unique())
    assert ("place" in circles) == (clients > SHOWN)
    assert ("without this value in these rounds." in figure.note) == (rounds > 3)


def test_captions_say_in_how_many_rounds_chance_decided(tmp_path: Path) -> None:
    """Two clients of the same shade, of which one has a dot, looked as if the score had told them apart."""
    tied: list[Decision] = [(0, True, 0.9, {}), (1, True, 0.5, {}), (2, False, 0.5, {}), (3, False, 0.1, {})]
    equal: list[Decision] = [(client, client < 2, 0.5, {}) for client in range(4)]
    clear: list[Decision] = [(0, True, 0.9, {}), (1, True, 0.6, {}), (2, False, 0.5, {}), (3, False, 0.5, {})]
    rounds = [played(t, [0, 1], decisions=own) for t, own in enumerate([tied, equal, clear, tied], start=1)]
    rounds.append(played(5, [0, 1], decisions=tied, note="random: epsilon"))

    def note(name: str, rounds: list[RoundRow]) -> str:
        (reading,) = gather([written(tmp_path / name, rounds)]).first
        figure = candidates("ucb", reading, reading.decisions(), [], PAGE)
        assert figure is not None
        return figure.note

    assert "In 2 rounds, chance decided between clients with the same score." in note("tied", rounds)
    assert "chance decided" not in note("clear", [played(1, [0, 1], decisions=clear)])


def test_captions_speak_of_circles_only_in_views_that_have_some(tmp_path: Path) -> None:
    """The view of the score said what a circle is, although only that of a term had circles."""
    first = [(0, True, 3.0, {"loss": 1.0, "norm": 2.0}), (1, False, 2.0, {"loss": 4.0, "norm": 0.0})]
    then = [(0, True, 3.0, {"loss": 2.0, "norm": math.nan}), (1, False, 2.0, {"loss": 1.0, "norm": 1.0})]
    rows = [played(1, [0], decisions=first), played(2, [0], decisions=then)]
    figure = score_map(
        written(tmp_path / "a", rows, label="oort", selection={"name": "oort"}, federation={"clients": 12})
    )
    assert "circle" not in figure.note
    circled = {view.name: int(f"map_oort_{i}_without" in figure.data) for i, view in enumerate(figure.views)}
    assert circled == {"score": 0, "loss": 0, "norm": 1}
    assert {view.name: view.note.count("A circle is a client") for view in figure.views} == circled


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (
            {"name": "rizk"},
            "Norm: how far the client's updates moved the model per local step, a running mean over its past rounds.",
        ),
        ({"name": "ocs"}, "Norm: how far the update that the client trained in this round moves the model."),
        ({"name": "feel"}, "Norm: the size of the gradient of the client's mean loss."),
        (
            {"name": "feel", "gradient": "cached"},
            "Norm: how far the client's last update moved the model per local step.",
        ),
        ({"name": "oort"}, ""),
    ],
)
def test_captions_say_what_the_norm_is_of(selection: dict[str, str], expected: str, tmp_path: Path) -> None:
    """Charts of several strategies said "norm", without a word of what, and in which units."""
    terms: list[Decision] = [(0, True, 3.0, {"p": 0.4, "norm": 2.0}), (1, False, 2.0, {"p": 0.6, "norm": 0.5})]
    clients = [ClientRow(0, "admitted", reports={"update_norm": norm}) for norm in (2.0, 1.0)]
    rows = [played(t, [client], decisions=terms) for t, client in enumerate(clients, start=1)]
    story = gather([written(tmp_path / "a", rows, label="mine", selection=selection, federation={"clients": 12})])
    ((_, figures),) = reasons(story, PAGE)
    captions = {figure.key: caption(figure) for figure in figures}
    for key in ("terms-mine", "map-mine"):
        assert captions[key].count("Norm: ") == bool(expected), key
        assert expected in captions[key]
        assert ("Euclidean norm over all weights of the model, in the units of" in captions[key]) == bool(expected)
    assert captions["reported-mine"].endswith(
        "Update norm: how far the client's update moved the model. It is the Euclidean norm over all weights of the model, in the "
        "units of the weights."
    )


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_chart_of_scores_that_are_all_0_says_so(value: float, tmp_path: Path) -> None:
    """In the first round of UCB, all terms are 0: the chart had a legend, axes, and no word about its missing bars."""
    decisions = [
        (0, True, value, {"mean reward": value, "bonus": 0.0}),
        (1, False, 0.0, {"mean reward": 0.0, "bonus": 0.0}),
    ]
    run = written(tmp_path, [played(1, [0], decisions=decisions)], label="UCB", selection={"name": "ucb"})
    ((_, figures),) = reasons(gather([run]), PAGE)
    assert (" All of these are 0. " in f"{figures[0].note} ") == (value == 0)
