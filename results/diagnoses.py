"""Whether the score of each strategy that learns predicts what it claims to predict: all of them on one federation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import rankdata

import fedcohort
from fedcohort import Run, measures
from fedcohort.study.decisions.diagnose_run import diagnose, over_seeds
from results.result_file import ROOT
from results.tables import signed, table

__all__ = ["BINS", "CLAIMS", "Claim", "Diagnoses", "diagnosis_table", "outcomes", "ranks_within"]

BINS = 4
"""Parts of the range of scores in the figure."""

FEWEST = 3
"""Smallest number of clients of a rank correlation."""


@dataclass(frozen=True)
class Claim:
    """What a high score promises.

    Attributes:
        words: the promise.
        outcome: ``loss`` or ``duration`` that a selected client reports; ``reward``, the reward that the bandit gets for it; ``gain``,
            the gain in test accuracy of the round.
        sign: 1 if a high score promises a high outcome, −1 for a low one.
        later: number of rounds after which the reward stands among the terms of the decision.
    """

    words: str
    outcome: str
    sign: int = 1
    later: int = 0


GAIN = Claim("more gain in accuracy in this round", "gain")
USEFUL = Claim("a higher loss", "loss")
FAST = Claim("a shorter time", "duration", -1)
REWARD = Claim("a larger change of its loss per second", "reward", later=2)
FLASH_REWARD = Claim(REWARD.words, "reward", later=3)
CLAIMS: Mapping[str, Sequence[Claim]] = {
    "UCB": (GAIN,), "UCB, c = 0.1": (GAIN,), "UCB, c = 0.01": (GAIN,), "Oort": (USEFUL, FAST), "PyramidFL": (USEFUL, FAST),
    "active FL": (USEFUL,), "CS-UCB": (FAST,), "FLASH": (FLASH_REWARD,), "FLASH, as printed": (FLASH_REWARD,),
    "FLASH, LinUCB": (FLASH_REWARD,), "restless bandit": (REWARD,), "neural bandit": (REWARD,), "FedCor": (GAIN,), "GPFL": (GAIN,),
}  # fmt: skip
"""Label of each strategy that learns → what its score claims to predict."""


@dataclass(frozen=True)
class Diagnoses:
    """The scores of every strategy that learns, compared with what happened."""

    quick: bool = False
    minutes: float = 5
    experiments: ClassVar[list[str]] = [
        "experiments/studies/diagnoses.toml", "results/diagnoses.py", "src/fedcohort/study/decisions/diagnose_run.py",
    ]  # fmt: skip

    def make(self, runs: Path) -> dict[str, Any]:
        """For each strategy, its choices and its claims: values of every seed."""
        comparison = fedcohort.compare(fedcohort.load_experiment(ROOT / self.experiments[0]), runs=runs)
        return {
            row.label: measured(list(row.runs.values()), CLAIMS[row.label])
            for row in comparison.rows
            if row.label in CLAIMS
        }


def measured(runs: Sequence[Run], claims: Sequence[Claim]) -> dict[str, Any]:
    """Agreement with a greedy choice by the prediction, and with chance, first selections, and each claim."""
    each = [diagnose(run) for run in runs]
    found: dict[str, Any] = {
        name: [getattr(one, name) for one in each] for name in ("greedy", "chance", "exploration", "new")
    }
    found["prediction"] = over_seeds(each).prediction
    found["claims"] = [kept(runs, claim) for claim in claims]
    return found


def kept(runs: Sequence[Run], claim: Claim) -> dict[str, Any]:
    """The rank correlation of every run, and the mean rank of the outcome in each part of the range of scores."""
    both = [ranks_within(outcomes(run, claim)) for run in runs]
    correlations = [correlation(one) for one in both]
    every = pd.concat(both)
    part = np.minimum((every["score"] * BINS).astype(int), BINS - 1)
    means = every["value"].groupby(part).mean().reindex(range(BINS))
    return {
        "words": claim.words, "sign": claim.sign, "correlations": correlations, "pairs": len(every),
        "mean_ranks": [None if np.isnan(mean) else float(mean) for mean in means],
    }  # fmt: skip


def outcomes(run: Run, claim: Claim) -> pd.DataFrame:
    """Scores of selected clients and what happened: columns group, score and value. Only pairs of one group are compared.

    A gain belongs to a whole round. Scores and gains both fall during a run; so of both, the mean of the rounds before and after is
    subtracted.
    """
    scored = run.decisions[lambda rows: rows["selected"] & np.isfinite(rows["score"])]
    if claim.outcome == "gain":
        means = scored.groupby("round")["score"].mean()
        both = pd.DataFrame({"score": means, "value": run.rounds["test_accuracy"].astype("float64").diff()}).dropna()
        around = (both.shift(1) + both.shift(-1)) / 2
        deviations: pd.DataFrame = (both - around).dropna()
        deviations["group"] = 0
        return deviations
    if claim.outcome == "reward":
        later = run.decisions[["round", "client", "x_reward"]].rename(columns={"x_reward": "value"})
        later = later.assign(round=later["round"] - claim.later)
    else:
        later = run.clients[["round", "client", claim.outcome]].rename(columns={claim.outcome: "value"})
    pairs: pd.DataFrame = scored[["round", "client", "score"]].merge(later, on=["round", "client"]).dropna()
    pairs = pairs.rename(columns={"round": "group"})
    return pairs[["group", "score", "value"]]


def ranks_within(pairs: pd.DataFrame) -> pd.DataFrame:
    """Scores and values as ranks from 0 to 1 within their group; groups with fewer than three pairs or one value are left out."""
    parts = [part for _, part in pairs.groupby("group") if len(part) >= FEWEST and part["score"].nunique() > 1]
    ranked = [
        part.assign(**{name: (rankdata(part[name]) - 0.5) / len(part) for name in ("score", "value")})
        for part in parts
        if part["value"].nunique() > 1
    ]
    return pd.concat(ranked) if ranked else pairs.iloc[:0]


def correlation(ranked: pd.DataFrame) -> float | None:
    """Spearman's rank correlation within groups, its mean over the groups; None without any."""
    each = [float(np.corrcoef(part["score"], part["value"])[0, 1]) for _, part in ranked.groupby("group")]
    return float(np.mean(each)) if each else None


# --- as text -------------------------------------------------------------------------------------------------------------------


def diagnosis_table(result: Mapping[str, Any]) -> str:
    """Every strategy with its claims, whether they hold, and how it chooses."""
    rows = []
    for label, found in result.items():
        shares = [f"{100 * np.nanmean(np.array(found[name], float)):.0f}%" for name in ("greedy", "chance", "new")]
        for i, claim in enumerate(found["claims"]):
            known = [value for value in claim["correlations"] if value is not None]
            cells = [label, f"`{found['prediction']}`", *shares] if i == 0 else [""] * 5
            rows.append([cells[0], claim["words"], _interval(known), holds(known, claim["sign"]), *cells[1:]])
    heads = [
        "strategy",
        "a high score promises",
        "rank correlation [95%]",
        "holds",
        "prediction",
        "greedy",
        "by chance",
        "first time",
    ]
    return table(heads, rows)


def _interval(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "–"
    mean, low, high = _mean_interval(values)
    return f"{signed(mean, 2)} [{signed(low, 2)}, {signed(high, 2)}]"


def holds(values: Sequence[float], sign: int) -> str:
    """Whether the interval of the mean correlation over seeds is on the promised side of 0."""
    if len(values) < 2:
        return "no scores to compare"
    _, low, high = (sign * value for value in _mean_interval(values))
    if min(low, high) > 0:
        return "yes"
    return "no, the opposite" if max(low, high) < 0 else "not clear"


def _mean_interval(values: Sequence[float]) -> measures.PairedInterval:
    return measures.paired_interval(values, np.zeros(len(values)), limits=(-1.0, 1.0))
