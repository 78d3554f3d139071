"""Data sets of sequences of tokens, and what federations count in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.token_shape import TokenShape
from fedcohort.federation.data.datasets import part
from fedcohort.federation.data.token_data import TokenDataset, from_tokens
from fedcohort.federation.describe_federation import portrait, survey
from fedcohort.federation.federation import gather
from fedcohort.federation.latency import Share, ShiftedExponential
from fedcohort.federation.partition import Iid, partition
from fedcohort.federation.partitions.natural import Natural
from fedcohort.federation.position_labels import by_position, label_counts, strata

TOKENS = np.array([[0, 1, 2], [2, 1, 0], [3, 3, 3], [1, 1, 2]])
NEXT = np.array([[1, 2, 3], [1, 0, 0], [3, 3, 0], [1, 2, 2]])
CLASSES = np.array([0, 1, 1, 0])


def pairs(labels: np.ndarray, **values: Any) -> TokenDataset:
    return from_tokens((TOKENS, labels), (TOKENS[:2], labels[:2]), **values)


def test_tokens_stay_as_they_were_given() -> None:
    data = pairs(NEXT, vocabulary=["a", "b", "c", "d"], clients=["x", "y", "x", "y"])
    assert data.train_features.dtype == data.train_labels.dtype == np.int64
    assert data.train_features.tolist() == TOKENS.tolist()
    assert data.train_labels.tolist() == NEXT.tolist()
    assert data.classes == ("a", "b", "c", "d")
    assert (data.vocabulary, data.each_position) == (4, True)
    assert data.writers is not None
    assert data.writers.tolist() == [0, 1, 0, 1]
    assert (
        repr(data)
        == "<Dataset tokens: 4 training and 2 test sequences of 3 tokens out of 4, a label for each position>"
    )
    by_class = pairs(CLASSES, vocabulary=9, classes=["no", "yes"])
    assert (by_class.classes, by_class.vocabulary, by_class.each_position) == (("no", "yes"), 9, False)
    assert repr(by_class).endswith("3 tokens out of 9, 2 classes>")
    assert pairs(CLASSES).vocabulary == 4, "the highest token plus one"
    lists = from_tokens((TOKENS.tolist(), NEXT.tolist()), (torch.tensor(TOKENS[:2]), torch.tensor(NEXT[:2])))
    assert lists.fingerprint == pairs(NEXT).fingerprint


def test_the_fingerprint_is_that_of_the_content() -> None:
    prints = [
        pairs(NEXT).fingerprint,
        pairs(CLASSES).fingerprint,
        pairs(CLASSES, vocabulary=9).fingerprint,
        pairs(NEXT, vocabulary=["a", "b", "c", "d"]).fingerprint,
        pairs(NEXT, clients=[0, 0, 1, 1]).fingerprint,
    ]
    assert len(set(prints)) == 5
    assert pairs(NEXT, name="other").fingerprint == prints[0]


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ((TOKENS.astype(float), NEXT), {}, r"train tokens: float64 \[4, 3\]; must be integers 0..V-1 \[N, L\]"),
        ((TOKENS[0], NEXT[0]), {}, r"train tokens: int64 \[3\]; must be"),
        (([[1, 2], [3]], [0, 1]), {}, "train tokens: not an array .*cut or pad all sequences to the same length"),
        ((np.ma.array(TOKENS, mask=TOKENS == 1), NEXT), {}, r"train tokens: \d values? (is|are) masked; drop or replace"),
        ((TOKENS, np.ma.array(NEXT, mask=NEXT == 1)), {}, r"train labels: \d values? (is|are) masked; drop or replace"),
        ((TOKENS, NEXT[:, :2]), {}, r"train labels: \[4, 2\] for tokens \[4, 3\]; give one label for each sequence"),
        ((TOKENS, NEXT[:3]), {}, "train has 4 sequences but 3 labels"),
        ((TOKENS, np.where(NEXT == 0, -100, NEXT)), {}, r"train labels: -100 with 4 tokens; must be 0..3; no value marks padding"),
        ((TOKENS, NEXT), {"vocabulary": 3}, "train tokens: 3 with 3 tokens; must be 0..2"),
        ((TOKENS, NEXT), {"vocabulary": 0}, "vocabulary = 0: should be a number of tokens"),
        ((TOKENS, NEXT), {"vocabulary": "abcd"}, "vocabulary = 'abcd': should be a number of tokens, or a list"),
        ((TOKENS, NEXT), {"vocabulary": ["a", "b\n", "c", "d"]}, "class 1, .*control characters"),
        ((TOKENS, NEXT), {"classes": ["a"]}, "train labels: 3 with 1 classes; must be 0..0"),
        ((TOKENS, CLASSES), {"classes": ["a"]}, "train labels: 1 with 1 classes"),
        ((TOKENS, NEXT + 1), {"classes": list("abcd")}, "train labels: 4 with 4 classes; must be 0..3"),
        ((TOKENS, NEXT), {"classes": list("abca")}, "classes: 'a' appears twice; give every class a name of its own"),
        ((TOKENS, CLASSES), {"classes": ["a", "a"]}, "classes: 'a' appears twice"),
        ((TOKENS, NEXT), {"classes": iter("abcd")}, "classes = <.*iterator.*>: should be a list with the name of each class"),
        ((TOKENS, NEXT), {"clients": [1, 2]}, "4 training sequences but 2 clients"),
        (TOKENS, {}, r"should be a pair \(tokens, labels\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_one_line(train: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        from_tokens(train, (TOKENS[:2], NEXT[:2]) if "classes" not in options else (TOKENS, CLASSES), **options)
    assert "\n" not in str(raised.value)


def test_train_and_test_need_the_same_length_and_task() -> None:
    with pytest.raises(
        UsageError, match=r"train and test sequences have other shapes, 3 tokens and a label .*, or 2 tokens"
    ):
        from_tokens((TOKENS, NEXT), (TOKENS[:, :2], NEXT[:, :2]))
    with pytest.raises(
        UsageError, match=r"train and test sequences have other shapes, .* each position, or 3 tokens and one label"
    ):
        from_tokens((TOKENS, NEXT), (TOKENS, CLASSES))


def test_counts_of_clients_are_counts_of_tokens() -> None:
    data = pairs(NEXT, clients=["x", "y", "x", "y"])
    split = partition(Natural(min_size=1), strata(data.train_labels), 2, 0, data.writers)
    federation = gather(data, split, validation=0.0, seed=0)
    by_hand = np.stack([np.bincount(NEXT[[0, 2]].ravel(), minlength=4), np.bincount(NEXT[[1, 3]].ravel(), minlength=4)])
    assert federation.histogram().tolist() == by_hand.tolist()
    assert federation.num_samples.tolist() == [2, 2]
    shape = federation.sample_shape
    assert isinstance(shape, TokenShape)
    assert (shape, shape.vocabulary, shape.each_position) == ((3,), 4, True)
    assert federation.prepare(federation.train.features, torch.float32).dtype == torch.int64
    labels, positions = by_position(data.train_labels, split)
    assert (len(labels), positions.sizes.tolist()) == (12, [6, 6])
    assert label_counts(CLASSES, np.array([2, 2]), 2).tolist() == [[1, 1], [1, 1]]


def test_a_federation_of_sequences_is_described_by_its_tokens() -> None:
    from fedcohort.federation.availability import Always
    from fedcohort.federation.simulated_clock import Clock

    data = pairs(NEXT)
    split = partition(Iid(), strata(data.train_labels), 2, 0)
    federation = gather(data, split, validation=0.0, seed=0)
    clock = Clock(
        federation.num_samples, 0, ShiftedExponential(), Always(), Share(),
        rounds=2, dropout=0.0, deadline=None, overcommit=1.0, idle_time=0.0, model_bytes=4, epochs=1,
    )  # fmt: skip
    facts = survey(data.train_labels, split, federation, clock, 2)
    assert facts.report.sizes.tolist() == [2, 2]
    assert facts.report.counts.sum(axis=1).tolist() == [6, 6]
    assert facts.report.counts.tolist() == portrait(federation, clock, 2)["counts"].tolist()
    assert facts.report.dropped == 0


def test_a_held_out_part_is_not_counted() -> None:
    data = pairs(NEXT)
    split = partition(Iid(), strata(data.train_labels), 1, 0)
    federation = gather(data, split, validation=0.0, seed=0, holdout=0.25)
    own = federation.client(0).labels.numpy()
    assert federation.histogram().tolist() == [np.bincount(own.ravel(), minlength=4).tolist()]
    assert own.shape == (3, 3)


def test_a_share_of_sequences() -> None:
    tokens = np.arange(200).reshape(100, 2) % 7
    data = from_tokens((tokens, tokens), (tokens, tokens), clients=np.arange(100) % 5)
    half = part(data, 0.5)
    assert isinstance(half, TokenDataset)
    assert (half.num_train, half.train_labels.shape, half.vocabulary) == (50, (50, 2), 7)
    assert half.fingerprint != data.fingerprint


def test_the_validation_set_of_sequences() -> None:
    tokens = np.arange(200).reshape(100, 2) % 7
    data = from_tokens((tokens, tokens), (tokens, tokens))
    split = partition(Iid(), strata(data.train_labels), 2, 0)
    federation = gather(data, split, validation=0.2, seed=0)
    assert (len(federation.validation), len(federation.test)) == (20, 80)
    assert federation.validation.labels.shape == (20, 2)


def test_public_names() -> None:
    assert fedcohort.from_tokens is from_tokens
    assert fedcohort.from_text([("A", "x" * 40)], window=4).num_train == 8


def test_the_labels_of_positions_can_be_classes_of_their_own(tmp_path: Path) -> None:
    """Tags of words needed as many outputs as there are tokens."""
    tags = TOKENS % 2
    data = from_tokens((TOKENS, tags), (TOKENS, tags), vocabulary=40, classes=["even", "odd"], name="tags")
    assert (data.vocabulary, data.num_classes, data.each_position) == (40, 2, True)
    assert repr(data).endswith("tokens out of 40, 2 classes, one for each position>")
    experiment = fedcohort.Experiment(
        rounds=1,
        seeds=1,
        data={"validation": 0.0},
        federation={"clients": 2, "partition": "iid"},
        model={"name": "lstm", "embedding": 4, "hidden": 4},
        selection={"name": "uniform", "k": 2},
    )
    run = fedcohort.run(experiment, data=data, runs=tmp_path)
    assert len(run.summary().class_accuracy) == 2
    assert 0.0 <= run.rounds["test_accuracy"].iloc[-1] <= 1.0
