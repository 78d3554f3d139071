"""Confirm a result with changed code: some of its runs are repeated, and must give the same digits.

A change of a module that a result depends on need not change the result. Instead of making all of it anew, this repeats every row of a
comparison, under all seeds if that takes no more than five minutes and otherwise under one that the commit chooses; in each federation
of the atlas, uniform selection and one strategy in six; or all strategies of the held-out federations under their first seed. If every
number is the same, the file names the present code beside that which made it, with the number of runs that were repeated.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import fedcohort
from fedcohort import measures
from fedcohort.core.errors import UsageError
from fedcohort.core.processor import processor
from fedcohort.core.words.score_style import ACCURACY
from results.atlas.federations import federations, most_seeds, strategies
from results.atlas.play import Atlas, Play, play, rounded
from results.comparisons import ComparisonResult, compared
from results.descriptions import DESCRIPTIONS
from results.flash_held_out import DIGITS, FlashHeldOut, played
from results.result_file import ROOT, commit, depends, read, sources, today, write

__all__ = ["confirm", "renew_intervals", "repeated_atlas", "repeated_comparison", "repeated_held_out"]

SHORT = 5
"""Results that take at most so many minutes are confirmed with all of their seeds."""

ONE_IN = 6
"""Of so many strategies, one is repeated in each federation of the atlas, another one in each."""


def confirm(name: str, runs: Path) -> int:
    """Repeat runs of a result, and note in its file that they gave the same; returns their number.

    Raises:
        UsageError: the result cannot be confirmed, or a run gives something else. The file does not change.
    """
    description, content, known, made_by = DESCRIPTIONS.get(name), read(name), sources(), commit()
    if not isinstance(description, ComparisonResult | Atlas | FlashHeldOut):
        raise UsageError(
            f"{name}: only comparisons, the atlas and the held-out federations can be confirmed; make it anew: make results "
            f"NAME={name}"
        )
    try:
        number = _repeated(description, content["result"], runs, made_by)
    except UsageError as error:
        here, there = processor(), content["processor"]
        elsewhere = (
            "" if there.startswith(here) else f", or confirm it on {there}: this is {here}, which may round differently"
        )
        raise UsageError(f"{name}: {error}: make results NAME={name}{elsewhere}") from None
    content["depends"] = depends(description.experiments, known)
    content["confirmed"] = {"commit": made_by, "date": today(), "runs": number}
    write(name, content, compact=isinstance(description, Atlas))
    return number


def _repeated(description: ComparisonResult | Atlas | FlashHeldOut, kept: Any, runs: Path, made_by: str) -> int:
    """Repeat runs of a result, and compute its intervals anew; returns the number of runs.

    Raises:
        UsageError: a run gives something else.
    """
    if isinstance(description, ComparisonResult):
        number = repeated_comparison(description, kept, runs, crc32(made_by.encode()))
        for rows in kept.values():
            renew_intervals(rows)
        return number
    if isinstance(description, Atlas):
        return repeated_atlas(kept)
    return repeated_held_out(kept)


def repeated_comparison(description: ComparisonResult, kept: Mapping[str, Any], runs: Path, choice: int = 0) -> int:
    """Repeat every row under all seeds, or under one of them if the result takes long.

    Args:
        description: how the result is made.
        kept: its rows.
        runs: folder for the runs.
        choice: any number; it chooses the seed.

    Raises:
        UsageError: an accuracy differs.
    """
    number = 0
    described = fedcohort.load_experiment(ROOT / description.experiment)
    for setting, values in description.settings.items():
        first, seeds = int(values.get("seed", described.seed)), len(kept[setting][0]["accuracies"])
        some = range(seeds) if description.minutes <= SHORT else range(choice % seeds, choice % seeds + 1)
        rows = compared(description.experiment, {**values, "seed": first + some.start, "seeds": len(some)}, runs)
        for row, before in zip(rows, kept[setting], strict=True):
            for key in ("accuracies", "bests"):
                expected = before[key][some.start : some.stop]
                if row["label"] != before["label"] or row[key] != expected:
                    raise UsageError(
                        f"{before['label']}: {key} of the seeds from {first + some.start} on are {row[key]} instead of {expected}; "
                        "make it anew"
                    )
            number += len(some)
    return number


def renew_intervals(rows: Sequence[dict[str, Any]]) -> None:
    """Compute the intervals of differences anew from the accuracies that are kept, since the code that computes them may have changed.

    In a sweep, each point has a reference of its own: that to which a row has the difference that is kept.
    """
    references = [row for row in rows if row["verdict"] == "baseline"]
    for row in rows:
        if row["verdict"] == "baseline" or row["difference_low"] is None:
            continue
        for reference in references:
            interval = measures.paired_interval(row["accuracies"], reference["accuracies"], limits=ACCURACY.differences)
            if math.isclose(interval.mean, row["difference"], abs_tol=1e-12):
                row["difference_low"], row["difference_high"] = interval.low, interval.high
                break


def repeated_held_out(
    kept: Mapping[str, Any], played: Callable[..., Mapping[str, Mapping[str, float]]] = played
) -> int:
    """Repeat the first seed of every federation.

    Raises:
        UsageError: an accuracy differs.
    """
    number = 0
    for place in federations():
        for strategy, values in played(place, most_seeds()).items():
            for measure, known in kept[place.name][strategy].items():
                if round(values[measure], DIGITS) != known[0]:
                    raise UsageError(
                        f"{place.name}, {strategy}: {measure} is {values[measure]} instead of {known[0]}; make it anew"
                    )
            number += 1
    return number


def repeated_atlas(kept: Mapping[str, Any], play: Play = play) -> int:
    """Repeat some runs of the first seed.

    Raises:
        UsageError: a measure differs.
    """
    number = 0
    for f, place in enumerate(federations()):
        played = kept[place.name]["runs"]
        limits = (played["uniform"]["time"][0] / 2, played["uniform"]["bytes"][0] / 2)
        for s, (strategy, weights) in enumerate(strategies().items()):
            if strategy not in played or (strategy != "uniform" and (f + s) % ONE_IN):
                continue
            found = play(place, strategy, weights, 0, None if strategy == "uniform" else limits).values
            for measure, values in played[strategy].items():
                if rounded(found[measure]) != values[0]:
                    raise UsageError(
                        f"{place.name}, {strategy}: {measure} is {rounded(found[measure])} instead of {values[0]}; make it anew"
                    )
            number += 1
    return number
