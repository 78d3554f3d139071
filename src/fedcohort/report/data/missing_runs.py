"""Say which runs of an experiment file have not begun, because its comparison was stopped early, and how it goes on."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcohort.core.words.formatted_values import count, first_in_words
from fedcohort.study.health import Finding
from fedcohort.study.rows.failing_rows import seeds_in_words

__all__ = ["SO_FAR", "UNPLANNED", "Missing", "about_missing", "in_sentences", "without_premature"]

SHOWN = 6
"""Largest number of rows that a sentence names."""

SO_FAR = "Verdicts are those of the runs so far: more runs can change them."
"""What is said about verdicts as long as runs are missing."""

UNPLANNED = "The correction of p counts only rows that have begun."
"""What is added where it is not known which runs are going to be played."""

PREMATURE = ("few seeds", "other seeds")
"""Kinds of findings about seeds that are not there yet."""


@dataclass(frozen=True)
class Missing:
    """The runs of an experiment file that a folder of runs does not have.

    Attributes:
        file: the experiment file.
        runs: number of all its runs.
        seeds: all its seeds.
        rows: the seeds that are missing, by the label of the row; only rows that lack any.
        folder: the folder of runs.
        settings: the settings of ``--set``.
        comparisons: the number of differences to references that all its rows have.
    """

    file: Path
    runs: int
    seeds: Sequence[int]
    rows: Mapping[str, Sequence[int]]
    folder: str | Path = "runs"
    settings: Sequence[str] = ()
    comparisons: int = 0

    @property
    def command(self) -> str:
        """The command that plays them."""
        options = [part for setting in self.settings for part in ("--set", setting)]
        folder = [] if Path(self.folder) == Path("runs") else ["--runs", str(self.folder)]
        return shlex.join(["fedcohort", "compare", str(self.file), *options, *folder])

    def to_json(self) -> dict[str, object]:
        """Plain values, with the command."""
        rows = {label: list(seeds) for label, seeds in self.rows.items()}
        return {
            "file": str(self.file),
            "folder": str(self.folder),
            "runs": self.runs,
            "rows": rows,
            "command": self.command,
        }


def about_missing(missing: Missing) -> Finding:
    """Which rows and seeds have not begun.

    >>> print(about_missing(Missing(Path("a.toml"), 6, range(3), {"UCB": [2], "loss": [0, 1, 2]})).text)
    4 of 6 runs of a.toml have not begun: 'UCB' with seed 2; 'loss' with all seeds
    """
    rows_by_seeds: dict[str, list[str]] = {}
    for label, seeds in missing.rows.items():
        rows_by_seeds.setdefault(_in_words(seeds, missing.seeds), []).append(repr(label))
    parts = [f"{first_in_words(labels, SHOWN)} with {seeds}" for seeds, labels in rows_by_seeds.items()]
    number = sum(map(len, missing.rows.values()))
    verb = "has" if number == 1 else "have"
    text = f"{count(number)} of {count(missing.runs)} runs of {missing.file.name} {verb} not begun: {'; '.join(parts)}"
    return Finding("missing", (), text, f"`{missing.command}`, which goes on where it was stopped")


def in_sentences(missing: Iterable[Missing], *, command: bool = True) -> str:
    """The same for all experiment files as text, with or without the command that goes on; empty if no run is missing."""
    told = [
        f"{about_missing(one).text}.{f' `{one.command}` goes on where it was stopped.' if command else ''}"
        for one in missing
    ]
    return " ".join(told)


def without_premature(findings: Sequence[Finding], missing: Sequence[Missing], labels: Iterable[str]) -> list[Finding]:
    """The findings without those about too few seeds or unequal ones, if runs of the rows ``labels`` are still missing."""
    shown = set(labels)
    early = any(shown & set(one.rows) for one in missing)
    return [finding for finding in findings if not (early and finding.kind in PREMATURE)]


def _in_words(seeds: Sequence[int], of_all: Sequence[int]) -> str:
    """The seeds of a row that are missing."""
    if len(seeds) == len(of_all) > 1:
        return "all seeds"
    first, last = seeds[0], seeds[-1]
    return f"seeds {first} to {last}" if last - first == len(seeds) - 1 > 1 else seeds_in_words(seeds)
