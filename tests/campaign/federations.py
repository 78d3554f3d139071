"""Tiny federations that the attacks play: six clients, few rounds, a part of the digits; a run takes a fraction of a second."""

import json
from pathlib import Path
from typing import Any

__all__ = ["PAIRS", "description", "written"]

HELD_OUT = {"holdout": 0.3}

PAIRS: dict[str, dict[str, Any]] = {
    "uniform, FedAvg": {},
    "UCB, FedAvg": {"selection": {"name": "ucb", "initial_rounds": 2}},
    "power-of-choice, FedProx": {"selection": {"name": "powd", "d": 4}, "algorithm": {"name": "fedprox", "mu": 0.1}},
    "Oort, FedAdam": {"selection": {"name": "oort"}, "algorithm": {"name": "fedadam"}},
    "utility per time, SCAFFOLD": {
        "selection": {"name": "utility_time"}, "algorithm": {"name": "scaffold"}, "training": {"momentum": 0.0},
        "systems": {"dropout": 0.2},
    },
    "TiFL, FedNova": {"selection": {"name": "tifl", "tiers": 2}, "algorithm": {"name": "fednova"}},
    "FLASH, FedYogi": {"selection": {"name": "flash"}, "algorithm": {"name": "fedyogi"}, "federation": HELD_OUT},
    "neural bandit, FedAvgM": {"selection": {"name": "neural"}, "algorithm": {"name": "fedavgm"}, "federation": HELD_OUT},
    "DivFL, FedAdagrad": {"selection": {"name": "divfl"}, "algorithm": {"name": "fedadagrad"}},
    "conformal participation, FedAvg": {"selection": {"name": "conformal"}, "federation": HELD_OUT},
    "FedCor, FedSGD": {"selection": {"name": "fedcor"}, "algorithm": {"name": "fedsgd"}},
    "restless bandit, FedDF": {
        "selection": {"name": "restless"}, "algorithm": {"name": "feddf"}, "public": {"name": "holdout"}, "federation": HELD_OUT,
    },
}  # fmt: skip
"""Strategies and algorithms, which together use every kind of state that is resumed."""


def description(**values: Any) -> dict[str, Any]:
    """A description with six clients and four rounds, each with a checkpoint; ``values`` replace settings, section by section."""
    plain: dict[str, Any] = {
        "name": "tiny",
        "rounds": 4,
        "seeds": 1,
        "data": {"name": "digits", "share": 0.2},
        "federation": {"clients": 6, "partition": {"name": "dirichlet_class", "alpha": 0.5}},
        "model": {"name": "logistic"},
        "selection": {"name": "uniform"},
        "measures": {"clients_every": 2, "checkpoint_seconds": 0.0},
    }
    for key, value in values.items():
        plain[key] = {**plain.get(key, {}), **value} if isinstance(value, dict) else value
    plain["selection"].setdefault("k", 2)
    return plain


def written(folder: Path, **values: Any) -> Path:
    """The description as an experiment file in a folder."""
    import tomli_w

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(json.loads(json.dumps(description(**values)))), encoding="utf-8")
    return file
