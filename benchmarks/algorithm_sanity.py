"""Do algorithms do on real data what they are made for? Label skew, wrong labels, clients that know a single class.

    python benchmarks/algorithm_sanity.py [--data digits] [--seeds 5] [--only skew noise damping] [--data-dir DIR]

``digits`` are scikit-learn's; of every other data set the first 4,000 training and 2,000 test samples are used. A perceptron, uniform
selection, five local epochs of SGD with learning rate 0.05 in batches of 16, with momentum only where clients know a single class
(there, local training must go far for old classes to be forgotten). Rows under one seed meet the same clients and the same cohorts.
"""

import argparse
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

import fedcohort
from fedcohort.federation.loading import load
from fedcohort.measures import paired_interval

SAMPLES = 4000, 2000
"""Training and test samples of large data sets."""

Rows = dict[str, dict[str, Any]]


def study(
    partition: Any, rounds: int, k: int, clients: int, momentum: float = 0.0, **federation: Any
) -> dict[str, Any]:
    """The settings of one study."""
    return {
        "rounds": rounds,
        "federation": {"clients": clients, "partition": partition, **federation},
        "model": {"name": "mlp", "hidden": 64},
        "selection": {"name": "uniform", "k": k},
        "training": {"epochs": 5, "lr": 0.05, "momentum": momentum, "batch_size": 16},
        "engine": {"plan": "loop"},
    }


def dirichlet(alpha: float) -> dict[str, Any]:
    """Label skew."""
    return {"name": "dirichlet_class", "alpha": alpha, "min_size": 2}


STUDIES: dict[str, tuple[dict[str, Any], Rows]] = {
    "skew": (
        study(dirichlet(0.1), rounds=60, k=5, clients=20),
        {
            "FedAvg": {"algorithm": {"name": "fedavg"}},
            "FedProx, mu = 0.01": {"algorithm": {"name": "fedprox", "mu": 0.01}},
            "FedProx, mu = 0.1": {"algorithm": {"name": "fedprox", "mu": 0.1}},
            "FedNova": {"algorithm": {"name": "fednova"}},
            "SCAFFOLD": {"algorithm": {"name": "scaffold", "weights": "n_selected"}},
        },
    ),
    "noise": (
        study(dirichlet(0.5), rounds=40, k=5, clients=20, label_noise={"name": "constant", "rate": 0.15}),
        {loss: {"training": {"loss": loss}} for loss in ("ce", "robust", "sl", "sce")},
    ),
    "damping": (
        study({"name": "shards", "shards": 1}, rounds=60, k=3, clients=10, momentum=0.9),
        {f"s = {s:g}": {"algorithm": {"name": "fedavg", "server_lr": s}} for s in (1.0, 0.5, 0.25)},
    ),
}
"""Name → what all rows have in common, and what each changes; the first row is what the others are compared with."""

MEASURES = ("late", "tail_sd", "largest_drop", "forgetting")


def measure(name: str, data: str, seeds: int, data_dir: str | None = None) -> dict[str, dict[str, list[float]]]:
    """Row → measure → one number a seed, all in per cent.

    ``late`` is the mean test accuracy over the last fifth of the rounds; the other fields are those of
    :class:`fedcohort.study.summary.Summary`.
    """
    common, rows = STUDIES[name]
    given = None if data == "digits" else first_samples(data, data_dir)
    found: dict[str, dict[str, list[float]]] = {row: {key: [] for key in MEASURES} for row in rows}
    with tempfile.TemporaryDirectory() as runs:
        for seed in range(seeds):
            for row, changes in rows.items():
                experiment = fedcohort.Experiment(name=name, seed=seed, seeds=1, **laid_over(common, changes))
                run = fedcohort.run(experiment, data=given, runs=runs)
                summary = run.summary()
                late = run.rounds["test_accuracy"].tail(max(1, len(run.rounds) // 5)).mean()
                for key in MEASURES:
                    value = late if key == "late" else getattr(summary, key)
                    found[row][key].append(100 * float(value))
    return found


def first_samples(name: str, data_dir: str | None) -> fedcohort.Dataset:
    """The head of a large data set."""
    whole, (train, test) = load(name, data_dir=data_dir), SAMPLES
    return fedcohort.from_arrays(
        (np.array(whole.train_features[:train]), np.array(whole.train_labels[:train])),
        (np.array(whole.test_features[:test]), np.array(whole.test_labels[:test])),
        name=f"{name}-{train}",
    )


def laid_over(common: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``common`` with the settings of a row."""
    return {**common, **{key: {**common.get(key, {}), **value} for key, value in changes.items()}}


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--data-dir", default=None, help="a local mirror in the layout of the Hub")
    args = parser.parse_args()
    for name in args.only:
        found = measure(name, args.data, args.seeds, args.data_dir)
        first = next(iter(found))
        print(f"\n{name}, {args.data}, {args.seeds} seeds\n")
        print(
            f"| row | test accuracy | difference to {first} [95 %] | tail sd | largest drop | forgetting |\n"
            "| --- | --- | --- | --- | --- | --- |"
        )
        for row, values in found.items():
            means = [f"{np.mean(values[key]):.1f} ± {np.std(values[key], ddof=1):.1f}" for key in MEASURES]
            gain = paired_interval(values["late"], found[first]["late"])
            words = "–" if row == first else f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
            print(f"| {row} | {means[0]} | {words} | {' | '.join(means[1:])} |", flush=True)


if __name__ == "__main__":
    main()
