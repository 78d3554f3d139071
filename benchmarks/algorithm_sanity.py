"""Check on real data that algorithms have the effect they were designed for: label skew, label noise, one class per client.

    python benchmarks/algorithm_sanity.py [--data digits] [--seeds 5] [--only skew noise damping] [--data-dir DIR]

``digits`` is the data set of scikit-learn. Of every other data set, the first 4,000 training and 2,000 test samples are used. The
setting is a perceptron, uniform selection, and five local epochs of SGD with learning rate 0.05 and batch size 16. Momentum is
used only if each client has a single class: there, local training must move the model far before old classes are forgotten. Rows
with the same seed have the same clients and the same cohorts.
"""

import argparse
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

import fedcohort
from fedcohort.federation.data.load_dataset import load
from fedcohort.measures import paired_interval

SAMPLES = 4000, 2000
"""Number of training and test samples that are used of a large data set."""

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
    """A partition with label skew."""
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
"""For each study, the settings that all rows have in common, and the changes of each row. The first row is the baseline."""

MEASURES = ("late", "tail_sd", "largest_drop", "forgetting")


def measure(name: str, data: str, seeds: int, data_dir: str | None = None) -> dict[str, dict[str, list[float]]]:
    """For each row and each measure, one number per seed, in percent.

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
    """The first samples of a large data set."""
    whole, (train, test) = load(name, data_dir=data_dir), SAMPLES
    return fedcohort.from_arrays(
        (np.array(whole.train_features[:train]), np.array(whole.train_labels[:train])),
        (np.array(whole.test_features[:test]), np.array(whole.test_labels[:test])),
        name=f"{name}-{train}",
        standardise=True,
    )


def laid_over(common: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``common`` with the changes of a row."""
    return {**common, **{key: {**common.get(key, {}), **value} for key, value in changes.items()}}


def main() -> None:
    """Measure, and print Markdown tables."""
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
            f"| row | test accuracy | difference to {first} [95%] | tail sd | largest drop | forgetting |\n"
            "| --- | --- | --- | --- | --- | --- |"
        )
        for row, values in found.items():
            means = [f"{np.mean(values[key]):.1f} ± {np.std(values[key], ddof=1):.1f}" for key in MEASURES]
            gain = paired_interval(values["late"], found[first]["late"])
            words = "–" if row == first else f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
            print(f"| {row} | {means[0]} | {words} | {' | '.join(means[1:])} |", flush=True)


if __name__ == "__main__":
    main()
