"""Say which seeds charts of single clients show: a row that lacks the chosen seed shows another one, or is left out."""

from collections.abc import Sequence

from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.study.rows.failing_rows import seeds_in_words

__all__ = ["about_absent", "about_seeds", "beside_name", "chosen_seed", "in_title", "seeds_of"]

LISTED = 3
"""Largest number of seeds that a title names, and of rows that a caption names."""

Shown = Sequence[tuple[str, Reading]]
"""Label and run of each row that a figure shows."""


def chosen_seed(story: Story) -> int:
    """The seed that charts of single clients should show: that of the story, or the first of all."""
    return story.seed if story.seed is not None else min(story.seeds, default=0)


def seeds_of(shown: Shown) -> tuple[int, ...]:
    """The different seeds of the runs, ascending."""
    return tuple(sorted({reading.seed for _, reading in shown}))


def in_title(seeds: Sequence[int]) -> str:
    """The seeds of a figure as its title names them: seed 0, or seeds 0 and 1."""
    if len(seeds) > LISTED:
        return f"{len(seeds)} seeds"
    return seeds_in_words(seeds)


def beside_name(reading: Reading, shown: Shown) -> str:
    """What the title of a panel adds to the name of its row: its seed, if the panels do not all show the same one."""
    return f" · seed {reading.seed}" if len(seeds_of(shown)) > 1 else ""


def about_seeds(story: Story, shown: Shown, *, numbers: bool = True) -> str:
    """Sentences for captions: the seed of the panels, the rows that show another one, and those that are left out.

    Args:
        story: all runs.
        shown: the runs of the panels.
        numbers: whether the panels show numbers of clients, which are other clients under another seed.
    """
    seeds, chosen = seeds_of(shown), chosen_seed(story)
    first = chosen if chosen in seeds or not seeds else seeds[0]
    others = [f"{_name(story, label)} seed {reading.seed}" for label, reading in shown if reading.seed != first]
    text = f"Seed {first}{f'; rows without it show another one: {first_in_words(others, LISTED)}' if others else ''}."
    if others and numbers:
        text += _about_numbers([reading for _, reading in shown])
    return text + about_absent(story)


def _about_numbers(readings: Sequence[Reading]) -> str:
    """A sentence about the numbers of clients in panels of different seeds, with a space before it."""
    lasting = any(reading.run.clock == "wall" or _by_writer(reading) for reading in readings)
    return f" Under another seed, the same number {'can be' if lasting else 'is'} another client, with other data."


def _by_writer(reading: Reading) -> bool:
    """Whether the clients are those that the data come from: if all of them take part, they are the same under every seed."""
    partition = reading.experiment.federation.partition
    return partition.name == "natural" or partition.parameters.get("natural") is True


def about_absent(story: Story) -> str:
    """A sentence about the rows that are left out under the seed of the story, with a space before it; empty if none is."""
    chosen = chosen_seed(story)
    absent = [
        _name(story, label)
        for label, readings in (story.played if story.seed is not None else [])
        if all(reading.seed != chosen for reading in readings)
    ]
    return (
        f" Rows without a round under seed {chosen} are left out: {first_in_words(absent, LISTED)}." if absent else ""
    )


def _name(story: Story, label: str) -> str:
    """The full name of a row, in quotes."""
    return f"'{story.rows[story.labels.index(label)].label}'"
