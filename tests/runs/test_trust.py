"""Reading a run directory runs no code of it, and playing on one asks before it does."""

import hashlib
import importlib.metadata
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from fedcohort.measures import jain
from fedcohort.record import Run
from fedcohort.report.live.live_server import Live
from fedcohort.study.conformal_coverage import conformal
from fedcohort.study.decisions.explain_decision import explain
from fedcohort.study.decisions.participants import participants
from tests.cli.test_cli import call
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.records import seal_again
from tests.repetitions import slow_after
from tests.resume.test_resume import stop_after

OWN = '''
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.core.parameters import parameters
from fedcohort.federation.availability import Bernoulli
from fedcohort.federation.featureshift import Gauss
from fedcohort.federation.labelnoise import Constant
from fedcohort.federation.latency import Share, ShiftedExponential
from fedcohort.federation.partitions.iid import Iid
from fedcohort.models import Logistic
from fedcohort.selection import Card, Cohort, Selector, Why

Path(WITNESS).open("a").write(__name__)


@parameters
class Mine(Selector):
    """The first available clients.

    A second paragraph.
    """

    card: ClassVar[Card] = Card(source="a test", status="ours", discloses="nothing at all")
    start: int = 0
    """Place of the first client."""
    pair: list[int] = field(default_factory=lambda: [1, 2])
    """Two numbers."""

    def select(self, round):
        clients = round.available[self.start : self.start + 3]
        return Cohort(clients, why=Why(clients, clients * 1.0, {"own term": clients * 1.0}, note="in order"))


class Parts(Iid): ...
class Wrong(Constant): ...
class Shifted(Gauss): ...
class Slow(ShiftedExponential): ...
class Here(Bernoulli): ...
class Net(Share): ...
class Line(Logistic): ...
class Mean(FedAvg):
    card: ClassVar[Card] = Card(source="another test", status="ours")
'''
"""A file with a plug-in of every kind; importing it leaves a trace in the file ``WITNESS``."""


def own_file(folder: Path) -> Path:
    """The file, and where it leaves its trace."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "own.py").write_text(f"WITNESS = {str(folder / 'witness')!r}\n{OWN}")
    return folder / "own.py"


def of_own_parts(file: Path | str, **values: Any) -> Experiment:
    """An experiment with a plug-in of every kind."""
    parts: dict[str, Any] = {
        "selection": {"name": f"{file}:Mine", "start": 1},
        "algorithm": f"{file}:Mean",
        "model": f"{file}:Line",
        "federation": {
            "clients": 12,
            "partition": f"{file}:Parts",
            "label_noise": f"{file}:Wrong",
            "feature_shift": f"{file}:Shifted",
        },
        "systems": {"latency": f"{file}:Slow", "availability": f"{file}:Here", "network": f"{file}:Net"},
    }
    return small(**{"rounds": 4, **parts, **values})


def edit(run: Path, *statements: str) -> None:
    """Change a record and make its hashes valid again, as anyone can."""
    with sqlite3.connect(run / "run.sqlite") as database:
        for statement in statements:
            database.execute(statement)
        seal_again(database)
    database.close()


def as_of_an_earlier_version(run: Path) -> None:
    """Take out of a record what earlier versions did not write."""
    edit(run, "DELETE FROM meta WHERE key IN ('plug-ins', 'plug-in files', 'ours', 'algorithm')")


@pytest.fixture(scope="module", params=slow_after(1, ["this version", "an earlier version"]))
def strange(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stranger's runs, one finished and one not, whose plug-in copy would write ``witness`` when it is imported."""
    folder = tmp_path_factory.mktemp("strange")
    file = own_file(folder)
    finished = fedcohort.run(of_own_parts(file), runs=folder / "runs")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(of_own_parts(file, seed=1), runs=folder / "runs", progress=stop_after(2))
    if request.param == "an earlier version":
        for run in (folder / "runs").iterdir():
            as_of_an_earlier_version(run)
    finished.path.rename(folder / "runs" / "finished")
    next(path for path in (folder / "runs").iterdir() if path.name != "finished").rename(folder / "runs" / "stopped")
    assert (folder / "witness").exists(), "the file leaves its trace where it is run"
    (folder / "witness").unlink()
    file.unlink()
    return folder


def cli(*arguments: str, code: int = 0, **expected: str) -> Callable[[Path, Path], str]:
    """A command of the command line; RUNS and OUT in its arguments stand for the runs and for a folder to write to."""

    def command(runs: Path, out: Path) -> str:
        words = [word.replace("RUNS", str(runs)).replace("OUT", str(out)) for word in arguments]
        result = call(*words)
        assert result.exit_code == code, result.output
        assert expected.get("says", "") in result.output + result.stderr
        return result.output

    return command


def of(run: str, read: Callable[[Run], object]) -> Callable[[Path, Path], object]:
    """Reading one of the runs in Python."""
    return lambda runs, _: read(fedcohort.open_run(runs / run))


def refused(action: Callable[[], object], words: str = "--trust-plugins") -> None:
    """Check that an action asks for consent."""
    with pytest.raises(UsageError, match=words):
        action()


READING: dict[str, Callable[[Path, Path], object]] = {
    "report": cli("report", "--runs", "RUNS", "-o", "OUT/report.html"),
    "report RUN": cli("report", "RUNS/finished", "-o", "OUT/report.html"),
    "report RUN/experiment.toml": cli("report", "RUNS/finished/experiment.toml", "-o", "OUT/report.html"),
    "report RUN/experiment.toml --set": cli(
        "report", "RUNS/finished/experiment.toml", "--set", "rounds=3", "-o", "OUT/report.html", code=2, says="only read"
    ),
    "figures": cli("figures", "RUNS/finished", "--out", "OUT", "--format", "svg", "--only", "accuracy"),
    "compare RUN": cli("compare", "RUNS/finished", says="Mine"),
    "compare RUN --json": cli("compare", "RUNS/finished", "--json"),
    "compare stopped RUN": cli("compare", "RUNS/stopped", code=2, says="stopped after round 2 of 4"),
    "measures": cli("measures", "RUNS/finished"),
    "measures --json": cli("measures", "RUNS/finished", "RUNS/stopped", "--json"),
    "measures --conformal": cli("measures", "RUNS/finished", "--conformal", "0.1", code=2, says="--trust-plugins"),
    "why": cli("why", "RUNS/finished", "--round", "2", says="Mine(k = 3"),
    "why --json": cli("why", "RUNS/stopped", "--round", "2", "--json", says="own term"),
    "why --client": cli("why", "RUNS/finished", "--round", "2", "--client", "0", says="does not say whether it was available"),
    "why --client, no such client": cli("why", "RUNS/finished", "--round", "2", "--client", "12", code=2, says="0 to 11"),
    "diagnose": cli("diagnose", "RUNS/finished"),
    "race": cli("race", "RUNS/finished/experiment.toml", "--runs", "RUNS", code=2, says="--trust-plugins"),
    "live": lambda runs, _: Live(runs).page(None),
    "data describe": cli("data", "describe", "RUNS/finished/experiment.toml", code=2, says="--trust-plugins"),
    "run": cli("run", "RUNS/finished/experiment.toml", "--runs", "RUNS", code=2, says="--trust-plugins"),
    "run --set": cli("run", "RUNS/stopped/experiment.toml", "--set", "rounds=5", "--runs", "RUNS", code=2, says="--trust-pl"),
    "compare": cli("compare", "RUNS/finished/experiment.toml", "--runs", "RUNS", code=2, says="--trust-plugins"),
    "sweep": cli("sweep", "RUNS/stopped/experiment.toml", "--over", "selection.k=[1]", code=2, says="--trust-plugins"),
    "profile": cli("profile", "RUNS/stopped/experiment.toml", code=2, says="--trust-plugins"),
    "Run.described": of("finished", lambda run: run.described.to_dict()),
    "Run.experiment": of("finished", lambda run: refused(lambda: run.experiment, r"use run\.described, .*trust=True")),
    "Run.plug_ins": of("finished", lambda run: run.plug_ins),
    "Run.summary": of("stopped", lambda run: run.summary()),  # type: ignore[attr-defined]
    "Run.report": of("finished", lambda run: run.report()),  # type: ignore[attr-defined]
    "Run._repr_mimebundle_": of("finished", lambda run: run._repr_mimebundle_()),  # type: ignore[attr-defined]
    "Run.digest": of("finished", lambda run: run.digest()),
    "Run.rewards": of("finished", lambda run: jain(run.rewards("loss")[0] > 0)),
    "Run.portrait": of("stopped", lambda run: run.portrait),
    "Run.checkpoint": of("stopped", lambda run: run.checkpoint()),
    "explain": of("finished", lambda run: explain(run, 1).to_json()),
    "participants": of("finished", participants),
    "conformal": of("finished", lambda run: refused(lambda: conformal(run))),
    "load_experiment": lambda runs, _: refused(lambda: fedcohort.load_experiment(runs / "finished" / "experiment.toml")),
}  # fmt: skip
"""Every way to read a run, and the commands that would play its description."""


@pytest.mark.parametrize("command", READING)
def test_reading_a_run_does_not_run_its_plug_ins(strange: Path, tmp_path: Path, command: str) -> None:
    READING[command](strange / "runs", tmp_path)
    assert not (strange / "witness").exists()


def test_every_reading_command_is_tried() -> None:
    """A new command has to be added to the list above, or to these, which read no run."""
    from fedcohort.cli import cli as commands

    tried = {name.split()[0] for name in READING}
    assert set(commands.commands) - tried == {"strategies", "doctor", "deploy", "schema", "site", "advise"}


@pytest.mark.parametrize("entry", slow_after(1, ["INSERT INTO meta VALUES ('plug-ins', '{}')", ""]))
def test_names_outside_of_a_run_are_not_imported_either(strange: Path, tmp_path: Path, entry: str) -> None:
    """A description may name a file of the reader, or an installed package."""
    run = tmp_path / "run"
    shutil.copytree(strange / "runs" / "finished", run)
    file = own_file(tmp_path / "mine")
    text = (run / "experiment.toml").read_text()
    [copy] = {line.split('"')[1].rpartition(":")[0] for line in text.splitlines() if "plug-ins/" in line}
    text = text.replace(f'"{copy}:Mine"', '"installed"').replace(f'"{copy}:', f'"{file}:')
    (run / "experiment.toml").write_text(text)
    quoted = text.replace("'", "''")
    edit(
        run,
        "DELETE FROM meta WHERE key = 'plug-ins'",
        f"UPDATE meta SET value = '{quoted}' WHERE key = 'experiment'",
        *filter(None, [entry]),
    )
    with pytest.MonkeyPatch.context() as patch:
        point = importlib.metadata.EntryPoint("installed", "nothing_to_import:Mine", "fedcohort.strategies")
        patch.setattr("fedcohort.core.plugins.entry_points", lambda **_: importlib.metadata.EntryPoints([point]))
        for command in ("report", "compare RUN", "measures", "Run.report", "Run._repr_mimebundle_", "live"):
            READING[command](link(run, tmp_path / "runs"), tmp_path)
        assert call("why", run, "--round", "1").exit_code == 0
    assert not (file.parent / "witness").exists()


def link(run: Path, runs: Path) -> Path:
    """A folder of runs in which ``run`` is called ``finished``."""
    if not runs.exists():
        shutil.copytree(run, runs / "finished")
    return runs


def test_what_pages_need_is_recorded(tmp_path: Path) -> None:
    file = own_file(tmp_path)
    run = fedcohort.run(of_own_parts(file, rounds=1), runs=tmp_path / "runs")
    facts = run.plug_ins
    assert set(facts) == {
        "selection", "algorithm", "model", "federation.partition", "federation.label_noise", "federation.feature_shift",
        "systems.latency", "systems.availability", "systems.network",
    }  # fmt: skip
    own = facts["selection"]
    assert (own["name"], own["summary"]) == ("Mine", "The first available clients.")
    assert own["card"]["source"] == "a test"
    assert own["card"]["discloses"] == "nothing at all"
    assert own["defaults"]["pair"] == [1, 2]
    assert "start = 1" in explain(run, 1).strategy
    assert "pair" not in explain(run, 1).strategy  # it has its default value
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    assert run.plug_in_files == {f"plug-ins/own-{content[:8]}.py": content}
    assert run.described.selection.name == f"plug-ins/own-{content[:8]}.py:Mine"
    page = run.report()
    assert "Mine: an own method, not part of FedCohort" in page
    assert f"fedcohort run {run.path}/experiment.toml --trust-plugins" in page
    assert str(file) not in page


def test_a_run_of_an_earlier_version_shows_what_is_known(tmp_path: Path) -> None:
    run = fedcohort.run(of_own_parts(own_file(tmp_path), rounds=1), runs=tmp_path / "runs")
    as_of_an_earlier_version(run.path)
    run = fedcohort.open_run(run.path)
    [(copy, digest)] = run.plug_in_files.items()
    assert copy.endswith(f"-{digest}.py")
    assert len(digest) == 8
    assert run.plug_ins == {}
    assert "start = 1" in explain(run, 1).strategy
    assert "pair = " in explain(run, 1).strategy  # its default is not known
    built_in = fedcohort.run(small(rounds=1, selection={"name": "powd", "d": 5}), runs=tmp_path / "runs")
    before = explain(built_in, 1).strategy
    as_of_an_earlier_version(built_in.path)
    assert explain(fedcohort.open_run(built_in.path), 1).strategy == before == "powd(k = 3, d = 5)"


def test_objects_from_python_are_not_called_by_the_names_in_the_description(tmp_path: Path) -> None:
    from fedcohort.selection.strategies.uniform import Uniform

    run = fedcohort.run(small(rounds=1, selection="ucb"), selector=Uniform(), runs=tmp_path)
    assert "selection" not in run.plug_ins
    assert "algorithm" in run.plug_ins


# --- playing -------------------------------------------------------------------------------------------------------------------


def test_consent_plays_a_run_directory(strange: Path, tmp_path: Path) -> None:
    """With --trust-plugins or trust=True, the description in a run directory is an experiment file like others."""
    runs = tmp_path / "runs"
    shutil.copytree(strange / "runs", runs)
    file = runs / "stopped" / "experiment.toml"
    refused = call("run", file, "--runs", tmp_path / "new")
    assert refused.exit_code == 2
    [line] = refused.stderr.splitlines()
    [copy] = (runs / "stopped" / "plug-ins").iterdir()
    assert f"plug-ins/{copy.name}" in line
    assert "--trust-plugins (in Python: trust=True)" in line
    assert call("run", file, "--runs", tmp_path / "new", "--trust-plugins", "-q").exit_code == 0
    assert (strange / "witness").exists(), "the check sees it when a copy is imported"
    [new] = (tmp_path / "new").iterdir()
    assert call("measures", runs / "finished", "--conformal", "0.1", "--trust-plugins").exit_code == 0
    assert call("data", "describe", file, "--trust-plugins").exit_code == 0
    loaded = fedcohort.load_experiment(file, trust=True)
    assert fedcohort.run(loaded, runs=tmp_path / "new").path == new
    assert conformal(Run(runs / "finished"), trust=True).num_calibration > 0
    (strange / "witness").unlink()  # the other tests find none


def test_a_run_directory_without_its_record_asks_as_well(strange: Path, tmp_path: Path) -> None:
    """Removing the record does not turn the plug-ins of a stranger into those of an experiment."""
    shutil.copytree(strange / "runs" / "finished", tmp_path / "run")
    for file in ("run.sqlite", "run.lock"):
        (tmp_path / "run" / file).unlink(missing_ok=True)
    for kept in ("model.safetensors", "checkpoint"):
        result = call("run", tmp_path / "run" / "experiment.toml", "--runs", tmp_path / "new")
        assert result.exit_code == 2
        assert "--trust-plugins" in result.stderr
        assert not (strange / "witness").exists()
        if kept == "model.safetensors":
            (tmp_path / "run" / kept).unlink()


def test_settings_of_the_user_are_no_consent(strange: Path, tmp_path: Path) -> None:
    """--set can replace every plug-in of the run directory, but an algorithm is compared with the one that it replaces."""
    settings = [f"federation.{part}=none" for part in ("label_noise", "feature_shift")]
    settings += ["federation.partition=iid", "model=mlp", "selection=uniform", "algorithm=fedavg"]
    settings += ["systems.latency=shifted_exponential", "systems.availability=always", "systems.network=share"]
    told = [word for setting in settings for word in ("--set", setting)]
    command = ["run", strange / "runs" / "finished" / "experiment.toml", *told, "--runs", tmp_path / "runs", "-q"]
    result = call(*command)
    assert result.exit_code == 2
    assert "--trust-plugins" in result.stderr
    assert not (strange / "witness").exists()
    assert call(*command, "--trust-plugins").exit_code == 0
    (strange / "witness").unlink()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    """An experiment with a plug-in file, and the folder of its run, which was stopped after two rounds."""
    folder = tmp_path_factory.mktemp("stopped")
    experiment = of_own_parts(own_file(folder))
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=folder / "runs", progress=stop_after(2))
    return experiment, folder / "runs"


@pytest.fixture
def begun(stopped: tuple[Experiment, Path], tmp_path: Path) -> tuple[Experiment, Path]:
    """The experiment, and a copy of its run for this test to change."""
    experiment, runs = stopped
    shutil.copytree(runs, tmp_path / "runs")
    [path] = (tmp_path / "runs").iterdir()
    return experiment, path


def forge_the_copy(run: Path) -> Path:
    """Put other code into the copy of a run directory, with valid hashes."""
    [copy] = (run / "plug-ins").iterdir()
    copy.write_text(copy.read_text() + "\nraise SystemExit('other code')\n")
    digest = hashlib.sha256(copy.read_bytes()).hexdigest()
    files = json.dumps({f"plug-ins/{copy.name}": digest})
    edit(run, f"UPDATE meta SET value = '{files}' WHERE key = 'plug-in files'")
    return copy


@pytest.mark.parametrize("earlier", slow_after(1, [False, True]), ids=["this version", "an earlier version"])
@pytest.mark.parametrize("damage", ["one byte", "gone", "a folder"])
def test_a_changed_copy_is_damage_by_name(begun: tuple[Experiment, Path], damage: str, earlier: bool) -> None:
    experiment, path = begun
    if earlier:
        as_of_an_earlier_version(path)
    [copy] = (path / "plug-ins").iterdir()
    fedcohort.open_run(path)
    content = copy.read_bytes()
    copy.unlink()
    if damage == "one byte":
        copy.write_bytes(content[:-1] + b" ")
    elif damage == "a folder":
        copy.mkdir()
    expected = f"{copy.name}: is missing, or differs from what was recorded"
    with pytest.raises(UsageError, match=expected):
        fedcohort.open_run(path)
    with pytest.raises(UsageError, match=expected):
        fedcohort.run(experiment, runs=path.parent, trust=True)
    assert expected in call("report", path).stderr
    (shutil.rmtree if copy.is_dir() else lambda file: file.unlink(missing_ok=True))(copy)
    copy.write_bytes(content)
    assert fedcohort.run(experiment, runs=path.parent).finished


@pytest.mark.parametrize(
    "files", ['{"../own.py": "00"}', '{"plug-ins/../../own.py": "00"}', '{"plug-ins/own.py": 1}', "[]", "["]
)
def test_a_forged_list_of_copies_is_damage(begun: tuple[Experiment, Path], files: str) -> None:
    edit(begun[1], f"UPDATE meta SET value = '{files}' WHERE key = 'plug-in files'")
    with pytest.raises(UsageError, match="'plug-in files'"):
        fedcohort.open_run(begun[1])


@pytest.mark.parametrize("entry", ["experiment", "name", "label", "row", "seed", "data", "given"])
def test_a_record_without_a_fact_that_readers_use_is_damage(begun: tuple[Experiment, Path], entry: str) -> None:
    edit(begun[1], f"DELETE FROM meta WHERE key = '{entry}'")
    result = call("report", begun[1])
    assert result.exit_code == 2
    assert f"its entry '{entry}' is missing or wrong" in result.stderr


@pytest.mark.parametrize("seed", ["", "-1", "one", "1.5"])
def test_a_seed_that_is_no_number_is_damage(begun: tuple[Experiment, Path], seed: str) -> None:
    edit(begun[1], f"UPDATE meta SET value = '{seed}' WHERE key = 'seed'")
    with pytest.raises(UsageError, match="'seed' is missing or wrong"):
        fedcohort.open_run(begun[1])


@pytest.mark.parametrize("facts", ["[]", "{", '{"selection": 1}', "null"])
def test_forged_facts_about_plug_ins_are_damage(begun: tuple[Experiment, Path], facts: str) -> None:
    edit(begun[1], f"UPDATE meta SET value = '{facts}' WHERE key = 'plug-ins'")
    with pytest.raises(UsageError, match="'plug-ins'"):
        explain(fedcohort.open_run(begun[1]), 1)


def test_resuming_on_other_copies_asks_for_consent(begun: tuple[Experiment, Path], tmp_path: Path) -> None:
    experiment, path = begun
    copy = forge_the_copy(path)
    database = (path / "run.sqlite").read_bytes()
    with pytest.raises(UsageError) as refused:
        fedcohort.run(experiment, runs=path.parent)
    assert f"plug-ins/{copy.name}" in str(refused.value)
    assert "--trust-plugins (in Python: trust=True)" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (path / "run.sqlite").read_bytes() == database
    resumed = fedcohort.run(experiment, runs=path.parent, trust=True)
    assert resumed.path == path
    assert record(resumed) == record(fedcohort.run(experiment, runs=tmp_path / "uninterrupted"))


@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        pytest.param(["compare"], marks=pytest.mark.slow),
        pytest.param(["compare", "--jobs", "2"], marks=pytest.mark.slow),
        ["sweep", "--over", "selection.k=[3]"],
    ],
)
def test_commands_that_resume_ask_for_consent(
    begun: tuple[Experiment, Path], tmp_path: Path, command: list[str]
) -> None:
    experiment, path = begun
    copy = forge_the_copy(path)
    (tmp_path / "e.toml").write_text(experiment.to_toml())
    words = [*command, tmp_path / "e.toml", "--runs", path.parent, "-q"]
    refused = call(*words)
    assert refused.exit_code == 2
    assert f"plug-ins/{copy.name}" in refused.stderr
    assert fedcohort.Run(path).last_round == 2
    assert call(*words, "--trust-plugins").exit_code == 0
    assert fedcohort.Run(path).finished


def test_python_functions_take_trust(begun: tuple[Experiment, Path]) -> None:
    experiment, path = begun
    forge_the_copy(path)
    for function in (fedcohort.run_seeds, fedcohort.compare):
        with pytest.raises(UsageError, match="--trust-plugins"):
            function(experiment, runs=path.parent)
    assert fedcohort.run_seeds(experiment, runs=path.parent, trust=True)[0].path == path
    assert fedcohort.compare(experiment, runs=path.parent, trust=True).rows[0].runs[0].path == path
