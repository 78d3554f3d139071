"""Local splits: nested in the client's data, after noise and before shift; and a run with everything on."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort
from fedcohort.algorithms import Algorithm, parameters
from fedcohort.core.errors import UsageError
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.federation.client_test_parts import clients_of_test_samples
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.featureshift import Gauss
from fedcohort.federation.federation import Federation, gather, split_locally
from fedcohort.federation.labelnoise import Constant
from fedcohort.federation.partition import DirichletClass, Iid, Partition, partition
from fedcohort.selection import Census, Cohort, LocalLoss, Outcome, Round
from fedcohort.selection.strategies.uniform import Uniform
from tests.experiments import UCB, small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state


def test_test_samples_belong_to_the_clients_that_have_all_training_samples_of_theirs() -> None:
    """Clients a, b and c of the data; the federation has some of them, in another order, or does not have them as they are."""
    x, y = np.zeros((6, 2)), np.arange(6) % 2
    test = np.zeros((5, 2)), np.arange(5) % 2
    data = from_arrays((x, y), test, clients=[*"aabbcc"], test_clients=[*"cabac"])

    def found(*clients: list[int]) -> list[int] | None:
        """By the client of the federation that has these training samples; of the last four test samples."""
        split = Partition(np.concatenate(clients), np.cumsum([0, *map(len, clients)]))
        numbers = clients_of_test_samples(data, split, np.arange(1, 5))
        return None if numbers is None else numbers.tolist()

    assert found([0, 1], [2, 3], [4, 5]) == [0, 1, 0, 2]
    assert found([5, 4], [1]) == [1, -1, 1, 0], "no client has the samples of b"
    assert found([0, 1], [2], [3]) is None, "two clients have samples of b"
    assert found([0, 1, 2, 3], [4, 5]) is None, "a client has the samples of a and of b"
    assert clients_of_test_samples(from_arrays((x, y), test), partition(Iid(), y, 2, 0), np.arange(5)) is None


EVERYTHING = {
    "partition": {"alpha": 0.5},
    "label_noise": {"name": "beta", "a": 20.0},
    "holdout": 0.2,
    "feature_shift": {"name": "gauss", "sigma": 0.2, "matched_test": True},
}


def digits(**how: Any) -> Federation:
    data = load("digits")
    split = partition(DirichletClass(alpha=0.5), data.train_labels, 12, seed=3)
    return gather(data, split, validation=0.1, seed=3, **how)


# --- sizes -----------------------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(0, 500), min_size=1, max_size=20).map(np.array), share=st.floats(0, 0.999))
def test_held_out_sizes(sizes: np.ndarray, share: float) -> None:
    held = split_locally(sizes, share)
    assert held.dtype == np.int64
    for n, h in zip(sizes.tolist(), held.tolist(), strict=True):
        assert h == min(round(share * n), max(n - 1, 0))
        assert n == 0 or n - h >= 1


def test_eighty_twenty() -> None:
    assert split_locally(np.array([0, 1, 2, 5, 100, 1_000]), 0.2).tolist() == [0, 0, 0, 1, 20, 200]
    assert split_locally(np.array([1, 2, 3]), 0.99).tolist() == [0, 1, 2]


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_shares_that_cannot_be(share: float) -> None:
    with pytest.raises(UsageError, match=r"^federation\.holdout = .*: should be "):
        Experiment(federation={"holdout": share})
    with pytest.raises(UsageError, match=r"^federation\.holdout = .*: should be a share of each client's data"):
        digits(holdout=share)


# --- nesting ---------------------------------------------------------------------------------------------------------------------


def test_the_two_parts_are_the_clients_data() -> None:
    whole, split = digits(), digits(holdout=0.2)
    assert np.array_equal(split.offsets, whole.offsets)
    assert np.array_equal(split.num_samples + split.num_held_out, whole.num_samples)
    assert whole.num_held_out.sum() == 0
    for i in range(12):
        mine, kept, all_of_it = split.client(i), split.held_out(i), whole.client(i)
        assert len(mine) == split.num_samples[i] == len(all_of_it) - round(0.2 * len(all_of_it))
        assert torch.cat([mine.features, kept.features]).equal(all_of_it.features)
        assert torch.cat([mine.labels, kept.labels]).equal(all_of_it.labels)
        assert kept.source.data_ptr() == split.train.source.data_ptr()
        assert len(whole.held_out(i)) == 0


def test_a_larger_share_holds_out_more_of_the_same() -> None:
    little, much = digits(holdout=0.1), digits(holdout=0.4)
    for i in range(12):
        n = len(little.held_out(i))
        assert n == 0 or much.held_out(i).features[-n:].equal(little.held_out(i).features)


def test_the_held_out_part_is_a_random_part() -> None:
    """Sorted data: what is held out has the classes of the whole."""
    labels = np.repeat([0, 1], 5_000)
    features = np.zeros((10_000, 1), dtype=np.float32)
    data = from_arrays((features, labels), (features, labels))
    federation = gather(data, partition(Iid(), labels, 2, 0), validation=0.0, seed=0, holdout=0.2)
    for i in range(2):
        assert float(federation.held_out(i).labels.double().mean()) == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 1_000))


def test_noise_comes_before_the_split() -> None:
    """Noise is the same with and without a split, its count is exact over both parts together, and the held-out part has some."""
    rule = Constant(rate=0.3)
    whole, split = digits(label_noise=rule), digits(label_noise=rule, holdout=0.5)
    assert whole.train.labels.equal(split.train.labels)
    assert split.noise is not None
    wrong = split.noise.flipped
    for i in range(12):
        a, b = split.offsets[i], split.offsets[i + 1]
        assert np.count_nonzero(wrong[a:b]) == round(0.3 * (b - a))
    held = np.concatenate([wrong[b - h : b] for b, h in zip(split.offsets[1:], split.num_held_out, strict=True)])
    assert held.mean() == pytest.approx(0.3, abs=0.05)


def test_shift_comes_after_the_split_and_covers_both_parts() -> None:
    rule = Gauss(sigma=0.4)
    plain, both = digits(holdout=0.3), digits(holdout=0.3, feature_shift=rule)
    assert digits(feature_shift=rule).train.features.equal(both.train.features)
    assert not both.client(11).features.equal(plain.client(11).features)
    assert not both.held_out(11).features.equal(plain.held_out(11).features)


def test_everybody_counts_the_training_part() -> None:
    federation = digits(holdout=0.2, label_noise=Constant(rate=0.2))
    counted = [np.bincount(federation.client(i).labels.numpy(), minlength=10) for i in range(12)]
    assert np.array_equal(federation.histogram(), counted)
    assert np.array_equal(federation.histogram().sum(axis=1), federation.num_samples)
    federation.num_held_out[:] = 0  # a copy
    assert federation.num_held_out.sum() > 0


# --- who needs one -------------------------------------------------------------------------------------------------------------------


@parameters
class Calibrating(Uniform):
    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})


@parameters
class Cleaning(Algorithm):
    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})


@pytest.mark.parametrize(
    "given_", [{"selector": Calibrating()}, {"algorithm": Cleaning()}], ids=["selector", "algorithm"]
)
def test_a_part_that_is_needed_must_be_there(given_: dict[str, Any], tmp_path: Path) -> None:
    message = r"^federation\.holdout = 0: (Calibrating|Cleaning) needs a held-out part of each client's data; use a value above 0"
    with pytest.raises(UsageError, match=message):
        fedcohort.run(small(rounds=1), runs=tmp_path, **given_)
    assert fedcohort.run(small(rounds=1, federation={"holdout": 0.2}), runs=tmp_path, **given_).finished


def test_a_named_one_is_refused_when_the_experiment_is_made(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from tests.federation.test_splits import Calibrating, Cleaning\n")
    for section, name in (("selection", "Calibrating"), ("algorithm", "Cleaning")):
        chosen = {section: f"{tmp_path}/mine.py:{name}"}
        with pytest.raises(UsageError, match=rf"^federation\.holdout = 0: '.*{name}' needs a held-out part"):
            Experiment(**chosen)
        assert Experiment(federation={"holdout": 0.2}, **chosen).federation.holdout == 0.2


# --- the whole run -----------------------------------------------------------------------------------------------------------------


def test_training_questions_and_clock_see_the_training_part_only() -> None:
    with a_run_state(federation=EVERYTHING) as run_state:
        federation = run_state.engine.federation  # type: ignore[attr-defined]
        assert np.array_equal(run_state.clock.num_samples, federation.num_samples)
        assert np.array_equal(run_state.selector.census.num_samples, federation.num_samples)
        clients = np.arange(12)
        updates = list(run_state.engine.train(run_state.model, 1, Cohort(clients), run_state.algorithm))
        assert [u.num_samples for u in updates] == federation.num_samples.tolist()
        losses = run_state.engine.answer(run_state.model, 1, LocalLoss(), clients)
        for i in range(12):  # ruin the held-out parts: nobody notices
            federation.held_out(i).features.zero_()
            federation.held_out(i).labels.zero_()
        assert np.array_equal(losses, run_state.engine.answer(run_state.model, 1, LocalLoss(), clients))
        for before, after in zip(
            updates, run_state.engine.train(run_state.model, 1, Cohort(clients), run_state.algorithm), strict=True
        ):
            assert all(before.state[name].equal(after.state[name]) for name in before.state)


def test_what_a_strategy_is_given_says_nothing_about_noise() -> None:
    seen: list[Any] = []

    @parameters
    class Nosy(Uniform):
        needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

        def setup(self, census: Census) -> None:
            super().setup(census)
            seen.append(census)

        def select(self, round: Round) -> Cohort:
            seen.append(round)
            return super().select(round)

        def observe(self, outcome: Outcome) -> None:
            seen.append(outcome)

    from fedcohort.rounds import play_round

    with a_run_state(Given(selector=Nosy()), federation=EVERYTHING) as run_state:
        clean_histogram = _clean_histogram(run_state.engine.federation)  # type: ignore[attr-defined]
        play_round(run_state, 1, test=False)
    census = next(part for part in seen if isinstance(part, Census))
    assert census.histogram is not None
    assert not np.array_equal(census.histogram, clean_histogram)
    for part in seen:
        names = {name for name in dir(part) if not name.startswith("_")}
        assert not names & {"noise", "clean", "flipped", "rates", "federation", "held"}


def _clean_histogram(federation: Federation) -> np.ndarray:
    assert federation.noise is not None
    starts, sizes = federation.offsets[:-1], federation.num_samples
    return np.stack(
        [np.bincount(federation.noise.clean[a : a + n], minlength=10) for a, n in zip(starts, sizes, strict=True)]
    )


@pytest.mark.parametrize("selection", [UCB, "utility_time"], ids=str)
def test_a_run_with_everything_on_resumes_to_the_same_bits(selection: Any, tmp_path: Path) -> None:
    experiment = small(selection=selection, federation=EVERYTHING, model="cnn_a")
    straight = fedcohort.run(experiment, runs=tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "broken", progress=stop_after(3))
    resumed = fedcohort.run(experiment, runs=tmp_path / "broken")
    assert resumed.last_round == 6
    assert record(resumed) == record(straight)


def test_every_strategy_meets_the_same_noise_split_and_shift() -> None:
    federations = []
    for selection in ("uniform", "all", UCB, "rpowd", "utility_time"):
        with a_run_state(selection=selection, federation=EVERYTHING) as run_state:
            federations.append(run_state.engine.federation)  # type: ignore[attr-defined]
    first = federations[0]
    for other in federations[1:]:
        assert other.train.features.equal(first.train.features)
        assert other.train.labels.equal(first.train.labels)
        assert other.test.features.equal(first.test.features)
        assert np.array_equal(other.offsets, first.offsets)
        assert np.array_equal(other.num_held_out, first.num_held_out)
