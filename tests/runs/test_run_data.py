"""Users' own data in runs: identity, resuming, trust, several processes, settings that the data decide, accuracy of clients."""

import logging
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Cell, Experiment, load
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data.load_dataset import load as load_data
from fedcohort.racing.raced_rows import candidates
from fedcohort.runs.find_run import find_run
from fedcohort.runs.play_run import run_cell
from fedcohort.runs.prepare_run import federate
from fedcohort.runs.run_data import key_of, on_data

LOADER = """
from pathlib import Path
import numpy as np
calls = Path(__file__).with_suffix(".calls")
def load():
    with calls.open("a") as file:
        file.write("called\\n")
    rng = np.random.default_rng({seed})
    x, y = rng.normal(size=(120, 4)), np.arange(120) % 3
    x[:, 0] += 3 * y
    return x, y, [f"h{{i % 5}}" for i in range(120)]
"""

TABLE = """
name = "own"
rounds = 2
seeds = 2

[data]
name = "{name}"

[model]
name = "logistic"

[[variants]]
label = "UCB"
selection = "ucb"
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path, monkeypatch):
    """An empty working directory and an empty cache."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def patients(num=120, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 90, num)
    hospital = [f"hospital {i % 5}" for i in range(num)]
    label = np.where(age + rng.normal(0, 5, num) > 55, "ill", "healthy")
    return pd.DataFrame({"client": hospital, "age": age, "pressure": rng.normal(120, 15, num), "label": label})


def write(tmp_path, name="table.csv", seed=0):
    """An experiment file in a folder of its own, with a table or a function beside it."""
    folder = tmp_path / "study"
    folder.mkdir(exist_ok=True)
    if name.endswith(".csv"):
        patients(seed=seed).to_csv(folder / name, index=False)
    else:
        (folder / "loader.py").write_text(LOADER.format(seed=seed))
    (folder / "own.toml").write_text(TABLE.format(name=name))
    return folder / "own.toml"


def iris(num=90, **options):
    rng = np.random.default_rng(0)
    labels = np.arange(num) % 3
    features = rng.normal(size=(num, 4)) + 2 * np.eye(3, 4)[labels]
    return fedcohort.from_arrays((features[30:], labels[30:]), (features[:30], labels[:30]), **options)


def test_test_samples_of_unknown_clients_are_reported_once(caplog):
    caplog.set_level(logging.WARNING, "fedcohort")
    ids = np.arange(60) % 5
    given = Given(data=iris(clients=ids, test_clients=np.arange(30) % 6))
    for _ in range(2):
        on_data(Cell("uniform", 0, Experiment()), given)
    told = [record.message for record in caplog.records if "without training samples" in record.message]
    assert told == [
        "data: 5 of 30 test samples are of clients without training samples; they count in the test accuracy, and in that of no client"
    ]


# ---- named own data ----


@pytest.mark.parametrize("name", ["table.csv", "loader.py:load"])
def test_named_own_data_run_from_a_file_and_resume(tmp_path, name):
    file = write(tmp_path, name)
    cell = load(file).cells()[0]
    assert Path(cell.experiment.data.name.rpartition(":")[0] or cell.experiment.data.name).parent == file.parent
    given = Given()
    run = run_cell(cell, given)
    assert run.finished
    assert run.described.federation.clients == 5
    assert run.described.federation.partition.name == "natural"
    found = find_run(cell, Given(), "runs")
    assert found is not None
    assert found.path == run.path
    again = run_cell(cell, Given())
    assert again.path == run.path
    name_in_record = run.described.data.name
    assert (
        name_in_record.startswith("plug-ins/loader-") if name.endswith("load") else name_in_record.endswith("table.csv")
    )


@pytest.mark.parametrize("name", ["table.csv", "loader.py:load"])
def test_an_interrupted_run_of_own_data_resumes(tmp_path, name):
    cell = load(write(tmp_path, name)).cells()[0]

    def stop(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run_cell(cell, Given(), progress=stop)
    begun = find_run(cell, Given(), "runs")
    assert begun is not None
    assert not begun.finished
    run = run_cell(cell, Given())
    assert (run.path, run.finished) == (begun.path, True)
    whole = run_cell(cell, Given(), runs="elsewhere")
    assert run.rounds["test_accuracy"].tolist() == whole.rounds["test_accuracy"].tolist()


@pytest.mark.parametrize("name", ["table.csv", "loader.py:load"])
def test_changed_content_is_another_run(tmp_path, name):
    first = load(write(tmp_path, name)).cells()[0]
    before = key_of(on_data(first, Given()).experiment, Given())
    assert before == key_of(on_data(first, Given()).experiment, Given())
    changed = load(write(tmp_path, name, seed=1)).cells()[0]
    assert key_of(on_data(changed, Given()).experiment, Given()) != before


def test_a_changed_result_of_the_same_function_is_another_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef load():\n    x = np.load('x.npy')\n    return x, np.arange(len(x)) % 2\n"
    )
    experiment = Experiment(data={"name": "mine.py:load"}).single(0)
    np.save("x.npy", np.zeros((40, 2)))
    before = key_of(experiment, Given())
    np.save("x.npy", np.ones((40, 2)))
    assert key_of(experiment, Given()) != before


def test_the_place_of_a_table_is_not_part_of_the_key(tmp_path):
    table = patients()
    (tmp_path / "a").mkdir()
    for path in ("t.csv", "a/other.csv"):
        table.to_csv(path, index=False)
    keys = {key_of(Experiment(data={"name": path}).single(0), Given()) for path in ("t.csv", "a/other.csv")}
    assert len(keys) == 1


def test_a_function_is_called_once_for_all_runs_of_a_comparison(tmp_path):
    file = write(tmp_path, "loader.py:load")
    compared = fedcohort.compare(load(file))
    assert len(compared.rows) == 2
    calls = (file.parent / "loader.calls").read_text().split()
    assert len(calls) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table.csv", "loader.py:load"])
def test_named_own_data_run_in_several_processes(tmp_path, name):
    file = write(tmp_path, name)
    several = fedcohort.compare(load(file), jobs=2, runs="several")
    one = fedcohort.compare(load(file), runs="one")
    assert several.table["accuracy"].tolist() == one.table["accuracy"].tolist()
    if name.endswith("load"):
        assert len((file.parent / "loader.calls").read_text().split()) <= 3  # once a call: the processes map its result


def test_several_names_in_a_sweep(tmp_path):
    folder = write(tmp_path).parent
    patients(seed=3).to_csv(folder / "b.csv", index=False)
    (folder / "sweep.toml").write_text(
        'rounds = 1\nseeds = 1\n[sweep]\n"data.name" = ["table.csv", "b.csv", "digits"]\n'
    )
    names = [row.data.name for _, row in load(folder / "sweep.toml").rows()]
    assert names == [str(folder / "table.csv"), str(folder / "b.csv"), "digits"]
    (folder / "sections.toml").write_text(
        '[[sweep.data]]\nname = "b.csv"\nstandardise = true\n[[sweep.data]]\nname = "table.csv"\n'
    )
    rows = load(folder / "sections.toml").rows()
    assert [row.data.name for _, row in rows] == [str(folder / "b.csv"), str(folder / "table.csv")]


def test_a_function_in_a_record_is_run_only_with_consent(tmp_path):
    run = run_cell(load(write(tmp_path, "loader.py:load")).cells()[0], Given())
    calls = tmp_path / "study" / "loader.calls"
    before = calls.read_text()
    with pytest.raises(UsageError, match=r"names plug-in files of a run directory.*loader-.*trust=True"):
        load(run.path / "experiment.toml")
    with pytest.raises(UsageError, match=r"is a file of a run directory, which is not run"):
        load_data(run.described.data.name)
    assert calls.read_text() == before
    trusted = load(run.path / "experiment.toml", trust=True)
    again = run_cell(Cell(trusted.label, trusted.seed, trusted.single(trusted.seed)), Given(), runs="elsewhere")
    assert again.rounds["test_accuracy"].tolist() == run.rounds["test_accuracy"].tolist()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:load", r"^variants\.b: data\.name = '.*none\.py:load': there is no file"),
        ("mine.py:number", r"^variants\.b: data\.name = .* is an object of type int; name a function"),
        ("mine.py:other", r"^variants\.b: data\.name = .*defines no other"),
    ],
)
def test_a_wrong_name_is_reported_before_the_first_run(tmp_path, name, message):
    (tmp_path / "mine.py").write_text("number = 3\ndef load(): ...\n")
    with pytest.raises(UsageError, match=message):
        Experiment(variants=[{"label": "b", "data": {"name": name}}])


def test_public_samples_can_be_a_users_own(tmp_path):
    features = np.random.default_rng(0).normal(size=(30, 4))
    np.savez("public.npz", features=features, labels=np.zeros(30, int), classes=["0"])
    experiment = Experiment(rounds=1, public={"name": "public.npz"}, federation={"clients": 3}, model="logistic")
    run = fedcohort.run(experiment, data=iris())
    assert "public.npz" in run.meta["public"]


# ---- what the model sees ----


def test_the_setting_standardise_changes_the_run_and_its_key():
    data = iris()
    keys, accuracies = set(), set()
    for standardise in (None, True):
        experiment = Experiment(
            rounds=2, data={"standardise": standardise}, federation={"clients": 3}, model="logistic"
        )
        run = fedcohort.run(experiment, data=data)
        keys.add(run.meta["key"])
        accuracies.add(run.rounds["test_loss"].iloc[-1])
        assert (
            run.meta["data"]
            == fedcohort.from_arrays(
                (data.train_features, data.train_labels),
                (data.test_features, data.test_labels),
                standardise=bool(standardise),
            ).fingerprint
        )
    assert len(keys) == len(accuracies) == 2


class Words(nn.Module):
    """Embeds tokens; the input must be integers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(50, 8), nn.Linear(8, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        assert tokens.dtype == torch.int64
        embedded: torch.Tensor = self.linear(self.embedding(tokens).mean(1))
        return embedded


def tokens():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 50, (160, 6))
    labels = (words.mean(1) > 25).astype(int)
    return fedcohort.from_arrays((words[:120], labels[:120]), (words[120:], labels[120:]))


@pytest.mark.parametrize("plan", ["loop", "threads", "stacked"])
def test_tokens_reach_an_embedding_as_integers(plan):
    experiment = Experiment(rounds=6, federation={"clients": 3}, engine={"plan": plan}, training={"lr": 1.0})
    run = fedcohort.run(experiment, data=tokens(), model=Words, runs=plan)
    assert run.rounds["train_loss"].iloc[-1] < run.rounds["train_loss"].iloc[0]


def test_builtin_models_read_integers_as_numbers():
    run = fedcohort.run(Experiment(rounds=1, federation={"clients": 3}, model="logistic"), data=tokens())
    assert run.finished


def test_a_network_that_cannot_read_integers_is_refused_with_a_hint():
    with pytest.raises(UsageError, match=r"the samples are int64: convert them in the network \(x\.float\(\)\)"):
        fedcohort.run(Experiment(rounds=1, federation={"clients": 3}), data=tokens(), model=nn.Linear(6, 2))


def test_a_network_that_cannot_read_a_data_set_of_tokens_is_told_of_the_vocabulary():
    """Not to convert the tokens, which are no numbers."""
    given, experiment = tokens(), Experiment(rounds=1, federation={"clients": 3, "partition": "iid"})
    data = fedcohort.from_tokens(
        (given.train_features, given.train_labels), (given.test_features, given.test_labels), vocabulary=50
    )
    too_small = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(24, 2))
    for model in (too_small, nn.Linear(6, 2)):
        with pytest.raises(UsageError, match=r"the samples are int64: use nn\.Embedding\(shape\.vocabulary, …\)$"):
            fedcohort.run(experiment, data=data, model=model)


# ---- settings that the data decide ----


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "fedcohort"]


def settled(experiment, data):
    return on_data(Cell("", 0, experiment.single(0)), Given(data=data)).experiment


def test_clients_of_the_data_become_the_clients(caplog):
    ids = [f"h{i % 4}" for i in range(60)]
    experiment = settled(Experiment(), iris(clients=ids))
    assert (experiment.federation.partition.name, experiment.federation.clients) == ("natural", 4)
    assert experiment.federation.partition.parameters == {"min_size": 1}
    assert said(caplog) == ["federation.partition: not given, so 'natural': the 4 clients of the data"]
    assert settled(Experiment(federation={"clients": 3}), iris(clients=ids)).federation.clients == 3


def test_more_clients_than_the_data_have_are_not_said_to_be_of_the_data(caplog):
    ids = [f"h{i % 4}" for i in range(60)]
    with pytest.raises(UsageError, match=r"^federation\.clients = 9: the data have 4 clients, "):
        federate(settled(Experiment(federation={"clients": 9}), iris(clients=ids)), Given(data=iris(clients=ids)))
    assert said(caplog) == []


def test_fewer_clients_than_k_select_all_of_them():
    experiment = settled(Experiment(), iris(clients=np.arange(60) % 2))
    assert (experiment.federation.clients, experiment.selection.k) == (2, 2)
    with pytest.raises(UsageError, match=r"selection\.k = 3: more than federation\.clients = 2"):
        settled(Experiment(selection={"k": 3}), iris(clients=np.arange(60) % 2))


@pytest.mark.parametrize("federation", [{}, {"partition": {"name": "natural", "min_size": 1}}])
def test_k_may_be_as_large_as_the_number_of_clients_in_a_table(federation):
    pd.DataFrame({"a": np.arange(90.0), "label": np.arange(90) % 2, "client": np.arange(90) % 30}).to_csv("t.csv")
    experiment = Experiment(
        data={"name": "t.csv"},
        federation=federation,
        selection={"k": 20},
        variants=[{"label": "later", "selection": {"k_steps": [[2, 30]]}}],
    )
    rows = [settled(row, None) for _, row in experiment.rows()]
    assert [(row.federation.clients, row.selection.k) for row in rows] == [(30, 20), (30, 20)]
    read = Experiment(**tomllib.loads(experiment.to_toml()))
    assert read == experiment
    assert settled(read, None) == settled(experiment, None)
    with pytest.raises(UsageError, match=r"selection\.k = 31: more than federation\.clients = 30; use 1 to 30$"):
        settled(experiment.with_overrides({"selection": {"k": 31}}), None)
    with pytest.raises(
        UsageError, match=r"selection\.k = 20: more than federation\.clients = 12; .* or set federation\.clients$"
    ):
        experiment.with_overrides({"federation": {"partition": "iid"}})


@pytest.mark.parametrize("clients", [{}, {"clients": 7}], ids=["all", "given"])
def test_toml_leaves_a_partition_that_was_not_given_to_the_data(clients):
    pd.DataFrame({"a": np.arange(90.0), "label": np.arange(90) % 2, "client": np.arange(90) % 9}).to_csv("t.csv")
    experiment = Experiment(data={"name": "t.csv"}, federation=clients)
    read = settled(Experiment(**tomllib.loads(experiment.to_toml())), None)
    assert read == settled(experiment, None)
    assert read.federation.partition.name == "natural"


def test_toml_of_built_in_data_has_the_partition():
    assert "[federation.partition]" in Experiment(federation={"clients": 7}).to_toml()


def test_a_row_that_selects_too_many_clients_of_a_table_is_refused_before_the_first_run(tmp_path):
    pd.DataFrame({"a": np.arange(90.0), "label": np.arange(90) % 2, "client": np.arange(90) % 30}).to_csv("t.csv")
    experiment = Experiment(data={"name": "t.csv"}, sweep={"selection.k": [20, 31]}, seeds=1)
    with pytest.raises(UsageError, match=r"selection\.k = 31: more than federation\.clients = 30"):
        fedcohort.compare(experiment, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_ids_that_another_partition_ignores_are_reported(caplog):
    experiment = settled(Experiment(federation={"partition": "iid"}), iris(clients=np.arange(60) % 4))
    assert (experiment.federation.partition.name, experiment.federation.clients) == ("iid", 12)
    assert said(caplog) == [
        "federation.partition = 'iid': does not use the ids of the 4 clients in the data; to keep these clients, use 'natural'"
    ]


def test_the_number_of_natural_clients_follows_from_the_data(caplog):
    ids = np.repeat(np.arange(4), [40, 12, 5, 3])
    experiment = settled(Experiment(federation={"partition": "natural"}), iris(clients=ids))
    assert experiment.federation.clients == 2  # min_size = 10
    assert said(caplog) == ["federation.clients: not given, so 2, all clients of the data with enough samples"]


def test_without_a_client_with_enough_samples_no_number_of_them_is_reported(caplog):
    """It said "12, all clients of the data with enough samples" of four clients that all have too few."""
    settled(Experiment(federation={"partition": "natural"}), iris(clients=np.repeat(np.arange(12), 5)))
    assert said(caplog) == []


def test_a_default_partition_suits_small_data_and_is_reported(caplog):
    experiment = settled(Experiment(), iris())
    partition = experiment.federation.partition
    assert partition.name == "dirichlet_class"
    assert partition.parameters["min_size"] == 2
    message = (
        f"federation.partition: not given, so 'dirichlet_class' with alpha = {partition.parameters['alpha']:g} and min_size = 2, "
        "which suit 60 samples of 3 classes for 12 clients"
    )
    assert said(caplog) == [message]


@pytest.mark.parametrize("num", [31, 33, 40, 60, 200])
def test_defaults_never_refuse_small_data(num):
    for seed in range(2):
        run = fedcohort.run(Experiment(rounds=1, model="logistic"), data=iris(num), seed=seed)
        assert run.finished


def test_named_settings_stay():
    given = {"clients": 5, "partition": {"name": "dirichlet_class", "alpha": 0.5, "min_size": 1}}
    experiment = settled(Experiment(federation=given), iris())
    assert experiment.federation == Experiment(federation=given).federation
    by_parameter = Experiment(federation={"partition": {"alpha": 7.0}})
    assert settled(by_parameter, iris(clients=np.arange(60) % 4)).federation.partition.parameters["alpha"] == 7.0


def test_variants_and_sweeps_leave_the_partition_open():
    data = iris(clients=np.arange(60) % 4)
    experiment = Experiment(variants=[{"label": "b", "selection": "ucb"}], sweep={"training.lr": [0.1, 0.2]})
    for _, row in experiment.rows():
        assert settled(row, data).federation.partition.name == "natural"
    named = Experiment(sweep={"federation.partition.alpha": [0.5, 1.0]})
    assert [settled(row, data).federation.partition.name for _, row in named.rows()] == ["dirichlet_class"] * 2
    assert settled(experiment.with_overrides({"rounds": 3}), data).federation.partition.name == "natural"


def test_settings_of_builtin_data_stay():
    experiment = Experiment().single(0)
    assert on_data(Cell("", 0, experiment), Given()).experiment is experiment
    assert key_of(experiment, Given()) == experiment.key()
    assert Experiment().single(0) == Experiment(federation={"clients": 12, "partition": "dirichlet_class"}).single(0)


def test_a_choice_is_reported_once(caplog):
    caplog.set_level(logging.WARNING)
    fedcohort.compare(Experiment(rounds=1, seeds=3, model="logistic"), data=iris())
    assert len([line for line in said(caplog) if "not given" in line]) == 1


# ---- accuracy of clients ----


def test_accuracy_on_the_test_samples_of_every_client():
    ids = np.arange(90) % 5
    data = iris(clients=ids[30:], test_clients=ids[:30])
    run = fedcohort.run(Experiment(rounds=3, model="logistic", data={"validation": 0.0}), data=data)
    table = run.client_accuracy
    assert table.shape == (3, 5)
    # clients have the same number of test samples, so the mean over clients is the accuracy on the test set
    np.testing.assert_allclose(table.mean(axis=1), run.rounds["test_accuracy"])
    assert run.meta["client data"] == "test samples"
    summary = run.summary()
    last = table.iloc[-1].to_numpy()
    assert summary.client_accuracy == pytest.approx(last.mean())
    assert summary.worst_client_accuracy == pytest.approx(last.min())
    assert summary.client_accuracy_sd == pytest.approx(last.std())


def test_accuracy_of_clients_stands_beside_the_global_one():
    ids = np.arange(90) % 5
    data = iris(clients=ids[30:], test_clients=ids[:30])
    compared = fedcohort.compare(Experiment(rounds=2, seeds=2, model="logistic"), data=data)
    row = compared.table.iloc[0]
    runs = list(compared.rows[0].runs.values())
    last = [run.client_accuracy.iloc[-1].to_numpy() for run in runs]
    assert row["client_accuracy"] == pytest.approx(np.mean([one.mean() for one in last]))
    assert row["worst_client_accuracy"] == pytest.approx(np.mean([one.min() for one in last]))
    assert row["client_accuracy_sd"] == pytest.approx(np.mean([one.std() for one in last]))
    text = str(compared)
    assert "over" in text
    assert "accuracy on each client's own test samples" in " ".join(text.split())
    page = runs[0].report()
    assert "each client&#x27;s own test samples" in page or "own test samples" in page


def test_without_test_clients_nothing_is_measured_on_clients():
    run = fedcohort.run(Experiment(rounds=1, model="logistic"), data=iris(clients=np.arange(60) % 4))
    assert run.client_accuracy.empty
    assert "client data" not in run.meta
    assert (
        "over"
        not in str(fedcohort.compare(Experiment(rounds=1, seeds=1, model="logistic"), data=iris())).split("\n")[3]
    )


def test_centralized_training_has_no_test_samples_of_clients():
    ids = np.arange(90) % 5
    data = iris(clients=ids[30:], test_clients=ids[:30])
    run = fedcohort.run(Experiment(rounds=1, model="logistic", algorithm="centralised"), data=data)
    assert run.client_accuracy.empty


def test_rows_of_a_race_over_settings_keep_the_clients_of_a_table():
    pd.DataFrame({"a": np.arange(90.0), "label": np.arange(90) % 2, "client": np.arange(90) % 30}).to_csv("t.csv")
    variants = [{"label": "late", "selection": "ucb"}]
    experiment = Experiment(data={"name": "t.csv"}, variants=variants, sweep={"selection.k": [3, 20]})
    rows, _ = candidates(experiment, Given(), over={"training.lr": [0.1, 0.2]})
    chosen = [settled(row.experiment, None) for row in rows]
    assert [(row.federation.partition.name, row.federation.clients) for row in chosen] == [("natural", 30)] * 8
    assert sorted({(row.selection.k, row.training.lr) for row in chosen}) == [(3, 0.1), (3, 0.2), (20, 0.1), (20, 0.2)]
