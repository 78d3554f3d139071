"""Find the damaged runs of a folder, so that the live page can show the others."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedcohort.core.errors import UsageError
from fedcohort.core.words.score_style import score_style
from fedcohort.record import Run
from fedcohort.record.verification import Signature, signature
from fedcohort.report.data.hidden_paths import without_paths

__all__ = ["Damaged", "Inspector", "changed", "damage_in", "reason", "separated", "without_repeats", "written"]


class Damaged(NamedTuple):
    """A run directory that cannot be shown: its name, and why."""

    name: str
    reason: str


def reason(error: Exception, path: Path) -> str:
    """Why the run in ``path`` cannot be shown, without absolute paths."""
    if not isinstance(error, UsageError):
        return f"its record cannot be read ({type(error).__name__})"
    text = " ".join(str(error).split())
    for folder in dict.fromkeys((str(path), str(path.absolute()), str(path.resolve()))):
        text = text.replace(f"{folder}/", "").replace(folder, path.name)
    return without_paths(text, [text])


def changed(path: Path) -> int:
    """When the database of a run directory was written last, in nanoseconds; 0 if there is none."""
    return written(signature(path))


def written(files: Signature) -> int:
    """As :func:`changed`, from the files of the directory."""
    return max((time for name, time, _ in files if name.startswith("run.sqlite")), default=0)


class Inspector:
    """Compares runs with their hashes, each again only after its files have changed. It can be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._verdicts: dict[Path, tuple[object, Damaged | None]] = {}

    def damage(self, run: Run) -> Damaged | None:
        """Why a run cannot be shown; None if it can."""
        facts = signature(run.path)
        with self._lock:
            known = self._verdicts.get(run.path)
        if known is not None and known[0] == facts:
            return known[1]
        verdict = damage_in(run, Run.verify)
        with self._lock:
            self._verdicts[run.path] = (facts, verdict)
        return verdict


def damage_in(run: Run, action: Callable[[Run], object]) -> Damaged | None:
    """What is wrong with a run, if ``action`` raises an error; None otherwise."""
    try:
        action(run)
    except Exception as error:  # a damaged or forged record can raise anything
        return Damaged(run.path.name, reason(error, run.path))
    return None


def separated(runs: Sequence[Run], damage: Callable[[Run], Damaged | None]) -> tuple[list[Run], list[Damaged]]:
    """The runs without damage, and the damage of the others."""
    verdicts = [(run, damage(run)) for run in runs]
    return [run for run, verdict in verdicts if verdict is None], [verdict for _, verdict in verdicts if verdict]


def without_repeats(runs: Sequence[Run]) -> tuple[list[Run], list[Damaged]]:
    """The runs that can be on one page, and why the others cannot: copies of a run, or runs with another kind of labels."""
    kept: dict[object, Run] = {}
    others = []
    for run in runs:
        try:
            key = (run.meta["label"], run.meta["row"], run.described.seed)
            first, same = next(iter(kept.values()), run), kept.get(key)
            score_style((first.labels, run.labels))
            if same is not None:
                raise UsageError(f"the same run as {same.path.name}, which is shown")
        except Exception as error:  # a damaged or forged record can raise anything
            others.append(Damaged(run.path.name, reason(error, run.path)))
        else:
            kept[key] = run
    return list(kept.values()), others
