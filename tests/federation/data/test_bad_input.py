"""What people get wrong about heterogeneity ends in one line that names the parameter, and exit code 2, whatever the command."""

from pathlib import Path

import pytest

from tests.cli.test_cli import call, process, refused

MATRIX = 'federation.label_noise={name="constant",rate=0.2,flip="matrix",matrix='
TRACE = 'systems.availability={name="trace",file="trace.json"}'
SETTINGS: dict[str, tuple[str, ...]] = {
    # rates outside [0, 1]
    'federation.label_noise={name="constant",rate=1.5}': (
        "federation.label_noise.rate = 1.5",
        "at most 1",
    ),
    'federation.label_noise={name="beta",a=-5}': ("federation.label_noise.a = -5", "at least 0"),
    'federation.label_noise={name="some_clients",clients=2}': ("federation.label_noise.clients = 2",),
    "systems.dropout=1.2": ("systems.dropout = 1.2",),
    'systems.availability={name="bernoulli",probability=-0.1}': ("systems.availability.probability = -0.1",),
    'systems.availability={name="markov",p_on=2}': ("systems.availability.p_on = 2",),
    'systems.availability={name="diurnal",mean=0.9,swing=0.4}': ("systems.availability.swing = 0.4", "at most 0.1"),
    "federation.holdout=1.0": ("federation.holdout = 1.0", "below 1"),
    'federation.partition={name="dominant_class",frac=1.1}': ("federation.partition.frac = 1.1",),
    # matrices that are not row-stochastic
    MATRIX + "[[0.9,0.2],[0,1]]}": ("federation.label_noise.matrix", "row 0 sums to 1.1"),
    MATRIX + "[[1.5,-0.5],[0,1]]}": ("federation.label_noise.matrix", "row 0 has the entry -0.5"),
    MATRIX + "[[1,0],[1]]}": ("federation.label_noise.matrix", "row 1 has 1 entries"),
    MATRIX + "[[0.5,0.5],[0,1]]}": ("federation.label_noise.matrix", "2×2, but the data have 10 classes"),
    # a trace that does not do
    TRACE: ("systems.availability.file = 'trace.json'", "has 2 rounds, the run has 5"),
    'systems.availability={name="trace",file="odd.json"}': (
        "odd.json",
        "contains client 99 in round 1",
        "clients 0 to 11",
    ),
    'systems.availability={name="trace",file="none.json"}': ("none.json", "cannot be read"),
    # a deadline that nobody meets
    "systems.deadline=0.5": ("systems.deadline = 0.5: no client can ever meet it",),
    # partitions that cannot be made
    "federation.partition.min_size=500": ("federation.partition.min_size = 500", "use at most 119"),
    'federation.partition={name="dirichlet_class",alpha=1e-6}': (
        "federation.partition.alpha = 1e-06",
        "what works: federation.partition.alpha =",
    ),
    "federation.partition=natural": ("federation.partition = 'natural'", "writer_id"),
    'federation.partition={name="shards",shards=900}': ("federation.partition.shards = 900", "at most 119"),
    'federation.partition={name="dominant_class",frac=1.0,share=1.0}': (
        "federation.partition.frac = 1",
        "use at most federation.partition.frac =",
    ),
    # a shift that the data cannot have
    'federation.feature_shift={name="brightness_contrast",low=2.0}': ("federation.feature_shift.low = 2", "high = 1.5"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trace.json").write_text("[[0], [1]]")
    (tmp_path / "odd.json").write_text("[[99], [1], [1], [1], [1]]")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("command", ["run", "data describe"])
def test_one_line_that_names_the_parameter(command: str, setting: str, folder: Path) -> None:
    given = [*command.split(), "--set", "rounds=5", "--set", setting]
    refused(call(*given, *(["--runs", folder / "runs", "--quiet"] if command == "run" else [])), *SETTINGS[setting])
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    "setting",
    [
        "federation.partition=natural",
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in (TRACE, "systems.deadline=0.5", MATRIX + "[[0.9,0.2],[0,1]]}")
        ),
    ],
)
@pytest.mark.slow
def test_in_a_process(setting: str, folder: Path) -> None:
    refused(process("compare", "x.toml"), "x.toml")
    (folder / "x.toml").write_text("rounds = 5\nseeds = 1\n")
    refused(process("compare", "x.toml", "--set", setting, "--quiet"), *SETTINGS[setting][:1])
