"""Descriptions that cannot be used: each ends with exit code 2 and one line; see :mod:`tests.experiment.description_fuzzer`."""

import dataclasses
import sys
from pathlib import Path

import pytest

from fedcohort.core.errors import LONGEST, UsageError
from fedcohort.experiment import Experiment, load, parse_overrides
from fedcohort.experiment.plugin_files import plugin_files
from tests.cli.test_cli import process, refused
from tests.experiment.description_fuzzer import MAX_SECONDS, PREFIX, Case, Outcome, cases, complaint, outcome
from tests.repetitions import slow_after

CASES = 150


def test_hostile_descriptions_end_in_one_line(tmp_path: Path) -> None:
    codes = set()
    for number, case in enumerate(cases(2026, CASES)):
        result = outcome(case, tmp_path)
        assert not complaint(result), f"case {number}: {case}"
        codes.add(result.exit_code)
    assert codes == {0, 2}


def test_a_case_depends_on_its_seed_only() -> None:
    first = list(cases(1, 40))
    assert first == list(cases(1, 60))[:40]
    assert first != list(cases(2, 40))
    assert {case.kind for case in first} == {
        "one_value", "one_parameter", "plausible", "several_values", "options", "variants", "sweeps", "damaged_text",
        "hostile_files",
    }  # fmt: skip


FINE = Outcome(2, f"{PREFIX}k = 0: use 1\n", 0.1, "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exit_code": 1}, "exit code 1"),
        ({"traceback": "ValueError"}, "a traceback: ValueError"),
        ({"seconds": MAX_SECONDS + 1}, "took"),
        ({"stderr": "Usage: x\n"}, "is not one line"),
        ({"stderr": f"{PREFIX}two\nlines\n"}, "is not one line"),
        ({"stderr": f"{PREFIX}\x1b[0m\n"}, "is not one line"),
        ({"stderr": PREFIX + "x" * (LONGEST + 1)}, f"has {len(PREFIX) + LONGEST + 1} characters"),
    ],
)
def test_the_fuzzer_notices_what_is_wrong(change: dict[str, object], words: str) -> None:
    assert complaint(FINE, MAX_SECONDS) == ""
    assert complaint(dataclasses.replace(FINE, **change), MAX_SECONDS).startswith(words)  # type: ignore[arg-type]


def test_the_fuzzer_notices_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tests.experiment.description_fuzzer.experiment_of", broken)
    assert "ZeroDivisionError" in complaint(outcome(Case("x", b""), tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("algorithm.name = nan", "algorithm.name = nan: should be a name; valid: "),
        ("[algorithm]\nname = 'fedavg'\n[[variants]]\nlabel = 'x'\nalgorithm.name = nan", "algorithm.name = nan: should be a name"),
        (f"selection = {'[' * 5000}{']' * 5000}", "has tables or lists in more than 32 levels"),
        (f"selection = {'[' * 40}{']' * 40}", "selection: has tables or lists in more than 32 levels"),
        (f"{'a.' * 100_000}a = 1", "has a key of more than 200 parts"),
        (f"rounds = {'9' * 5000}", "not valid TOML: Exceeds the limit"),
        (f"seed = 0x{'f' * 5000}", "seed = <integer of 20000 bits>: an integer may have at most 64 bits"),
        ("self = 1", "self: unknown key"),
        ("selection.__dataclass_self__ = 1", "selection.__dataclass_self__: unknown key for 'uniform'"),
        ("selection.parameters = 5", "selection.parameters = 5: should be a table"),
        ("seeds = [1, 2]", "seeds = [1, 2]: should be a whole number, not a list (Number of repetitions, with seeds seed,"),
        ("systems.availability = { name = 'trace', file = '~nobody/x' }\nselection.k = 0", "selection.k = 0"),
        (f"name = '{'x' * 100_000_000}'", "is longer than 100,000,000 characters"),
        (f"seed = {'9' * 100_001}", "has a number of more than 100,000 digits"),
        (f"seed = 1{'_0' * 50_001}", "has a number of more than 100,000 digits"),
    ],
)  # fmt: skip
def test_files_that_ended_in_a_traceback(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        load(file)
    assert words in str(error.value)


@pytest.mark.parametrize("key", ["name", "data.image_column", "variants.0.label", "measures.note"])
def test_text_like_a_plug_in_is_text_where_no_plug_in_can_be(key: str, tmp_path: Path) -> None:
    file = tmp_path / "text.toml"
    lines = {
        "variants.0.label": "[[variants]]\nlabel = 'note.py:Class'",
        "measures.note": "name = 'see notes.py: there'",
    }
    file.write_text(lines.get(key, f"{key} = 'note.py:Class'"))
    experiment = load(file)
    for cell in experiment.cells():
        assert cell.experiment.key()
        assert cell.experiment.own_files() == []
    assert "note" in str(experiment.to_dict())


def test_plug_in_files_are_found_in_the_base_the_variants_and_the_sweep(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / f"{name}.py").write_text("")
    values = {
        "name": f"{tmp_path}/a.py:No",
        "selection": {"name": "conformal", "base": {"name": f"{tmp_path}/a.py:Yes"}},
        "variants": [{"label": f"{tmp_path}/d.py:No", "training": {"loss": {"name": f"{tmp_path}/b.py:Yes"}}}],
        "sweep": {
            "federation.partition.name": [f"{tmp_path}/c.py:Yes"],
            "systems": [{"latency": f"{tmp_path}/e.py:Yes"}],
            "data.name": [f"{tmp_path}/d.py:yes"],
            "data.label_column": [f"{tmp_path}/f.py:no"],
        },
        "public": {"name": f"{tmp_path}/g.py:yes"},
    }
    assert [file.name for file in plugin_files(values)] == ["a.py", "b.py", "c.py", "d.py", "e.py", "g.py"]


def test_paths_of_plug_ins_begin_at_the_file_in_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(
        "from fedcohort.selection import Cohort, Selector\n"
        "class Mine(Selector):\n    def select(self, round):\n        return Cohort(round.available[: round.k])\n"
    )
    file = tmp_path / "here" / "own.toml"
    file.write_text(
        "selection = 'mine.py:Mine'\n[[variants]]\nlabel = 'b'\nselection = { name = 'mine.py:Mine', k = 2 }\n"
        "[sweep]\nselection = ['mine.py:Mine', { name = 'conformal', base = 'mine.py:Mine' }]\nfederation.holdout = [0.2]\n"
        .replace("federation.holdout", "'federation.holdout'")
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    rows = load(file).rows()
    assert len(rows) == 4
    names = {row.selection.name for _, row in rows} | {row.selection.parameters.get("base") for _, row in rows}
    assert names == {f"{tmp_path}/here/mine.py:Mine", "conformal", None}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_bytes(b"\xef\xbb\xbfrounds = 7\r\n")
    assert load(tmp_path / "windows.toml").rounds == 7


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no such file")
def test_a_file_without_end_is_not_read_to_the_end() -> None:
    with pytest.raises(UsageError, match=r"^/dev/zero: is longer than 100,000,000 characters"):
        load("/dev/zero")


def test_a_setting_of_several_lines_is_not_taken_for_several_settings() -> None:
    assert parse_overrides(["name=3\nseeds = 5"]) == {"name": "3\nseeds = 5"}


@pytest.mark.parametrize("settings", [["selection=ucb", "selection.k=5"], ["selection.k=5", "selection=ucb"]])
def test_settings_that_contradict_each_other_are_refused_in_each_order(settings: list[str]) -> None:
    with pytest.raises(UsageError, match="set only one of the two"):
        parse_overrides(settings)


@pytest.mark.parametrize(
    "name",
    [
        ".py:C",
        "a.py:",
        "a.py:1",
        "a.py:C:D",
        "a\n.py:C",
        "x" * 5000 + ".py:C",
        "note.py: see below",
        "http://x.py:80/a",
    ],
)
def test_names_without_the_form_of_a_file_and_a_class_are_no_files(name: str) -> None:
    with pytest.raises(UsageError, match=r"no such strategy; .*your own: 'path/to/file.py:Class'"):
        Experiment(selection={"name": name})


# --- numbers of rows -----------------------------------------------------------------------------------------------------------


def test_too_many_rows_are_refused_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    many = list(range(1, 3001))
    monkeypatch.setattr(Experiment, "rows", lambda _: pytest.fail("a row was built"))
    with pytest.raises(UsageError, match=r"^sweep: gives 9,000,000 rows; at most 5,000 are possible"):
        Experiment(sweep={"selection.k": many, "rounds": many})
    with pytest.raises(UsageError, match=r"^variants: gives 6,001 rows; at most 5,000 are possible"):
        Experiment(variants=[{"label": f"v{i}"} for i in range(6000)])
    with pytest.raises(UsageError, match=r"^seeds = 10000: gives 30,000 runs \(3 rows × 10000 seeds\); at most 20,000"):
        Experiment(seeds=10_000, sweep={"rounds": [1, 2, 3]})


@pytest.mark.parametrize("choices", [[1, 2, 1], [1, 1.0], [{"name": "ucb"}, {"name": "ucb"}], [[1], [1]]])
def test_a_value_that_is_given_twice_is_refused(choices: list[object]) -> None:
    with pytest.raises(UsageError, match="the same value is given twice"):
        Experiment(sweep={"selection": choices})


# --- the real command line -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    slow_after(2, [
        (["run", "."], (".: is a folder; give the path of an experiment file (.toml)",)),
        (["run", "--set", "algorithm.name=nan"], ("algorithm.name = nan: should be a name",)),
        (["run", "--set", "name=\udcff"], ("name = '\\udcff': is not valid Unicode",)),
        (["run", f"--{'x' * 1000}"], ("No such option", "--xxx", "; see `fedcohort run --help`")),
        (["sweep", *(part for key in ("rounds", "selection.k") for part in ("--over", f"{key}={list(range(1, 3001))}"))],
         ("sweep: gives 27,000,000 rows",)),
    ]),
)  # fmt: skip
@pytest.mark.skipif(sys.platform == "win32", reason="arguments are bytes on Unix only")
@pytest.mark.slow
def test_the_command_line_refuses_in_one_line(arguments: list[str], words: tuple[str, ...]) -> None:
    result = process(*arguments)
    refused(result, *words)
    assert len(result.stderr) <= len(PREFIX) + LONGEST + 1
