"""Print the measurements of mini-batch sizes."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.study.profiling import Profile
from fedcohort.core.words import count, number, percent, share, size
from fedcohort.report.terminal.tables import WIDE, Column, about_hidden, dimmed, fitting_table

__all__ = ["profile"]


def profile(measured: "Profile", width: int = WIDE) -> Group:
    """The table of batch sizes, and the recommended ones."""
    sizes = measured.sizes
    columns = [
        Column("batch\nsize", [Text(str(one.batch_size), style="bold") for one in sizes]),
        Column(
            "mini-batch,\nms",
            [f"{number(1e3 * one.batch_seconds, 3)} ± {number(1e3 * one.batch_seconds_sd, 2)}" for one in sizes],
        ),
        Column("samples\nper second", [f"{count(one.samples_per_second)} ± {share(one.precision)}" for one in sizes]),
        Column("peak\nmemory", [size(one.memory) for one in sizes]),
        Column("± over\nclients", [size(one.memory_sd) for one in sizes], 1),
        Column("before\ntraining", [size(one.memory_before) for one in sizes], 1),
        Column("test\naccuracy", [percent(one.accuracy) for one in sizes]),
        Column("accuracy\nof clients", [percent(one.client_accuracy) for one in sizes], 2),
        Column("passes", [str(one.passes) for one in sizes], 0),
    ]
    table, hidden = fitting_table(columns, width)
    loose = [str(one.batch_size) for one in sizes if not one.tight]
    return Group(
        Text(measured.name, style="bold"), "", table, "",
        *[Text.assemble((f"{one.batch_size}", "bold"), f" by {one.rule}: {one.reason}") for one in measured.recommendations], "",
        *dimmed(
            f"Memory: {'allocated on the device' if sizes[0].where == 'device' else 'resident in a fresh process'}.",
            f"Accuracies are in %, after {measured.rounds} rounds." if measured.rounds else "",
            _about_loose(loose),
            about_hidden(hidden),
        ),
    )  # fmt: skip


def _about_loose(sizes: list[str]) -> str:
    """A note about sizes that could not be measured precisely enough; empty if there are none."""
    if not sizes:
        return ""
    return f"Interval wider than --precision: batch size {', '.join(sizes)}. Increase --seconds, or use a less busy machine."
