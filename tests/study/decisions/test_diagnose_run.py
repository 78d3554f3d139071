"""Diagnoses of decisions: every number worked out by hand from a record that is written for it."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import rankdata

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.record import ClientRow, create_run
from fedcohort.record import Run as RecordedRun
from fedcohort.report import terminal
from fedcohort.study.decisions.diagnose_run import (
    FEWEST,
    Correlation,
    Diagnosis,
    _correlations,
    diagnose,
    greedy_probability,
    over_seeds,
)
from tests.experiments import small
from tests.records import played, written


def client(number: int, loss: float, duration: float = 1.0) -> ClientRow:
    return ClientRow(number, "admitted", loss=loss, duration=duration)


def candidates(scores: list[float], selected: set[int]) -> list[tuple[int, bool, float, dict[str, float]]]:
    return [(i, i in selected, score, {}) for i, score in enumerate(scores)]


@pytest.fixture
def run(tmp_path: Path) -> fedcohort.Run:
    """Three rounds. Losses go with scores in the first, against them in the second; the third has no scores."""
    first, second = [client(0, 3.0), client(1, 2.0), client(2, 1.0)], [client(0, 1.0), client(1, 2.0), client(3, 3.0)]
    scores = [9.0, 8.0, 7.0, 1.0]
    rows = [
        played(1, first, decisions=candidates(scores, {0, 1, 2}), test_accuracy=0.2),
        played(2, second, decisions=candidates(scores, {0, 1, 3}), test_accuracy=0.5),
        played(3, [client(0, 1.0)], decisions=candidates([math.nan] * 4, {0}), test_accuracy=0.6),
    ]
    return written(tmp_path / "run", rows)


def test_the_highest_scores_are_greedy_and_ties_are_shared() -> None:
    assert greedy_probability(np.array([3.0, 1.0, 2.0]), 2).tolist() == [1, 0, 1]
    assert greedy_probability(np.array([5.0, 1.0, 1.0, 1.0, 0.0]), 2).tolist() == pytest.approx(
        [1, 1 / 3, 1 / 3, 1 / 3, 0]
    )
    assert greedy_probability(np.ones(4), 1).tolist() == [0.25] * 4


def test_shares_and_correlations(run: fedcohort.Run) -> None:
    found = diagnose(run)
    assert (found.rounds, found.scored_rounds) == (3, 2)
    assert found.greedy == pytest.approx((1 + 2 / 3) / 2)
    assert found.exploration == pytest.approx(1 / 6)
    assert found.chance == pytest.approx(3 / 4)
    assert found.new == pytest.approx(4 / 7)
    by_outcome = {each.outcome: each for each in found.correlations}
    assert by_outcome["loss"].rank_correlation == pytest.approx((1 - 1) / 2)
    assert by_outcome["loss"].rounds == 2
    assert "duration" not in by_outcome  # it does not vary
    assert "gain" not in by_outcome  # only one round has both a score and a gain


def one_round(tmp_path: Path, terms: dict[str, list[float]], scores: list[float], selected: set[int]) -> fedcohort.Run:
    """A run whose only round has these candidates."""
    rows = [
        (i, i in selected, score, {name: values[i] for name, values in terms.items()}) for i, score in enumerate(scores)
    ]
    return written(tmp_path / "run", [played(1, [client(i, 1.0) for i in sorted(selected)], decisions=rows)])


def test_a_draw_in_the_score_is_exploration_not_agreement(tmp_path: Path) -> None:
    """Client 1 has the highest score only because of its draw, and client 0 also without it."""
    terms = {"loss": [2.0, 1.0, 1.5], "duration": [0.5, 0.0, 0.5], "exploration": [0.5, 4.0, -1.0]}
    found = diagnose(one_round(tmp_path, terms, [3.0, 5.0, 1.0], {0, 1}))
    assert (found.prediction, found.greedy, found.exploration) == ("score − exploration", 0.5, 0.5)
    assert found.chance == pytest.approx(2 / 3)
    text = " ".join(terminal.as_text(terminal.diagnosis(found)).split())
    assert "Prediction: score − exploration, the score without its exploration." in text


def test_the_term_that_is_the_score_without_its_bonus_predicts(tmp_path: Path) -> None:
    """Client 3 was never selected and comes first; client 4 is put last. The projection is no part of the sum."""
    terms = {
        "projection": [0.1, 0.2, 0.3, math.nan, 0.5],
        "fit": [3.0, 2.0, 1.0, 1.0, 9.0],
        "bonus": [0.5, 2.0, 1.0, math.inf, 0.0],
    }
    found = diagnose(one_round(tmp_path, terms, [3.5, 4.0, 2.0, math.inf, -math.inf], {1, 3}))
    assert (found.prediction, found.greedy, found.chance) == ("fit", 0.5, 0.5)
    text = " ".join(terminal.as_text(terminal.diagnosis(found)).split())
    assert "Prediction: the term fit, the score without its exploration." in text


def test_a_round_without_terms_goes_by_its_scores(tmp_path: Path) -> None:
    terms = {"mean_reward": 1.0, "bonus": 2.0}
    rows = [
        played(1, [client(0, 1.0)], decisions=candidates([5.0, 4.0, 3.0], {0})),
        played(
            2, [client(1, 1.0)], decisions=[(0, False, 1.0, {"mean_reward": 0.5, "bonus": 0.5}), (1, True, 3.0, terms)]
        ),
    ]
    found = diagnose(written(tmp_path / "run", rows))
    assert (found.prediction, found.greedy, found.scored_rounds) == ("mean_reward", 1.0, 2)


@pytest.mark.parametrize(
    ("selection", "prediction"),
    [
        ({"name": "ucb"}, "mean_reward"),
        ({"name": "cs_ucb"}, "mean_reward"),
        ({"name": "flash"}, "score − exploration"),
        ({"name": "flash_printed"}, "score − exploration"),
        ({"name": "flash_linucb"}, "score − exploration"),
        ({"name": "neural"}, "mean_reward"),
        ({"name": "gpfl_select"}, "fit"),
        ({"name": "restless"}, "score"),
        ({"name": "oort"}, "score"),
    ],
)
def test_the_predictions_of_the_built_in_strategies(selection: dict[str, Any], prediction: str, tmp_path: Path) -> None:
    federation = {"clients": 12, "holdout": 0.2}
    experiment = small(rounds=6, federation=federation, selection={**selection, "k": 3})
    found = diagnose(fedcohort.run(experiment, runs=tmp_path))
    assert found.prediction == prediction
    assert found.scored_rounds


def test_mean_scores_are_compared_with_the_gain(tmp_path: Path) -> None:
    accuracies, scores = [0.1, 0.2, 0.4, 0.7, 0.75], [1.0, 2.0, 3.0, 4.0, 0.0]
    rows = [
        played(t, [client(0, 1.0)], decisions=candidates([score, 0.5], {0}), test_accuracy=accuracy)
        for t, (score, accuracy) in enumerate(zip(scores, accuracies, strict=True), 1)
    ]
    (gain,) = [each for each in diagnose(written(tmp_path / "run", rows)).correlations if each.outcome == "gain"]
    assert gain.rounds == 4
    assert gain.rank_correlation == pytest.approx(1)  # gains 0.1, 0.2, 0.3, 0.05 with scores 2, 3, 4, 0


def test_a_record_without_all_candidates_is_not_taken_for_scores_that_do_not_choose(tmp_path: Path) -> None:
    """The record keeps 1,000 candidates: chance is that among all available clients, and nothing is known if all are selected ones."""
    scores = [float(score) for score in range(2000, 1000, -1)]
    few = played(1, [client(i, 1.0) for i in range(20)], available=4000, decisions=candidates(scores, set(range(20))))
    found = diagnose(written(tmp_path / "few", [few]))
    assert (found.greedy, found.chance, found.cut_rounds) == (1.0, 20 / 4000, 0)

    many = played(
        1, [client(i, 1.0) for i in range(1200)], available=4000, decisions=candidates(scores, set(range(1000)))
    )
    found = diagnose(written(tmp_path / "many", [many]))
    assert math.isnan(found.greedy)
    assert (found.scored_rounds, found.cut_rounds, found.to_json()["cut_rounds"]) == (0, 1, 1)
    text = " ".join(terminal.as_text(terminal.diagnosis(found)).split())
    assert (
        "1 round with scores: it is not known which clients had the highest predictions, because at least 1,000 were"
        in text
    )
    assert "gives no scores" not in text
    both = over_seeds([found, found])
    table = " ".join(terminal.as_text(terminal.diagnoses([both, both], ["0 and 1"] * 2, 200)).split())
    assert both.cut_rounds == 2
    assert "or it is not known which clients had the highest predictions" in table

    everyone = played(
        1, [client(i, 1.0) for i in range(1200)], available=1200, decisions=candidates(scores, set(range(1000)))
    )
    found = diagnose(written(tmp_path / "everyone", [everyone]))
    assert found.cut_rounds == 0, "all clients were selected, so that scores chose none"
    assert "gives no scores that choose" in terminal.as_text(terminal.diagnosis(found))


def test_selections_without_a_score_are_counted(run: fedcohort.Run, tmp_path: Path) -> None:
    """One of the seven selections has no score: the agreement and the correlations say nothing about it."""
    found = diagnose(run)
    assert found.unscored == pytest.approx(1 / 7)
    text = " ".join(terminal.as_text(terminal.diagnosis(found)).split())
    assert "14% of all selections are of clients without a score, which these shares and correlations leave out" in text
    both = over_seeds([found, dataclasses.replace(found, unscored=3 / 7)])
    assert both.unscored == pytest.approx(2 / 7)
    table = " ".join(terminal.as_text(terminal.diagnoses([both], ["0 and 1"], 200)).split())
    assert "29%" in table
    assert "Without score: share of the selections of clients without a score" in table
    scored = dataclasses.replace(found, unscored=0.0)
    assert "without a score, which" not in terminal.as_text(terminal.diagnosis(scored))
    assert "Without score" not in terminal.as_text(terminal.diagnoses([scored], ["0"], 200))
    assert found.to_json()["unscored"] == pytest.approx(1 / 7)
    plain = fedcohort.run(small(rounds=2), runs=tmp_path)
    assert diagnose(plain).scored_rounds or diagnose(plain).to_json()["unscored"] is None


def test_correlations_over_few_rounds_have_a_mark() -> None:
    few, many = Correlation("loss", 0.5, 9), Correlation("accuracy", -0.25, 10)
    assert (few.doubtful, many.doubtful) == (True, False)
    found = Diagnosis("ucb", 0, 12, 10, 0.5, 0.5, 0.5, 0.1, (few, many))
    for shown in (terminal.diagnosis(found), terminal.diagnoses([found], ["0"], 200)):
        text = " ".join(terminal.as_text(shown).split())
        assert " 50? " in text
        assert " −25 " in text
        assert "?: fewer than 10 rounds, so that it can be large by chance." in text
    sure = dataclasses.replace(found, correlations=(many,))
    assert "?" not in terminal.as_text(terminal.diagnosis(sure))


def test_correlations_within_rounds_of_three_clients_have_a_mark(run: fedcohort.Run, tmp_path: Path) -> None:
    """They are at least 50% or at most −50% in every round, by chance alone; nothing said so."""
    found = diagnose(run)
    (loss,) = found.correlations
    assert (loss.clients, loss.coarse) == (3, True)
    assert over_seeds([found, found]).correlations[0].clients == 3
    assert [dataclasses.replace(loss, clients=mean).coarse for mean in (3.4, 3.6)] == [True, False], "about three"
    more = dataclasses.replace(loss, clients=4.0, rounds=20)
    for shown in (terminal.diagnosis, lambda one: terminal.diagnoses([one], ["0"], 200)):
        text = " ".join(terminal.as_text(shown(found)).split())
        assert " 0?* " in text
        assert (
            "*: in rounds with about three clients. Without ties, each of them then has at least 50 or at most −50"
            in text
        )
        assert "*" not in terminal.as_text(shown(dataclasses.replace(found, correlations=(more,))))
    scores = [9.0, 8.0, 7.0]
    rows = [played(t, [client(0, 3.0), client(1, t)], decisions=candidates(scores, {0, 1})) for t in (1, 2)]
    text = " ".join(terminal.as_text(terminal.diagnosis(diagnose(written(tmp_path / "two", rows)))).split())
    assert "in no round did both the scores and the outcomes of three or more selected clients differ." in text


def test_notes_say_which_correlations_are_not_known(tmp_path: Path) -> None:
    """Below a table with the gain, "correlations with outcomes are not known", and "the mean over rounds, among selected clients"."""
    two = [client(0, 3.0), client(1, 2.0)]
    rows = [
        played(t, two, decisions=candidates([9.0 + t, 8.0, 7.0], {0, 1}), test_accuracy=accuracy)
        for t, accuracy in enumerate((0.1, 0.2, 0.4, 0.7, 0.9), start=1)
    ]
    found = diagnose(written(tmp_path / "run", rows))
    assert [each.outcome for each in found.correlations] == ["gain"]
    text = " ".join(terminal.as_text(terminal.diagnosis(found)).split())
    assert (
        "Rank correlations within rounds, with what the selected clients reported, are not known: in no round did both"
        in text
    )
    assert "among the selected clients" not in text
    assert (
        "Gain: change of the test accuracy in a round, compared with the mean score of its selected clients, over all"
        in text
    )
    both = dataclasses.replace(found, correlations=(*found.correlations, Correlation("loss", 0.5, 12, 5.0)))
    text = " ".join(terminal.as_text(terminal.diagnosis(both)).split())
    assert "Those with what clients reported are means over rounds, among the selected clients." in text
    table = " ".join(terminal.as_text(terminal.diagnoses([found, both], ["0", "0"], 200)).split())
    assert "–: in no round did both the scores and the outcomes" in table
    assert "–: it is known in fewer than three rounds" not in table
    reported = dataclasses.replace(both, correlations=both.correlations[1:])
    table = " ".join(terminal.as_text(terminal.diagnoses([both, reported], ["0", "0"], 200)).split())
    assert "–: in no round did both the scores and the outcomes" not in table
    assert "–: it is known in fewer than three rounds with scores, or it or the mean scores do not differ." in table
    alone = " ".join(terminal.as_text(terminal.diagnosis(reported)).split())
    assert "It is the mean over rounds, among the selected clients." in alone
    assert "Gain" not in alone


def test_a_strategy_without_scores_has_no_shares(tmp_path: Path) -> None:
    run = fedcohort.run(small(rounds=2), runs=tmp_path)
    found = diagnose(run)
    assert (found.scored_rounds, found.to_json()["greedy"], found.to_json()["exploration"]) == (0, None, None)
    told = terminal.as_text(terminal.diagnosis(found))
    assert "The strategy gives no scores that choose between clients." in told, (
        "equal scores are no scores to explore beyond"
    )
    assert found.to_json()["rounds"] == 2


def test_a_run_without_rounds_is_refused(tmp_path: Path) -> None:
    meta: dict[str, Any] = {"label": "uniform", "name": "small", "seed": "0", "data": "", "given": ""}
    create_run(tmp_path / "run", small().single(0).to_toml(), meta)
    with pytest.raises(UsageError, match="has no finished round yet"):
        diagnose(RecordedRun(tmp_path / "run"))


def test_the_command_prints_shares_or_json(run: fedcohort.Run) -> None:
    shown = CliRunner().invoke(cli, ["diagnose", str(run.path)])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.stdout.split())
    assert (
        "In 2 rounds with scores, 83% of the selected clients with a score have the highest predictions; uniform selection would "
        "give 75%." in words
    )
    assert (
        "Exploration: 17%. Prediction: the score itself, because the record has no exploration apart from it." in words
    )
    (found,) = json.loads(CliRunner().invoke(cli, ["diagnose", str(run.path), "--json"]).stdout)["runs"]
    assert found["exploration"] == pytest.approx(1 / 6)


def test_seeds_become_means_and_rows_one_table(run: fedcohort.Run) -> None:
    """A number that only one seed knows is that of this seed; rounds of correlations are summed."""
    first = diagnose(run)
    other = dataclasses.replace(
        first,
        seed=1,
        greedy=0.5,
        chance=math.nan,
        new=1.0,
        correlations=(Correlation("loss", 0.5, 3), Correlation("gain", 1.0, 4)),
    )
    mean = over_seeds([first, other])
    assert mean.greedy == pytest.approx((first.greedy + 0.5) / 2)
    assert mean.prediction == "score"
    assert over_seeds([first, dataclasses.replace(first, prediction="fit")]).prediction == "score, fit"
    assert (mean.chance, mean.new) == (first.chance, pytest.approx((4 / 7 + 1) / 2))
    by_outcome = {each.outcome: (each.rank_correlation, each.rounds) for each in mean.correlations}
    assert by_outcome == {"loss": (pytest.approx(0.25), 5), "gain": (1.0, 4)}
    plain = dataclasses.replace(first, label="uniform", greedy=math.nan, correlations=())
    mean = dataclasses.replace(mean, label="UCB")
    text = terminal.as_text(terminal.diagnoses([mean, plain], ["seeds 0 and 1", "seed 0"], 100), 100)
    lines = [line.split() for line in text.splitlines()]
    (ucb,) = [words for words in lines if words[:1] == ["UCB"]]
    (uniform,) = [words for words in lines if words[:1] == ["uniform"]]
    assert ucb[-6:] == ["67%", "75%", "79%", "14%", "25?*", "100?"]
    assert "correlation" in text.splitlines()[0], "a correlation of 25% with the gain is no gain of 25%"
    assert "with gain, %" in text
    assert uniform[-6:] == ["–", "75%", "57%", "14%", "–", "–"]


def test_the_diagnosis_of_a_regression_names_its_scores(run: fedcohort.Run) -> None:
    gain = (Correlation("gain", 1.0, 2),)
    found = dataclasses.replace(diagnose(run), labels="numbers", correlations=diagnose(run).correlations + gain)
    text = terminal.as_text(terminal.diagnosis(found))
    assert "test R²" in text
    assert "accuracy" not in text
    assert "score" in text


def single(a: pd.Series, b: pd.Series) -> float:
    """Spearman's rank correlation of pairs, from its definition."""
    known = np.isfinite(a) & np.isfinite(b)
    ranks = rankdata(a[known]), rankdata(b[known])
    if known.sum() < FEWEST or any(np.ptp(each) == 0 for each in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize("seed", range(8))
def test_correlations_of_all_rounds_have_the_bits_of_single_ones(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, levels = int(draw.integers(0, 2000)) if seed else 0, int(draw.integers(1, 30))
    rounds = pd.Series(np.sort(draw.integers(1, 40, n)), dtype="int64")
    scores = pd.Series(draw.integers(0, levels, n) / levels)
    values = pd.Series(draw.normal(size=n) if seed % 2 else draw.integers(0, levels, n) * 0.1)
    scores[draw.random(n) < 0.05] = np.nan
    values[draw.random(n) < 0.1] = np.nan
    values[draw.random(n) < 0.02] = np.inf
    table = pd.DataFrame({"round": rounds, "score": scores, "value": values})
    each = [(single(own["score"], own["value"]), own["value"].notna().sum()) for _, own in table.groupby("round")]
    expected = np.array(each, dtype=np.float64).reshape(-1, 2)
    assert np.array_equal(_correlations(rounds, scores, values), expected, equal_nan=True)
