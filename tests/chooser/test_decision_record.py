"""The run directory of a server: the settings of its run, the head of its description, and what it knows about its clients."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedcohort.chooser.decision_record import DecisionRecord, portrait_of
from fedcohort.record import open_run
from fedcohort.selection import Census
from fedcohort.selection.strategies.uniform import Uniform

FACTS = {"given": "a server", "algorithm": "", "plan": "server"}


def census(m: int, histogram: np.ndarray | None = None) -> Census:
    return Census(np.arange(1, m + 1), num_classes=3, k=2, histogram=histogram)


@pytest.mark.parametrize(("rounds", "planned"), [(5, 5), (0, 1)])
def test_the_settings_are_those_of_the_server(rounds: int, planned: int, tmp_path: Path) -> None:
    record = DecisionRecord(
        Uniform(), "mine", "row", federation="two hospitals", algorithm="its own", k=2, seed=7, rounds=rounds,
        identity="", facts=FACTS,
    )  # fmt: skip
    record.path = tmp_path / "run"
    record.begin(census(4), [], 0)
    record.close()
    run = open_run(record.path)
    described = run.described
    assert (described.name, described.rounds, described.seed, described.seeds) == ("mine", planned, 7, 1)
    assert (described.federation.clients, described.selection.k) == (4, 2)
    assert (run.meta["label"], run.meta["seed"], run.meta["plan"]) == ("row", "7", "server")
    assert run.meta["key"] == record.key(7) != run.meta["row"] == record.key(0)


@pytest.mark.parametrize(("m", "names"), [(0, ""), (20, ": c0, .*, c19"), (21, ": c0, .*, c19, …")])
def test_up_to_20_clients_are_named_in_the_head_of_the_description(m: int, names: str, tmp_path: Path) -> None:
    record = DecisionRecord(
        Uniform(), "mine", "row", federation="some hospitals", algorithm="its own", k=2, seed=7, rounds=5,
        identity="", facts=FACTS,
    )  # fmt: skip
    record.path = tmp_path / "run"
    record.begin(census(m or 3), [f"c{i}" for i in range(m)], 0)
    record.close()
    text = (record.path / "experiment.toml").read_text(encoding="utf-8")
    pattern = rf"(?m)^# data: of {m or 3} clients of some hospitals{names}\n# algorithm: its own$"
    assert re.search(pattern, text), text


def test_what_a_server_knows_about_its_clients() -> None:
    counts = np.arange(12).reshape(4, 3)
    portrait = portrait_of(census(4, counts), held_out=np.array([0, 1, 1, 2]))
    assert portrait.classes == ("0", "1", "2")
    assert portrait.facts["samples"].tolist() == [1, 2, 3, 4]
    assert portrait.facts["held_out"].tolist() == [0, 1, 1, 2]
    assert portrait.facts["counts"].tolist() == counts.tolist()
    assert portrait.names == ()
    other = portrait_of(census(4), classes=["a", "b", "c"])
    assert other.classes == ("a", "b", "c")
    assert other.facts["held_out"].tolist() == [0] * 4
    assert "counts" not in other.facts


def test_clients_that_join_later_have_no_name() -> None:
    assert portrait_of(census(4), names=["0", "b"]).names == ("0", "b", "", "")
    assert portrait_of(census(4), names=["0", "1", "2", "3"]).names == ()  # their numbers are no names
