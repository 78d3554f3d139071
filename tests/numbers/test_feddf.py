"""FedDF (spec G7): worked losses, edge cases on a small network, and whole runs."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import Members, ModelState, Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.feddf import FedDF, distillation_loss, targets
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.experiment import Experiment
from fedcohort.testing.base import bits
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.resume.test_resume import stop_after

# --- the loss --------------------------------------------------------------------------------------------------------------

TEACHERS = torch.tensor([[[2.0, 0, 0]], [[0, 2.0, 0]]], dtype=torch.float64)
STUDENT = torch.tensor([[1.0, 0, 0]], dtype=torch.float64)
ONCE = torch.ones(2, dtype=torch.float64)


def test_worked_loss_of_averaged_logits() -> None:
    q, constant = targets(TEACHERS, ONCE, 1.0, "avg_logits")
    assert q[0].tolist() == pytest.approx([0.422319, 0.422319, 0.155362], abs=5e-7)
    assert float(distillation_loss(q, constant, STUDENT, 1.0)) == pytest.approx(0.111769, abs=5e-7)


def test_worked_loss_of_averaged_losses() -> None:
    q, constant = targets(TEACHERS, ONCE, 1.0, "avg_losses")
    loss = float(distillation_loss(q, constant, STUDENT, 1.0))
    assert loss == pytest.approx(0.439126, abs=5e-7)
    log_p = functional.log_softmax(STUDENT, dim=-1)
    each = [functional.kl_div(log_p, functional.softmax(z, -1), reduction="batchmean") for z in TEACHERS]
    assert loss == pytest.approx(float(sum(each)) / 2, rel=1e-12)


def test_averaged_probabilities_have_the_gradient_of_averaged_losses() -> None:
    result = {}
    for target in ("avg_probs", "avg_losses"):
        student = STUDENT.clone().requires_grad_()
        loss = distillation_loss(*targets(TEACHERS, ONCE, 2.0, target), student, 2.0)
        (result[target],) = torch.autograd.grad(loss, student)
    assert torch.equal(result["avg_probs"], result["avg_losses"])
    q, constant = targets(TEACHERS, ONCE, 1.0, "avg_probs")
    kl = functional.kl_div(functional.log_softmax(STUDENT, -1), q, reduction="batchmean")
    assert float(distillation_loss(q, constant, STUDENT, 1.0)) == pytest.approx(float(kl), rel=1e-12)


@pytest.mark.parametrize("target", ["avg_logits", "avg_losses", "avg_probs"])
def test_the_loss_is_zero_when_all_teachers_equal_the_student(target: Any) -> None:
    same = STUDENT.expand(4, 1, 3)
    loss = distillation_loss(*targets(same, torch.ones(4), 1.0, target), STUDENT, 1.0)
    assert float(loss) == pytest.approx(0, abs=1e-15)


def test_a_teacher_drawn_twice_counts_twice() -> None:
    twice, _ = targets(TEACHERS, torch.tensor([2.0, 1.0]), 1.0, "avg_logits")
    thrice, _ = targets(TEACHERS[[0, 0, 1]], torch.ones(3), 1.0, "avg_logits")
    assert torch.allclose(twice, thrice, rtol=1e-14)


# --- distillation on a small network -----------------------------------------------------------------------------------------

CLASSES = 3


def samples(n: int, purpose: str) -> tuple[Tensor, Tensor]:
    draw = rng(0, purpose)
    labels = torch.from_numpy(draw.integers(0, CLASSES, n))
    features = torch.from_numpy(draw.normal(size=(n, 2))) * 0.5 + 2.0 * torch.eye(CLASSES, 2)[labels]
    return features.float(), labels


def small_tools(*, validation: int = 60, public: int = 100, build: Any = None) -> ServerTools:
    return ServerTools(
        build=build or (lambda: nn.Linear(2, CLASSES)),
        prepared=lambda features, dtype: features.to(dtype),
        num_classes=CLASSES,
        public=samples(public, "public")[0],
        validation=samples(validation, "validation"),
        seed=0,
    )


def linear(seed: int, scale: float = 1.0) -> ModelState:
    """A linear model that separates the classes, with noise."""
    draw = rng(seed, "model")
    weight = torch.tensor([[2.0, -1], [-1, 2.0], [-1, -1]]) + torch.from_numpy(draw.normal(size=(CLASSES, 2))).float()
    return {"weight": weight * scale, "bias": torch.zeros(CLASSES)}


def update(client: int, state: ModelState, **values: Any) -> Update:
    return Update(client, 10 * (client + 1), 1, state, **values)


MEMBERS = Members(num_clients=10, total_samples=550, k=3)


def merge(
    algorithm: FedDF, updates: Sequence[Update], tools: ServerTools | None = None, members: Members = MEMBERS
) -> ModelState:
    algorithm.prepare(tools or small_tools())
    return algorithm.aggregate(linear(99), iter(updates), members)


THREE = [update(i, linear(i)) for i in range(3)]


def mean(updates: Sequence[Update]) -> ModelState:
    total = sum(u.num_samples for u in updates)
    return {
        name: sum(u.state[name].double() * u.num_samples / total for u in updates).float()  # type: ignore[union-attr]
        for name in updates[0].state
    }


def test_distillation_moves_the_average_towards_the_ensemble() -> None:
    tools = small_tools()
    student, average = merge(FedDF(), THREE, tools), mean(THREE)

    def loss(state: ModelState) -> float:
        logits = torch.stack([tools.logits(tools.model(u.state), tools.public) for u in THREE])
        q, constant = targets(logits, torch.ones(3), 1.0, "avg_logits")
        student = tools.logits(tools.model(state), tools.public)
        return float(distillation_loss(q.detach(), constant.detach(), student.detach(), 1.0))

    assert loss(student) < 0.5 * loss(average)


def test_distillation_agrees_with_an_independent_loop() -> None:
    """Five batches of a small public set, with a cosine schedule of the learning rate and gradients clipped to norm 5."""
    tools = small_tools(validation=0, public=20)
    result = merge(FedDF(max_batches=5, batch_size=8, lr=0.1), THREE, tools)
    student = nn.Linear(2, CLASSES)
    student.load_state_dict(mean(THREE))
    teachers = [tools.model(u.state) for u in THREE]
    optimizer = torch.optim.Adam(student.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    draw = tools.rng("distillation", 1)
    order = [torch.from_numpy(draw.permutation(20)) for _ in range(2)]
    for index in (order[0][:8], order[0][8:16], order[0][16:], order[1][:8], order[1][8:16]):
        with torch.no_grad():
            q = functional.softmax(sum(t(tools.public[index]) for t in teachers) / 3, -1)
        loss = functional.kl_div(functional.log_softmax(student(tools.public[index]), -1), q, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 5)
        optimizer.step()
        scheduler.step()
    for name, value in student.state_dict().items():
        assert torch.allclose(result[name], value, rtol=1e-4, atol=1e-6)


def test_with_one_teacher_the_result_is_the_teacher() -> None:
    assert bits(merge(FedDF(), THREE[1:2])) == bits(THREE[1].state)


def test_with_identical_teachers_the_result_is_that_model() -> None:
    alike = [dataclasses.replace(u, state=THREE[0].state) for u in THREE]
    assert bits(merge(FedDF(), alike)) == bits(THREE[0].state)


def test_without_an_update_the_model_stays_unchanged() -> None:
    assert bits(merge(FedDF(), [])) == bits(linear(99))


def test_without_a_validation_set_the_last_student_is_the_result() -> None:
    tools = small_tools(validation=0)
    short, long = (merge(FedDF(max_batches=n), THREE, tools) for n in (10, 60))
    assert bits(short) != bits(long)
    assert all(torch.isfinite(value).all() for value in long.values())
    assert bits(merge(FedDF(max_batches=10, eval_every=3, patience=1), THREE, tools)) == bits(short)


def test_teachers_with_infinite_outputs_are_excluded() -> None:
    overflowing = update(3, linear(3, scale=3e38 / 4))
    assert torch.isfinite(overflowing.state["weight"]).all()
    assert bits(merge(FedDF(), [*THREE, overflowing])) == bits(merge(FedDF(), THREE))
    assert bits(merge(FedDF(), [THREE[0], overflowing])) == bits(THREE[0].state)
    algorithm = FedDF()
    merge(algorithm, [*THREE, overflowing])
    assert [algorithm.weighed()[i] > 0 for i in range(4)] == [True, True, True, False]
    assert bits(merge(FedDF(), [overflowing, update(4, linear(4, scale=3e38 / 4))])) == bits(linear(99))


def test_drop_worst_excludes_bad_teachers_from_the_ensemble_but_not_from_the_average() -> None:
    wrong = update(3, {"weight": -linear(3)["weight"], "bias": torch.zeros(CLASSES)})
    tools = small_tools()
    assert tools.accuracy(tools.model(wrong.state)) <= 1 / CLASSES
    result = merge(FedDF(drop_worst=True), [*THREE, wrong], tools)
    assert bits(result) != bits(merge(FedDF(), [*THREE, wrong], tools))
    assert bits(merge(FedDF(drop_worst=True), THREE, tools)) == bits(merge(FedDF(), THREE, tools))
    alone = merge(FedDF(drop_worst=True), [wrong, dataclasses.replace(wrong, client=4)], tools)
    assert bits(alone) == bits(wrong.state)


def test_the_only_teacher_that_is_better_than_chance_is_the_result() -> None:
    wrong = update(3, {"weight": -linear(3)["weight"], "bias": torch.zeros(CLASSES)})
    algorithm = FedDF(drop_worst=True)
    assert bits(merge(algorithm, [THREE[0], wrong])) == bits(THREE[0].state)
    assert [algorithm.weighed()[client] > 0 for client in (0, 3)] == [True, False]


def set_validation_accuracies(monkeypatch: pytest.MonkeyPatch, *values: float) -> list[ModelState]:
    """Make successive evaluations return these accuracies; returns a list that collects the evaluated models."""
    remaining, seen = iter(values), list[ModelState]()

    def accuracy(self: ServerTools, module: nn.Module) -> float:
        seen.append({name: value.clone() for name, value in module.state_dict().items()})
        return next(remaining)

    monkeypatch.setattr(ServerTools, "accuracy", accuracy)
    return seen


def test_distillation_stops_after_patience_and_returns_the_best_student(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best student is that after 20 batches, and distillation stops 20 batches later."""
    seen = set_validation_accuracies(monkeypatch, 0.5, 0.7, 0.6, 0.65, 0.9)
    result = merge(FedDF(eval_every=10, patience=20), THREE)
    assert len(seen) == 4
    assert bits(result) == bits(seen[1])


@pytest.mark.parametrize(("first", "wins"), [(0.8, 0), (0.7, 2), (0.6, 2)])
def test_return_best_returns_the_average_if_no_student_is_better(
    first: float, wins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set_validation_accuracies(monkeypatch, first, 0.5, 0.7, 0.6)
    result = merge(FedDF(return_best=True, max_batches=30, eval_every=10), THREE)
    assert bits(seen[0]) == bits(FedAvg().aggregate(linear(99), iter(THREE), MEMBERS))
    assert bits(result) == bits(seen[wins])


def test_entries_that_a_teacher_did_not_send_are_those_of_the_received_model() -> None:
    masked = [dataclasses.replace(u, sent=frozenset({"weight"})) for u in THREE]
    filled = [dataclasses.replace(u, state={"weight": u.state["weight"], "bias": linear(99)["bias"]}) for u in THREE]
    assert bits(merge(FedDF(), masked)) == bits(merge(FedDF(), filled))


def test_refresh_statistics_recomputes_batch_norm_on_public_samples() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, CLASSES))

    def state(i: int) -> ModelState:
        fresh = {name: value.clone() for name, value in build().state_dict().items()}
        return fresh | {f"1.{name}": value for name, value in linear(i).items()}

    tools = small_tools(build=build)
    updates = [update(i, state(i)) for i in range(3)]
    result = {refresh: merge(FedDF(refresh_statistics=refresh), updates, tools) for refresh in (False, True)}
    assert result[True]["0.running_mean"].tolist() == pytest.approx(tools.public.mean(0).tolist(), abs=1e-5)
    assert not torch.equal(result[True]["0.running_mean"], result[False]["0.running_mean"])
    assert result[True]["0.num_batches_tracked"].dtype == torch.int64


def test_distillation_is_identical_for_any_number_of_threads() -> None:
    before, result = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            result.append(bits(merge(FedDF(), THREE)))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert result[0] == result[1]


def test_weight_modes_that_are_no_average_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"^algorithm\.weights = 'unbiased': FedDF averages"):
        FedDF(weights="unbiased")


# --- whole runs --------------------------------------------------------------------------------------------------------------

SETTING: dict[str, Any] = {
    "rounds": 3,
    "public": {"name": "holdout"},
    "federation": {"partition": {"name": "dirichlet_class", "alpha": 0.5}, "label_noise": {"name": "constant", "rate": 0.15}},
    "systems": {"dropout": 0.2},
}  # fmt: skip
SHORT_FEDDF = {"name": "feddf", "max_batches": 60, "eval_every": 20}


def test_a_resumed_run_equals_an_uninterrupted_run_and_describes_the_public_samples(tmp_path: Path) -> None:
    experiment = small(**SETTING, algorithm=SHORT_FEDDF)
    uninterrupted = fedcohort.run(experiment, runs=tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(experiment, runs=tmp_path / "b", progress=stop_after(1))
    resumed = fedcohort.run(experiment, runs=tmp_path / "b")
    assert record(resumed) == record(uninterrupted)
    assert all(math.isfinite(loss) for loss in uninterrupted.rounds["test_loss"])
    assert uninterrupted.meta["public"].startswith("holdout: a random 0.1 of the training samples")


def test_a_run_without_a_validation_set_has_finite_losses(tmp_path: Path) -> None:
    run = fedcohort.run(small(**SETTING, algorithm=SHORT_FEDDF, data={"validation": 0.0}), runs=tmp_path)
    assert all(math.isfinite(loss) for loss in run.rounds["test_loss"])


def test_public_samples_are_removed_from_the_clients_under_every_algorithm(tmp_path: Path) -> None:
    sizes = []
    for algorithm in (SHORT_FEDDF, {"name": "fedavg"}):
        values = SETTING | {"systems": {}}
        run = fedcohort.run(small(**values, algorithm=algorithm, selection="all"), runs=tmp_path)
        sizes.append(run.clients.groupby("client")["num_samples"].first())
    assert sizes[0].equals(sizes[1])
    without = fedcohort.run(small(rounds=1, selection="all"), runs=tmp_path)
    everything = int(without.clients["num_samples"].sum())
    assert int(sizes[0].sum()) == everything - round(0.1 * everything)


def test_missing_public_samples_and_public_samples_that_differ_between_rows_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"^public\.name = 'none': 'feddf' needs public samples; use 'holdout'"):
        Experiment(algorithm="feddf")
    row = {"label": "x", "public": {"name": "holdout"}}
    with pytest.raises(UsageError, match=r"variants\.x\.public: cannot differ between rows"):
        Experiment(variants=[row])
    with pytest.raises(UsageError, match=r"sweep\.public\.share: cannot differ between rows"):
        Experiment(sweep={"public.share": [0.1, 0.2]})


def test_proxy_data_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    for name, message in (
        ("breast_cancer", r"its samples are float32 \[30\], the clients' are uint8"),
        ("digits", "same samples"),
    ):
        experiment = small(algorithm="feddf", public={"name": name})
        with pytest.raises(UsageError, match=rf"public\.name = '{name}': .*{message}"):
            fedcohort.run(experiment, runs=tmp_path)


def test_a_run_uses_proxy_data_of_the_same_shape(tmp_path: Path) -> None:
    """The proxy is a folder of images with the shape of digits."""
    from PIL import Image

    draw = rng(0, "proxy")
    for i in range(40):
        folder = tmp_path / "other" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 17, (8, 8)).astype("uint8")).save(folder / f"{i}.png")
    experiment = small(**SETTING | {"rounds": 1, "public": {"name": str(tmp_path / "other")}}, algorithm=SHORT_FEDDF)
    run = fedcohort.run(experiment, runs=tmp_path / "runs")
    assert run.meta["public"] == f"proxy: {tmp_path / 'other'}, labels discarded"
    assert "+" in run.meta["data"]
