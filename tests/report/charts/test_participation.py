"""Who took part: the law of chance that counts and Jain's index are shown beside, and the raster of rounds and clients."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcohort import measures
from fedcohort.record import ClientRow, Run
from fedcohort.report.charts.participation import fairness, participation
from fedcohort.report.charts.selection_counts import selections
from fedcohort.report.charts.selection_raster import raster
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.paper_figures import composed, draw
from tests.records import played, written


def in_turn(path: Path, rounds: int, clients: int, k: int) -> Run:
    """A run that selected the clients in turn, k a round."""
    rows = [played(t, [(t * k + i) % clients for i in range(k)]) for t in range(1, rounds + 1)]
    return written(path, rows, federation={"clients": clients}, selection={"k": k})


def test_counts_stand_beside_the_middle_90_percent_of_chance(tmp_path: Path) -> None:
    """Selected in each of 24 rounds with probability 3/12, a client's count is binomial. P(X ≤ 2) = 0.040, P(X ≤ 3) = 0.115,
    P(X ≤ 8) = 0.880 and P(X ≤ 9) = 0.945, P(X ≤ 10) = 0.979: 5% to 95% are 3 to 10, and 10% to 90% were 3 to 9."""
    figure = selections(gather([in_turn(tmp_path / "a", 24, 12, 3)]), PAGE)
    assert figure is not None
    (chance,) = figure.data["selections_chance"].to_dict("records")
    assert (chance["low"], chance["mean"], chance["high"]) == (3, 6.0, 10)
    shown = figure.data["selections"]
    assert shown["times"].tolist() == shown["used"].tolist() == [6] * 12
    figure = selections(gather([in_turn(tmp_path / "b", 20, 12, 3)]), PAGE)
    assert figure is not None
    (chance,) = figure.data["selections_chance"].to_dict("records")
    # P(X ≤ 1) = 0.024, P(X ≤ 2) = 0.091: 5% is 2, and 10% were 3
    assert (chance["low"], chance["mean"], chance["high"]) == (2, 5.0, 8)


def test_bands_of_numbers_of_clients_end_at_the_most_that_a_round_can_have(tmp_path: Path) -> None:
    """Means of 2, 3 and 3 clients with k = 3 had a band up to 3.24, and those of 0, 0 and 2 one down to −0.5."""
    runs = [
        written(
            tmp_path / str(seed),
            [played(1, list(range(admitted)), available=available), played(2, list(range(2 * (seed == 1))))],
            seed=seed,
            selection={"k": 3},
        )
        for seed, admitted, available in ((0, 2, 10), (1, 3, 12), (2, 3, 12))
    ]
    figure = participation(gather(runs), PAGE)
    assert figure is not None
    for column, most in (("selected", 3), ("trained", 3), ("admitted", 3), ("available", 12)):
        first, second = figure.data[f"clients_{column}"].to_dict("records")
        assert first["high"] == most, column
        assert first["mean"] < most
        assert column == "available" or second["low"] == 0


def test_jains_index_stands_beside_the_middle_90_percent_of_chance(tmp_path: Path) -> None:
    """Of 20,000 runs that select 7 of 30 clients a round by chance, 5% lie below the band and 5% above it, after each round."""
    m, k, n = 30, 7, 12
    figure = fairness(gather([in_turn(tmp_path / "a", n, m, k)]), PAGE)
    assert figure is not None
    shown, chance = figure.data["jain"], figure.data["jain_reference"]
    counts, rng = np.zeros((20_000, m)), np.random.default_rng(1)
    for t, band in enumerate(chance.to_dict("records"), start=1):
        counts += rng.random(counts.shape).argsort(axis=1) < k
        index = (k * t) ** 2 / (m * (counts**2).sum(axis=1))
        assert band["mean"] == pytest.approx(index.mean(), rel=0.01)
        # the index has steps: less than 5% (of 400 draws) lie below the band, and with its end itself more
        for level, end in ((index, band["low"]), (-index, -band["high"])):
            assert (level < end - 1e-9).mean() < 0.08, t
            assert (level < end + 1e-9).mean() > 0.02, t
    times = np.zeros(m)
    for t, drawn in enumerate(shown["mean"], start=1):
        np.add.at(times, [(t * k + i) % m for i in range(k)], 1)
        assert drawn == pytest.approx(measures.jain(times))


def test_the_axis_of_jains_index_has_room_for_the_bands(tmp_path: Path) -> None:
    """It ended a little above the highest line, and cut off the bands of the seeds and of chance."""
    even = in_turn(tmp_path / "even", 6, 8, 2)
    same = written(
        tmp_path / "same",
        [played(t, [0, 1]) for t in range(1, 7)],
        seed=1,
        federation={"clients": 8},
        selection={"k": 2},
    )
    figure = fairness(gather([even, same]), PAGE)
    assert figure is not None
    layers = figure.views[0].panels[0].chart.to_dict(validate=False)["layer"]
    low, high = layers[0]["encoding"]["y"]["scale"]["domain"]
    for name in ("jain", "jain_reference"):
        assert low <= figure.data[name]["low"].min()
        assert figure.data[name]["high"].max() <= high
    assert figure.data["jain_reference"]["high"].max() > figure.data["jain"]["mean"].max()


def test_chance_is_that_of_the_point_of_a_sweep(tmp_path: Path) -> None:
    """Points with two and with four clients a round have their own curve; the page shows the one of the chosen point."""
    runs = [
        written(
            tmp_path / f"{label}{k}",
            [played(t, [(t * k + i) % 12 for i in range(k)]) for t in range(1, 7)],
            label=f"{label}, k={k}",
            selection={"name": name, "k": k},
        )
        for k in (2, 4)
        for label, name in (("uniform", "uniform"), ("turns", "round_robin"))
    ]
    story = gather(runs)
    page = replace(PAGE, rows=story.row_looks)
    figure, of_paper = fairness(story, page), fairness(story, paper())
    assert figure is not None
    assert of_paper is not None
    chance = figure.data["jain_reference"]
    last = chance.groupby("strategy", sort=False)["mean"].last()
    assert list(last.index) == ["uniform, k=2", "uniform, k=4"]
    assert last.tolist() == pytest.approx([1 / (1 + 10 / 12), 1 / (1 + 8 / 24)], rel=0.05)
    chart = json.dumps(figure.views[0].panels[0].chart.to_dict(validate=False))
    assert '"indexof(away, datum.strategy) < 0"' in chart
    assert "jain_reference" not in of_paper.data, "one chart for all points cannot have one chance"
    assert "uniform chance" not in of_paper.note
    counts = selections(story, page)
    assert counts is not None
    assert ["gives a Jain's index of 0.758 on" in words for words in counts.at_points] == [False, True]
    assert "Jain's index" not in counts.note, "the page shows one point at a time"
    for words in figure.at_points:
        assert (
            words == "Thin dotted line in a gray band: mean of uniform chance with the band that contains 90% of runs."
        )
    of_both = selections(story, paper())
    assert of_both is not None
    assert " on average with 2 clients a round (" in of_both.note
    assert " on average with 4 clients a round (" in of_both.note


def test_cells_of_the_raster_are_shaded_by_the_share_of_their_own_rounds_and_clients(tmp_path: Path) -> None:
    """241 rounds of 130 clients: cells of 3 rounds × 3 clients, 81 columns and 44 rows; of the last column one round is left.

    Client 129 is in every round, 0 in the first and 0 to 2 in the last, 4 and 5 in round 7. The order is 129, 0, 1, then 2, 4, 5.
    """
    also = {1: [0], 7: [4, 5], 241: [0, 1, 2]}
    rounds = [played(t, [129, *also.get(t, [])]) for t in range(1, 242)]
    run = written(tmp_path / "a", rounds, federation={"clients": 130})
    figure = raster(gather([run]), PAGE)
    assert figure is not None
    assert [view.name for view in figure.views] == ["single clients", "all clients"]
    cells = figure.data["raster"].set_index(["round", "row"])
    assert len(cells) == 81 + 2
    shares = cells["share"].to_dict()
    assert [shares.pop((t, 0)) for t in range(1, 242, 3)] == pytest.approx([4 / 9] + [3 / 9] * 79 + [1.0])
    assert shares == pytest.approx({(7, 1): 2 / 9, (241, 1): 1 / 3})
    assert list(cells.loc[(7, 1), ["x", "x2", "y", "y2"]]) == [6.5, 9.5, 2.5, 5.5]
    single = figure.data["raster_sample"]
    assert single["row"].max() < 60
    assert single[single["client"] == 129]["share"].tolist() == [1.0] * 81, (
        "a row is one client, never a mean over clients"
    )
    assert single.groupby("row")["client"].nunique().max() == 1
    assert sorted(single["client"].unique()) == [0, 1, 2, 4, 5, 129], "no row is empty"
    assert sorted(single["row"].unique()) == list(range(6))
    assert figure.views[0].panels[0].title.endswith(" · 6 of 130 clients selected")
    assert "Single clients: at most 60 of those that were selected in any round" in figure.note


def test_panels_of_the_raster_have_the_same_shades(tmp_path: Path) -> None:
    """Full color was the largest share of each panel, so that a panel of rare selections looked like one of frequent ones."""
    runs = [
        written(
            tmp_path / label,
            [played(t, clients if t % every == 0 else []) for t in range(1, 241)],
            federation={"clients": 130},
            label=label,
        )
        for label, clients, every in (("often", [0, 1, 2], 1), ("rarely", [5], 3))
    ]
    figure = raster(gather(runs), PAGE)
    assert figure is not None
    scales = [panel.chart.to_dict()["encoding"]["opacity"]["scale"] for panel in figure.views[1].panels]
    shares = figure.data["raster"].groupby("strategy")["share"].max()
    assert shares["rarely"] < shares["often"] == 1
    assert [scale["domain"] for scale in scales] == [[0, 1.0]] * 2
    assert (
        "its shade is the share that was selected, full color is 100%, the largest share in any panel." in figure.note
    )


def test_without_blocks_a_mark_of_the_raster_is_a_selected_client(tmp_path: Path) -> None:
    run = written(tmp_path / "a", [played(1, [3, 0]), played(2), played(3, [11])])
    figure = raster(gather([run]), PAGE)
    assert figure is not None
    cells = figure.data["raster"]
    assert cells[["round", "client"]].to_numpy().tolist() == [[1, 3], [1, 0], [3, 11]]
    assert cells["share"].tolist() == [1.0] * 3


def of_outcomes(path: Path, *, late: bool) -> Run:
    """A run of 130 clients, which are too many for a row each: clients 7 and 9 are selected, and 9 can be late."""
    rows = [played(t, [ClientRow(7, "admitted"), ClientRow(9, "late" if late else "admitted")]) for t in (1, 2)]
    return written(path, rows, federation={"clients": 130}, selection={"k": 2})


def test_cells_of_single_clients_are_hollow_if_the_client_was_not_admitted(tmp_path: Path) -> None:
    """With many clients, all cells were filled, although the caption said that those of late clients are hollow."""
    figure = raster(gather([of_outcomes(tmp_path / "a", late=True)]), PAGE)
    assert figure is not None
    assert "a hollow one a client that was selected but not admitted." in figure.note
    cells = figure.data["raster_sample"]
    assert cells[["round", "client", "row", "status"]].to_numpy().tolist() == [
        [t, client, row, status] for t in (1, 2) for client, row, status in ((7, 0, "admitted"), (9, 1, "late"))
    ]
    svg = draw(composed(figure, figure.views[0], paper(1)), "svg").decode()
    cells_drawn = re.findall(r'aria-label="[^"]*outcome: (\w+)[^"]*"[^>]* fill="([^"]+)"', svg)
    assert {outcome for outcome, _ in cells_drawn} == {"admitted", "late"}
    assert len({fill for outcome, fill in cells_drawn if outcome == "late"}) == 1
    assert {fill for outcome, fill in cells_drawn if outcome == "late"}.isdisjoint(
        fill for outcome, fill in cells_drawn if outcome == "admitted"
    )


@pytest.mark.parametrize("clients", [12, 130])
def test_captions_speak_of_hollow_cells_only_if_there_are_some(tmp_path: Path, clients: int) -> None:
    run = of_outcomes(tmp_path / "a", late=False) if clients == 130 else in_turn(tmp_path / "a", 4, 12, 3)
    figure = raster(gather([run]), PAGE)
    assert figure is not None
    assert "hollow" not in figure.note
    assert "A cell is a client that was selected; all of these were admitted." in figure.note


def test_chance_in_the_caption_is_that_of_the_panels(tmp_path: Path) -> None:
    """Of 14 rows, 12 have a panel; the caption listed the chance of those that select few clients, which had none."""
    runs = [
        written(
            tmp_path / str(i),
            [played(t, list(range(2 if i > 11 else 3)), test_accuracy=0.9 - 0.05 * i) for t in (1, 2)],
            label=f"row {i}",
            selection={"k": 2 if i > 11 else 3},
        )
        for i in range(14)
    ]
    figure = selections(gather(runs), PAGE)
    assert figure is not None
    assert len(figure.views[0].panels) == 12
    assert "on average (" in figure.note, "the panels have one chance"
    assert "with 2 clients a round" not in figure.note


def test_unequal_numbers_of_clients_in_captions_look_unequal(tmp_path: Path) -> None:
    """Means of 2.25 and 2 selected clients were both "2 clients", with two values of chance; one that cannot vary had a range."""
    picks: dict[str, tuple[int, ...]] = {"a": (3, 2, 2, 2), "b": (2, 2, 2, 2), "c": (12, 12, 12, 12)}
    runs = [
        written(tmp_path / label, [played(t, range(k)) for t, k in enumerate(own, start=1)], label=label)
        for label, own in picks.items()
    ]
    figure = selections(gather(runs), PAGE)
    assert figure is not None
    assert re.findall(r"with (\S+ clients) a round", figure.note) == ["2 clients", "2.2 clients", "12 clients"]
    assert "1.000 on average with 12 clients a round (in nearly all runs)" in figure.note


def test_equal_mean_numbers_of_clients_are_named_once_in_captions(tmp_path: Path) -> None:
    """Rounds of 1 and 5 clients, and rounds of 3, were both "3 clients a round", with two values of chance."""
    picks: dict[str, tuple[int, ...]] = {"a": (1, 5, 1, 5), "b": (3, 3, 3, 3), "c": (2, 2, 2, 2)}
    runs = [
        written(tmp_path / label, [played(t, range(k)) for t, k in enumerate(own, start=1)], label=label)
        for label, own in picks.items()
    ]
    figure = selections(gather(runs), PAGE)
    assert figure is not None
    assert re.findall(r"with (\S+ clients) a round", figure.note) == ["2 clients", "3 clients"]
    low, high = sorted(readings[0].chance.reference.mean for _, readings in gather(runs[:2]).played)
    assert f"{low:.3f} to {high:.3f} on average with 3 clients a round (" in figure.note
    assert figure.note.count("in at least 90% of runs") == 1
