"""How every result is made: the experiment file, the settings, and the columns of its table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from results.atlas.play import Atlas
from results.comparisons import ComparisonResult
from results.diagnoses import Diagnoses
from results.estimates import Estimates
from results.flash_held_out import FlashHeldOut
from results.flash_study import FlashDefaults, PlantedRegret, PlantedRewards
from results.race_errors import RaceErrors
from results.source_runs import SOURCE_RUNS, SOURCE_TABLE

__all__ = ["DESCRIPTIONS", "Description"]


class Description(Protocol):
    """How a result is made."""

    @property
    def quick(self) -> bool:
        """Whether it is made anew by a test."""
        ...

    @property
    def minutes(self) -> float:
        """How long it takes."""
        ...

    @property
    def experiments(self) -> Sequence[str]:
        """The experiment files that it depends on."""
        ...

    def make(self, runs: Path) -> dict[str, Any]:
        """Measure; runs are played in the folder ``runs``."""
        ...


STRATEGY_TABLE = {
    "test accuracy, %": "accuracy",
    "to uniform": "difference",
    "time to {target}": "time to target",
    "Jain": "jain",
    "passes": "passes",
}
FIFTY = {"federation": {"clients": 50, "partition": {"min_size": 8}}, "selection": {"k": 8}}

DESCRIPTIONS: Mapping[str, Description] = {
    "quickstart": ComparisonResult("experiments/quickstart.toml", quick=True, columns=SOURCE_TABLE),
    "digits-12-clients": ComparisonResult(
        "experiments/all_strategies_digits.toml", columns=STRATEGY_TABLE, findings=True, minutes=4
    ),
    "digits-50-clients": ComparisonResult(
        "experiments/all_strategies_digits.toml", {"": FIFTY}, columns=STRATEGY_TABLE, findings=True, minutes=8
    ),
    "team-darts-table2": ComparisonResult(
        "experiments/team_darts_table2.toml",
        columns=SOURCE_TABLE | {"rounds to {target}": "rounds to target"},
        minutes=10,
    ),
    "x86": ComparisonResult("experiments/x86.toml", columns=SOURCE_TABLE, minutes=15),
    "thesis-logistic": ComparisonResult(
        "experiments/sources/thesis_logistic_small.toml",
        quick=True,
        columns={
            "test accuracy, %": "accuracy",
            "rounds to {target}": "rounds to target",
            "to the first row [95%]": "difference",
        },
        minutes=0.3,
    ),
    "thesis-quantiles": ComparisonResult(
        "experiments/sources/thesis_quantiles_small.toml",
        quick=True,
        columns={
            "test accuracy, %": "accuracy",
            "q̂ after epoch 1": "first quantile",
            "q̂ after epoch 30": "last quantile",
        },
        minutes=0.2,
    ),
    "team-darts-batch-sizes": ComparisonResult(
        "experiments/sources/team_darts_batch_sizes_small.toml",
        quick=True,
        columns={
            "test accuracy, %": "accuracy",
            "best, %": "best",
            "to the first row [95%]": "difference",
            "Jain": "jain",
        },
        minutes=0.4,
    ),
    "conformal-settings": ComparisonResult(
        "experiments/studies/conformal_settings.toml",
        {
            "tumors": {"data": {"name": "breast_cancer"}, "model": "logistic"},
            "digits": {},
            "MNIST, 5%": {"data": {"name": "mnist", "share": 0.05}, "model": "cnn_strided"},
            "Fashion-MNIST, 5%": {"data": {"name": "fashion_mnist", "share": 0.05}, "model": "cnn_strided"},
            "EMNIST, 5%": {"data": {"name": "emnist_47_subset", "share": 0.05}, "model": "cnn_strided"},
            "CIFAR-10, 10%": {"data": {"name": "cifar10", "share": 0.1}, "model": "cnn_strided"},
        },
        columns={"{setting}": "admitted by round"},
        minutes=30,
    ),
    **SOURCE_RUNS,
    "register": Estimates(),
    "flash-planted": PlantedRewards(),
    "flash-regret": PlantedRegret(),
    "flash-defaults": FlashDefaults(),
    "flash-held-out": FlashHeldOut(),
    "atlas": Atlas(),
    "race": RaceErrors(),
    "diagnoses": Diagnoses(),
}
