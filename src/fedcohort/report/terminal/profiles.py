"""The measurements of mini-batch sizes."""

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

if TYPE_CHECKING:
    from fedcohort.study.profiling import Profile
from fedcohort.core.words import percent, size
from fedcohort.report.terminal.tables import WIDE, Column, about_hidden, dimmed, fitting_table

__all__ = ["profile"]


def profile(found: "Profile", width: int = WIDE) -> Group:
    """Batch sizes side by side, and the recommended ones."""
    sizes = found.sizes
    columns = [
        Column("batch\nsize", [Text(str(one.batch_size), style="bold") for one in sizes]),
        Column(
            "mini-batch,\nms", [f"{1e3 * one.batch_seconds:.3g} ± {1e3 * one.batch_seconds_sd:.2g}" for one in sizes]
        ),
        Column(
            "samples\nper second", [f"{one.samples_per_second:,.0f} ± {percent(one.precision, 0)} %" for one in sizes]
        ),
        Column("peak\nmemory", [size(one.memory) for one in sizes]),
        Column("± over\nclients", [size(one.memory_sd) if math.isfinite(one.memory_sd) else "–" for one in sizes], 1),
        Column("before\ntraining", [size(one.memory_before) for one in sizes], 1),
        Column("test\naccuracy", [percent(one.accuracy) for one in sizes]),
        Column("accuracy\nof clients", [percent(one.client_accuracy) for one in sizes], 2),
        Column("passes", [str(one.passes) for one in sizes], 0),
    ]
    table, hidden = fitting_table(columns, width)
    loose = [str(one.batch_size) for one in sizes if not one.tight]
    return Group(
        Text(found.name, style="bold"), "", table, "",
        *[Text.assemble((f"{one.batch_size}", "bold"), f" by {one.rule}: {one.reason}") for one in found.recommendations], "",
        *dimmed(
            f"Memory: {'allocated on the device' if sizes[0].where == 'device' else 'resident, of a fresh process'}.",
            f"Accuracies in %, after {found.rounds} rounds." if found.rounds else "",
            f"Not as tight as asked for: {', '.join(loose)}. Give more --seconds, or a machine that is less busy." if loose else "",
            about_hidden(hidden),
        ),
    )  # fmt: skip
