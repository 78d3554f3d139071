"""Data that users name: functions, CSV, Parquet and .npz files; what reaches the model; clients of training and test samples."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.client_test_parts import accuracy_by_client
from fedcohort.federation.data.array_checks import brief, numbered
from fedcohort.federation.data.cache_entries import read_entry, save
from fedcohort.federation.data.datasets import fingerprint_of_content, from_arrays, part, standardised
from fedcohort.federation.data.load_dataset import NAMES, load
from fedcohort.federation.data.own_data import shared, stored
from fedcohort.federation.data.tables import with_held_out_test
from fedcohort.federation.featureshift import Gauss
from fedcohort.federation.federation import gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.federation.partitions.natural import Natural

HOSPITALS = ["Aalborg", "Bergen", "Cork", "Dijon"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Every test has an empty cache."""
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)


def patients(num=80):
    """A table of patients of four hospitals, with texts as labels and as ids of clients."""
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, num)
    return pd.DataFrame(
        {
            "client": [HOSPITALS[i % 4] for i in range(num)],
            "age": age,
            "pressure": rng.normal(120, 15, num),
            "label": np.where(age > 55, "ill", "healthy"),
        }
    )


def arrays(num=40):
    rng = np.random.default_rng(1)
    return rng.normal(5, 3, (num, 3)), np.arange(num) % 2


# ---- what the model sees ----


def inputs(data, rule=None, **how):
    """The training samples of all clients as a model sees them."""
    import torch

    split = partition(rule or Iid(), data.train_labels, 4, 0, data.writers)
    federation = gather(data, split, validation=0.0, seed=0, **how)
    return federation.prepare(federation.train.features, torch.float64).numpy(), federation


def test_features_that_are_handed_over_reach_the_model_as_they_are():
    features, labels = arrays()
    data = from_arrays((features, labels), (features, labels))
    assert not data.standardise
    seen, _ = inputs(data)
    np.testing.assert_array_equal(seen[np.lexsort(seen.T)], features[np.lexsort(features.T)])


def test_standardise_uses_the_training_samples_only():
    features, labels = arrays()
    data = from_arrays((features, labels), (features + 1000, labels), standardise=True)
    seen, federation = inputs(data)
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(seen.std(axis=0), 1)
    np.testing.assert_allclose(federation.shift, features.mean(axis=0))


def test_images_that_are_handed_over_reach_the_model_as_pixels():
    images = np.random.default_rng(0).integers(0, 256, (40, 5, 5))
    seen, _ = inputs(from_arrays((images, np.arange(40) % 2), (images, np.arange(40) % 2)))
    assert (seen.min(), seen.max()) == (images.min(), images.max())


def test_builtin_data_are_standardized_as_before():
    digits = load("digits")
    assert digits.standardise
    arrays = (digits.train_features, digits.train_labels, digits.test_features, digits.test_labels)
    assert digits.fingerprint == fingerprint_of_content(digits.classes, *arrays, None)
    assert not load("digits", standardise=False).standardise


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integers_in_tables_stay_integers(dtype):
    tokens = np.arange(120).reshape(40, 3).astype(dtype)
    data = from_arrays((tokens, np.arange(40) % 2), (tokens, np.arange(40) % 2))
    assert data.train_features.dtype == np.int64
    np.testing.assert_array_equal(data.train_features, tokens)


def test_integers_that_do_not_fit_into_int64_are_refused():
    with pytest.raises(UsageError, match=r"mine: train features: 18446744073709551615; integers must fit"):
        from_arrays((np.full((2, 1), 2**64 - 1, np.uint64), [0, 1]), (np.ones((2, 1)), [0, 1]), name="mine")


def test_float64_stays_float64():
    features, labels = arrays()
    assert from_arrays((features, labels), (features, labels)).train_features.dtype == np.float64


@pytest.mark.parametrize("kind", [">f8", "longdouble"])
def test_more_bytes_or_another_order_of_bytes_stay_float64(kind):
    features, labels = 1e9 + np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    data = from_arrays((features.astype(kind), labels), (features.astype(kind), labels))
    assert data.train_features.dtype == np.float64
    assert np.array_equal(data.train_features, features)


def test_integers_are_not_shifted():
    tokens = np.arange(120).reshape(40, 3)
    with pytest.raises(UsageError, match=r"^federation\.feature_shift: the features are integers"):
        inputs(from_arrays((tokens, np.arange(40) % 2), (tokens, np.arange(40) % 2)), feature_shift=Gauss())


def test_feature_shift_has_the_unit_of_the_columns_without_standardization():
    features, labels = arrays(400)
    features[:, 0] *= 1000
    data = from_arrays((features, labels), (features, labels))
    plain, _ = inputs(data)
    shifted, _ = inputs(data, feature_shift=Gauss(sigma=1.0))
    moved = (shifted - plain).std(axis=0)
    assert moved[0] / moved[1] == pytest.approx(features[:, 0].std() / features[:, 1].std(), rel=0.2)


def test_standardise_and_test_clients_are_part_of_the_fingerprint():
    features, labels = arrays()
    ids = np.arange(40) % 4

    def fingerprint(**options):
        return from_arrays((features, labels), (features, labels), **options).fingerprint

    one = {
        fingerprint(),
        fingerprint(standardise=True),
        fingerprint(clients=ids),
        fingerprint(clients=ids, test_clients=ids),
        fingerprint(clients=ids, test_clients=ids[::-1]),
        fingerprint(clients=ids, test_clients=ids, standardise=True),
    }
    assert len(one) == 6
    data = from_arrays((features, labels), (features, labels), clients=ids, test_clients=ids)
    assert standardised(data, True).fingerprint == fingerprint(clients=ids, test_clients=ids, standardise=True)
    assert standardised(standardised(data, True), False).fingerprint == data.fingerprint


# ---- clients ----


def test_writers_and_clients_are_two_names():
    features, labels = arrays()
    ids = [f"h{i % 3}" for i in range(40)]
    data = from_arrays((features, labels), (features, labels), clients=ids)
    assert data.fingerprint == from_arrays((features, labels), (features, labels), writers=ids).fingerprint
    assert (data.num_writers, data.test_clients) == (3, None)
    with pytest.raises(UsageError, match=r"clients and writers are two names of one argument"):
        from_arrays((features, labels), (features, labels), clients=ids, writers=ids)


def test_test_clients_have_the_numbers_of_the_training_clients():
    features, labels = arrays(4)
    data = from_arrays(
        (features, labels), (features, labels), clients=["c", "a", "c", "d"], test_clients=["d", "b", "a", "zz"]
    )
    assert data.writers is not None
    assert data.test_clients is not None
    assert data.writers.tolist() == [1, 0, 1, 2]
    assert data.test_clients.tolist() == [2, -1, 0, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_clients": [0, 1, 0, 1]}, r"test_clients without clients"),
        (
            {"clients": [0, 1, 0, 1], "test_clients": ["a", "b", "a", "b"]},
            r"clients are integers, test_clients are strings",
        ),
        ({"clients": [0, 1, 0, 1], "test_clients": [0, 1]}, r"4 test samples but 2 test_clients"),
        ({"clients": [0.5, 1, 0, 1]}, r"clients must be integers or strings \[N\], not float64 \[4\]"),
    ],
)
def test_clients_that_cannot_be_used(options, message):
    features, labels = arrays(4)
    with pytest.raises(UsageError, match=message):
        from_arrays((features, labels), (features, labels), **options)


def test_unknown_ids_have_no_number():
    assert numbered(np.array([9, 3, 5, 3]), known=np.array([5, 3, 3])).tolist() == [-1, 0, 1, 0]


def test_a_part_of_the_data_keeps_test_clients():
    features, labels = arrays()
    ids = np.arange(40) // 10
    data = from_arrays((features, labels), (features, labels), clients=ids, test_clients=ids)
    small = part(data, 0.5)
    assert small.writers is not None
    assert small.test_clients is not None
    kept = np.unique(small.writers)
    assert set(small.test_clients.tolist()) <= {-1, *kept.tolist()}
    assert small.test_clients.tolist() == ids.tolist()


def test_clients_of_test_samples_follow_the_natural_partition():
    features, labels = arrays(60)
    ids = np.array([50, 10, 30])[np.arange(60) % 3]
    tested = np.array([10, 30, 50, 99])[np.arange(60) % 4]
    data = from_arrays((features, labels), (features, labels), clients=ids, test_clients=tested)
    split = partition(Natural(min_size=1), data.train_labels, 3, 0, data.writers)
    federation = gather(data, split, validation=0.0, seed=0)
    assert federation.test_clients is not None
    assert federation.test_clients.tolist() == [{10: 0, 30: 1, 50: 2, 99: -1}[i] for i in tested.tolist()]
    mixed = gather(data, partition(Iid(), data.train_labels, 3, 0), validation=0.0, seed=0)
    assert mixed.test_clients is None


def test_clients_that_were_not_drawn_have_no_test_samples():
    features, labels = arrays(60)
    ids = np.arange(60) % 5
    data = from_arrays((features, labels), (features, labels), clients=ids, test_clients=ids)
    split = partition(Natural(min_size=1), data.train_labels, 2, 0, data.writers)
    federation = gather(data, split, validation=0.0, seed=0)
    assert federation.test_clients is not None
    assert data.writers is not None
    drawn = [int(data.writers[split.samples(client)[0]]) for client in range(2)]
    expected = [drawn.index(i) if i in drawn else -1 for i in ids.tolist()]
    assert federation.test_clients.tolist() == expected


def test_accuracy_by_client():
    hits = np.array([True, True, False, True, False])
    found = accuracy_by_client(hits, np.array([1, 1, 1, -1, 0]), 3)
    np.testing.assert_array_equal(found, [0.0, 2 / 3, np.nan])


# ---- labels ----


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_labels_from_one_are_refused_with_the_shift(num_classes):
    labels = np.arange(42) % num_classes + 1
    features = np.zeros((42, 2))
    last = num_classes - 1
    with pytest.raises(
        UsageError, match=rf"labels are 1\.\.{num_classes}; must be 0\.\.{last}: subtract 1 .*\(labels - 1\)"
    ):
        from_arrays((features, labels), (features, labels))
    from_arrays((features, labels - 1), (features, labels - 1))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_labels_from_one_in_a_table_are_refused_with_the_column_to_shift(tmp_path, ending):
    table = pd.DataFrame({"age": [30.0, 40.0, 50.0, 60.0, 70.0, 80.0], "stage": [1, 2, 3, 3, 2, 1]})
    path = tmp_path / f"stages.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    with pytest.raises(UsageError) as raised:
        load(str(path), label_column="stage")
    assert str(raised.value) == (
        f"data.name = '{brief(path)}': column 'stage': labels are 1..3; must be 0..2: subtract 1 in the table, or in a function "
        "(data.name = 'my.py:load') that reads it with pandas: table['stage'] -= 1"
    )


@pytest.mark.parametrize("chosen", [{}, {"client_column": "ward"}])
def test_a_column_of_texts_may_be_that_of_clients(tmp_path, chosen):
    table = pd.DataFrame({"hospital": ["a", "b"] * 5, "ward": ["x"] * 10, "age": range(10), "label": [0, 1] * 5})
    table.drop(columns=[] if chosen else "ward").to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(UsageError, match="column 'hospital' has no numbers") as raised:
        load(str(tmp_path / "table.csv"), **chosen)
    hint = "if it names the client of each row, choose it with data.client_column"
    assert (hint in str(raised.value)) == (not chosen)


def test_labels_from_one_are_refused_with_their_names():
    with pytest.raises(
        UsageError, match=r"labels are 1\.\.2; must be 0\.\.1: subtract 1 from each label \(labels - 1\)$"
    ):
        from_arrays((np.zeros((2, 1)), [1, 2]), (np.zeros((2, 1)), [1, 2]), classes=["a", "b"])


@pytest.mark.parametrize("dtype", [str, object])
def test_texts_as_labels_are_refused_with_the_line_that_numbers_them(dtype):
    features, labels = np.zeros((4, 1)), np.array(["ill", "healthy", "ill", "ill"], dtype=dtype)
    words = r"train labels: .*; number texts of both splits together: classes, labels = numpy.unique\("
    with pytest.raises(UsageError, match=words):
        from_arrays((features, labels), (features, labels))
    classes, numbers = np.unique(labels, return_inverse=True)
    data = from_arrays((features, numbers), (features, numbers), classes=classes.tolist())
    assert (data.classes, data.train_labels.tolist()) == (("healthy", "ill"), [1, 0, 1, 1])


def test_a_class_without_samples_can_be_named():
    data = from_arrays((np.zeros((2, 1)), [1, 2]), (np.zeros((2, 1)), [1, 2]), classes=["none", "a", "b"])
    assert data.num_classes == 3
    assert from_arrays((np.zeros((2, 1)), [1, 3]), (np.zeros((2, 1)), [1, 3])).num_classes == 4  # 2 is missing, too


# ---- tables ----


def save_table(frame, path):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_with_texts_as_labels_and_clients(tmp_path, ending):
    table = patients()
    data = load(save_table(table, tmp_path / f"patients{ending}"))
    assert data.classes == ("healthy", "ill")
    assert (data.num_train, len(data.test_labels), data.num_writers) == (64, 16, 4)
    assert data.writers is not None
    assert data.test_clients is not None
    assert np.bincount(data.test_clients).tolist() == [4, 4, 4, 4]  # a fifth of each client
    rows = {tuple(row): (who, label) for *row, who, label in table[["age", "pressure", "client", "label"]].to_numpy()}
    for features, label, who in zip(data.test_features, data.test_labels, data.test_clients, strict=True):
        assert rows[tuple(features)] == (HOSPITALS[who], data.classes[label])
    assert data.train_features.dtype == np.float64
    assert not data.standardise
    assert load(str(tmp_path / f"patients{ending}"), standardise=True).standardise


def test_truth_values_as_labels_are_named_classes(tmp_path):
    labels = ["true", "false", "FALSE", "True"] * 5
    rows = [f"{i / 7},{label}" for i, label in enumerate(labels)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label", *rows]), encoding="utf-8")
    data = load(str(tmp_path / "t.csv"))
    assert data.classes == ("false", "true")
    assert sorted([*data.train_labels.tolist(), *data.test_labels.tolist()]) == [0] * 10 + [1] * 10
    numbers = {round(float(x[0]) * 7): label for x, label in zip(data.train_features, data.train_labels, strict=True)}
    assert all((labels[i].lower() == "true") == bool(label) for i, label in numbers.items())


def test_columns_can_be_chosen(tmp_path):
    table = patients().rename(columns={"label": "outcome", "client": "hospital"}).assign(note="…", ward=1.5)
    path = save_table(table, tmp_path / "t.csv")
    data = load(path, label_column="outcome", client_column="hospital", feature_columns=["pressure", "age"])
    assert data.train_features.shape == (64, 2)
    assert data.train_features[:, 1].min() >= 20
    assert data.num_writers == 4


def test_integer_columns_stay_integers(tmp_path):
    table = patients()[["age", "label"]].assign(old=lambda t: t.age > 60)
    data = load(save_table(table, tmp_path / "t.parquet"))
    assert data.train_features.dtype == np.int64
    assert set(data.train_features[:, 1].tolist()) == {0, 1}


def test_a_column_of_lists_is_the_features(tmp_path):
    table = pd.DataFrame({"features": [np.arange(3.0) + i for i in range(20)], "label": [i % 2 for i in range(20)]})
    data = load(save_table(table, tmp_path / "t.parquet"))
    assert data.train_features.shape[1:] == (3,)


@pytest.mark.filterwarnings("error")
def test_numbers_in_a_csv_file_are_read_exactly(tmp_path):
    values = np.random.default_rng(0).normal(size=400) * 10.0 ** np.arange(-200, 200)
    pd.DataFrame({"x": values, "label": np.arange(400) % 2}).to_csv(tmp_path / "table.csv", index=False)
    data = load(str(tmp_path / "table.csv"))
    assert {*data.train_features[:, 0], *data.test_features[:, 0]} == set(values)


def test_one_hospital_can_be_left_out_for_the_test(tmp_path, caplog):
    """A table in which all samples of one hospital are test samples was refused, as if its name was misspelt."""
    table = patients().assign(split=lambda own: np.where(own.client == "Cork", "test", "train"))
    table.to_csv(tmp_path / "patients.csv", index=False)
    with caplog.at_level("INFO", "fedcohort"):
        data = load(str(tmp_path / "patients.csv"))
    assert (data.num_train, len(data.test_labels), data.num_writers, data.test_clients) == (60, 20, 3, None)
    assert data.client_names == ("Aalborg", "Bergen", "Dijon")
    assert "all test samples are of clients that do not train: 'Cork'; the accuracy of each client" in caplog.text
    table.assign(split=np.where(table.age > 80, "test", table.split)).to_csv(tmp_path / "more.csv", index=False)
    known = load(str(tmp_path / "more.csv")).test_clients
    assert known is not None
    assert {-1} < set(known.tolist()), "those of Cork have no training samples, others have"


def test_a_column_split_divides_the_samples(tmp_path):
    table = patients().assign(split=["test" if i % 10 == 0 else "train" for i in range(80)])
    data = load(save_table(table, tmp_path / "t.csv"))
    assert (data.num_train, len(data.test_labels)) == (72, 8)
    np.testing.assert_array_equal(data.test_features[:, 0], table.age[::10])


@pytest.mark.parametrize("index", ["client", ["label", "client"], ["age", "split"]])
def test_columns_in_the_index_of_a_table_are_used(tmp_path, index):
    table = patients().assign(split=["test" if i % 10 == 0 else "train" for i in range(80)])
    plain = load(save_table(table, tmp_path / "plain.parquet"), feature_columns=["age"])
    table.set_index(index).to_parquet(tmp_path / "t.parquet")
    data = load(str(tmp_path / "t.parquet"), feature_columns=["age"])
    assert data.client_names == plain.client_names
    assert data.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        (["ill", "ill "], "different classes have names that differ only in spaces: 'ill' and 'ill '"),
        (["ill", "ill"], "all labels are 'ill', so there is nothing to predict"),
        (["a", "A"], ""),
    ],
)
def test_labels_that_may_be_one_are_mentioned(tmp_path, caplog, labels, line):
    load(save_table(patients().assign(label=labels * 40), tmp_path / "t.csv"))
    assert line in caplog.text
    assert bool(caplog.text) == bool(line)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda t: t.assign(split=np.arange(80) % 5 == 0),
            "column 'split' has no texts, so it does not choose the test samples",
        ),
        (lambda t: t.assign(split=["train", "train", "train", "train", "test"] * 16), ""),
        (
            lambda t: t.assign(client=["007", "7", "08", "9"] * 20),
            "column 'client' has integers, so that '007' and '7' are the same",
        ),
        (lambda t: t.assign(client=["007", "06", "8", "9"] * 20), ""),
        (
            lambda t: t.assign(label=["00", "1", "0", "1"] * 20),
            "column 'label' has integers, so that '00' and '0' are the same",
        ),
        (
            lambda t: t.assign(client=[f"p{i // 2}" for i in range(80)]),
            "only 1 of 80 samples are test samples, because clients",
        ),
    ],
)
def test_what_few_tables_mean_is_mentioned(tmp_path, caplog, change, line):
    load(save_table(change(patients()), tmp_path / "t.csv"))
    assert line in caplog.text
    assert bool(caplog.text) == bool(line)


def test_a_feature_with_the_name_split_is_not_mentioned_if_it_is_chosen(tmp_path, caplog):
    path = save_table(patients().assign(split=np.arange(80) % 9), tmp_path / "t.csv")
    assert load(path, feature_columns=["split", "age"]).train_features.shape[1] == 2
    assert not caplog.text


def test_the_test_sample_of_very_few_is_of_a_client_with_two():
    data = with_held_out_test(np.arange(3.0)[:, None], [0, 1, 1], ["a", "b", "b"], "data.name", "few")
    assert data.train_features.ravel().tolist() == [0.0, 2.0]
    assert data.test_clients is not None
    assert data.test_clients.tolist() == [1]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_integers_above_63_bits_do_not_become_negative(tmp_path, suffix):
    table = pd.DataFrame({"x": np.arange(2**64 - 8, 2**64, dtype=np.uint64), "label": [0, 1] * 4})
    for name, columns, problem in (
        ("features", {}, "column 'x' has 18446744073709551615; integers must fit into 64 bits with a sign"),
        (
            "labels",
            {"x": "label", "label": "x"},
            "column 'label' has 18446744073709551615; labels must be integers 0..K-1",
        ),
    ):
        renamed, path = table.rename(columns=columns), tmp_path / f"{name}.{suffix}"
        if suffix == "csv":
            renamed.to_csv(path, index=False)
        else:
            renamed.to_parquet(path)
        with pytest.raises(UsageError, match=re.escape(problem)):
            load(str(path))


def test_decimal_numbers_are_features_and_numeric_labels(tmp_path):
    table = patients()
    plain = load(save_table(table, tmp_path / "plain.parquet"))
    exact = table.assign(pressure=[Decimal(repr(value)) for value in table.pressure])
    assert load(save_table(exact, tmp_path / "exact.parquet")).fingerprint == plain.fingerprint
    plain, exact_too = (
        load(str(tmp_path / name), label_column="pressure", feature_columns=["age"], numeric=True)
        for name in ("plain.parquet", "exact.parquet")
    )
    assert exact_too.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.drop(columns="label"),
            r"no column 'label'; choose one with data\.label_column \(columns: client, age",
        ),
        (
            lambda t: t.rename(columns={"label": " Label"}),
            r"no column 'label'; did you mean ' Label'\? choose one with data\.label_column \(columns: .*, ' Label'\)",
        ),
        (
            lambda t: t.assign(age=["3,5", "-2", ",5", *["1"] * 77]),
            r"column 'age' has decimal commas; .*decimal=','",
        ),
        (lambda t: t.assign(age=["3,5", "1,234.5"] * 40), r"column 'age' has no numbers but"),
        (lambda t: t.assign(label=None), r"column 'label': 80 of 80 values are missing; give every sample a label"),
        (lambda t: t.assign(label=np.linspace(0, 1, 80)), r"column 'label': labels must be integers 0\.\.K-1 or texts"),
        (lambda t: t.assign(label=1 + np.arange(80) % 2), r"labels are 1\.\.2; must be 0\.\.1"),
        (lambda t: t.assign(client=[None, *t.client[1:]]), r"column 'client': 1 of 80 values are missing"),
        (
            lambda t: t.assign(client=np.linspace(0, 1, 80)),
            r"column 'client': ids of clients must be integers or texts",
        ),
        (lambda t: t.assign(age=[None, *t.age[1:]]), r"column 'age': 1 of 80 values are missing; fill in a value"),
        (lambda t: t.assign(ward="B"), r"column 'ward' has no numbers .* encode it as numbers, or .*feature_columns"),
        (lambda t: t.assign(split="train"), r"column 'split' has only 'train'"),
        (lambda t: t.assign(split=["dev", *["train"] * 79]), r"column 'split' has 'dev'; must be 'train' or 'test'"),
        (lambda t: t[["label"]], r"has no columns of features"),
        (lambda t: t[:0], r"has no rows"),
        (lambda t: t[:1], r"has one row; at least two are needed"),
        (
            lambda t: t.assign(split=["test", None, *["train"] * 78]),
            r"column 'split': 1 of 80 values are missing; write",
        ),
        (
            lambda t: t.assign(ok=[True, None, *[False] * 78]),
            r"column 'ok': 1 of 80 values are missing; fill in a value",
        ),
        (lambda t: t.assign(age=[1.5, np.inf, *t.age[2:]]), r"column 'age' has inf in row 2; fill in a value"),
        (lambda t: t.assign(client=[f"p{i}" for i in range(80)]), r"every client has only one sample, .*client_column"),
        (lambda t: t.assign(client="NA"), r"80 of 80 values are missing; .*; in a CSV file, texts such as NA and None"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, change, message):
    path = save_table(change(patients()), tmp_path / "t.csv")
    with pytest.raises(UsageError, match=message) as error:
        load(path)
    assert "t.csv" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
@pytest.mark.parametrize("content", [b"", b'\x00\xff\x00 not a table \n\n"', b"PK\x03\x04broken"])
def test_damaged_tables_are_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=rf"data\.name = .*{name}'") as error:
        load(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_a_missing_table(tmp_path):
    with pytest.raises(UsageError, match=r"there is no such file; give the path of a \.csv"):
        load(str(tmp_path / "none.csv"))


def test_a_changed_table_is_read_again(tmp_path):
    table = patients()
    path = save_table(table, tmp_path / "t.csv")
    before = load(path)
    assert load(path).fingerprint == before.fingerprint
    save_table(table.assign(age=table.age + 1), tmp_path / "t.csv")
    assert load(path).fingerprint != before.fingerprint


def test_columns_are_only_for_tables():
    with pytest.raises(UsageError, match=r"^data\.client_column = 'who': only for tables"):
        load("digits", client_column="who")
    with pytest.raises(UsageError, match=r"^data\.image_column = 'pixels': tables and functions have no"):
        load("t.csv", image_column="pixels")


def test_npz(tmp_path):
    features, labels = arrays()
    ids = np.arange(40) % 4
    np.savez(tmp_path / "whole.npz", features=features, labels=labels, clients=ids, classes=["no", "yes"])
    whole = load(str(tmp_path / "whole.npz"))
    assert (whole.num_train, len(whole.test_labels), whole.classes) == (32, 8, ("no", "yes"))
    assert whole.test_clients is not None
    np.savez(
        tmp_path / "both.npz",
        train_features=features, train_labels=labels, test_features=features[:4], test_labels=labels[:4],
        clients=ids, test_clients=ids[:4],
    )  # fmt: skip
    both = load(str(tmp_path / "both.npz"))
    same = from_arrays((features, labels), (features[:4], labels[:4]), clients=ids, test_clients=ids[:4])
    assert both.fingerprint == same.fingerprint
    np.savez(tmp_path / "other.npz", x=features, labels=labels)
    with pytest.raises(UsageError, match=r"other\.npz': has x, labels; needs features and labels, or train_features"):
        load(str(tmp_path / "other.npz"))


def test_npz_with_objects_is_refused(tmp_path):
    np.savez(tmp_path / "t.npz", features=np.array([{}, {}], dtype=object), labels=[0, 1])
    with pytest.raises(UsageError, match=r"array 'features' has pickled Python objects, which are not read"):
        load(str(tmp_path / "t.npz"))


# ---- functions ----

FUNCTIONS = """
import numpy as np, pandas as pd, fedcohort
x, y, c = np.arange(80.0).reshape(40, 2), np.arange(40) % 2, [f"h{i % 4}" for i in range(40)]
def whole(): return x, y
def with_clients(): return x, y, c
def pairs(): return (x, y), (x[:8], y[:8])
def table(): return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "label": y, "client": c})
def arguments(): return {"train": (x, y), "test": (x[:8], y[:8]), "clients": c, "test_clients": c[:8], "standardise": True}
def named(): return {"features": x, "labels": y, "clients": c}
def dataset(): return fedcohort.from_arrays((x, y), (x[:8], y[:8]), clients=c, standardise=True)
def nothing(): return None
def three_parts(): return {"train": (x, y), "test": (x, y), "dev": (x, y)}
def fails(): return {}["no such key"]
number = 3
"""


@pytest.fixture
def functions(tmp_path):
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return lambda name: f"{tmp_path}/mine.py:{name}"


@pytest.mark.parametrize(
    ("name", "sizes", "num_clients", "standardise"),
    [
        ("whole", (32, 8), 0, False),
        ("with_clients", (32, 8), 4, False),
        ("pairs", (40, 8), 0, False),
        ("table", (32, 8), 4, False),
        ("arguments", (40, 8), 4, True),
        ("named", (32, 8), 4, False),
        ("dataset", (40, 8), 4, True),
    ],
)
def test_what_a_function_may_return(functions, name, sizes, num_clients, standardise):
    data = load(functions(name))
    assert (data.num_train, len(data.test_labels)) == sizes
    assert (data.num_writers, data.standardise) == (num_clients, standardise)
    assert load(functions(name), standardise=True).standardise
    assert data.name == ("arrays" if name == "dataset" else f"mine.py:{name}"), "the function alone says little"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", r"mine\.py:nothing'?: returned NoneType; should return \(features, labels\)"),
        ("three_parts", r"returned 'dev'; known are classes, clients"),
        ("fails", r"raised KeyError: 'no such key' \(.*mine\.py:\d+\)"),
        ("number", r"is an object of type int; name a function"),
        ("other", r"defines no other; it defines"),
    ],
)
def test_functions_that_cannot_be_used(functions, name, message):
    with pytest.raises(UsageError, match=message) as error:
        load(functions(name))
    assert "\n" not in str(error.value)


def test_data_are_shared_through_the_cache(functions):
    for name in ("with_clients", "dataset"):
        data = load(functions(name))
        again = shared(stored(data))
        assert again is not None
        assert (again.fingerprint, again.standardise) == (data.fingerprint, data.standardise)
        assert isinstance(again.train_features.base, np.memmap) or again.train_features.base is not None
    place = stored(data)
    (place.entry / "meta.json").write_text("{}")
    assert shared(place) is None


def test_an_entry_of_the_cache_can_be_written_from_data_as_given(tmp_path):
    features, labels = arrays()
    data = from_arrays((features, labels), (features, labels))
    (tmp_path / "entry").mkdir()
    save(data, tmp_path / "entry")
    read = read_entry(tmp_path / "entry", "mine")
    assert read is not None
    assert read.fingerprint == standardised(data, True).fingerprint


# ---- names ----


def test_the_old_name_of_emnist_is_refused_with_the_new_ones():
    with pytest.raises(UsageError, match=r"^data.name = 'emnist': stood for two data sets; use ") as error:
        load("emnist")
    new = re.findall(r"'(emnist_\w+)'", str(error.value))
    assert sorted(new) == sorted(name for name in NAMES if name.startswith("emnist"))
    assert len(new) == 4


@pytest.mark.parametrize("name", ["emnist_balanced", "emnist_digits", "emnist_47_subset"])
def test_a_part_of_emnist_that_only_a_mirror_has(name):
    with pytest.raises(UsageError, match=rf"^data.name = '{name}': has no known copy on the Hub; with FEDCOHORT_DATA"):
        load(name)


def test_an_id_of_a_client_that_would_fill_the_memory_is_refused() -> None:
    features, labels = np.zeros((4, 2)), [0, 1, 0, 1]
    with pytest.raises(UsageError, match=r"clients: the id 'qqq.*' has 10000000 characters; use ids of at most 1000"):
        from_arrays((features, labels), (features, labels), clients=["a", "b", "a", "q" * 10_000_000])


def test_names_of_clients_that_differ_only_in_capital_letters_or_spaces_are_mentioned(caplog):
    """Each is a client of its own, as in 'charite ' and 'CHARITE', which few tables mean."""
    names = ["charite ", "CHARITE", "St.  Anna", "st. anna", "Köln", "Bonn"]
    clients = np.array(names * 5)
    x, y = np.zeros((30, 2), np.float32), np.arange(30) % 2
    data = from_arrays((x, y), (x, y), clients=clients)
    assert len(data.client_names) == 6
    [line] = [record.getMessage() for record in caplog.records]
    assert line.endswith(
        "different clients have names that differ only in capital letters or spaces: "
        "'CHARITE' and 'charite '; 'St.  Anna' and 'st. anna'"
    )
    caplog.clear()
    from_arrays((x, y), (x, y), clients=np.array(["a", "b", "c", "d", "e", "f"] * 5))
    from_arrays((x, y), (x, y), clients=np.arange(30) % 3)
    assert not caplog.records


def test_a_folder_with_files_of_other_kinds_says_what_it_needs(tmp_path):
    for name in ("a.tex", "b.toml", "c.html"):
        (tmp_path / name).write_text("text")
    with pytest.raises(
        UsageError, match=r"the folder has neither images in <class>/ nor Parquet files; for a table \("
    ):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        (np.array([0.0, 1.0, 1.0, 0.0]), "for classes: labels.astype(int); for regression: data.numeric = true"),
        (np.array([0.5, 1.0, 1.0, 0.0]), "numbers for regression: data.numeric = true"),
        (np.array([0.0, 1.0, np.nan, 0.0]), "numbers for regression: data.numeric = true"),
        (np.eye(2)[[0, 1, 1, 0]], "one column for each class: labels.argmax(axis=1)"),
        (np.array([[0], [1], [1], [0]]), "drop the second axis: labels[:, 0]"),
    ],
)
def test_what_to_do_about_labels_that_are_no_integers(labels: np.ndarray, hint: str) -> None:
    features = np.zeros((4, 2))
    with pytest.raises(UsageError) as error:
        from_arrays((features, labels), (features, [0, 1, 1, 0]))
    assert f"; {hint}" in str(error.value)


def test_whole_numbers_with_a_decimal_point_in_a_table_may_be_classes(tmp_path) -> None:
    """A column of integers that had missing values is one of floats in pandas."""
    table = pd.DataFrame({"age": np.arange(8.0), "label": [0.0, 1.0] * 4})
    for labels, are_classes in ((table.label, True), (table.label + 0.5, False)):
        table.assign(label=labels).to_csv(tmp_path / "t.csv", index=False)
        with pytest.raises(UsageError, match=r"; for numbers to be predicted|for classes, use") as error:
            load(str(tmp_path / "t.csv"))
        assert ("for classes, use .astype(int) in a function" in str(error.value)) is are_classes


def test_a_class_that_only_test_samples_have_is_mentioned(tmp_path, caplog) -> None:
    """Labels of both splits that were numbered separately do not belong together."""
    x, y = np.zeros((8, 2), np.float32), np.arange(8) % 2
    from_arrays((x, y), (x, y + 1), name="mine")
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("mine: class '2' has test samples (4) and no training samples; if it has another name")
    caplog.clear()
    table = pd.DataFrame(
        {"age": range(8), "label": ["a", "b"] * 3 + ["new", "a"], "split": ["train"] * 6 + ["test"] * 2}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    load(str(tmp_path / "t.csv"))
    assert "t.csv: class 'new' has test samples (1) and no training samples" in caplog.text
    caplog.clear()
    from_arrays((x, y), (x, 0 * y))
    from_arrays((x, y * 0.5), (x, y * 0.5 + 9), numeric=True)
    assert not caplog.records
