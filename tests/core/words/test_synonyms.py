"""Suggestions in error messages know the words of papers and of other packages."""

import pytest

from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.words.synonyms import ALSO_KNOWN_AS, SYNONYMS, all_meant, meant
from fedcohort.experiment import Choice, Experiment
from fedcohort.federation.data.load_dataset import NAMES
from fedcohort.selection import STRATEGIES


def valid_settings() -> set[str]:
    """Every key of the experiment file, and every parameter of a plug-in, with its section."""
    found = set(Experiment.model_fields)
    for section, field in Experiment.model_fields.items():
        keys = getattr(field.annotation, "__pydantic_fields__", {})
        found |= {f"{section}.{key}" for key in keys} | set(keys)
    for choice in Choice.__subclasses__():
        section = choice.__name__.lower()
        for name in choice.table.builtin:
            parameters = getattr(choice.table.find(name, name), "__pydantic_fields__", {})
            found |= {f"{section}.{key}" for key in parameters} | set(parameters)
    return found


def test_every_target_exists() -> None:
    names = {name for choice in Choice.__subclasses__() for name in choice.table.builtin} | set(NAMES)
    missing = {target for targets in SYNONYMS.values() for target in targets} - names - valid_settings()
    assert not missing


def test_strategies_are_found_by_their_names_in_the_literature() -> None:
    """Only some had another name, and UCB1 was none of them."""
    names = {*STRATEGIES.builtin, *ALGORITHMS.builtin}
    assert ALSO_KNOWN_AS.keys() <= names
    assert ALSO_KNOWN_AS.keys() >= STRATEGIES.builtin.keys() - {"utility_time"}, "FedCohort's own has no other name"
    for name, others in ALSO_KNOWN_AS.items():
        for other in others:
            assert name in all_meant(other.upper(), names), other
    for word, name in {
        "UCB-1": "ucb",
        "power of choice": "powd",
        "Pow-D": "powd",
        "NeuralTS": "neural",
        "fed cs": "fedcs",
    }.items():
        assert meant(word, names) == name, word
    assert all_meant("clustered sampling", names) == ["clustered_similarity", "clustered_size"]
    assert all_meant("", names) == all_meant("()", names) == []


def test_every_word_is_written_as_it_is_looked_up() -> None:
    assert [word for word in SYNONYMS if word != word.strip().lower().replace("-", "_").replace(" ", "_")] == []
    assert all(meant(word, SYNONYMS[word]) == SYNONYMS[word][0] for word in SYNONYMS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"selection": "random"}, r"^selection\.name = 'random': no such strategy; did you mean 'uniform'\?"),
        (
            {"selection": "power_of_choice"},
            r"^selection\.name = 'power_of_choice': no such strategy; did you mean 'powd'\?",
        ),
        ({"selection": "Power-of-Choice"}, r"did you mean 'powd'\?"),
        ({"selection": "UCB"}, r"^selection\.name = 'UCB': no such strategy; did you mean 'ucb'\?"),
        ({"selection": {"name": "uniform", "K": 3}}, r"^selection\.K: unknown key for 'uniform'; did you mean 'k'\?"),
        ({"selection": {"num_clients": 3}}, r"^selection\.num_clients: .*did you mean 'k'\?"),
        ({"selection": {"clients_per_round": 3}}, r"^selection\.clients_per_round: .*did you mean 'k'\?"),
        ({"algorithm": "FedAvg"}, r"^algorithm\.name = 'FedAvg': no such algorithm; did you mean 'fedavg'\?"),
        ({"algorithm": "multi-krum"}, r"did you mean 'krum'\?"),
        ({"training": {"learning_rate": 0.1}}, r"^training\.learning_rate: unknown key; did you mean 'lr'\?"),
        ({"training": {"local_epochs": 2}}, r"^training\.local_epochs: unknown key; did you mean 'epochs'\?"),
        ({"federation": {"num_clients": 9}}, r"^federation\.num_clients: unknown key; did you mean 'clients'\?"),
        (
            {"federation": {"partition": "dirichlet"}},
            r"^federation\.partition\.name = 'dirichlet': .*'dirichlet_class'\?",
        ),
        ({"num_rounds": 9}, r"^num_rounds: unknown key; did you mean 'rounds'\?"),
        ({"target_accuracy": 0.9}, r"^target_accuracy: unknown key; did you mean 'measures.target_accuracy'\?"),
        ({"server_lr": 0.5}, r"^server_lr: unknown key; did you mean 'algorithm.server_lr'\?"),
        ({"lr": 0.1}, r"^lr: unknown key; did you mean 'training\.lr'\?"),
        ({"num_clients": 9}, r"^num_clients: unknown key; did you mean 'federation\.clients'\?"),
        ({"k": 9}, r"^k: unknown key; did you mean 'selection\.k'\?"),
        ({"strategy": "ucb"}, r"^strategy: unknown key; did you mean 'selection'\?"),
        ({"dataset": "mnist"}, r"^dataset: unknown key; did you mean 'data'\?"),
        (
            {"training": {"loss": "cross_entropy"}},
            r"^training\.loss\.name = 'cross_entropy': no such loss; did you mean 'ce'\?",
        ),
        ({"model": "linear"}, r"^model\.name = 'linear': no such model; did you mean 'logistic'\?"),
    ],
)
def test_messages_suggest_the_name_that_is_meant(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Experiment(**values)


def test_a_synonym_is_suggested_only_where_its_name_is_valid() -> None:
    assert meant("random", ["all", "ucb"]) is None
    assert meant("learning_rate", ["clients", "partition"]) is None
    assert nearest("random", ["all", "ucb"]) == "valid: all, ucb"


def test_words_that_are_no_synonyms_are_compared_letter_by_letter() -> None:
    assert nearest("unifrom", ["uniform", "ucb"]) == "did you mean 'uniform'? (valid: ucb, uniform)"
