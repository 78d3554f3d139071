"""A process that plays cases: it reads one JSON request a line, and answers each with one line.

It imports everything, trains nothing itself, and forks a child for every command of a case.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.attack import Failed, Unavailable

__all__ = ["Outcome", "Worker", "environment"]

ROOT = Path(__file__).parents[2]


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        number: the number of the case.
        count: how many things were done in it.
        seconds: how long it took.
        failure: what did not hold; None if all held.
        unavailable: what this machine lacks for the attack; None if it lacks nothing.
        figures: measured numbers of the attack, by name.
    """

    number: int
    count: int = 0
    seconds: float = 0.0
    failure: str | None = None
    unavailable: str | None = None
    figures: dict[str, str] = field(default_factory=dict)


def environment(cache: Path) -> dict[str, str]:
    """The environment of a worker: one thread for every library, and a cache of its own."""
    unset = ("FEDCOHORT_DATA", "PYTHONSTARTUP", "PYTHONWARNINGS", "COLUMNS")
    kept = {key: value for key, value in os.environ.items() if key not in unset}
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [kept.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONPATH": os.pathsep.join(paths), "FEDCOHORT_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


class Worker:
    """The other end of a worker process.

    Args:
        folder: where its attacks may write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[str] | None = None
        self._current: Outcome | None = None

    def play(self, attack: str, seed: int, number: int, limit: float) -> Outcome:
        """Play a case; a worker that dies or hangs is replaced, and its case has failed."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        start = time.monotonic()
        print(json.dumps({"attack": attack, "seed": seed, "number": number}), file=process.stdin, flush=True)
        answer = self._answer(process, limit)
        if answer is not None:
            return Outcome(**answer)
        self.close()
        seconds = time.monotonic() - start
        return Outcome(
            number, 1, seconds, f"the process that played the case died or did not answer within {limit:g} s"
        )

    def close(self) -> None:
        """End the worker and what it started."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGTERM)
                self._process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
            self._process = None

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.campaign.worker", str(self.folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
                env=environment(self.folder / "cache"), cwd=self.folder,
            )  # fmt: skip
        return self._process

    def _answer(self, process: "subprocess.Popen[str]", limit: float) -> dict[str, Any] | None:
        """The next answer; None if the process ended or the time is over."""
        import threading

        assert process.stdout is not None
        watch = threading.Timer(limit, process.kill)
        watch.start()
        try:
            line = process.stdout.readline()
        finally:
            watch.cancel()
        return json.loads(line) if line.endswith("\n") else None


def serve(folder: Path) -> None:
    """Answer requests until the input ends."""
    from tests.campaign.catalogue import ATTACKS
    from tests.campaign.forked import import_everything

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a case prints is no answer
    import_everything()
    tempfile.tempdir = str(folder)
    prepared: dict[tuple[str, int], Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = (request["attack"], request["seed"])
        outcome = Outcome(request["number"])
        start = time.monotonic()
        try:
            if key not in prepared:
                place = folder / f"{key[0]}-{key[1]}"
                place.mkdir(parents=True, exist_ok=True)
                prepared[key] = attack = ATTACKS[key[0]](place, key[1])
                attack.prepare()
                start = time.monotonic()
            outcome.count = prepared[key].play(request["number"])
        except Unavailable as reason:
            outcome.unavailable = str(reason)
        except Failed as failure:
            outcome.count, outcome.failure = 1, str(failure)
        except Exception:
            outcome.count, outcome.failure = 1, f"the case itself failed: {traceback.format_exc()[-3000:]}"
        outcome.seconds = time.monotonic() - start
        if key in prepared:
            outcome.figures = prepared[key].figures
        print(json.dumps(outcome.__dict__), file=answers, flush=True)
    for attack in prepared.values():
        attack.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(Path(sys.argv[1]))
