"""The experiment: one schema for TOML and Python, strict, complete, stable hashes, rows and sweeps."""

import copy
import dataclasses
import importlib
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import describe
from fedcohort.experiment import Experiment, load, quickstart
from fedcohort.experiment.nested_values import parse_overrides
from fedcohort.experiment.swept_labels import swept_labels
from fedcohort.selection import PowerOfChoice

QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.toml"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "e.toml"
    path.write_text(text)
    return path


def test_the_comparison_without_a_file_is_the_quickstart() -> None:
    assert quickstart() == load(QUICKSTART)


def test_every_default_is_the_quickstarts_value() -> None:
    quickstart, default = load(QUICKSTART).to_dict(), Experiment().to_dict()
    quickstart.pop("variants")
    assert quickstart == default


def test_toml_round_trip_is_the_same_experiment(tmp_path: Path) -> None:
    experiment = load(QUICKSTART, ["rounds=7", "sweep={ 'selection.k' = [2, 3] }"])
    again = load(write(tmp_path, experiment.to_toml()))
    assert again == experiment
    assert again.to_toml() == experiment.to_toml()


def test_python_and_toml_build_the_same(tmp_path: Path) -> None:
    text = 'name = "mine"\nrounds = 5\n[selection]\nname = "ucb"\nk = 2\nc = 0.5\n[federation]\nclients = 6\npartition = "iid"\n'
    from_python = Experiment(
        name="mine",
        rounds=5,
        selection={"name": "ucb", "k": 2, "c": 0.5},
        federation={"clients": 6, "partition": "iid"},
    )
    from_file = load(write(tmp_path, text))
    assert from_file == from_python
    assert from_file.key() == from_python.key()


def test_the_hash_is_stable() -> None:
    """Changing any of these strings renames every run that people have; do it knowingly."""
    assert Experiment().single(0).key() == Experiment(name="other", seeds=9).single(0).key()
    assert len({Experiment().single(seed).key() for seed in range(5)}) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 21}, {"seed": 1}, {"selection": {"k": 4}}, {"selection": "ucb"}, {"algorithm": {"server_lr": 0.5}},
        {"training": {"lr": 0.1}}, {"model": {"hidden": 65}}, {"federation": {"clients": 13}}, {"data": {"validation": 0.2}},
        {"federation": {"partition": {"alpha": 0.06}}}, {"systems": {"dropout": 0.1}}, {"measures": {"evaluate_every": 2}},
    ],
)  # fmt: skip
def test_whatever_decides_results_changes_the_hash(change: dict[str, Any]) -> None:
    assert Experiment().with_overrides(change).key() != Experiment().key()


@pytest.mark.parametrize(
    "change",
    [{"engine": {"workers": 1}}, {"engine": {"plan": "loop"}}, {"name": "x"}, {"measures": {"checkpoint_every": 5}}],
)
def test_what_changes_no_result_does_not(change: dict[str, Any]) -> None:
    assert Experiment().with_overrides(change).key() == Experiment().key()


def test_a_field_of_a_class_without_parameters_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedcohort.algorithms import Algorithm\n\nclass Mine(Algorithm):\n    mu: float = 1.0\n"
    )
    own = {"name": f"{tmp_path}/mine.py:Mine"}
    with pytest.raises(
        UsageError, match=r"^algorithm\.mu: is no parameter of .* yet; mark the class Mine with @parameters$"
    ):
        Experiment(algorithm={**own, "mu": 2.0})
    with pytest.raises(UsageError, match=r"^algorithm\.nu: unknown key for "):
        Experiment(algorithm={**own, "nu": 2.0})


def test_a_field_of_a_class_without_a_type_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedcohort.algorithms import Algorithm, parameters\n\n@parameters\nclass Mine(Algorithm):\n"
        "    mu = 1.0\n    keeps_models = True\n"
    )
    own = {"name": f"{tmp_path}/mine.py:Mine"}
    with pytest.raises(
        UsageError, match=r"^algorithm\.mu: is no parameter of .*, because it has no type; write mu: float = 1\.0$"
    ):
        Experiment(algorithm={**own, "mu": 2.0})
    with pytest.raises(UsageError, match=r"^algorithm\.keeps_models: unknown key for "):
        Experiment(algorithm={**own, "keeps_models": False})


@pytest.mark.parametrize(
    ("values", "words"),
    [(range(1, 3), r"\[1, 2\]"), (np.array([0.5, 1.0]), r"\[0\.5, 1\.0\]"), ({4}, r"\[4\]"), ("ucb", r"\['ucb'\]")],
)
def test_values_of_a_sweep_that_are_no_list_are_shown_as_one(values: object, words: str) -> None:
    """A range was suggested in brackets, which is refused as well."""
    with pytest.raises(UsageError, match=f"should be a list of values, such as {words}$"):
        Experiment(sweep={"selection.k": values})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round = 3", r"^round: unknown key; did you mean 'rounds'\?"),
        ("[training]\nlearning_rate = 0.1", r"^training\.learning_rate: unknown key; "),
        ("[training]\nepoch = 1", r"^training\.epoch: unknown key; did you mean 'epochs'\?"),
        ("[federation]\nclient = 3", r"^federation\.client: unknown key; did you mean 'clients'\?"),
        ("[selection]\nname = 'ucd'", r"^selection\.name = 'ucd': no such strategy; did you mean 'ucb'\?"),
        ("[selection]\nname = 'ucb'\nepsilonn = 0.1", r"^selection\.epsilonn: unknown key for 'ucb'; did you mean 'epsilon'\?"),
        ("[selection]\nname = 'ucb'\nepsilon = 2.0", r"^selection\.epsilon = 2\.0: should be at most 1"),
        ("[algorithm]\nname = 'fedavgg'", r"^algorithm\.name = 'fedavgg': no such algorithm; did you mean 'fedavg'\?"),
        ("[algorithm]\nserver_lr = 0.0", r"^algorithm\.server_lr = 0\.0: should be above 0"),
        ("[algorithm]\nweights = 'n_select'", r"^algorithm\.weights = 'n_select': should be 'n_selected', 'uniform'"),
        ("[model]\nname = 'cnn'", r"^model\.name = 'cnn': no such model; did you mean 'cnn_[ab]'\?"),
        ("[federation]\npartition = {name = 'dirichlet_class', alpha = 0.0}", r"^federation\.partition\.alpha = 0\.0: should be abo"),
        ("[federation]\npartition = {name = 'dirichlet'}", r"^federation\.partition\.name = 'dirichlet': no such partition; did you"),
        ("rounds = '3'", r"^rounds = '3': should be a whole number, without quotes: 3$"),
        ("rounds = 'ten'", r"^rounds = 'ten': should be a whole number, such as 20$"),
        ("rounds = true", r"^rounds = True: should be a whole number, such as 20$"),
        ("rounds = 3.0", r"^rounds = 3\.0: should be a whole number: 3$"),
        ("name = 3", r"^name = 3: should be text in quotes, such as 'quickstart'$"),
        ("[data]\nclient_column = 3", r"^data\.client_column = 3: should be text in quotes, such as '3'$"),
        ("[training]\nlr = 'x'", r"^training\.lr = 'x': should be a number, such as 0\.05$"),
        ("[training]\nlr = '0.1'", r"^training\.lr = '0\.1': should be a number, without quotes: 0\.1$"),
        ("[training]\nnesterov = 1", r"^training\.nesterov = 1: should be true or false$"),
        ("[selection]\nname = 'conformal'\nbase = 3", r"^selection\.base = 3: should be text in quotes or a table$"),
        ("[selection]\nk_steps = 3", r"^selection\.k_steps = 3: should be a list of lists$"),
        ("federation = {partition = {name = 'given_sizes', sizes = 3}}", r"^federation\.partition\.sizes = 3: .* of whole numbers$"),
        ("federation = {partition = {name = 'given_counts', counts = [1, 2]}}", r"counts\.0 = 1: .* \(and 1 more error\)$"),
        ("rounds = 0", r"^rounds = 0: should be at least 1"),
        ("rounds = 2.5", r"^rounds = 2\.5: should be a whole number"),
        ("seed = -1", r"^seed = -1: should be at least 0"),
        ("[selection]\nk = 0", r"^selection\.k = 0: should be at least 1"),
        ("[selection]\nk = 13", r"^selection\.k = 13: more than federation\.clients = 12; use 1 to 12"),
        ("federation.clients = 1\nselection.k = 2", r"^selection\.k = 2: more than federation\.clients = 1; use 1$"),
        ("[training]\nlr = nan", r"^training\.lr = nan: should be a finite number"),
        ("training = 3", r"^training = 3: should be a table of settings \(valid: epochs, "),
        ("training = {loss = 5}", r"^training\.loss = 5: should be a name, or a table with a name .*, such as 'ce'$"),
        ("selection = 3", r"^selection = 3: should be a name, or a table with a name and its parameters, such as 'uniform'$"),
        ("federation = {partition = 3}", r"^federation\.partition = 3: should be a name, or a table .*'dirichlet_class'$"),
        ("data = 'mnist'", r"^data = 'mnist': should be a table, such as \{ name = 'mnist' \}$"),
        ("engine = 3", r"^engine = 3: should be a table of settings \(valid: name, plan, workers, "),
        ("sweep = 3", r"^sweep = 3: should be a table$"),
        ("variants = 3", r"^variants = 3: should be a list of tables, each under \[\[variants\]\]$"),
        ("[variants]\nlabel = 'a'", r"^variants = .*: should be a list of tables, each under \[\[variants\]\]$"),
        ("[[variants]]\nlabel = 3", r"^variants\.0\.label = 3: should be text in quotes, such as '3'$"),
        ("[training]\nnesterov = true\nmomentum = 0.0", r"^training: nesterov = true needs a momentum above 0$"),
        ("[data]\nvalidation = 1.0", r"^data\.validation = 1\.0: should be below 1"),
        ("[data]\nvalidation = 0.0\n[selection]\nname = 'ucb'", r"^data\.validation = 0: 'ucb' needs a validation set"),
        ("[[variants]]\nselection = {name = 'ucb'}", r"^variants\.0\.label: required"),
        ("[[variants]]\nlabel = 'a'\nselection = {name = 'nope'}", r"selection\.name = 'nope': no such strategy"),
        ("[[variants]]\nlabel = 'a'\nseed = 3", r"^variants\.a\.seed: cannot differ between rows"),
        ("[[variants]]\nlabel = 'a'\n[[variants]]\nlabel = 'a'", r"^variants\.a: this label is used twice"),
        ("[[variants]]\nlabel = 'lr 0.5'\nseed = 3", r"^variants\.lr 0\.5\.seed: cannot differ between rows"),
        ("[sweep]\nseed = [0, 1]", r"^sweep\.seed: cannot differ between rows"),
        ("[sweep]\n'selection.k' = [3, 3]", r"^sweep\.selection\.k = \[3, 3\]: the same value is given twice"),
        ("[sweep]\n'selection.k' = []", r"^sweep\.selection\.k = \[\]: give at least one value"),
        ("[sweep]\n'selection.kk' = [1]", r"selection\.kk: unknown key"),
        ("[sweep]\n'selection.k' = 3", r"^sweep\.selection\.k = 3: should be a list of values, such as \[3\]$"),
        ("[sweep]\n'selection.k' = [3, 0]", r"^sweep: selection\.k = 0: should be at least 1$"),
        ("[sweep]\ntraining.lr = [0.1]", r"^sweep\.training = .*; a key with dots is written in quotes, \"training\.lr\" = \[…\]$"),
        ("x = ", r"e\.toml: not valid TOML: "),
    ],
)  # fmt: skip
def test_bad_files_are_one_line_errors(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as error:
        load(write(tmp_path, text))
    assert "\n" not in str(error.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such experiment file"):
        load(tmp_path / "none.toml")


def test_a_report_is_not_an_experiment(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(f"<html>{'x' * 2_000_000}</html>")
    with pytest.raises(UsageError, match="is a web page, not an experiment; give the path of an experiment file"):
        load(page)


def test_overrides_are_toml_or_words() -> None:
    experiment = load(
        QUICKSTART,
        ["selection.name=powd", "selection.d=5", "training.lr=0.5", 'data.name="digits"', "federation.partition=iid"],
    )
    assert (experiment.selection.name, experiment.selection.k, experiment.selection.parameters) == ("powd", 3, {"d": 5})
    assert experiment.training.lr == 0.5
    assert experiment.federation.partition.name == "iid"
    with pytest.raises(UsageError, match=r"--set 'rounds': write section\.key=value"):
        load(QUICKSTART, ["rounds"])


def test_variants_change_what_they_name_and_keep_the_rest() -> None:
    rows = dict(load(QUICKSTART).rows())
    assert list(rows) == ["uniform", "UCB", "select-by-loss"]
    by_loss = rows["select-by-loss"]
    assert (by_loss.selection.name, by_loss.selection.k) == ("select_by_loss", 3)
    assert by_loss.variants == ()


def test_rows_of_the_quickstart_differ_in_the_strategy_only() -> None:
    from_file, built_in = dict(load(QUICKSTART).rows()), dict(quickstart().rows())
    assert list(from_file) == list(built_in)
    for rows in (from_file, built_in):
        rest = [{key: value for key, value in row.to_dict().items() if key != "selection"} for row in rows.values()]
        assert rest[0] == rest[1] == rest[2]
        assert len({row.selection.name for row in rows.values()}) == 3


def test_variants_can_change_an_algorithms_parameter() -> None:
    rows = dict(load(QUICKSTART, ['variants=[{label = "damped", algorithm = {server_lr = 0.5}}]']).rows())
    damped = rows["damped"]
    assert (damped.algorithm.name, damped.algorithm.parameters["server_lr"]) == ("fedavg", 0.5)
    assert damped.selection.name == "uniform"


def test_a_new_name_drops_the_old_ones_parameters() -> None:
    experiment = Experiment(
        selection={"name": "ucb", "k": 4, "c": 2.0},
        algorithm={"weights": "uniform"},
        variants=[
            {"label": "pow", "selection": {"name": "powd"}, "algorithm": {"name": "fedsgd"}},
            {"label": "wide", "selection": {"c": 9.0}},
        ],
    )
    rows = dict(experiment.rows())
    assert (rows["pow"].selection.k, rows["pow"].selection.parameters) == (4, {"d": None})
    assert (rows["pow"].algorithm.name, rows["pow"].algorithm.parameters["weights"]) == ("fedsgd", "uniform")
    assert rows["wide"].selection.parameters["c"] == 9.0


@pytest.mark.parametrize(
    ("name", "keeps"),
    [
        ("stays.parquet", True),
        ("other/stays.CSV", True),
        ("stays.npz", False),
        ("mine.py:load", False),
        ("wine", False),
    ],
)
def test_the_same_table_in_another_format_has_the_same_columns(
    name: str, keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def load():\n    raise NotImplementedError\n")
    chosen: dict[str, Any] = {
        "label_column": "died", "client_column": "hospital", "feature_columns": ["age", "pulse"], "numeric": True,
    }  # fmt: skip
    experiment = Experiment(data={"name": "stays.csv", "standardise": True, **chosen})
    other = experiment.with_overrides({"data": {"name": name}}).data
    assert {setting: getattr(other, setting) for setting in chosen} == (
        chosen if keeps else {"label_column": None, "client_column": None, "feature_columns": None, "numeric": False}
    )
    assert other.standardise


def test_a_sweep_is_a_grid_over_every_row() -> None:
    experiment = Experiment(
        seeds=2,
        variants=[{"label": "UCB", "selection": "ucb"}],
        sweep={"selection.k": [2, 3], "training.lr": [0.1, 0.2]},
    )
    cells = experiment.cells()
    assert len(cells) == 2 * 4 * 2
    assert [label for label, _ in experiment.rows()][:2] == ["uniform, k=2, lr=0.1", "uniform, k=2, lr=0.2"]
    assert len({cell.experiment.key() for cell in cells}) == len(cells)
    assert {cell.experiment.seed for cell in cells} == {0, 1}


def test_rows_of_a_sweep_over_strategies_are_named_by_theirs(tmp_path: Path) -> None:
    """Each was named by the strategy of the base as well: 'uniform, name=ucb'."""
    several = Experiment(
        variants=[{"label": "slow", "training": {"lr": 0.01}}],
        sweep={"selection.name": ["uniform", "ucb"], "selection.k": [2]},
    )
    labels = [label for label, _ in several.rows()]
    assert labels == ["uniform, k=2", "ucb, k=2", "slow, name=uniform, k=2", "slow, name=ucb, k=2"]
    point = {"selection.name": "powd", "algorithm": {"name": "fedprox", "mu": 0.1}}
    assert swept_labels(["uniform"], [point], ["powd"]) == ["powd, algorithm={'name': 'fedprox', 'mu': 0.1}"]
    whole = Experiment(sweep={"selection": ["md", {"name": "powd", "d": 12}, {"name": "powd", "d": 20}]})
    assert [label for label, _ in whole.rows()] == ["md", "powd, d=12", "powd, d=20"]
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(
            "from fedcohort.selection.strategies.uniform import Uniform\nclass Mine(Uniform):\n    pass\n"
        )
    own = [f"{tmp_path / folder / 'own.py'}:Mine" for folder in "ab"]
    same = [label for label, _ in Experiment(sweep={"selection.name": own}).rows()]
    assert len(set(same)) == 2
    assert all(label.startswith("uniform, name=") for label in same)


def test_a_strategy_from_a_users_own_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedcohort.selection import Cohort, Selector, parameters\n"
        "@parameters\n"
        "class First(Selector):\n"
        "    '''The first k.'''\n"
        "    skip: int = 0\n"
        "    def select(self, round):\n"
        "        return Cohort(round.available[self.skip : self.skip + round.k])\n"
    )
    experiment = Experiment(selection={"name": f"{tmp_path}/mine.py:First", "skip": 2})
    assert experiment.selection.parameters == {"skip": 2}
    selector = experiment.selection.build()
    assert dataclasses.is_dataclass(selector)
    assert not isinstance(selector, type)
    assert dataclasses.asdict(selector) == {"skip": 2}
    with pytest.raises(UsageError, match="defines no Second"):
        Experiment(selection={"name": f"{tmp_path}/mine.py:Second"})
    with pytest.raises(UsageError, match="there is no file"):
        Experiment(selection={"name": f"{tmp_path}/none.py:First"})


def test_a_file_that_is_also_imported_keeps_its_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice.py").write_text(
        "from fedcohort.algorithms import parameters\nfrom fedcohort.algorithms.methods.fedavg import FedAvg\n"
        '@parameters\nclass Twice(FedAvg):\n    depth: int = 3\n    """How deep."""\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    by_path = ALGORITHMS.find(f"{tmp_path}/twice.py:Twice", "algorithm.name")
    by_import = importlib.import_module("twice").Twice
    for cls in (by_path, by_import):
        assert {row.name: row.doc for row in describe(cls)}["depth"] == "How deep."
        assert {row.name: row.doc for row in describe(cls)}["server_lr"]


def test_damping_is_not_taken_for_a_server_optimisers_step() -> None:
    base = Experiment(
        algorithm={"server_lr": 0.5, "weights": "uniform"},
        variants=[{"label": "adam", "algorithm": {"name": "fedadam"}}, {"label": "prox", "algorithm": "fedprox"}],
    )
    rows = {label: row.algorithm.parameters for label, row in base.rows()}
    assert (rows["adam"]["server_lr"], rows["adam"]["weights"]) == (0.1, "uniform")
    assert (rows["prox"]["server_lr"], rows["prox"]["weights"]) == (0.5, "uniform")


def test_what_all_plugins_share_stays_with_another_plugin() -> None:
    base = Experiment(
        data={"share": 0.5, "classes": 3},
        selection={"name": "uniform", "k": 2, "k_steps": [[2, 6]]},
        algorithm={"weights": "scaled", "max_weight": 0.3},
        variants=[
            {"label": "turns", "selection": "round_robin"},
            {"label": "prox", "algorithm": "fedprox"},
            {"label": "scaffold", "algorithm": "scaffold"},
            {"label": "wine", "data": "wine"},
        ],
    )
    rows = dict(base.rows())
    assert rows["turns"].selection.k_steps == ((2, 6),)
    weights = {
        label: (row.algorithm.parameters["weights"], row.algorithm.parameters["max_weight"])
        for label, row in rows.items()
    }
    assert weights["prox"] == ("scaled", 0.3)
    assert weights["scaffold"] == ("uniform", None)
    assert (rows["wine"].data.share, rows["wine"].data.classes) == (0.5, 3)


def test_parts_of_keys_may_be_in_quotes() -> None:
    assert parse_overrides(['sweep."training.lr"=[0.01]', '"selection".k=3']) == {
        "sweep": {"training.lr": [0.01]},
        "selection": {"k": 3},
    }


def test_where_nothing_is_said_few_clients_all_take_part() -> None:
    assert Experiment(federation={"clients": 2}, selection="all").selection.k == 2
    assert Experiment(federation={"clients": 2}).selection.k == 2
    with pytest.raises(UsageError, match=r"selection\.k = 3: more than federation\.clients = 2"):
        Experiment(federation={"clients": 2}, selection={"name": "uniform", "k": 3})


def test_the_number_of_clients_by_round_is_described_checked_and_part_of_the_key() -> None:
    plain = Experiment(selection={"name": "uniform", "k": 3})
    steps = Experiment(selection={"name": "uniform", "k": 3, "k_steps": [[5, 6], [9, 2]]})
    assert steps.selection.k_steps == ((5, 6), (9, 2))
    assert plain.selection.k_steps == ()
    assert Experiment(**tomllib.loads(steps.to_toml())) == steps
    assert steps.single(0).key() != plain.single(0).key()
    with pytest.raises(UsageError, match=r"selection\.k_steps = \[\[5, 99\]\]: selects 99 from round 5 on, more than"):
        Experiment(selection={"name": "uniform", "k_steps": [[5, 99]]})
    with pytest.raises(UsageError, match=r"k_steps.*increasing"):
        Experiment(selection={"name": "uniform", "k_steps": [[5, 3], [5, 2]]})
    with pytest.raises(UsageError, match=r"selection\.k_steps"):
        Experiment(selection={"name": "uniform", "k_steps": [[1, 3]]})


def test_a_sweep_of_a_parameter_that_only_a_variant_has_says_how_to_do_it() -> None:
    variants = [{"label": "UCB", "selection": {"name": "ucb"}}]
    with pytest.raises(UsageError) as refused:
        Experiment(variants=variants, sweep={"selection.c": [0.1, 0.5]})
    assert str(refused.value) == (
        "sweep: selection.c: unknown key for 'uniform'; valid: k, k_steps, name; a sweep changes every row: sweep the whole section, "
        "such as selection = [{name = 'uniform'}, {name = '…', c = 0.1}], or let all rows have it (--set selection.name=…, --set "
        "variants=[])"
    )
    sections = [{"name": "uniform"}, {"name": "ucb", "c": 0.1}, {"name": "ucb", "c": 0.5}]
    whole = Experiment(sweep={"selection": sections})
    assert [label for label, _ in whole.rows()] == ["uniform", "ucb, c=0.1", "ucb, c=0.5"]
    both = Experiment(selection="ucb", sweep={"selection.c": [0.1, 0.5]})
    assert [row.selection.parameters["c"] for _, row in both.rows()] == [0.1, 0.5]
    with pytest.raises(UsageError) as nowhere:
        Experiment(variants=variants, sweep={"selection.beta": [0.1, 0.5]})
    assert str(nowhere.value) == "sweep: selection.beta: unknown key for 'uniform'; valid: k, k_steps, name"


@pytest.mark.parametrize("given", ["rounds=1", {"rounds": 1}, [1]])
def test_settings_beside_a_file_are_a_list_of_texts(given: object, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("rounds = 2")
    with pytest.raises(
        UsageError, match=r"^overrides = .*: should be a list of settings as texts, such as \['selection.k=5'\]$"
    ):
        load(tmp_path / "a.toml", given)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_those_of_python() -> None:
    values: dict[str, Any] = {
        "rounds": 3, "training": {"lr": 0.5}, "selection": {"name": "powd", "d": 5, "k": 2}, "measures": {"clients_every": 1},
        "variants": [{"label": "a", "selection": {"d": 4}}], "sweep": {"selection.k": [2, 3]},
    }  # fmt: skip
    given = {
        "rounds": np.int64(3), "training": {"lr": np.float32(0.5)}, "selection": {"name": "powd", "d": np.uint8(5), "k": np.int32(2)},
        "measures": {"clients_every": np.asarray(1)}, "variants": [{"label": "a", "selection": {"d": np.int64(4)}}],
        "sweep": {"selection.k": [np.int64(2), np.int64(3)]},
    }  # fmt: skip
    assert Experiment(**given).to_toml() == Experiment(**values).to_toml()
    assert Experiment(**given).rows()[1][1].to_toml() == Experiment(**values).rows()[1][1].to_toml()
    assert PowerOfChoice(d=np.int64(5)) == PowerOfChoice(d=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^rounds = .*: should be a whole number"):
        Experiment(rounds=np.float64(2.5))


def test_a_file_without_a_class_says_how_to_name_one() -> None:
    with pytest.raises(
        UsageError, match=r"mine\.py': no such strategy; for a class in this file, write 'mine\.py:Class'$"
    ):
        Experiment(selection={"name": "mine.py"})


def test_a_setting_of_an_experiment_is_not_assigned() -> None:
    experiment = Experiment()
    for section, name, value in [(experiment, "rounds", 5), (experiment.selection, "k", 5)]:
        with pytest.raises(UsageError, match=rf"^{name} = 5: an experiment cannot be changed; .*with_overrides\("):
            setattr(section, name, value)
    with pytest.raises(UsageError, match=r"^training\.lr = 'x': .*dataclasses\.replace\(training, lr=…\)"):
        experiment.training.lr = "x"  # type: ignore[assignment]
    assert experiment == Experiment()
    assert pickle.loads(pickle.dumps(experiment)) == experiment == copy.deepcopy(experiment)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.lr": 0.1}, "training.lr: unknown key; write training = { lr = … } in a file, and {'training': {'lr': …}} in"),
        ({"federation": {"partition.alpha": 1}}, "federation.partition.alpha: unknown key; write partition = { alpha = … } in"),
        ({"trainin.lr": 0.1}, "trainin.lr: unknown key; did you mean"),
        (["seeds=3"], "overrides = ['seeds=3']: should be a dictionary, such as {'seeds': 5}"),
        ({"variants": ["ucb"]}, "variants.0 = 'ucb': should be a table with a label and the settings that differ, such as"),
    ],
)  # fmt: skip
def test_overrides_in_another_form_say_the_right_one(overrides: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Experiment().with_overrides(overrides)
    assert str(raised.value).startswith(message)
