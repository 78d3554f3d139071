"""What a record says about the strategy and the availability of clients. No plug-in is imported, except for built-in ones."""

from typing import TYPE_CHECKING

import numpy as np

from fedcohort.core.cohort_sizes import k_in_round
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import defaults
from fedcohort.core.plugins import short_name
from fedcohort.core.words.formatted_values import number, setting
from fedcohort.experiment.plugin_facts import as_recorded
from fedcohort.record import Run

if TYPE_CHECKING:
    from fedcohort.experiment import Selection

__all__ = ["strategy_in_words", "was_available"]


def was_available(run: Run, round: int, client: int, available: int) -> bool | None:
    """Whether a client was available: this follows from the availability law, the seed, and whether the client has data.

    None if this is unknown: because the law is not a built-in one, since reading a record imports no plug-in; because its file is
    missing; or because the law has another number of available clients than the record, such as after a change of its file.

    Args:
        run: the run.
        round: the round.
        client: id of the client.
        available: the recorded number of available clients.
    """
    experiment, samples = run.described, run.portrait.facts.get("samples")
    if samples is not None and samples[client] == 0:
        return False
    law = experiment.systems.availability
    if law.name not in law.table.builtin:
        return None
    try:
        there = law.build().presence(experiment.federation.clients, experiment.rounds, experiment.seed)(round)
    except UsageError:  # such as a trace whose file is not there any more
        return None
    with_data = there if samples is None else there & (samples > 0)
    return bool(there[client]) if np.count_nonzero(with_data) == available else None


def strategy_in_words(run: Run, round: int) -> str:
    """Name and parameters of the strategy in a round; a strategy from Python is described in the head of the experiment file."""
    if strategy := run.described.handed_over.get("selector"):
        return strategy
    selection = run.described.selection
    defaults = _defaults(run, selection)
    own = {name: value for name, value in selection.parameters.items() if value != defaults.get(name)}
    settings = {"k": k_in_round(selection.k, selection.k_steps, round), **own}
    texts = {name: number(value) if isinstance(value, float) else setting(value) for name, value in settings.items()}
    return f"{short_name(selection.name)}({', '.join(f'{name} = {text}' for name, text in texts.items())})"


def _defaults(run: Run, selection: "Selection") -> dict[str, object]:
    """The default values of the strategy's parameters: those in the record, or else those of the built-in strategy."""
    facts = run.plug_ins.get("selection")
    if facts is not None:
        return dict(facts.get("defaults", {}))
    if selection.name not in selection.table.builtin:  # reading a record imports no plug-in
        return {}
    strategy = selection.table.find(selection.name, "selection.name")
    return {name: as_recorded(default) for name, default in defaults(strategy).items()}
