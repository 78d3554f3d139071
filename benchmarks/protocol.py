"""The protocol between the benchmark and a contestant: a process that reads the number of a round, plays it, and reports the time.

    {"ready": …}  ←  3  →  {"seconds": 0.21, "steps": 300, "gpu_gb": 0.0, "learned": […]}

All other output of a library goes to standard error.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

from works import Work, work

__all__ = ["arguments", "serve"]


def arguments(parser: argparse.ArgumentParser | None = None) -> tuple[argparse.Namespace, Work]:
    """The arguments of the command line, and the workload that they name."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--work", default="W2")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--arithmetic", default="exact", choices=["exact", "tf32", "bf16"], help="the arithmetic of a GPU"
    )
    parser.add_argument("--epochs", type=int, help="local epochs of a round, instead of those of the workload")
    args = parser.parse_args()
    return args, work(args.work, args.turns, args.quick, args.epochs)


def serve(
    play: Callable[[int], int],
    gpu_bytes: Callable[[], int] = lambda: 0,
    learned: Callable[[], list[float]] = list,
    **facts: object,
) -> None:
    """Play rounds on request, until standard input ends.

    ``play(round)`` returns the number of steps, ``gpu_bytes()`` the peak memory of the GPU so far, and ``learned()`` the distance
    that each parameter has moved, for contestants in which it should be the same. ``facts`` are reported at the start.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"ready": True, **facts}), file=out, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        steps = play(int(line))
        seconds = time.perf_counter() - begin
        told = {"seconds": seconds, "steps": steps, "gpu_gb": gpu_bytes() / 2**30, "learned": learned()}
        print(json.dumps(told), file=out, flush=True)
    out.flush()
    os._exit(0)
