"""Print the measurements of mini-batch sizes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from fedcohort.core.words.formatted_values import count, number, share, size
from fedcohort.core.words.score_style import ScoreStyle, score_style
from fedcohort.report.terminal.layout import WIDE, Column, about_hidden, dimmed, fitting_table, one_line

if TYPE_CHECKING:
    from fedcohort.study.profile.batch_size_profile import Profile

__all__ = ["profile"]

OVER_CLIENTS = "± over\nclients"
"""Heading of the standard deviation of peak memory."""


def profile(measured: "Profile", width: int = WIDE) -> Group:
    """The table of batch sizes, and the recommended ones."""
    sizes, score = measured.sizes, score_style([measured.labels])
    columns = [
        Column("batch\nsize", [Text(str(batch.batch_size), style="bold") for batch in sizes]),
        Column(
            "mini-batch,\nms",
            [f"{number(1e3 * batch.batch_seconds, 3)} ± {number(1e3 * batch.batch_seconds_sd, 2)}" for batch in sizes],
        ),
        Column(
            "samples\nper second", [f"{count(batch.samples_per_second)} ± {share(batch.precision)}" for batch in sizes]
        ),
        Column("peak\nmemory", [size(batch.memory) for batch in sizes]),
        Column(OVER_CLIENTS, [size(batch.memory_sd) for batch in sizes], 1),
        Column("before\ntraining", [size(batch.memory_before) for batch in sizes], 1),
        *_scores(measured, score),
        Column("passes", [str(batch.passes) for batch in sizes], 0),
    ]
    table, hidden = fitting_table(columns, width)
    return Group(
        Text(measured.name, style="bold"), "",
        *_advice(measured), "", table, "",
        *dimmed(
            _about_deviations(hidden),
            f"Memory: {'allocated on the device' if sizes[0].where == 'device' else 'resident in a fresh process'}.",
            _about_scores(score, measured.rounds),
            measured.about_accuracy,
            *measured.warnings,
            about_hidden(hidden),
        ),
    )  # fmt: skip


def _about_deviations(hidden: Sequence[str]) -> str:
    """What ± is in each of the columns that are shown."""
    of_memory = (
        "" if one_line(OVER_CLIENTS) in hidden else "; over clients, the standard deviation of their peak memory"
    )
    return (
        "± is the standard deviation of single mini-batches; of samples per second, half the 95% interval of the mean, as a share of "
        f"it{of_memory}."
    )


def _scores(measured: "Profile", score: ScoreStyle) -> Iterator[Column]:
    """The columns of scores; without rounds, there are none."""
    if measured.rounds:
        yield Column(f"test\n{score.name}", [score.value(batch.accuracy) for batch in measured.sizes])
        clients = [score.value(batch.client_accuracy) for batch in measured.sizes]
        yield Column(f"{score.of_client}\nof clients", clients, 2)


def _about_scores(score: ScoreStyle, rounds: int) -> str:
    """A note about the unit of the scores; empty without rounds."""
    if not rounds:
        return ""
    if score.numeric:
        return "R² is on the test set. The score of a client is 1 − its mean squared error / variance of labels."
    return "Accuracies are in %."


def _advice(measured: "Profile") -> Iterator[Text]:
    """The recommended sizes, and the reason for each."""
    first, *reasons = measured.advice
    yield Text(first, style="bold")
    yield from map(Text, reasons)
