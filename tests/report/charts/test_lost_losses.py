"""Lines of losses end where the loss of a seed is infinite or not a number, and captions say where."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.record import ClientRow
from fedcohort.report.charts.loss import loss
from fedcohort.report.data.cached_run import CachedRun
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE, paper
from fedcohort.report.figures.figure import Figure, View
from fedcohort.report.figures.paper_figures import composed, draw
from tests.records import played, written
from tests.report.pages import caption

NAN, INF = np.nan, np.inf
SOUND = [2.3, 1.4, 0.9, 0.7, 0.6]


def runs(folder: Path, label: str, *seeds: list[float], train: Any = None, **values: Any) -> list[fedcohort.Run]:
    """A run for each list of test losses."""
    made = []
    for seed, losses in enumerate(seeds):
        rounds = [
            played(
                t,
                [
                    ClientRow(0, "admitted"),
                    ClientRow(1, "diverged" if train and np.isnan(train[t - 1]) else "admitted"),
                ],
                test_loss=value,
                train_loss=train[t - 1] if train else 1.0 / t,
                **({"test_accuracy": NAN, "class_accuracy": []} if value == 0 else {}),
            )
            for t, value in enumerate(losses, 1)
        ]
        rounds = [row if losses[row.round - 1] else _untested(row) for row in rounds]
        made.append(written(folder / f"{label}{seed}", rounds, label=label, seed=seed, **values))
    return made


def _untested(row: Any) -> Any:
    row.test_loss = NAN
    return row


def drawn(found: list[fedcohort.Run], look: Any = PAGE) -> Figure:
    figure = loss(gather(found), look)
    assert figure is not None
    return figure


def test_the_mean_ends_where_a_seed_diverged_and_does_not_recover(tmp_path: Path) -> None:
    """The mean went on over the other seed: from 1e30 down to 3."""
    found = runs(tmp_path, "sound", SOUND, SOUND, selection="uniform")
    found += runs(
        tmp_path, "wild", [2.3, 1e30, NAN, NAN, 1e9], [2.3, 3.0, 3.0, 3.0, 3.0], selection={"name": "powd", "d": 4}
    )
    figure = drawn(found)
    frame = figure.data["test_loss"].set_index("strategy")
    assert frame.loc["wild", "x"].tolist() == [1.0, 2.0]  # type: ignore[union-attr]
    assert frame.loc["sound", "x"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]  # type: ignore[union-attr]
    (cross,) = figure.data["test_loss_lost"].to_dict("records")
    assert {key: cross[key] for key in ("strategy", "x", "mean", "why")} == {
        "strategy": "wild", "x": 2.0, "mean": 5e29, "why": "no number from round 3 on (seed 0)",
    }  # fmt: skip
    top = figure_span(figure.views[0])[1]
    assert (cross["edge"], cross["end"]) == (pytest.approx(1.0), pytest.approx(top)), "where the line leaves the chart"
    assert (cross["edge_log"], cross["end_log"]) == (2.0, pytest.approx(5e29)), (
        "the whole line is on a logarithmic axis"
    )
    assert figure.views[0].note.endswith(
        "the highest mean is 5e+29, of 'wild'. "
        "Lines end (×) where the test loss is infinite or not a number under a seed: 'wild' from round 3 on (seed 0). "
        "Where a line leaves the chart before, its × stands at the edge."
    )
    names = figure.data["test_loss_ends"].set_index("strategy")["name"].to_dict()
    assert names == {"sound": "sound", "wild": "wild ×"}
    assert "training loss is infinite" not in caption(figure)
    assert "test_loss_lost" not in drawn(found[:2]).data


def test_rows_without_any_mean_keep_their_names(tmp_path: Path) -> None:
    """A row that diverges in round 1 had no line, and no name."""
    found = runs(tmp_path, "sound", SOUND, selection="uniform")
    found += runs(tmp_path, "never", [INF] * 5, selection={"name": "powd", "d": 4})
    figure = drawn(found)
    ends = figure.data["test_loss_ends"].set_index("strategy")
    assert ends["name"].to_dict() == {"sound": "sound", "never": "never ×"}
    assert ends["y"]["never"] == pytest.approx(figure_span(figure.views[0])[1])
    assert "'never' from round 1 on (seed 0)" in caption(figure)


def test_runs_on_real_machines_need_no_test_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs(tmp_path, "a", [NAN] * 5, selection="uniform")
    assert "Lines end" not in caption(drawn(found)), "there is no chart of test losses"
    found += runs(tmp_path, "sound", SOUND, selection={"name": "powd", "d": 4})
    assert "'a' from round 1 on" in caption(drawn(found))
    monkeypatch.setattr(CachedRun, "clock", "wall")
    assert "Lines end" not in caption(drawn(found))


def figure_span(view: View) -> list[float]:
    """The range of the y axis."""
    layers = view.panels[0].chart.to_dict(validate=False)["layer"]
    found: list[float] = next(
        layer["encoding"]["y"]["scale"]["domain"] for layer in layers if "scale" in layer["encoding"].get("y", {})
    )
    return found


def test_rounds_without_a_test_end_no_line(tmp_path: Path) -> None:
    """Zeros stand for rounds that were not tested."""
    figure = drawn(runs(tmp_path, "sound", [2.3, 0.0, 0.9, 0.0, 0.6], selection="uniform"))
    assert figure.data["test_loss"]["x"].tolist() == [1.0, 3.0, 5.0]
    assert "Lines end" not in caption(figure)


def test_training_losses_end_where_updates_diverged(tmp_path: Path) -> None:
    found = runs(tmp_path, "a", SOUND, SOUND, train=[2.0, 1e9, NAN, 3.0, NAN], selection="uniform")
    figure = drawn(found)
    assert figure.data["train_loss"]["x"].tolist() == [1.0, 2.0]
    assert figure.views[1].note.endswith(
        "training loss is infinite or not a number under a seed: 'a' from round 3 on (seeds 0 and 1)."
    )


def test_a_caption_names_three_rows(tmp_path: Path) -> None:
    found = runs(tmp_path, "sound", SOUND, selection="uniform")
    for i in range(5):
        found += runs(tmp_path, f"row {i}", [2.3, INF, 1.0, 1.0, 1.0], selection={"name": "powd", "d": 4 + i})
    note = caption(drawn(found))
    assert "'row 2' from round 2 on (seed 0) and 2 more rows." in note
    assert "row 3" not in note


def test_crosses_are_drawn_and_the_log_switch_has_its_own_places_of_names(tmp_path: Path) -> None:
    """With logarithmic axes, names vanished, and the caption said that the axis ends below the largest mean."""
    found = runs(tmp_path, "sound", SOUND, selection="uniform")
    found += runs(tmp_path, "wild", [2.3, 9.0, 1e9, 1e20, 1e30], selection={"name": "powd", "d": 4})
    found += runs(tmp_path, "lost", [2.0, 1.5, 1.2, INF, INF], selection={"name": "powd", "d": 5})
    figure = drawn(found)
    ends = figure.data["test_loss_ends"].set_index("strategy")
    assert ends["name"].to_dict() == {"sound": "sound", "wild": "wild ↑", "lost": "lost ×"}
    assert ends["name_log"].to_dict() == {"sound": "sound", "wild": "wild", "lost": "lost ×"}
    assert ends["y_log"]["wild"] == pytest.approx(1e30, rel=10), "moved up to be apart from another name"
    assert "The linear axis of the test loss ends at 2.38" in caption(figure)
    on_paper = drawn(found, paper(1))
    assert " The axis of the test loss ends at 2.38" in caption(on_paper)
    svg = draw(composed(on_paper, on_paper.views[0], paper(1)), "svg").decode()
    assert svg.count("no number from round 4 on (seed 0)") == 2, (
        "a cross, and a wider one in the color of the ground behind it"
    )
    assert '"test_loss_lost"' in json.dumps(figure.views[0].panels[0].chart.to_dict(validate=False))
