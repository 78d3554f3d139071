"""Whole runs on sequences of tokens: from a text file in TOML, resumed, described, and what is refused before the first round."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms.methods.rhfl import RHFL
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Partition
from fedcohort.runs.sequence_checks import BY_CLASS
from tests.cli.test_cli import call, refused
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after

LSTM = {"name": "lstm", "embedding": 4, "hidden": 8}
WORDS = ("river stone cloud", "iron wheel spark", "bread salt honey", "night star wind")


def write_play(folder: Path) -> Path:
    """A play of four roles, each with words of its own."""
    draws = np.random.default_rng(0)
    lines = []
    for _ in range(200):
        role = int(draws.integers(4))
        lines.append(f"ROLE {role}: {' '.join(draws.choice(WORDS[role].split(), 5))}.")
    (folder / "play.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder / "play.txt"


def talk(**values: Any) -> fedcohort.Experiment:
    """An experiment on the dialogue: 24 clients, one for each role."""
    defaults: dict[str, Any] = {
        "name": "talk", "rounds": 3, "seeds": 1, "data": {"name": "dialogue"}, "model": LSTM,
        "federation": {"clients": 24, "partition": "natural"}, "selection": {"name": "uniform", "k": 2},
    }  # fmt: skip
    return fedcohort.Experiment(**defaults | values)


def test_a_text_beside_the_experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_play(tmp_path)
    (tmp_path / "play.toml").write_text(
        """
        rounds = 12
        data = { name = "play.txt", window = 12 }
        federation = { clients = 4, partition = "natural" }
        model = { name = "lstm", embedding = 8, hidden = 16 }
        training = { optimizer = "adam", lr = 0.02 }
        selection = { name = "uniform", k = 4 }
        """
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    experiment = fedcohort.load_experiment(tmp_path / "play.toml")
    assert experiment.data.name == str(tmp_path / "play.txt")
    run = fedcohort.run(experiment, runs="runs", seed=0)
    assert run.rounds["test_accuracy"].iloc[-1] > 0.5, "most characters of a word follow from those before"
    assert run.rounds["test_loss"].iloc[-1] < 1.6
    assert len(run.portrait.classes) == run.portrait.facts["counts"].shape[1] < 30
    assert (run.portrait.facts["counts"].sum(axis=1) == 12 * run.portrait.facts["samples"]).all()
    again = fedcohort.load_experiment(run.path / "experiment.toml")
    assert fedcohort.run(again, runs="runs", seed=0).path == run.path
    (tmp_path / "play.txt").write_text("ONE: " + "other " * 990, encoding="utf-8")
    with pytest.raises(UsageError, match="the data have 1 client"):
        fedcohort.run(experiment, runs="runs", seed=0)


def test_resumed_equals_straight_on_any_number_of_threads(tmp_path: Path) -> None:
    settings = {"model": {**LSTM, "dropout": 0.3}, "measures": {"clients_every": 2, "personal_epochs": 1}}
    straight = fedcohort.run(talk(**settings), runs=tmp_path / "straight")
    threads = talk(**settings, engine={"plan": "threads", "workers": 3})
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(threads, runs=tmp_path / "broken", progress=stop_after(2))
    resumed = fedcohort.run(talk(**settings, engine={"plan": "loop"}), runs=tmp_path / "broken")
    assert record(resumed) == record(straight)
    assert resumed.personal_accuracy.equals(straight.personal_accuracy)
    assert resumed.client_accuracy.shape == (2, 24)


def test_the_role_of_a_window_can_be_predicted_and_partitioned_by_class(tmp_path: Path) -> None:
    experiment = talk(
        data={"name": "dialogue_roles"}, model={"name": "transformer", "width": 8, "heads": 2, "layers": 1},
        federation={"clients": 6, "partition": {"name": "dirichlet_class", "alpha": 1.0}, "label_noise": "beta"},
    )  # fmt: skip
    run = fedcohort.run(experiment, runs=tmp_path)
    assert len(run.portrait.classes) == 24
    assert (run.portrait.facts["counts"].sum(axis=1) == run.portrait.facts["samples"]).all()
    assert np.isfinite(run.rounds["test_loss"]).all()


NOT_NEXT_TOKEN: dict[str, tuple[dict[str, Any], str]] = {
    "mlp": ({"model": "mlp"}, r"model.name = 'mlp': reads numbers, and .* use 'lstm' or 'transformer'"),
    "cnn_a": ({"model": "cnn_a"}, "model.name = 'cnn_a': reads numbers"),
    "label noise": (
        {"federation": {"clients": 24, "partition": "natural", "label_noise": "beta"}},
        "federation.label_noise.name = 'beta': changes the class of samples, and .* use 'none'",
    ),
    "feature shift": (
        {"federation": {"clients": 24, "partition": "natural", "feature_shift": "gauss"}},
        "federation.feature_shift.name = 'gauss': changes numbers, and .* use 'none'",
    ),
    "feddf": ({"algorithm": "feddf", "public": {"name": "holdout"}}, "algorithm.name = 'feddf': compares models by one"),
    "rhfl": ({"algorithm": "rhfl", "public": {"name": "holdout"}}, "algorithm.name = 'rhfl': compares models by one"),
    "augmentation": ({"training": {"augment": "flip"}}, "training.augment"),
    "errors of sequences": (  # alpha followed the mean log probability of whole sequences
        {"selection": {"name": "conformal", "adaptive_alpha": True}, "federation": {"partition": "iid", "holdout": 0.2}},
        "selection.adaptive_alpha = true: counts the validation samples outside the prediction sets, and .* use false",
    ),
    **{
        name: (
            {"federation": {"clients": 12, "partition": name}},
            f"federation.partition.name = '{name}': divides samples by their class, and .* use 'natural'.*, 'iid' or 'quantity'",
        )
        for name in BY_CLASS
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_NEXT_TOKEN)
def test_what_has_no_meaning_is_refused_before_the_first_round(name: str, tmp_path: Path) -> None:
    settings, message = NOT_NEXT_TOKEN[name]
    with pytest.raises(UsageError, match=message) as raised:
        fedcohort.run(talk(**settings), runs=tmp_path)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.glob("*/run.sqlite"))


def test_every_built_in_partition_works_or_is_refused(tmp_path: Path) -> None:
    for name in Partition.table.builtin:
        experiment = talk(rounds=1, federation={"clients": 8, "partition": name})
        if name in BY_CLASS:
            refused(call("data", "describe", _saved(experiment, tmp_path)), name, "divides samples by their class")
        else:
            run = fedcohort.run(experiment, runs=tmp_path)
            assert run.portrait.facts["samples"].min() >= 1


def _saved(experiment: fedcohort.Experiment, folder: Path) -> Path:
    file = folder / "talk.toml"
    file.write_text(experiment.to_toml(), encoding="utf-8")
    return file


def test_objects_from_python_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"algorithm.name = .RHFL.: compares models by one"):
        fedcohort.run(talk(public={"name": "holdout"}), algorithm=RHFL(), runs=tmp_path)

    class Last(nn.Module):
        """Predicts one class of the sequence, not one of each position."""

        def __init__(self, shape: Any, num_classes: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(shape.vocabulary, num_classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.embedding(x)[:, -1]
            return outputs

    with pytest.raises(UsageError, match=r"returns \[2, 47\] for 2 samples of 47 classes; .*logits \[2, 32, 47\]"):
        fedcohort.run(talk(), model=Last, runs=tmp_path)
    by_role = talk(rounds=1, data={"name": "dialogue_roles"})
    assert fedcohort.run(by_role, model=Last, runs=tmp_path).finished, "the same model fits the other task"


def test_own_models_receive_tokens(tmp_path: Path) -> None:
    def bigrams(shape: Any, num_classes: int) -> nn.Module:
        return nn.Embedding(shape.vocabulary, num_classes)

    run = fedcohort.run(talk(rounds=1), model=bigrams, runs=tmp_path)
    assert np.isfinite(run.rounds["test_loss"]).all()
    assert run.summary().rounds == 1


def test_models_of_sequences_need_tokens(tmp_path: Path) -> None:
    for name in ("lstm", "transformer"):
        with pytest.raises(
            UsageError, match=f"model.name = '{name}': needs sequences of tokens, .*use 'mlp' or 'logistic'"
        ):
            fedcohort.run(fedcohort.Experiment(model=name, rounds=1), runs=tmp_path)
    with pytest.raises(
        UsageError, match=r"model.width = 64: must be a multiple of model.heads = 3; use 66, or other heads"
    ):
        fedcohort.Experiment(model={"name": "transformer", "heads": 3})


def test_conformal_sets_cover_tokens(tmp_path: Path) -> None:
    run = fedcohort.run(talk(), runs=tmp_path)
    from fedcohort.study.conformal_coverage import conformal

    found = conformal(run, 0.2)
    assert found.num_calibration % 32 == 0
    assert found.sets.coverage == pytest.approx(0.8, abs=0.05)


def test_the_command_line_describes_a_text(tmp_path: Path) -> None:
    file = _saved(talk(), tmp_path)
    assert "2,863 training" in call("data", "describe", file).stdout
    page = tmp_path / "clients.html"
    call("data", "describe", file, "-o", page)
    assert page.stat().st_size > 10_000
    listed = json.loads(call("data", "list", "--json").stdout)["data"]
    assert {"name": "dialogue", "from": "made at run time", "here": "yes"} in listed


def test_the_window_names_another_run() -> None:
    assert talk().key() == talk(data={"name": "dialogue", "window": 32}).key()
    assert talk().key() != talk(data={"name": "dialogue", "window": 31}).key()
    assert fedcohort.Experiment().key() == fedcohort.Experiment(data={"window": 32}).key()


def test_the_roles_of_a_text_file_are_classes_in_an_experiment_file(tmp_path: Path) -> None:
    lines = "MILLER: the wheel turns and the river pays the bread\nBOATMAN: my boat goes down to the great green sea\n"
    (tmp_path / "play.txt").write_text(lines * 20, encoding="utf-8")
    experiment = (
        'rounds = 1\ndata = { name = "play.txt", window = 8, task = "role" }\nmodel = "lstm"\nselection = { k = 2 }\n'
    )
    (tmp_path / "play.toml").write_text(experiment, encoding="utf-8")
    roles = fedcohort.load_experiment(tmp_path / "play.toml")
    assert roles.key() != roles.with_overrides({"data": {"task": "next"}}).key()
    assert fedcohort.Experiment().key() == fedcohort.Experiment(data={"task": "next"}).key()
    run = fedcohort.run(roles, runs=tmp_path / "runs", seed=0)
    assert len(run.rounds["class_accuracy"].iloc[0]) == 2, "the roles"


def test_tokens_without_a_named_partition(tmp_path: Path) -> None:
    tokens = np.arange(120).reshape(40, 3) % 5
    settings = {"rounds": 1, "model": LSTM, "selection": {"name": "uniform", "k": 2}}
    by_client = fedcohort.from_tokens((tokens, tokens), (tokens, tokens), clients=np.arange(40) % 4)
    run = fedcohort.run(fedcohort.Experiment(**settings), data=by_client, runs=tmp_path / "natural", seed=0)
    assert (run.described.federation.partition.name, run.described.federation.clients) == ("natural", 4)
    alone = fedcohort.from_tokens((tokens, tokens), (tokens, tokens))
    run = fedcohort.run(fedcohort.Experiment(**settings), data=alone, runs=tmp_path / "iid", seed=0)
    assert (run.described.federation.partition.name, run.described.federation.clients) == ("iid", 12)


def test_tokens_are_not_standardised() -> None:
    with pytest.raises(UsageError, match=r"data.standardise = True: dialogue has sequences of tokens"):
        fedcohort.load_dataset("dialogue", standardise=True)


def test_the_dialogue_has_its_roles_as_clients_unless_a_partition_is_named(tmp_path: Path) -> None:
    """The default partition divides by class, which sequences with a label for each token do not have."""
    bare = fedcohort.Experiment(
        name="talk", rounds=1, seeds=1, data={"name": "dialogue"}, model=LSTM, selection={"k": 2}
    )
    run = fedcohort.run(bare.with_overrides({"training": {"epochs": 1}}), runs=tmp_path)
    assert (run.experiment.federation.clients, run.experiment.federation.partition.name) == (24, "natural")
    few = fedcohort.run(bare.with_overrides({"federation": {"clients": 5}}), runs=tmp_path)
    assert (few.experiment.federation.clients, few.experiment.federation.partition.name) == (5, "natural")
    named = {"federation": {"clients": 5, "partition": "dirichlet_class"}}
    with pytest.raises(UsageError, match="'dirichlet_class': divides samples by their class"):
        fedcohort.run(bare.with_overrides(named), runs=tmp_path)
    numbers = bare.with_overrides({"federation": {"partition": "iid"}})
    assert fedcohort.run(numbers, runs=tmp_path).experiment.federation.clients == bare.federation.clients
