"""Tables say which rows are own versions and no published methods."""

import re
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.algorithms import Algorithm
from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import card_of
from fedcohort.selection import Card, Cohort, Round, Selector, TiFL, Uniform
from tests.experiments import small


def test_tables_name_rows_that_are_own_versions(tmp_path: Path) -> None:
    variants = [{"label": "TiFL", "selection": "tifl"}, {"label": "UCB", "selection": "ucb"}]
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants), runs=tmp_path)
    said = "Own version: 'TiFL'. It is in part a design of FedCohort, or its reading of a source"
    assert said in " ".join(str(compared).split())
    assert said in compared.to_latex()
    assert "Own version" not in str(fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1), runs=tmp_path))


class Mine(Uniform):
    """A strategy of the user."""

    card = Card(source="nowhere", status="ours")


@pytest.mark.parametrize("of_fedcohort", [False, True])
def test_an_own_class_is_no_design_of_fedcohort(tmp_path: Path, of_fedcohort: bool) -> None:
    variants = [
        {"label": "mine", "selection": Mine},
        *([{"label": "TiFL", "selection": "tifl"}] if of_fedcohort else []),
    ]
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants), runs=tmp_path)
    said = "Own method: 'mine'. It uses a class that is not part of FedCohort, and that no card describes as a published method."
    assert said in " ".join(str(compared).split())
    assert said in compared.to_latex()
    assert ("in part a design of FedCohort" in compared.to_latex()) == of_fedcohort
    assert ("Own version: 'TiFL'. It is" in compared.to_latex()) == of_fedcohort


def test_the_page_marks_a_users_own_class_as_an_own_method(tmp_path: Path) -> None:
    variants = [{"label": "mine", "selection": Mine}, {"label": "TiFL", "selection": "tifl"}]
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants), runs=tmp_path)
    page = str(compared.report())
    assert re.findall(r'<abbr class="ours"[^>]*>([^<]*)<', page) == ["own method", "own version"]
    assert '"Own version"</span>' in page
    assert '"Own method"</span>' in page
    alone = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, variants=variants[:1]), runs=tmp_path)
    assert '"Own version"</span>' not in str(alone.report())


@pytest.mark.parametrize(("strategy", "said"), [(Mine(), "Own method"), (TiFL(), "Own version"), (Uniform(), "")])
def test_an_object_is_judged_by_its_own_card(tmp_path: Path, strategy: Selector, said: str) -> None:
    """The experiment names another own version, which the object replaces."""
    experiment = fedcohort.Experiment(rounds=1, seeds=1, selection="round_robin")
    text = str(fedcohort.compare(experiment, selector=strategy, runs=tmp_path))
    assert [words for words in ("Own method", "Own version") if words in text] == [said] * bool(said)


class Cardless(Selector):
    """A strategy of the user that extends none, and has no card."""

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])


@pytest.mark.parametrize("given", [{"selection": {"name": Cardless, "k": 2}}, {"selector": Cardless()}])
def test_a_class_without_a_card_is_an_own_method(given: dict[str, Any], tmp_path: Path) -> None:
    """Tables treated it as a published method."""
    selector = given.pop("selector", None)
    compared = fedcohort.compare(fedcohort.Experiment(rounds=1, seeds=1, **given), selector=selector, runs=tmp_path)
    assert "Own method: 'Cardless'. It uses a class that is not part of FedCohort" in " ".join(str(compared).split())


def test_an_own_algorithm_that_is_an_object_is_an_own_method(tmp_path: Path) -> None:
    class Own(Algorithm):
        card = Card(source="nowhere", status="ours")

    experiment = fedcohort.Experiment(rounds=1, seeds=1)
    assert "Own method" in str(fedcohort.compare(experiment, algorithm=Own(), runs=tmp_path))


class Extended(Uniform):
    """A strategy of the user without a card of its own."""


class Further(Extended):
    """And one that extends it."""


@pytest.mark.parametrize("strategy", [Extended, Further])
def test_a_class_that_extends_a_published_method_is_an_own_version_of_it(
    strategy: type[Uniform], tmp_path: Path
) -> None:
    card = card_of(strategy)
    assert card is not None
    assert (card.status, card.source) == ("ours", f"own version of Uniform: {Uniform.card.source}")
    assert card_of(strategy()) == card
    assert (card_of(Uniform), card_of(Mine()), card_of(3)) == (Uniform.card, Mine.card, None)
    for given in ({"selection": {"name": strategy, "k": 2}}, {}):
        run = fedcohort.run(
            small(rounds=1, **given), selector=None if given else strategy(), seed=0, runs=tmp_path / str(len(given))
        )
        assert strategy.__name__ in run.meta["ours"]


def test_a_card_has_a_status_that_tables_know() -> None:
    with pytest.raises(UsageError, match=r"^Card\.status = 'mine': use 'paper', 'code' or 'ours'$"):
        Card(source="nowhere", status="mine")  # type: ignore[arg-type]
