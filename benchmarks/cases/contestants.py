"""Processes that play the turns of a case: the bare loop, and FedCohort by one plan. Only one of them computes at a time."""

import contextlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .definitions import Case

__all__ = ["Contestant", "Turn", "peak_bytes", "start"]

LIMIT = 300.0
"""Seconds within which a contestant must reply."""
PRELOADED = ("torch", "fedcohort.runs.play_run", "fedcohort.engines.local_engine", "pandas", "torch._dynamo")
"""Modules that are imported once, before the processes are forked."""


@dataclass(frozen=True)
class Turn:
    """The rounds of one turn.

    Attributes:
        wall: seconds.
        processor: seconds of processor time, summed over threads.
        steps: optimizer steps.
    """

    wall: float
    processor: float
    steps: int


@dataclass
class Contestant:
    """A process that plays turns.

    Attributes:
        name: bare loop, or a plan.
        process: the process.
        connection: leads to it.
        turns: the turns that were measured.
        failure: why it ended, if it did.
        facts: what it said last: the plan, the clients of each round, and the peak memory.
    """

    name: str
    process: Any
    connection: Connection
    turns: list[Turn] = field(default_factory=list)
    failure: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def reply(self) -> dict[str, Any]:
        """What the process says next; an empty dictionary if it failed."""
        if self.failure:
            return {}
        try:
            if not self.connection.poll(LIMIT):
                raise TimeoutError(f"no reply in {LIMIT:.0f} s")
            said: dict[str, Any] = self.connection.recv()
        except (EOFError, OSError) as error:
            said = {"failure": f"{type(error).__name__} {error}".strip()}
        self.failure = said.get("failure", "")
        self.facts |= said
        return {} if self.failure else said

    def play(self, measured: bool, **command: Any) -> dict[str, Any]:
        """Play a turn, and keep its time if it is ``measured``."""
        if self.failure:
            return {}
        with contextlib.suppress(OSError):
            self.connection.send(command)
        said = self.reply()
        if said and measured:
            self.turns.append(Turn(said["wall"], said["processor"], said["steps"]))
        return said

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def start(case: Case, name: str) -> Contestant:
    """Start a contestant, and wait until it is ready for its first turn; ``name`` is ``bare`` or a plan."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe()
    process = context.Process(target=_play, args=(case, name, theirs), daemon=True)
    process.start()
    theirs.close()
    made = Contestant(name, process, ours)
    made.reply()
    return made


def peak_bytes() -> tuple[float, float]:
    """Resident bytes of this process now, and at most so far."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("VmRSS", "VmHWM")):
            found[line[:5]] = 1024 * float(line.split()[1])
    return found["VmRSS"], found["VmHWM"]


def _play(case: Case, name: str, connection: Connection) -> None:
    """Play turns on request; the main function of a contestant's process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    before, _ = peak_bytes()
    try:
        play = _play_bare if name == "bare" else _play_ours
        play(case, name, lambda said: connection.send(said | {"memory": peak_bytes()[1] - before}), connection.recv)
    except Exception as error:
        connection.send({"failure": f"{type(error).__name__}: {error}"[:300]})
    sys.stdout.flush()
    os._exit(0)


Send = Callable[[dict[str, Any]], None]
Receive = Callable[[], dict[str, Any]]


def _play_bare(case: Case, _: str, send: Send, receive: Receive) -> None:
    import torch

    from .bare import BareLoop

    loop = BareLoop(case)
    send({})
    while True:
        command = receive()
        torch.set_num_threads(command["threads"])
        wall, processor = time.perf_counter(), time.process_time()
        steps = sum(loop.play(clients) for clients in command["clients"])
        send({"wall": time.perf_counter() - wall, "processor": time.process_time() - processor, "steps": steps})


def _play_ours(case: Case, plan: str, send: Send, receive: Receive) -> None:
    from .ours import play_run

    begin: list[float] = []

    def wait(facts: dict[str, Any] | None) -> None:
        if facts is None:
            send({})
        else:
            times = {"wall": time.perf_counter() - begin[0], "processor": time.process_time() - begin[1]}
            send(facts | times)
        receive()
        begin[:] = time.perf_counter(), time.process_time()

    play_run(case, plan, wait)
