"""How often a race errs, and how many runs it saves.

1. Errors: rows with equal means race, so that each of them is a best one, and the probability that it is dropped is as high as it can
   be. Scores are made up (Gaussian, and laws that the test does not assume: heavy tails, different spreads, few different values,
   skew, rows that sometimes fail), or those of the atlas, with every strategy shifted to the same mean in each federation. Seeds are
   drawn with replacement, for all strategies together: from those of one federation, or from those of all federations, each with
   differences that are scaled to the same spread. Gaussian scores with the same covariances show how much of the errors is due to laws
   that are not Gaussian.
2. Answers and savings: the strategies race in each federation of the atlas, with seeds drawn in the same way, so that the best one is
   known, and with Gaussian scores of the same means and covariances. Two full grids are compared with them, in which all strategies
   play all seeds: one with as many seeds as the race needed, and one whose number of seeds is chosen beforehand, so that it is decided
   as often as the races are.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedcohort.core.arrays import Values
from fedcohort.core.random_streams import rng
from fedcohort.racing.paired_rows import paired
from fedcohort.racing.rule import FLOOR, RaceRule
from results.atlas.means import Findings
from results.result_file import read
from results.tables import signed, table

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
FAILING, FAILURE = 0.05, 0.2
"""Share of seeds in which some made-up rows fail, and how much lower they are then."""
GRID_SEEDS = range(5, LONGEST + 1, 5)
"""Numbers of seeds that a full grid can have that is planned beforehand."""
CONFIDENCE = 0.95
"""Confidence of the planned grids; that of races by default."""
ROUNDING = 1e-12
"""Differences of accuracies that are due to rounding."""
OBJECTIVES: Mapping[str, str] = {"accuracy": "accuracy", "at_time": "accuracy at half the time"}
"""Objectives of the atlas that race → how they are called."""

Draw = Callable[[np.random.Generator], Values]


def raced(scores: Values, margin: float) -> RaceRule:
    """A race over scores [rows, seeds]."""
    rule = RaceRule(len(scores), [margin])
    while (block := rule.next_block()) and max(seed for _, seed in block) < scores.shape[1]:
        rule.add_block([(row, seed, scores[row, seed : seed + 1].tolist()) for row, seed in block])
    return rule


def errors(name: str, draw: Draw, races: int) -> list[float]:
    """The share of rows that each of some races between equal rows dropped: how often it drops a certain one of the best rows."""
    generator = rng(0, name)
    rules = (raced(draw(generator), MARGINS[0]) for _ in range(races))
    return [len(rule.drops) / rule.num_rows for rule in rules]


def grid_decides(scores: Values, margin: float) -> bool:
    """Whether a full grid of scores [rows, seeds] has its answer: no row is better than the first one by more than the margin.

    Paired t-tests at 5%, corrected for the opponents as in a race (Bonferroni), at a number of seeds that results did not choose.
    """
    from scipy import stats

    rows, seeds = scores.shape
    pairs = paired(scores, np.full(rows, seeds), FLOOR * margin)
    first = int(scores.mean(axis=1).argmax())
    critical = float(stats.t.isf((1 - CONFIDENCE) / (rows - 1), seeds - 1)) / math.sqrt(seeds - 1)
    high = np.delete(pairs.mean[:, first] + critical * pairs.sd[:, first], first)
    return bool((high <= margin).all())


SUMS = (
    "races", "wrong", "best_dropped", "bound_wrong", "low_wrong", "as_good_as_grid", "decided", "bias", "runs", "grid_runs",
)  # fmt: skip
"""What is summed over races, see :func:`savings`."""


def savings(name: str, scores: Values, races: int, margin: float, *, gaussian: bool = False) -> dict[str, Any]:
    """How often the answers of races are wrong, and their runs beside the full grid's.

    Summed over races: ``wrong``, the recommended row is worse than the best by more than the margin; ``best_dropped``;
    ``bound_wrong``, a row is better than the recommended one by more than the race says; ``low_wrong``, the share of lower ends
    that are too high; ``as_good_as_grid``; ``decided``; ``bias``, the mean that is shown for the recommended row minus its true mean;
    ``runs``; ``grid_runs``. ``grids_decided`` has the number of decided full grids for each of :data:`GRID_SEEDS`.

    Args:
        name: names the stream of random numbers.
        scores: scores [rows, seeds] of which seeds are drawn.
        races: number of races.
        margin: difference that does not matter.
        gaussian: draw Gaussian scores with their means and covariances instead.
    """
    generator, means = rng(1, name), scores.mean(axis=1)
    draw = _with_means(means, gaussian_rows(scores, LONGEST)) if gaussian else drawn_seeds(scores)
    found: dict[str, Any] = dict.fromkeys(SUMS, 0.0)
    grids = np.zeros(len(GRID_SEEDS), dtype=np.int64)
    for _ in range(races):
        drawn = draw(generator)
        grids += [grid_decides(drawn[:, :seeds], margin) for seeds in GRID_SEEDS]
        rule = raced(drawn, margin)
        leader, depth = rule.leader, int(rule.counts.max())
        grid = int(drawn[:, :depth].mean(axis=1).argmax())
        others = {row: rule.difference(row, leader) for row in range(len(scores)) if row != leader}
        bound = max([0.0, *(high for row, (_, _, high) in others.items() if row not in rule.drops)])
        true = means - means[leader]
        found["races"] += 1
        found["bound_wrong"] += bool(true.max() > bound + ROUNDING)
        found["low_wrong"] += float(np.mean([low > true[row] + ROUNDING for row, (_, low, _) in others.items()]))
        found["bias"] += float(drawn[leader, :depth].mean() - means[leader])
        found["wrong"] += bool(means[rule.leader] < means.max() - margin)
        found["best_dropped"] += int(means.argmax()) in rule.drops
        found["as_good_as_grid"] += bool(means[rule.leader] >= means[grid] - margin)
        found["decided"] += rule.decided
        found["runs"] += int(rule.counts.sum())
        found["grid_runs"] += len(scores) * depth
    return found | {"grids_decided": grids.tolist()}


def made_up() -> Iterator[tuple[str, Draw]]:
    """Laws of made-up scores of equal rows."""
    spreads = np.geomspace(0.1, 10, ROWS)[:, None]
    signs = (-1.0) ** np.arange(ROWS)[:, None]
    yield "Gaussian", lambda g: SPREAD * g.normal(size=(ROWS, HORIZON))
    yield "Student's t, 3 degrees of freedom", lambda g: SPREAD * g.standard_t(3, size=(ROWS, HORIZON))
    yield "Gaussian, spreads from 1 to 100", lambda g: SPREAD * spreads * g.normal(size=(ROWS, HORIZON))
    yield "Gaussian, pairs of rows with correlation 0.99", _in_pairs
    yield (
        "two values, half a point apart",
        lambda g: MARGINS[0] * g.integers(0, 2, size=(ROWS, HORIZON)).astype(np.float64),
    )
    yield "exponential, half of the rows mirrored", lambda g: SPREAD * signs * (g.exponential(size=(ROWS, HORIZON)) - 1)
    yield "half of the rows fail in one seed of 20", _with_failures


def _in_pairs(g: np.random.Generator) -> Values:
    """Gaussian scores, of which those of two neighbouring rows are nearly the same."""
    shared = np.repeat(g.normal(size=(ROWS // 2, HORIZON)), 2, axis=0)
    return SPREAD * (math.sqrt(0.99) * shared + math.sqrt(0.01) * g.normal(size=(ROWS, HORIZON)))


def _with_failures(g: np.random.Generator) -> Values:
    """Gaussian scores; every other row is 20 points lower in one seed of 20, and a point higher in all, so that means are equal."""
    risky = (np.arange(ROWS) % 2 == 0)[:, None]
    fails, shift = (g.random(size=(ROWS, HORIZON)) < FAILING) & risky, FAILURE * FAILING * risky
    found: Values = SPREAD * g.normal(size=(ROWS, HORIZON)) / 3 + shift - FAILURE * fails
    return found


def equal_rows(*federations: Values) -> Draw:
    """Draw seeds of the scores [rows, seeds] of federations, all rows shifted to the same mean.

    With several federations, the differences of each are scaled to the same spread.
    """
    shifted = [scores - scores.mean(axis=1, keepdims=True) for scores in federations]
    if len(shifted) > 1:
        shifted = [SPREAD * scores / scores.std() for scores in shifted]
    equal = np.concatenate(shifted, axis=1)
    return lambda g: equal[:, g.integers(0, equal.shape[1], HORIZON)]


def drawn_seeds(scores: Values) -> Draw:
    """Draw the most seeds of scores [rows, seeds], with replacement."""
    return lambda g: scores[:, g.integers(0, scores.shape[1], LONGEST)]


def _with_means(means: Values, draw: Draw) -> Draw:
    """Add means [rows] to what is drawn."""
    return lambda g: means[:, None] + draw(g)


def gaussian_rows(scores: Values, seeds: int = HORIZON) -> Draw:
    """Draw Gaussian scores of mean 0, [rows, ``seeds``], with the covariance between rows of scores [rows, seeds]."""
    number = scores.shape[1]
    root = (scores - scores.mean(axis=1, keepdims=True)) / math.sqrt(number - 1)
    return lambda g: root @ g.normal(size=(number, seeds))


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
            found["errors"].append(_counted(name, errors(name, draw, RACES)))
        for measure, words in OBJECTIVES.items():
            scores = {f: _scores(atlas, f, measure) for f in atlas.federations}
            races = FEDERATION_RACES["errors"]
            one = [share for f, rows in scores.items() for share in errors(f"{measure} {f}", equal_rows(rows), races)]
            gauss = [
                share
                for f, rows in scores.items()
                for share in errors(f"{measure} {f} Gaussian", gaussian_rows(rows), races)
            ]
            found["errors"] += [
                _counted(f"atlas, {words}, one federation", one),
                _counted(f"Gaussian with the covariances of the atlas, {words}", gauss),
                _counted(f"atlas, {words}, all federations", errors(measure, equal_rows(*scores.values()), RACES)),
            ]
            for margin, gaussian in ((MARGINS[0], False), (MARGINS[1], False), (MARGINS[0], True)):
                rows = {
                    f: savings(f"{measure} {f}", values, FEDERATION_RACES["savings"], margin, gaussian=gaussian)
                    for f, values in scores.items()
                }
                kind = words + ", Gaussian" * gaussian
                found["savings"].append(
                    {"scores": kind, "margin": margin, "rows": len(atlas.strategies), "federations": rows}
                )
        return found


def _counted(scores: str, shares: list[float]) -> dict[str, Any]:
    """A row of the errors: the races, the mean share of dropped rows and its standard error, and the races that dropped any."""
    return {
        "scores": scores,
        "races": len(shares),
        "dropped": float(np.mean(shares)),
        "dropped_se": float(np.std(shares) / math.sqrt(len(shares))),
        "any": sum(share > 0 for share in shares),
    }


def _scores(atlas: Findings, federation: str, measure: str) -> Values:
    """A measure of all strategies in a federation [strategies, seeds]; unknown accuracies count as 0."""
    return np.array([np.nan_to_num(atlas.values(federation, name, measure)) for name in atlas.strategies])


# --- as text -------------------------------------------------------------------------------------------------------------------


def race_tables(result: Mapping[str, Any]) -> str:
    """The measured errors of races, and the runs that they save."""
    rows = []
    for row in result["errors"]:
        shares = (f"{100 * value:.1f}%" for value in (row["dropped"], row["dropped_se"], row["any"] / row["races"]))
        rows.append([row["scores"], f"{row['races']:,}", *shares])
    seeds = sorted(result["seeds"].values())
    about_errors = (
        f"Rows with equal means race, {ROWS} made-up rows or all strategies of the atlas, with at most {HORIZON} seeds. Each row is a "
        "best one, and an error if it is dropped:"
    )
    about_savings = (
        f"The strategies of the atlas race in each of its {len(seeds)} federations, with at most {LONGEST} seeds that are drawn with "
        f"replacement from those that were played ({_range(seeds)}); *Gaussian*: scores with the same means and covariances are drawn "
        "instead. Shares are those of races:"
    )
    about_runs = (
        "The same races, with their runs, beside two full grids in which all strategies play all seeds. The first has as many seeds "
        "as the race, and its answer is the highest mean; *times fewer* is the ratio of all runs, with the range over federations. "
        "The second is planned: its number of seeds is the smallest, of 5, 10, 15 and so on, with which it is decided as often as the "
        "races are, by paired t-tests with the same confidence:"
    )
    heads = ["scores", "races", "a best row is dropped", "standard error", "races that drop a row"]
    answers = table(list(ANSWER_HEADS), [_answer_cells(row) for row in result["savings"]])
    runs = table(list(RUN_HEADS), [_run_cells(row) for row in result["savings"]])
    return "\n\n".join([about_errors, table(heads, rows), about_savings, answers, about_runs, runs])


ANSWER_HEADS = (
    "objective", "margin, points", "races", "recommended is worse than the best by more than the margin", "best dropped",
    "best exceeds the bound", "lower ends that are too high", "reported mean too high by, points",
)  # fmt: skip
RUN_HEADS = (
    "objective", "margin, points", "decided", "as good as the grid", "runs", "grid of as many seeds", "times fewer",
    "seeds of the planned grid", "its runs", "times fewer",
)  # fmt: skip


def _totals(row: Mapping[str, Any]) -> dict[str, float]:
    """The sums over all federations."""
    found = row["federations"].values()
    return {key: sum(one[key] for one in found) for key in SUMS}


def _answer_cells(row: Mapping[str, Any]) -> list[str]:
    total = _totals(row)
    races = total["races"]
    shares = (f"{100 * total[key] / races:.1f}%" for key in ("wrong", "best_dropped", "bound_wrong", "low_wrong"))
    return [
        row["scores"],
        f"{100 * row['margin']:.1f}",
        f"{races:,.0f}",
        *shares,
        signed(100 * total["bias"] / races, 2),
    ]


def _run_cells(row: Mapping[str, Any]) -> list[str]:
    total = _totals(row)
    races = total["races"]
    ratios = sorted(one["grid_runs"] / one["runs"] for one in row["federations"].values())
    shares = (f"{100 * total[key] / races:.1f}%" for key in ("decided", "as_good_as_grid"))
    return [
        row["scores"], f"{100 * row['margin']:.1f}", *shares, f"{total['runs'] / races:,.0f}", f"{total['grid_runs'] / races:,.0f}",
        f"{total['grid_runs'] / total['runs']:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})", *_planned_cells(row, total),
    ]  # fmt: skip


def _planned_cells(row: Mapping[str, Any], total: Mapping[str, float]) -> list[str]:
    """Seeds and runs of the smallest planned grid that is decided as often as the races, and how many times fewer runs these need."""
    decided = np.sum([one["grids_decided"] for one in row["federations"].values()], axis=0)
    enough = [seeds for seeds, count in zip(GRID_SEEDS, decided, strict=True) if count >= total["decided"]]
    seeds, more = (enough[0], "") if enough else (LONGEST, "> ")
    runs = row["rows"] * seeds
    return [f"{more}{seeds}", f"{more}{runs:,}", f"{more}{runs * total['races'] / total['runs']:.1f}"]


def _range(numbers: list[int]) -> str:
    """Sorted numbers as a range: ``11`` or ``11 to 12``."""
    return f"{numbers[0]}" if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"
