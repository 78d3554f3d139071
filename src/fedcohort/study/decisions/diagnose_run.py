"""Diagnose the decisions of a run: whether scores predict what happens, and how much the strategy explores.

A score that contains exploration, such as the bonus of UCB or the draw of Thompson sampling, is highest for the selected clients
whatever it predicts. So the agreement with a greedy choice is measured by the *prediction*, the score without exploration.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.record import KEPT, Run
from fedcohort.study.continued_runs import without_round
from fedcohort.study.measured_values import plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MANY", "SCORE", "Correlation", "Diagnosis", "diagnose", "greedy_probability", "over_seeds", "predictions"]

NOT_OUTCOMES = {"round", "client", "status", "detail", "num_samples", "steps", "weight", "coefficient"}
"""Columns of the table of clients that are not outcomes of a selection."""

FEWEST = 3
"""Smallest number of clients, or rounds, of a rank correlation."""

MANY = 10
"""Rank correlations over fewer rounds can be large by chance."""

EXPLORATION = ("exploration", "bonus")
"""Names of the term that a strategy adds to its score for exploration."""

SCORE = "score"
"""What predicts if the record of a run has no exploration in its scores."""


@dataclass(frozen=True)
class Correlation:
    """How the scores of selected clients are related to an outcome.

    Attributes:
        outcome: ``loss``, ``accuracy``, ``duration``, or another number that clients reported; ``gain`` is the change of the test
            accuracy in the round, which is compared with the mean score of the selected clients.
        rank_correlation: Spearman's rank correlation, from −1 to 1: its mean over rounds, and for ``gain`` over the whole run.
        rounds: number of rounds with at least three values; for ``gain``, the number of rounds.
        clients: mean number of clients with values in these rounds; None for ``gain``, which is about rounds.
    """

    outcome: str
    rank_correlation: float
    rounds: int
    clients: float | None = None

    @property
    def doubtful(self) -> bool:
        """Whether it covers so few rounds that it can be large by chance."""
        return self.rounds < MANY

    @property
    def coarse(self) -> bool:
        """Whether its rounds have so few clients that each of them has a large correlation, whatever the scores are."""
        return self.clients is not None and round(self.clients) <= FEWEST


@dataclass(frozen=True)
class Diagnosis:
    """What the decisions of a run have in common.

    Attributes:
        label, seed: the row of the run, and its seed.
        rounds: number of rounds played.
        scored_rounds: number of rounds in which the candidates had scores, and not all were selected; the shares below cover them.
        greedy: share of selected clients with a score that a greedy choice (the highest predictions, ties at random) selects as well.
        chance: the same share for uniform selection among the candidates; among the available clients in rounds whose record does
            not have all candidates.
        exploration: share of selected clients with a score that a greedy choice does not select, 1 − greedy.
        new: share of selections, over all rounds, of clients that had not been selected before.
        unscored: share of selections, over all rounds, of clients without a score, such as those that a strategy draws at random; NaN
            if it gives no scores. The shares above and the correlations leave them out.
        correlations: scores compared with outcomes.
        labels: ``classes``, or ``numbers``: the test accuracy is then R², and the accuracy of a client its score.
        prediction: what a greedy choice goes by: the name of the term that is the score without exploration; ``score − exploration``
            or ``score − bonus`` if no single term is; and ``score`` if the record has no exploration apart from the score.
        cut_rounds: number of rounds with scores in which so many clients were selected that the record has none of the others. It is
            not known which of all candidates had the highest predictions there, so the shares above leave these rounds out.
    """

    label: str
    seed: int
    rounds: int
    scored_rounds: int
    greedy: float
    chance: float
    exploration: float
    new: float
    correlations: tuple[Correlation, ...]
    labels: str = "classes"
    prediction: str = SCORE
    unscored: float = math.nan
    cut_rounds: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; unknown values are None."""
        values = {name: plain(value) for name, value in asdict(self).items() if name != "correlations"}
        found = [{name: plain(value) for name, value in asdict(each).items()} for each in self.correlations]
        return values | {"correlations": found}


def diagnose(run: Run) -> Diagnosis:
    """Diagnose the decisions of a run, from its record.

    Only recorded candidates count, which are at most 1,000 in each round: the selected clients with the best scores, and then the
    others with the best scores.

    Raises:
        UsageError: the run has no finished round.
    """
    rounds = run.rounds
    if rounds.empty:
        raise UsageError(without_round(run))
    decisions, clients = run.decisions, run.clients
    scored = decisions[np.isfinite(decisions["score"])]
    prediction, predicted = predictions(decisions)
    cut = _cut(decisions, rounds)
    shares = _agreement(predicted, rounds["available"], cut) if _choose(predicted) else _Agreement([], [], 0)
    greedy, chance = shares.greedy, shares.chance
    meta = run.meta
    share = float(np.mean(greedy)) if greedy else math.nan
    return Diagnosis(
        label=meta["label"],
        seed=int(meta["seed"]),
        rounds=len(rounds),
        scored_rounds=len(greedy),
        greedy=share,
        chance=float(np.mean(chance)) if chance else math.nan,
        exploration=1 - share,
        new=clients["client"].nunique() / len(clients) if len(clients) else math.nan,
        correlations=(*_with_outcomes(scored, clients), *_with_gain(scored, rounds["test_accuracy"])),
        labels=run.labels,
        prediction=prediction,
        unscored=_unscored(decisions, predicted) if greedy else math.nan,
        cut_rounds=shares.cut_rounds,
    )


def _choose(predicted: "pd.DataFrame") -> bool:
    """Whether the predictions of some round differ; if all are equal, they choose between no clients, as with uniform selection."""
    of_rounds = predicted.groupby("round")["prediction"]
    return bool((of_rounds.min() < of_rounds.max()).any())


def _unscored(decisions: "pd.DataFrame", predicted: "pd.DataFrame") -> float:
    """The share of selections of clients that have neither a finite score nor a prediction."""
    selected = decisions[decisions["selected"].astype(bool)]
    known = np.isfinite(selected["score"]) | selected.index.isin(predicted.index)
    return float((~known).mean()) if len(selected) else math.nan


def over_seeds(runs: Sequence[Diagnosis]) -> Diagnosis:
    """The means of the diagnoses of runs that differ only in their seed, over those in which a number is known.

    ``seed`` is that of the first run; ``scored_rounds``, ``cut_rounds`` and the rounds of correlations are summed over the runs.
    """
    by_outcome: dict[str, list[Correlation]] = {}
    for run in runs:
        for each in run.correlations:
            by_outcome.setdefault(each.outcome, []).append(each)
    correlations = [
        Correlation(
            outcome,
            _mean([each.rank_correlation for each in own]),
            sum(each.rounds for each in own),
            _mean_clients(own),
        )
        for outcome, own in by_outcome.items()
    ]
    return replace(
        runs[0],
        scored_rounds=sum(run.scored_rounds for run in runs),
        cut_rounds=sum(run.cut_rounds for run in runs),
        greedy=_mean([run.greedy for run in runs]),
        chance=_mean([run.chance for run in runs]),
        exploration=_mean([run.exploration for run in runs]),
        new=_mean([run.new for run in runs]),
        unscored=_mean([run.unscored for run in runs]),
        correlations=tuple(correlations),
        prediction=", ".join(dict.fromkeys(run.prediction for run in runs)),
    )


def _mean_clients(seeds: Sequence[Correlation]) -> float | None:
    """The mean number of clients of a round, over seeds; None if it is not known."""
    known = [each.clients for each in seeds if each.clients is not None]
    return sum(known) / len(known) if known else None


def _mean(values: Sequence[float]) -> float:
    """The mean of the known values; NaN without any."""
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def predictions(decisions: "pd.DataFrame") -> tuple[str, "pd.DataFrame"]:
    """What the scores of decisions predict without exploration, and its name; see :attr:`Diagnosis.prediction`.

    Returns:
        the name; and round, selected and prediction of the candidates that have one. Candidates that the strategy put last, with a
        score of −∞, are left out. Those that it put first with an infinite bonus are not, if a term holds their prediction.
    """
    score = decisions["score"]
    explored = next((name for name in EXPLORATION if name in decisions and np.isfinite(decisions[name]).any()), None)
    name, values = SCORE, score
    if explored is not None:
        name, values = _without(decisions, explored)
        values = values.where(decisions[explored].notna(), score)  # rounds without terms, such as a random first one
    known = np.isfinite(values) & score.notna() & (score > -math.inf)
    found = decisions.loc[known, ["round", "selected"]].assign(prediction=values[known])
    return name, found


def _without(decisions: "pd.DataFrame", explored: str) -> tuple[str, "pd.Series[Any]"]:
    """The term that makes up the score together with the term ``explored``, or their difference; and its name."""
    finite = decisions[np.isfinite(decisions["score"]) & np.isfinite(decisions[explored])]
    rest = finite["score"] - finite[explored]
    for name in decisions.columns.drop(["round", "client", "selected", "score", explored]):
        if len(finite) and np.allclose(finite[name] + finite[explored], finite["score"], rtol=1e-12, atol=1e-12):
            return str(name), decisions[name]
    return f"{SCORE} − {explored}", rest.reindex(decisions.index)


def greedy_probability(scores: Values, count: int) -> Values:
    """Probability that each client is among the ``count`` highest scores, with ties broken at random [n].

    Args:
        scores: finite scores [n].
        count: number of clients, from 1 to n.
    """
    threshold = np.sort(scores)[-count]
    above, tied = scores > threshold, scores == threshold
    probability: Values = above + tied * ((count - above.sum()) / tied.sum())
    return probability


def _cut(decisions: "pd.DataFrame", rounds: "pd.DataFrame") -> frozenset[int]:
    """The rounds in which clients were left over and the record has as many candidates as it keeps, so that it may lack others."""
    recorded = decisions.groupby("round").size().reindex(rounds.index, fill_value=0)
    found = rounds.index[
        (recorded >= KEPT) & (rounds["available"] > recorded) & (rounds["selected"] < rounds["available"])
    ]
    return frozenset(found.tolist())


class _Agreement(NamedTuple):
    """For each round, the share of selected clients that a greedy choice and uniform selection select as well; and the number of
    rounds for which this is not known, see :attr:`Diagnosis.cut_rounds`."""

    greedy: list[float]
    chance: list[float]
    cut_rounds: int


def _agreement(predicted: "pd.DataFrame", available: "pd.Series[int]", cut: Collection[int]) -> _Agreement:
    """How far selections agree with a greedy choice and with uniform selection.

    Args:
        predicted: see :func:`predictions`.
        available: number of available clients by round.
        cut: rounds whose record does not have all candidates.
    """
    greedy, chance, unknown = [], [], 0
    values, chosen = predicted["prediction"].to_numpy(np.float64), predicted["selected"].to_numpy(bool)
    # a record is in the order of rounds
    rounds, starts = np.unique(predicted["round"].to_numpy(np.int64), return_index=True)
    for t, candidates in zip(rounds.tolist(), map(slice, starts, [*starts[1:], len(values)]), strict=True):
        selected = chosen[candidates]
        count = int(selected.sum())
        unknown += t in cut and count == len(selected)
        if 0 < count < len(selected):
            probability = greedy_probability(values[candidates], count)
            greedy.append(float(probability[selected].mean()))
            chance.append(count / (int(available[t]) if t in cut else len(selected)))
    return _Agreement(greedy, chance, unknown)


def _with_outcomes(scored: "pd.DataFrame", clients: "pd.DataFrame") -> list[Correlation]:
    """Scores of selected clients compared with what they reported, within rounds."""
    chosen = scored.loc[scored["selected"], ["round", "client", "score"]]
    names = [str(name) for name in clients.select_dtypes("number") if name not in NOT_OUTCOMES]
    both = chosen.merge(clients[["round", "client", *names]], on=["round", "client"])
    found = []
    for name in names:
        each = _correlations(both["round"], both["score"], both[name])
        known = each[np.isfinite(each[:, 0])]
        if len(known):
            mean, number = np.mean(known, axis=0).tolist()
            found.append(Correlation(name, mean, len(known), number))
    return found


def _correlations(rounds: "pd.Series[int]", a: "pd.Series[Any]", b: "pd.Series[Any]") -> Values:
    """Spearman's rank correlation of pairs in each round, and the number of values of ``b`` that are no NaN, float64 [rounds, 2].

    Pairs with a NaN are left out. The correlation is NaN for fewer than three pairs, or if one side does not vary.

    Centred ranks are multiples of a half, so that the sums of their products are exact, in whatever order they are added.
    """
    import pandas as pd

    x, y = a.to_numpy(np.float64), b.to_numpy(np.float64)
    of_pair = np.unique(rounds.to_numpy(np.int64), return_inverse=True)[1]
    count = int(of_pair.max(initial=-1)) + 1
    values = np.bincount(of_pair[~np.isnan(y)], minlength=count)
    known = np.isfinite(x) & np.isfinite(y)
    pairs = np.bincount(of_pair[known], minlength=count)
    own = of_pair[known]
    ranks = [pd.Series(side[known]).groupby(own).rank().to_numpy() - (pairs[own] + 1) / 2 for side in (x, y)]
    sums = [np.bincount(own, ranks[i] * ranks[j], minlength=count) for i, j in ((0, 1), (0, 0), (1, 1))]
    covariance, *variances = (each * np.true_divide(1, np.maximum(pairs, 2) - 1) for each in sums)
    varies = (pairs >= FEWEST) & (variances[0] > 0) & (variances[1] > 0)
    deviations = [np.sqrt(np.where(varies, variance, 1.0)) for variance in variances]
    correlation = np.where(varies, np.clip(covariance / deviations[0] / deviations[1], -1, 1), math.nan)
    return np.column_stack([correlation, values])


def _with_gain(scored: "pd.DataFrame", accuracy: "pd.Series[Any]") -> list[Correlation]:
    """The mean score of the selected clients compared with the change of the test accuracy, over rounds."""
    import pandas as pd

    gain = accuracy.astype("float64").diff().rename("gain")
    means = scored.loc[scored["selected"]].groupby("round")["score"].mean()
    both = means.to_frame().join(gain).dropna()
    whole_run = pd.Series(0, index=both.index)
    return [
        Correlation("gain", value, len(both))
        for value in _correlations(whole_run, both["score"], both["gain"])[:, 0].tolist()
        if math.isfinite(value)
    ]
