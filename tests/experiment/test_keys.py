"""The hash that names a run: what enters it, and what does not. Changing one of these strings renames runs that people have."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from fedcohort.core.parameters import NotInKey, in_key, parameters
from fedcohort.experiment import Experiment

STRATEGY = """from fedcohort.core.parameters import parameters
from fedcohort.selection import Uniform

@parameters
class First(Uniform):
    skip: int = 0
"""

CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "name, seeds and rows": {
        "name": "x",
        "seeds": 9,
        "variants": [{"label": "a", "rounds": 5}],
        "sweep": {"selection.k": [1]},
    },
    "threads": {"engine": {"plan": "threads", "workers": 2}},
    "loop": {"engine": {"plan": "loop"}},
    "auto": {"engine": {"plan": "auto"}},
    "stacked": {"engine": {"plan": "stacked"}},
    "cuda": {"engine": {"device": "cuda"}},
    "tf32": {"engine": {"arithmetic": "tf32"}},
    "bf16, stacked": {"engine": {"arithmetic": "bf16", "plan": "stacked"}},
    "reporting": {"measures": {"target_accuracy": 0.5, "patience": 7, "checkpoint_every": 4}},
    "evaluate_every": {"measures": {"evaluate_every": 2}},
    "clients_every": {"measures": {"clients_every": 3}},
    "max_weight": {"algorithm": {"weights": "unbiased", "max_weight": 2.0}},
    "weights": {"algorithm": {"weights": "unbiased"}},
    "algorithm without max_weight": {"algorithm": "centralised"},
    "share": {"data": {"share": 0.5}},
    "augment": {"training": {"augment": "flip"}},
    "loss": {"training": {"loss": {"name": "sce"}}},
    "overrides": {"seed": 3, "rounds": 7, "selection": {"name": "powd", "k": 4, "d": 6}, "model": "logistic"},
}


KEYS = {
    "default": "768a47c75bb1",
    "name, seeds and rows": "768a47c75bb1",
    "threads": "768a47c75bb1",
    "loop": "768a47c75bb1",
    "auto": "768a47c75bb1",
    "stacked": "c7672aa12c36",
    "cuda": "c7218d175ff5",
    "tf32": "84dfe2282083",
    "bf16, stacked": "679ba6d88aab",
    "reporting": "768a47c75bb1",
    "evaluate_every": "3aa769d01f81",
    "clients_every": "731207a880aa",
    "max_weight": "59a070e4fe08",
    "weights": "68f569e429b1",
    "algorithm without max_weight": "0e29a0d37c66",
    "share": "ed04ee69893a",
    "augment": "28c26268733b",
    "loss": "35854e6fc05b",
    "overrides": "961b3336fced",
    "given in Python": "4009574a3c56",
    "plug-in file": "113c7266533c",
    "trace file": "b66ea9ec6616",
    "trace file that is gone": "d3378665aec8",
}


def keys(folder: Path) -> dict[str, str]:
    """The hash of every case, with what depends on files: a plug-in, and a trace that is there or gone."""
    (folder / "first.py").write_text(STRATEGY)
    (folder / "trace.json").write_text("[[0, 1], [2, 3, 4]]")
    trace: dict[str, Any] = {
        "rounds": 2,
        "systems": {"availability": {"name": "trace", "file": str(folder / "trace.json")}},
    }
    hashes = {name: Experiment(**values).key() for name, values in CASES.items()}
    hashes["given in Python"] = Experiment().key("data|model")
    hashes["plug-in file"] = Experiment(selection={"name": f"{folder}/first.py:First", "skip": 2}).key()
    hashes["trace file"] = Experiment(**trace).key()
    trace["systems"]["availability"]["file"] = "/nowhere/trace.json"
    hashes["trace file that is gone"] = Experiment(**trace).key()
    return hashes


def test_the_hash_of_every_special_case(tmp_path: Path) -> None:
    assert keys(tmp_path) == KEYS


@pytest.mark.parametrize("name", ["name, seeds and rows", "threads", "loop", "auto", "reporting"])
def test_what_changes_no_result_is_left_out(name: str) -> None:
    assert KEYS[name] == KEYS["default"]


def test_the_hash_does_not_depend_on_where_a_plug_in_file_lies(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    assert keys(tmp_path / "elsewhere")["plug-in file"] == KEYS["plug-in file"]


@parameters
class Marked:
    """Settings that are never, sometimes and always in the hash."""

    never: Annotated[int, NotInKey()] = 0
    later: Annotated[str, NotInKey(("none",))] = "none"
    always: int = 0


def test_a_setting_says_itself_whether_it_enters_the_hash() -> None:
    values: dict[str, list[object]] = {"never": [0, 1], "later": ["none", "some"], "always": [0, 1], "unknown": [0]}
    known = {name: [in_key(Marked, name, value) for value in choices] for name, choices in values.items()}
    assert known == {"never": [False, False], "later": [False, True], "always": [True, True], "unknown": [True]}
