"""The commands as people meet them: what they print, what they leave on disk, and how they say that something is wrong."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import fedcohort
from fedcohort.algorithms import ALGORITHMS
from fedcohort.cli import cli
from fedcohort.cli.entry import KEPT
from fedcohort.record import Run, writing
from fedcohort.selection import STRATEGIES

HEAVY = ("torch", "numpy", "pandas", "scipy", "pydantic", "rich", "sklearn", "datasets")
TINY = """
name = "tiny"
rounds = 3
seeds = 2

[[variants]]
label = "UCB"
selection = { name = "ucb" }
"""


def call(*arguments: Any) -> Result:
    """One command in this process; an exception that is not an exit is raised."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*arguments: Any, code: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    command = ["-m", "fedcohort", *map(str, arguments)] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``tiny.toml`` and, in ``runs``, all its runs."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.toml").write_text(TINY)
    assert call("compare", folder / "tiny.toml", "--runs", folder / "runs", "--quiet").exit_code == 0
    return folder


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The directory of a finished run of two rounds, in a folder of its own."""
    assert call("run", *SHORT, "--runs", tmp_path / "runs", "--quiet").exit_code == 0
    (path,) = (tmp_path / "runs").iterdir()
    return path


SHORT = ("--set", "rounds=2", "--set", "seeds=1")


# --- light at the door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["import fedcohort", "import fedcohort.cli", "import fedcohort.__main__ as m"])
def test_importing_is_light(code: str) -> None:
    code = code.replace(
        "import fedcohort.__main__ as m",
        "import sys; sys.argv = ['x', '--help']\ntry:\n import fedcohort.__main__\nexcept SystemExit: pass",
    )
    result = process(code=f"{code}\nimport sys; print('loaded:', [name for name in {HEAVY} if name in sys.modules])")
    assert result.stdout.splitlines()[-1] == "loaded: []"


def test_help_loads_little() -> None:
    """Of other packages only click, of FedCohort the commands themselves, and not much of the standard library."""
    code = """
import runpy, sys
before, sys.argv = set(sys.modules), ["fedcohort", "--help"]
try:
    runpy.run_module("fedcohort", run_name="__main__", alter_sys=True)
finally:
    print("loaded:", *sorted(set(sys.modules) - before))
"""
    result = process(code=code)
    assert result.returncode == 0, result.stderr
    assert "Usage:" in result.stdout
    modules = result.stdout.splitlines()[-1].removeprefix("loaded: ").split()
    others = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert others - {"colorama"} == {"click", "fedcohort"}, "on Windows, click needs colorama"
    ours = [name for name in modules if name.startswith("fedcohort") and not name.startswith("fedcohort.cli")]
    packages = {name.rpartition(".")[0] for name in modules}
    assert len(set(ours) - packages) <= 9, "modules besides the commands themselves"
    assert len(modules) <= 160, "with Python 3.11 there are 90"


SIGNAL_DURING_THE_IMPORT = """
import importlib.abc, os, signal, sys, time
import fedcohort.cli

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "fedcohort.cli.entry":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

sys.meta_path.insert(0, Finder())
fedcohort.cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_ctrl_c_while_the_command_is_imported_is_no_traceback() -> None:
    result = process(code=SIGNAL_DURING_THE_IMPORT)
    assert (result.returncode, result.stderr) == (130, "fedcohort: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no folder that is used")
def test_a_current_folder_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library ended the process with a message about one of its own files."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (["run"], ["report", str(tmp_path)]):
        result = CliRunner().invoke(cli, words)
        assert (result.exit_code, result.stderr) == (
            2,
            "fedcohort: error: the current folder was removed; change to another folder\n",
        )


@pytest.mark.parametrize("command", [("data", "list"), ("data", "cache")])
def test_lists_of_data_need_no_pytorch(command: tuple[str, str]) -> None:
    """They took two seconds, of which PyTorch took most."""
    code = f"""
import runpy, sys
sys.argv = ["fedcohort", *{command}]
try:
    runpy.run_module("fedcohort", run_name="__main__", alter_sys=True)
finally:
    print("loaded:", [name for name in ("torch", "pandas", "scipy", "sklearn") if name in sys.modules])
"""
    result = process(code=code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize(
    "command", ["run", "compare", "sweep", "measures", "data", "data describe", "data list", "strategies", "why"]
)
def test_every_command_explains_itself(command: str) -> None:
    result = call(*command.split(), "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage:")


@pytest.mark.parametrize("group", ["", "data", "deploy", "site"])
def test_the_list_of_commands_fits_a_line_each(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = call(*group.split(), "--help")
    assert "..." not in result.stdout.replace("[ARGS]...", "")


def test_version() -> None:
    from importlib.metadata import version

    assert process("--version").stdout == f"fedcohort {version('fedcohort')}\n"


# --- run ---------------------------------------------------------------------------------------------------------------------


def test_run_tells_what_every_seed_came_to(done: Path) -> None:
    result = call("run", done / "tiny.toml", "--runs", done / "runs", "--quiet")
    assert result.exit_code == 0
    assert result.stdout.startswith("uniform, 3 rounds\n")
    for word in ("final", "best", "local", "Jain", "simulated", "wall", "seed 0: ", "seed 1: "):
        assert word in result.stdout
    for path in (done / "runs").glob("tiny-uniform-*"):
        assert str(path) in result.stdout


def test_run_tells_in_which_runs_training_failed(tmp_path: Path) -> None:
    """A final accuracy of 10% had no word beside it, where `compare` had lines of advice."""
    options = ("--set", "training.lr=1e30", "--set", "rounds=2", "--set", "seeds=1", "--runs", tmp_path)
    text = " ".join(call("run", *options, "--quiet").stdout.split())
    (folder,) = tmp_path.iterdir()
    compared = call("compare", folder).stdout
    lines = " ".join(compared[compared.index("! ") : compared.index("! 1 seed")].split())
    assert lines.startswith("! 'uniform': ")
    assert "Try: " in lines
    assert lines in text
    assert "! 1 seed" not in text, "nothing is compared"
    easy = ("--set", "data.name=breast_cancer", "--set", "rounds=4", "--set", "seeds=1", "--runs", tmp_path / "easy")
    sound = call("run", *easy, "--quiet").stdout
    assert "! " not in sound


def written(folder: Path) -> dict[Path, int]:
    """When the files of all runs were last written, but for SQLite's shared memory, which readers touch."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*") if path.suffix != ".sqlite-shm"}


def test_a_finished_run_is_not_run_twice(done: Path) -> None:
    before = written(done)
    result = call("run", done / "tiny.toml", "--runs", done / "runs")
    assert result.stdout.count("(was already finished)") == 2
    assert result.stderr == ""
    assert written(done) == before


def test_run_a_variant(done: Path) -> None:
    result = call("run", done / "tiny.toml", "--variant", "UCB", "--runs", done / "runs", "--json")
    said = json.loads(result.stdout)
    assert said["label"] == "UCB"
    assert [run["seed"] for run in said["runs"]] == [0, 1]
    assert all(Run(run["path"]).meta["label"] == "UCB" for run in said["runs"])
    assert {run["note"] for run in said["runs"]} == {"was already finished"}


def test_run_one_seed(done: Path, tmp_path: Path) -> None:
    file, runs = done / "tiny.toml", done / "runs"
    [known] = json.loads(call("run", file, "--seed", 1, "--runs", runs, "--json").stdout)["runs"]
    assert (known["seed"], known["note"]) == (1, "was already finished")
    result = call("run", file, "--variant", "UCB", "--seed", 7, "--runs", tmp_path, "--json")
    [other] = json.loads(result.stdout)["runs"]
    assert (other["seed"], Run(other["path"]).meta["label"]) == (7, "UCB")
    assert len(list(tmp_path.iterdir())) == 1
    experiment = fedcohort.load_experiment(file, ["selection.name=ucb"])
    assert fedcohort.run(experiment, seed=7, runs=tmp_path).path == Path(other["path"])  # as in Python


@pytest.mark.parametrize("seed", ["-1", "1.5", "x"])
def test_a_bad_seed_is_refused(seed: str) -> None:
    refused(call("run", "--seed", seed), "--seed")


def test_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    def stop(cell: Any, row: Any) -> None:
        if row.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(fedcohort.Experiment(rounds=3, measures={"checkpoint_seconds": 0}), runs=tmp_path, progress=stop)
    result = call("run", "--set", "rounds=3", "--set", "seeds=1", "--runs", tmp_path)
    assert "(resumed after round 2)" in result.stdout
    assert "round 3 of 3" in result.stderr
    assert "round 2 of 3" not in result.stderr


def test_settings_replace_what_the_file_says(done: Path, tmp_path: Path) -> None:
    result = call(
        "run", done / "tiny.toml", "--set", "rounds=1", "--set", "seeds=1", "--set", "selection.name=all", "--set", "seed=7",
        "--runs", tmp_path, "--json",
    )  # fmt: skip
    (run,) = json.loads(result.stdout)["runs"]
    assert (run["seed"], run["rounds"]) == (7, 1)
    assert Run(run["path"]).experiment.selection.name == "all"


# --- compare and sweep -------------------------------------------------------------------------------------------------------


def test_compare_prints_the_table(done: Path) -> None:
    result = call("compare", done / "tiny.toml", "--runs", done / "runs")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["tiny"] in lines
    assert next(i for i, words in enumerate(lines) if words[:1] == ["uniform"]) + 1 == next(
        i for i, words in enumerate(lines) if words[:1] == ["UCB"]
    )
    assert f"Runs: {done / 'runs'}\n" in result.stdout


def test_compare_json_is_one_document(done: Path) -> None:
    result = process("compare", done / "tiny.toml", "--runs", done / "runs", "--json", "--set", "seeds=1")
    said = json.loads(result.stdout)
    assert [row["label"] for row in said["rows"]] == ["uniform", "UCB"]
    assert said["rows"][1]["difference_low"] is None


def test_compare_reads_directories(done: Path) -> None:
    runs = sorted((done / "runs").glob("tiny-uniform-*")) + sorted((done / "runs").glob("tiny-ucb-*"))
    read = json.loads(call("compare", *runs, "--json").stdout)
    ran = json.loads(call("compare", done / "tiny.toml", "--runs", done / "runs", "--json").stdout)
    assert read["rows"] == ran["rows"]


def test_sweep_runs_the_grid_in_order(tmp_path: Path) -> None:
    result = call(
        "sweep",
        *SHORT,
        "--over",
        "selection.k=[3, 1]",
        "--over",
        "federation.partition.alpha=[0.5]",
        "--runs",
        tmp_path,
        "--json",
    )
    labels = [row["label"] for row in json.loads(result.stdout)["rows"]]
    strategies = ("uniform", "UCB", "select-by-loss")
    assert labels == [f"{strategy}, k={k}, alpha=0.5" for strategy in strategies for k in (3, 1)]


def test_sweep_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('rounds = 2\nseeds = 1\n[sweep]\n"selection.k" = [1, 2]\n')
    result = call("sweep", file, "--runs", tmp_path / "runs", "--quiet")
    assert result.exit_code == 0
    assert result.stdout.index("uniform, k=1") < result.stdout.index("uniform, k=2")


# --- progress ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    result = process("run", "--set", "rounds=3", "--set", "seeds=2", "--runs", tmp_path, "--json", FORCE_COLOR="1")
    lines = result.stderr.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("[1/2] uniform, seed 0: round 1 of 3, test accuracy ")
    assert lines[5].startswith("[2/2] uniform, seed 1: round 3 of 3, test accuracy ")
    assert "simulated time" in lines[5]
    assert lines[5].endswith("0:00 left")
    json.loads(result.stdout)


def test_long_runs_print_every_nth_round(tmp_path: Path) -> None:
    result = call("run", "--set", "rounds=25", "--set", "seeds=1", "--runs", tmp_path, "--json")
    rounds = [int(line.split("round ")[1].split()[0]) for line in result.stderr.splitlines()]
    assert rounds == [3, 6, 9, 12, 15, 18, 21, 24, 25]


def test_quiet_says_nothing_on_the_way(tmp_path: Path) -> None:
    assert call("run", *SHORT, "--runs", tmp_path, "--quiet").stderr == ""


@pytest.mark.slow
def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "fedcohort",
        "run",
        "--set",
        "rounds=4",
        "--set",
        "seeds=1",
        "--runs",
        str(tmp_path),
    ]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment) as running:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        out = running.stdout.read() if running.stdout else b""
    os.close(leader)
    text = shown.decode()
    assert "━" in text
    assert "uniform, seed 0" in text
    assert "round 4/4" in text
    assert "left" in text
    assert out.decode().startswith("uniform, 4 rounds")


# --- data --------------------------------------------------------------------------------------------------------------------


def test_describe_shows_the_partition() -> None:
    result = call("data", "describe", "--set", "seed=3")
    assert "digits: 1,438 training and 359 test samples, 10 classes" in result.stdout
    assert "12 clients by dirichlet_class(alpha = 0.05, variant = balanced, min_size = 10), seed 3" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    clients = [words for words in rows if words and words[0].isdigit() and "·" in words]
    assert [int(words[0]) for words in clients] == list(range(12))
    for words in clients:
        assert sum(int(n) for n in words[1:11] if n != "·") == int(words[11])


def test_describe_says_what_the_data_decided_in_the_words_of_compare(tmp_path: Path) -> None:
    """The line had no "fedcohort:" before it."""
    rows = "".join(f"{'AB'[i % 2]},{i % 7},{'no' if i % 3 else 'yes'}\n" for i in range(40))
    (tmp_path / "patients.csv").write_text(f"client,age,label\n{rows}")
    said = call("data", "describe", tmp_path / "patients.csv").stderr.splitlines()
    assert said == ["fedcohort: federation.partition: not given, so 'natural': the 2 clients of the data"]


def test_describe_json_is_the_partition_that_is_trained_on(done: Path) -> None:
    said = json.loads(call("data", "describe", done / "tiny.toml", "--json").stdout)
    (path,) = (done / "runs").glob("tiny-uniform-seed0-*")
    sizes = {row["client"]: row["samples"] for row in said["clients"]}
    trained = Run(path).clients
    assert (trained["client"].map(sizes) == trained["num_samples"]).all()
    assert all(sum(row["counts"]) == row["samples"] for row in said["clients"])
    assert said["partition"]["name"] == "dirichlet_class"


def test_many_clients_are_summarised() -> None:
    settings = ("--set", "federation.clients=200", "--set", "federation.partition.min_size=0")
    result = call("data", "describe", *settings)
    assert "The first 30 of 200 clients:" in result.stdout
    assert "quantiles over" in result.stdout
    said = json.loads(call("data", "describe", *settings, "--json").stdout)
    assert len(said["clients"]) == 200
    sizes = [row["samples"] for row in said["clients"]]
    assert (said["quantiles"]["samples"]["0"], said["quantiles"]["samples"]["1"]) == (min(sizes), max(sizes))
    empty = [row for row in said["clients"] if row["samples"] == 0]
    assert empty
    assert all(row["largest_class"] is row["distance"] is None for row in empty)


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_describe_fits(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    result = call("data", "describe", "--set", "data.name=breast_cancer", "--set", "federation.partition.alpha=10")
    assert max(map(len, result.stdout.splitlines())) <= int(columns)


def test_known_data_sets(tmp_path: Path) -> None:
    (tmp_path / "ylecun" / "mnist").mkdir(parents=True)
    said = {
        row["name"]: row for row in json.loads(call("data", "list", "--data-dir", tmp_path, "--json").stdout)["data"]
    }
    assert said["digits"]["here"] == "yes"
    assert said["mnist"]["here"] == "mirror, ylecun/mnist"
    assert said["cifar10"]["here"] == "not in a mirror"
    shown = call("data", "list", "--data-dir", tmp_path).stdout
    assert all(name in shown for name in said)


@pytest.mark.parametrize("columns", ["60", "80"])
def test_ids_of_known_data_are_whole_in_narrow_terminals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    (tmp_path / "zalando-datasets" / "fashion_mnist").mkdir(parents=True)
    monkeypatch.setenv("COLUMNS", columns)
    lines = call("data", "list", "--data-dir", tmp_path).stdout.splitlines()
    assert max(map(cell_len, lines)) <= int(columns)
    assert not any("…" in line for line in lines)


def test_notes_below_seeds_explain_shown_columns_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(TINY)
    for columns in ("60", "140"):
        monkeypatch.setenv("COLUMNS", columns)
        shown = " ".join(call("run", "x.toml", "-q").stdout.split())
        notes = shown.partition("Accuracies are in %")[2]
        hidden = notes.partition("Hidden for lack of width:")[2]
        assert ("Local accuracy: of" in notes) == ("local accuracy" not in hidden)
        chance = "Jain of chance: its mean under uniform selection of as many of the available clients in each round"
        assert (chance in notes) == ("Jain of chance: its" in notes) == ("Jain of chance" not in hidden)
        assert bool(hidden) == (columns == "60")


# --- strategies --------------------------------------------------------------------------------------------------------------


def test_every_strategy_and_algorithm_is_listed() -> None:
    said = json.loads(call("strategies", "--json").stdout)["sections"]
    assert list(said)[:2] == ["strategy", "algorithm"]
    assert {"partition", "model", "loss", "label_noise"} <= set(said)
    assert [entry["name"] for entry in said["strategy"]] == list(STRATEGIES)
    assert [entry["name"] for entry in said["algorithm"]] == list(ALGORITHMS)
    for entry in said["strategy"] + said["algorithm"]:
        assert entry["summary"]
        assert entry["source"]
        assert entry["status"] in ("paper", "code", "ours")
        for fact in ("asks", "discloses", "knows", "cost"):
            assert entry[fact], f"{entry['name']}: its card does not say what it {fact}"
    needs = {entry["name"]: entry["needs"] for entry in said["strategy"]}
    assert (needs["uniform"], needs["haccs"], needs["conformal"]) == ([], ["histogram"], ["holdout"])
    for entries in said.values():
        for entry in entries:
            assert all(parameter["doc"] for parameter in entry["parameters"]), entry["name"]


def test_one_strategy_in_full() -> None:
    shown = " ".join(call("strategies", "ucb").stdout.split())
    for words in ("Team Darts report", "status paper", "epsilon = 0.1", "initial_rounds = 5", "(clip | affine | raw)"):
        assert words in shown
    for words in (
        "asks nothing",
        "discloses nothing",
        "knows a validation set",
        "cost O(m) + one validation",
        "needs validation",
    ):
        assert words in shown
    assert "fedavg" not in shown


def test_what_a_strategy_does_with_the_accuracy_is_not_called_its_score() -> None:
    """A strategy with scores had the line "score: does not use it"."""
    lines = {name: [line.split() for line in call("strategies", name).stdout.splitlines()] for name in ("oort", "tifl")}
    assert not any(line[:1] == ["score"] or line[:1] == ["accuracy"] for line in lines["oort"])
    assert ["accuracy", "or", "R²", "only", "the", "order"] in [line[:6] for line in lines["tifl"]]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("UCB1", ["ucb"]),
        ("Power-of-Choice", ["powd"]),
        ("FedOpt", ["fedadagrad", "fedadam", "fedyogi"]),
        ("oort", ["oort"]),
    ],
)
def test_strategies_are_shown_by_their_names_in_the_literature(asked: str, names: list[str]) -> None:
    """A name that is not that of experiment files, and not similar to it, was no name at all."""
    sections = json.loads(call("strategies", asked, "--json").stdout)["sections"]
    shown = [entry for entries in sections.values() for entry in entries]
    assert [entry["name"] for entry in shown] == names
    assert any(asked.lower() == other.lower() for entry in shown for other in entry["also_known_as"])
    assert "also known as" in call("strategies", asked).stdout


def test_the_page_of_everything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(cell_len, call("strategies", "--details").stdout.splitlines())) <= 80


def test_the_list_of_plug_ins_has_one_whole_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("strategies").stdout.splitlines()
    assert max(map(cell_len, lines)) <= 80
    shown = [line for line in lines if "  " in line]
    said = json.loads(call("strategies", "--json").stdout)["sections"]
    assert [line.split()[0] for line in shown] == [entry["name"] for entries in said.values() for entry in entries]
    assert [line.split()[0] for line in shown][: len(list(STRATEGIES))] == list(STRATEGIES)
    for line in shown:
        assert line.endswith("."), line
        assert "…" not in line
        assert line.rstrip() == line
    assert "initial_rounds" not in "\n".join(lines)
    assert "`fedcohort strategies NAME` shows parameters" in lines[-2]


@pytest.mark.slow
def test_the_list_of_plug_ins_tells_all_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for section in call("strategies").stdout.split("\n\n"):
        words = [line.split(maxsplit=1)[1] for line in section.splitlines() if "  " in line]
        assert len(set(words)) == len(words)
    lines = call("strategies").stdout.splitlines()
    for name, end in (
        ("powd", "drawn by size, k with the highest loss."),
        ("cpowd", "loss on one random mini-batch."),
        ("select_by_loss", "random candidates, the k with the highest loss."),
    ):
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        assert line.endswith(end)


def test_the_list_of_plug_ins_fits_into_40_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = call("strategies").stdout.splitlines()
    assert max(map(cell_len, lines)) <= 40
    (at,) = (at for at, line in enumerate(lines) if line.startswith("uniform "))
    assert lines[at + 1].endswith("…")


OWN = '''"""A strategy of one's own."""
from fedcohort.selection.strategies.uniform import Uniform
class Mine(Uniform):
    """Mine alone."""
class Silent(Uniform):
    pass
'''


def test_a_strategy_of_ones_own_is_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    shown = " ".join(call("strategies", f"{tmp_path / 'mine.py'}:Mine").stdout.split())
    assert shown.startswith("your own")
    assert "Mine Mine alone. source own version of Uniform: McMahan" in shown
    assert "status ours" in shown
    silent = " ".join(call("strategies", f"{tmp_path / 'mine.py'}:Silent").stdout.split())
    assert "Silent source own version of Uniform: McMahan" in silent, (
        "the sentence of the base class describes something else"
    )
    refused(call("strategies", "nowhere.py:Mine"), "name = 'nowhere.py:Mine'", "there is no file nowhere.py")
    refused(call("strategies", f"{tmp_path / 'mine.py'}:Other"), "defines no Other")
    refused(call("strategies", "mine.py"), "mine.py: for a class in this file, write 'mine.py:Class'")


def test_what_is_no_strategy_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "three.py").write_text("Three = 3\nclass Nothing: pass\n", encoding="utf-8")
    three, nothing = f"{tmp_path / 'three.py'}:Three", f"{tmp_path / 'three.py'}:Nothing"
    refused(
        call("run", "--set", f"selection={three}"),
        "Three': an object of type int is not a strategy; a strategy extends fedcohort.selection.Selector",
    )
    refused(
        call("run", "--set", f"selection={nothing}"),
        "Nothing': Nothing is not a strategy; a strategy extends fedcohort.selection.Selector",
    )
    refused(call("run", "--set", f"algorithm={nothing}"), "an algorithm extends fedcohort.algorithms.Algorithm")
    refused(call("strategies", three), "Three': is a int")


def test_a_file_that_ends_the_program_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(3)\n")
    name = f"{tmp_path / 'ends.py'}:Mine"
    refused(call("strategies", name), f"name = {name!r}", "cannot be imported: SystemExit: 3")
    refused(
        call("run", "--set", f"selection={name}"), f"selection.name = {name!r}", "cannot be imported: SystemExit: 3"
    )


def test_an_installed_strategy_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not take the others with it, and a run that names it says what is wrong in one line."""
    installed = tmp_path / "broken-0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (installed / "entry_points.txt").write_text("[fedcohort.strategies]\nbroken = no_such_module:Nobody\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "broken" in STRATEGIES
    said = {
        entry["name"]: entry["summary"]
        for entry in json.loads(call("strategies", "--json").stdout)["sections"]["strategy"]
    }
    assert said["uniform"]
    assert said["broken"].endswith("cannot be imported: ModuleNotFoundError: No module named 'no_such_module'")
    refused(call("strategies", "broken"), "name = 'broken'", "installed as no_such_module:Nobody", "cannot be imported")
    refused(call("run", "--set", "selection=broken"), "selection.name = 'broken'", "cannot be imported")


# --- bad input: one line, exit code 2, no traceback --------------------------------------------------------------------------


def refused(result: Any, *words: str) -> None:
    """The command failed as it should, in one line that holds ``words``."""
    assert getattr(result, "exit_code", None) == 2 or getattr(result, "returncode", None) == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("fedcohort: error: ")
    for word in words:
        assert word in result.stderr


SETTINGS: dict[str, tuple[str, ...]] = {
    "selection.k=13": ("selection.k = 13", "federation.clients = 12", "1 to 12"),
    "selection.k=0": ("selection.k = 0", "at least 1"),
    "selection.k=2.5": ("selection.k = 2.5", "a whole number"),
    "federation.partition.alpha=0": ("federation.partition.alpha = 0", "above 0"),
    "federation.partition.alpha=-0.5": ("federation.partition.alpha = -0.5", "above 0"),
    "federation.clients=5000": ("federation.clients = 5000", "1438"),
    "selection.name=ucbb": ("selection.name = 'ucbb'", "did you mean 'ucb'?"),
    "selection.epsilon=0.1": ("selection.epsilon", "unknown key for 'uniform'"),
    "training.learning_rate=1": ("training.learning_rate", "unknown key", "lr"),
    "rouns=3": ("rouns", "did you mean 'rounds'?"),
    'rounds="many"': ("rounds = 'many'", "a whole number"),
    "data=3": ("data = 3",),
    "variants=3": ("variants = 3",),
    "variants=[3]": ("variants.0 = 3", "a table with a label"),
    'variants=[{label="b", selection={name="ucbb"}}]': ("variants.b: selection.name = 'ucbb'",),
    "systems=3": ("systems = 3",),
    "data.name=nothing": ("data.name = 'nothing'", "digits"),
    "data.validation=1.0": ("data.validation = 1.0", "below 1"),
    "measures.target_accuracy=80": ("measures.target_accuracy = 80", "at most 1"),
    "selection.k": ("--set 'selection.k'", "selection.k=5"),
    "=3": ("--set '=3'",),
    "rounds.x=3": ("rounds",),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_bad_settings(setting: str, tmp_path: Path) -> None:
    refused(
        call("run", "--set", "rounds=2", "--set", setting, "--runs", tmp_path / "runs", "--quiet"), *SETTINGS[setting]
    )
    assert not (tmp_path / "runs").exists()


FILES: dict[str, tuple[str, ...]] = {
    "rounds = [": ("not valid TOML", "bad.toml"),
    "rounds = 2\nrouns = 3": ("rouns", "did you mean 'rounds'?"),
    "[selection]\nnam = 'ucb'": ("selection.nam", "did you mean 'name'?"),
    "[[variants]]\nlabel = 'a'\n[[variants]]\nlabel = 'a'": ("variants.a", "twice"),
    "[sweep]\nselection.k = [1]": ("sweep.selection",),
    "[sweep]\n'selection.k' = []": ("sweep.selection.k = []",),
    "federation = 3": ("federation = 3",),
}


@pytest.mark.parametrize("text", FILES)
def test_bad_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    for command in ("run", "compare"):
        refused(call(command, tmp_path / "bad.toml", "--runs", tmp_path / "runs"), *FILES[text])


def test_a_missing_file(tmp_path: Path) -> None:
    refused(call("run", tmp_path / "none.toml"), "none.toml: no such experiment file")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    refused(call("run", tmp_path / "bad.toml"), "bad.toml: cannot be read")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_a_file_in_another_encoding_says_what_to_do(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_bytes("name = 'größe'\n".encode(encoding))
    refused(call("run", tmp_path / "old.toml"), "it is not UTF-8 text (byte ", "); save it as UTF-8")


def test_a_packed_table_is_no_experiment_file(tmp_path: Path) -> None:
    (tmp_path / "table.csv.gz").write_bytes(b"\x1f\x8b\x08\x00")
    refused(call("run", tmp_path / "table.csv.gz"), "(byte 1), so no experiment file; give the path of a .toml file")


@pytest.mark.parametrize("name", ["table.csv.gz", "table.json", "table.tsv", "table.npy", "load.py"])
def test_describe_says_how_other_files_of_data_can_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[1]")
    refused(
        call("data", "describe", tmp_path / name),
        f"{name}': files of this kind are not read; save it as a table (.csv, .parquet, .npz) or a text (.txt)",
    )


def test_describe_says_which_names_of_data_it_knows() -> None:
    refused(
        call("data", "describe", "digit"),
        "data.name = 'digit': unknown name, and no such folder; did you mean 'digits'?",
    )
    refused(call("data", "describe", "none.toml"), "none.toml: no such experiment file")


def test_compare_says_that_it_takes_files_and_directories(tmp_path: Path) -> None:
    refused(call("compare", tmp_path / "runs" / "a"), "no such experiment file (.toml) and no such run directory")


def test_a_script_is_no_experiment_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    refused(
        call("compare", tmp_path / "mine.py"), "is Python code, not an experiment; run it with python, or name what it"
    )


@pytest.mark.parametrize("value", ["“uniform”", '"uniform”', "‘uniform’", "„uniform“"])
def test_quotes_of_a_word_processor_are_named(value: str, tmp_path: Path) -> None:
    (tmp_path / "curly.toml").write_text(f"[selection]\nname = {value}\n", encoding="utf-8")
    refused(call("run", tmp_path / "curly.toml"), "not valid TOML", "curly quote (", "needs straight ones")


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("name = uniform  # mine", '; a text needs quotes: "uniform"'),
        ("name = my/file.py:Class", '; a text needs quotes: "my/file.py:Class"'),
        ("trust = True", "; write true"),
    ],
)
def test_a_text_without_quotes_is_named(line: str, cure: str, tmp_path: Path) -> None:
    (tmp_path / "bare.toml").write_text(f"[selection]\n{line}\n", encoding="utf-8")
    refused(call("run", tmp_path / "bare.toml"), "not valid TOML", "at line 2", cure)


def test_another_mistake_says_nothing_about_quotes(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('name = "“a”"\nrounds = [\n', encoding="utf-8")
    result = call("run", tmp_path / "bad.toml")
    refused(result, "not valid TOML")
    assert "curly" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--variant", "uniformm"], ["--variant 'uniformm'", "did you mean 'uniform'?"]),
        (["data", "describe", "--data-dir", "/nowhere"], ["data_dir = '/nowhere'", "no such folder"]),
        (["data", "list", "--data-dir", "/nowhere"], ["--data-dir = '/nowhere'", "no such folder"]),
        (["strategies", "ucbb"], ["ucbb", "did you mean 'ucb'?"]),
        (["compare", "one.toml", "two.toml"], ["one.toml", "run directories only"]),
        (["sweep"], ["nothing to sweep"]),
        (["sweep", "--over", "selection.k=3"], ["--over 'selection.k=3'", "a list"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_bad_arguments(arguments: list[str], words: list[str]) -> None:
    refused(call(*arguments), *words)


@pytest.mark.parametrize("arguments", [["nonsense"], ["run", "--nonsense"], ["run", "a.toml", "b.toml"]])
def test_what_click_refuses(arguments: list[str]) -> None:
    refused(call(*arguments), "; see `", "--help`")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["compare", "--rounds", "5"], "rounds"),
        (["run", "--seeds=5"], "seeds"),
        (["sweep", "--lr", "0.1"], "training.lr"),
        (["race", "--target-accuracy", "0.9"], "measures.target_accuracy"),
        (["report", "--selection.k", "4"], "selection.k"),
        (["compare", "--strategy", "powd"], "selection"),
        (["compare", "--nonsense.k", "4"], None),
        (["strategies", "--rounds", "5"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_option_that_is_a_setting_says_how_it_is_given(arguments: list[str], key: str | None) -> None:
    result = call(*arguments)
    refused(result, "No such option '--", "; see `")
    assert (f": give a setting of the experiment as --set {key}=VALUE;" in result.stderr) == (key is not None)


def test_a_wrong_option_names_the_help_of_its_command() -> None:
    refused(call("compare", "--csv"), "Option '--csv' requires an argument; see `", " compare --help`")
    refused(call("--rouns"), "No such option '--rouns'; see `")


def test_several_similar_options_are_joined_with_or() -> None:
    refused(call("compare", "--rouns", "5"), "No such option '--rouns' (did you mean '--jobs' or '--runs'?); see `")


@pytest.mark.slow
def test_a_data_set_that_is_not_there_offline(tmp_path: Path) -> None:
    refused(
        process(
            "run", "--set", "data.name=nobody/nothing", "--quiet", "--runs", tmp_path / "runs",
            HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf"), FEDCOHORT_CACHE=str(tmp_path / "cache"),
        ),
        "data.name = 'nobody/nothing'", "--data-dir", "connect once",
    )  # fmt: skip


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_a_directory_that_cannot_be_written(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    refused(call("run", *SHORT, "--quiet", "--runs", tmp_path / below), f"{below}", "--runs")
    assert (tmp_path / "file").read_text() == "not a folder"


def test_run_directories_are_not_mixed_with_files_or_settings(one: Path) -> None:
    refused(call("compare", one, one.parent / "none"), "none: not a run directory")
    refused(call("compare", "a.toml", "b.toml"), "a.toml: not a run directory; give one experiment file")
    refused(call("compare", one, "--set", "rounds=3"), "--set 'rounds=3'", "only read")


# a run directory that is not what it was


def format_99(path: Path) -> None:
    with sqlite3.connect(path / "run.sqlite") as database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    database.close()


def overwritten_head(path: Path) -> None:
    data = (path / "run.sqlite").read_bytes()
    (path / "run.sqlite").write_bytes(b"garbage" * 100 + data[700:])


def overwritten_pages(path: Path) -> None:
    data = (path / "run.sqlite").read_bytes()
    (path / "run.sqlite").write_bytes(data[:4096] + b"\x5a" * (len(data) - 4096))


def cut_short(path: Path) -> None:
    data = (path / "run.sqlite").read_bytes()
    (path / "run.sqlite").write_bytes(data[: len(data) // 2])


def emptied(path: Path) -> None:
    (path / "run.sqlite").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (format_99, "format 99"),
        (overwritten_head, "damaged"),
        (overwritten_pages, "damaged"),
        (cut_short, "damaged"),
        (emptied, "damaged"),
    ],
)
def test_run_directories_that_cannot_be_read(damage: Callable[[Path], None], word: str, one: Path) -> None:
    damage(one)
    before = {
        path: path.read_bytes() for path in one.rglob("*") if path.is_file() and path.suffix not in (".sqlite-shm",)
    }
    refused(call("run", *SHORT, "--quiet", "--runs", one.parent), one.name, word)
    refused(call("compare", one), one.name, word)
    after = {path: path.read_bytes() for path in before}
    assert after == before


@pytest.mark.slow
def test_another_version_in_a_process(one: Path) -> None:
    format_99(one)
    refused(process("run", *SHORT, "--quiet", "--runs", one.parent), "written in format 99", "reads format 2")


def stopped(folder: Path) -> Path:
    """A run of two rounds that was stopped after the first."""

    def stop(cell: Any, row: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(fedcohort.Experiment(rounds=2), runs=folder, progress=stop)
    (path,) = folder.iterdir()
    return path


def test_a_damaged_checkpoint_is_named_and_kept(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    (file,) = (path / "checkpoint").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-8] + b"damaged!")
    before = file.read_bytes()
    refused(call("run", *SHORT, "--quiet", "--runs", tmp_path), file.name, "damaged", "nothing was overwritten")
    assert file.read_bytes() == before


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    (file,) = (path / "checkpoint").glob("*.safetensors")
    file.unlink()
    refused(call("run", *SHORT, "--quiet", "--runs", tmp_path), file.name, "damaged")


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    with writing(Run(path)):
        refused(process("run", *SHORT, "--quiet", "--runs", tmp_path), str(path), "another process is writing this run")
    assert call("run", *SHORT, "--quiet", "--runs", tmp_path).exit_code == 0


def test_unfinished_runs_are_not_compared(tmp_path: Path) -> None:
    refused(call("compare", stopped(tmp_path)), "stopped after round 1 of 2", "experiment.toml --runs")


# --- what is not the user's fault --------------------------------------------------------------------------------------------


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.runs import play_run as play

    def interrupted(*_: Any, **__: Any) -> None:
        raise play.Interrupted("stopped after round 1 of 2; the same command resumes it")

    monkeypatch.setattr(play, "run_cell", interrupted)
    result = call("run", *SHORT, "--quiet", "--runs", tmp_path)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "fedcohort: stopped after round 1 of 2; the same command resumes it\n"


@pytest.mark.parametrize(("command", "kept"), [("doctor", ""), ("run", KEPT)])
def test_only_commands_that_play_rounds_say_that_they_can_go_on(
    command: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedcohort.cli.installation.examine", interrupted)
    monkeypatch.setattr("fedcohort.runs.play_run.run_cell", interrupted)
    arguments = [] if command == "doctor" else [*SHORT, "--quiet", "--runs", tmp_path]
    result = call(command, *arguments)
    assert (result.exit_code, result.stderr) == (130, f"fedcohort: interrupted{kept}\n")


def test_our_own_errors_keep_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.runs import play_run as play

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(play, "run_cell", broken)
    with pytest.raises(ZeroDivisionError):
        call("run", *SHORT, "--quiet", "--runs", tmp_path)


def test_warnings_are_one_line(tmp_path: Path) -> None:
    result = process("run", *SHORT, "--set", 'selection={name="powd", d=1}', "--quiet", "--runs", tmp_path)
    assert result.returncode == 0
    text = "selection.d = 1: fewer candidates than the k = 3 clients to select; using d = k"
    assert result.stderr == f"fedcohort: warning: powd, seed 0: {text}\n"


@pytest.mark.slow
def test_warnings_of_parallel_runs_are_one_line_with_the_name_of_the_run(tmp_path: Path) -> None:
    row = 'selection={name="powd", d=1}'
    result = process(
        "compare", "--set", "rounds=1", "--set", "seeds=2", "--set", row, "--jobs", "2", "--runs", tmp_path
    )
    assert result.returncode == 0
    warned = [line for line in result.stderr.splitlines() if not line.endswith("finished")]
    assert {line.split(": selection.d = 1: ")[0].rpartition(",")[2] for line in warned} <= {" seed 0", " seed 1"}
    assert warned
    assert all(line.startswith("fedcohort: ") and line.endswith("using d = k") for line in warned)
