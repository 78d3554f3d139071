"""The choice of a plan: by measurement, once, kept in the cache and with the run."""

import json
import logging
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from filelock import FileLock

import fedcohort
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines import plans
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.engines.plans import Choice, choose_plan
from fedcohort.experiment import Experiment
from fedcohort.models import Mlp
from fedcohort.record import Run
from fedcohort.testing.base import small_federation
from tests.experiments import small
from tests.golden.test_same_bits import record


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "plans"


def fake_times(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> list[str]:
    """A machine on which a step takes so long by each plan; the plans that were played."""
    played: list[str] = []
    now = [0.0]

    def play(engine: LocalEngine, start: Any, algorithm: Any, clients: int) -> int:
        played.append(engine.plan)
        now[0] += seconds[engine.plan]
        return 1

    monkeypatch.setattr(plans, "_play", play)
    monkeypatch.setattr(choose_plan, "__defaults__", ("exact", lambda: now[0]))
    return played


def choose(k: int = 7, **training: Any) -> Choice:
    settings = Training(**{"batch_size": 4, **training})
    return choose_plan(small_federation(trouble=False), Mlp(hidden=5), settings, FedAvg(), 3, 2, k)


@pytest.mark.parametrize(
    ("seconds", "plan"),
    [
        ({"loop": 0.010, "threads": 0.006, "stacked": 0.002}, "stacked"),
        ({"loop": 0.010, "threads": 0.006, "stacked": 0.005}, "threads"),  # not clearly faster
        ({"loop": 0.010, "threads": 0.016, "stacked": 0.030}, "loop"),
        ({"loop": 0.010, "threads": 0.014, "stacked": 0.030}, "threads"),  # not clearly slower
        ({"loop": 2.0, "threads": 1.0, "stacked": 0.1}, "threads"),  # too slow to measure
    ],
)
def test_the_fastest_is_chosen(seconds: dict[str, float], plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, **seconds)
    choice = choose()
    assert choice.plan == plan
    assert not choice.known
    measured = choice.seconds
    assert measured == pytest.approx({name: seconds[name] for name in measured})


@pytest.mark.parametrize(("cut", "whole", "plan"), [(0.004, 0.007, "threads"), (0.009, 0.004, "stacked")])
def test_stacks_that_win_or_lose_with_cut_clients_only_are_measured_again(
    cut: float, whole: float, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes 10 ms, so that about ten are measured first: one of each of seven clients, which have up to ten."""
    measured = []

    def play(engine: LocalEngine, start: Any, algorithm: Any, clients: int) -> int:
        most = int(engine.federation.num_samples.max())
        measured.append(most)
        now[0] += {"loop": 0.010, "threads": 0.006, "stacked": cut if most <= 2 else whole}[engine.plan]
        return 1

    now = [0.0]
    monkeypatch.setattr(plans, "_play", play)
    monkeypatch.setattr(choose_plan, "__defaults__", ("exact", lambda: now[0]))
    choice = choose(batch_size=2)
    assert choice.plan == plan
    assert choice.seconds == pytest.approx({"loop": 0.010, "threads": 0.006, "stacked": whole})
    assert measured[0] < measured[-1]


def test_the_time_of_a_step_is_not_that_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client takes 5 ms in addition to its steps of 0.5 ms each, so clients are not cut to those few that 5.5 ms a step allow."""
    measured = []

    def play(engine: LocalEngine, start: Any, algorithm: Any, clients: int) -> int:
        sizes = engine.federation.num_samples[:clients]
        measured.append(sizes.tolist())
        now[0] += 0.005 * clients + 0.0005 * sizes.sum()
        return int(sizes.sum())

    now = [0.0]
    monkeypatch.setattr(plans, "_play", play)
    monkeypatch.setattr(choose_plan, "__defaults__", ("exact", lambda: now[0]))
    choose(batch_size=1)
    assert measured[:4] == [[1], [1], [10], [10]]
    assert max(measured[4]) == small_federation(trouble=False).num_samples.max() > 10


def test_it_is_measured_once_for_what_it_depends_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = fake_times(monkeypatch, loop=0.02, threads=0.006, stacked=0.002)
    first = choose()
    many = len(played)
    again = choose()
    assert (again.plan, again.known, len(played)) == (first.plan, True, many)
    assert str(again) == "plan stacked: loop 20, threads 6, stacked 2 ms per step (measured before)"
    choose(batch_size=5)
    choose(k=3)
    assert len(list(cache.iterdir())) == 3
    assert len(played) == 3 * many
    for entry in cache.iterdir():
        entry.write_text('{"plan": "warp"}')
    assert not choose().known  # a damaged answer is none


def test_what_cannot_be_stacked_is_measured_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(FedAvg):
        def correct(self, problem: Any, gradients: Any) -> None:
            pass

    fake_times(monkeypatch, loop=0.01, threads=0.006, stacked=0.001)
    choice = choose_plan(small_federation(trouble=False), Mlp(), Training(), Own(), 3, 2, 7)
    assert choice.plan == "threads"
    assert "clients cannot be stacked: the client half of Own works on one client at a time" in choice.why


def test_a_choice_against_the_shortest_time_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, loop=0.010, threads=0.012, stacked=0.0118)
    choice = choose()
    assert choice.plan == "threads"
    assert choice.why == (
        "loop 10, threads 12, stacked 12 ms per step; threads also share evaluations and questions to clients; "
        "stacks, which change last digits, are taken if they need at most 80% of the time"
    )


def test_really_measured() -> None:
    """Whatever comes out, it is one of the three, from times above 0; and the second time it comes from the cache."""
    choice = choose()
    assert choice.plan in ("loop", "threads", "stacked")
    assert set(choice.seconds) == {"loop", "threads", "stacked"}
    assert min(choice.seconds.values()) > 0
    assert choose() == Choice(choice.plan, choice.why, choice.seconds, known=True)


def test_typical_clients_have_data_and_are_cut() -> None:
    federation = small_federation()
    clients = plans._typical(federation.num_samples, 4)
    assert (np.diff(federation.num_samples[clients]) > 0).all()
    assert 5 not in plans._typical(federation.num_samples, 40)  # it has no samples
    cut = plans._cut(federation, clients, 6)
    assert cut.num_samples.tolist() == np.minimum(federation.num_samples[clients], 6).tolist()
    assert (cut.client(1).features == federation.client(int(clients[1])).features[:6]).all()


@pytest.mark.parametrize(
    ("steps", "budget", "most"),
    [
        ([3, 3, 3], 9, 3),
        ([3, 3, 3], 8.9, 2),
        ([1, 4, 100], 105, 100),
        ([1, 4, 100], 60, 55),
        ([50, 60], 3, 1),
        ([9], 1.0, 1),
    ],
)
def test_clients_are_cut_only_as_much_as_the_time_demands(steps: list[int], budget: float, most: int) -> None:
    """Many steps of one client among others with few are measured, because stacks are much slower with them."""
    found = plans._most_steps(np.array(steps), budget)
    assert found == most
    assert found == 1 or np.minimum(steps, found).sum() <= budget


# --- in runs ---------------------------------------------------------------------------------------------------------------


def auto(**values: Any) -> Experiment:
    return small(rounds=3, engine={"plan": "auto"}, **values)


def chosen(run: Run) -> str:
    return str(run.experiment.engine.plan)


@pytest.mark.parametrize("plan", ["loop", "stacked"])
def test_a_run_keeps_the_chosen_plan(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the run of that plan, bit for bit and by name; a second one finds it, even if a new measurement would choose another."""
    said = {"loop": 0.01, "threads": 0.02, "stacked": 0.02} | {plan: 0.001}
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "fedcohort"):
        fake_times(patch, **said)
        run = fedcohort.run(auto(), runs=tmp_path / "auto")
    assert caplog.messages[0].startswith(f"plan {plan}: loop ")
    assert chosen(run) == plan == run.meta["plan"]
    explicit = fedcohort.run(small(rounds=3, engine={"plan": plan}), runs=tmp_path / "explicit")
    assert explicit.path.name == run.path.name
    assert record(explicit) == record(run)
    other = {"loop": "stacked", "stacked": "loop"}[plan]
    monkeypatch.setattr("fedcohort.engines.plans.choose_plan", lambda *_: Choice(other, "", {}))  # type: ignore[arg-type]
    assert fedcohort.run(auto(), runs=tmp_path / "auto").path == run.path


def test_an_interrupted_run_goes_on_by_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcohort.experiment.given_objects import Given
    from fedcohort.runs.play_run import Interrupted, run_cell
    from tests.experiments import cell

    monkeypatch.setattr(
        "fedcohort.engines.plans.choose_plan", lambda *_: Choice("stacked", "", {"loop": 2.0, "stacked": 1.0})
    )
    straight = fedcohort.run(auto(), runs=tmp_path / "straight")

    def stop(*_: Any) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        run_cell(cell(auto()), Given(), runs=tmp_path / "stopped", progress=stop)
    monkeypatch.setattr("fedcohort.engines.plans.choose_plan", lambda *_: Choice("loop", "", {}))
    resumed = fedcohort.run(auto(), runs=tmp_path / "stopped")
    assert chosen(resumed) == "stacked"
    assert record(resumed) == record(straight)


def test_the_answer_is_readable(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, loop=0.01, threads=0.006, stacked=0.002)
    choose()
    (entry,) = cache.iterdir()
    assert json.loads(entry.read_text())["plan"] == "stacked"


def test_the_first_of_two_answers_stays_and_a_damaged_one_does_not(cache: Path) -> None:
    """Also on disks without links to files."""
    cache.mkdir(parents=True)
    entry = cache / "entry.json"
    plans._write(entry, Choice("loop", "the first", {}))
    plans._write(entry, Choice("threads", "the second", {}))
    assert json.loads(entry.read_text())["why"] == "the first"
    entry.write_text("{")
    plans._write(entry, Choice("threads", "the third", {}))
    assert json.loads(entry.read_text())["why"] == "the third"
    assert list(cache.iterdir()) == [entry]


@pytest.mark.parametrize("error", [NotImplementedError("no locks"), PermissionError(13, "Permission denied")])
def test_an_answer_that_cannot_be_kept_is_no_error(
    error: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    cache.mkdir(parents=True)
    monkeypatch.setattr(FileLock, "acquire", refuse)
    plans._write(cache / "entry.json", Choice("loop", "", {}))
    assert not list(cache.iterdir())


def test_it_is_measured_as_it_will_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the run's arithmetic, which has an answer of its own; torch's switches are as they were afterwards."""
    seen, make = [], LocalEngine.__init__

    def noted(self: LocalEngine, *args: Any, **values: Any) -> None:
        seen.append(values["arithmetic"])
        make(self, *args, **values)

    monkeypatch.setattr(LocalEngine, "__init__", noted)
    for kind in ("exact", "bf16"):
        seen.clear()
        choose_plan(small_federation(trouble=False), Mlp(hidden=5), Training(batch_size=4), FedAvg(), 3, 2, 7, kind)
        assert set(seen) == {kind}


def test_if_an_engine_cannot_be_built_those_before_it_are_closed() -> None:
    closed: list[str] = []

    class Probe:
        def __init__(self, plan: str) -> None:
            if plan == "stacked":
                raise MemoryError
            self.plan = plan

        def close(self) -> None:
            closed.append(self.plan)

    stopwatch = plans._Stopwatch(lambda plan, _: cast(LocalEngine, Probe(plan)), FedAvg(), lambda: 0.0)
    with pytest.raises(MemoryError):
        stopwatch.steps(["loop", "threads", "stacked"], small_federation(trouble=False))
    assert closed == ["threads", "loop"]
