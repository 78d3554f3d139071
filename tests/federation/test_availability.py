"""Who is there in which round (H11): the laws, their shares, that they are functions of the round, and traces from files."""

import itertools
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.federation import Availability
from fedcohort.federation.availability import Always, Bernoulli, Diurnal, Markov, Trace

MANY = 100_000
LAWS: list[Availability] = [
    Always(),
    Bernoulli(probability=0.3),
    Markov(p_on=0.3, p_off=0.1),
    Markov(p_on=0.02, p_off=0.02),
    Markov(p_on=0.9, p_off=0.8),
    Markov(p_on=1.0, p_off=1.0),
    Markov(p_on=0.0, p_off=0.5),
    Markov(p_on=0.5, p_off=0.0),
    Diurnal(),
]


def sigmas(q: float, draws: int = MANY) -> float:
    """Six standard errors of a share."""
    return 6 * math.sqrt(q * (1 - q) / draws)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_presence_is_a_function_of_the_round(law: Availability) -> None:
    """Forwards, backwards, at random, one round only: the same clients."""
    m, rounds = 60, 40
    forwards = law.presence(m, rounds, 5)
    expected = {t: forwards(t).tolist() for t in range(1, rounds + 1)}
    orders = [range(rounds, 0, -1), np.random.default_rng(0).permutation(rounds) + 1, [1, 2, 2, 17, 18, 19, 18, 40]]
    for order in orders:
        presence = law.presence(m, rounds, 5)
        assert all(presence(int(t)).tolist() == expected[int(t)] for t in order)
    assert all(law.presence(m, rounds, 5)(t).tolist() == expected[t] for t in expected)


@pytest.mark.parametrize("law", LAWS[1:5] + LAWS[8:], ids=repr)
def test_seeds_and_rounds_differ(law: Availability) -> None:
    presence = law.presence(1_000, 40, 0)
    assert presence(3).tolist() != presence(4).tolist()
    assert law.presence(1_000, 40, 1)(3).tolist() != presence(3).tolist()


def test_bernoulli_share() -> None:
    presence = Bernoulli(probability=0.3).presence(MANY, 10, 0)
    assert presence(7).mean() == pytest.approx(0.3, abs=sigmas(0.3))
    assert (presence(7) & presence(8)).mean() == pytest.approx(0.09, abs=sigmas(0.09))  # rounds are independent


@pytest.mark.parametrize(("probability", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_bernoulli_at_the_ends(probability: float, share: float) -> None:
    assert Bernoulli(probability=probability).presence(1_000, 1, 0)(1).mean() == share


@pytest.mark.parametrize(
    ("p_on", "p_off"), [(0.3, 0.1), (0.02, 0.03), (0.9, 0.8), (1.0, 1.0), (0.5, 0.5), (0.2, 0.0), (0.0, 0.2)]
)
@pytest.mark.parametrize("t", [1, 2, 25])
def test_markov_is_stationary_from_the_first_round_on(p_on: float, p_off: float, t: int) -> None:
    share = p_on / (p_on + p_off)
    assert Markov(p_on=p_on, p_off=p_off).presence(MANY, 30, 0)(t).mean() == pytest.approx(share, abs=sigmas(share))


@pytest.mark.parametrize(("p_on", "p_off"), [(0.3, 0.1), (0.05, 0.02), (0.9, 0.8)])
def test_markov_comes_and_goes_with_its_probabilities(p_on: float, p_off: float) -> None:
    presence = Markov(p_on=p_on, p_off=p_off).presence(MANY, 30, 0)
    for t in (1, 2, 20):
        before, after = presence(t), presence(t + 1)
        away, there = int((~before).sum()), int(before.sum())
        assert after[~before].mean() == pytest.approx(p_on, abs=sigmas(p_on, away))
        assert (~after[before]).mean() == pytest.approx(p_off, abs=sigmas(p_off, there))


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 40), st.integers(0, 5), st.integers(1, 30))
def test_markov_asked_at_once_is_markov_played_through(p_on: float, p_off: float, t: int, seed: int, m: int) -> None:
    if p_on + p_off == 0:
        return
    law = Markov(p_on=p_on, p_off=p_off)
    played = law.presence(m, 40, seed)
    for s in range(1, t + 1):
        last = played(s)
    assert law.presence(m, 40, seed)(t).tolist() == last.tolist()


def test_markov_goes_back_only_as_far_as_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.federation import availability

    drawn: list[int] = []

    def counting(seed: int, purpose: str, t: int = 0) -> Any:
        drawn.append(t)
        return rng(seed, purpose, t)

    monkeypatch.setattr(availability, "rng", counting)
    presence = Markov(p_on=0.3, p_off=0.1).presence(1_000, 10_000, 0)
    presence(9_000)
    assert 9_000 - min(drawn) < 60  # expected: log(1000)/−log(1 − 0.4) = 14
    drawn.clear()
    presence(9_001)
    assert drawn == [9_001]


def test_diurnal_rises_and_falls_with_the_day() -> None:
    """With σ = 0 all q_i are 1 and the share is 0.5 + 0.4·sin(2πt/24): 0.9 at 6, 0.5 at 12, 0.1 at 18."""
    presence = Diurnal(sigma=0.0).presence(MANY, 100, 0)
    for t, share in [(6, 0.9), (12, 0.5), (18, 0.1), (24, 0.5), (2, 0.7), (30, 0.9)]:
        assert presence(t).mean() == pytest.approx(share, abs=sigmas(share))


def test_diurnal_clients_differ_and_the_most_present_has_q_1() -> None:
    presence = Diurnal(sigma=0.5).presence(20, 4_800, 0)
    counts = sum(presence(t).astype(np.int64) for t in range(1, 4_801))
    share = np.asarray(counts) / 4_800
    assert share.max() == pytest.approx(0.5, abs=0.04)
    logs = np.log(share)
    assert 0.25 < logs.std() < 0.9


def test_everybody_is_always_there() -> None:
    assert Always().presence(5, 3, 0)(2).all()


# --- traces --------------------------------------------------------------------------------------------------------------------

JSON = "[[0, 2], [], [1], [3, 1, 0]]"
CSV = "round,client\n1,2\n4,0\n1,0\n3,1\n4,1\n4,3\n"


def trace(tmp_path: Path, text: str, suffix: str = "json", **values: Any) -> Trace:
    file = tmp_path / f"trace.{suffix}"
    file.write_text(text)
    return Trace(file=str(file), **values)


@pytest.mark.parametrize(("text", "suffix"), [(JSON, "json"), (CSV, "csv"), ("\n".join(CSV.split()), "CSV")])
def test_a_trace_says_who_is_there(text: str, suffix: str, tmp_path: Path) -> None:
    presence = trace(tmp_path, text, suffix).presence(4, 4, 0)
    assert [np.flatnonzero(presence(t)).tolist() for t in range(1, 5)] == [[0, 2], [], [1], [0, 1, 3]]


@pytest.mark.parametrize(("text", "suffix"), [(JSON, "json"), (CSV, "csv")])
def test_a_trace_can_repeat(text: str, suffix: str, tmp_path: Path) -> None:
    presence = trace(tmp_path, text, suffix, repeat=True).presence(4, 11, 0)
    found = [np.flatnonzero(presence(t)).tolist() for t in range(1, 12)]
    assert found == list(itertools.islice(itertools.cycle([[0, 2], [], [1], [0, 1, 3]]), 11))


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        (JSON, "json", r"trace\.json': has 4 rounds, the run has 5; use repeat = true"),
        (CSV, "csv", r"trace\.csv': has 4 rounds, the run has 5"),
        ("[[0]" + ", [4]" * 5 + "]", "json", r"contains client 4 in round 2; with federation\.clients = 4 there are clients 0 to 3"),
        ("[[0], [-1], [1], [1], [1]]", "json", r"contains client -1 in round 2"),
        ("[]", "json", "has no rounds"),
        ("round,client\n", "csv", "has no rounds"),
        ("", "csv", "is empty; its first line should be round,client"),
        ("{", "json", "Expecting property name"),
        ("{}", "json", "it should be a list with one list of client ids per round"),
        ("[0, 1]", "json", "round 1 is 0; it should be a list"),
        ("[[0.5]]", "json", r"round 1 is \[0\.5\]"),
        ("[[true]]", "json", r"round 1 is \[True\]"),
        (f"[[{10**30}]]", "json", r"round 1 is \[1000"),
        ("round,clients\n1,2\n", "csv", "there is no column 'client'"),
        ("round,client\n0,2\n", "csv", "contains round 0; rounds are counted from 1"),
        ("round,client\n1,a\n", "csv", "column 'client' should hold whole numbers"),
        ("round,client\n1,\n", "csv", "column 'client' should hold whole numbers"),
        ("round,client\n1,0,2\n2,1,2\n", "csv", "rows have more values than the first line has names; name every column"),
        (JSON, "txt", r"should end in \.json or \.csv"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be_used(text: str, suffix: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as error:
        trace(tmp_path, text, suffix).presence(4, 5, 0)
    assert str(error.value).startswith("systems.availability.file = ")
    assert "\n" not in str(error.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^systems\.availability\.file = .*cannot be read: No such file"):
        Trace(file=str(tmp_path / "none.json")).presence(3, 1, 0)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        Trace(file=str(tmp_path / "folder.json")).presence(3, 1, 0)


def test_a_trace_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A device without an end, and a pipe that nothing writes to."""
    os.mkfifo(tmp_path / "pipe.json")
    for file in (tmp_path / "pipe.json", Path("/dev/zero")):
        with pytest.raises(UsageError, match=r"cannot be read: is a (folder|pipe|device); give a \.json"):
            Trace(file=str(file)).fingerprint()


# --- parameters -----------------------------------------------------------------------------------------------------------------


def test_a_chain_that_never_moves_has_no_stationary_law() -> None:
    with pytest.raises(UsageError, match=r"^systems\.availability\.p_on = 0: with p_off = 0 as well"):
        Markov(p_on=0.0, p_off=0.0)


@pytest.mark.parametrize(
    ("values", "most"),
    [({"mean": 0.5, "swing": 0.6}, 0.5), ({"mean": 0.9, "swing": 0.2}, 0.1), ({"mean": 0.2, "swing": 0.3}, 0.2)],
)
def test_a_swing_out_of_range(values: dict[str, float], most: float) -> None:
    said = rf"^systems\.availability\.swing = .*: probabilities would leave \[0, 1\]; .* use at most {most}$"
    with pytest.raises(UsageError, match=said):
        Diurnal(**values)


def test_the_widest_differences_between_clients_leave_some_available() -> None:
    presence = Diurnal(mean=1.0, swing=0.0, sigma=1e308).presence(20, 10, 0)
    assert presence(1).any()
