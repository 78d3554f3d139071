"""Which rows are compared: those at the same point of a sweep, with one rule for the reference."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedcohort.core.errors import UsageError
from fedcohort.report import terminal
from fedcohort.report.data.report_data import gather
from fedcohort.report.page import page
from fedcohort.report.tables.paper_tables import to_latex
from fedcohort.study.comparison import Comparison, Row
from fedcohort.study.rows.references import (
    Entry,
    Group,
    _name_of_federation,
    check_reference,
    differences_of_cells,
    grouped,
    names_at_points,
    swept_settings,
)
from fedcohort.study.summary import summaries
from fedcohort.study.targets import Target, about_targets, group_targets
from tests.experiments import UCB, small
from tests.records import played, written
from tests.report.pages import Page


def entry(label: str, strategy: str = "uniform", **values: Any) -> Entry:
    """A row of an experiment without runs."""
    selection = dict(values.pop("selection", {}))
    return Entry(label, strategy, small(**values, selection={"name": strategy, **selection}).single(0))


def alpha(value: float, clients: int = 4) -> Mapping[str, Any]:
    """A federation with this much label skew."""
    return {"clients": clients, "partition": {"name": "dirichlet_class", "alpha": value, "min_size": 1}}


def points(entries: Sequence[Entry], reference: str = "") -> dict[str, tuple[list[str], str]]:
    """The labels of each group and the label of its reference, by point."""
    return {
        group.point: ([entries[i].label for i in group.rows], entries[group.reference].label)
        for group in grouped(entries, reference)
    }


def test_rows_of_a_sweep_are_grouped_by_point() -> None:
    rows = [
        entry(f"{name}, alpha={value}", strategy, federation=alpha(value))
        for name, strategy in (("mine", "ucb"), ("uniform", "uniform"))
        for value in (0.1, 1.0)
    ]
    assert points(rows) == {
        "alpha=0.1": (["mine, alpha=0.1", "uniform, alpha=0.1"], "uniform, alpha=0.1"),
        "alpha=1.0": (["mine, alpha=1.0", "uniform, alpha=1.0"], "uniform, alpha=1.0"),
    }
    assert [reference for _, reference in points(rows, "mine").values()] == ["mine, alpha=0.1", "mine, alpha=1.0"]
    own = points(rows, "mine, alpha=1.0")
    assert [reference for _, reference in own.values()] == ["uniform, alpha=0.1", "mine, alpha=1.0"]


def test_the_points_of_one_strategy_are_compared_only_in_the_same_federation() -> None:
    candidates = [entry(f"powd, d={d}", "powd", selection={"d": d}) for d in (3, 6, 12)]
    assert points(candidates) == {"": (["powd, d=3", "powd, d=6", "powd, d=12"], "powd, d=3")}
    both = [
        entry(f"powd, alpha={value}, d={d}", "powd", selection={"d": d}, federation=alpha(value, 12))
        for value in (0.1, 1.0)
        for d in (3, 6)
    ]
    assert [labels for labels, _ in points(both).values()] == [
        ["powd, alpha=0.1, d=3", "powd, alpha=0.1, d=6"],
        ["powd, alpha=1.0, d=3", "powd, alpha=1.0, d=6"],
    ]


def test_rows_of_a_point_with_equal_names_keep_their_number_or_their_whole_label() -> None:
    rows = [
        entry(f"{name}, alpha={value}{number}", "ucb", federation=alpha(value))
        for value in (0.1, 1.0)
        for name, number in (("ucb", ""), ("ucb", " (2)"), ("other", ""))
    ]
    assert names_at_points(rows, grouped(rows)) == [
        *("ucb, alpha=0.1", "ucb (2)", "other"),
        *("ucb, alpha=1.0", "ucb (2)", "other"),
    ]


def test_a_swept_strategy_is_no_setting_of_the_federation_with_the_same_short_name() -> None:
    """The ``name`` of the label noise was taken for that of the strategy, so that rows had the point "name=none"."""
    noise = {"clients": 4, "label_noise": {"name": "beta"}}
    rows = [
        entry(f"{label}, name={name}", name, federation=federation)
        for label, federation in (("base", {"clients": 4}), ("noise", noise))
        for name in ("uniform", "powd")
    ]
    labels = [row.label for row in rows]
    assert points(rows) == {"": (labels, labels[0])}
    swept = [
        entry(f"mine, name={name}", federation={"clients": 4, "label_noise": {"name": name}})
        for name in ("none", "beta")
    ]
    assert list(points(swept)) == ["name=none", "name=beta"]


def test_a_number_in_the_label_of_a_variant_is_no_sweep() -> None:
    rows = [
        entry("uniform"),
        entry("powd, d=5", "powd", selection={"d": 5}),
        entry("powd, d=9", "powd", selection={"d": 9}),
    ]
    assert points(rows) == {"": ([row.label for row in rows], "uniform")}


def test_a_swept_row_beside_one_without_the_setting_in_its_label() -> None:
    """Both come from one experiment; the first was run before the sweep, with the alpha of the file."""
    rows = [
        entry("uniform", federation=alpha(0.1)),
        entry("mine, alpha=0.1", "ucb", federation=alpha(0.1)),
        entry("mine, alpha=5", "ucb", federation=alpha(5.0)),
    ]
    assert [labels for labels, _ in points(rows).values()] == [["uniform", "mine, alpha=0.1"], ["mine, alpha=5"]]


def test_experiments_with_other_clients_are_not_compared() -> None:
    rows = [
        entry("uniform", name="here"),
        entry("mine", "ucb", name="here"),
        entry("uniform", name="there", federation={"clients": 20}),
        entry("other", "ucb", name="again"),
    ]
    assert {point: labels for point, (labels, _) in points(rows).items()} == {
        "here and again": ["uniform", "mine", "other"],
        "there": ["uniform"],
    }
    public = [entry("uniform", name=f"{share}", public={"name": "holdout", "share": share}) for share in (0.1, 0.2)]
    assert list(points(public)) == ["0.1", "0.2"], "the public samples are taken from those of the clients"


def test_the_reference_is_uniform_or_else_the_first_row_or_the_one_asked_for() -> None:
    rows = [entry("a", "all"), entry("b", "ucb"), entry("c")]
    assert points(rows)[""][1] == "c"
    assert points(rows[:2])[""][1] == "a"
    assert points(rows, "b")[""][1] == "b"
    for wrong in (1, 0, 2.5, True, ["a"]):
        with pytest.raises(UsageError, match=r"^reference = .*: should be the label of a row; valid: a, b, c"):
            check_reference(["a", "b", "c"], wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^reference = 'd': no row has this label; .*valid: a, b, c"):
        points(rows, "d")
    given = [entry("diverging"), entry("b", "ucb"), entry("uniform")]
    assert points(given)[""][1] == points(given[::-1])[""][1] == "uniform", "in any order in which runs are named"


def test_a_weak_point_of_a_sweep_does_not_lower_the_target_of_its_federation(tmp_path: Path) -> None:
    """With the lowest learning rate, all rows were near chance, and "every row" reached that level in round 1."""
    rows = []
    for rate, accuracy in ((0.001, 0.22), (0.1, 0.7)):
        for name in ("uniform", "ucb"):
            label = f"{name}, lr={rate}"
            play = [played(1, [0, 1], test_accuracy=accuracy, class_accuracy=[accuracy] * 10)]
            run = written(tmp_path / label, play, label=label, selection=name, training={"lr": rate})
            rows.append(Row(label, run.described, {0: run}))
    compared = Comparison("swept", tuple(rows))
    assert len(compared.groups) == 2
    assert [target.accuracy for target in compared.targets] == [0.7, 0.7]
    assert "far below the best" in compared.about_targets


ACCURACY = {("uniform", 0.1): 0.3, ("UCB", 0.1): 0.4, ("uniform", 1.0): 0.9, ("UCB", 1.0): 0.8}
"""UCB is better in one federation, and worse in the other, where it is still far above uniform in the first."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("swept")
    rows = []
    for (name, value), accuracy in ACCURACY.items():
        runs = {
            seed: written(
                folder / f"{name}{value}{seed}",
                [played(1, [0, 1], test_accuracy=accuracy + seed / 100)],
                label=f"{name}, alpha={value}",
                seed=seed,
                federation=alpha(value),
                selection="uniform" if name == "uniform" else UCB,
            )
            for seed in range(7)
        }
        rows.append(Row(f"{name}, alpha={value}", runs[0].described, runs))
    return Comparison("swept", tuple(rows))


@pytest.mark.slow
def test_differences_of_a_sweep_are_those_in_the_same_federation(swept: Comparison) -> None:
    table = swept.table.set_index("label")
    assert table["difference"].round(6).tolist() == [0.0, 0.1, 0.0, -0.1]
    assert table["verdict"].tolist() == ["baseline", "better", "baseline", "worse"]
    assert list(table.loc["UCB, alpha=1.0", ["reference", "point"]]) == ["uniform, alpha=1.0", "alpha=1.0"]
    text = " ".join(terminal.as_text(terminal.comparison(swept, 140), 140).split())
    assert "Difference to 'uniform' with the same settings in percentage points" in text
    latex = to_latex(swept)
    assert "Difference to the reference with the same settings" in latex
    assert latex.count("& -- & baseline") == 2


@pytest.mark.slow
def test_the_table_in_the_terminal_keeps_the_points_apart(swept: Comparison) -> None:
    mixed = Comparison("swept", tuple(swept.rows[i] for i in (0, 2, 1, 3)))
    lines = [line.rstrip() for line in terminal.as_text(terminal.comparison(mixed, 140), 140).splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("uniform, alpha=0.1"))
    assert [line.split("  ")[0] for line in lines[start : start + 5]] == [
        "uniform, alpha=0.1", "UCB, alpha=0.1", "", "uniform, alpha=1.0", "UCB, alpha=1.0",
    ]  # fmt: skip


def federations(entries: Sequence[Entry]) -> list[str]:
    """What the groups are told by that have the same clients and data."""
    return [group.federation for group in grouped(entries)]


def test_groups_with_the_same_clients_and_data_have_the_same_name_of_it() -> None:
    def row(name: str, strategy: str, value: float, rate: float, clients: int = 4) -> Entry:
        own = alpha(value, clients)
        return entry(f"{name}, alpha={value}, lr={rate}", strategy, federation=own, training={"lr": rate})

    rows = [
        row(name, strategy, value, rate)
        for name, strategy in (("mine", "ucb"), ("uniform", "uniform"))
        for value in (0.1, 1.0)
        for rate in (0.01, 0.1)
    ]
    assert federations(rows) == ["alpha=0.1", "alpha=0.1", "alpha=1.0", "alpha=1.0"]
    rates = [each for each in rows if "alpha=0.1" in each.label]
    assert federations(rates) == ["", ""], "points that differ in training only have one federation"
    assert federations(rows[:1]) == [""]


def test_points_without_settings_of_their_own_are_counted() -> None:
    own, others = [("", "alpha=1"), ("", "k=2"), ("", "k=3")], [("", "k=4")]
    assert _name_of_federation(own, others, "x") == ("alpha=1 and 2 other points", 2)
    assert _name_of_federation([("", "k=2", "lr=1"), ("", "k=2", "lr=2")], others, "x") == ("k=2", 0)
    assert _name_of_federation(own[1:], others, "x") == ("k=2 and 1 other point", 1)
    assert _name_of_federation(own[:1], others, "x") == ("alpha=1", 0)


@pytest.mark.parametrize("other", [("", "k=2", "lr=3"), ("", "k=2")])
def test_settings_that_another_federation_shares_do_not_name_one(other: tuple[str, ...]) -> None:
    own = [("", "k=2", "lr=1"), ("", "k=2", "lr=2")]
    assert _name_of_federation(own, [other, ("", "k=4")], "x") == ("k=2, lr=1 and 1 other point", 1)


def test_settings_that_all_rows_share_are_no_sweep() -> None:
    rows = [entry(f"{name}, k=3, lr={lr}", training={"lr": lr}) for name in ("one", "two") for lr in (0.1, 0.2)]
    assert swept_settings(rows) == [{"lr": "0.1"}, {"lr": "0.2"}] * 2
    assert swept_settings(rows[::2]) == [{}, {}]


def test_each_point_has_one_difference_less_than_rows_whatever_the_number_of_seeds() -> None:
    described = small(
        seeds=2,
        federation=alpha(0.1),
        sweep={"federation.partition.alpha": [0.1, 1.0]},
        variants=[
            {"label": "mine", "selection": {"name": "ucb"}},
            {"label": "other", "model": "mlp"},
        ],
    )
    assert len(described.cells()) == 12
    assert differences_of_cells(described.cells()) == 4


def test_every_federation_has_a_target_of_its_own(swept: Comparison) -> None:
    """One level for all was reached at once in the easy federation, and by chance in the hard one."""
    assert [(target.accuracy, target.from_results) for target in swept.targets] == [(0.33, True), (0.83, True)]
    assert math.isnan(swept.target.accuracy)
    assert swept.table["target_accuracy"].tolist() == [0.33, 0.33, 0.83, 0.83]
    assert swept.table["reached"].tolist() == [3, 7, 7, 4]  # 0.3 + 0.03 is a little below 0.33
    runs = [run for row in swept.rows for run in row.runs.values()]
    assert [one.target for one in summaries(runs)] == [0.33] * 14 + [0.83] * 14
    said = swept.to_json()
    assert said["target"]["accuracy"] is None
    assert [(one["point"], one["accuracy"]) for one in said["targets"]] == [("alpha=0.1", 0.33), ("alpha=1.0", 0.83)]


def test_a_target_that_is_set_is_that_of_the_reference_or_of_any_row_of_the_federation() -> None:
    """Rows 0 and 1 and rows 2 and 3 are two points of one federation, row 4 is another one."""
    groups = [Group("a", (0, 1), 1, "x"), Group("b", (2, 3), 2, "x"), Group("c", (4,), 4, "y")]

    def found(*given: float | None) -> list[float]:
        return [one.accuracy for one in group_targets(list("abcde"), [[]] * 5, given, groups)]

    assert found(0.5, 0.7, 0.8, 0.9, 0.2) == [0.7, 0.7, 0.2]
    assert found(0.5, None, 0.8, 0.9, 0.2) == [0.5, 0.5, 0.2]
    assert found(None, None, None, 0.9, 0.2) == [0.9, 0.9, 0.2]


def test_the_note_on_targets_says_the_rule_once() -> None:
    """If rows of every federation were left out, the note had the rows of one of them in its rule, and the whole rule in parentheses
    after the others."""
    rule = "taken from these results, a level that the mean best accuracy of every row reaches"
    targets = [
        Target(0.3, f"{rule} (without rows at chance: 'x, k=1')"),
        Target(0.5, f"{rule} (without rows far below the best: 'y')"),
        Target(0.8, "measures.target_accuracy"),
        Target(math.nan, "none, because no row has a test accuracy"),
    ]
    groups = [Group(f"alpha={i}", (i,), i, f"alpha={i}") for i in range(4)]
    assert about_targets(targets, groups) == (
        f"Target accuracy of each federation: {rule}. alpha=0: 30% (without rows at chance: 'x, k=1'); alpha=1: 50% (without rows far "
        "below the best: 'y'); alpha=2: 80%, measures.target_accuracy; alpha=3: none, because no row has a test accuracy."
    )


@pytest.mark.slow
def test_targets_of_several_federations_are_told_apart_everywhere(swept: Comparison) -> None:
    sentence = (
        "Target accuracy of each federation: taken from these results, a level that the mean best accuracy of every row reaches. "
        "alpha=0.1: 33%; alpha=1.0: 83%."
    )
    text = terminal.as_text(terminal.comparison(swept, 200), 200)
    assert sentence in " ".join(text.split())
    assert "to target" in " ".join(text.split())
    assert "Rounds to target" in to_latex(swept)
    assert sentence.replace("%", r"\%") in to_latex(swept)
    shown = Page(page(gather([run for row in swept.rows for run in row.runs.values()])))
    assert sentence in shown.prose
    assert [row["target_accuracy"] for row in shown.texts["results"]] == ["33.0", "33.0", "83.0", "83.0"]
    lines = next(chart for name, chart in shown.payload["charts"].items() if name.startswith("accuracy."))
    names = {row["name"] for rows in lines["datasets"].values() for row in rows if "level" in row}
    assert names == {"target 33% (taken from the results)", "target 83% (taken from the results)"}


def test_a_target_that_was_set_is_that_of_all_federations(tmp_path: Path) -> None:
    rows = []
    for value in (0.1, 1.0):
        run = written(
            tmp_path / str(value),
            [played(1, [0, 1], test_accuracy=value * 0.9)],
            label=f"uniform, alpha={value}",
            federation=alpha(value),
            measures={"target_accuracy": 0.5},
        )
        rows.append(Row(f"uniform, alpha={value}", run.described, {0: run}))
    compared = Comparison("given", tuple(rows))
    assert compared.target == Target(0.5, "measures.target_accuracy")
    assert compared.table["reached"].tolist() == [0, 1]
    assert [finding.rows for finding in compared.health if finding.kind == "target"] == [("uniform, alpha=0.1",)]
