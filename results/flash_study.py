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
from results.planted import KINDS, mean_reward, regret_by_round
from results.result_file import ROOT
from results.tables import signed, table

__all__ = [
    "SETTINGS",
    "FlashDefaults",
    "PlantedRegret",
    "PlantedRewards",
    "about_choice",
    "chosen_setting",
    "regret_tables",
    "won",
]

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
class PlantedRegret:
    """How the regret of FLASH grows with the rounds, on planted federations in which something can be learned."""

    quick: bool = False
    minutes: float = 4
    seeds: int = 5
    lengths: tuple[int, ...] = (50, 100, 200, 400, 800)
    experiments: ClassVar[list[str]] = ["results/planted.py", "results/flash_study.py"]

    def make(self, runs: Path) -> dict[str, Any]:  # noqa: ARG002
        """Kind of federation → row → seeds × regrets up to the end of some rounds. The row ``uniform`` is the choice by chance."""
        found: dict[str, Any] = {"rounds": list(self.lengths)}
        ends = np.array(self.lengths) - 1
        for kind in KINDS[:3]:
            rows: dict[str, list[list[float]]] = {"uniform": []}
            for name in ("flash", "flash_printed", "flash_linucb"):
                rows[name] = []
                for seed in range(self.seeds):
                    strategy = make(STRATEGIES.find(name, name), {}, "selection")
                    own, chance = regret_by_round(strategy, kind, seed, max(self.lengths))
                    rows[name].append(own[ends].tolist())
                    if name == "flash":
                        rows["uniform"].append(chance[ends].tolist())
            found[kind] = rows
        return found


def regret_tables(result: Mapping[str, Any]) -> str:
    """Mean regret up to some rounds in units of that of uniform selection after 50 rounds, and the exponent of its growth."""
    rounds = result["rounds"]
    heads = ["planted", "strategy", *(f"{t} rounds" for t in rounds), f"exponent, {rounds[-2]} to {rounds[-1]} rounds"]
    lines = []
    for kind in KINDS[:3]:
        unit = np.mean(result[kind]["uniform"], axis=0)[0]
        for name, regrets in result[kind].items():
            mean = np.mean(regrets, axis=0)
            growth = np.log(mean[-1] / mean[-2]) / np.log(rounds[-1] / rounds[-2])
            lines.append([kind, f"`{name}`", *(f"{value / unit:.2f}" for value in mean), f"{growth:.2f}"])
    return table(heads, lines)


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
            compared = fedcohort.compare(experiment, runs=runs).to_json()["rows"]
            found[experiment.name] = [
                {name: row[name] for name in KEPT} | {"accuracies": [run["accuracy"] for run in row["runs"]]}
                for row in compared
            ]
        return found


AT_MOST_BELOW = 0.01
"""How far the mean accuracy of the default may be below that of uniform selection on each federation."""


def relative_times(result: Mapping[str, Any], label: str) -> list[float]:
    """Time to the target of a row divided by that of uniform selection on each federation; inf if a seed did not reach it."""
    ratios = []
    for rows in result.values():
        own, uniform = (next(row for row in rows if row["label"] == name) for name in (label, "uniform"))
        reached = own["reached"] == own["seeds"]
        ratios.append(own["time_to_target"] / uniform["time_to_target"] if reached else np.inf)
    return ratios


def differences(result: Mapping[str, Any], label: str) -> list[float]:
    """Mean accuracy of a row minus that of uniform selection on each federation."""
    return [next(row["difference"] for row in rows if row["label"] == label) for rows in result.values()]


def chosen_setting(result: Mapping[str, Any]) -> str:
    """The fastest setting (geometric mean of the relative times) whose mean accuracy is nowhere far below uniform selection."""
    fit = [label for label in SETTINGS if min(differences(result, label)) >= -AT_MOST_BELOW]
    return min(fit, key=lambda label: float(np.mean(np.log(relative_times(result, label)))))


def about_choice(result: Mapping[str, Any]) -> str:
    """Which setting the rule chooses, and how it compares with uniform selection, in sentences."""
    label = chosen_setting(result)
    fit = sum(min(differences(result, name)) >= -AT_MOST_BELOW for name in SETTINGS)
    times = ", ".join(f"{ratio:.2f}" for ratio in relative_times(result, label))
    points = ", ".join(signed(100 * value) for value in differences(result, label))
    return (
        f"The rule: the fastest setting with a mean accuracy that is on each federation at most {100 * AT_MOST_BELOW:.0f} point below "
        f"uniform selection. {fit} of {len(SETTINGS)} settings meet the condition, and the fastest of them is *{label}*. It needs "
        f"{times} times the time of uniform selection to the targets, and its mean accuracy differs by {points} points."
    )
