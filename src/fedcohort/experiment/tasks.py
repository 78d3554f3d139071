"""Which strategies, algorithms and settings work with classes, and which with numeric labels; the loss decides between the two."""

from fedcohort.algorithms import LOSSES, Algorithm
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import LabelKind
from fedcohort.selection import Selector

__all__ = ["check_labels", "check_task", "label_kind"]


def label_kind(training: Training) -> LabelKind:
    """The kind of labels that the loss is for."""
    name = training.loss["name"]
    return "numbers" if LOSSES.find(name, "training.loss.name").numeric else "classes"


def check_task(training: Training, label_noise: str, selector: Selector, algorithm: Algorithm) -> None:
    """Refuse what cannot work with the labels that the loss is for, before anything is trained.

    Args:
        training: the settings of training, with the loss.
        label_noise: name of the label noise.
        selector: the strategy.
        algorithm: the algorithm.

    Raises:
        UsageError: the strategy, the algorithm or the label noise cannot; the message says why.
    """
    kind, loss = label_kind(training), training.loss["name"]
    wanted = "numeric labels" if kind == "numbers" else "classes"
    for where, plugin in (("selection", selector), ("algorithm", algorithm)):
        reason = plugin.refuses(kind)
        if reason:
            raise UsageError(
                f"{where}: {type(plugin).__name__} cannot work with {wanted} (training.loss = {loss!r}): {reason}"
            )
    if kind == "numbers" and label_noise != "none":
        raise UsageError(
            f"federation.label_noise.name = {label_noise!r}: exchanges classes, but training.loss = {loss!r} is for numbers; "
            "use 'none'"
        )


def check_labels(training: Training, *, numeric: bool, data: str) -> None:
    """Refuse a loss that is not for the labels of the data.

    Args:
        training: the settings of training, with the loss.
        numeric: whether the labels are numbers.
        data: name of the data set.

    Raises:
        UsageError: the loss is for the other kind of labels.
    """
    loss = training.loss["name"]
    if numeric and label_kind(training) == "classes":
        raise UsageError(
            f"training.loss = {loss!r}: is for classes, and the labels of {data!r} are numbers; use 'mse' or 'huber'"
        )
    if not numeric and label_kind(training) == "numbers":
        raise UsageError(
            f"training.loss = {loss!r}: is for numeric labels, and those of {data!r} are classes; use 'ce', or say "
            "that they are numbers: data.numeric = true, or fedcohort.from_arrays(…, numeric=True)"
        )
