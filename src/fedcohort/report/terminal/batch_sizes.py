"""Print the measurements of mini-batch sizes."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from fedcohort.core.formatted_values import count, number, percent, share, size
from fedcohort.report.terminal.layout import WIDE, Column, about_hidden, dimmed, fitting_table

if TYPE_CHECKING:
    from fedcohort.study.batch_size_profile import Profile, Recommendation

__all__ = ["profile"]


def profile(measured: "Profile", width: int = WIDE) -> Group:
    """The table of batch sizes, and the recommended ones."""
    sizes = measured.sizes
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
        Column("± over\nclients", [size(batch.memory_sd) for batch in sizes], 1),
        Column("before\ntraining", [size(batch.memory_before) for batch in sizes], 1),
        Column("test\naccuracy", [percent(batch.accuracy) for batch in sizes]),
        Column("accuracy\nof clients", [percent(batch.client_accuracy) for batch in sizes], 2),
        Column("passes", [str(batch.passes) for batch in sizes], 0),
    ]
    table, hidden = fitting_table(columns, width)
    loose = [str(batch.batch_size) for batch in sizes if not batch.tight]
    return Group(
        Text(measured.name, style="bold"), "", table, "",
        *map(_recommended, measured.recommendations), "",
        *dimmed(
            f"Memory: {'allocated on the device' if sizes[0].where == 'device' else 'resident in a fresh process'}.",
            f"Accuracies are in %, after {measured.rounds} round{'s' * (measured.rounds > 1)}." if measured.rounds else "",
            _about_loose(loose),
            about_hidden(hidden),
        ),
    )  # fmt: skip


def _about_loose(sizes: list[str]) -> str:
    """A note about sizes that could not be measured precisely enough; empty if there are none."""
    if not sizes:
        return ""
    return f"Interval wider than --precision: batch size {', '.join(sizes)}. Increase --seconds, or use a less busy machine."


def _recommended(choice: "Recommendation") -> Text:
    return Text.assemble((str(choice.batch_size), "bold"), f" by {choice.rule}: {choice.reason}")
