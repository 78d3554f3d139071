"""The cases of ``make bench-cases``: the loops do the work of the runs, and the table says what was not measured."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.cases import __main__ as command
from benchmarks.cases import ours
from benchmarks.cases.bare import BareLoop
from benchmarks.cases.definitions import CASES, Case
from results import speed_cases
from results.result_file import ROOT

import fedcohort.rounds

FIGURES: dict[str, Any] = {
    "loop": {"wall": 0.2, "processor": 0.2, "memory": 1.06, "threads": 2},
    "plans": {
        "threads": {"wall": 0.1, "processor": 0.2, "memory": 1.25, "plan": "threads", "ratio": 2.0, "processor_ratio": 1.0},
        "stacked": {"wall": 0.1, "processor": 0.2, "memory": 1.3, "plan": "threads", "ratio": 2.0, "processor_ratio": 1.0},
        "auto": {"failure": "no reply in 300 s"},
    },
    "bound": 1.99, "turns": 5, "load": 0.1, "seconds": 12.0,
    "commit": "0123456789", "date": "2026-11-23", "processor": "one, 2 cores",
}  # fmt: skip


def tiny(name: str, **values: Any) -> Case:
    case = CASES[name]
    few = {"clients": 6, "samples": 7, "k": min(case.k, 2), "batch": 4, "candidates": min(case.candidates, 6)}
    return replace(case, **few | {"test": min(case.test, 20), "rounds": 1} | values)


def played(case: Case, plan: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a run says after each of its first turns."""
    monkeypatch.setattr(ours, "MOST_ROUNDS", case.rounds * rounds + 1)
    monkeypatch.setattr(fedcohort.rounds, "play_round", fedcohort.rounds.play_round)  # put back at the end
    said: list[dict[str, Any]] = []
    ours.play_run(case, plan, lambda facts: None if facts is None else said.append(copy.deepcopy(facts)))
    return said


@pytest.mark.parametrize("name", ["w2-own", "ask-mlp", "mlp-scaffold", "mlp-fedprox", "mlp-adam", "test-mlp"])
def test_the_loop_does_the_steps_of_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = tiny(name)
    turns = played(case, "threads", 2, monkeypatch)
    loop = BareLoop(case)
    for turn in turns:
        assert turn["plan"] == "threads"
        assert sum(map(loop.play, turn["clients"])) == turn["steps"] == 2 * case.k
        assert sum(case.steps(np.array(clients)) for clients in turn["clients"]) == turn["steps"]
    assert len(turns) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].measure == "time"])
def test_every_case_can_be_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"sizes": "even", "clients": 3, "samples": 4, "k": 1, "candidates": min(CASES[name].candidates, 3)}
    case = tiny(name, **sizes)
    (turn,) = played(case, "threads", 1, monkeypatch)
    assert BareLoop(case).play(turn["clients"][0]) == turn["steps"] == 1


@pytest.mark.slow
def test_contestants_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = tiny("w2", rounds=2)
    found = command.measure(case, 2)
    assert found["loop"]["wall"] > 0
    assert {name: row["plan"] for name, row in found["plans"].items()}.items() >= {"threads": "threads"}.items()
    assert all(row["ratio"] > 0 and row["processor_ratio"] > 0 for row in found["plans"].values())
    monkeypatch.setattr(command, "measure", lambda *_: found)
    monkeypatch.setattr("sys.argv", ["cases", "--only", "w2", "--out", str(tmp_path / "cases.json")])
    command.main()
    content = json.loads((tmp_path / "cases.json").read_text("utf-8"))
    assert content["result"]["w2"]["commit"] == content["commit"]
    assert {"versions", "processor", "date", "seconds", "depends"} <= content.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_case_says_what_it_is(name: str) -> None:
    case = CASES[name]
    assert (case.goal > 0) != bool(case.goal_of)
    assert case.goal_of in (*CASES, "")
    assert len(case.client_sizes()) == case.clients
    assert case.plans[0] == "threads"
    assert case.k <= case.clients


def test_the_bound_is_the_speed_of_the_longest_core() -> None:
    case = replace(CASES["w1"], sizes="even")
    assert case.bound([[0, 1], [0, 1, 2]], 2) == pytest.approx((2 + 1.5) / 2)
    assert CASES["one-mlp"].bound([[3]], 2) == 1


def test_the_table_has_every_case_and_the_command_of_those_not_measured() -> None:
    text = speed_cases.speed_table({"w2": FIGURES, "own-images": FIGURES}, every=True)
    rows = dict(zip(CASES, text.splitlines()[2:], strict=True))
    assert "not measured" not in rows["w2"]
    cells = ["0.2", "2.00 ×", "refused", "failed: no reply in 300 s", "1.00 × / 1.00 ×", "1.99", "≥ 1.5 ×"]
    assert [cell.strip() for cell in rows["w2"].split("|")][2:9] == cells
    assert "1.25 of the data (loop 1.06)" in rows["own-images"]
    for name in CASES.keys() - {"w2", "own-images"}:
        assert "not measured" in rows[name]
        assert f"`make bench-cases ONLY={name}`" in rows[name]


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert all(case.title in page for case in CASES.values())


def test_figures_of_other_processors_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a case are the newest of each processor, and the table begins with the newest of all."""
    path = tmp_path / "speed-cases.json"

    def keep(processor: str, commit: str, *names: str) -> dict[str, Any]:
        monkeypatch.setattr(command, "provenance", lambda *_: provenance | {"processor": processor, "commit": commit})
        command.keep(dict.fromkeys(names, FIGURES), path, "make bench-cases", 1.0, commit, {})
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return content

    provenance = {"command": "", "commit": "", "date": "2026-11-23", "processor": "", "versions": {}, "depends": {}}
    assert "elsewhere" not in keep("one", "a", "w2", "w1")
    content = keep("two", "b", "w2")
    assert {name: row["processor"] for name, row in content["result"].items()} == {"w2": "two", "w1": "one"}
    assert content["elsewhere"].keys() == {"one"}
    monkeypatch.setattr(speed_cases, "RESULTS", tmp_path)
    monkeypatch.setattr(speed_cases, "read", lambda _: content)
    own, other = speed_cases.speed_page().split("The ratios on another processor, one:")
    assert "commit `b`" in own
    assert "commit `a`" in other
    assert CASES["w1"].title not in other
    content = keep("one", "c", "w2")
    assert [row["commit"] for row in content["result"].values()] == ["c", "a"]
    assert {other: {name: row["commit"] for name, row in rows.items()} for other, rows in content["elsewhere"].items()} == {
        "two": {"w2": "b"}
    }  # fmt: skip


def test_cases_of_other_commits_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    command.keep({"w2": FIGURES}, path, "make bench-cases", 1.0, "aaaaaaaaaa", {})
    assert "depends" in json.loads(path.read_text("utf-8"))
    command.keep({"w1": FIGURES}, path, "make bench-cases ONLY=w1", 1.0, "bbbbbbbbbb", {})
    content = json.loads(path.read_text("utf-8"))
    assert list(content["result"]) == ["w2", "w1"]
    assert [row["commit"] for row in content["result"].values()] == ["aaaaaaaaaa", "bbbbbbbbbb"]
    assert "depends" not in content
    assert content["older"]
