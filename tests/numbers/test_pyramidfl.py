"""PyramidFL: worked numbers of epochs and upload shares, the bound on the time of a round, and a complete run."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.core.parameters import make
from fedcohort.rounds import play_round
from fedcohort.selection import Cohort
from fedcohort.selection.client_speed import computing_and_sending
from fedcohort.selection.strategies.pyramidfl import PyramidFL
from tests.run_states import a_run_state
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

COMPUTING, SENDING = (10.0, 20.0, 40.0), (5.0, 5.0, 10.0)


def ready(m: int = 3, epochs: int = 5, **values: Any) -> PyramidFL:
    selector: PyramidFL = make(PyramidFL, values, "selection")
    selector.setup(a_census([100] * m, m, epochs=epochs))
    return selector


def of(cohort: Cohort, name: str) -> np.ndarray:
    """A field of the cohort by client id."""
    values = getattr(cohort, name)
    return values[np.argsort(cohort.clients)]


def test_epochs_and_upload_shares_match_worked_values() -> None:
    selector = ready()
    selector.gradient[:] = [9, 1, 5]  # ranks 0, 2, 1
    cohort = selector.select(a_round(3, 3, compute_times=COMPUTING, upload_times=SENDING))
    drop = 1 - of(cohort, "share")
    assert drop == pytest.approx([0.1, 0.433333, 0.266667], abs=5e-7)
    assert np.array(COMPUTING) + (1 - drop) * SENDING == pytest.approx([14.5, 22.8333, 47.3333], abs=5e-5)
    assert of(cohort, "epochs").tolist() == [21, 11, 5]  # ratios 4.2, 2.2 and 1
    terms = the_why(cohort).terms
    assert terms["epochs"].tolist() == [21, 11, 5]
    assert terms["drop"] == pytest.approx(drop)
    assert terms["gradient"].tolist() == [9, 1, 5]


def test_clients_with_small_gradients_leave_out_more() -> None:
    selector = ready()
    selector.gradient[:] = [1, 9, 5]  # ranks 2, 0, 1
    drop = 1 - of(selector.select(a_round(3, 3)), "share")
    assert drop == pytest.approx([0.1 + 2 * 0.5 / 3, 0.1, 0.1 + 0.5 / 3])


def test_times_are_measured_parts_or_stated_or_shares_of_the_measured_time() -> None:
    """Client 1 was late, and client 2 as well, before it stated its times; nothing is known of client 3."""
    stated = np.array([[7.0, 7.0], [3.0, 4.0], [np.nan, np.nan], [np.nan, np.nan]])
    one = a_round(
        2,
        4,
        durations=[9.0, 20.0, 10.0, np.nan],
        compute_times=[8.0, np.nan, np.nan, np.nan],
        upload_times=[1.0, np.nan, np.nan, np.nan],
    )
    computing, sending = computing_and_sending(one, stated, np.array([3, 2, 1, 0]))
    assert computing.tolist() == pytest.approx([np.nan, 8.0, 3.0, 8.0], nan_ok=True)
    assert sending.tolist() == pytest.approx([np.nan, 2.0, 4.0, 1.0], nan_ok=True)


def test_the_gradient_utility_of_a_declined_client_is_updated() -> None:
    selector = ready()
    reports = {"update_norm": [2.0, 3.0], "samples": [50.0, 40.0], "square_loss": [1.0, 1.0]}
    selector.observe(an_outcome([0, 2], reports=reports, admitted=[True, False]))
    assert selector.gradient == pytest.approx([1.0, 100.0, 1.2])


def test_the_gradient_utility_starts_with_the_size_and_is_updated_by_trained_clients() -> None:
    selector = ready()
    assert selector.gradient.tolist() == [100, 100, 100]
    sent = {"update_norm": [3.0, 2.0], "samples": [50.0, 50.0], "square_loss": [1.0, 1.0]}
    selector.observe(an_outcome([0, 1], reports=sent, trained=[True, False]))
    assert selector.gradient.tolist() == [1.5, 100, 100]


@pytest.mark.parametrize(
    ("values", "epochs"),
    [
        ({"r_max": 1.0}, [10, 10, 5]),
        ({"beta": 0.5}, [13, 8, 5]),  # ratios 1 + 0.5·16/5 and 1 + 0.5·6/5
        ({"max_epochs": 12}, [12, 11, 5]),
        ({"max_epochs": 2}, [5, 5, 5]),
    ],
)
def test_settings_limit_the_epochs(values: dict[str, Any], epochs: list[int]) -> None:
    selector = ready(**values)
    selector.gradient[:] = [9, 1, 5]
    cohort = selector.select(a_round(3, 3, compute_times=COMPUTING, upload_times=SENDING))
    assert of(cohort, "epochs").tolist() == epochs


def test_dropout_and_adaptive_epochs_can_be_disabled() -> None:
    plain = ready(dropout=False, adaptive_epochs=False).select(a_round(3, 3))
    assert plain.epochs is None
    assert plain.share is None
    longer = ready(dropout=False).select(a_round(3, 3, compute_times=COMPUTING, upload_times=SENDING))
    assert longer.share is None
    assert of(longer, "epochs").tolist() == [22, 11, 5]  # D = 50: 35/2 = 17.5 and 25/4 = 6.25 additional epochs
    assert ready(unsent="unchanged").select(a_round(3, 3)).unsent == "unchanged"


def test_batches_drawn_by_loss_leave_less_spare_time() -> None:
    cohort = ready(dropout=False, importance_data=True).select(
        a_round(3, 3, compute_times=COMPUTING, upload_times=SENDING)
    )
    assert cohort.sampling == "loss"
    # With tl·4/3, D = 63.33: the spare times are 45 and 31.67, and an epoch takes 2.667 and 5.333.
    assert of(cohort, "epochs").tolist() == [21, 10, 5]


def test_clients_without_known_times_train_for_the_nominal_epochs() -> None:
    unknown = ready().select(a_round(3, 3))
    assert of(unknown, "epochs").tolist() == [5, 5, 5]
    partly_known = ready().select(a_round(3, 3, compute_times=(10, np.nan, 0), upload_times=(5, np.nan, 100)))
    assert of(partly_known, "epochs")[1:].tolist() == [5, 5]  # unknown times; computing time 0
    assert of(partly_known, "epochs")[0] > 5


def test_stated_times_are_used_for_clients_without_measured_times() -> None:
    speeds = list(zip(COMPUTING, SENDING, strict=True))
    cohort = ready(dropout=False).select(a_round(3, 3, t=2, speeds=speeds))
    assert of(cohort, "epochs").tolist() == [22, 11, 5]


@pytest.mark.parametrize("stated", [(1e308, 1e308), (np.inf, 1.0), (np.inf, -np.inf), (np.nan, 1.0), (-1.0, 5.0)])
def test_one_client_that_states_an_impossible_time_does_not_end_the_run(stated: tuple[float, float]) -> None:
    """The time of client 0 is unknown; the others state theirs, and client 2 is the slowest."""
    selector = ready()
    cohort = selector.select(a_round(3, 3, t=2, speeds=[stated, (1.0, 1.0), (9.0, 1.0)]))
    assert np.isnan(selector.said[0]).all()
    epochs = of(cohort, "epochs")
    assert (epochs[0], epochs[2]) == (5, 5)
    assert epochs[1] > 5


def test_a_client_that_states_the_smallest_time_above_0_has_no_spare_time() -> None:
    """Its time for an epoch is 0 after rounding, as if it had stated 0."""
    cohort = ready().select(a_round(3, 3, t=2, speeds=[(5e-324, 1.0), (0.0, 1.0), (9.0, 1.0)]))
    assert of(cohort, "epochs").tolist() == [5, 5, 5]


def test_the_whole_time_is_divided_if_its_parts_are_unknown() -> None:
    whole = np.array([10.0, 20.0, 40.0])
    divided = ready(dropout=False).select(a_round(3, 3, compute_times=0.8 * whole, upload_times=0.2 * whole))
    assert of(divided, "epochs").tolist() == [23, 11, 5]
    assert of(ready(dropout=False).select(a_round(3, 3, durations=whole)), "epochs").tolist() == [23, 11, 5]


@given(
    st.lists(st.tuples(st.floats(0.01, 1e3), st.floats(0, 1e3)), min_size=1, max_size=8),
    st.integers(1, 7),
    st.integers(0, 99),
)
def test_no_client_takes_longer_than_the_slowest_nominal_client(
    speeds: list[tuple[float, float]], epochs: int, seed: int
) -> None:
    """Training and upload end before the largest nominal time of a client, and no client trains for fewer than E epochs."""
    m = len(speeds)
    selector = ready(m, epochs, max_epochs=1000)
    computing, sending = np.array(speeds).T
    cohort = selector.select(a_round(m, m, seed=seed, compute_times=computing, upload_times=sending))
    done, sent = of(cohort, "epochs"), of(cohort, "share") * sending
    assert (done >= epochs).all()
    assert (computing * done / epochs + sent <= (computing + sent).max() * (1 + 1e-6)).all()


def test_what_is_known_of_clients_are_their_times_for_complete_models() -> None:
    """The part that a client left out in its last round is not left out of its time again."""
    settings: dict[str, Any] = {"systems": {"latency": {"name": "shifted_exponential", "spread": 5.0}}}
    with a_run_state(
        selection={"name": "pyramidfl", "k": 5, "drop_low": 0.5, "drop_high": 1.0}, **settings
    ) as run_state:
        for t in range(1, 4):
            play_round(run_state, t, test=False)
        known = np.isfinite(run_state.clock.durations)
        assert known.sum() >= 5
        assert run_state.clock.durations[known] == pytest.approx(run_state.clock.nominal(4)[known])


def test_a_run_uploads_less_and_trains_for_more_steps_than_oort() -> None:
    settings: dict[str, Any] = {
        "systems": {"latency": {"name": "shifted_exponential", "spread": 5.0}},
        "training": {"epochs": 2},
    }
    with a_run_state(selection={"name": "oort", "k": 5}, **settings) as run_state:
        plain = [play_round(run_state, t, test=False) for t in range(1, 5)]
    with a_run_state(selection={"name": "pyramidfl", "k": 5}, **settings) as run_state:
        rows = [play_round(run_state, t, test=False) for t in range(1, 5)]

    def uploaded(row: Any) -> int:
        return next(line.bytes_up for line in row.ledger if line.kind == "training")

    assert sum(map(uploaded, rows)) < sum(map(uploaded, plain))
    assert [row.selected for row in rows] == [5] * 4
    assert sum(row.steps for row in rows[1:]) > sum(row.steps for row in plain[1:])
    assert all(np.isfinite(client.loss) for row in rows for client in row.clients)
