"""The tables and figures of the sources at the small scale, each as a comparison of an experiment file."""

from collections.abc import Mapping
from typing import Any

from results.comparisons import ComparisonResult

__all__ = ["SOURCE_RUNS", "SOURCE_TABLE"]

SOURCE_TABLE: dict[str, str] = {
    "test accuracy, %": "accuracy",
    "best, %": "best",
    "local, %": "local",
    "to the first row [95%]": "difference",
    "verdict": "verdict",
    "Jain": "jain",
    "passes": "passes",
    "bytes": "bytes",
}
"""Columns that show accuracy, cost and participation."""

FLASH_TABLE: Mapping[str, str] = {
    "test accuracy, %": "accuracy",
    "best, %": "best",
    "to uniform [95%]": "difference",
    "verdict": "verdict",
    "time to {target}": "time to target",
    "Jain": "jain",
}
THESIS_TABLE: Mapping[str, str] = {
    "best, %": "best",
    "last, %": "accuracy",
    "admitted by round": "admitted by round",
    "passes": "passes",
}
MINUTES: Mapping[str, float] = {
    "flash-changing-cohorts": 2, "flash-figure5-femnist": 3, "flash-figure5": 4, "flash-figure4-heads": 4, "flash-figure4-contexts": 4,
    "flash-figure2-noise": 31, "flash-figure2-skew": 31, "flash-figure2-femnist": 21, "flash-figure3": 40, "flash-table1": 19,
    "thesis-mnist": 15, "thesis-emnist": 29, "thesis-cifar10": 19, "thesis-scores": 2, "x86": 4, "team-darts-table2": 6,
}  # fmt: skip
"""About how long the experiment file of each name takes on one core."""


def _small(name: str, **changes: Any) -> ComparisonResult:
    """An experiment file at the small scale, with some settings replaced."""
    columns = THESIS_TABLE if name.startswith("thesis") else FLASH_TABLE
    file = f"experiments/sources/{name.replace('-', '_')}_small.toml"
    return ComparisonResult(file, {"": changes}, columns=columns, minutes=MINUTES[name], details=name == "x86")


def _thesis(name: str, clients: int, *, fractions: bool = False) -> ComparisonResult:
    """A table of the thesis: a number of clients, of which a quarter is selected, and the law of labels."""
    federation: dict[str, Any] = {"clients": clients}
    if fractions:
        federation["partition"] = {"name": "random_fractions"}
    return _small(name, federation=federation, selection={"k": max(clients // 4, 1)})


PART = {"sweep": {"algorithm.name": ["fedavg", "scaffold", "rhfl"]}}
"""The aggregations of Table I that are run: three of seven."""

SOURCE_RUNS: Mapping[str, ComparisonResult] = {
    **{name: _small(name) for name in MINUTES if name.startswith("flash") and name != "flash-table1"},
    "flash-table1": _small("flash-table1", **PART),
    "flash-table1-skew": _small("flash-table1", federation={"label_noise": {"name": "none"}}, **PART),
    "flash-table1-noise": _small("flash-table1", federation={"partition": {"name": "iid"}}, **PART),
    **{
        f"thesis-{data}{'-fractions' * fractions}-{clients}": _thesis(f"thesis-{data}", clients, fractions=fractions)
        for data in ("mnist", "emnist", "cifar10")
        for fractions in (False, True)
        for clients in (5, 10, 15)
    },
    "x86-small": _small("x86"),
    "team-darts-table2-small": _small("team-darts-table2"),
    "thesis-scores": _small("thesis-scores"),
    "thesis-scores-15": _thesis("thesis-scores", 15),
}
"""Name of each result → how it is made."""
