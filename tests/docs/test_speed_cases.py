"""The cases of ``make bench-cases``: loops do the work of the runs; the tables say what falls short, and what was not measured."""

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
    "commit": "0123456789", "date": "2026-11-23",
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
    assert content["result"]["w2"][content["processor"]]["commit"] == content["commit"]
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


def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The cells of the overview of these results, by case."""
    (tmp_path / "speed-cases.json").touch()
    monkeypatch.setattr(speed_cases, "RESULTS", tmp_path)
    monkeypatch.setattr(speed_cases, "read", lambda _: {"result": result})
    lines = speed_cases.speed_overview().splitlines()
    rows = [[cell.strip().replace("\u00a0", " ") for cell in line.strip("|").split("|")] for line in lines]
    return dict(zip(["heads", *CASES], [rows[0], *rows[2:]], strict=True))


def with_ratio(threads: float, auto: float | None = None) -> dict[str, Any]:
    """Figures with these ratios; those of ``auto`` are of stacks."""
    plans = {"threads": FIGURES["plans"]["threads"] | {"ratio": threads}}
    if auto is not None:
        plans["auto"] = plans["threads"] | {"ratio": auto, "plan": "stacked"}
    return FIGURES | {"plans": plans}


def test_the_overview_has_every_case_and_the_command_of_those_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = shown(monkeypatch, tmp_path, {"w2": {"one": FIGURES}, "own-images": {"one": FIGURES}})
    assert rows["heads"] == ["case", "goal", "one", "command"]
    assert rows["w2"] == [CASES["w2"].title, "≥ 1.5 ×", "2.00 ×", "`make bench-cases ONLY=w2`"]
    assert rows["own-images"][2] == "1.25 of the data (loop 1.06)"
    for name in CASES.keys() - {"w2", "own-images"}:
        assert rows[name][2:] == ["–", f"`make bench-cases ONLY={name}`"]


def test_the_overview_shows_what_falls_short_of_its_goal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A goal is one of the plans that are shown; the processor with most cases comes first."""
    result = {
        "w2": {"one": with_ratio(1.2, 1.5), "two": with_ratio(1.2, 1.49)},
        "w2-own": {"one": with_ratio(1.43), "two": with_ratio(1.41)},
        "w1": {"two": with_ratio(1.5)},
        "own-images": {"two": {**FIGURES, "plans": {"threads": FIGURES["plans"]["threads"] | {"memory": 1.31}}}},
    }
    rows = shown(monkeypatch, tmp_path, result)
    assert rows["heads"][2:4] == ["two", "one"]
    assert rows["w2"][2:4] == ["*1.20 ×, 1.49 × stacked*", "1.20 ×, 1.50 × stacked"]
    assert rows["w2-own"][2:4] == ["*1.41 ×*", "1.43 ×"], "0.95 of 1.49 and of 1.50"
    assert rows["w1"][2:4] == ["1.50 ×", "–"]
    assert rows["own-images"][2] == "*1.31 of the data (loop 1.06)*"


def test_the_details_have_the_seconds_and_every_plan() -> None:
    text = speed_cases.details_table({"w2": FIGURES})
    (row,) = text.splitlines()[2:]
    cells = ["0.2", "2.00 ×", "refused", "failed: no reply in 300 s", "1.00 × / 1.00 ×", "1.99"]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == cells


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert all(case.title in page for case in CASES.values())


def test_figures_of_other_processors_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest figures of every case on every processor are kept."""
    path = tmp_path / "speed-cases.json"
    facts = {"command": "", "commit": "", "date": "2026-11-23", "processor": "", "versions": {}, "depends": {}}

    def keep(processor: str, commit: str, *names: str) -> dict[str, dict[str, str]]:
        monkeypatch.setattr(command, "provenance", lambda *_: facts | {"processor": processor, "commit": commit})
        command.keep(dict.fromkeys(names, FIGURES), path, "make bench-cases", 1.0, commit, {})
        result = json.loads(path.read_text("utf-8"))["result"]
        return {name: {other: row["commit"] for other, row in of_case.items()} for name, of_case in result.items()}

    assert keep("one", "a", "w1", "w2") == {"w2": {"one": "a"}, "w1": {"one": "a"}}
    assert keep("two", "b", "w2") == {"w2": {"one": "a", "two": "b"}, "w1": {"one": "a"}}
    assert keep("one", "c", "w2") == {"w2": {"one": "c", "two": "b"}, "w1": {"one": "a"}}
    monkeypatch.setattr(speed_cases, "RESULTS", tmp_path)
    monkeypatch.setattr(speed_cases, "read", lambda _: json.loads(path.read_text("utf-8")))
    one, two = speed_cases.speed_details().split("**two**")
    assert one.startswith("**one**")
    assert "*Measured at commit `c`, 2026-11-23; `w1`: commit `a`, 2026-11-23.*" in one
    assert "*Measured at commit `b`, 2026-11-23.*" in two


def test_figures_of_several_commits_depend_on_none(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    command.keep({"w2": FIGURES}, path, "make bench-cases", 1.0, "aaaaaaaaaa", {})
    assert "depends" in json.loads(path.read_text("utf-8"))
    command.keep({"w1": FIGURES}, path, "make bench-cases ONLY=w1", 1.0, "bbbbbbbbbb", {})
    content = json.loads(path.read_text("utf-8"))
    assert list(content["result"]) == ["w2", "w1"]
    assert "depends" not in content
