"""A client that joins is from then on as one that was known from the beginning and was away until now; or it is refused."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack
from fedcohort.core.parameters import make
from fedcohort.selection import STRATEGIES, Census, Cohort, Outcome, Round, Selector, parameters
from fedcohort.testing import check_selector
from fedcohort.testing.selection import _play
from fedcohort.testing.selection_worlds import HALF, JOINING, ROUNDS, census_of
from tests.selection.fakes import a_census, a_round

FORMS_GROUPS = {"stratified": "stratum", "cluster_survey": "group", "haccs": "cluster"}
"""Strategies that form groups of all clients in the first round, and anew when clients join."""

ALL_SIZES = "clustered_similarity"
"""Its bins hold the samples of all clients, also of those that are away: a client that is known is not as one that is not."""
OWN_UNIT = {name: {"time_unit": "raw"} for name in ("flash", "flash_printed", "flash_linucb", "restless", "neural")}
"""Their unit of time is the median over the clients that were there when times were first measured; so they get none here."""


def built(name: str, **settings: Any) -> Selector:
    selector: Selector = make(STRATEGIES.find(name, "selection.name"), settings, "selection")
    return selector


def joined_late(selector: Selector) -> list[list[int]]:
    """The picks after clients joined."""
    selector.setup(census_of(selector, JOINING, joined=False))
    _play(selector, JOINING, range(1, HALF + 1))
    selector.extend(census_of(selector, JOINING, joined=True))
    return _play(selector, JOINING, range(HALF + 1, ROUNDS + 1))


def known_from_the_start(selector: Selector) -> list[list[int]]:
    """The picks after the same clients came, if they were known from the beginning."""
    selector.setup(census_of(selector, JOINING, joined=True))
    _play(selector, JOINING, range(1, HALF + 1))
    return _play(selector, JOINING, range(HALF + 1, ROUNDS + 1))


def assert_joins_as_if_known(name: str, **settings: Any) -> None:
    """The picks and the state are those of a strategy that knew all clients from the start."""
    one, other = built(name, **settings), built(name, **settings)
    picks = joined_late(one)
    assert picks == known_from_the_start(other)
    states = [{name: value for name, value in each.state_dict().items() if name != "unit"} for each in (one, other)]
    assert pack(states[0]) == pack(states[1])


@pytest.mark.parametrize("name", [name for name in STRATEGIES.builtin if name not in {*FORMS_GROUPS, ALL_SIZES}])
def test_a_client_that_joins_is_as_one_that_was_away(name: str) -> None:
    assert_joins_as_if_known(name, **OWN_UNIT.get(name, {}))


@pytest.mark.parametrize("name", [ALL_SIZES, *OWN_UNIT])
def test_clients_that_joined_are_chosen(name: str) -> None:
    chosen = {client for clients in joined_late(built(name)) for client in clients}
    assert chosen & set(range(JOINING.m - JOINING.late, JOINING.m))


@pytest.mark.parametrize("base", ["oort", "clustered_size", {"name": "pyramidfl"}])
def test_the_strategy_inside_another_takes_in_clients(base: object) -> None:
    assert_joins_as_if_known("conformal", base=base)


@pytest.mark.parametrize(("name", "attribute"), FORMS_GROUPS.items())
def test_groups_are_formed_anew_with_the_clients_that_joined(name: str, attribute: str) -> None:
    selector = built(name)
    picks = joined_late(selector)
    groups, late = getattr(selector, attribute), np.arange(JOINING.m - JOINING.late, JOINING.m)
    assert groups is not None
    histogram = selector.census.histogram
    assert histogram is not None
    alike = [
        {int(groups[i]) for i in range(JOINING.m) if (histogram[i] > 0).tolist() == (histogram[j] > 0).tolist()}
        for j in late
    ]
    assert all(int(groups[j]) in found for j, found in zip(late, alike, strict=True))
    fresh = built(name)
    fresh.setup(selector.census)
    round = a_round(2, JOINING.m, t=HALF + 1, durations=np.ones(JOINING.m), speeds=np.ones((JOINING.m, 2)))
    fresh.select(round)
    assert len(set(groups.tolist())) == len(set(getattr(fresh, attribute).tolist()))
    assert any(client in late for clients in picks for client in clients)


@pytest.mark.parametrize("name", FORMS_GROUPS)
def test_noisy_label_counts_are_not_asked_for_twice(name: str) -> None:
    selector = built(name, epsilon_dp=1.0)
    with pytest.raises(
        UsageError, match="epsilon_dp = 1: clients cannot join, because all label counts would get noise"
    ):
        joined_late(selector)


def test_every_state_survives_a_refusal() -> None:
    check_selector(lambda: built("haccs", epsilon_dp=1.0))


@parameters
class Ranked(Selector):
    """Learns something that setup derives from all clients, and says nothing about clients that join."""

    def setup(self, census: Census) -> None:
        super().setup(census)
        self.share = census.num_samples / census.num_samples.sum()
        self.order = np.argsort(census.num_samples)

    def select(self, round: Round) -> Cohort:
        return Cohort(round.available[: round.k])

    def observe(self, outcome: Outcome) -> None:
        self.share = self.share / 2


def test_what_was_learned_from_all_clients_is_not_thrown_away() -> None:
    selector, census = Ranked(), a_census([5, 3, 0], 1)
    selector.setup(census)
    after = a_census([5, 3, 4], 1)
    selector.extend(after)  # nothing was learned yet: both are derived anew
    assert selector.share.tolist() == [5 / 12, 3 / 12, 4 / 12]
    assert selector.order.tolist() == [1, 2, 0]
    selector = Ranked()
    selector.setup(census)
    selector.share = selector.share / 2
    with pytest.raises(
        UsageError, match="Ranked has learned 'share' from the clients that were there before, so no client"
    ):
        selector.extend(after)
    assert selector.census is census
    assert json.dumps(selector.order.tolist()) == "[2, 1, 0]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_samples": np.array([5, 3, 0, 1])}, "census: has 4 clients instead of 3"),
        ({"num_samples": np.array([5, 4, 0])}, "only clients without samples can join"),
        ({"k": 2}, "nothing else can change"),
        ({"histogram": None}, "the label counts of all clients are needed"),
        (
            {"histogram": np.array([[5, 0], [0, 3], [0, 0]])},
            "label counts of a client that was there before have changed",
        ),
    ],
)
def test_a_census_in_which_more_has_changed_is_refused(change: dict[str, Any], message: str) -> None:
    selector = built("uniform")
    census = a_census([5, 3, 0], 1, [[2, 3], [0, 3], [0, 0]])
    selector.setup(census)
    with pytest.raises(UsageError, match=message):
        selector.extend(dataclasses.replace(census, **change))
