"""Signals that end a run after its round."""

import signal
import subprocess
import sys

A_SIGNAL_IN_THE_HANDLER = """
import multiprocessing, signal, sys
from fedcohort.runs.stop_after_round import finish_the_round

multiprocessing.parent_process = lambda: object()  # as in a process of --jobs, which handles all signals

def stopped(moment):
    left = [moment]

    def send(frame, event, _):
        if event in ("call", "return"):
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGTERM)
        return send

    with finish_the_round() as stop:
        sys.settrace(send)
        signal.raise_signal(signal.SIGINT)
        sys.settrace(None)
    return stop

for moment in range(20):
    stop = stopped(moment)
    print(stop.asked, stop.signum)
"""


def test_a_signal_while_another_one_is_handled_does_not_wait_for_it() -> None:
    """The terminal sends Ctrl-C to all processes, and the command asks them to stop at the same time: one waited for its own lock."""
    script = [sys.executable, "-c", A_SIGNAL_IN_THE_HANDLER]
    printed = subprocess.run(script, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    first, second = f"True {signal.SIGINT.value}", f"True {signal.SIGTERM.value}"
    assert len(printed) == 20
    assert set(printed) == {first, second}, "some of the second signals came before the first one was handled"
