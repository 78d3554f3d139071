"""Load the checkpoint that a run resumes from."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedcohort.core.errors import UsageError
from fedcohort.core.state_files import CorruptState, load_state

__all__ = ["last_valid"]

log = logging.getLogger("fedcohort")


def last_valid(
    rows: Iterable[tuple[int, str, str]], folder: Path, *, quiet: bool = False
) -> tuple[int, dict[str, Any]] | None:
    """The round and the state of the first checkpoint that is not damaged; None if there is none.

    Args:
        rows: round, file and SHA-256 of each checkpoint, the last one first.
        folder: folder of the files.
        quiet: do not warn that later checkpoints are damaged.

    Raises:
        UsageError: all of them are damaged.
    """
    problems = []
    for round_, name, sha256 in rows:
        file = folder / name
        try:
            state = load_state(file, sha256=sha256)
        except (OSError, CorruptState) as error:
            problems.append(f"{file}: the checkpoint of round {round_} is damaged ({error})")
            continue
        if problems and not quiet:
            log.warning("%s, as after a power loss; the run resumes after round %d", problems[0], round_)
        return int(round_), state
    if not problems:
        return None
    raise UsageError(
        f"{problems[0]}; nothing was overwritten; restore the file, or delete the run directory to start again"
    )
