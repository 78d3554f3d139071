"""The studies behind results: errors of races, whether scores predict what they promise, and results that are confirmed."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from results import confirm as confirm_module
from results import flash_held_out, flash_study, planted, race_errors
from results.atlas.federations import Federation, federations, strategies
from results.atlas.play import Played
from results.comparisons import ComparisonResult
from results.confirm import confirm, renew_intervals, repeated_atlas, repeated_comparison, repeated_held_out
from results.descriptions import DESCRIPTIONS
from results.diagnoses import BINS, CLAIMS, Claim, correlation, diagnosis_table, holds, outcomes, ranks_within
from results.result_file import names, read

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.racing.rule import RaceRule
from fedcohort.selection import STRATEGIES, Flash
from tests.docs.pages import ROOT
from tests.repetitions import slow_after

STUDY = "experiments/studies/diagnoses.toml"


# --- races -----------------------------------------------------------------------------------------------------------------------


def test_equal_rows_have_the_same_mean_and_the_same_seeds() -> None:
    scores = np.array([[0.1, 0.2, 0.6], [0.5, 0.9, 0.7]])
    drawn = race_errors.equal_rows(scores)(np.random.default_rng(0))
    assert drawn.shape == (2, race_errors.HORIZON)
    columns = {tuple(np.round(column, 9)) for column in drawn.T}
    assert columns == {(-0.2, -0.2), (-0.1, 0.2), (0.3, 0.0)}


def test_gaussian_rows_have_the_covariance_of_scores() -> None:
    scores = np.random.default_rng(0).normal(size=(2, 9))
    draw, g = race_errors.gaussian_rows(scores), np.random.default_rng(1)
    many = np.concatenate([draw(g) for _ in range(2000)], axis=1)
    np.testing.assert_allclose(np.cov(many), np.cov(scores), atol=0.02)


def test_federations_that_are_drawn_from_together_have_the_same_spread() -> None:
    scores = np.array([[0.1, 0.2, 0.6], [0.5, 0.9, 0.7]])
    draw = race_errors.equal_rows(scores, 100 * scores)
    columns = {tuple(np.round(draw(np.random.default_rng(i))[:, 0], 9)) for i in range(30)}
    assert len(columns) == 3  # the second federation has the same three columns, scaled


def test_a_race_between_rows_that_differ_much_saves_runs_and_does_not_err() -> None:
    scores = 0.01 * np.random.default_rng(0).normal(size=(12, 20)) + np.linspace(0.3, 0.9, 12)[:, None]
    found = race_errors.savings("test", scores, races=3, margin=0.005)
    assert (found["races"], found["wrong"], found["best_dropped"], found["as_good_as_grid"]) == (3, 0, 0, 3)
    assert found["runs"] < found["grid_runs"]
    assert found["grids_decided"] == sorted(found["grids_decided"])
    assert found["grids_decided"][-1] == found["decided"] == 3
    planned = race_errors.GRID_SEEDS[found["grids_decided"].index(3)]
    result = {
        "errors": [{"scores": "Gaussian", "races": 200, "dropped": 0.004, "dropped_se": 0.001, "any": 17}],
        "savings": [{"scores": "accuracy", "margin": 0.005, "rows": 12, "federations": {"a": found, "b": found}}],
        "seeds": {"a": 12, "b": 11},
    }
    text = race_errors.race_tables(result)
    assert "| Gaussian | 200 | 0.4% | 0.1% | 8.5% |" in text
    assert "(11 to 12)" in text
    assert "| accuracy | 0.5 | 6 | 0.0% | 0.0% | 0.0% | 0.0% | " in text
    assert f"| accuracy | 0.5 | 100.0% | 100.0% | {found['runs'] / 3:,.0f} | {found['grid_runs'] / 3:,.0f} |" in text
    assert text.endswith(f" | {planned} | {12 * planned} | {12 * planned * 3 / found['runs']:.1f} |")


def test_a_planned_grid_is_decided_if_no_row_can_be_better_by_more_than_the_margin() -> None:
    noise = np.random.default_rng(0).normal(size=(4, 20))
    far = 0.01 * noise + np.array([[0.9], [0.7], [0.6], [0.5]])
    assert race_errors.grid_decides(far, 0.005)
    assert not race_errors.grid_decides(far[:, :3] + 0.2 * noise[:, :3], 0.005)
    close = 0.01 * noise + np.array([[0.9], [0.9], [0.6], [0.5]])
    assert not race_errors.grid_decides(close, 0.0005)
    assert race_errors.grid_decides(close, 0.05)


def test_the_share_of_dropped_rows_counts_each_best_row() -> None:
    scores = np.array([[0.9], [0.9], [0.9], [0.1]]) + 1e-6 * np.random.default_rng(0).normal(size=(4, 40))
    shares = race_errors.errors("test", lambda _: scores, races=2)
    assert shares == [0.25, 0.25]
    row = race_errors._counted("law", [0.0, 0.5])
    assert (row["races"], row["dropped"], row["any"]) == (2, 0.25, 1)
    assert row["dropped_se"] == pytest.approx(0.25 / 2**0.5)


def test_an_interval_and_a_bound_that_miss_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races that drop nothing, and claim that no row is better by more than what was drawn, and each by more than a point."""

    class Certain(RaceRule):
        def difference(self, row: int, other: int, objective: int = 0) -> tuple[float, float, float]:
            mean, _, _ = super().difference(row, other, objective)
            return mean, 1.0, mean

    monkeypatch.setattr(race_errors, "RaceRule", Certain)
    scores = np.random.default_rng(0).normal(size=(4, 11))
    scores += 0.01 * np.arange(4)[:, None] - scores.mean(axis=1, keepdims=True)
    found = race_errors.savings("test", scores, races=6, margin=0.005, gaussian=True)
    assert found["low_wrong"] == 6
    assert 0 < found["bound_wrong"] == found["wrong"] <= 6


def test_the_mean_of_the_recommended_row_is_too_high_if_all_are_equal() -> None:
    scores = race_errors.equal_rows(np.random.default_rng(0).normal(size=(20, 30)))(np.random.default_rng(1))
    found = race_errors.savings("test", scores, races=10, margin=0.005, gaussian=True)
    assert found["bias"] / found["races"] > 0.02


# --- the defaults of FLASH -------------------------------------------------------------------------------------------------------


def flash_rows(differences: Mapping[str, float], times: Mapping[str, float]) -> list[dict[str, Any]]:
    """The rows of one federation."""
    return [
        {"label": name, "difference": differences[name], "time_to_target": times[name], "reached": 5, "seeds": 5}
        for name in times
    ]


def test_the_fastest_setting_that_costs_little_accuracy_is_chosen() -> None:
    first, second, third, *rest = flash_study.SETTINGS
    times = {"uniform": 10.0, first: 9.0, second: 8.0, third: 2.0} | dict.fromkeys(rest, 20.0)
    differences = {"uniform": 0.0, first: 0.0, second: -0.009, third: -0.02} | dict.fromkeys(rest, 0.0)
    result = {"a": flash_rows(differences, times), "b": flash_rows({**differences, third: 0.0}, times)}
    assert flash_study.chosen_setting(result) == second
    text = flash_study.about_choice(result)
    assert f"9 of 10 settings meet the condition, and the fastest of them is *{second}*" in text
    assert "0.80, 0.80 times the time" in text


def rows_of_table(kept: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each federation from the printed table, whose cells are such as "−2.8 [−9.5, +4.0]" and "12.0 (4/5)"."""
    found: dict[str, list[dict[str, Any]]] = {}
    for label, *cells in kept["rows"]:
        for name, difference, time in zip(kept["columns"][1::4], cells[1::4], cells[2::4], strict=True):
            points = "0" if difference == "–" else difference.split()[0].replace("−", "-")
            seconds, _, reached = time.removesuffix("/5)").partition(" (")
            row = {"label": label, "difference": float(points) / 100, "time_to_target": float(seconds), "seeds": 5}
            found.setdefault(name, []).append(row | {"reached": int(reached or 5)})
    return found


def test_the_defaults_of_flash_are_those_that_the_study_chooses() -> None:
    content = read("flash-defaults")
    result = content["result"] if "result" in content else rows_of_table(content["table"])
    chosen = flash_study.SETTINGS[flash_study.chosen_setting(result)]
    assert {name: getattr(Flash(), name) for name in chosen} == chosen


def test_differences_on_federations_that_had_no_part_in_the_choice() -> None:
    g = np.random.default_rng(0)
    noise = {name: 0.01 * g.normal(size=30) for name in ("uniform", "flash", "oort")}
    better = {"uniform": 0.5, "flash": 0.6, "oort": 0.6}
    result = {
        name: {
            one: {"accuracy": (0.5 + noise[one]).tolist(), "at_time": (level[one] + noise[one]).tolist()}
            for one in noise
        }
        for name, level in (("even", dict.fromkeys(better, 0.5)), ("stragglers", better))
    }
    text = flash_held_out.flash_held_out(result)
    assert (
        "* At equal simulated time, `flash` is clearly better than `uniform` on 1 federation (*stragglers*), and clearly worse on no"
        in text
    )
    assert "* At equal rounds, `flash` is clearly better than `uniform` on no federation" in text
    assert text.count("▲ |") == 1


@pytest.mark.parametrize(("name", "grows"), [("uniform", True), ("flash_linucb", False)])
def test_the_regret_of_a_bandit_grows_more_slowly_than_that_of_chance(name: str, grows: bool) -> None:
    strategy = make(STRATEGIES.find("flash_linucb", "flash_linucb"), {}, "selection")
    own, chance = planted.regret_by_round(strategy, "speed", 0, 60)
    regret = chance if name == "uniform" else own
    assert (regret[-1] > 1.6 * regret[29]) == grows


# --- results that are confirmed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", slow_after(1, [0.1, 60]))
def test_a_comparison_is_confirmed_by_all_seeds_or_by_one_that_is_chosen(tmp_path: Path, minutes: float) -> None:
    description = ComparisonResult("experiments/quickstart.toml", {"": {"rounds": 2, "seeds": 2}}, minutes=minutes)
    kept = description.make(tmp_path / "all")
    every = minutes < 1
    for choice in (4, 5):
        assert repeated_comparison(description, kept, tmp_path / "again", choice) == (6 if every else 3)
    kept[""][1]["bests"][1] += 1e-9
    wrong = r"UCB: bests of the seeds from \d on are .* instead of .*; make it anew"
    with pytest.raises(UsageError, match=wrong):
        repeated_comparison(description, kept, tmp_path / "again", 5)
    if every:
        with pytest.raises(UsageError, match=wrong):
            repeated_comparison(description, kept, tmp_path / "again", 4)
    else:
        assert repeated_comparison(description, kept, tmp_path / "again", 4) == 3


def test_the_atlas_is_confirmed_by_some_of_its_runs() -> None:
    values = {"accuracy": 0.5, "time": 3.0, "bytes": 4.0}
    asked = []

    def same(place: Federation, strategy: str, weights: str | None, seed: int, limits: Any) -> Played:
        asked.append((place.name, strategy))
        assert (seed, limits) == (0, None if strategy == "uniform" else (1.5, 2.0))
        return Played(values, {})

    places = federations()
    kept = {
        place.name: {"runs": {name: {key: [value] for key, value in values.items()} for name in strategies()}}
        for place in places
    }
    assert repeated_atlas(kept, same) == len(asked) == len(set(asked))
    assert {name for name, _ in asked} == {place.name for place in places}
    assert {strategy for _, strategy in asked} == set(strategies())
    assert len(asked) < len(places) * len(strategies()) / 4
    kept[places[2].name]["runs"]["uniform"]["bytes"] = [5.0]
    with pytest.raises(UsageError, match=r"digits, skew, uniform: bytes is 4 instead of 5\.0; make it anew"):
        repeated_atlas(kept, lambda *given: Played(values, {}))


def test_intervals_of_a_confirmed_comparison_are_those_of_the_present_code() -> None:
    """A row of a sweep is compared with the baseline of its point."""

    def row(label: str, verdict: str, difference: float, *accuracies: float) -> dict[str, Any]:
        ends = {"difference_low": -9, "difference_high": 9}
        return {"label": label, "verdict": verdict, "difference": difference, "accuracies": list(accuracies)} | ends

    rows = [
        row("uniform, 1", "baseline", 0.0, 0.9, 0.9),
        row("uniform, 2", "baseline", 0.0, 0.4, 0.4),
        row("a, 1", "not clear", -0.2, 0.5, 0.9),
        row("a, 2", "not clear", 0.1, 0.5, 0.5),
    ]
    renew_intervals(rows)
    assert [(one["difference_low"], one["difference_high"]) for one in rows[2:]] == [
        (-1, 1),
        pytest.approx((0.1, 0.1)),
    ]


@pytest.mark.parametrize("name", [one for one in names() if isinstance(DESCRIPTIONS.get(one), ComparisonResult)])
def test_kept_intervals_are_those_of_the_present_code(name: str) -> None:
    content = read(name)
    if "table" in content:
        pytest.skip("kept without the values of its seeds")
    for rows in content["result"].values():
        now = copy.deepcopy(rows)
        for row in now:
            if row["verdict"] != "baseline" and row["difference_low"] is not None:
                row["difference_low"] = row["difference_high"] = np.nan  # each must be computed
        renew_intervals(now)
        for row, kept in zip(now, rows, strict=True):
            for end in ("difference_low", "difference_high"):
                assert row[end] == pytest.approx(kept[end], abs=1e-12), row["label"]


def test_the_held_out_federations_are_confirmed_by_their_first_seed() -> None:
    values = {"accuracy": 0.51234567, "at_time": 0.4, "bytes": 3.0}
    kept = {place.name: {"flash": {"accuracy": [0.512346, 0.9], "at_time": [0.4, 0.9]}} for place in federations()}
    assert repeated_held_out(kept, lambda place, seed: {"flash": values} if seed == 11 else {}) == 13
    kept["objects"]["flash"]["at_time"][0] = 0.41
    with pytest.raises(UsageError, match=r"^objects, flash: at_time is 0\.4 instead of 0\.41; make it anew"):
        repeated_held_out(kept, lambda place, seed: {"flash": values})


def test_only_comparisons_and_the_atlas_can_be_confirmed(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"register: only comparisons, the atlas and the held-out federations can be confirmed; make it",
    ):
        confirm("register", tmp_path)


@pytest.mark.parametrize(
    ("made_on", "end"), [("A, 2 cores", ""), ("B, 4 cores", ", or confirm it on B, 4 cores: this is A, .*")]
)
def test_the_message_names_another_processor(
    made_on: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm_module, "processor", lambda: "A")
    monkeypatch.setattr(confirm_module, "read", lambda name: read(name) | {"processor": made_on})

    def differs(*given: Any) -> int:
        raise UsageError("FedAvg: accuracies are [0.5] instead of [0.6]; make it anew")

    monkeypatch.setattr(confirm_module, "repeated_comparison", differs)
    told = rf"^quickstart: FedAvg: .*; make it anew: make results NAME=quickstart{end}$"
    with pytest.raises(UsageError, match=told):
        confirm("quickstart", tmp_path)


# --- diagnoses -------------------------------------------------------------------------------------------------------------------


def test_every_learning_row_of_the_study_has_a_claim() -> None:
    experiment = fedcohort.load_experiment(ROOT / STUDY)
    assert {one.label for one in experiment.variants} == set(CLAIMS)


def test_ranks_and_correlations_are_within_groups() -> None:
    pairs = pd.DataFrame(
        {"group": [1, 1, 1, 2, 2, 2, 3, 3], "score": [1, 2, 3, 10, 20, 30, 1, 2], "value": [5, 6, 7, 3, 2, 1, 1, 2]}
    )
    ranked = ranks_within(pairs)
    assert set(ranked["group"]) == {1, 2}  # two pairs are too few
    assert ranked["score"].tolist() == pytest.approx([1 / 6, 1 / 2, 5 / 6] * 2)
    assert correlation(ranked) == pytest.approx(0)
    assert correlation(ranked[ranked["group"] == 2]) == pytest.approx(-1)
    assert correlation(ranks_within(pairs[pairs["group"] == 3])) is None


def test_a_claim_holds_if_the_interval_is_on_its_side() -> None:
    assert holds([0.2, 0.3, 0.25], 1) == "yes"
    assert holds([0.2, 0.3, 0.25], -1) == "no, the opposite"
    assert holds([-0.2, 0.3, 0.05], 1) == "not clear"
    assert holds([], 1) == "no scores to compare"


def test_the_table_of_diagnoses_has_a_line_for_each_claim() -> None:
    claim = {"words": "a shorter time", "sign": -1, "correlations": [-0.5, -0.4], "mean_ranks": [0.6] * BINS}
    shares = {name: [0.5, 0.7] for name in ("greedy", "chance", "new")}
    text = diagnosis_table({"Oort": {**shares, "prediction": "score", "claims": [claim, claim]}})
    assert text.count("a shorter time") == 2
    assert "| Oort | a shorter time | −0.45 [−1.00, +0.19] | not clear | `score` | 60% | 60% | 60% |" in text


def test_the_reward_of_a_bandit_stands_among_the_terms_of_later_decisions() -> None:
    """Scores that are the opposite of durations promise short times, and clients that were not selected do not count."""

    class Run:
        decisions = pd.DataFrame(
            {
                "round": [1, 1, 1, 3, 3, 3], "client": [0, 1, 2] * 2, "selected": [True, True, False] * 2,
                "score": [1.0, 2.0, 3.0] * 2, "x_reward": [0.0, 0.0, 0.0, 7.0, 8.0, 9.0],
            }
        )  # fmt: skip
        clients = pd.DataFrame({"round": [1, 1], "client": [0, 1], "duration": [5.0, 4.0]})
        rounds = pd.DataFrame({"test_accuracy": [0.1, 0.3, 0.4, 0.4]}, index=pd.Index([1, 2, 3, 4], name="round"))

    run = Run()
    rewards = outcomes(run, Claim("", "reward", later=2))  # type: ignore[arg-type]
    assert rewards["value"].tolist() == [7.0, 8.0]
    times = outcomes(run, Claim("", "duration", -1))  # type: ignore[arg-type]
    assert times["value"].tolist() == [5.0, 4.0]
