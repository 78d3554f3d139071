"""Checks of the arrays that a data set is made of: features, labels, class names and ids of clients."""

import logging
import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import num_masked
from fedcohort.core.errors import UsageError, shown, without_addresses
from fedcohort.core.words.formatted_values import first_in_words
from fedcohort.federation.data.label_hints import instead_of_classes

__all__ = [
    "as_array", "brief", "check_class_names", "check_classes", "check_clients", "check_different",
    "check_features", "check_finite", "check_id_lengths", "check_known", "check_labels", "counts_from_one",
    "has_control_characters", "mention_missing_classes", "mention_untrained_class", "names_of_ids", "numbered",
]  # fmt: skip

FINITE_AT_ONCE = 2**20
"""Approximate number of values that are checked at a time, so that the check needs little memory."""
DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the text after them."""


log = logging.getLogger("fedcohort")


def brief(text: object, most: int = 60) -> str:
    """A text for a message: control characters as escapes, and if it is longer than ``most`` characters, without its middle.

    >>> brief("a\\nb"), brief("0123456789", most=7)
    ('a\\\\nb', '012…789')
    """
    whole = without_addresses(str(text))
    if len(whole) > 4 * most:
        whole = f"{whole[:most]}…{whole[-most:]}"
    escaped = "".join(c.encode("unicode_escape").decode() if _is_control(c) else c for c in whole)
    return escaped if len(escaped) <= most else f"{escaped[: most // 2]}…{escaped[len(escaped) - (most - 1) // 2 :]}"


def has_control_characters(text: str) -> bool:
    """Whether a text would break a line or a terminal, or cannot be written in UTF-8."""
    return any(map(_is_control, text))


def _is_control(character: str) -> bool:
    """Whether a character moves the cursor, ends a line, changes the direction of writing, or cannot be encoded."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in DIRECTIONS


def check_features(values: object, where: str) -> NDArray[Any]:
    """Features as uint8 or float images [N, C, H, W], or as float or int64 tables [N, d]; copied only if necessary.

    Args:
        values: numpy array, torch tensor or nested list.
        where: name of the data set and split, for messages.

    Raises:
        UsageError: wrong types, shapes or pixels, or values that are not finite.
    """
    where = f"{where} features"
    features = as_array(values, where)
    if features.dtype.kind not in "biuf" or features.ndim not in (2, 3, 4) or 0 in features.shape:
        _check_columns(values, where)
        raise UsageError(
            f"{where}: {features.dtype} {list(features.shape)}; must be numbers, tables [N, d] or images [N, H, W], "
            "[N, C, H, W] or [N, H, W, C], and not empty"
        )
    if features.ndim == 3:
        features = features[:, None]
    if features.ndim == 2 and features.dtype.kind in "iu":
        if features.dtype == np.uint64 and features.max() > np.iinfo(np.int64).max:
            raise UsageError(f"{where}: {features.max()}; integers must fit into 64 bits with a sign, or use floats")
        return np.ascontiguousarray(features, dtype=np.int64)
    if features.ndim == 2 or features.dtype.kind == "f":
        return _as_floats(features, where)
    if features.shape[1] not in (1, 3) and features.shape[3] in (1, 3):
        features = features.transpose(0, 3, 1, 2)
    if features.dtype == np.bool_:
        features = features * np.uint8(255)
    elif features.dtype != np.uint8 and not 0 <= features.min() <= features.max() <= 255:
        raise UsageError(f"{where}: pixels {features.min()}..{features.max()}; integers must be 0..255, or use floats")
    return np.ascontiguousarray(features, dtype=np.uint8)


def _check_columns(values: object, where: str) -> None:
    """Refuse a pandas table with columns that hold no numbers."""
    kinds: Any = getattr(values, "dtypes", None)
    types = kinds.items() if hasattr(values, "columns") and hasattr(kinds, "items") else ()
    if texts := [f"{shown(name)} ({kind})" for name, kind in types if getattr(kind, "kind", "O") not in "biuf"]:
        named = f"column{'s' * (len(texts) > 1)} {first_in_words(texts, 5, 'more column')}"
        raise UsageError(f"{where}: no numbers in {named}; encode them, as pandas.get_dummies does, or leave them out")


def _as_floats(features: NDArray[np.generic], where: str) -> NDArray[np.generic]:
    """Tables and float images; tables of 64 bits and more, in any order of bytes, become float64, all others float32."""
    is_double = features.ndim == 2 and features.dtype.kind == "f" and features.dtype.itemsize >= 8
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(features, dtype=np.float64 if is_double else np.float32)
    check_finite(features, where)
    return features


def check_finite(features: NDArray[np.generic], where: str) -> None:
    """Refuse features that are NaN or infinite.

    Raises:
        UsageError: there are such values; the message has their number, and the sample of the first.
    """
    if features.dtype.kind != "f":
        return
    rows = max(1, FINITE_AT_ONCE // max(1, math.prod(features.shape[1:])))
    parts = (features[start : start + rows] for start in range(0, len(features), rows))
    if bad := features.size - sum(np.count_nonzero(np.isfinite(part)) for part in parts):
        first = next(i for i, sample in enumerate(features) if not np.isfinite(sample).all())
        values, it = ("value is", "it") if bad == 1 else ("values are", "them")
        raise UsageError(
            f"{where}: {bad} {values} NaN or infinite as {features.dtype}, the first in sample {first}, numbered from 0; drop or "
            f"replace {it}"
        )


def check_labels(values: object, where: str) -> NDArray[np.int64]:
    """Labels as int64 [N].

    Raises:
        UsageError: no labels, or not integers [N].
    """
    labels = as_array(values, f"{where} labels")
    if labels.ndim == 1 and len(labels) == 0:
        raise UsageError(f"{where} split: has no samples; at least one is needed")
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        raise UsageError(f"{where} labels: must be integers 0..K-1 [N], {instead_of_classes(labels)}")
    if labels.dtype == np.uint64 and labels.max() > np.iinfo(np.int64).max:
        raise UsageError(f"{where} labels: {labels.max()}; must be integers 0..K-1 [N]")
    return labels.astype(np.int64, copy=False)


def check_classes(
    given: Sequence[str] | None, train: NDArray[np.int64], test: NDArray[np.int64], where: str
) -> tuple[str, ...]:
    """The class names, one for each label; without ``given`` names, ``"0"`` up to the highest label.

    Raises:
        UsageError: a label below 0, a label without a class, or a class name with control characters.
    """
    if given is not None:
        check_class_names(given, where)
    num_samples = len(train) + len(test)
    _check_first_label(given, train, test, where)
    for split, labels in (("train", train), ("test", test)):
        low, high = int(labels.min()), int(labels.max())
        num_classes = num_samples if given is None else len(given)
        if low < 0 or high >= num_classes:
            hint = "; -1 usually marks unlabeled samples" if low == -1 else ""
            limit = f"{num_classes} {'samples' if given is None else 'classes'}"
            raise UsageError(f"{where}: {split} labels: {low if low < 0 else high} with {limit}; must be 0..K-1{hint}")
    numbers = range(max(int(train.max()), int(test.max())) + 1)
    if given is None and train.ndim == 1:
        mention_missing_classes(np.union1d(train, test), where)
    return tuple(str(c) for c in (numbers if given is None else given))


def mention_untrained_class(
    classes: Sequence[str], train: NDArray[np.int64], test: NDArray[np.int64], where: str, *, are_images: bool
) -> None:
    """Mention a class with test samples and without training samples, as another name or number in one of the splits makes it."""
    samples = "images" if are_images else "samples"
    for c in np.setdiff1d(test, train)[:1]:
        log.warning(
            "%s: class '%s' has test %s (%d) and no training %s; if it has another name in the training %s, rename it",
            where, brief(str(classes[c])), samples, np.sum(test == c), samples, samples,
        )  # fmt: skip


def mention_missing_classes(labels: NDArray[np.int64], where: str) -> None:
    """Report that only class 0 is among the ``labels`` that occur, or that many below the largest are not: they count as classes."""
    last, missing = int(labels[-1]), int(labels[-1]) + 1 - len(labels)
    if len(labels) == 1 and last == 0:
        log.warning("%s: all labels are 0, so there is nothing to predict", where)
    elif missing > len(labels):
        log.warning(
            "%s: labels up to %d make %d classes, but %d of them have no sample; number the classes 0, 1, 2, ...",
            where, last, last + 1, missing,
        )  # fmt: skip


def _check_first_label(
    given: Sequence[str] | None, train: NDArray[np.int64], test: NDArray[np.int64], where: str
) -> None:
    """Refuse labels that count from 1: without class names, class 0 would have no samples.

    Raises:
        UsageError: the labels are 1..K without gaps, and no or K class names are given.
    """
    high = counts_from_one(np.union1d(train, test), gaps=given is not None)
    if high < 2 or (given is not None and len(given) != high):
        return
    more = f", or name {high + 1} classes if class 0 has no samples" if given is None else ""
    raise UsageError(
        f"{where}: labels are 1..{high}; must be 0..{high - 1}: subtract 1 from each label (labels - 1){more}"
    )


def counts_from_one(labels: NDArray[np.int64], *, gaps: bool = False) -> int:
    """The highest label K if the labels are 1..K, otherwise 0.

    Args:
        labels: integers [N].
        gaps: whether some of the labels between 1 and K may be missing.
    """
    different = np.unique(labels)
    if not len(different) or different[0] != 1 or (not gaps and len(different) < different[-1]):
        return 0
    return int(different[-1])


def check_class_names(names: Sequence[object], where: str) -> None:
    """Refuse class names that would break a table or a terminal.

    Raises:
        UsageError: not a list of names, or a name with a line break or another control character.
    """
    flat = not isinstance(names, np.ndarray) or names.ndim == 1
    if isinstance(names, str | bytes | set) or not isinstance(names, Collection) or not flat:
        raise UsageError(f"{where}: classes = {shown(names)}: should be a list with the name of each class")
    for number, name in enumerate(names):
        if has_control_characters(str(name)):
            problem = f"class {number}, '{brief(name)}': the name contains control characters"
            raise UsageError(f"{where}: {problem}; rename the class, or its folder, with visible characters")


def check_different(names: Sequence[object] | None, where: str) -> None:
    """Refuse class names that are not different.

    Raises:
        UsageError: two classes have the same name, or it is no list of names.
    """
    if names is None:
        return
    check_class_names(names, where)
    given = list(map(str, names))
    if len(set(given)) < len(given):
        ((twice, _),) = Counter(given).most_common(1)
        raise UsageError(f"{where}: classes: '{brief(twice)}' appears twice; give every class a name of its own")


def check_known(numbers: NDArray[np.int64], ids: NDArray[np.generic], tested: NDArray[np.generic], where: str) -> None:
    """Refuse clients of test samples of which none has training samples.

    Raises:
        UsageError: it is so.
    """
    if len(numbers) and numbers.max() < 0:
        first, other = tested[0].item(), ids[0].item()
        raise UsageError(
            f"{where}: no id in test_clients, such as {shown(first)}, is among those of the training samples, such as {shown(other)}; "
            "use the same ids in both, or leave test_clients out to test on other clients than those that train"
        )


LONGEST_ID = 1000
"""Maximum number of characters of the id of a client."""


def check_id_lengths(ids: NDArray[np.generic], where: str) -> None:
    """Refuse very long ids: an array of strings has room for the longest one in every place.

    Raises:
        UsageError: a string has more than :data:`LONGEST_ID` characters.
    """
    longest = max((value for value in ids.flat if isinstance(value, str)), key=len, default="")
    if len(longest) > LONGEST_ID:
        raise UsageError(
            f"{where}: the id '{brief(longest)}' has {len(longest)} characters; use ids of at most {LONGEST_ID}"
        )


def check_clients(values: object, where: str, argument: str = "clients") -> NDArray[Any]:
    """Ids of clients, integers or strings [N].

    Args:
        values: the id of the client of each sample.
        where: name of the data set, for messages.
        argument: name of the argument, for messages.

    Raises:
        UsageError: not integers or strings [N].
    """
    ids = as_array(values, f"{where}: {argument}")
    check_id_lengths(ids, f"{where}: {argument}")
    if ids.dtype == object and ids.ndim == 1 and all(isinstance(value, str) for value in ids):
        ids = ids.astype(np.str_)
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise UsageError(f"{where}: {argument} must be integers or strings [N], not {ids.dtype} {list(ids.shape)}")
    return ids


def numbered(ids: NDArray[Any], known: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Ids of clients as numbers: 0..W-1 in the sorted order of the different ids.

    Args:
        ids: the id of the client of each sample [N].
        known: number by the different ids in this array instead; an id that is not among them gets −1.

    >>> numbered(np.array(["b", "a", "b"])).tolist(), numbered(np.array([7, 9]), known=np.array([9, 9, 5])).tolist()
    ([1, 0, 1], [-1, 1])
    """
    if known is None:
        return np.unique(ids, return_inverse=True)[1].astype(np.int64, copy=False)
    different = np.unique(known)
    places = np.minimum(np.searchsorted(different, ids), len(different) - 1)
    return np.where(different[places] == ids, places, -1).astype(np.int64, copy=False)


def names_of_ids(ids: NDArray[np.generic]) -> tuple[str, ...]:
    """The different ids of clients as texts, in the order of their numbers, see :func:`numbered`.

    >>> names_of_ids(np.array(["b", "a", "b"]))
    ('a', 'b')
    """
    return tuple(map(str, np.unique(ids).tolist()))


def as_array(values: object, where: str) -> NDArray[Any]:
    """A numpy array, a torch tensor or a nested list as a numpy array.

    Args:
        values: what a user gave.
        where: name of the data set and of the array, for messages.

    Raises:
        UsageError: it cannot become an array, is sparse, or has masked values.
    """
    if hasattr(values, "toarray"):
        raise UsageError(
            f"{where}: is a sparse matrix ({type(values).__name__}); give a dense array, such as its .toarray()"
        )
    if hidden := num_masked(values):
        raise UsageError(f"{where}: {hidden} values are masked; drop or replace them")
    try:
        return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    # NotImplementedError and RuntimeError: tensors without values, and sparse tensors
    except (NotImplementedError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: not an array ({brief(error, 120)})") from None
