"""A federation with a single client that holds all data, for centralized training."""

import dataclasses

import numpy as np
import torch

from fedcohort.federation.federation import Federation

__all__ = ["pooled"]


def pooled(federation: Federation) -> Federation:
    """One client with the data of all clients, wrong labels included: all training parts in client order, then all held-out parts.

    Clients have no test samples of their own then.
    """
    federation = dataclasses.replace(federation, test_clients=None)
    ends = np.array([0, federation.offsets[-1]])
    noise = federation.noise
    if noise is not None:
        noise = dataclasses.replace(noise, rates=np.array([noise.flipped.mean() if len(noise.noisy) else 0.0]))
    if federation.held is None:
        return dataclasses.replace(federation, offsets=ends, noise=noise)
    parts = np.stack([federation.num_samples, federation.held], axis=1)
    order = np.argsort(np.repeat(np.tile([False, True], len(parts)), parts.ravel()), kind="stable")
    if noise is not None:
        noise = dataclasses.replace(noise, noisy=noise.noisy[order], clean=noise.clean[order])
    numbers = federation.numbers
    if numbers is not None:
        numbers = dataclasses.replace(numbers, bins=numbers.bins[order])
    index = torch.from_numpy(order).to(federation.train.labels.device)
    return dataclasses.replace(
        federation,
        train=federation.train[index],
        offsets=ends,
        held=np.array([int(federation.held.sum())]),
        noise=noise,
        numbers=numbers,
    )
