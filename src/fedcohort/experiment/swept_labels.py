"""The labels of the rows of a sweep."""

from collections.abc import Mapping, Sequence

from fedcohort.experiment.python_objects import in_label

__all__ = ["swept_labels"]


def swept_labels(
    labels: Sequence[str], settings: Sequence[Mapping[str, object]], strategies: Sequence[str | None]
) -> list[str]:
    """The label of every row of a sweep: its label without the sweep, then the settings of its point.

    A row that is named by its strategy is named by the one at its point: ``powd``, not ``uniform, name=powd``.

    Args:
        labels: the label of each row without the sweep.
        settings: the settings of each row's point of the sweep, by dotted key.
        strategies: for rows that are named by their strategy, the name of the one at their point; None for the others.
    """
    plain = [_label(label, own) for label, own in zip(labels, settings, strict=True)]
    named = [
        _label(strategy, _besides_name(own)) if strategy is not None and _names_strategy(own) else label
        for label, own, strategy in zip(plain, settings, strategies, strict=True)
    ]
    return named if len(set(named)) == len(named) else plain  # classes of two files can have the same name


def _names_strategy(settings: Mapping[str, object]) -> bool:
    choice = settings.get("selection")
    return "selection.name" in settings or isinstance(choice, str) or (isinstance(choice, Mapping) and "name" in choice)


def _besides_name(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a point without the name of the strategy."""
    rest: dict[str, object] = {}
    for key, value in settings.items():
        if key == "selection" and isinstance(value, Mapping):
            rest |= {inner: own for inner, own in value.items() if inner != "name"}
        elif key not in ("selection", "selection.name"):
            rest[key] = value
    return rest


def _label(name: str, settings: Mapping[str, object]) -> str:
    return ", ".join([name, *(f"{key.rpartition('.')[2]}={in_label(value)}" for key, value in settings.items())])
