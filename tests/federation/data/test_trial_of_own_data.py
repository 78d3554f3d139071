"""What stopped or surprised users with their own data: regression, names of clients, folders and texts without settings."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

import fedcohort
from fedcohort.cli import cli
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Cell
from fedcohort.experiment import load as load_experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.data import own_data, table_files
from fedcohort.federation.data.cache_entries import read_entry, save
from fedcohort.federation.data.datasets import from_arrays, part
from fedcohort.federation.data.load_dataset import is_found, is_hub_id, load
from fedcohort.federation.data.token_data import TokenDataset
from fedcohort.runs.prepare_run import look
from fedcohort.runs.process_objects import packed, unpacked
from fedcohort.runs.run_data import load_data, on_data

CITIES = ["Graz", "Linz", "Wien"]


def call(*arguments):
    """A command in this process."""
    return CliRunner().invoke(cli, list(arguments))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Every test has an empty cache and an empty folder to work in."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def houses(num=90):
    """Houses of three cities, with prices that are whole numbers far above the number of houses."""
    rng = np.random.default_rng(0)
    area = rng.normal(90, 20, num).round(1)
    return pd.DataFrame(
        {"city": [CITIES[i % 3] for i in range(num)], "area": area, "price": (3000 * area).round(-2).astype(int)}
    )


HOUSES: dict[str, Any] = {"label_column": "price", "client_column": "city", "numeric": True}


# ---- regression ----


def test_prices_in_a_table_are_numeric_labels():
    houses().to_csv("houses.csv", index=False)
    data = load("houses.csv", **HOUSES)
    assert data.train_numbers is not None
    assert data.test_numbers is not None
    assert len(data.train_numbers) == 72
    np.testing.assert_allclose(data.train_numbers, 3000 * data.train_features[:, 0], atol=50)
    again = load("houses.csv", **HOUSES)  # from the cache
    np.testing.assert_array_equal(data.train_numbers, again.train_numbers)
    assert again.fingerprint == data.fingerprint
    assert again.client_names == ("Graz", "Linz", "Wien")


@pytest.mark.parametrize(
    "result",
    [
        "x, y",
        "(x[:60], y[:60]), (x[60:], y[60:])",
        "x, y, t.city.to_list()",
        "{'features': x, 'labels': y}",
        "{'train': (x[:60], y[:60]), 'test': (x[60:], y[60:]), 'numeric': True}",
        "fedcohort.from_arrays((x[:60], y[:60]), (x[60:], y[60:]), numeric=True)",
    ],
)
def test_functions_return_numeric_labels(result):
    houses().to_csv("houses.csv", index=False)
    with Path("own.py").open("w", encoding="utf-8") as file:
        file.write(
            "import fedcohort, pandas\ndef load():\n    t = pandas.read_csv('houses.csv')\n"
            f"    x, y = t[['area']].to_numpy(), t.price.to_numpy()\n    return {result}\n"
        )
    data = load(f"{file_path('own.py')}:load", numeric=True)
    assert data.labels_in_words == "numeric labels"
    assert data.num_train + len(data.test_labels) == 90


def file_path(name):
    return Path(name).absolute()


def test_numeric_labels_in_npz():
    np.savez("houses.npz", features=houses()[["area"]].to_numpy(), labels=houses().price.to_numpy())
    data = load("houses.npz", numeric=True)
    assert data.train_numbers is not None
    assert len(np.unique(data.test_labels)) == 10, "every bin has test samples"


def test_what_numeric_labels_cannot_be():
    houses().assign(price=houses().price + 0.5).to_csv("houses.csv", index=False)
    with pytest.raises(
        UsageError, match=r"column 'price': labels must be .*set data\.numeric = true and training\.loss"
    ):
        load("houses.csv", label_column="price", client_column="city")
    with pytest.raises(UsageError, match=r"data\.numeric = true needs labels that are numbers, not "):
        load("houses.csv", label_column="city", feature_columns=["area"], numeric=True)
    with pytest.raises(UsageError, match=r"data\.numeric = True: only for tables"):
        load("digits", numeric=True)  # refused before anything is loaded
    with Path("own.py").open("w", encoding="utf-8") as file:
        file.write(
            "import fedcohort\ndef load():\n"
            "    return fedcohort.from_arrays(([[1.0]] * 4, [0, 1] * 2), ([[1.0]] * 2, [0, 1]))\n"
        )
    with pytest.raises(UsageError, match="the data set has classes; make it with numeric=True"):
        load(f"{file_path('own.py')}:load", numeric=True)


def test_an_experiment_file_with_a_table_of_prices():
    houses().to_csv("houses.csv", index=False)
    with Path("houses.toml").open("w", encoding="utf-8") as file:
        file.write(
            'rounds = 2\nseeds = 1\nmodel = "logistic"\n[data]\nname = "houses.csv"\nlabel_column = "price"\n'
            'client_column = "city"\nnumeric = true\nstandardise = true\n[training]\nloss = "mse"\n'
        )
    run = fedcohort.run(load_experiment("houses.toml"))
    assert run.labels == "numbers"
    assert np.isfinite(run.rounds.mae).all()
    assert run.path.name.startswith("houses-"), "an experiment without a name has that of its file"


# ---- other processes ----


def test_numeric_labels_and_sequences_reach_other_processes():
    x = np.arange(40.0)[:, None]
    numeric = from_arrays((x, x[:, 0]), (x, x[:, 0]), numeric=True, clients=np.arange(40) % 2)
    text = fedcohort.from_text([("a", "the wheel turns " * 20), ("b", "the boat sinks " * 20)], window=8)
    given = Given(loaded={("numbers", ""): numeric, ("text", ""): text})
    (received,) = unpacked(packed([given], [], 2))
    numbers, tokens = received.loaded["numbers", ""], received.loaded["text", ""]
    np.testing.assert_array_equal(numbers.train_numbers, numeric.train_numbers)
    assert numbers.fingerprint == numeric.fingerprint
    assert numbers.client_names == ("0", "1")
    assert isinstance(tokens, TokenDataset)
    assert (tokens.fingerprint, tokens.client_names) == (text.fingerprint, ("a", "b"))


# ---- names of clients ----


def test_the_federation_names_its_clients(tmp_path):
    data = from_arrays(
        (np.eye(30), np.arange(30) % 2), (np.eye(30), np.arange(30) % 2), clients=np.repeat(["c", "a", "b"], 10)
    )
    assert data.client_names == ("a", "b", "c")
    save(data, tmp_path)
    stored = read_entry(tmp_path, "x")
    assert stored is not None
    assert stored.client_names == data.client_names
    natural = fedcohort.Experiment(federation={"clients": 2, "partition": {"name": "natural", "min_size": 1}})
    names = look(natural.with_overrides({"selection": {"k": 1}}), Given(data=data))[1].names
    assert len(names) == 2
    assert set(names) < {"a", "b", "c"}
    mixed = fedcohort.Experiment(federation={"clients": 3, "partition": "iid"})
    assert look(mixed, Given(data=data))[1].names == ()


def test_a_share_of_the_data_keeps_the_names_of_its_clients():
    labels = np.repeat([0, 1], [40, 2])
    data = from_arrays((np.eye(42), labels), (np.eye(42), labels), clients=[*["a"] * 40, "b", "c"])
    less = part(data, 0.3)
    assert less.writers is not None
    assert len(less.client_names) == less.num_writers
    assert set(less.client_names) <= {"a", "b", "c"}


def test_describe_takes_a_table_and_prints_the_clients():
    houses().to_csv("houses.csv", index=False)
    options = ["--set", "data.label_column=price", "--set", "data.client_column=city", "--set", "data.numeric=true"]
    assert "Clients: 0 Graz, 1 Linz, 2 Wien" in call("data", "describe", "houses.csv", *options).stdout
    shown = call("data", "describe", "houses.csv", "--json", *options).stdout
    assert [client["name"] for client in json.loads(shown)["clients"]] == CITIES


def test_an_experiment_is_not_a_table():
    houses().to_csv("houses.csv", index=False)
    refused = call("compare", "houses.csv")
    assert (
        "houses.csv: is data, not an experiment; name it as data.name in an experiment file"
        in refused.output.replace("\n", "")
    )


# ---- folders and texts without settings ----


def pictures(folder, size=(4, 4)):
    """Three classes with 20 small pictures each."""
    for number in range(60):
        file = folder / "train" / str(number % 3) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size if number else (5, 4), number).save(file)


def test_a_folder_without_a_partition_has_one_that_every_seed_can_draw(tmp_path):
    pytest.importorskip("datasets")
    pictures(tmp_path / "small", (5, 4))
    experiment = fedcohort.Experiment(data={"name": str(tmp_path / "small")}, federation={"clients": 8})
    given = Given()
    settled = on_data(Cell("", 0, experiment), given).experiment
    assert settled.federation.partition.parameters["min_size"] < 10, "8 clients cannot have 10 of 48 samples each"
    assert any("federation.partition: not given" in line for line in given.said)
    for seed in range(5):
        look(settled.with_overrides({"seed": seed}), given)


def test_pictures_of_different_sizes_say_what_to_do(tmp_path):
    pytest.importorskip("datasets")
    pictures(tmp_path / "mixed")
    with pytest.raises(UsageError, match="images must share one size, so resize them first"):
        load(str(tmp_path / "mixed"))


def test_the_roles_of_a_text_are_its_clients(tmp_path, caplog):
    lines = "".join(f"{role}: {'the wheel turns slowly and the river pays ' * 8}\n" for role in ("MILLER", "BOATMAN"))
    (tmp_path / "play.txt").write_text(lines, encoding="utf-8")
    with caplog.at_level(logging.WARNING, "fedcohort"):
        shown = call("data", "describe", "play.txt")
    assert "Clients: 0 BOATMAN, 1 MILLER" in shown.stdout
    assert "'natural': the 2 clients of the data" in caplog.text
    experiment = fedcohort.Experiment(data={"name": str(tmp_path / "play.txt"), "window": 16}, model="lstm")
    assert load_data(experiment, Given())[0].num_writers == 2


def test_what_is_data_and_what_is_an_id(tmp_path):
    (tmp_path / "a.txt").write_text("A: b\n", encoding="utf-8")
    (tmp_path / "photos").mkdir()
    assert [is_found(str(tmp_path / name)) for name in ("a.txt", "photos", "missing")] == [True, True, False]
    assert [is_found(name) for name in ("digits", "")] == [False, False]
    assert [is_hub_id(name) for name in ("owner/name", "digits", "a/b/c")] == [True, False, False]


# ---- messages ----


def test_a_table_with_texts_and_dates_names_both_types(tmp_path):
    frame = pd.DataFrame(
        {"label": ["x", "y"], "sex": ["f", "m"], "admitted": pd.to_datetime(["2024-01-01", "2024-01-02"])}
    )
    frame.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(
        UsageError, match=r"columns 'sex', 'admitted' have no numbers but \w+ and datetime64\[\w+\]; encode texts"
    ):
        load("table.parquet")


@pytest.mark.parametrize("text", ["2024-01-31 07:00", "31.01.2024", "1/31/24"])
def test_dates_are_not_to_become_a_column_each(tmp_path, text):
    (tmp_path / "table.csv").write_text(f"day,age,label\n{text},3,x\n{text},4,y\n")
    with pytest.raises(
        UsageError, match=r"column 'day' has no numbers .*; a date becomes a number of days with pandas"
    ):
        load("table.csv")


def test_the_message_about_many_columns_is_not_cut_in_the_middle(tmp_path):
    """Its verb was left out."""
    names = ["smoker", "ward", "diagnosis_at_admission", "referring_physician", "insurance"]
    folder = tmp_path / "a folder of a hospital" / "2024" / "exports_of_the_clinical_registry"
    folder.mkdir(parents=True)
    pd.DataFrame(
        {"label": ["x", "y"], "day": pd.to_datetime(["2024-01-01", "2024-01-02"])} | dict.fromkeys(names, "f")
    ).to_parquet(folder / "table_of_all_patients.parquet")
    with pytest.raises(UsageError) as error:
        load(str(folder / "table_of_all_patients.parquet"))
    assert re.search(
        r": columns 'day', .* have no numbers but datetime64\[\w+\] and \w+; encode texts \(pandas\.get_dummies\) and dates "
        r"\(in days\), or leave them out with data\.feature_columns; if one is that of the clients: data\.client_column$",
        str(error.value),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a;b;label\n1,5;2;x\n",
            r"columns are separated by ';'; save the table with commas, or read it in a function",
        ),
        ("größe,label\n1,x\n".encode("cp1252"), r"is not UTF-8 text; save it as UTF-8, or .*encoding"),
        (b"a,b,c,label\n1,,2,x\n1,2,,y\n,1,1,y\n", r"columns 'a', 'b', 'c': 1 and 1 and … of 3 values are missing"),
        (b"sex,age,smoker,label\nf,30,no,x\nm,31,yes,y\n", r"columns 'sex', 'smoker' have no numbers .*get_dummies"),
    ],
)
def test_a_table_says_everything_that_is_wrong_with_it(tmp_path, content, message):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(UsageError, match=message) as refused:
        load("table.csv")
    assert len(str(refused.value)) <= 300


def test_a_column_that_numbers_the_rows_is_reported(caplog):
    table = houses().assign(number=np.arange(500, 590))
    table.to_csv("houses.csv", index=False)
    with caplog.at_level(logging.WARNING, "fedcohort"):
        load("houses.csv", **HOUSES)
    assert "column 'number' has another integer in every row" in caplog.text
    caplog.clear()
    load("houses.csv", **HOUSES, feature_columns=["area"])
    assert not caplog.text


def test_labels_with_gaps_and_single_classes_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    features = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    for labels, message in (
        (
            np.repeat([0, 1, 40], 20),
            "labels up to 40 make 41 classes, but 38 of them have no sample; number the classes",
        ),
        (np.zeros(60, dtype=np.int64), "all labels are 0, so there is nothing to predict"),
        (np.repeat([0, 1, 3], 20), ""),
    ):
        caplog.clear()
        np.savez("own.npz", features=features, labels=labels)
        load("own.npz")
        assert message in caplog.text
        assert bool(message) == bool(caplog.text)


def test_labels_below_zero_are_not_called_zero(caplog: pytest.LogCaptureFixture) -> None:
    np.savez("own.npz", features=np.random.default_rng(0).normal(size=(60, 4)), labels=np.repeat([-1, 0], 30))
    with pytest.raises(UsageError, match="labels: -1 with 60 samples"):
        load("own.npz")
    assert not caplog.text


def test_a_single_text_in_a_column_of_numbers_is_named_with_its_row() -> None:
    table = houses()
    column = next(name for name in table if table[name].dtype.kind == "f" and name != "price")
    table[column] = table[column].astype(object)
    table.loc[table.index[3], column] = "foo"
    table.to_csv("houses.csv", index=False)
    options = ["--set", "data.label_column=price", "--set", "data.client_column=city", "--set", "data.numeric=true"]
    refused = call("data", "describe", "houses.csv", *options).output
    assert f"column '{column}' has 'foo' in row 4, and numbers in most others; correct the value" in refused.replace(
        "\n", ""
    )


def test_a_missing_value_of_a_function_is_named_by_its_place_in_what_was_returned() -> None:
    Path("own.py").write_text(
        "import numpy as np\n\ndef load():\n    x = np.zeros((60, 4))\n    x[57, 2] = np.nan\n    return x, np.arange(60) % 2\n",
        encoding="utf-8",
    )
    with pytest.raises(
        UsageError, match=r"features: 1 value is NaN or infinite as float64, the first in sample 57, numbered from 0"
    ):
        load(f"{file_path('own.py')}:load")


def test_labels_that_are_too_high_are_counted_in_samples() -> None:
    np.savez("own.npz", features=np.zeros((60, 4)), labels=np.arange(60) % 2 * 1000)
    with pytest.raises(UsageError, match="labels: 1000 with 60 samples; must be 0"):
        load("own.npz")


def test_a_single_text_among_numeric_labels_is_named_with_its_row() -> None:
    table = houses().astype({"price": object})
    table.loc[table.index[3], "price"] = "unknown"
    table.to_csv("houses.csv", index=False)
    with pytest.raises(
        UsageError, match=r"column 'price' has 'unknown' in row 4, .* correct the value, or leave the row out$"
    ):
        load("houses.csv", label_column="price", client_column="city", numeric=True)


def test_a_table_of_numeric_labels_without_rows_says_so() -> None:
    houses().head(0).to_csv("houses.csv", index=False)
    with pytest.raises(UsageError, match="has no rows; at least two are needed"):
        load("houses.csv", label_column="price", client_column="city", numeric=True)


def test_a_table_that_changes_while_it_is_read_is_not_kept(monkeypatch, tmp_path):
    path = tmp_path / "t.csv"
    rows = "a,label\n" + "1,0\n2,1\n" * 10
    path.write_text(rows)

    def read_table(*arguments):
        path.write_text(rows + "3,1\n" * 10)
        return whole(*arguments)

    whole = table_files.read_table
    with monkeypatch.context() as patched:
        patched.setattr(own_data, "read_table", read_table)
        with pytest.raises(
            UsageError, match=r"^data\.name = '.*': changed while it was read; try again when it is complete$"
        ):
            load(str(path))
    path.write_text(rows)
    data = load(str(path))
    assert data.num_train + len(data.test_labels) == 20
