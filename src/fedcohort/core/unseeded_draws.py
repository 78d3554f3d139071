"""Warn if classes and functions of users draw from generators without a seed: such runs differ each time, and nothing else says so."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from fedcohort.core.formatted_values import in_words
from fedcohort.core.random_streams import numpy_state, torch_state

__all__ = ["drawn_since", "is_own", "unseeded_states", "warning_of_draws"]

_FROM_RNG = "draw from the argument rng"
_BY_SEED = "draw from a generator that depends on the seed and the round only, such as np.random.default_rng([seed, t])"

ADVICE = {
    "selection": "draw from round.rng in select",
    "algorithm": "draw from problem.rng on clients, and from self.tools.rng(purpose, round) on the server",
    "federation.partition": _FROM_RNG,
    "federation.label_noise": _FROM_RNG,
    "federation.feature_shift": _FROM_RNG,
    "systems.latency": _BY_SEED,
    "systems.network": _BY_SEED,
    "systems.availability": _BY_SEED,
    "measures.extra": "draw from a generator with a seed, such as np.random.default_rng(0)",
}
"""What to draw from instead, by the setting that names the class or function."""


_WARNED: "WeakSet[type]" = WeakSet()
"""Classes and functions that a warning has named: one is enough for all rounds and runs of a process."""


def is_own(plugin: object) -> bool:
    """Whether an object or a function is not part of FedCohort."""
    return (_named(plugin).__module__ or "").partition(".")[0] != "fedcohort"


@contextmanager
def warning_of_draws(setting: str, plugin: object) -> Iterator[None]:
    """Warn if the block draws from the global generators of numpy, Python or torch; does nothing for parts of FedCohort.

    A class or function gets one warning in a process, however many runs it plays. Draws of other threads count, too.

    Args:
        setting: the setting that names the plug-in, one of :data:`ADVICE`.
        plugin: the object or function of the user that the block calls.
    """
    if not is_own(plugin) or _named(plugin) in _WARNED:
        yield
        return
    before = _states()
    yield
    if drawn := drawn_since(before, _states()):
        _WARNED.add(_named(plugin))
        warnings.warn(
            f"{setting}: {_named(plugin).__name__} draws from {in_words(drawn)}, which FedCohort does not seed, so that a run cannot "
            f"be repeated; {ADVICE[setting]}",
            stacklevel=3,
        )


def unseeded_states() -> dict[str, object]:
    """The states of the generators that FedCohort never seeds and never draws from, by their names in messages."""
    pythons = sys.modules.get("random")  # not imported, because no module of FedCohort may draw from it
    return {"numpy.random": numpy_state()} | ({"Python's random": pythons.getstate()} if pythons is not None else {})


def drawn_since(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """The names of the generators with another state than before."""
    return [generator for generator, state in after.items() if before.get(generator, state) != state]


def _named(plugin: object) -> type:
    """The class of an object; a function, and a class, stand for themselves."""
    return plugin if hasattr(plugin, "__name__") else type(plugin)  # type: ignore[return-value]


def _states() -> dict[str, object]:
    """Those of :func:`unseeded_states`, and that of torch's global generator if torch is imported."""
    torch = {"torch's global generator": torch_state()} if "torch" in sys.modules else {}
    return unseeded_states() | torch
