"""Processor time until a partition that no draw satisfies is refused.

    python benchmarks/refused_partitions.py           # every setting; a few minutes
    python benchmarks/refused_partitions.py --quick   # up to 60,000 samples

Prints, per rule and number of samples, how many settings were refused, the longest time, and the setting that took it; then every
setting above a tenth of a second. Times are of this process, so that other processes change them little.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.federation.partition import Rule, partition
from fedcohort.federation.partitions.dirichlet_class import DirichletClass
from fedcohort.federation.partitions.dirichlet_client import DirichletClient
from fedcohort.federation.partitions.quantity import Quantity
from fedcohort.federation.partitions.random_fractions import RandomFractions

SAMPLES = (150, 1_437, 10_000, 60_000, 200_000, 1_000_000)
CLIENTS = (5, 10, 40, 100, 300, 1_000, 10_000)
CONCENTRATIONS = (1e-4, 0.02, 0.05, 0.06, 0.1, 0.2, 0.5, 1.0)
SPREADS = (0.5, 1.0, 1.5, 2.5, 5.0)
SMALLEST = (1, 10, 50)
LIMIT = 0.1
"""Seconds."""


@dataclass(frozen=True)
class Refusal:
    rule: Rule
    samples: int
    clients: int
    seconds: float


def rules(min_size: int) -> Iterator[Any]:
    """Every rule that draws sizes at random."""
    for alpha in CONCENTRATIONS:
        yield DirichletClass(alpha=alpha, min_size=min_size)
        yield DirichletClass(alpha=alpha, variant="plain", min_size=min_size)
        yield Quantity(beta=alpha, min_size=min_size)
        yield DirichletClient(sizes="dirichlet", size_beta=alpha, min_size=min_size)
    for sigma in SPREADS:
        yield Quantity(law="lognormal", sigma=sigma, min_size=min_size)
        yield DirichletClient(sizes="lognormal", size_sigma=sigma, min_size=min_size)
    yield RandomFractions(min_size=min_size)
    yield RandomFractions(law="exp", min_size=min_size)


def refusals(samples: tuple[int, ...], seed: int) -> Iterator[Refusal]:
    """Every setting that is refused after draws, and its time; settings that are refused before the first draw are left out."""
    for num_samples, clients, min_size in itertools.product(samples, CLIENTS, SMALLEST):
        labels = np.arange(num_samples) % 10
        if clients * min_size > num_samples:
            continue
        for rule in rules(min_size):
            start = time.process_time()
            try:
                partition(rule, labels, clients, seed)
            except UsageError:
                yield Refusal(rule, num_samples, clients, time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only up to 60,000 samples")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    partition(Quantity(), np.arange(100_000) % 10, 2, options.seed)  # imports happen before the first measurement
    found = list(refusals(SAMPLES[:4] if options.quick else SAMPLES, options.seed))
    print(f"{'samples':>9}  {'rule':16} {'refused':>7} {'longest':>8}  setting")
    by_group = {(refusal.samples, type(refusal.rule).__name__) for refusal in found}
    for samples, name in sorted(by_group):
        group = [refusal for refusal in found if (refusal.samples, type(refusal.rule).__name__) == (samples, name)]
        worst = max(group, key=lambda refusal: refusal.seconds)
        print(f"{samples:9,}  {name:16} {len(group):7} {worst.seconds:7.3f}s  {worst.clients} clients, {worst.rule}")
    slow = sorted((refusal for refusal in found if refusal.seconds > LIMIT), key=lambda refusal: -refusal.seconds)
    print(f"{len(slow)} of {len(found)} refusals took more than {LIMIT:g} s")
    for refusal in slow:
        print(f"  {refusal.seconds:.3f} s: {refusal.samples:,} samples, {refusal.clients} clients, {refusal.rule}")


if __name__ == "__main__":
    main()
