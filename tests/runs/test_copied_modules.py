"""A run directory can be repeated where the user's files are not: modules that plug-in files import are copied with them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from tests.experiments import small
from tests.runs.test_trust import edit

MINE = """
from beside_it import first
from parts_of_it.inner import nothing
from fedcohort.selection import Card, Cohort, Selector, Why

class Mine(Selector):
    card = Card(source="a test", status="ours")

    def select(self, round):
        return Cohort(first(round), why=Why(round.available, round.available * 1.0, note="in order"))
"""

FILE = """
rounds = 1
seeds = 1
selection = { name = "mine.py:Mine", k = 2 }
"""


def fed(folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own: this one would know the modules already."""
    environment = {**os.environ, "PYTHONPATH": str(Path(fedcohort.__file__).parents[1])}
    command = [sys.executable, "-P", "-m", "fedcohort", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a plug-in that imports a module and a package beside it; all of them are gone."""
    folder = tmp_path_factory.mktemp("made")
    source = folder / "source"
    (source / "parts_of_it").mkdir(parents=True)
    (source / "mine.py").write_text(MINE)
    (source / "beside_it.py").write_text("def first(round):\n    return round.available[: round.k]\n")
    (source / "parts_of_it" / "__init__.py").write_text("")
    (source / "parts_of_it" / "inner.py").write_text("nothing = None\n")
    (source / "unused.py").write_text("")
    (source / "e.toml").write_text(FILE)
    played = fed(source, "run", "e.toml", "--runs", folder / "runs", "-q")
    assert played.returncode == 0, played.stderr
    source.rename(folder / "moved")
    [path] = (folder / "runs").iterdir()
    return path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    return shutil.copytree(made, tmp_path / "runs" / made.name)


def test_a_run_is_repeated_with_the_modules_that_its_plug_in_imports(run: Path, tmp_path: Path) -> None:
    copies = sorted(fedcohort.open_run(run).plug_in_files)
    assert copies[0] == "plug-ins/beside_it.py"
    assert copies[1].startswith("plug-ins/mine-")
    assert copies[2:] == ["plug-ins/parts_of_it/__init__.py", "plug-ins/parts_of_it/inner.py"]
    again = fed(tmp_path, "run", run / "experiment.toml", "--trust-plugins", "--runs", "again", "-q")
    assert again.returncode == 0, again.stderr
    [new] = (tmp_path / "again").iterdir()
    assert new.name == run.name, "it is the same run"
    assert fedcohort.open_run(new).digest() == fedcohort.open_run(run).digest()
    here = fed(tmp_path, "run", run / "experiment.toml", "--runs", run.parent, "-q")
    assert "--trust-plugins" in here.stderr


@pytest.mark.parametrize("copy", ["beside_it.py", "parts_of_it/inner.py"])
def test_a_copied_module_that_was_changed_is_found(run: Path, copy: str) -> None:
    (run / "plug-ins" / copy).write_text("raise SystemExit\n")
    with pytest.raises(UsageError, match="differs from what was recorded"):
        fedcohort.open_run(run)


@pytest.mark.parametrize(
    "name", ["plug-ins/a/../../own.py", "plug-ins/../own.py", "plug-ins/./own.py", "plug-ins//own.py"]
)
def test_copies_lie_in_the_folder_of_copies(run: Path, name: str) -> None:
    edit(run, f"""UPDATE meta SET value = '{{"{name}": "00"}}' WHERE key = 'plug-in files'""")
    with pytest.raises(UsageError, match="names files outside the folder plug-ins"):
        fedcohort.open_run(run)


@pytest.mark.slow
def test_data_that_lie_beside_a_plug_in_are_named(tmp_path: Path) -> None:
    load = "import numpy as np\nfrom pathlib import Path\n\ndef load():\n    data = np.load(Path(__file__).parent / 'cases.npy')\n"
    (tmp_path / "wards.py").write_text(
        f"{load}    return {{'train': (data, data[:, 0] > 0), 'test': (data, data[:, 0] > 0)}}\n"
    )
    made = "import numpy as np; np.save('cases.npy', np.random.default_rng(0).normal(size=(200, 3)))"
    subprocess.run([sys.executable, "-c", made], cwd=tmp_path, check=True)
    (tmp_path / "e.toml").write_text('rounds = 1\nseeds = 1\ndata = { name = "wards.py:load" }\nmodel = "logistic"\n')
    assert fed(tmp_path, "run", "e.toml", "-q").returncode == 0
    [run] = (tmp_path / "runs").iterdir()
    again = fed(tmp_path, "run", run / "experiment.toml", "--trust-plugins", "--runs", "again")
    assert again.returncode == 2
    assert (
        "it reads cases.npy, and a run directory holds no files of data; run the experiment file that the run was made with, or put "
        "cases.npy into the folder plug-ins of the run directory" in " ".join(again.stderr.split())
    )
    (tmp_path / "cases.npy").rename(run / "plug-ins" / "cases.npy")
    assert fed(tmp_path, "run", run / "experiment.toml", "--trust-plugins", "--runs", "again", "-q").returncode == 0


def test_a_description_names_the_copies_of_files_whose_paths_have_quotes_or_end_alike(tmp_path: Path) -> None:
    """The path of the first file is written with an escape in TOML, and ends the path of the second one."""
    quoted = tmp_path / 'a "name"' / "mine.py"
    longer = tmp_path / "more" / quoted.relative_to("/")
    for file, name in ((quoted, "Mine"), (longer, "Slow")):
        file.parent.mkdir(parents=True)
        base = "selection import Uniform" if name == "Mine" else "federation.latency import ShiftedExponential"
        file.write_text(f"from fedcohort.{base} as Base\n\n\nclass {name}(Base):\n    pass\n")
    experiment = small(rounds=1, selection={"name": f"{quoted}:Mine"}, systems={"latency": {"name": f"{longer}:Slow"}})
    run = fedcohort.run(experiment, runs=tmp_path / "runs")
    shutil.rmtree(quoted.parent)
    shutil.rmtree(tmp_path / "more")
    again = fedcohort.load_experiment(run.path / "experiment.toml", trust=True)
    names = [again.selection.name, again.systems.latency.name]
    assert [Path(name).parent for name in names] == [run.path / "plug-ins"] * 2
    assert [name.rpartition(":")[2] for name in names] == ["Mine", "Slow"]
