"""Models: numbers of parameters, layers, shapes of outputs, and rounds of FedAvg on them."""

import functools
import math
import pickle
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.algorithms import Members
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.token_shape import TokenShape
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.experiment import Experiment
from fedcohort.federation.data.datasets import from_arrays
from fedcohort.federation.federation import Federation, gather
from fedcohort.federation.partition import Iid, partition
from fedcohort.models import MODELS, CnnA, CnnB, CnnStrided, Mlp, Model, ResNet18, as_model
from fedcohort.selection import Cohort
from tests.experiments import small

RESNETS: list[Model] = [ResNet18(), ResNet18(norm="batch")]


def size(model: Model, shape: tuple[int, ...], classes: int = 10) -> int:
    module: nn.Module = model.build(shape, classes)
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        (CnnStrided(), (3, 32, 32), 283_786),
        (CnnA(), (3, 32, 32), 319_178),
        (CnnB(), (3, 32, 32), 1_440_778),
        (CnnB(), (1, 28, 28), 981_450),
        (ResNet18(), (3, 32, 32), 11_173_962),
        (ResNet18(norm="batch"), (3, 32, 32), 11_173_962),
    ],
)
def test_numbers_of_parameters_agree_with_the_docstrings(model: Model, shape: tuple[int, ...], expected: int) -> None:
    assert size(model, shape) == expected
    documented = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]+,\d{3}", type(model).__doc__ or "")]
    assert expected in documented


@pytest.mark.parametrize("hidden", [10**13, 2**63 - 1])
def test_a_model_that_no_memory_can_hold(hidden: int, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"model = Mlp\(hidden=.*: cannot be built for samples of shape .*; choose a smaller one"
    ):
        fedcohort.run(small(model={"name": "mlp", "hidden": hidden}), runs=tmp_path)


def test_layers_of_cnn_b() -> None:
    layers = [(type(part).__name__, getattr(part, "out_channels", getattr(part, "out_features", None))) for part in
             CnnB().build((3, 32, 32), 47).children() if not isinstance(part, nn.ReLU | nn.GroupNorm)]  # fmt: skip
    assert layers == [
        ("Conv2d", 32), ("Conv2d", 64), ("MaxPool2d", None), ("Conv2d", 128), ("MaxPool2d", None), ("Conv2d", 256),
        ("MaxPool2d", None), ("Flatten", None), ("Linear", 256), ("Linear", 47),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (1, 8, 8)])
@pytest.mark.parametrize("name", ["cnn_strided", "cnn_a", "cnn_b", "resnet18", "mlp", "logistic"])
def test_outputs_are_finite_and_one_per_class(name: str, shape: tuple[int, ...]) -> None:
    model: Any = MODELS.find(name, "model.name")()
    module = model.build(shape, 7).eval()
    with torch.no_grad():
        outputs = module(torch.zeros(2, *shape))
    assert outputs.shape == (2, 7)
    assert torch.isfinite(outputs).all()


def test_stem_and_stages_of_resnet18() -> None:
    """The stem keeps 32×32 and the stages halve it three times; the trunk has 17 convolutions and the shortcuts have three."""
    module = ResNet18().build((3, 32, 32), 10).eval()
    sizes = []
    x = torch.zeros(1, 3, 32, 32)
    with torch.no_grad():
        for part in module.children():
            x = part(x)
            sizes.append(tuple(x.shape[1:]))
    assert sizes[2] == (64, 32, 32)
    assert sizes[3:11] == [(64, 32, 32)] * 2 + [(128, 16, 16)] * 2 + [(256, 8, 8)] * 2 + [(512, 4, 4)] * 2
    convolutions = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == 20
    assert convolutions[0].kernel_size == (3, 3)
    assert convolutions[0].stride == (1, 1)
    assert not any(isinstance(part, nn.MaxPool2d) for part in module.modules())


def test_resnet18_has_group_norm_by_default_and_batch_norm_on_request() -> None:
    group = [part for part in ResNet18().build((3, 32, 32), 10).modules() if isinstance(part, nn.GroupNorm)]
    assert len(group) == 20
    assert {part.num_groups for part in group} == {32}
    module = ResNet18(norm="batch").build((3, 32, 32), 10)
    assert not any(isinstance(part, nn.GroupNorm) for part in module.modules())
    assert sum(name.endswith("running_var") for name, _ in module.named_buffers()) == 20


@pytest.mark.parametrize("name", ["cnn_strided", "cnn_a", "cnn_b", "resnet18"])
def test_convolutional_models_reject_tabular_data(name: str) -> None:
    model: Any = MODELS.find(name, "model.name")()
    with pytest.raises(UsageError, match=rf"^model\.name = '{name}': needs images .* the data has \(30,\)"):
        model.build((30,), 2)


def test_cnn_b_rejects_images_below_8x8_and_resnet18_accepts_1x1() -> None:
    with pytest.raises(UsageError, match="at least 8×8"):
        CnnB().build((1, 7, 9), 2)
    assert ResNet18().build((1, 1, 1), 2)(torch.zeros(2, 1, 1, 1)).shape == (2, 2)


def tiny_images() -> Federation:
    draw = np.random.default_rng(0)
    labels = np.arange(32) % 2
    features = (draw.integers(0, 60, (32, 1, 8, 8)) + 120 * labels[:, None, None, None]).astype(np.uint8)
    data = from_arrays((features[:17], labels[:17]), (features[17:], labels[17:]))
    return gather(data, partition(Iid(), data.train_labels, 2, 0), validation=0.2, seed=0)


@pytest.mark.parametrize(
    "model",
    [CnnB(), pytest.param(RESNETS[0], marks=pytest.mark.slow), RESNETS[1], Mlp()],
    ids=["cnn_b", "resnet18", "resnet18-batch", "mlp"],
)
def test_a_round_of_fedavg_averages_parameters_and_buffers(model: Model) -> None:
    """Two clients have 8 and 9 samples, in batches of 8; models with batch norm skip the batch of one sample."""
    algorithm = FedAvg()
    with closing(LocalEngine(tiny_images(), model, Training(batch_size=8, lr=0.01), algorithm, 0, workers=1)) as engine:
        start = engine.initial_model()
        updates = list(engine.train(start, 1, Cohort(np.array([0, 1])), algorithm))
        sizes = sorted(update.num_samples for update in updates)
        assert sizes == [8, 9]
        members = Members(num_clients=2, total_samples=17, k=2)
        merged = algorithm.aggregate(start, iter(updates), members)
        before, after = (engine.evaluate(state, "test").loss for state in (start, merged))
    assert math.isfinite(after)
    assert after != before
    batch_norm = any(name.endswith("running_mean") for name in start)
    steps = {update.num_samples: update.steps for update in updates}
    assert steps == {8: 1, 9: 1 if batch_norm else 2}
    for name, value in merged.items():
        assert value.dtype == start[name].dtype
        if value.is_floating_point():
            mean = sum(u.state[name].double() * u.num_samples for u in updates) / 17
            assert torch.allclose(value.double(), torch.as_tensor(mean), rtol=1e-5, atol=1e-6)
        else:
            assert int(value) == max(int(update.state[name]) for update in updates)


@pytest.mark.parametrize("name", ["function", "Network", "instance"])
def test_a_function_class_or_instance_in_a_users_file_is_a_model(tmp_path: Path, name: str) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def function(shape, num_classes):\n    return nn.Linear(shape[0], num_classes)\n"
        "class Network(nn.Linear):\n    def __init__(self):\n        super().__init__(5, 3)\n"
        "instance = Network()\n"
    )
    experiment = Experiment(model={"name": f"{tmp_path / 'net.py'}:{name}"})
    assert size(experiment.model.build(), (5,), 3) == 18


def test_a_model_in_a_users_file_takes_no_parameters(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def function(shape, num_classes): ...\n")
    with pytest.raises(UsageError, match=r"^model.width: '.*' takes no parameters"):
        Experiment(model={"name": f"{tmp_path / 'net.py'}:function", "width": 3})


def test_an_argument_of_a_network_is_no_setting_and_the_message_says_how_to_make_it_one(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def net(shape, num_classes, width=48): ...\n")
    with pytest.raises(UsageError) as refused:
        Experiment(model={"name": f"{tmp_path / 'net.py'}:net", "width": 3})
    assert str(refused.value) == (
        "model.width: net is called with (shape, num_classes) only; to set width, write a fedcohort.Model with @parameters and a "
        "field width, whose build(self, shape, num_classes) returns net(shape, num_classes, width=self.width)"
    )


def test_a_network_for_a_number_of_inputs_is_told_what_it_gets() -> None:
    class Table(nn.Module):
        def __init__(self, n_in: int, n_out: int) -> None:
            super().__init__()
            self.layer = nn.Linear(n_in, n_out)

    told = (
        r"^model: test_a_network.*Table\.__init__ raised TypeError: .*test_networks.py:\d+\); it is called with the shape of a sample "
        r"and the number of classes, here \(\(5,\), 3\)$"
    )
    with pytest.raises(UsageError, match=told):
        as_model(Table).build(TokenShape((5,)), 3)


def test_of_a_function_of_a_library_only_what_it_requires_counts() -> None:
    """``nn.Linear`` with its sizes takes three more arguments, which are neither a shape nor a number of classes."""
    assert size(as_model(functools.partial(nn.Linear, 5, 3)), (5,), 3) == 18


def test_an_error_of_a_library_says_what_its_function_is_called_with() -> None:
    with pytest.raises(
        UsageError,
        match=r"^model: Linear raised TypeError: .*; it is called with the shape of a sample .* \(\(5,\), 3\)$",
    ):
        as_model(nn.Linear).build((5,), 3)
    with pytest.raises(UsageError, match=r"^model: Embedding raised RuntimeError: .*; it is called with no arguments$"):
        as_model(functools.partial(nn.Embedding, -1, 4)).build((5,), 3)


def test_a_function_that_returns_the_same_parameters_again_is_refused() -> None:
    """Threads, and the runs of several seeds, would train them together. Frozen parameters can be shared."""
    network, body = nn.Linear(4, 3), nn.Linear(4, 4)
    for same in (lambda: network, lambda: nn.Sequential(body, nn.Linear(4, 3))):
        model = as_model(same)
        model.build((4,), 3)
        with pytest.raises(
            UsageError, match=r"returned a network whose parameter \S+ is that of an earlier one; build a new"
        ):
            model.build((4,), 3)
    stored = pickle.dumps(network)
    again = as_model(lambda: pickle.loads(stored))
    assert again.build((4,), 3) is not again.build((4,), 3)
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model = as_model(lambda: nn.Sequential(frozen, nn.Linear(4, 3)))
    assert all(next(model.build((4,), 3).children()) is frozen for _ in range(2))
    given = as_model(network)
    assert given.build((4,), 3) is not given.build((4,), 3)
