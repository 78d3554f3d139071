"""Which of many rows charts name, color, or give a panel, in sentences for captions."""

from fedcohort.report.figures.panel_rows import FRONT, LINES, NAMES, SWEEP_PANELS, rows_with_name
from fedcohort.report.figures.screen_words import HIGHLIGHT
from fedcohort.report.notes.unranked_rows import in_own_seeds, unranked
from fedcohort.study.comparison import Comparison

__all__ = ["about_colors", "about_gray_panels", "about_lines", "about_panels"]


def about_lines(compared: Comparison | None, score: str) -> str:
    """A sentence about which lines are named; empty if all are, or a legend names them."""
    if compared is None or not rows_with_name(compared):
        return ""
    return (
        f"With more than {LINES} rows, charts of lines draw the reference and the rows with the highest test "
        f"{in_own_seeds(score, compared)} stronger than the others, and name them where there is room.{HIGHLIGHT}"
    )


def about_colors(score: str, compared: Comparison | None, *, filled: bool = False) -> str:
    """A sentence about which of many rows are colored in papers."""
    filled = filled and not (compared is not None and len(unranked(compared)) == len(compared.rows))
    front = f", and the rows that are filled, at most the {FRONT} best of them" if filled else ""
    comma = "," if filled else " and"
    highest = f"the {NAMES - 1} rows with the highest test {in_own_seeds(score, compared)}"
    return f"Colored: the reference{comma} {highest}{front}. The other rows are gray."


def about_gray_panels(score: str, compared: Comparison | None) -> str:
    """Sentences for papers: which panels are colored, and which are gray."""
    return (
        f"Colored panels: those of the reference and of the {NAMES - 1} rows with the highest test "
        f"{in_own_seeds(score, compared)}, if they have one, in the colors that they have in all figures. "
        "Gray panels: rows that figures of lines do not name."
    )


def about_panels(compared: Comparison | None, panels: int, score: str, finished: bool) -> str:
    """How many rows have a panel, and which; empty if all have one."""
    if compared is None or len(compared.rows) <= panels:
        return ""
    points = len(compared.groups)
    where = f" at the first {SWEEP_PANELS} points" if points > SWEEP_PANELS else " at each point" if points > 1 else ""
    where = where and f"{where} of the sweep"
    one = points > 1 and SWEEP_PANELS // points < 2
    if finished:
        which = (
            f"the reference{'' if one else f' and those with the highest test {in_own_seeds(score, compared)}'}{where}"
        )
    else:
        which = f"the first {'one' if one else 'ones'}{where} until all runs are finished"
    return f"{panels} of {len(compared.rows)} rows, {which}"
