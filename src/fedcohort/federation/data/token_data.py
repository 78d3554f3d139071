"""Data sets of sequences of tokens, for next-token prediction and for sequence classification."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.words.formatted_values import counted
from fedcohort.federation.data.array_checks import (
    as_array,
    brief,
    check_class_names,
    check_classes,
    check_different,
    check_labels,
)
from fedcohort.federation.data.client_ids import numbers_of_clients
from fedcohort.federation.data.datasets import MAX_NAME, Dataset, fingerprint_of_content

__all__ = ["TokenDataset", "from_tokens"]


@dataclass(frozen=True, eq=False, repr=False)
class TokenDataset(Dataset):
    """Sequences of tokens, all of the same length L. Make one with :func:`from_tokens`.

    The fields are those of :class:`Dataset`, with ``train_features`` and ``test_features`` int64 [N, L] in 0..``vocabulary``-1, and
    labels int64 [N], or [N, L] with a label for each position. Tokens reach the network as they are.

    Raises:
        UsageError: arrays that do not fit together.
    """

    vocabulary: int = 0
    """Number of different tokens."""
    tokens: tuple[str, ...] = ()
    """The names of the tokens."""
    standardise: bool = False
    """Always False: tokens are not standardized."""

    def __post_init__(self) -> None:
        where = brief(self.name)
        if self.standardise:
            raise UsageError(
                f"data.standardise = True: {where} has sequences of tokens, which are no numbers; leave it out"
            )
        for split, tokens, labels in self._splits():
            for part, array in (("tokens", tokens), ("labels", labels)):
                if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim not in (1, 2):
                    raise UsageError(
                        f"{where}: {split} {part}: must be int64 arrays; make the data set with from_tokens"
                    )
            kind = "tokens" if self.classes == self.tokens else "classes"
            _check_pair(tokens, labels, self.vocabulary, (len(self.classes), kind), f"{where}: {split}")
        shapes = [
            f"{counted(tokens.shape[1], 'token')} and {'a label for each position' if labels.ndim == 2 else 'one label'}"
            for _, tokens, labels in self._splits()
        ]
        if shapes[0] != shapes[1]:
            raise UsageError(
                f"{where}: train and test sequences have other shapes, {shapes[0]}, or {shapes[1]}; cut all to the same length, and "
                "give both the same kind of labels"
            )
        check_classes(self.classes, self.train_labels.ravel(), self.test_labels.ravel(), where)
        if self.writers is not None and len(self.writers) != self.num_train:
            raise UsageError(f"{where}: {self.num_train} training sequences but {len(self.writers)} clients")

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.name}: {self.num_train:,} training and {len(self.test_labels):,} test sequences of "
            f"{self.train_features.shape[1]} tokens out of {self.vocabulary}, {self._task}>"
        )

    @property
    def _task(self) -> str:
        if self.each_position and self.classes == self.tokens:
            return "a label for each position"
        return f"{self.num_classes} classes{', one for each position' * self.each_position}"

    @property
    def each_position(self) -> bool:
        """Whether every position has a label, as in next-token prediction."""
        return self.train_labels.ndim == 2


def from_tokens(
    train: tuple[object, object],
    test: tuple[object, object],
    *,
    vocabulary: int | Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    name: str = "tokens",
    clients: object = None,
) -> TokenDataset:
    """Make a data set from sequences of integer tokens: numpy arrays, torch tensors or nested lists.

    Args:
        train, test: (tokens, labels). Tokens are integers 0..V-1 [N, L]. Labels are

            * integers 0..K-1 [N]: the class of each sequence (sequence classification);
            * integers [N, L]: the label of each position, such as the token that follows it (next-token prediction), 0..V-1; or, with
              ``classes``, its class, 0..K-1. Every position counts: there is no value that marks padding.
        vocabulary: the number of tokens V, or the name of each; default: the highest token plus one.
        classes: names of the K classes; default: ``"0"`` up to the highest label. With a label for each position, the classes are the
            tokens by default.
        name: name of the data set in messages and tables.
        clients: the client (role, author, device) of each training sequence [N], integers or strings, for
            ``partition = "natural"``.

    Raises:
        UsageError: an array that cannot be used; the message names the array and the problem.
    """
    where = brief(name)
    for split, pair in (("train", train), ("test", test)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"{where}: {split} = {shown(pair)}: should be a pair (tokens, labels)")
    arrays: list[NDArray[np.int64]] = []  # tokens and labels of both splits
    for split, (tokens, labels) in (("train", train), ("test", test)):
        arrays.append(_integers(tokens, f"{where}: {split} tokens", "integers 0..V-1 [N, L]"))
        if getattr(labels, "ndim", None) == 2 or _is_nested(labels):
            arrays.append(_integers(labels, f"{where}: {split} labels", "integers [N] or [N, L]"))
        else:
            arrays.append(check_labels(labels, f"{where}: {split}"))
    train_tokens, train_labels, test_tokens, test_labels = arrays
    each_position = train_labels.ndim == 2
    labels_are_tokens = each_position and classes is None
    names = _token_names(vocabulary, arrays if labels_are_tokens else [train_tokens, test_tokens], where)
    check_different(classes, where)
    limit = (len(names), "tokens") if classes is None else (len(classes), "classes")
    for split, tokens, labels in (("train", train_tokens, train_labels), ("test", test_tokens, test_labels)):
        _check_pair(tokens, labels, len(names), limit, f"{where}: {split}")
    kept = names if labels_are_tokens else check_classes(classes, train_labels.ravel(), test_labels.ravel(), where)
    ids, _, client_names = numbers_of_clients(clients, None, None, where)
    fingerprint = fingerprint_of_content((*kept, f"{len(names)} tokens"), *arrays, ids)
    return TokenDataset(
        brief(name, MAX_NAME), train_tokens, train_labels, test_tokens, test_labels, kept, fingerprint, ids,
        vocabulary=len(names), tokens=names, client_names=client_names,
    )  # fmt: skip


def _is_nested(labels: object) -> bool:
    """Whether labels are a list of lists."""
    return isinstance(labels, list | tuple) and len(labels) > 0 and isinstance(labels[0], list | tuple)


def _integers(values: object, where: str, form: str) -> NDArray[np.int64]:
    """A matrix of integers as int64."""
    try:
        array = as_array(values, where)
    except UsageError as error:
        hint = "; cut or pad all sequences to the same length" if "inhomogeneous" in str(error) else ""
        raise UsageError(f"{error}{hint}") from None
    if array.ndim != 2 or array.dtype.kind not in "iu" or 0 in array.shape:
        raise UsageError(f"{where}: {array.dtype} {list(array.shape)}; must be {form}, and not empty")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise UsageError(f"{where}: {array.max()} is too large; must be {form}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _token_names(given: int | Sequence[str] | None, arrays: Sequence[NDArray[np.int64]], where: str) -> tuple[str, ...]:
    """The names of the tokens; their number is the size of the vocabulary."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        check_class_names(given, f"{where}: vocabulary")
        names = tuple(map(str, given))
    elif given is None or (isinstance(given, int) and not isinstance(given, bool)):
        highest = max(int(array.max()) for array in arrays)
        size = given if given is not None else highest + 1
        if not 0 < size <= 10_000_000:
            raise UsageError(f"{where}: vocabulary = {size}: should be a number of tokens from 1 to 10,000,000")
        names = tuple(map(str, range(size)))
    else:
        raise UsageError(
            f"{where}: vocabulary = {shown(given)}: should be a number of tokens, or a list of their names"
        )
    if not names:
        raise UsageError(f"{where}: vocabulary = []: should name at least one token")
    return names


def _check_pair(
    tokens: NDArray[np.int64], labels: NDArray[np.int64], vocabulary: int, classes: tuple[int, str], where: str
) -> None:
    """Refuse tokens outside the vocabulary, and labels that do not fit to them; classes of sequences are checked elsewhere.

    ``classes`` are the number of classes of positions, and what they are: tokens or classes.
    """
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise UsageError(f"{where} tokens: {list(tokens.shape)}; must be [N, L], and not empty")
    if len(tokens) != len(labels):
        raise UsageError(f"{where} has {len(tokens)} sequences but {len(labels)} labels")
    if labels.ndim == 2 and labels.shape != tokens.shape:
        raise UsageError(
            f"{where} labels: {list(labels.shape)} for tokens {list(tokens.shape)}; give one label for each sequence [N], or one for "
            "each position [N, L]"
        )
    limits = ("tokens", tokens, vocabulary, "tokens"), ("labels", labels, *classes)
    for part, array, number, of in limits[: 1 + (labels.ndim == 2)]:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= number:
            hint = "; no value marks padding: cut windows in which every position has a label" if low < 0 else ""
            raise UsageError(
                f"{where} {part}: {low if low < 0 else high} with {number} {of}; must be 0..{number - 1}{hint}"
            )
