"""Play the runs of the atlas that are missing, in rounds over seeds, until the time is up.

One round plays every strategy on every federation under one seed. So all federations and strategies have equally many seeds, except
for the round in which the time ended. Runs are played in a temporary folder; what is kept of a run are six numbers.
"""

import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedcohort.core.errors import UsageError
from results.atlas.federations import (
    FILE,
    WEIGHTS_FILE,
    Federation,
    federations,
    measured_traits,
    most_seeds,
    strategies,
)

__all__ = ["MEASURES", "Atlas", "Played", "play", "play_missing"]

log = logging.getLogger("results")

MEASURES = ("accuracy", "at_time", "at_bytes", "time", "bytes", "passes")
"""What is kept of a run: test accuracy after the last round, at half the simulated time and at half the bytes that uniform selection
needs for all its rounds under the same seed; and the simulated time, the bytes and the client passes of the whole run."""

Kept = dict[str, Any]
"""The atlas as it is kept: name of each federation → digest, about, traits, refused (strategy → reason), and runs
(strategy → measure → values by seed)."""


@dataclass(frozen=True)
class Played:
    """The measures of a run, and the traits of its federation."""

    values: Mapping[str, float]
    traits: Mapping[str, float]


Play = Callable[[Federation, str, "str | None", int, "tuple[float, float] | None"], Played]
"""Federation, strategy, weights, seed, and the limits of time and bytes, None for uniform selection itself → what was measured."""


def play(
    federation: Federation, strategy: str, weights: str | None, seed: int, limits: tuple[float, float] | None
) -> Played:
    """Play one run.

    Raises:
        UsageError: the strategy cannot be used with the federation.
    """
    import fedcohort
    from fedcohort.racing.objectives import objectives
    from fedcohort.study.run_measures import Measured

    with tempfile.TemporaryDirectory() as folder:
        experiment = federation.row(strategy, weights)
        run = fedcohort.run(experiment, seed=seed, data=federation.data, runs=folder, progress=False)
        measured = Measured(run)
        values = {"accuracy": measured.accuracy, "time": measured.simulated_time, "bytes": measured.bytes}
        values["passes"] = measured.client_passes
        most_time, most_bytes = limits or (measured.simulated_time / 2, measured.bytes / 2)
        for name, limit in (("time", most_time), ("bytes", most_bytes)):
            values[f"at_{name}"] = objectives(f"accuracy@{name}={limit!r}")[0].value_of(measured)
        traits = measured_traits(run.portrait.facts, federation.experiment.selection.k)
    return Played(values, traits)


def play_missing(
    places: list[Federation],
    rows: Mapping[str, str | None],
    kept: Kept,
    *,
    seeds: int,
    seconds: float,
    save: Callable[[Kept], None] = lambda _: None,
    play: Play = play,
    clock: Callable[[], float] = time.process_time,
) -> Kept:
    """The atlas with the runs that were missing, as far as the time allows.

    Args:
        places: the federations.
        rows: strategy → weights; ``uniform`` comes first.
        kept: what is known; federations with other settings, and unknown ones, are dropped.
        seeds: the seeds are 0, …, seeds − 1.
        seconds: no run begins after so much time; the run that is played then ends.
        save: called with the atlas after each federation of each round.
        play: plays one run.
        clock: time in seconds; by default the processor time of this process, so that other programs do not count.
    """
    begun = clock()
    atlas = {place.name: _known(place, kept) for place in places}
    for seed in range(seeds):
        for place in places:
            entry, changed = atlas[place.name], False
            for strategy in _missing(entry, rows, seed):
                if clock() - begun >= seconds:
                    return atlas
                _add(entry, place, strategy, rows[strategy], seed, play)
                changed = True
            if changed:
                save(atlas)
        log.info("seed %d: played on all federations after %.0f s", seed, clock() - begun)
    return atlas


def _known(place: Federation, kept: Kept) -> Kept:
    """What is kept of a federation, if its settings have not changed."""
    entry: Kept = kept.get(place.name, {})
    if entry.get("digest") == place.digest:
        return entry | {"about": place.about}
    return {"about": place.about, "digest": place.digest, "traits": {}, "refused": {}, "runs": {}}


def _missing(entry: Kept, rows: Mapping[str, str | None], seed: int) -> Iterator[str]:
    """The strategies that have not played a seed yet."""
    for strategy in rows:
        if strategy not in entry["refused"] and len(entry["runs"].get(strategy, {}).get("accuracy", [])) <= seed:
            yield strategy


def _add(entry: Kept, place: Federation, strategy: str, weights: str | None, seed: int, play: Play) -> None:
    """Play a run, and enter it, or the reason why it is refused."""
    reference = entry["runs"].get("uniform")
    limits = (reference["time"][seed] / 2, reference["bytes"][seed] / 2) if strategy != "uniform" else None
    try:
        played = play(place, strategy, weights, seed, limits)
    except UsageError as error:
        entry["refused"][strategy] = str(error)
        entry["runs"].pop(strategy, None)
        return
    entry["traits"] = entry["traits"] or dict(played.traits)
    found = entry["runs"].setdefault(strategy, {name: [] for name in MEASURES})
    for name in MEASURES:
        found[name].append(_short(played.values[name]))


def _short(value: float) -> float | int | None:
    """A value with at most six digits, so that the file is compact; None if it is not finite."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) > 1 else rounded


@dataclass(frozen=True)
class Atlas:
    """How the atlas is made: it continues what is kept, see :func:`play_missing`."""

    quick: bool = False
    minutes: float = 30
    experiments: ClassVar[list[str]] = [
        FILE, WEIGHTS_FILE, "results/atlas/federations.py", "results/atlas/play.py",
        "src/fedcohort/study/run_measures.py", "src/fedcohort/racing/objectives.py",
    ]  # fmt: skip

    def make(self, runs: Path) -> dict[str, Any]:  # noqa: ARG002
        """The atlas from its begin, in as many minutes as are usual."""
        return self.extend({}, self.minutes)

    def extend(self, kept: Kept, minutes: float, save: Callable[[Kept], None] = lambda _: None) -> Kept:
        """What is kept, with the runs that could be played in some minutes of processor time."""
        import torch

        torch.set_num_threads(1)
        return play_missing(federations(), strategies(), kept, seeds=most_seeds(), seconds=60 * minutes, save=save)
