"""The atlas: its statistics on invented tables, published numbers, and runs that are continued."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results import __main__ as command
from results import result_file
from results.atlas import recommend
from results.atlas.federations import TRAITS, Federation, federations, measured_traits, strategies
from results.atlas.figure import MOST
from results.atlas.means import OBJECTIVES, Findings
from results.atlas.play import MEASURES, Atlas, Played, play, play_missing
from results.atlas.ranks import average_ranks, critical_difference, friedman
from results.atlas.recommend import RULES, checked, nearest, splits
from results.atlas.tables import parts
from results.result_file import names, read, write

from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from tests.docs.pages import ROOT
from tests.docs.pages import read as text_of


def invented(
    table: "np.ndarray[Any, Any]", seeds: int = 4, noise: float = 0.0, names: tuple[str, ...] = ()
) -> dict[str, Any]:
    """An atlas in which the accuracies of strategies [federations, strategies] are known, up to noise over seeds."""
    names = names or ("uniform", "oort", *(f"s{i}" for i in range(2, table.shape[1])))
    draw = np.random.default_rng(0)
    atlas: dict[str, Any] = {}
    for f, row in enumerate(table):
        runs = {}
        for name, mean in zip(names, row, strict=True):
            accuracies = (mean + noise * draw.normal(size=seeds)).tolist()
            runs[name] = dict.fromkeys(OBJECTIVES, accuracies) | {
                cost: [2.0] * seeds for cost in ("time", "bytes", "passes")
            }
        traits = dict.fromkeys(TRAITS, 0.0) | {"label skew": float(f), "absence": float(f % 2)}
        atlas[f"f{f}"] = {"about": "invented", "digest": "", "traits": traits, "refused": {}, "runs": runs}
    return atlas


# --- ranks -----------------------------------------------------------------------------------------------------------------------


def test_ranks_share_places() -> None:
    assert average_ranks([[0.9, 0.8, 0.8, 0.1], [0.1, 0.2, 0.3, 0.4]]).tolist() == [2.5, 2.75, 2.25, 2.5]


def test_the_example_of_demsar() -> None:
    """Demšar 2006, section 3.2.2 and 3.2.4: four classifiers on 14 data sets."""
    found = friedman([3.143, 2.000, 2.893, 1.964], 14)
    assert (round(found.chi_square, 2), round(found.f, 2)) == (9.28, 3.69)
    assert 0.01 < found.p_value < 0.05  # the critical value of F(3, 39) is 2.85 at 5%
    assert round(critical_difference(4, 14), 2) == 1.25
    assert round(critical_difference(4, 14, 0.1), 2) == 1.12


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_critical_values_of_nemenyi(k: int, q: float) -> None:
    """Demšar 2006, table 5(a), which cuts off further digits."""
    assert critical_difference(k, 10) / math.sqrt(k * (k + 1) / 60) == pytest.approx(q, abs=1e-3)


def test_equal_rankings_everywhere_are_no_chance() -> None:
    assert friedman([1.0, 2.0, 3.0], 5) == (10.0, math.inf, 0.0)


# --- means and verdicts ----------------------------------------------------------------------------------------------------------


def test_only_seeds_that_all_strategies_have_played_count() -> None:
    atlas = invented(np.array([[0.5, 0.6, 0.7]] * 3), seeds=3)
    atlas["f1"]["runs"]["s2"] = {name: values[:2] for name, values in atlas["f1"]["runs"]["s2"].items()}
    del atlas["f2"]["runs"]["oort"]
    found = Findings(atlas)
    assert [found.seeds(name) for name in atlas] == [3, 2, 0]
    assert found.federations == ["f0", "f1"]
    assert found.values("f1", "uniform", "accuracy").shape == (2,)


def test_a_strategy_that_a_federation_refuses_is_left_out() -> None:
    atlas = invented(np.array([[0.5, 0.6, 0.7]] * 2))
    del atlas["f1"]["runs"]["s2"]
    atlas["f1"]["refused"] = {"s2": "needs a deadline"}
    found = Findings(atlas)
    assert found.seeds("f1") == 4
    assert found.strategies == ["uniform", "oort"]
    assert found.means("accuracy").shape == (2, 2)
    assert found.refused == {"s2": {"f1": "needs a deadline"}}
    assert "`s2` in f1: needs a deadline" in result_block(atlas)


def result_block(atlas: dict[str, Any]) -> str:
    from results.atlas.tables import federations as block

    return block(Findings(atlas))


def test_the_map_marks_what_is_clear_and_gives_no_verdict_below_three_seeds() -> None:
    table = np.array([[0.5, 0.6, 0.4]] * 6)
    many, few = (parts(invented(table, seeds=seeds, noise=1e-4))["atlas map"]() for seeds in (8, 2))
    assert "| `oort` | +10.0 ▲ |" in many
    assert "| `s2` | −10.0 ▼ |" in many
    assert "Of 12 differences at equal rounds, 6 are clearly better" in many
    assert "no verdict" not in many
    assert "1 has a positive mean difference. 1 is above uniform selection in every federation" in many
    assert "▲" not in few
    assert "12 have no verdict" in few
    assert "no difference can be clear before the 7th seed" in few


def test_over_federations_the_federations_are_the_unit() -> None:
    table = np.array([[0.5, 0.6, 0.5 + (0.1 if f % 2 else -0.1)] for f in range(8)])
    found = Findings(invented(table, seeds=2)).over_federations("accuracy")
    assert (found["oort"].words, found["oort"].better) == ("better", 8)
    assert found["oort"].p_holm == pytest.approx(2 * 2 / 2**8)
    assert (found["s2"].words, found["s2"].better) == ("not clear", 4)


def test_costs_are_relative_to_uniform_selection() -> None:
    atlas = invented(np.array([[0.5, 0.6]] * 2))
    atlas["f0"]["runs"]["oort"]["bytes"] = [8.0] * 4
    assert Findings(atlas).relative("bytes").tolist() == pytest.approx([1.0, 2.0])


def test_the_sentences_in_short_follow_from_the_numbers() -> None:
    table = np.array([[0.5, 0.6, 0.4, 0.5 - 0.01 * f] for f in range(8)])
    text = parts(invented(table, names=("uniform", "oort", "s2", "flash")))["atlas in short"]()
    assert (
        "* **At equal bytes**, `oort` (+10.0 points, 1.0 × the bytes) is clearly better than uniform selection on average over the "
        "federations, and `s2` and `flash` are clearly worse. The highest mean is most often that of `oort`, in 8 of 8 federations."
    ) in text
    assert "is largest on *f7* (" in text
    assert "−3.5 [−5.5, −1.5] points at equal rounds (clearly worse)" in text
    assert "a mean regret of 0.0 points at equal rounds (always uniform 10.0, always oort 0.0)" in text


def test_the_published_sentences_in_short_are_about_every_budget() -> None:
    text = parts(read("atlas")["result"])["atlas in short"]()
    for words in OBJECTIVES.values():
        assert f"* **At {words}**, " in text
    assert re.search(r"On \*objects\* \(\d+\.\d%, chance 10%\), uniform selection", text)


def test_runs_that_end_before_the_limit_or_are_never_tested_within_it_are_named() -> None:
    atlas = invented(np.array([[0.5, 0.6, 0.4]] * 2))
    atlas["f0"]["runs"]["oort"]["time"] = [0.9] * 4
    atlas["f1"]["runs"]["s2"]["at_time"] = [0.0, 0.4, 0.4, 0.4]
    text = parts(atlas)["atlas map at equal time"]()
    assert "Shares of runs that end before the limit is spent, so that more rounds would help them: `oort` 50%." in text
    assert "which counts as an accuracy of 0: `s2` 12%." in text
    assert "none of at least 5%" in parts(atlas)["atlas map at equal bytes"]()
    assert "limit" not in parts(atlas)["atlas map"]()


# --- recommendations -------------------------------------------------------------------------------------------------------------


def test_the_nearest_federations_are_found_on_the_scale_of_the_others() -> None:
    traits = np.array([[0.0, 100.0, 1.0], [1.0, 0.0, 1.0], [2.0, 50.0, 1.0], [3.0, 60.0, 1.0]])
    assert nearest(traits, np.array([1.9, 55.0, 9.0]), 2).tolist() == [2, 3]


def test_splits_are_always_the_same_and_hold_out_a_third() -> None:
    first, second = splits(12), splits(12)
    assert [held.tolist() for held in first] == [held.tolist() for held in second]
    assert {len(held) for held in first} == {4}
    assert set(np.concatenate(first).tolist()) == set(range(12))


def test_a_rule_never_sees_a_held_out_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.arange(9)[:, None] / 10 + np.array([0.0, 0.01, 0.02])
    seen = []

    def rule(scores: Any, traits: Any, own: Any) -> int:
        seen.append((scores[:, 0].tolist(), traits[:, 0].tolist(), float(own[0])))
        return 0

    monkeypatch.setattr(recommend, "RULES", {"watched": rule})
    checked(Findings(invented(table)), "accuracy")
    held_out = [set(held.tolist()) for held in splits(9)]
    calls = iter(seen)
    for held in held_out:
        for _ in range(2):
            for federation in sorted(held):
                scores, traits, own = next(calls)
                assert own == federation
                assert set(traits) == set(range(9)) - held
                assert {round(10 * score) for score in scores} == set(range(9)) - held


def test_a_strategy_is_measured_on_other_seeds_than_those_that_chose_it() -> None:
    """Without any difference between strategies, the best one under some seeds has no advantage under the others."""
    noise = invented(np.full((9, 12), 0.5), seeds=40, noise=0.1)
    uniform = next(row for row in checked(Findings(noise), "accuracy") if row.rule == "always uniform")
    assert abs(uniform.regret.mean) < 0.02
    naive = np.mean([row.max() - row[0] for row in Findings(noise).means("accuracy")])
    assert naive > 0.02


def test_regrets_when_traits_tell_which_strategy_helps() -> None:
    """s2 helps on half of the federations, s3 on the others; only the recommendation by similarity tells them apart."""
    table = np.array([[0.5, 0.4, 0.7, 0.3] if f % 2 else [0.5, 0.4, 0.3, 0.7] for f in range(12)])
    atlas = invented(table)
    for entry in atlas.values():
        entry["traits"]["label skew"] = 0.0  # only absence tells them apart
    found = {row.rule: row for row in checked(Findings(atlas), "accuracy")}
    recommended = found[next(iter(RULES))]
    assert recommended.regret.mean == pytest.approx(0)
    assert found["always uniform"].regret.mean == pytest.approx(0.2)
    assert found["always oort"].regret.mean == pytest.approx(0.3)
    assert recommended.to_oort.high < 0
    assert set(recommended.chosen) == {"s2", "s3"}
    text = parts(atlas)["atlas recommendation"]()
    assert "The recommendation has a smaller regret than always using uniform selection" in text


def test_a_rule_that_does_not_help_is_said_not_to() -> None:
    text = parts(invented(np.full((9, 4), 0.5), noise=0.02))["atlas recommendation"]()
    assert "The recommendation does not clearly beat always using uniform selection" in text


def test_no_recommendation_with_one_seed() -> None:
    assert parts(invented(np.full((9, 4), 0.5), seeds=1))["atlas recommendation"]().startswith("Not enough runs yet")


# --- playing ---------------------------------------------------------------------------------------------------------------------


class MadeUp:
    """Plays nothing: values follow from the arguments. Each run takes one second of its own clock."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int]] = []

    def clock(self) -> float:
        return float(len(self.log))

    def __call__(self, place: Federation, strategy: str, weights: str | None, seed: int, limits: Any) -> Played:
        self.log.append((place.name, strategy, seed))
        if (place.name, strategy) == ("b", "refuses"):
            raise UsageError("needs something")
        assert (limits is None) == (strategy == "uniform")
        number = len(place.name + strategy) + seed / 3
        return Played(dict.fromkeys(MEASURES, number) | {"bytes": 1e9 + seed}, {"skew": 1.0})


PLACES = [Federation(name, "invented", Experiment(name=name)) for name in ("a", "b")]
ROWS = {"uniform": None, "refuses": None, "oort": "uniform"}


def played(made_up: MadeUp, kept: dict[str, Any], seeds: int = 2, **more: Any) -> dict[str, Any]:
    """The atlas of two federations and three strategies."""
    given: dict[str, Any] = {"places": PLACES, "seconds": math.inf} | more
    return play_missing(rows=ROWS, kept=kept, seeds=seeds, play=made_up, clock=made_up.clock, **given)


def test_every_federation_and_strategy_plays_a_seed_before_the_next_one() -> None:
    made_up = MadeUp()
    found = played(made_up, {})
    assert [seed for *_, seed in made_up.log] == sorted(seed for *_, seed in made_up.log)
    assert made_up.log[:3] == [("a", name, 0) for name in ROWS]
    assert found["b"]["refused"] == {"refuses": "needs something"}
    assert "refuses" not in found["b"]["runs"]
    assert ("b", "refuses", 1) not in made_up.log
    assert Findings(found).strategies == ["uniform", "oort"]


@pytest.mark.parametrize("seconds", [1, 2, 5])
def test_an_atlas_that_was_stopped_continues_to_the_same_file(seconds: int) -> None:
    whole = played(MadeUp(), {}, seeds=3)
    made_up = MadeUp()
    kept: dict[str, Any] = {}
    for _ in range(17):
        kept = json.loads(json.dumps(kept))
        before = len(made_up.log)
        kept = played(made_up, kept, seeds=3, seconds=seconds)
        assert len(made_up.log) - before <= seconds
    assert json.dumps(kept) == json.dumps(whole)
    assert len(made_up.log) == len(set(made_up.log)) == 16  # (3 + 2 of the other federation) × 3 seeds, and one refusal


def test_what_is_saved_meanwhile_is_a_valid_atlas() -> None:
    saved: list[str] = []
    played(MadeUp(), {}, save=lambda kept: saved.append(json.dumps(kept)))
    assert [len(Findings(json.loads(text)).federations) for text in saved] == [1, 2, 2, 2]


def test_a_federation_with_other_settings_begins_anew() -> None:
    kept = played(MadeUp(), {})
    made_up = MadeUp()
    played(made_up, kept, places=[PLACES[0], Federation("b", "invented", Experiment(name="b", rounds=7))])
    assert {name for name, *_ in made_up.log} == {"b"}


def test_a_file_of_other_code_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    given: list[dict[str, Any]] = []

    def extend(self: Atlas, kept: dict[str, Any], minutes: float, save: Any) -> dict[str, Any]:
        given.append(kept)
        return {**kept, "a": {"values": [1, 2.5, None]}}

    monkeypatch.setattr(result_file, "RESULTS", tmp_path)
    monkeypatch.setattr(result_file, "digest", lambda path: path.name)
    monkeypatch.setattr(Atlas, "extend", extend)
    command.extend("atlas", Atlas(), 1.0)
    command.extend("atlas", Atlas(), 1.0)
    assert '"values": [ 1, 2.5, null ]' in (tmp_path / "atlas.json").read_text("utf-8")
    content = read("atlas")
    content["depends"]["results/atlas/play.py"] = "other"
    write("atlas", content)
    command.extend("atlas", Atlas(), 1.0)
    assert given == [{}, {"a": {"values": [1, 2.5, None]}}, {}]
    assert "begins anew, since what it depends on has changed: results/atlas/play.py" in capsys.readouterr().out


def test_one_real_run_has_the_measures_and_the_traits() -> None:
    place = next(one for one in federations() if one.name == "tumors")
    short = Federation(place.name, place.about, place.experiment.with_overrides({"rounds": 4}))
    uniform = play(short, "uniform", None, 0, None)
    assert set(uniform.values) == set(MEASURES)
    assert set(uniform.traits) == set(TRAITS)
    assert uniform.traits["wrong labels"] == uniform.traits["absence"] == 0
    nothing = play(short, "all", None, 0, (1e-3, uniform.values["bytes"]))
    assert nothing.values["at_time"] == 0  # the limit ends before the first model
    assert nothing.values["passes"] > uniform.values["passes"]


def test_traits_of_a_made_up_federation() -> None:
    facts = {
        "counts": [[10, 0], [0, 10]], "samples": [10, 10], "time": [10.0, 10.0 * math.e**2], "wrong_labels": [0.0, 0.5],
        "presence": [1.0, 0.5],
    }  # fmt: skip
    expected = [0.5, 0.0, 0.25, 0.25, 1.0, 0.25, 0.301, 1.0, 0.5]
    assert list(measured_traits(facts, 1).values()) == pytest.approx(expected, abs=1e-4)


def test_the_atlas_has_many_federations_and_every_strategy() -> None:
    from fedcohort.selection import STRATEGIES

    places = federations()
    assert len(places) >= 12
    assert len({place.digest for place in places}) == len(places)
    assert set(strategies()) == set(STRATEGIES.builtin)
    assert next(iter(strategies())) == "uniform"
    assert strategies()["md"] == "uniform"  # as its source has it
    assert places[0].row("conformal", None).selection.parameters["max_epochs"] == 5  # as the file has it


# --- the page --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif("atlas" not in names(), reason="no atlas has been kept")
def test_what_the_page_says_in_short_holds() -> None:
    findings = Findings(read("atlas")["result"])
    over = {measure: findings.over_federations(measure) for measure in OBJECTIVES}
    better = {
        measure: {name for name, own in found.items() if own.words == "better"} for measure, found in over.items()
    }
    worse = {measure: {name for name, own in found.items() if own.words == "worse"} for measure, found in over.items()}
    assert better == {"accuracy": {"all"}, "at_time": {"oort", "tifl", "cs_ucb"}, "at_bytes": set()}
    assert {"flash", "flash_linucb"} <= worse["accuracy"]
    assert {"all", "flash", "restless", "neural", "feel", "fedcor", "loss_proportional", "powd"} <= worse["at_bytes"]
    won = Counter(findings.means("at_time").argmax(axis=1).tolist()).most_common(1)
    assert findings.strategies[won[0][0]] == "pyramidfl"
    accuracy = findings.means("accuracy")
    for name in ("tumors", "digits, even"):
        f = findings.federations.index(name)
        assert abs(accuracy[f] - accuracy[f, 0]).max() < 0.04
    assert 0.15 < accuracy[findings.federations.index("objects"), 0] < 0.25
    beats: dict[str, dict[str, bool]] = {}
    for measure in OBJECTIVES:
        rows = {row.rule: row for row in checked(findings, measure)}
        own = rows[next(iter(RULES))]
        better_than_all = own.regret.mean < rows["always all"].regret.mean
        beats[measure] = {"uniform": own.to_uniform.high < 0, "oort": own.to_oort.high < 0, "all": better_than_all}
    assert all(found["uniform"] for found in beats.values())
    assert not beats["accuracy"]["all"]
    assert not beats["at_time"]["oort"]


@pytest.mark.skipif("atlas" not in names(), reason="no atlas has been kept")
def test_the_picture_shows_the_map() -> None:
    findings = Findings(read("atlas")["result"])
    means = findings.means("accuracy")
    shown = re.findall(r">([^<>]+)</text>", text_of(ROOT / "docs" / "atlas-map.svg"))
    shown.remove(f"−{MOST}")  # the legend
    numbers = sorted(f"{value:+.0f}".replace("-", "−") for value in (100 * (means[:, 1:] - means[:, :1])).ravel())
    assert set(findings.federations) | set(findings.strategies[1:]) <= set(shown)
    assert sorted(text for text in shown if text in set(numbers)) == numbers
