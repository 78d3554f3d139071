"""Warn if classes and functions of users draw from generators without a seed: such runs differ each time, and nothing else says so."""

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from weakref import WeakSet

from fedcohort.core.random_streams import numpy_state, torch_state
from fedcohort.core.words.formatted_values import in_words

__all__ = [
    "ADVICE",
    "drawn_since",
    "generator_states",
    "is_own",
    "unseeded_states",
    "warning_of_draws",
    "warning_of_draws_in",
]

_FROM_RNG = "draw from the argument rng"
_WITH_SEED = "draw from a generator with a seed, such as np.random.default_rng(0)"
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
    "measures.extra": _WITH_SEED,
    "data.name": _WITH_SEED,
    "training.loss": "draw by functions of PyTorch, such as torch.rand, which are seeded for losses",
    "Cohort.stop": "draw from a generator with a seed, such as np.random.default_rng(progress.epoch)",
}
"""What to draw from instead, by the setting that names the class or function."""


_WARNED: "WeakSet[type]" = WeakSet()
"""Classes and functions that a warning has named: one is enough for all rounds and runs of a process."""


def is_own(plugin: object) -> bool:
    """Whether an object or a function is not part of FedCohort."""
    return (_named(plugin).__module__ or "").partition(".")[0] != "fedcohort"


def warning_of_draws(setting: str, plugin: object) -> AbstractContextManager[list[str]]:
    """:func:`warning_of_draws_in` of one plug-in."""
    return warning_of_draws_in({setting: plugin})


@contextmanager
def warning_of_draws_in(plugins: Mapping[str, object], known: Collection[str] = ()) -> Iterator[list[str]]:
    """Warn if the block draws from the global generators of numpy, Python or torch; does nothing for parts of FedCohort.

    A class or function gets one warning in a process, however many runs it plays. Draws of other threads count, too. If several
    plug-ins are of the user, the warning names all of them. The block receives a list that has the names of the generators afterwards.

    Args:
        plugins: the objects and functions that the block calls, by the setting that names them, one of :data:`ADVICE`.
        known: names of generators from which the block draws for another reason, of which the user has been warned.
    """
    own = {setting: _named(plugin) for setting, plugin in plugins.items() if is_own(plugin)}
    drawn: list[str] = []
    if not own:
        yield drawn
        return
    before = generator_states()
    yield drawn
    drawn += drawn_since(before, generator_states())
    told = [generator for generator in drawn if generator not in known]
    if not told or any(plugin in _WARNED for plugin in own.values()):
        return
    _WARNED.update(own.values())
    warnings.warn(_message(own, told), stacklevel=3)


def _message(own: Mapping[str, type], generators: Sequence[str]) -> str:
    """That these classes and functions, by setting, draw from ``generators``: one of them, if there are several."""
    which = ", or ".join(f"{setting}: {plugin.__name__}" for setting, plugin in own.items())
    if len(own) == 1:
        advice = ADVICE[next(iter(own))]
    else:
        which = f"{which},"
        advice = "; ".join(f"in {plugin.__name__}, {ADVICE[setting]}" for setting, plugin in own.items())
    return f"{which} draws from {in_words(generators)}, which FedCohort does not seed, so that a run cannot be repeated; {advice}"


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


def generator_states() -> dict[str, object]:
    """Those of :func:`unseeded_states`, and that of torch's global generator if torch is imported."""
    torch = {"torch's global generator": torch_state()} if "torch" in sys.modules else {}
    return unseeded_states() | torch
