"""The rows of a race: those of an experiment, or all strategies that it can use."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedcohort.core.errors import LONGEST, UsageError, nearest, shown
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.nested_values import nested
from fedcohort.experiment.sweep_checks import check_sweep
from fedcohort.selection import STRATEGIES
from fedcohort.study.run_comparison import PlannedRow, planned_rows

if TYPE_CHECKING:
    from fedcohort.algorithms import Algorithm
    from fedcohort.selection import Selector

__all__ = ["MAX_ROWS", "candidates"]

MAX_ROWS = 500
"""Largest number of rows of a race, since all pairs of rows are compared."""

Grid = Mapping[str, Sequence[Any]]


def candidates(
    experiment: Experiment,
    given: Given,
    *,
    selector: "Selector | Mapping[str, Selector] | None" = None,
    algorithm: "Algorithm | Mapping[str, Algorithm] | None" = None,
    strategies: Sequence[str] = (),
    over: Grid | None = None,
    labels: Sequence[str] = (),
) -> tuple[list[PlannedRow], dict[str, str]]:
    """The rows of a race, and the strategies that cannot take part, each with the reason.

    Args:
        experiment: its rows race. If it has one row only, all built-in strategies that it can use race.
        given: objects from Python that replace settings.
        selector, algorithm: as for :func:`fedcohort.compare`.
        strategies: names of the strategies that race, in place of all.
        over: dotted key → values; every row races with each combination. A parameter of a strategy that another strategy does not have
            does not vary for the other one; one of them must have it.
        labels: labels of the rows that race, in place of all; what is wrong with other rows does not matter.

    Raises:
        UsageError: a row cannot be run, there are too few or too many rows, or no row has one of the labels.
    """
    strategies, labels = _texts("strategies", strategies), _texts("labels", labels)
    for key, values in (over or {}).items():
        check_sweep(key, list(values), "over ")
    several = experiment.variants or experiment.sweep or selector is not None or isinstance(algorithm, Mapping)
    if strategies and several:
        raise UsageError(
            f"strategies = {shown(strategies)}: the experiment has rows of its own; leave one of the two out, or choose rows by their "
            "labels (in commands: --row)"
        )
    skipped: dict[str, str] = {}
    if several:
        rows = _with_labels(planned_rows(_swept(experiment, over or {}), given, selector, algorithm), labels, {})
        for row in rows:
            row.check()
    else:
        given_rows = planned_rows(experiment, given, None, algorithm)[0].given
        rows = _all_strategies(experiment, given_rows, strategies, over or {}, skipped)
        rows = _with_labels(rows, labels, skipped)
    if not 2 <= len(rows) <= MAX_ROWS:
        problem = "a race needs at least 2" if len(rows) < 2 else f"at most {MAX_ROWS} can race"
        raise UsageError(f"rows = {len(rows)}: {problem}; change the variants, the sweep or the strategies")
    return rows, {} if labels else skipped


def _texts(name: str, given: object) -> list[str]:
    """The names that an argument lists; a single one may stand alone.

    Raises:
        UsageError: it is no list.
    """
    if given is None or isinstance(given, str):
        return [given] if given else []
    names: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(each, str) for each in names):
        raise UsageError(f"{name} = {shown(given)}: give a list of names, such as ['uniform', 'ucb']")
    return names


def _swept(experiment: Experiment, over: Grid) -> Experiment:
    """The experiment with each combination of values for each of its rows.

    Raises:
        UsageError: a row cannot have one of the values.
    """
    try:
        return experiment.with_overrides({"sweep": dict(over)}) if over else experiment
    except UsageError as error:
        raise UsageError(f"over {str(error).removeprefix('sweep: ')}") from None


def _with_labels(rows: Sequence[PlannedRow], labels: Sequence[str], skipped: Mapping[str, str]) -> list[PlannedRow]:
    """The rows with these labels, in the order of ``rows``; all of them without any label.

    Args:
        rows: the rows that can race.
        labels: the labels.
        skipped: strategies that cannot race, each with the reason.

    Raises:
        UsageError: no row has one of the labels, or fewer than two rows are left.
    """
    if not labels:
        return list(rows)
    known = [row.label for row in rows]
    for label in labels:
        if label in skipped:
            raise UsageError(f"labels = {shown(label)}: cannot race: {skipped[label]}")
        if label not in known:
            raise UsageError(f"labels = {shown(label)}: no row has this label; {nearest(str(label), known)}")
    chosen = [row for row in rows if row.label in labels]
    if len(chosen) < 2:
        raise UsageError(f"labels = {shown(chosen[0].label)}: a race needs at least 2 rows; name more of them")
    return chosen


def _all_strategies(
    experiment: Experiment, given: Given, names: Sequence[str], over: Grid, skipped: dict[str, str]
) -> list[PlannedRow]:
    """One row for each strategy and each combination of values. Unusable strategies are ``skipped``, unless they are ``names``.

    Raises:
        UsageError: one of ``names``, or every strategy, cannot be used.
    """
    _check_distinct(names)
    rows = []
    for name in names or STRATEGIES.builtin:
        try:
            rows += _varied(experiment, given, name, over)
        except UsageError as error:
            if names:
                raise
            skipped[name] = str(error)
    if not rows:
        raise UsageError(_no_strategy(skipped))
    raced = [name for name in names or STRATEGIES.builtin if name not in skipped]
    _check_applies(over, [STRATEGIES.find(name, "strategies") for name in raced])
    return rows


def _no_strategy(skipped: Mapping[str, str]) -> str:
    """Why no strategy can race, in one line: the reason that all have, or as many of the most common
    reasons as fit, each with one strategy."""
    reasons: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        reasons.setdefault(reason.replace(repr(name), "…"), []).append(name)
    if len(reasons) == 1:
        return next(iter(skipped.values()))
    names = sorted(reasons.values(), key=len, reverse=True)
    told = [f"{skipped[own[0]]} ({own[0]}{f' and {len(own) - 1} more' * (len(own) > 1)})" for own in names]
    lines = []
    for number in range(len(told), 0, -1):
        rest = sum(map(len, names[number:]))
        more = f"; {rest} for other reasons" if rest else ""
        lines.append(f"strategies: none of {len(skipped)} can race: {'; '.join(told[:number])}{more}")
    return next((line for line in lines if len(line) <= LONGEST), lines[-1])


def _check_distinct(names: Sequence[str]) -> None:
    """Refuse a strategy that is named twice, since its rows would race against themselves."""
    found = [STRATEGIES.find(name, "strategies") for name in names]
    for i, name in enumerate(names):
        if found[i] in found[:i]:
            raise UsageError(f"strategies = {shown(list(names))}: {name!r} is given twice; give each strategy once")


def _check_applies(over: Grid, raced: Sequence[type]) -> None:
    """Refuse a setting that none of the raced strategies has; if no strategy can race, this is said elsewhere."""
    for key, values in over.items():
        if raced and not any(_applies(key, cls) for cls in raced):
            known = {"k"}.union(*(getattr(cls, "__pydantic_fields__", ()) for cls in raced))
            parameter = key.partition(".")[2]
            hint = "name the strategies of the race instead" if parameter == "name" else nearest(parameter, known)
            raise UsageError(f"over {key} = {shown(list(values))}: no strategy in the race has this parameter; {hint}")


def _varied(experiment: Experiment, given: Given, name: str, over: Grid) -> list[PlannedRow]:
    """The rows of a strategy: one for each combination of the values that apply to it.

    Raises:
        UsageError: the strategy cannot be used with the experiment.
    """
    cls = STRATEGIES.find(name, "strategies")
    own = {key: values for key, values in over.items() if _applies(key, cls)}
    rows = [
        _row(experiment, given, name, dict(zip(own, point, strict=True))) for point in itertools.product(*own.values())
    ]
    for row in rows:
        row.check()
    return rows


def _row(experiment: Experiment, given: Given, name: str, settings: Mapping[str, object]) -> PlannedRow:
    """The row of a strategy with some settings."""
    chosen = experiment.with_overrides({"selection": {"name": name}})
    varied = chosen.with_overrides(nested(settings, "over")) if settings else chosen
    words = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
    return PlannedRow(f"{varied.label}, {words}" if words else varied.label, varied, given)


def _applies(key: str, strategy: type) -> bool:
    """Whether a setting is one of an experiment with this strategy."""
    section, _, parameter = key.partition(".")
    return section != "selection" or parameter == "k" or parameter in getattr(strategy, "__pydantic_fields__", ())
