"""Recommend a mini-batch size for local training, from time, memory and accuracy measured on this machine.

Each batch size is measured in a fresh process (:mod:`fedcohort.study.profile.batch_size_process`), so that its peak memory is its own.
:func:`fedcohort.measures.best_batch_size` gives two recommendations: the size with the most samples per second, and the best trade-off
of time, memory and accuracy.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote

import numpy as np
from pydantic import TypeAdapter

from fedcohort import measures
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import kind_of
from fedcohort.core.words.formatted_values import counted
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.experiment import Cell, Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.tasks import label_kind
from fedcohort.runs.run_data import on_data
from fedcohort.study.profile.profile_values import size_with_nan

__all__ = ["SIZES", "Order", "Profile", "Recommendation", "Size", "profile", "recommend"]

SIZES = (8, 16, 32, 64)
"""Batch sizes that are measured by default."""


@dataclass(frozen=True)
class Order:
    """What to measure, as the measuring process reads it.

    Attributes:
        toml: the experiment.
        size: mini-batch size.
        rounds: number of rounds to play for the accuracy.
        seconds: maximum time for the passes.
        precision: the precision at which measuring ends.
        data_dir: a local mirror of data sets, if there is one.
    """

    toml: str
    size: int
    rounds: int
    seconds: float
    precision: float
    data_dir: str | None


@dataclass(frozen=True)
class Size:
    """The measurements of one batch size.

    Attributes:
        batch_size: mini-batch size.
        batch_seconds, batch_seconds_sd: mean and standard deviation of the time of a mini-batch.
        samples_per_second: mean over passes.
        precision: half the width of the 95% interval of the mean time per sample, as a share of the mean.
        tight: whether the precision that was asked for is reached.
        passes: number of passes over the clients' data.
        memory: peak memory in bytes over all clients: resident in the process, or allocated on the device.
        memory_sd: standard deviation of the peaks of the clients.
        memory_before: memory before training: Python, torch and the data.
        where: ``resident`` or ``device``.
        accuracy: test accuracy after the rounds; R² if labels are numbers.
        client_accuracy: mean over all clients of the same model's accuracy on their own data; of the clients' scores if labels are
            numbers.
        clients: for each timed client: ``client``, ``samples``, ``batch_seconds``, ``batch_seconds_sd``, ``samples_per_second``,
            ``memory`` (the highest of its passes), ``accuracy``.
        batch_accuracy: training accuracy of the mini-batches of the rounds, in order: mean over the clients of a round; empty without
            rounds and for numeric labels.
        largest_client: largest number of training samples of a client; 0 in profiles that were saved before it was measured.
    """

    batch_size: int
    batch_seconds: float
    batch_seconds_sd: float
    samples_per_second: float
    precision: float
    tight: bool
    passes: int
    memory: float
    memory_sd: float
    memory_before: float
    where: str
    accuracy: float
    client_accuracy: float
    clients: list[dict[str, float]]
    batch_accuracy: list[float] = field(default_factory=list)
    largest_client: int = 0

    @property
    def is_full(self) -> bool:
        """Whether some client has enough samples for a mini-batch of this size."""
        return not self.largest_client or self.batch_size <= self.largest_client


@dataclass(frozen=True)
class Recommendation:
    """A recommended batch size, the rule that gives it, and the reason in words."""

    rule: str
    batch_size: int
    reason: str


@dataclass(frozen=True)
class Profile:
    """The measurements of all batch sizes, and the recommendations.

    Attributes:
        name: name of the experiment.
        rounds: number of rounds that were played for the accuracy.
        sizes: measurements by batch size, ascending.
        recommendations: by throughput, and by trade-off; none if no client has enough samples for any of the sizes.
        labels: ``classes``, or ``numbers``, for which accuracies are R².
    """

    name: str
    rounds: int
    sizes: list[Size]
    recommendations: list[Recommendation]
    labels: str = "classes"

    @property
    def advice(self) -> list[str]:
        """The recommended sizes, and then the reason for each, in sentences."""
        if not self.recommendations:
            most = counted(self.sizes[0].largest_client, "training sample")
            return [f"No recommendation: the largest client has {most}. Give smaller batch sizes with --batch-size."]
        names = {each.rule: RULES.get(each.rule, each.rule) for each in self.recommendations}
        rules: dict[int, list[str]] = {}
        for each in self.recommendations:
            rules.setdefault(each.batch_size, []).append(names[each.rule])
        sizes = ", or ".join(f"{size} by {' and by '.join(own)}" for size, own in rules.items())
        reasons = [f"{names[each.rule].capitalize()}: {each.reason}." for each in self.recommendations]
        return [f"Recommended batch size: {sizes}.", *reasons]

    @property
    def about_accuracy(self) -> str:
        """What limits the accuracies, in a sentence; empty without rounds."""
        if not self.rounds:
            return ""
        after = f"After {counted(self.rounds, 'round')} with each batch size, one seed, and the same learning rate"
        return f"{after}: more rounds, another learning rate or seed can change the order."

    @property
    def warnings(self) -> list[str]:
        """What limits these measurements, in sentences."""
        warnings = []
        if large := [size for size in self.sizes if not size.is_full]:
            most = counted(large[0].largest_client, "training sample")
            about = "Mini-batches are then all data of a client, and such sizes are not recommended."
            warnings.append(
                f"No client has as many training samples as {_named(large)}: the largest has {most}. {about}"
            )
        if loose := [size for size in self.sizes if not size.tight]:
            about = "Increase --seconds, or use a less busy machine."
            warnings.append(f"± of the samples per second is more than --precision: {_named(loose)}. {about}")
        return warnings

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    @staticmethod
    def load(path: str | Path) -> "Profile":
        """Read a profile from a file that `fedcohort profile --json` wrote.

        Raises:
            UsageError: the file contains no profile.
        """
        if (kind := kind_of(Path(path))) not in ("", "a file"):  # a pipe would be waited for
            raise UsageError(f"{path}: is {kind}; `fedcohort profile --json > FILE` makes a profile")
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=float)
            sizes = [size_with_nan(size) for size in values["sizes"]]
            profile = TypeAdapter(Profile).validate_json(json.dumps({**values, "sizes": sizes}), strict=True)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UsageError(
                f"{path}: not a profile; `fedcohort profile --json > {quote(str(path))}` makes one"
            ) from None
        if not sizes or not all(size["clients"] for size in sizes):
            raise UsageError(
                f"{path}: this profile contains no measured batch size; `fedcohort profile --json > {quote(str(path))}` makes one"
            )
        return profile


def profile(
    experiment: Experiment,
    *,
    sizes: Sequence[int] = SIZES,
    rounds: int = 3,
    seconds: float = 20.0,
    precision: float = 0.05,
    data_dir: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Profile:
    """Measure batch sizes on this machine.

    Args:
        experiment: the experiment; its base is measured, under its first seed.
        sizes: mini-batch sizes.
        rounds: number of rounds to play with each size for the accuracy; 0 means none, and no recommendation by trade-off.
        seconds: maximum time for the passes of one size.
        precision: measure until half the width of the 95% interval of the mean time is at most this share of the mean.
        data_dir: a local mirror of data sets in the layout of the Hugging Face Hub.
        progress: called with every size before it is measured.

    Raises:
        UsageError: an argument is not valid, or the experiment cannot be run.
    """
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise UsageError(
            f"--batch-size {', '.join(map(str, sizes)) or 'none'}: give different sizes of at least 1, such as 8 and 16"
        )
    if rounds < 0:
        raise UsageError(f"rounds = {rounds}: give 0, which plays no round, or more")
    if not seconds > 0:
        raise UsageError(f"seconds = {seconds:g}: give a number above 0, such as 20")
    if not 0 < precision < 1:
        raise UsageError(f"precision = {precision:g}: give a number between 0 and 1, such as 0.05")
    single = Cell(experiment.label, experiment.seed, experiment.single(experiment.seed))
    single = on_data(single, Given(data_dir=data_dir))
    measured = []
    for size in sorted(sizes):
        if progress is not None:
            progress(size)
        toml, folder = single.experiment.to_toml(), None if data_dir is None else str(data_dir)
        measured.append(_in_a_fresh_process(Order(toml, size, rounds, seconds, precision, folder)))
    labels = label_kind(single.experiment.training)
    return Profile(experiment.name, rounds, measured, recommend(measured, labels), labels)


def recommend(sizes: Sequence[Size], labels: str = "classes") -> list[Recommendation]:
    """The recommendations of both rules, with reasons; without accuracies (R² if ``labels`` are ``numbers``), only by throughput;
    none of sizes above the data of all clients."""
    score = score_style([labels])
    sizes = [size for size in sizes if size.is_full]
    if not sizes:
        return []
    recommendations = [_by_throughput(sizes, score)]
    if all(math.isfinite(size.accuracy) for size in sizes):
        recommendations.append(_by_tradeoff(sizes, score))
    return recommendations


RULES = {"throughput": "throughput", "tradeoff": "trade-off"}
"""The rules in words."""

CLOSE = 0.02
"""Accuracies that differ by at most this are called the same."""


def _named(sizes: Sequence[Size]) -> str:
    """Batch sizes in a sentence."""
    return f"batch size{'s' * (len(sizes) > 1)} {', '.join(str(size.batch_size) for size in sizes)}"


def _more_accurate(sizes: Sequence[Size], best: Size, score: ScoreStyle) -> str:
    """The size with a higher accuracy than the recommended one, if there is one; empty without."""
    top = max(sizes, key=lambda size: size.accuracy if math.isfinite(size.accuracy) else -math.inf)
    if not top.accuracy > best.accuracy + CLOSE:
        return ""
    return (
        f"; {top.batch_size} has a higher test {score.name}, {score.with_unit(top.accuracy)} in place of "
        f"{score.with_unit(best.accuracy)}"
    )


def _by_throughput(sizes: Sequence[Size], score: ScoreStyle) -> Recommendation:
    """The size with the most samples per second."""
    batches, speed = [size.batch_size for size in sizes], np.array([size.samples_per_second for size in sizes])
    best, slowest = batches.index(measures.best_batch_size(batches, speed)), int(speed.argmin())
    reason = f"{speed[best]:,.0f} samples per second"
    if best != slowest:
        reason += f", {speed[best] / speed[slowest]:.2g} times as many as with {batches[slowest]}"
    unclear = [batch for i, batch in enumerate(batches) if i != best and _overlap(sizes[best], sizes[i])]
    if unclear:
        reason += f"; the difference to {', '.join(map(str, unclear))} is not clear: the intervals overlap"
    return Recommendation("throughput", batches[best], reason + _more_accurate(sizes, sizes[best], score))


def _by_tradeoff(sizes: Sequence[Size], score: ScoreStyle) -> Recommendation:
    """The size with the best mean of time, memory and error."""
    batches, speed = [size.batch_size for size in sizes], np.array([size.samples_per_second for size in sizes])
    memory, accuracy = np.array([size.memory for size in sizes]), np.array([size.accuracy for size in sizes])
    pick = measures.best_batch_size(batches, speed, memory=memory, accuracy=accuracy, rule="tradeoff")
    best = sizes[batches.index(pick)]
    reached = (
        f"{score.name} {score.value(best.accuracy)}"
        if score.numeric
        else f"{score.with_unit(best.accuracy)} {score.name}"
    )
    parts = f"{1e6 / best.samples_per_second:,.0f} µs per sample, {best.memory / 1e6:,.0f} MB, {reached}"
    error = f"1 − {score.name}" if score.numeric else "error"
    reason = (
        f"the best mean of time, memory and {error}, each scaled to between 0 and 1, or 0 if it hardly differs: {parts}"
    )
    return Recommendation("tradeoff", pick, reason + _more_accurate(sizes, best, score))


def _overlap(a: Size, b: Size) -> bool:
    """Whether the 95% intervals of two throughputs overlap."""
    low, high = sorted((a, b), key=lambda size: size.samples_per_second)
    return low.samples_per_second * (1 + low.precision) >= high.samples_per_second * (1 - high.precision)


def _in_a_fresh_process(order: Order) -> Size:
    """The measurements of one size, from a process of its own.

    Raises:
        UsageError: the process failed; the message is its last line.
    """
    done = subprocess.run(
        [sys.executable, "-m", "fedcohort.study.profile.batch_size_process"],
        input=json.dumps(asdict(order)),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise UsageError(
            words[-1].removeprefix("fedcohort.core.errors.UsageError: ")
            if words
            else "the measuring process ended early"
        )
    return Size(**json.loads(done.stdout.splitlines()[-1]))
