"""Absolute paths of the machine do not get into the live page."""

import html
import json
from collections.abc import Callable
from pathlib import Path

import markupsafe
import pytest
from jinja2.utils import htmlsafe_json_dumps

import fedcohort
from fedcohort.experiment import Cell
from fedcohort.experiment.given_objects import Given
from fedcohort.report.data.hidden_paths import without_paths
from fedcohort.report.live.live_server import Live
from fedcohort.runs.play_run import run_cell
from tests.experiments import small
from tests.runs.test_find_run import STRATEGY

DESCRIPTION = r"""
file = "/home/me & you/my traces/on.csv"
data = 'x'
name = "owner/name"
windows = "C:\\Users\\me\\data"
home = "~/secret/data"
# given: model from /opt/models/net.py and https://example.org/a/b
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reads /home/me & you/my traces/on.csv", "reads …/on.csv"),
        ("<td>/home/me &amp; you/my traces/on.csv</td>", "<td>…/on.csv</td>"),
        (r'{"x": "C:\\Users\\me\\data"}', '{"x": "…/data"}'),
        ("~/secret/data and /opt/models/net.py", "…/data and …/net.py"),
        ("/srv/all runs/one/experiment.toml", "…/all runs/one/experiment.toml"),
        ("owner/name, https://example.org/a/b, a/b/c, 1/2, /state?x", "owner/name, https://example.org/a/b, a/b/c, 1/2, /state?x"),
        ("beside/home/me & you/my traces/on.csv", "beside/home/me & you/my traces/on.csv"),
    ],
)  # fmt: skip
def test_the_last_part_stays(text: str, expected: str) -> None:
    assert without_paths(text, [DESCRIPTION], [Path("/srv/all runs"), Path("/")]) == expected


@pytest.mark.parametrize("name", ["<!--x", "<script>hurt()", "'b&c>", "\N{SNOWMAN}<b>"])
@pytest.mark.parametrize("written", [html.escape, markupsafe.escape, htmlsafe_json_dumps, json.dumps])
def test_a_name_that_is_markup_stays_escaped(name: str, written: Callable[[str], object]) -> None:
    """A name that begins like a path of Windows counts as one, and its last part is shown."""
    path = f"C:\\data\\{name}"
    assert without_paths(f"reads {written(path)}", [f'"{path}"']) == f"reads {written(f'…/{name}')}"


def test_the_live_page_has_no_absolute_path(tmp_path: Path) -> None:
    """Not of the runs, the data, the plug-in file, or the trace, not even in labels."""
    trace = tmp_path / "on.json"
    trace.write_text(str([list(range(12))] * 2))
    own = tmp_path / "mine.py"
    own.write_text(STRATEGY.format(start=0))
    experiment = small(
        rounds=2,
        selection=f"{own}:Mine",
        systems={"availability": {"name": "trace", "file": str(trace)}},
    )
    run_cell(Cell(f"file={trace}", 0, experiment.single(0)), Given(), runs=tmp_path / "runs")
    text = Live(tmp_path / "runs").page(None)
    assert "file=…/on.json" in html.unescape(text)
    assert "mine-" in text
    assert str(tmp_path) not in text
    assert str(tmp_path) in fedcohort.open_run(next((tmp_path / "runs").iterdir())).report()
