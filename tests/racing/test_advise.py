"""Advice on a federation: the twin of a table, a quick race on it, and what it says."""

import itertools
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.core.words import formatted_values
from fedcohort.experiment import load
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.client_table import client_table
from fedcohort.racing import advice
from fedcohort.racing.likeness import DIFFERS, MATCHED, NOT_GIVEN, ROUGH, Trait
from fedcohort.racing.objectives import objectives
from fedcohort.racing.result import Race
from fedcohort.racing.round_costs import round_cost
from fedcohort.racing.row_results import BEST, DROPPED, FRONT, UNDECIDED, RacedRow
from fedcohort.racing.twin import Twin, build_twin
from tests.cli.test_json_formats import check
from tests.experiments import small

FRAME = pd.DataFrame(
    {
        "client": list("abcdef"),
        "samples": [40, 80, 20, 30, 100, 30],
        "class:ill": [10, 80, 0, 15, 20, 5],
        "class:well": [30, 0, 20, 15, 80, 25],
        "seconds": [3.0, 10, 1, 5, 8, 2],
        "communication_seconds": [1, 0.5, 0, 1, 1, 1],
        "available": [1, 1, 0.9, 0.8, 1, 0.5],
    }
)
QUICK = {"rounds": 1, "model": "logistic"}


def twin(frame: pd.DataFrame, data: str = "digits", **settings: Any) -> Twin:
    return build_twin(client_table(frame), data, settings, Given())


def test_the_twin_has_the_clients_of_the_table() -> None:
    """The classes have 130 and 170 samples, digits 146 of class 1 and 142 of class 0: the larger class is class 1."""
    made = twin(FRAME)
    experiment = made.experiment
    assert made.stands_for == {"ill": "0", "well": "1"}
    assert experiment.data.classes == 2
    assert experiment.federation.clients == 6
    counts = np.array(experiment.federation.partition.parameters["counts"])
    sizes = counts.sum(axis=1)
    assert made.scale == pytest.approx(sizes.sum() / 300)
    assert made.scale == pytest.approx(146 / 170, abs=0.02)
    assert np.abs(sizes - made.scale * FRAME["samples"]).max() <= 1
    assert counts[1, 1] == counts[2, 0] == 0
    assert made.because == "digits has 288 training samples, 146 of class '1', which stands for 'well'"
    assert experiment.systems.latency.parameters == {"times_of_clients": [3.0, 10.0, 1.0, 5.0, 8.0, 2.0]}
    assert experiment.systems.network.parameters == {"times_of_clients": [1.0, 0.5, 0.0, 1.0, 1.0, 1.0]}
    assert experiment.systems.availability.parameters == {"shares": [1.0, 1.0, 0.9, 0.8, 1.0, 0.5]}
    assert experiment.selection.k == 3


def test_each_class_of_the_table_has_its_counterpart_in_the_data() -> None:
    """Three classes in any order of their sizes, which all fit: the counts of the twin are those of the table, class by class."""
    orders = set()
    for sizes in itertools.permutations([3, 6, 9]):
        counts = np.array([sizes, [1, 2, 1]])
        columns = {f"class:{name}": counts[:, i] for i, name in enumerate("xyz")}
        made = twin(pd.DataFrame({"samples": counts.sum(axis=1), **columns}))
        held = np.array(made.experiment.federation.partition.parameters["counts"])
        assert made.scale == 1
        assert held[:, made.order].tolist() == counts.tolist()
        assert made.stands_for == {name: str(made.order[i]) for i, name in enumerate("xyz")}
        orders.add(tuple(made.order.tolist()))
    assert len(orders) == 6


def test_the_class_that_limits_the_sizes_is_the_one_with_too_few_samples_of_its_counterpart() -> None:
    """146 of 148 samples of "ill" are there, of class 1, and 142 of 145 of "well", of class 0."""
    made = twin(pd.DataFrame({"samples": [148, 145], "class:ill": [148, 0], "class:well": [0, 145]}))
    assert made.because == "digits has 288 training samples, 142 of class '0', which stands for 'well'"


def test_without_communication_times_communication_takes_no_time() -> None:
    network = twin(FRAME.drop(columns="communication_seconds")).experiment.systems.network
    assert (network.name, network.parameters) == ("share", {"share": 0.0})


@pytest.mark.parametrize(("clients", "k"), [(2, 1), (3, 1), (5, 2), (6, 3), (8, 3), (60, 6)])
def test_a_twin_always_has_clients_to_select_among(clients: int, k: int) -> None:
    assert twin(pd.DataFrame({"samples": [10] * clients})).experiment.selection.k == k


def test_own_data_are_named_by_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin can be saved in another folder than that of the table of samples."""
    rows = pd.DataFrame({"x": np.arange(60.0), "y": np.arange(60.0) % 7, "label": np.arange(60) % 2})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    made = twin(FRAME[["samples"]], "rows.csv")
    assert made.experiment.data.name == str(tmp_path / "rows.csv")
    assert (made.data, made.because) == ("rows.csv", "rows.csv has 48 training samples")
    assert sum(made.experiment.federation.partition.parameters["sizes"]) <= 48


def test_what_is_not_given_is_assumed_and_said() -> None:
    made = twin(FRAME[["samples"]], selection={"k": 2}, federation={"partition": {"alpha": 0.1}})
    assert made.scale == 1
    assert made.experiment.federation.partition.parameters == {"sizes": [40, 80, 20, 30, 100, 30], "alpha": 0.1}
    assert made.experiment.selection.k == 2
    assert [note.partition(" ")[0] for note in made.notes] == ["Counts", "Times", "Availability"]
    assert "alpha = 0.1" in made.notes[0]


@pytest.mark.parametrize(
    ("frame", "data", "settings", "message"),
    [
        (FRAME, "diabetes", {}, "data = 'diabetes': has no classes"),
        (
            pd.DataFrame({"samples": [3] * 1500}), "digits", {},
            "1,500 clients (digits has 1,438 training samples); use data with at least 1,500 training samples, or fewer clients",
        ),
        (
            pd.DataFrame({"samples": [11] * 2, **{f"class:{c}": [1] * 2 for c in range(11)}}),
            "digits", {}, "data = 'digits': has 10 classes, and the table 11; use data with as many",
        ),
        (FRAME, "digits", {"variants": [{"label": "UCB", "selection": "ucb"}]}, "variants, sweep: a twin has one row"),
        (FRAME, "no_such_data", {}, "'no_such_data': unknown name"),
    ],
)  # fmt: skip
def test_data_that_do_not_suit_are_refused(frame: pd.DataFrame, data: str, settings: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        twin(frame, data, **settings)
    assert message in str(error.value)


def test_likeness_is_told_by_trait() -> None:
    states = {"samples": MATCHED, "class skew": DIFFERS, "time": ROUGH, "availability": NOT_GIVEN, "speed": MATCHED}
    traits = tuple(Trait(name, None, (0.0, 0.0, 0.0), 0.0, 0.0, "", state) for name, state in states.items())
    assert advice.Advice(twin(FRAME), traits, None, ()).about_likeness == (
        "How like the twin is, client by client: it matches samples and speed; it roughly matches time; it differs in class skew. "
        "Not given: availability."
    )


def test_a_table_that_makes_too_long_an_experiment_is_refused_with_a_number_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The text is one character too long: a little less than nine tenths of the clients are named, which leave room."""
    frame = pd.DataFrame({"samples": [2] * 400, "seconds": np.linspace(1.0, 9.0, 400), "available": [0.75] * 400})
    monkeypatch.setattr("fedcohort.racing.twin.MAX_CHARACTERS", len(twin(frame).experiment.to_toml()) - 1)
    with pytest.raises(UsageError, match=r"400 clients are too many for an experiment of .* draw at most 359 of them"):
        twin(frame)
    twin(frame[:359])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("advised")
    FRAME.to_csv(made / "clients.csv", index=False)
    return made


OPTIONS = ["--strategy", "uniform", "--strategy", "fedcs", "--max-seeds", "2", "--set", "rounds=1", "--quiet"]


def called(folder: Path, *more: str) -> str:
    options = [*OPTIONS, "--runs", str(folder / "runs"), *more]
    result = CliRunner().invoke(cli, ["advise", str(folder / "clients.csv"), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_recommends_and_resumes(folder: Path) -> None:
    text = " ".join(called(folder).split())
    for words in (
        "The race cannot tell yet which row is the best: too few seeds (2). So far, '",
        "Sizes are scaled by 0.8",
        "What this cannot know",
        "Cost of a round",
        "Wrong labels: the twin has none",
    ):
        assert words in text
    runs = {path: (path / "run.sqlite").stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    assert len(runs) == 4
    found = check("advise", called(folder, "--json"))
    assert runs == {path: (path / "run.sqlite").stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    assert found["race"]["recommended"] == found["recommended"] in ("uniform", "fedcs")
    assert [trait["name"] for trait in found["likeness"]][:2] == ["samples", "class skew"]
    costs = {cost["label"]: cost for cost in found["costs"]}["uniform"]
    assert costs["selected"] == pytest.approx(3)
    assert costs["models"] == pytest.approx(6)
    assert costs["bytes"] > 0
    assert costs["simulated_time"] <= 10.5


@pytest.mark.parametrize(
    ("settings", "models"),
    [
        # a round: one model down and one up for each of 3 clients
        ({"selection": {"name": "uniform", "k": 3}}, 6.0),
        # from the second round on, a control variate goes with each model, down and up; in the first one, only up
        ({"selection": {"name": "uniform", "k": 3}, "algorithm": "scaffold", "training": {"momentum": 0.0}}, 11.25),
        # 12 clients receive the model to answer with 2 numbers of 4 bytes; about 3 of them send it, none receives it again
        ({"selection": {"name": "ocs", "k": 3}}, None),
    ],
)
def test_the_cost_of_a_round_is_in_units_of_the_model(
    settings: dict[str, Any], models: float | None, tmp_path: Path
) -> None:
    """Logistic regression on digits has (64 + 1)·10 parameters of 4 bytes."""
    run = fedcohort.run(small(rounds=4, model="logistic", **settings), runs=tmp_path)
    found = round_cost(RacedRow("a", {0: run}, ((0.5,),), "best"))
    if models is None:
        models = 12 + 12 * 2 / 650 + float(run.rounds["admitted"].mean())
    assert found.models == pytest.approx(models)
    assert found.bytes == pytest.approx(models * 650 * 4)
    with closing(sqlite3.connect(run.path / "run.sqlite")) as database, database:  # a run of an earlier version
        database.execute("DELETE FROM meta WHERE key = 'model bytes'")
    run = type(run)(run.path)
    assert round_cost(RacedRow("a", {0: run}, ((0.5,),), "best")).models == found.models
    (run.path / "model.safetensors").unlink()
    assert math.isnan(round_cost(RacedRow("a", {0: run}, ((0.5,),), "best")).models)


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([("fedcs", BEST), ("ocs", UNDECIDED), ("uniform", DROPPED)], ["fedcs", "uniform"]),
        ([("uniform", BEST), ("fedcs", UNDECIDED)], ["uniform"]),
        ([("fedcs", FRONT), ("ocs", FRONT), ("uniform", DROPPED)], ["fedcs", "ocs", "uniform"]),
        ([("fedcs", FRONT), ("uniform", FRONT), ("ocs", DROPPED)], ["fedcs", "uniform"]),
    ],
)
def test_costs_are_those_of_the_recommended_rows_and_of_uniform_selection(
    rows: list[tuple[str, str]], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    several = any(state == FRONT for _, state in rows)
    raced = tuple(RacedRow(label, {}, ((0.5,),), state) for label, state in rows)
    result = Race("twin", tuple(objectives(["accuracy", "bytes"][: 1 + several])), raced, "seeds", 0.95, {})
    given: dict[str, Any] = {}
    planned: Any = SimpleNamespace(run=lambda **values: given.update(values) or result)
    monkeypatch.setattr(advice, "round_cost", lambda row: row.label)
    assert advice.PlannedAdvice(twin(FRAME), (), planned).run(runs="here", jobs=3, trust=True).costs == tuple(shown)
    assert given == {"runs": "here", "jobs": 3, "trust": True, "progress": None}


def test_the_twin_is_an_experiment_that_can_be_raced(folder: Path) -> None:
    called(folder, "--no-race", "--save", str(folder / "twin.toml"))
    saved = load(folder / "twin.toml")
    table = client_table(folder / "clients.csv")
    assert saved.key() == build_twin(table, "digits", {"rounds": 1}, Given()).experiment.key()
    assert check("advise", called(folder, "--no-race", "--json"))["race"] is None


def test_folders_on_the_way_to_the_file_of_the_twin_are_made(folder: Path) -> None:
    called(folder, "--no-race", "--save", str(folder / "new" / "deep" / "twin.toml"))
    assert load(folder / "new" / "deep" / "twin.toml").name


def test_the_python_function_says_the_same(folder: Path) -> None:
    options: dict[str, Any] = {"settings": {"rounds": 1}, "strategies": ["uniform", "fedcs"], "max_seeds": 2}
    made = fedcohort.advise(folder / "clients.csv", **options, runs=folder / "runs")
    assert isinstance(made.race, fedcohort.Race)
    assert "Cost of a round" in str(made)
    printed = json.loads(called(folder, "--json"))
    assert json.loads(formatted_values.as_json(made.to_json())) == {
        key: value for key, value in printed.items() if key not in ("format", "version")
    }
    assert "no race" in repr(fedcohort.advise(FRAME, with_race=False))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--save", "twin.json"], "--save twin.json: an experiment is a TOML file"),
        (["--data", "no_such_data"], "no_such_data"),
        (["--set", "selection.k=50"], "selection.k = 50: more than federation.clients = 6; use 1 to 6"),
        (["--set", "federation.clients=3"], "federation.partition.counts: has 6 lists, one for each client"),
        (["--objective", "speed"], "error: --objective 'speed': no such objective"),
    ],
)
def test_options_that_cannot_be_used(arguments: list[str], message: str, folder: Path) -> None:
    result = CliRunner().invoke(cli, ["advise", str(folder / "clients.csv"), *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_twin_whose_clients_have_too_few_samples_to_learn_from_says_so() -> None:
    """Clients with 1 to 4 samples roughly matched those of the table, as shares of all samples."""
    many = pd.concat([FRAME] * 12, ignore_index=True).drop(columns="client", errors="ignore")
    (scaled, few, *_) = twin(many).notes
    assert scaled.startswith("Sizes are scaled by 0.0")
    assert few.startswith("Half of its clients have about ")
    assert few.endswith(
        " samples or fewer, too few to learn from: with these data, a race says little about your federation."
    )
    assert not any("too few to learn from" in note for note in twin(FRAME).notes)


def test_the_advice_does_not_say_how_many_clients_every_strategy_selects() -> None:
    """The words "with 3 clients each" were not true of `all`, which trains all six."""
    unknown = " ".join(fedcohort.advise(FRAME, with_race=False, settings=QUICK).unknown)
    assert "the twin trains 'logistic' for 1 round with selection.k = 3; bytes grow with your model." in unknown
