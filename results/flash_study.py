"""The study behind the defaults of ``flash``: γ, the unit of rewards and λ, on planted and on real federations."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import fedcohort
from fedcohort.core.parameters import make
from fedcohort.selection import STRATEGIES
from results.comparisons import KEPT
from results.planted import KINDS, mean_reward
from results.result_file import ROOT

__all__ = ["SETTINGS", "FlashDefaults", "PlantedRewards"]

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    f"{unit}, γ × {scale:g}": {"reward_unit": unit, "gamma_scale": scale}
    for unit in ("largest", "round")
    for scale in (1.0, 0.3, 0.1, 0.03, 0.0)
}
"""The settings of ``flash`` that are compared, besides the presets."""


@dataclass(frozen=True)
class PlantedRewards:
    """How much of the reward that can be won each setting wins, on planted federations."""

    quick: bool = False
    minutes: float = 4
    seeds: int = 5
    rounds: int = 200
    experiments: ClassVar[list[str]] = ["results/planted.py", "results/flash_study.py"]

    def rows(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Label of each row → name of the strategy, and its settings."""
        found: dict[str, tuple[str, dict[str, Any]]] = {
            label: ("flash", dict(values)) for label, values in SETTINGS.items()
        }
        found |= {
            f"round, γ × 1, λ = {ridge:g}": ("flash", {"reward_unit": "round", "ridge": ridge}) for ridge in (0.1, 10.0)
        }
        return found | {name: (name, {}) for name in ("flash_printed", "flash_linucb", "restless", "neural")}

    def make(self, runs: Path) -> dict[str, Any]:  # noqa: ARG002
        """For each row and kind of federation, the rewards of every seed: the strategy's, the best clients', and by chance."""
        return {label: self.measured(name, values) for label, (name, values) in self.rows().items()}

    def measured(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The rewards of one row."""
        found = {}
        for kind in KINDS:
            strategies = [make(STRATEGIES.find(name, name), values, "selection") for _ in range(self.seeds)]
            found[kind] = [mean_reward(strategy, kind, seed, self.rounds) for seed, strategy in enumerate(strategies)]
        return found


def won(rewards: list[list[float]], kind: str) -> float:
    """Mean over seeds of the share of the possible gain over chance; of the gain over chance where nothing can be learned."""
    mine, best, chance = np.array(rewards).T
    return float(np.mean(mine / chance - 1 if kind == "nothing" else (mine - chance) / (best - chance)))


@dataclass(frozen=True)
class FlashDefaults:
    """Accuracy and time to a target of each setting on federations that the other results do not use."""

    quick: bool = False
    minutes: float = 8
    experiments: ClassVar[list[str]] = [
        f"experiments/studies/flash_{name}.toml" for name in ("shards", "noise", "fashion")
    ]

    def make(self, runs: Path) -> dict[str, Any]:
        """The rows of every federation."""
        rows: list[dict[str, Any]] = [
            {"label": label, "selection": {"name": "flash", **values}} for label, values in SETTINGS.items()
        ]
        rows += [{"label": name, "selection": {"name": name}} for name in ("flash_printed", "flash_linucb", "oort")]
        found = {}
        for file in self.experiments:
            experiment = fedcohort.load_experiment(ROOT / file).with_overrides({"variants": rows})
            comparison = fedcohort.compare(experiment, runs=runs)
            table = comparison.to_json()["rows"]
            found[experiment.name] = [
                {name: row[name] for name in KEPT} | {"accuracies": [run["accuracy"] for run in row["runs"]]}
                for row in table
            ]
        return found
