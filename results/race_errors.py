"""How often a race errs, and how many runs it saves.

1. Errors: rows with equal means race. Every row that is dropped is an error. Scores are made up (Gaussian, Student's t with 3
   degrees of freedom, rows with very different spreads), or those of the atlas, with every strategy shifted to the same mean in each
   federation. Seeds are drawn with replacement, for all strategies together: from those of one federation, or from those of all
   federations, each with differences that are scaled to the same spread. Gaussian scores with the same covariances show how much of
   the errors is due to laws that are not Gaussian.
2. Savings: the strategies race in each federation of the atlas, with seeds drawn in the same way, so that the best one is known. The
   full grid has all strategies with as many seeds as the race needed.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.random_streams import rng
from fedcohort.racing.rule import RaceRule
from results.atlas.means import Findings
from results.result_file import read
from results.tables import table

__all__ = ["RaceErrors", "race_tables"]

ROWS = 38
"""Rows of made-up scores: as many as there are strategies."""
HORIZON = 40
"""Most seeds of a race between equal rows."""
LONGEST = 100
"""Most seeds of a race between strategies."""
RACES = 1000
"""Races for each law of made-up scores, and of all federations together."""
FEDERATION_RACES = {"errors": 100, "savings": 40}
"""Races for each federation and objective of the atlas."""
SPREAD = 0.03
"""Standard deviation of made-up scores."""
MARGINS = (0.005, 0.02)
"""Differences of accuracy that do not matter; the first one is the default of races."""
OBJECTIVES: Mapping[str, str] = {"accuracy": "accuracy", "at_time": "accuracy at half the time"}
"""Objectives of the atlas that race → how they are called."""

Draw = Callable[[np.random.Generator], Values]


def raced(scores: Values, margin: float) -> RaceRule:
    """A race over scores [rows, seeds]."""
    rule = RaceRule(len(scores), [margin])
    while (block := rule.next_block()) and max(seed for _, seed in block) < scores.shape[1]:
        rule.add_block([(row, seed, scores[row, seed : seed + 1].tolist()) for row, seed in block])
    return rule


def errors(name: str, draw: Draw, races: int) -> int:
    """The number of races between equal rows in which a row was dropped."""
    generator = rng(0, name)
    return sum(bool(raced(draw(generator), MARGINS[0]).drops) for _ in range(races))


def savings(name: str, scores: Values, races: int, margin: float) -> dict[str, float]:
    """How often races recommend a row that is worse than the best by more than the margin, and their runs beside the full grid's.

    Args:
        name: names the stream of random numbers.
        scores: scores [rows, seeds] of which seeds are drawn.
        races: number of races.
        margin: difference that does not matter.
    """
    generator, means = rng(1, name), scores.mean(axis=1)
    found = dict.fromkeys(("races", "wrong", "best_dropped", "as_good_as_grid", "decided", "runs", "grid_runs"), 0.0)
    for _ in range(races):
        drawn = scores[:, generator.integers(0, scores.shape[1], LONGEST)]
        rule = raced(drawn, margin)
        depth = int(rule.counts.max())
        grid = int(drawn[:, :depth].mean(axis=1).argmax())
        found["races"] += 1
        found["wrong"] += bool(means[rule.leader] < means.max() - margin)
        found["best_dropped"] += int(means.argmax()) in rule.drops
        found["as_good_as_grid"] += bool(means[rule.leader] >= means[grid] - margin)
        found["decided"] += rule.decided
        found["runs"] += int(rule.counts.sum())
        found["grid_runs"] += len(scores) * depth
    return found


def made_up() -> Iterator[tuple[str, Draw]]:
    """Laws of made-up scores of equal rows."""
    spreads = np.geomspace(0.1, 10, ROWS)[:, None]
    yield "Gaussian", lambda g: SPREAD * g.normal(size=(ROWS, HORIZON))
    yield "Student's t, 3 degrees of freedom", lambda g: SPREAD * g.standard_t(3, size=(ROWS, HORIZON))
    yield "Gaussian, spreads from 1 to 100", lambda g: SPREAD * spreads * g.normal(size=(ROWS, HORIZON))


def equal_rows(*federations: Values) -> Draw:
    """Draw seeds of the scores [rows, seeds] of federations, all rows shifted to the same mean.

    With several federations, the differences of each are scaled to the same spread.
    """
    shifted = [scores - scores.mean(axis=1, keepdims=True) for scores in federations]
    if len(shifted) > 1:
        shifted = [SPREAD * scores / scores.std() for scores in shifted]
    equal = np.concatenate(shifted, axis=1)
    return lambda g: equal[:, g.integers(0, equal.shape[1], HORIZON)]


def gaussian_rows(scores: Values) -> Draw:
    """Draw Gaussian scores of mean 0 with the covariance between rows of scores [rows, seeds]."""
    number = scores.shape[1]
    root = (scores - scores.mean(axis=1, keepdims=True)) / math.sqrt(number - 1)
    return lambda g: root @ g.normal(size=(number, HORIZON))


@dataclass(frozen=True)
class RaceErrors:
    """The errors and the savings of races, on made-up scores and on those of the atlas."""

    quick: bool = False
    minutes: float = 15
    experiments: ClassVar[list[str]] = [
        "results/race_errors.py", "results/atlas.json", "src/fedcohort/racing/rule.py", "src/fedcohort/racing/paired_rows.py",
        "src/fedcohort/racing/sequential_test.py",
    ]  # fmt: skip

    def make(self, runs: Path) -> dict[str, Any]:  # noqa: ARG002
        """Errors by law of scores, and savings by objective, margin and federation."""
        atlas = Findings(read("atlas")["result"])
        found: dict[str, Any] = {"errors": [], "savings": [], "seeds": {f: atlas.seeds(f) for f in atlas.federations}}
        for name, draw in made_up():
            found["errors"].append({"scores": name, "races": RACES, "wrong": errors(name, draw, RACES)})
        for measure, words in OBJECTIVES.items():
            scores = {f: _scores(atlas, f, measure) for f in atlas.federations}
            races = FEDERATION_RACES["errors"]
            wrong = sum(errors(f"{measure} {f}", equal_rows(values), races) for f, values in scores.items())
            found["errors"].append(
                {"scores": f"atlas, {words}, one federation", "races": races * len(scores), "wrong": wrong}
            )
            wrong = sum(errors(f"{measure} {f} Gaussian", gaussian_rows(values), races) for f, values in scores.items())
            found["errors"].append(
                {
                    "scores": f"Gaussian with the covariances of the atlas, {words}",
                    "races": races * len(scores),
                    "wrong": wrong,
                }
            )
            wrong = errors(measure, equal_rows(*scores.values()), RACES)
            found["errors"].append({"scores": f"atlas, {words}, all federations", "races": RACES, "wrong": wrong})
            for margin in MARGINS:
                rows = {
                    f: savings(f"{measure} {f}", values, FEDERATION_RACES["savings"], margin)
                    for f, values in scores.items()
                }
                found["savings"].append({"scores": words, "margin": margin, "federations": rows})
        return found


def _scores(atlas: Findings, federation: str, measure: str) -> Values:
    """A measure of all strategies in a federation [strategies, seeds]; unknown accuracies count as 0."""
    return np.array([np.nan_to_num(atlas.values(federation, name, measure)) for name in atlas.strategies])


# --- as text -------------------------------------------------------------------------------------------------------------------


def race_tables(result: Mapping[str, Any]) -> str:
    """The measured errors of races, and the runs that they save."""
    rows = []
    for row in result["errors"]:
        share = row["wrong"] / row["races"]
        error = (share * (1 - share) / row["races"]) ** 0.5
        rows.append([row["scores"], f"{row['races']:,}", f"{100 * share:.1f}%", f"{100 * error:.1f}%"])
    seeds = sorted(result["seeds"].values())
    about_errors = (
        f"Rows with equal means race, {ROWS} made-up rows or all strategies of the atlas, with at most {HORIZON} seeds. Every dropped "
        "row is an error:"
    )
    about_savings = (
        f"The strategies of the atlas race in each of its {len(seeds)} federations, with at most {LONGEST} seeds that are drawn with "
        f"replacement from those that were played ({seeds[0]} to {seeds[-1]}). *Wrong*: the recommended strategy is worse than the "
        "best by more than the margin. *As good as the grid*: it is not worse than the best strategy of the full grid by more than "
        "the margin. The full grid has all strategies with as many seeds as the race. *Times fewer* is the mean over all races, with "
        "the range over federations:"
    )
    heads = ["scores", "races", "with an error", "standard error"]
    savings_table = table(list(SAVING_HEADS), [_saving_cells(row) for row in result["savings"]])
    return "\n\n".join([about_errors, table(heads, rows), about_savings, savings_table])


SAVING_HEADS = (
    "objective", "margin, points", "races", "wrong", "best dropped", "as good as the grid", "decided", "runs", "full grid",
    "times fewer",
)  # fmt: skip


def _saving_cells(row: Mapping[str, Any]) -> list[str]:
    found = row["federations"].values()
    total = {key: sum(one[key] for one in found) for key in next(iter(found))}
    races = total["races"]
    ratios = sorted(one["grid_runs"] / one["runs"] for one in found)
    shares = (f"{100 * total[key] / races:.1f}%" for key in ("wrong", "best_dropped", "as_good_as_grid", "decided"))
    return [
        row["scores"], f"{100 * row['margin']:.1f}", f"{races:,.0f}", *shares, f"{total['runs'] / races:,.0f}",
        f"{total['grid_runs'] / races:,.0f}", f"{total['grid_runs'] / total['runs']:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})",
    ]  # fmt: skip
