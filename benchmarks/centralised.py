"""Train a model with all data in one place, to compare with the conformal-prediction thesis (MNIST 99%, CIFAR-10 81%).

    python benchmarks/centralised.py [--data mnist] [--model cnn_b] [--epochs 10] [--data-dir DIR]

Adam with learning rate 1e-3, batch size 128, cross-entropy. The optimizer starts with a fresh state after every epoch, as clients'
optimizers do. The single client trains on one core, also on a machine with more.
"""

import argparse
import tempfile
import time

import fedcohort
from fedcohort.record import RoundRow


def main() -> None:
    """Train, and print the accuracy after every epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="cnn_b")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--data-dir", default=None, help="a local mirror in the layout of the Hub")
    args = parser.parse_args()
    experiment = fedcohort.Experiment(
        name="centralised",
        rounds=args.epochs,
        seeds=1,
        data={"name": args.data},
        federation={"partition": "iid"},
        model=args.model,
        training={"optimizer": "adam", "lr": 1e-3, "batch_size": 128},
        algorithm="centralised",
    )
    begin = time.perf_counter()

    def progress(_: object, row: RoundRow) -> None:
        print(
            f"epoch {row.round:3d}   train {row.local_accuracy:6.2%}   validation {row.validation_accuracy:6.2%}   "
            f"test {row.test_accuracy:6.2%}   {time.perf_counter() - begin:7.1f} s",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as runs:
        run = fedcohort.run(experiment, data_dir=args.data_dir, runs=runs, progress=progress)
        print(f"best test accuracy {run.rounds['test_accuracy'].max():.2%}")


if __name__ == "__main__":
    main()
