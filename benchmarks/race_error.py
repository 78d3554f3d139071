"""How often a race errs, and how many runs it saves; the results go to results/race.json.

    python benchmarks/race_error.py                    # plays 38 rows × 20 seeds first, unless their runs exist; about 20 minutes
    python benchmarks/race_error.py --no-runs          # made-up scores only; about 3 minutes

1. Errors: rows with equal means race. Every row that is dropped is an error. Scores are made up (Gaussian, Student's t with 3 degrees
   of freedom, rows with very different spreads), or those of real runs: each row is shifted to the same mean, and seeds are drawn with
   replacement, for all rows together.
2. Savings: the rows of real runs race, with seeds drawn in the same way, so that the best row is known. The full grid has all rows
   with as many seeds as the race needed.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fedcohort
from fedcohort.core.processor import processor
from fedcohort.core.random_streams import rng
from fedcohort.racing.objectives import objectives
from fedcohort.racing.rule import RaceRule

ROOT = Path(__file__).parents[1]
EXPERIMENT = ROOT / "experiments" / "all_strategies_digits.toml"
OBJECTIVES = ("accuracy", "accuracy@time=30000", "time@accuracy=0.8")
ROWS, HORIZON, LONGEST = 37, 40, 100

Draw = Callable[[np.random.Generator], "np.ndarray[Any, Any]"]


def raced(scores: "np.ndarray[Any, Any]", margin: float) -> RaceRule:
    """A race over scores [rows, seeds]."""
    rule = RaceRule(len(scores), [margin])
    while (block := rule.next_block()) and max(seed for _, seed in block) < scores.shape[1]:
        rule.add_block([(row, seed, scores[row, seed : seed + 1].tolist()) for row, seed in block])
    return rule


def errors(name: str, draw: Draw, races: int, margin: float = 0.005) -> dict[str, Any]:
    """The share of races between equal rows in which a row was dropped."""
    generator, begin, wrong = rng(0, name), time.perf_counter(), 0
    for _ in range(races):
        wrong += bool(raced(draw(generator), margin).drops)
    share = wrong / races
    return {
        "scores": name, "races": races, "wrong": wrong, "share": share, "standard_error": (share * (1 - share) / races) ** 0.5,
        "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def savings(name: str, scores: "np.ndarray[Any, Any]", races: int, margin: float) -> dict[str, Any]:
    """How often races recommend a row that is worse than the best by more than the margin, and their runs beside the full grid's."""
    generator, begin = rng(1, name), time.perf_counter()
    means = scores.mean(axis=1)
    wrong = dropped = same = decided = 0
    runs, grids, grids_longest = [], [], []
    for _ in range(races):
        drawn = scores[:, generator.integers(0, scores.shape[1], LONGEST)]
        rule = raced(drawn, margin)
        depth = int(rule.counts.max())
        wrong += bool(means[rule.leader] < means.max() - margin)
        dropped += int(means.argmax()) in rule.drops
        same += bool(means[rule.leader] >= means[drawn[:, :depth].mean(axis=1).argmax()] - margin)
        decided += rule.decided
        runs.append(int(rule.counts.sum()))
        grids.append(len(scores) * depth)
        grids_longest.append(len(scores) * LONGEST)
    return {
        "scores": name, "margin": margin, "rows": len(scores), "races": races, "wrong": wrong, "best_dropped": dropped,
        "as_good_as_grid": same, "decided": decided, "runs": float(np.mean(runs)), "grid_runs": float(np.mean(grids)),
        "times_fewer": float(np.mean(grids) / np.mean(runs)),
        "times_fewer_than_longest": float(np.mean(grids_longest) / np.mean(runs)),
        "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def made_up() -> Iterator[tuple[str, Draw]]:
    """Laws of made-up scores of equal rows."""
    spreads = np.geomspace(0.1, 10, ROWS)[:, None]
    yield "Gaussian", lambda g: 0.03 * g.normal(size=(ROWS, HORIZON))
    yield "Student's t, 3 degrees of freedom", lambda g: 0.03 * g.standard_t(3, size=(ROWS, HORIZON))
    yield "Gaussian, spreads from 1 to 100", lambda g: 0.03 * spreads * g.normal(size=(ROWS, HORIZON))


def real(seeds: int, runs: Path) -> dict[str, tuple["np.ndarray[Any, Any]", float]]:
    """The scores [rows, seeds] of real runs by objective, and the margin of each objective."""
    experiment = fedcohort.load_experiment(EXPERIMENT).with_overrides({"seeds": seeds})
    compared = fedcohort.compare(experiment, runs=runs)
    found = {}
    for objective in objectives_of(OBJECTIVES):
        scores = [[objective.score(run) for run in row.runs.values()] for row in compared.rows]
        found[objective.text] = (np.array(scores), objective.score_margin)
    return found


def objectives_of(texts: tuple[str, ...]) -> list[Any]:
    """Objectives, of which there may be more than two."""
    return [objectives(text)[0] for text in texts]


def bootstrap(scores: "np.ndarray[Any, Any]") -> Draw:
    """Draw seeds of real scores, all rows shifted to the same mean; one row is left out so that there are as many as made-up ones."""
    equal = (scores - scores.mean(axis=1, keepdims=True))[:ROWS]
    return lambda g: equal[:, g.integers(0, equal.shape[1], HORIZON)]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="How often a race errs, and how many runs it saves.")
    parser.add_argument("--races", type=int, default=1000, help="races between equal rows for each law")
    parser.add_argument("--saving-races", type=int, default=200, help="races between the rows of real runs")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of the real runs")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the real runs")
    parser.add_argument("--no-runs", action="store_true", help="made-up scores only")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "race.json")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "processor": processor(), "fedcohort": fedcohort.__version__, "numpy": np.__version__,
        "rows": ROWS,
        "seeds": HORIZON, "longest": LONGEST, "real_seeds": arguments.seeds, "confidence": 0.95, "errors": [], "savings": [],
    }  # fmt: skip

    def keep(kind: str, result: dict[str, Any]) -> None:
        results[kind].append(result)
        print(json.dumps(result), flush=True)
        arguments.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")

    scores = {} if arguments.no_runs else real(arguments.seeds, arguments.runs)
    for name, draw in made_up():
        keep("errors", errors(name, draw, arguments.races))
    for text, (values, margin) in scores.items():
        keep("savings", savings(text, values, arguments.saving_races, margin))
        keep("savings", savings(text, values, arguments.saving_races, 4 * margin))
        keep("errors", errors(f"real runs, {text}", bootstrap(values), arguments.races, margin))


if __name__ == "__main__":
    main()
