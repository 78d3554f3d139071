"""The terminal and ``--json`` say the same: every number of a printed row is that of the document, as the terminal formats it."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from fedcohort.cli.json_schema import ALL_RECORDS, keys_of
from fedcohort.core.words.formatted_values import (
    UNTRIED,
    count,
    duration,
    index,
    number,
    percent,
    rounds,
    setting,
    share,
    simulated_time,
    size,
    verdict,
)
from fedcohort.core.words.score_style import ACCURACY
from fedcohort.report.terminal.federations import IN_WORDS

EXPERIMENT = """
name = "same"
rounds = 4
seeds = 2
model = "logistic"

[data]
name = "digits"

[federation]
clients = 8
partition = { name = "dirichlet_class", alpha = 0.5 }

[selection]
name = "uniform"
k = 3

[measures]
clients_every = 2
target_accuracy = 0.5

[[variants]]
label = "UCB"
selection = { name = "ucb" }

[[variants]]
label = "loss"
selection = { name = "select_by_loss" }
"""

SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def call(*arguments: object) -> str:
    """What a command prints in a very wide terminal without colors."""
    result = CliRunner(env={"COLUMNS": "400", "NO_COLOR": "1"}).invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    return result.stdout


def both(*arguments: object) -> tuple[str, Any]:
    """What a command prints, and its document; null is NaN there."""
    return call(*arguments), known(json.loads(call(*arguments, "--json")))


def known(value: Any) -> Any:
    """The value with NaN in place of null."""
    if isinstance(value, Mapping):
        return {key: known(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [known(inner) for inner in value]
    return math.nan if value is None else value


def cells(text: str, first: str) -> list[str]:
    """The cells of the only line that begins with the cell ``first``."""
    found = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    (line,) = [row for row in found if row[0] == first]
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``same.toml`` and, in ``runs``, all its runs."""
    path = tmp_path_factory.mktemp("same")
    (path / "same.toml").write_text(EXPERIMENT)
    call("compare", path / "same.toml", "--runs", path / "runs", "--quiet")
    return path


@pytest.fixture(scope="module")
def ucb(folder: Path) -> Path:
    """The run of UCB under seed 0."""
    (path,) = (folder / "runs").glob("same-ucb-seed0-*")
    return path


def test_compare(folder: Path) -> None:
    printed, document = both("compare", folder / "same.toml", "--runs", folder / "runs", "--quiet")
    assert len(document["rows"]) == 3
    for row in document["rows"]:
        baseline = row["verdict"] == "baseline"
        difference = ACCURACY.difference(row["difference"], row["difference_low"], row["difference_high"])
        assert cells(printed, row["label"]) == [
            row["label"],
            ACCURACY.spread(row["accuracy"], row["accuracy_sd"]),
            "–" if baseline else difference,
            verdict(row["verdict"], row["p_holm"]),
            ACCURACY.spread(row["client_accuracy"], row["client_accuracy_sd"]),
            percent(row["worst_client_accuracy"]),
            percent(row["best_accuracy"]),
            percent(row["early_stop_accuracy"]),
            rounds(row["rounds_to_target"], row["reached"], row["seeds"]),
            simulated_time(row["time_to_target"]),
            index(row["jain"]),
            size(row["bytes"]),
            count(row["client_passes"]),
            duration(row["wall_seconds"]),
        ]


def test_run(folder: Path) -> None:
    printed, document = both("run", folder / "same.toml", "--runs", folder / "runs", "--quiet")
    assert len(document["runs"]) == 2
    for run in document["runs"]:
        accuracies = [run[f"{name}accuracy"] for name in ("", "best_", "early_stop_", "local_")]
        assert cells(printed, str(run["seed"])) == [
            str(run["seed"]),
            *map(percent, accuracies),
            index(run["jain"]),
            index(run["jain_random"]),
            simulated_time(run["simulated_time"]),
            size(run["bytes"]),
            duration(run["wall_seconds"]),
        ]


def measured(run: Mapping[str, Any]) -> dict[str, str]:
    """The measures of a run by their printed names."""
    by_chance = {"Jain's index": "jain", "Gini": "gini", "entropy": "entropy", "coverage": "coverage"}
    return {
        "test accuracy, last round": percent(run["accuracy"]),
        "mean over classes": percent(run["macro_accuracy"]),
        "best round": percent(run["best_accuracy"]),
        "early stop, by validation accuracy": percent(run["early_stop_accuracy"]),
        "local accuracy of the clients that trained last": percent(run["local_accuracy"]),
        "accuracy of all clients": percent(run["client_accuracy"]),
        "of the worst-served tenth": percent(run["worst_client_accuracy"]),
        "standard deviation over clients": percent(run["client_accuracy_sd"]),
        "target accuracy": percent(run["target_accuracy"]),
        "rounds to it": rounds(run["rounds_to_target"]),
        "simulated time to it": simulated_time(run["time_to_target"]),
        "bytes to it": size(run["bytes_to_target"]),
        "rounds": count(run["rounds"]),
        "simulated time": simulated_time(run["simulated_time"]),
        "bytes": size(run["bytes"]),
        "client passes": count(run["client_passes"]),
        "wall time": duration(run["wall_seconds"]["total"]),
        **{
            f"{words} of selections (chance)": f"{index(run['selected'][key])} ({index(run['selected_random'][key])})"
            for words, key in by_chance.items()
        },
        "Jain's index under chance, 5% to 95%": f"{index(run['jain_random']['q05'])} to {index(run['jain_random']['q95'])}",
        "Jain's index of admitted updates": index(run["admitted"]["jain"]),
        "largest drop in a round": percent(run["largest_drop"]),
        "forgetting": percent(run["forgetting"]),
    }


def test_measures_of_a_run(ucb: Path) -> None:
    printed, document = both("measures", ucb)
    (run,) = document["runs"]
    for name, text in measured(run).items():
        assert cells(printed, name) == [name, text]


def test_measures_are_means_over_seeds(folder: Path) -> None:
    printed, document = both("measures", folder / "same.toml", "--runs", folder / "runs")
    labels = cells(printed, "measure")[1:]
    assert labels == ["uniform", "UCB", "loss"]
    runs = [[run for run in document["runs"] if run["label"] == label] for label in labels]
    accuracies = [[run["accuracy"] for run in own] for own in runs]
    spreads = [ACCURACY.spread(float(np.mean(own)), float(np.std(own, ddof=1))) for own in accuracies]
    assert cells(printed, "test accuracy, last round")[1:] == spreads
    for name, key in {"best round": "best_accuracy", "forgetting": "forgetting"}.items():
        assert cells(printed, name)[1:] == [percent(float(np.mean([run[key] for run in own]))) for own in runs]
    assert cells(printed, "bytes")[1:] == [size(float(np.mean([run["bytes"] for run in own]))) for own in runs]


def of_candidate(candidate: Mapping[str, Any], terms: list[str], reports: list[str]) -> Iterator[str]:
    """The printed cells of a candidate."""
    untried = candidate["score"] >= UNTRIED
    yield str(candidate["client"])
    yield "yes" if candidate["selected"] else "–"
    yield "untried" if untried else number(candidate["score"])
    for name in terms:
        yield "–" if untried and name == "bonus" else number(candidate["terms"].get(name, math.nan))
    yield candidate["status"] or "–"
    for name in reports:
        value = candidate["outcome"].get(name, math.nan)
        yield percent(value) if name == "weight" else number(value)


@pytest.mark.parametrize("round_", [2, 4])
def test_why(ucb: Path, round_: int) -> None:
    printed, document = both("why", ucb, "--round", round_)
    table, exchanges = printed.split("exchange ", 1)
    terms, reports = ["mean_reward", "bonus"], ["num_samples", "steps", "duration", "weight", "loss", "accuracy"]
    assert len(document["candidates"]) == 8
    for candidate in document["candidates"]:
        assert cells(table, str(candidate["client"])) == list(of_candidate(candidate, terms, reports))
    for asked in document["asked"]:
        sizes = [size(asked["bytes_down"]), size(asked["bytes_up"])]
        assert cells(exchanges, asked["kind"])[1:5] == [count(asked["messages"]), *sizes, count(asked["passes"], 1)]
    assert all(words in printed for words in document["words"])


def test_diagnose_a_run(ucb: Path) -> None:
    printed, document = both("diagnose", ucb)
    (run,) = document["runs"]
    assert len(run["correlations"]) >= 3
    for each in run["correlations"]:
        assert cells(printed, each["outcome"]) == [
            each["outcome"],
            percent(each["rank_correlation"], 0)
            + "?" * (each["rounds"] < 10)
            + "*" * (each["clients"] is not None and each["clients"] < 3.5),
            count(each["rounds"]),
        ]
    shares = [share(run[name]) for name in ("greedy", "chance", "exploration")]
    greedy = "{} of the selected clients with a score have the highest predictions; uniform selection would give {}. Exploration: {}."
    for text in (greedy.format(*shares), f"for the first time: {share(run['new'])} of all"):
        assert text in printed


def test_diagnose_rows(folder: Path) -> None:
    printed, document = both("diagnose", folder / "same.toml", "--runs", folder / "runs")
    for label in ("uniform", "UCB", "loss"):
        own = [run for run in document["runs"] if run["label"] == label]
        means = [share(float(np.mean([run[key] for run in own]))) for key in ("greedy", "chance", "new")]
        assert cells(printed, label)[3:6] == means


@pytest.fixture(scope="module")
def race(folder: Path) -> tuple[str, Any]:
    """What a race of the rows over two seeds prints, and its document."""
    return both("race", folder / "same.toml", "--runs", folder / "runs", "--max-seeds", 2, "--quiet")


def test_race(race: tuple[str, Any]) -> None:
    printed, document = race
    assert len(document["rows"]) == 3
    for row in document["rows"]:
        line = cells(printed, row["label"])
        assert line[1:3] == [str(row["seeds"]), ACCURACY.spread(row["accuracy"], row["accuracy_sd"])]
        first = row["label"] == document["recommended"]
        assert line[3].partition(" [")[0] == ("–" if first else ACCURACY.signed(row["difference"]))
    cost = document["cost"]
    text = f"{size(cost['bytes'])}, {count(cost['client_passes'])} client passes, a simulated time of "
    assert f"The race took {count(cost['runs'])} runs: {text}{simulated_time(cost['simulated_time'])}" in printed


def test_strategies() -> None:
    printed, document = both("strategies", "oort")
    (plug_in,) = document["sections"]["strategy"]
    assert len(plug_in["parameters"]) > 10
    for parameter in plug_in["parameters"]:
        default = None if parameter["default"] != parameter["default"] else parameter["default"]
        name = f"{parameter['name']} = {setting(default)}"
        assert cells(printed, name)[:1] == [name]


def test_data_describe(folder: Path) -> None:
    printed, document = both("data", "describe", folder / "same.toml")
    table = printed[printed.index("client ") :]
    assert len(document["clients"]) == 8
    for client in document["clients"]:
        largest = f"{document['classes'][client['largest_class']]} {share(client['largest_class_share'])}"
        assert cells(table, str(client["client"])) == [
            str(client["client"]),
            *(count(samples) if samples else "·" for samples in client["counts"]),
            count(client["samples"]),
            largest,
            count(client["distance"], 2),
            str(client["classes_held"]),
            simulated_time(client["time"]),
        ]
    assert f"alpha (total) {number(document['effective_alpha'], 2)}" in printed


def test_quantiles_of_many_clients() -> None:
    small = ("--set", "federation.clients=40", "--set", "federation.partition='iid'")
    printed, document = both("data", "describe", *small)
    assert np.isnan(list(document["quantiles"].pop("wrong_labels").values())).all()  # null
    assert IN_WORDS["wrong_labels"] not in printed
    for name, by_level in document["quantiles"].items():
        whole, shown = name in ("samples", "classes_held"), IN_WORDS.get(name, name)
        write = rounds if whole else simulated_time if name == "time" else partial(count, digits=2)
        texts = [write(value) for value in by_level.values()]
        assert cells(printed, shown) == [shown, *texts]
    for name, key in {"samples": "samples", "time": "time"}.items():
        median = float(np.median([client[key] for client in document["clients"]]))
        assert document["quantiles"][name]["0.5"] == pytest.approx(median), "as charts have it"


def test_data_list() -> None:
    printed, document = both("data", "list")
    assert document["data"]
    for entry in document["data"]:
        assert cells(printed, entry["name"]) == [entry["name"], entry["from"], entry["here"]]


def test_keys_of_a_race_are_snake_case(race: tuple[str, Any]) -> None:
    """A measure of a race is a key of its row, and had a space."""
    for row in race[1]["rows"]:
        assert row["accuracy_sd"] > 0
        assert [key for key in row if not SNAKE_CASE.fullmatch(key)] == []


@pytest.mark.parametrize("record", sorted(ALL_RECORDS))
def test_keys_of_records_are_snake_case(record: str) -> None:
    """Keys that users choose, such as names of own measures, are documented as ``*``, or as an object with keys of its own."""
    keys = [key.name for key in keys_of(record)]
    assert [key for key in keys if key != "*" and not SNAKE_CASE.fullmatch(key)] == []
    assert len(set(keys)) == len(keys)
    assert "*" not in keys[:-1]
