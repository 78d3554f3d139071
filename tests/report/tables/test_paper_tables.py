"""Tables for papers: LaTeX with booktabs and escaped labels, CSV with all digits, and the options that write them."""

import csv
import io
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.words import formatted_values
from fedcohort.report.notes import comparison_notes
from fedcohort.report.tables.paper_tables import escaped, to_csv, to_latex
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.verdicts import NO_RESULT
from tests.experiments import UCB, small
from tests.study.test_verdicts import BETTER, FIRST, runs_of

HOSTILE = r"50% & {a_b} \x #1 $2 ~^ <k> α [0, 1]" + '\n"q"'


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("exported")
    hostile = runs_of(folder, "b", BETTER)
    rows = (
        runs_of(folder, "a", FIRST),
        Row(HOSTILE, hostile.experiment, hostile.runs),
        runs_of(folder, "c", FIRST[:2]),
    )
    return Comparison("my study_1", rows)


def cells_of(latex: str) -> list[list[str]]:
    """The cells of a tabular: its heading and its rows, which end in two backslashes."""
    body = re.search(r"\\toprule\n(.*)\\bottomrule", latex, re.DOTALL)
    assert body is not None
    lines = [line.strip() for line in body[1].splitlines() if line.strip() not in ("", r"\midrule")]
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r" (?<!\\)& ", line.removesuffix(r" \\")) for line in lines]


def test_the_latex_table_is_well_formed(compared: Comparison) -> None:
    text = to_latex(compared)
    assert text.startswith("% \\usepackage{booktabs,graphicx}\n\\begin{table}\n")
    begun, ended = re.findall(r"\\begin\{(\w+)\}", text), re.findall(r"\\end\{(\w+)\}", text)
    assert begun == ended[::-1] == ["table", "tabular"]
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\label{tab:my-study-1}" in text
    assert (
        r"\caption{my study\_1: test accuracy after the last round, mean and standard deviation over the seeds of each row, 2 to 8."
        in text
    )
    plain = re.sub(r"\\[\\{}%&_#$]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    (alignment,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert {len(row) for row in cells_of(text)} == {len(alignment)}
    assert not re.search(r"(?<!\\)%(?! \\usepackage)", text)
    assert text.isascii()


def test_the_latex_table_has_the_numbers_of_the_terminal(compared: Comparison) -> None:
    heading, first, second, third = cells_of(to_latex(compared))
    assert heading[:4] == ["Strategy", r"Accuracy (\%)", r"Difference {[}95\% CI{]}", "Verdict, $p$"]
    row = compared.table.iloc[1]
    assert first[0] == "a"
    assert first[2:4] == ["--", "baseline"]
    assert (
        second[1]
        == f"{formatted_values.percent(row['accuracy'])} $\\pm$ {formatted_values.percent(row['accuracy_sd'])} (8 seeds)"
    )
    assert second[2].startswith(f"+{formatted_values.percent(row['difference'])} {{[}}+")
    assert second[3] == "better, 0.0078"
    assert third[2] == "+0.0", "the differences of both seeds are equal, which gives no interval"
    assert third[3] == "too few seeds"
    assert "Verdict: two-sided permutation test of the paired differences. " in to_latex(compared), (
        "one p-value is not corrected"
    )
    assert re.search(
        r"Target accuracy \d+\\%: taken from these results, a level that the mean best accuracy of every row reaches\. "
        r"\((\d)/8\): \1 of 8 seeds reached it; the means cover only those\.\}$",
        to_latex(compared), re.MULTILINE,
    )  # fmt: skip


def test_the_latex_table_is_scaled_down_where_it_is_wider_than_the_text(compared: Comparison) -> None:
    text = to_latex(compared)
    box = text.index(r"\sbox0{\begin{tabular}")
    assert text.index(r"\end{tabular}}") > box
    assert text.rstrip().splitlines()[-2].strip() == (
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
    )
    assert text.index(r"\caption{") < text.index(r"\footnotesize") < box  # the caption keeps its size


def test_the_latex_table_has_the_accuracy_of_clients(compared: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Over clients" not in to_latex(compared)
    table = compared.table.assign(client_accuracy=0.8125, client_accuracy_sd=0.0625, worst_client_accuracy=0.5)
    vars(compared)["table"] = table
    assert "Over clients: accuracy on each client's own training samples" in to_latex(compared)
    monkeypatch.setattr(comparison_notes, "samples_of_clients", lambda _: "test samples")
    heading, first, *_ = cells_of(latex := to_latex(compared))
    at = heading.index("Over clients")
    assert heading[at + 1] == "Worst tenth"
    assert first[at : at + 2] == [r"81.2 $\pm$ 6.2", "50.0"]
    assert (
        r"Over clients: accuracy on each client's own test samples, mean $\pm$ standard deviation over clients" in latex
    )
    assert r"worst tenth: mean of the 10\% of the clients with the lowest accuracy." in latex


@pytest.mark.slow
def test_p_values_are_corrected_for_rows_without_a_result(compared: Comparison, tmp_path: Path) -> None:
    """The caption names the number of comparisons that the table and the terminal correct for."""
    lost = runs_of(tmp_path, "d", [*BETTER[:-1], math.nan])
    with_lost = Comparison("lost", (*compared.rows[:2], lost))
    assert [row.words for row in with_lost.verdicts][-1] == NO_RESULT
    for text in (with_lost.about_verdicts, to_latex(with_lost)):
        assert "p corrected by Holm for 2 comparisons" in text


def test_labels_are_escaped(compared: Comparison) -> None:
    label = cells_of(to_latex(compared))[2][0]
    assert label == (
        r"50\% \& \{a\_b\} \textbackslash{}x \#1 \$2 \textasciitilde{}\textasciicircum{} \textless{}k\textgreater{} "
        r"$\alpha$ {[}0, 1{]} ''q''"
    )
    assert escaped("accents é stay") == "accents é stay"
    assert escaped("a\x1b[31m\x07b") == "a{[}31mb"
    assert escaped("−1.5 ± ∞") == r"$-$1.5 $\pm$ $\infty$"


def test_one_row_has_neither_differences_nor_tests(tmp_path: Path) -> None:
    text = to_latex(Comparison("###", (runs_of(tmp_path, "a", FIRST[:1]),)))
    assert "Difference" not in text
    assert "Holm" not in text
    assert r"\label{tab:comparison}" in text
    assert "seed 0." in text


def test_the_csv_has_every_column_with_all_digits(compared: Comparison) -> None:
    header, *rows = csv.reader(io.StringIO(to_csv(compared)))
    assert header == compared.table.columns.tolist()
    for row, expected in zip(rows, compared.table.to_dict("records"), strict=True):
        for name, cell in zip(header, row, strict=True):
            value = expected[name]
            if isinstance(value, float):
                assert cell == "" if math.isnan(value) else float(cell) == value, name
            else:
                assert cell == str(value), name


@pytest.mark.parametrize("label", ["=HYPERLINK(1)", "+1", "-1", "@a", "\tb"])
def test_a_label_is_no_formula_of_a_spreadsheet(label: str, tmp_path: Path) -> None:
    given = runs_of(tmp_path, "a", FIRST)
    (line,) = csv.DictReader(io.StringIO(to_csv(Comparison("c", (Row(label, given.experiment, given.runs),)))))
    assert (line["label"], line["reference"]) == (f"'{label}", f"'{label}")
    assert float(line["difference"]) == 0


def test_files_are_written_and_returned(compared: Comparison, tmp_path: Path) -> None:
    for write, name in ((to_latex, "deep/a.tex"), (to_csv, "deep/a.csv")):
        assert (tmp_path / name).exists() is False
        assert write(compared, tmp_path / name) == (tmp_path / name).read_text(encoding="utf-8") == write(compared)
    with pytest.raises(UsageError, match=r"deep: cannot be written \(Is a directory\); give another file"):
        to_csv(compared, tmp_path / "deep")
    (tmp_path / "deep" / "run.sqlite").touch()
    for write, name in ((to_latex, "b.tex"), (to_csv, "b.csv")):
        with pytest.raises(
            UsageError, match=rf"file = '.*{name}': is in a run directory, whose files stay as they are"
        ):
            write(compared, tmp_path / "deep" / name)
        assert not (tmp_path / "deep" / name).exists()


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="fedcohort")


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    experiment = small(rounds=2, seeds=1, variants=[{"label": "UCB", "selection": UCB}])
    expected = fedcohort.compare(experiment, runs=tmp_path / "runs")
    (tmp_path / "x.toml").write_text(experiment.to_toml())
    files = {"--latex": tmp_path / "a.tex", "--csv": tmp_path / "a.csv"}
    options = [word for pair in files.items() for word in pair]
    for paths in (
        [tmp_path / "x.toml", "--runs", tmp_path / "runs"],
        [run.path for row in expected.rows for run in row.runs.values()],
    ):
        result = call("compare", *paths, *options, "-q")
        assert result.exit_code == 0, result.output
        assert "UCB" in result.stdout
        assert files["--csv"].read_text() == to_csv(expected)
        assert files["--latex"].read_text() == to_latex(Comparison(expected.name, expected.rows))
        for file in files.values():
            file.unlink()
    refused = call("compare", tmp_path / "x.toml", "--runs", tmp_path / "runs", "--csv", tmp_path, "-q")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("fedcohort: error: --csv")


@pytest.mark.parametrize("option", ["--csv", "--latex", "--output", "--out"])
@pytest.mark.parametrize("name", ["run.sqlite", "experiment.toml", "new.EXT", "link.EXT", "."])
def test_files_of_runs_are_not_replaced_by_tables_and_pages(option: str, name: str, tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=1), runs=tmp_path / "runs").path
    (tmp_path / "x.toml").write_text(small(rounds=1).to_toml())
    ending = {"--csv": "csv", "--latex": "tex"}.get(option, "html")
    target = run / name.replace("EXT", ending)
    if name.startswith("link"):
        target = tmp_path / target.name
        target.symlink_to(run / f"new.{ending}")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and file.name != "run.lock"}
    command = {"--output": ("report", run), "--out": ("figures", run, "--only", "accuracy")}.get(
        option, ("compare", tmp_path / "x.toml", "--runs", tmp_path / "other", "-q")
    )
    refused = call(*command, option, target if option != "--out" else run / name)
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and file.name != "run.lock"} == before
    assert not (tmp_path / "other").exists(), "refused before anything is played"


def test_the_experiment_file_is_not_replaced_by_its_table(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(small(rounds=1).to_toml())
    refused = call("compare", file, "--runs", tmp_path / "runs", "--latex", file, "-q")
    assert refused.stderr.startswith("fedcohort: error: --latex")
    assert ".tex" in refused.stderr
    assert file.read_text() == small(rounds=1).to_toml()
    assert not (tmp_path / "runs").exists()
