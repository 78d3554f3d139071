"""The text of the first tutorial states the numbers that its code gives."""

import ast
import builtins
import re
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.report.data.report_data import find_runs, gather
from tests.docs.pages import ROOT, blocks, read
from tests.report.pages import headline

PAGE = ROOT / "docs" / "tutorials" / "first-comparison.md"


def prose() -> str:
    """The words of the tutorial without its code and without the marks of quoted lines."""
    text = re.sub(r"^```.*?^```$|^> ", "", read(PAGE), flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.replace("*", "").split())


def test_a_reader_who_does_not_know_the_field_finds_every_term_explained() -> None:
    text = prose()
    for term in (
        "clients",
        "round",
        "selection strategy",
        "seed",
        "Test accuracy",
        "95% interval",
        "p-value",
        "client pass",
    ):
        assert term in text, term
    first = text.index("three seeds, the verdict cannot be anything but not clear")
    assert first < text.index("So with ten seeds, the answer is"), "how sure, before the answer"
    assert "do not choose a strategy by this table" in text


def test_the_list_below_the_experiment_explains_its_keys() -> None:
    after = read(PAGE).partition("## Describe the experiment")[2].partition("## Look at the clients")[0]
    cell, _, explained = after.partition("```\n\n- ")
    keys = set(re.findall(r"^\s+\"?(\w+)\"?[=:]", cell, re.MULTILINE)) - {"clients", "partition", "variant"}
    assert len(keys) >= 10
    assert [key for key in sorted(keys) if not re.search(rf"`{key}\b", explained)] == []
    assert "`k = 3`" in explained
    assert "`d = 6`" in explained


def test_columns_that_a_wide_window_adds_are_explained_elsewhere() -> None:
    assert "(../compare-strategies.md#compare)" in read(PAGE)
    guide = read(ROOT / "docs" / "compare-strategies.md").partition("\n## Compare")[2]
    for column in ("best", "early stop", "Jain", "client passes", "wall time"):
        assert f"*{column}*" in guide.split("\n### ")[0].replace("**", "*"), column


def test_lines_of_code_in_tutorials_fit_their_boxes() -> None:
    """The site shows 97 characters; readers would have to scroll for the rest."""
    wide = [
        (path.name, line)
        for path in sorted(PAGE.parent.glob("*.md"))
        for block in blocks(path)
        if block.language == "python"
        for line in block.text.splitlines()
        if len(line) > 97
    ]
    assert wide == []


@pytest.mark.slow
def test_the_numbers_in_the_text_are_those_of_the_runs(tmp_path: Path) -> None:
    """30 runs, as the code of the tutorial plays them: the verdicts, the intervals, the lead over the second, and the costs."""
    experiment = fedcohort.load_experiment(ROOT / "experiments" / "first_comparison.toml")
    compared = fedcohort.compare(experiment, runs=tmp_path)
    by_label: dict[str, dict[Any, Any]] = {row["label"]: row for row in compared.table.to_dict("records")}
    text = prose()
    turns, loss, uniform = (by_label[label] for label in ("taking turns", "highest loss", "uniform"))
    assert (turns["verdict"], loss["verdict"]) == ("better", "better")
    gain, low, high = (f"{100 * turns[name]:.1f}" for name in ("difference", "difference_low", "difference_high"))
    assert f"taking turns is better than uniform selection here, by {gain} percentage points" in text
    assert f"the interval reaches from {low} to {high} points" in text
    assert f"in {1000 * turns['p_holm']:.0f} of 1,000 comparisons" in text
    assert (
        f"by {100 * loss['difference']:.1f} points, but only just: its p-value of {loss['p_holm']:.3f} is barely below"
        in text
    )
    assert f"the interval begins at {100 * loss['difference_low']:.1f}" in text
    assert (
        f"reached {100 * turns['accuracy']:.1f}% test accuracy after 20 rounds, and uniform selection {100 * uniform['accuracy']:.1f}%"
        in text
    )
    assert turns["bytes"] == uniform["bytes"]
    assert loss["bytes"] == pytest.approx(2 * uniform["bytes"], rel=0.01)
    said = " ".join(headline(gather(find_runs([tmp_path]))))
    lead = re.search(r"leads 'highest loss' by (\d+\.\d) percentage points .*?p = (0\.\d+)\).*?About (\d+) seeds", said)
    assert lead is not None
    assert (
        f"{lead[1]} points better on average, but with ten seeds this difference is not clear (p = {lead[2]})" in text
    )
    assert f"and about {lead[3]} seeds would be needed" in text
    corrected = re.search(r"leads 'uniform' by .*?95% interval \+(\d+\.\d) to \+(\d+\.\d)", said)
    assert corrected is not None
    assert f"is wider, {corrected[1]} to {corrected[2]} points" in text, "the page's interval is not that of the table"
    few = fedcohort.compare(experiment.with_overrides({"seeds": 3}), runs=tmp_path).table.to_dict("records")
    three: dict[str, dict[Any, Any]] = {row["label"]: row for row in few}
    assert three["highest loss"]["difference"] < 0, "in the first three seeds, it looked worse"
    assert f"although taking turns is {100 * three['taking turns']['difference']:.0f} points ahead" in text


def test_the_tutorial_speaks_of_columns_that_its_table_shows() -> None:
    """It explained the column of bytes, which the window of the site is too narrow for."""
    text = prose()
    about = text[text.index("The other columns tell") : text.index("With three seeds, the verdict")]
    assert "too narrow, such as the bytes that a strategy sends" in about
    shown = about[: about.index("The last note")]
    assert "target accuracy" in shown
    assert "Jain's index" in shown
    assert "bytes" not in shown


def test_strategies_have_one_name_on_all_pages() -> None:
    """Two pages called power-of-choice "highest loss", which is select-by-loss in this tutorial, and said that it draws at random."""
    called: dict[str, set[str]] = {}
    for file in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.toml"), ROOT / "README.md"]:
        text = file.read_text(encoding="utf-8")
        pairs = re.findall(
            r"""label"?\s*[:=]\s*"([^"]+)",?\s*"?selection"?\s*[:=]\s*\{\s*"?name"?\s*[:=]\s*"(\w+)\"""", text
        )
        for label, name in pairs:
            called.setdefault(label.lower(), set()).add(name)
    assert called["highest loss"] == {"select_by_loss"}
    assert called["power-of-choice"] == {"powd"}
    own = read(ROOT / "docs" / "tutorials" / "my-data.md")
    assert "draws five hospitals, large ones more often than small ones" in " ".join(own.split())


def test_readers_with_a_table_of_their_own_can_skip_the_cell_that_invents_one() -> None:
    """The last cell of the tutorial needed a name from it, and both imports."""
    page = ROOT / "docs" / "tutorials" / "my-data.md"
    cells = [block.text for block in blocks(page) if block.language == "python"]
    assert "to_csv" in cells[0]
    nodes = list(ast.walk(ast.parse("\n".join(cells[1:]))))
    defined = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used - defined - set(dir(builtins)) == set()
