"""The contracts of partition rules and models."""

import dataclasses
from collections.abc import Callable
from types import FunctionType
from typing import cast

import numpy as np
import torch
from torch import nn

from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.core.token_shape import TokenShape
from fedcohort.core.words.formatted_values import counted
from fedcohort.engines.initial_network import build_module
from fedcohort.federation.federation import Samples
from fedcohort.federation.partition import AssignmentError, Rule, describe, partition
from fedcohort.models import Model
from fedcohort.models.given_models import AnyModel, as_model
from fedcohort.testing.base import bits, check_described, during, during_seeded, new_from, require, small_federation

__all__ = ["check_model", "check_partition"]


def check_partition(make: Callable[[], Rule], *, complete: bool = True) -> None:
    """Check the contract of a partition rule.

    No sample belongs to two clients, each client has ``min_size`` samples or more, and a seed gives one partition.
    A rule may refuse some numbers of clients with a UsageError, but not all of them.

    Args:
        make: returns a new rule.
        complete: whether every sample must belong to a client.
    """
    rule = new_from(make)
    check_described(rule)
    labels = rng(0, "contract-labels").permutation(np.repeat(np.arange(10), 60))
    writers = np.arange(len(labels)) % 24
    refusal: UsageError | None = None
    possible, given = 0, (labels.copy(), writers.copy())
    for m, seed in ((1, 0), (6, 0), (6, 1), (12, 2), (24, 3)):
        where = f"{type(rule).__name__}, {m} clients, seed {seed}"
        with during_seeded(where, rule, "federation.partition"):
            try:
                split = partition(make(), labels, m, seed, writers)
            except AssignmentError:
                raise
            except UsageError as error:  # the rule refuses this number of clients in the way that it should
                refusal = error
                continue
            repeated = [partition(each, labels.copy(), m, seed, writers.copy()) for each in (make(), rule)]
        possible += 1
        unchanged = np.array_equal(labels, given[0]) and np.array_equal(writers, given[1])
        require(unchanged, f"{where}: assign changed the labels or writers that it was given; change a copy")
        same = all(
            np.array_equal(split.order, again.order) and np.array_equal(split.offsets, again.offsets)
            for again in repeated
        )
        require(same, f"{where}: the same seed gave two partitions; draw from rng only, and keep nothing on self")
        require(len(np.unique(split.order)) == len(split.order), f"{where}: a sample belongs to two clients")
        lost = len(labels) - len(split.order)
        require(lost == 0 or not complete, f"{where}: {counted(lost, 'sample')} without a client")
        require(split.num_clients == m, f"{where}: the partition has {split.num_clients} clients")
        require(
            split.sizes.min() >= rule.min_size,
            f"{where}: a client has {split.sizes.min()} samples, less than min_size = {rule.min_size}",
        )
        held = np.stack([np.bincount(labels[split.samples(i)], minlength=10) for i in range(m)])
        require(
            np.array_equal(describe(labels, split, 10).counts, held), f"{where}: the counts do not match the partition"
        )
    complaint = f"{type(rule).__name__}: 600 samples of 10 classes and 24 writers cannot be partitioned at all"
    require(possible, f"{complaint}; the last refusal: {refusal}")


def check_model(
    make: Callable[[], Model] | Callable[..., nn.Module], *, shape: tuple[int, ...] = (1, 8, 8), num_classes: int = 5
) -> None:
    """Check that a module returns finite logits [batch, classes] for samples of ``shape``, can learn, and is seeded.

    With a :class:`~fedcohort.core.token_shape.TokenShape`, inputs are tokens, and logits are [batch, L, classes] if each position has
    a label. These must not depend on later tokens.

    Args:
        make: returns a new :class:`fedcohort.Model`, or a network: a class of ``torch.nn.Module``, or a function, which is called with
            ``(shape, num_classes)``, or without arguments if it takes fewer than two.
        shape: the shape of a sample.
        num_classes: the number of classes.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    new, name = _new_model(make)
    tokens = shape if isinstance(shape, TokenShape) else TokenShape(())
    positions = list(shape) if tokens.each_position else []
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(7, *shape, generator=generator)
    if tokens.vocabulary:
        features = torch.randint(tokens.vocabulary, (7, *shape), generator=generator)
    samples = Samples(features, torch.zeros(7, *positions, dtype=torch.int64))
    classes = tuple(str(c) for c in range(num_classes))
    federation = dataclasses.replace(small_federation(), train=samples, classes=classes, vocabulary=tokens.vocabulary)
    with during(f"{name}, samples of {shape}"):
        module, again, other = (build_module(new(), federation, seed) for seed in (0, 0, 1))
        require(bits(module.state_dict()) == bits(again.state_dict()), f"{name}: one seed gave two initial models")
        require(bits(module.state_dict()) != bits(other.state_dict()), f"{name}: two seeds gave the same initial model")
        for dtype in (torch.float32, torch.float64):
            logits = module.to(dtype)(features if tokens.vocabulary else features.to(dtype))
            require(isinstance(logits, torch.Tensor), f"{name}: returns a {type(logits).__name__}; return logits only")
            actual, wanted = f"{logits.dtype} {list(logits.shape)}", f"{dtype} {[7, *positions, num_classes]}"
            require(actual == wanted, f"{name}: logits are {actual}, not {wanted}")
            require(torch.isfinite(logits).all(), f"{name}: logits are not finite")
        logits.square().sum().backward()
        idle = [key for key, value in module.named_parameters() if value.requires_grad and value.grad is None]
        require(not idle, f"{name}: no gradient reaches {idle}")
        single = module.eval()(features[:1] if tokens.vocabulary else features[:1].double())
        require(single.shape == (1, *positions, num_classes), f"{name}: fails on a single sample")
        if positions:
            other_end = features.clone()
            other_end[:, -1] = (other_end[:, -1] + 1) % tokens.vocabulary
            same = torch.allclose(module(other_end)[:, :-1], module(features)[:, :-1])
            require(same, f"{name}: the logits of a position depend on tokens after it")


def _new_model(make: Callable[..., object]) -> tuple[Callable[[], Model], str]:
    """What returns a new model in each call, and its name in complaints.

    A network of the user, and a function that builds one, become a model as they do in an experiment.
    """
    name = getattr(make, "__name__", type(make).__name__)
    if isinstance(make, type) and issubclass(make, nn.Module):
        return lambda: as_model(make), name
    if isinstance(make, FunctionType) and make.__code__.co_argcount > len(make.__defaults__ or ()):
        return lambda: as_model(cast(AnyModel, make)), name  # such as build(shape, num_classes)
    made = new_from(make)
    if isinstance(made, nn.Module):
        return lambda: as_model(cast(AnyModel, make)), type(made).__name__
    check_described(made)
    return cast(Callable[[], Model], make), type(made).__name__
