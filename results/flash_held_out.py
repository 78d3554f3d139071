"""`flash` with its default parameters beside uniform selection and Oort, on the federations of the atlas under seeds of their own.

The defaults were chosen on planted federations and on three others (:mod:`results.flash_study`), so no federation here had a part in
it. The seeds follow those of the atlas, so that nothing that the atlas showed is used again. All federations and both budgets are
reported, and were fixed before anything was played.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedcohort import measures
from fedcohort.study.verdicts import BETTER, LEVEL, WORSE
from results.atlas.federations import FILE, WEIGHTS_FILE, Federation, federations, most_seeds, strategies
from results.atlas.play import play
from results.atlas.tables import MARKS
from results.tables import signed, table

__all__ = ["DIGITS", "FlashHeldOut", "flash_held_out", "played"]

DIGITS = 6
"""Digits of the accuracies that are kept."""
SEEDS = 12
"""Number of seeds, after those of the atlas."""
BUDGETS: Mapping[str, str] = {"accuracy": "equal rounds", "at_time": "equal simulated time"}
PAIRS: Sequence[tuple[str, str, str]] = (
    ("flash", "uniform", "accuracy"),
    ("flash", "uniform", "at_time"),
    ("flash", "oort", "at_time"),
)
"""Compared strategies, and the measure."""


@dataclass(frozen=True)
class FlashHeldOut:
    """Accuracies of `flash`, uniform selection and Oort on every federation of the atlas, at two budgets."""

    quick: bool = False
    minutes: float = 4
    experiments: ClassVar[list[str]] = [
        FILE, WEIGHTS_FILE, "results/atlas/federations.py", "results/atlas/play.py", "results/flash_held_out.py",
        "src/fedcohort/study/run_measures.py", "src/fedcohort/racing/objectives.py",
    ]  # fmt: skip

    def make(self, runs: Path) -> dict[str, Any]:  # noqa: ARG002
        """Federation → strategy → measure → values by seed."""
        import torch

        torch.set_num_threads(1)
        found = {}
        for place in federations():
            seeds = [played(place, seed) for seed in range(most_seeds(), most_seeds() + SEEDS)]
            found[place.name] = {
                name: {measure: [round(seed[name][measure], DIGITS) for seed in seeds] for measure in BUDGETS}
                for name in seeds[0]
            }
        return found


def played(place: Federation, seed: int) -> dict[str, Mapping[str, float]]:
    """What each strategy reaches under one seed; uniform selection comes first and sets the limits."""
    weights, found = strategies(), {}
    limits: tuple[float, float] | None = None
    for name in ("uniform", "flash", "oort"):
        found[name] = play(place, name, weights[name], seed, limits).values
        limits = (found["uniform"]["time"] / 2, found["uniform"]["bytes"] / 2)
    return found


def flash_held_out(result: Mapping[str, Any]) -> str:
    """The differences in each federation and over all of them, and what they say."""
    heads = ["federation", *(f"`{own}` to `{other}` at {BUDGETS[measure]} [95%]" for own, other, measure in PAIRS)]
    columns, sentences = [], []
    for own, other, measure in PAIRS:
        differences = {name: np.subtract(entry[own][measure], entry[other][measure]) for name, entry in result.items()}
        words = _words(list(differences.values()))
        means = np.array([values.mean() for values in differences.values()])
        columns.append(
            [_cell(values) + MARKS.get(word, "") for values, word in zip(differences.values(), words, strict=True)]
            + [_cell(means) + MARKS.get(_words([means])[0], "")]
        )
        named = {word: [f"*{name}*" for name, one in zip(result, words, strict=True) if one == word] for word in MARKS}
        sentences.append(
            f"* At {BUDGETS[measure]}, `{own}` is clearly better than `{other}` on {_listed(named[BETTER])}, and clearly worse on "
            f"{_listed(named[WORSE])}."
        )
    rows = [[name, *cells] for name, *cells in zip([*result, "**mean over federations**"], *columns, strict=True)]
    about = (
        f"{len(result)} federations, {SEEDS} seeds each. ▲ and ▼: permutation test over seeds, corrected by Holm for the federations "
        "in a column; in the last line over federations, not corrected."
    )
    return f"{table(heads, rows)}\n\n{about}\n\n" + "\n".join(sentences)


def _words(differences: Sequence[Any]) -> list[str]:
    """A verdict for each list of differences, corrected for their number."""
    p_values = [measures.paired_p_value(values, np.zeros(len(values))) for values in differences]
    return [
        "not clear" if p > LEVEL else BETTER if values.mean() > 0 else WORSE
        for values, p in zip(differences, measures.holm(p_values), strict=True)
    ]


def _cell(differences: Any) -> str:
    interval = measures.paired_interval(differences, np.zeros(len(differences)))
    mean, low, high = (signed(100 * value) for value in interval)
    return f"{mean} [{low}, {high}]"


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "no federation"
    number = "federation" if len(names) == 1 else "federations"
    return f"{len(names)} {number} ({', '.join(names)})"
