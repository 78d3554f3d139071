"""What notebooks display: small tables with pictures, a progress bar, and in a real notebook a comparison of classes of its cells."""

import base64
import io
import logging
import re
import struct
import types
from html import escape
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import fedcohort
from fedcohort.core import notebook_display
from fedcohort.core.errors import UsageError
from fedcohort.core.notebook_display import LARGEST, bundle
from fedcohort.report import progress_bar
from fedcohort.report.charts.client_accuracy import client_accuracy
from fedcohort.report.data.report_data import find_runs, gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.page import page
from tests.experiments import blobs, small
from tests.report.pages import Page


def size_in_file(content: dict[str, Any]) -> int:
    """The size of a display in a notebook's file, which holds images as base64."""
    return sum(
        len(base64.b64encode(value)) if isinstance(value, bytes) else len(value.encode()) for value in content.values()
    )


def size_of_png(png: str | bytes) -> tuple[int, int]:
    assert isinstance(png, bytes)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> fedcohort.Comparison:
    variants = [{"label": f"k = {k} <b>", "selection": {"k": k}} for k in (2, 3, 4)]
    experiment = small(rounds=3, seeds=3, model="logistic", variants=variants)
    return fedcohort.compare(experiment, runs=tmp_path_factory.mktemp("runs"))


def test_a_comparison_has_a_table_and_a_chart(compared: fedcohort.Comparison) -> None:
    content = compared._repr_mimebundle_(include=None, exclude=None)
    html, png = str(content["text/html"]), content["image/png"]
    assert content["text/plain"] == repr(compared)
    assert html.count("<tr>") == 1 + len(compared.rows)
    assert "k = 2 &lt;b&gt;" in html
    assert "taken from these results" in html
    assert f'src="data:image/png;base64,{base64.b64encode(png).decode()}"' in html  # type: ignore[arg-type]
    assert size_of_png(png)[0] > 900
    assert size_in_file(content) <= LARGEST
    assert not re.search(r"<(script|style|iframe|svg)|style=|class=", html)


def test_a_run_has_its_results_and_a_chart(compared: fedcohort.Comparison) -> None:
    run = compared.rows[0].runs[0]
    content = run._repr_mimebundle_()
    accuracy = 100 * run.rounds["test_accuracy"].iloc[-1]
    assert f"<td>{accuracy:.1f}%</td>" in content["text/html"]
    assert str(run.path) in content["text/html"]
    assert size_in_file(content) <= LARGEST
    assert size_of_png(content["image/png"])[0] > 900


def test_clients_and_own_measures_are_displayed(tmp_path: Path) -> None:
    def Brier(predictions: Any, labels: Any) -> float:  # a name that keeps its capital
        return 0.125

    rng = np.random.default_rng(0)
    x, y, hospital = rng.normal(size=(200, 3)), np.arange(200) % 2, np.arange(200) % 4
    data = fedcohort.from_arrays(
        (x[:120], y[:120]), (x[120:], y[120:]), clients=hospital[:120], test_clients=hospital[120:]
    )
    experiment = fedcohort.Experiment(
        rounds=1, seeds=1, model="logistic", variants=[{"label": "x", "selection": "ucb"}]
    )
    compared = fedcohort.compare(experiment, data=data, measures=[Brier], runs=tmp_path)
    html = str(compared._repr_mimebundle_()["text/html"])
    assert "<th>over clients</th><th>worst client</th><th>Brier</th>" in html
    assert "<td>0.125</td>" in html
    html = str(compared.rows[0].runs[0]._repr_mimebundle_()["text/html"])
    assert re.search(r"test accuracy over clients</th><td>[\d.]+ ± [\d.]+, worst client [\d.]+ in %</td>", html)
    assert '<th align="left">Brier</th><td>0.125</td>' in html
    open_partition = str(experiment._repr_mimebundle_()["text/html"])
    assert "12 by dirichlet_class(" in open_partition
    assert "; not named, so own data may decide</td>" in open_partition
    # the tenth of four clients is one client: every place says so
    assert re.search(r"worst client: that of\s+the client with the lowest accuracy\.", str(compared))
    latex = compared.to_latex()
    assert "& Worst client &" in latex
    assert "worst client: that of the client with the lowest accuracy." in latex
    story = gather(find_runs([tmp_path]))
    found = Page(page(story))
    assert "accuracy of the worst client %" in found.prose
    assert "tenth" not in str(compared) + latex + found.prose
    (figure, _) = client_accuracy(story, PAGE)
    assert [view.name for view in figure.views] == ["worst client", "mean of all clients"]


def test_the_whole_page_is_one_call_away(compared: fedcohort.Comparison) -> None:
    page = compared.report()
    assert re.fullmatch(
        r"<report page of [\d.]+ [kM]B>", repr(page)
    )  # a notebook's file holds this text beside the page
    assert "<!doctype html>" in page[:1000]
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert "k = 2" in page
    assert "<!doctype html>" in compared.rows[0].runs[0].report()[:1000]


def test_data_and_experiments_have_tables_and_pictures_of_them() -> None:
    data, experiment = (
        blobs(),
        small(
            selection={"name": "powd", "d": 6},
            variants=[{"label": "x", "selection": "ucb"}],
            sweep={"training.lr": [0.1, 0.2]},
        ),
    )
    content = data._repr_mimebundle_()
    assert "<td>180</td><td>60</td>" in content["text/html"]
    shown = str(experiment._repr_mimebundle_()["text/html"])
    for words in ("3 by powd(d = 6", "12 by dirichlet_class(", "variant x", "sweep of training.lr", "0.1, 0.2"):
        assert words in shown
    for each in (content, experiment._repr_mimebundle_()):
        width, height = size_of_png(each["image/png"])
        assert width > 200
        assert height > 50
        assert size_in_file(each) <= LARGEST


def test_the_picture_shows_the_table() -> None:
    """Dark pixels stand in every line and in every column."""
    from PIL import Image

    rows = [["first", "1"], ["second", "22"]]
    image = np.asarray(Image.open(io.BytesIO(notebook_display.picture_of_table("title", ["name", "number"], rows))))
    lines = np.flatnonzero((image < 128).any(axis=1)) // notebook_display._LINE
    assert set(lines) >= {0, 1, 2, 3}
    assert (image[3 * notebook_display._LINE + 8 :, image.shape[1] // 2 :] < 128).any()


def test_one_row_that_is_left_out_is_in_the_singular() -> None:
    assert "<small>1 more row.</small>" in str(bundle("one", "one", ["a"], [["b"]] * 61)["text/html"])


@pytest.mark.slow
def test_a_display_of_many_rows_stays_small() -> None:
    rng = np.random.default_rng(0)
    rows = [["".join(map(chr, rng.integers(97, 122, 400))) for _ in range(8)] for _ in range(2000)]
    content = bundle("many", "many", [str(n) for n in range(8)], rows, ["a note"])
    assert size_in_file(content) <= LARGEST
    assert "1,940 more rows." in content["text/html"]
    too_large = bundle("x", "x", [], [["a", "b"]], picture=lambda: bytes(300_000))
    assert set(too_large) == {"text/plain", "text/html"}


def test_a_chart_that_is_too_large_is_left_out(compared: fedcohort.Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcohort.report.notebook._LARGEST_CHART", 100)
    content = compared._repr_mimebundle_()
    assert "<img" not in content["text/html"]
    assert size_of_png(content["image/png"])[1] > 100  # the picture of the table


def test_a_large_chart_has_fewer_pixels(compared: fedcohort.Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    """With five strategies or so, the chart was left out without a word."""
    png = compared._repr_mimebundle_()["image/png"]
    monkeypatch.setattr("fedcohort.report.notebook._LARGEST_CHART", len(png) - 1)
    content = compared._repr_mimebundle_()
    assert "<img" in content["text/html"]
    assert size_of_png(content["image/png"])[0] == pytest.approx(size_of_png(png)[0] / 2, abs=1)


def test_problems_of_runs_are_displayed(compared: fedcohort.Comparison) -> None:
    """The terminal and the page named them, and a notebook did not."""
    html = str(compared._repr_mimebundle_()["text/html"])
    assert compared.health
    assert all(escape(finding.text) in html for finding in compared.health)
    assert "verdict, p (Holm)" in html


def test_a_comparison_writes_its_figures(compared: fedcohort.Comparison, tmp_path: Path) -> None:
    files = compared.figures(tmp_path, only=["accuracy"])
    assert [file.name for file in files] == ["accuracy-rounds.pdf", "accuracy-simulated-time.pdf", "accuracy-bytes.pdf"]
    assert all(file.read_bytes()[:5] == b"%PDF-" for file in files)
    for values, message in (
        ({"suffix": "gif"}, r"^suffix = 'gif': valid: pdf, png, svg"),
        ({"columns": 3}, r"^columns = 3: use 1 or 2"),
        ({"only": ["acuracy"]}, r"^only = 'acuracy': these runs have no such figure; did you mean 'accuracy'"),
        (
            {"only": "accuracy"},
            r"^only = 'accuracy': give a list of figures, such as \['accuracy'\]; valid: accuracy, ",
        ),
        ({"only": 3}, r"^only = 3: give a list of figures"),
        ({"only": [3]}, r"^only = 3: these runs have no such figure"),
        ({"columns": [1]}, r"^columns = \[1\]: use 1 or 2"),
        ({"folder": 3}, r"^folder = 3: should be a path"),
    ):
        with pytest.raises(UsageError, match=message):
            compared.figures(**cast("Any", {"folder": tmp_path, **values}))
    for write in (compared.to_csv, compared.to_latex):
        with pytest.raises(UsageError, match=r"^file = 3: should be a path"):
            write(3)  # type: ignore[arg-type]


# --- progress ---------------------------------------------------------------------------------------------------------------


def test_a_bar_shows_rounds_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedcohort.compare(small(rounds=2, seeds=2, model="logistic"), runs=tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert "uniform, seed 0: round 1 of 2  25%" in shown
    assert "uniform, seed 1: round 2 of 2 100%" in shown
    assert "2 of 2 runs 100%" in shown
    fedcohort.compare(small(rounds=2, seeds=2, model="logistic"), runs=tmp_path)
    fedcohort.compare(small(rounds=2, seeds=2, model="logistic"), runs=tmp_path, progress=False)
    assert capsys.readouterr().err == ""
    fedcohort.run_seeds(small(rounds=2, seeds=2, model="logistic"), runs=tmp_path, progress=True)
    assert "1 of 2 runs  50%" in capsys.readouterr().err


def test_a_message_has_a_line_of_its_own_beside_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """It was written behind the bar, in the same line."""
    handler = logging.StreamHandler()  # writes to stderr, as Python does for messages that nobody handles
    progress_bar.log.addHandler(handler)
    try:
        with progress_bar.shown_progress(True) as (_, watch):
            watch.begin(2)
            progress_bar.log.warning("which clients")
        progress_bar.log.warning("the bar is gone")
    finally:
        progress_bar.log.removeHandler(handler)
    lines = [line.rpartition("\r")[2] for line in capsys.readouterr().err.split("\n")]
    assert [line for line in lines if line.strip()] == ["which clients", "the bar is gone"]
    assert progress_bar.log.filters == []


def test_a_notebook_has_a_bar_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bar(progress_bar.ProgressBar):
        def __init__(self) -> None:
            self._bar = None

    def shown(progress: Any) -> type:
        with progress_bar.shown_progress(progress) as (called, _):
            return type(called)

    monkeypatch.setattr(progress_bar, "ProgressBar", Bar)
    assert (shown(None), shown(True)) == (type(None), Bar)
    kernel = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel="a kernel"))
    monkeypatch.setitem(__import__("sys").modules, "IPython", kernel)
    assert (shown(None), shown(False), shown(print)) == (Bar, type(None), type(print))
    with pytest.raises(UsageError, match=r"^progress = 'yes': give a function"):
        shown("yes")


CELLS = [
    """
import fedcohort
from fedcohort.selection import Cohort, Selector
""",
    """
class Newest(Selector):
    first = 1
    def select(self, round):
        return Cohort(round.available[self.first :][: round.k])
""",
    """
experiment = fedcohort.Experiment(name="nb", rounds=2, seeds=2, model="logistic", selection=Newest)
experiment
""",
    "compared = fedcohort.compare(experiment, jobs=2); compared",
    "compared.rows[0].runs[0]",
    "fedcohort.load_dataset('digits')",
    "again = fedcohort.compare(experiment, progress=False); print([r.path for r in again.rows[0].runs.values()])",
]


@pytest.mark.slow
def test_a_notebook_runs_its_own_classes_in_two_processes_and_displays_them(tmp_path: Path) -> None:
    """Executed by Jupyter's own client: the displays, the bar, and the same runs when the class is written again."""
    nbclient = pytest.importorskip("nbclient", reason="needs the development tools: nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs the development tools: nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell["outputs"] for cell in notebook.cells]
    displays = [next(out["data"] for out in outputs[n] if out["output_type"] == "execute_result") for n in (2, 3, 4, 5)]
    for data in displays:
        assert data["text/html"].startswith("<div>")
        assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG"
        assert sum(len(value) for value in data.values()) <= LARGEST
    assert "Newest" in displays[1]["text/html"]
    bar = "".join(
        out.get("text", "") or str(out.get("data", "")) for out in outputs[3] if out["output_type"] != "execute_result"
    )
    assert "runs" in bar
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert "newest-seed1" in outputs[6][0]["text"]
    notebook_again = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS[:4]])
    nbclient.NotebookClient(notebook_again, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(list((tmp_path / "runs").iterdir())) == 2  # another session: the same code, the same runs
