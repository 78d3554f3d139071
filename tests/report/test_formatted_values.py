"""Numbers have the same text in the terminal, on the page, and in figures."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import vl_convert
from rich.table import Table

from fedcohort.core.words import formatted_values
from fedcohort.report import terminal
from fedcohort.report.charts.cost import cost
from fedcohort.report.charts.final_accuracy import bars
from fedcohort.report.data.report_data import Story, find_runs, gather
from fedcohort.report.figures.chart_style import PAGE
from fedcohort.report.page import page
from fedcohort.study.comparison import Comparison
from tests.experiments import small
from tests.report.pages import Page

FIELDS = {
    "best": "best_accuracy", "early stop": "early_stop_accuracy", "rounds to": "rounds_to_target", "time to": "time_to_target",
    "Jain": "jain", "bytes": "bytes", "client passes": "client_passes", "wall time": "wall_seconds",
}  # fmt: skip
"""Columns of the page by the heading of the terminal, without the target."""

HARD: list[dict[str, Any]] = [
    {"rounds_to_target": 16.5, "reached": 2, "time_to_target": 1_234_567.5, "bytes": 3.2e12, "client_passes": 2.5,
     "accuracy": 0.99996, "accuracy_sd": 0.00004, "jain": 0.0004, "wall_seconds": 3725.4},
    {"rounds_to_target": 8.7, "reached": 3, "time_to_target": math.inf, "bytes": 999_499_999.0, "client_passes": math.inf,
     "accuracy_sd": math.nan, "difference": -0.0004, "difference_low": -0.2, "difference_high": 0.19, "wall_seconds": math.inf,
     "verdict": "worse", "p_holm": 0.00041},
    {"rounds_to_target": math.nan, "reached": 0, "time_to_target": math.nan, "bytes": math.nan, "early_stop_accuracy": math.nan,
     "difference": 0.031, "difference_low": math.nan, "difference_high": math.nan, "wall_seconds": 125.0,
     "verdict": "too few seeds", "p_holm": math.nan},
]  # fmt: skip
"""Fractions of a round, unknown and infinite numbers, many bytes, and very small shares."""


@pytest.fixture
def story(runs: Path) -> Story:
    return gather(find_runs([runs]))


def hard(story: Story) -> Comparison:
    """The comparison of a story, with numbers that are hard to write."""
    compared = story.comparison
    assert compared is not None
    rows = compared.table.to_dict("records")
    table = pd.DataFrame([{**row, **values} for row, values in zip(rows, HARD, strict=True)])
    vars(compared)["table"] = table.astype({"reached": int, "seeds": int})
    return compared


def terminal_rows(compared: Comparison) -> list[dict[str, str]]:
    """The cells of the terminal's table by heading."""
    (table,) = (part for part in terminal.comparison(compared, 300).renderables if isinstance(part, Table))
    heads = [str(column.header).replace("\n", " ") for column in table.columns]
    cells = ([str(cell) for cell in column.cells] for column in table.columns)
    return [dict(zip(heads, row, strict=True)) for row in zip(*cells, strict=True)]


def same(compared: Comparison, shown: Page) -> None:
    """The terminal and the page write every number of a comparison alike."""
    goal = formatted_values.target(compared.target.accuracy)
    for printed, row in zip(terminal_rows(compared), shown.texts["results"], strict=True):
        assert printed["test accuracy"] == f"{row['accuracy']} {row.get('accuracy_sd', '')}".strip()
        assert printed["difference [95% interval]"] == row["difference"]
        assert printed["verdict, p (Holm)"] == row["p_holm"]
        for heading, field in FIELDS.items():
            own = printed[f"{heading} {goal}" if heading.endswith(" to") else heading]
            assert own == (row[field].split(" (")[0] if field == "jain" else row[field]), (heading, printed["strategy"])


def test_the_terminal_the_page_and_the_figures_write_the_same_numbers(story: Story) -> None:
    compared = story.comparison
    assert compared is not None
    shown = Page(page(story))
    same(compared, shown)
    drawn = {row["strategy"]: row for row in shown.payload["data"]["differences"]}
    assert len(drawn) == 2
    assert next(row["p_holm"] for row in shown.texts["results"]) == "baseline"
    assert compared.about_verdicts in shown.prose
    assert compared.about_verdicts in " ".join(terminal.as_text(terminal.comparison(compared)).split())
    for row in shown.texts["results"][1:]:
        own = drawn[row["strategy"]]
        assert row["difference"] == f"{own['mean_text']} [{own['low_text']}, {own['high_text']}]"
    exchanges = {(row["strategy"], row["kind"]): row for row in shown.payload["data"]["ledger"]}
    for row, numbers in zip(shown.texts["ledger"], shown.cells["ledger"], strict=True):
        own = exchanges[row["strategy"], numbers["kind"]]
        for field in ("messages", "bytes_down", "bytes_up", "passes"):
            assert row[field] == own[f"{field}_text"]


def test_numbers_that_are_hard_to_write_have_the_same_text_everywhere(story: Story) -> None:
    compared = hard(story)
    shown = Page(page(story))
    same(compared, shown)
    first, second, third = shown.texts["results"]
    assert (first["rounds_to_target"], first["time_to_target"], first["bytes"]) == (
        "16.5 (2/3)",
        "1,234,568 (2/3)",
        "3.2 TB",
    )
    assert (second["rounds_to_target"], second["time_to_target"], second["bytes"]) == ("8.7", "∞", "999 MB")
    assert (second["difference"], second["wall_seconds"]) == ("−0.0 [−20.0, +19.0]", "∞")
    assert (third["rounds_to_target"], third["time_to_target"], third["bytes"]) == ("∞", "∞", "–")
    assert third["difference"] == "+3.1", "an interval that is not known is left out"
    assert [row["p_holm"] for row in (first, second, third)] == ["baseline", "worse, <0.001", "too few seeds"]
    final = bars(story, PAGE)
    assert final is not None
    texts = final.data["bars"][["mean_text", "sd_text"]].to_numpy().tolist()
    assert texts == [[row["accuracy"], row.get("accuracy_sd", "± –")[2:]] for row in shown.texts["results"]]


def test_large_costs_have_the_same_text_everywhere(story: Story) -> None:
    for reading in story.everything:
        ledger = reading.ledger
        vars(reading)["ledger"] = ledger.assign(bytes_down=ledger["bytes_down"] * 1e7, passes=ledger["passes"] / 7)
    drawn = cost(story, PAGE)
    assert drawn is not None
    shown = Page(page(story))
    texts = drawn.data["ledger"]
    assert texts["bytes_down_text"].str.endswith("TB").any()
    for field in ("bytes_down", "bytes_up", "passes", "messages"):
        assert [row[field] for row in shown.texts["ledger"]] == texts[f"{field}_text"].tolist()


@pytest.mark.parametrize(
    ("kind", "write", "values"),
    [
        ("percent", lambda x: formatted_values.share(x, 1), [0.0, 0.00049, 0.8123, 1.0]),
        ("share", formatted_values.share, [0.004, 0.126, 1.0]),
        ("count", formatted_values.count, [0, 7, 1234.4, 209_600, 3.2e9]),
        ("index", formatted_values.index, [0.0004, 0.8721, 1.0]),
        ("number", formatted_values.number, [0.00012, 0.02, 0.5, 1.4381, 12, 999.94, 1234, 209_600, -0.02, -1.5]),
    ],
)
def test_the_browser_writes_numbers_as_python_does(
    kind: str, write: Callable[[float], str], values: list[float]
) -> None:
    chart = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": [{"x": i, "value": value} for i, value in enumerate(values)]},
        "mark": "text",
        "encoding": {
            "x": {"field": "x", "type": "ordinal", "axis": None},
            "text": {"field": "value", "type": "quantitative", "format": formatted_values.D3_FORMATS[kind]},
        },
    }
    svg = ET.fromstring(vl_convert.vegalite_to_svg(chart))
    assert ["".join(node.itertext()) for node in svg.iter("{http://www.w3.org/2000/svg}text")] == list(
        map(write, values)
    )


def test_nested_settings_by_their_whole_key() -> None:
    values = {"name": "a", "selection": {"name": "ucb", "base": {"c": 0.5}, "none": {}}, "variants": [{"label": "b"}]}
    assert formatted_values.by_dotted_key(values) == {
        "name": "a", "selection.name": "ucb", "selection.base.c": 0.5, "variants": [{"label": "b"}],
    }  # fmt: skip


def test_unknown_and_infinite_numbers() -> None:
    for name in [
        "p_value",
        "percent",
        "share",
        "signed",
        "count",
        "rounds",
        "index",
        "number",
        "size",
        "duration",
        "clock",
    ]:
        write = getattr(formatted_values, name)
        assert [write(value) for value in (math.nan, math.inf, -math.inf)] == ["–", "∞", "−∞"]
    assert [
        formatted_values.p_value(p) for p in (1.0, 0.25, 0.05029, 0.050049, 0.05, 0.04999, 0.015625, 0.001, 0.00099)
    ] == [
        "1",
        "0.25",
        "0.0503",
        "0.05005",
        "0.05",
        "0.05",
        "0.016",
        "0.001",
        "<0.001",
    ]
    assert formatted_values.rounds(math.nan, 0, 3) == "–"
    assert (
        formatted_values.rounds(16.0),
        formatted_values.rounds(16.5, 2, 3),
        formatted_values.rounds(16.5, 3, 3),
    ) == ("16", "16.5 (2/3)", "16.5")
    assert (formatted_values.setting(math.inf), formatted_values.setting(20.0), formatted_values.setting(0.05)) == (
        "inf",
        "20.0",
        "0.05",
    )


def test_names_that_every_object_of_javascript_has_can_be_drawn() -> None:
    """In a browser: :mod:`tests.campaign.hostile_names`."""
    from fedcohort.report.charts.score_terms import named
    from fedcohort.report.figures.shortened_names import short

    assert short(["constructor", "toString", "loss"]) == ["constructor\u200b", "toString\u200b", "loss"]
    assert named("hasOwnProperty") == "hasOwnProperty\u200b"
    assert named("num_samples") == "num samples"


def test_long_lists_of_settings_are_their_number() -> None:
    assert formatted_values.setting([1, 2, 3]) == "[1, 2, 3]"
    assert formatted_values.setting([[10, 20]] * 40) == "40 values"


def test_huge_numbers_have_an_exponent() -> None:
    assert formatted_values.number(1_754_658e24) == "1.755e+30"
    assert formatted_values.number(-1.5e300) == "−1.5e+300"
    assert formatted_values.number(2e20) == "200,000,000,000,000,000,000"


def test_settings_from_a_million_on_have_an_exponent() -> None:
    """A learning rate of 1e6 was written 1000000.0, also in names of rows."""
    values = (0.5, 20.0, 100000.0, 1e6, 2.5e7, 1234567.0, 1e16, -1e6, 1e-9)
    texts = ["0.5", "20.0", "100000.0", "1e6", "2.5e7", "1234567.0", "1e16", "-1e6", "1e-09"]
    assert [formatted_values.setting(value) for value in values] == texts
    rows = small(sweep={"training.lr": [0.05, 1e6]}).rows()
    assert [label for label, _ in rows] == ["uniform, lr=0.05", "uniform, lr=1e6"]


def test_means_of_measures_that_diverge_have_few_digits() -> None:
    """A mean absolute error was 3,512,933,767,398,812 ± 5,660,986,764,142,755, wider than all other columns together."""
    spread = formatted_values.number_spread
    assert spread(3.512933767398812e15, 5.660986764142755e15) == "3.513e+15 ± 5.7e+15"
    assert spread(27_106_123_220.0, math.nan) == "2.711e+10"
    assert (spread(1.4382, 0.0213), spread(123_456_789.0, math.inf)) == ("1.438 ± 0.021", "123,456,789")
