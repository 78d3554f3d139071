"""What runs on :mod:`tests.engines.pretend`: every algorithm, every strategy, convolutions, a run that goes on; against the CPU.

``python -m tests.engines.pretend_cases`` prints as JSON how many cases there were, and what is wrong with those that failed.
"""

import itertools
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from tests.engines import pretend


def rounds(device: str, strategy: str, algorithm: str, again: bool, model: Any, **values: Any) -> Any:
    """Three rounds on ``device``, what they came to; ``again``: the last one after a checkpoint."""
    from fedcohort.core.files.state_files import pack, unpack
    from fedcohort.engines.device import moved
    from fedcohort.engines.local_engine import LocalEngine
    from fedcohort.experiment.given_objects import Given
    from fedcohort.runs import run_engine
    from fedcohort.runs.prepare_run import prepare
    from tests.experiments import cell
    from tests.matrix.hard_federation import hard, play_rounds

    experiment = cell(hard(strategy, algorithm, **values)).experiment
    with patch.object(run_engine, "pick_device", lambda name: device):
        with prepare(experiment, Given(model=model)) as (run_state, _):
            rows = play_rounds(run_state, (1, 2))
            state = pack(run_state.state_dict())
            if not again:
                rows += play_rounds(run_state, (3,))
                return rows, run_state.model
        with prepare(experiment, Given(model=model)) as (run_state, _):
            assert isinstance(run_state.engine, LocalEngine)
            run_state.load_state_dict(moved(unpack(state), run_state.engine.device))
            return rows + play_rounds(run_state, (3,)), run_state.model


def differences(
    strategy: str, algorithm: str, again: bool = False, model: Any = None, device: str = "pretend:0", **values: Any
) -> list[str]:
    """What is not the same on ``device`` as on the CPU: the picks, and to rounding the numbers; and what is not on the device."""
    (rows, state), (others, other) = (
        rounds(where, strategy, algorithm, again, model, **values) for where in ("cpu", device)
    )
    wrong = []
    for row, found in zip(rows, others, strict=True):
        picks, there = ([client.client for client in one.clients] for one in (row, found))
        if picks != there:
            wrong.append(f"round {row.round}: {there} were picked instead of {picks}")
        if not np.isclose(found.test_loss, row.test_loss, rtol=1e-3, atol=0, equal_nan=True):
            wrong.append(f"round {row.round}: the test loss is {found.test_loss} instead of {row.test_loss}")
    for name, value in state.items():
        if other[name].device.type != torch.device(device).type:
            wrong.append(f"{name} is on the {other[name].device}")
        try:
            torch.testing.assert_close(other[name].cpu(), value, rtol=1e-2, atol=1e-4)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    return wrong


def agrees(strategy: str, algorithm: str, **values: Any) -> None:
    """There are no :func:`differences`."""
    wrong = differences(strategy, algorithm, **values)
    assert not wrong, wrong


def images(shape: tuple[int, ...], classes: int) -> nn.Module:
    parts = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*parts, nn.Conv2d(4, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


def no_waiting(plan: str, model: Any) -> None:
    """Twice as many steps make a program wait for the GPU no more often."""
    from fedcohort.algorithms.methods.fedavg import FedAvg
    from fedcohort.algorithms.training_settings import Training
    from fedcohort.engines.local_engine import LocalEngine
    from fedcohort.federation.federation import Federation, Samples
    from fedcohort.models import as_model
    from fedcohort.selection import Cohort

    m, n = 4, 12
    samples = Samples(torch.randn(m * n, 1, 8, 8), torch.arange(m * n) % 3)
    offsets, ends = np.arange(m + 1) * n, (torch.zeros(1), torch.ones(1))
    federation = Federation(samples, offsets, samples, samples, ("0", "1", "2"), *ends).to("pretend:0")
    waits = []
    for epochs in (2, 4):
        training = Training(batch_size=5, epochs=epochs)
        engine = LocalEngine(federation, as_model(model), training, FedAvg(), 0, 1, plan=plan)  # type: ignore[arg-type]
        start = engine.initial_model()
        waits.append(pretend.GPU.waited(lambda: list(engine.train(start, 1, Cohort(np.arange(m)), FedAvg()))))  # noqa: B023
        engine.close()
    assert len(waits[0]) == len(waits[1]), waits


def arithmetic_is_put_back() -> None:
    """An engine on a device sets torch's switches while it is open, and close, also twice, leaves them as they were."""
    from fedcohort.algorithms.methods.fedavg import FedAvg
    from fedcohort.algorithms.training_settings import Training
    from fedcohort.engines.local_engine import LocalEngine
    from fedcohort.models import Mlp
    from fedcohort.testing.base import small_federation

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

    def now() -> tuple[bool, bool, bool]:
        return matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic

    federation = small_federation(trouble=False).to("pretend:0")
    before = now()
    for kind, wanted in (("exact", (False, False, True)), ("tf32", (True, True, False))):
        engine = LocalEngine(federation, Mlp(hidden=5), Training(), FedAvg(), 0, 1, arithmetic=kind)  # type: ignore[arg-type]
        assert now() == wanted != before, kind
        engine.close()
        assert now() == before, f"{kind}: {now()} after close, {before} before the engine was made"
        matmul.allow_tf32 = not before[0]  # set by the program meanwhile
        engine.close()
        assert now()[0] is not before[0], "a second close changed what was set after the first"
        matmul.allow_tf32 = before[0]


def refusals() -> None:
    """The device is not what a CPU is."""
    there = torch.ones(3, 3).to("pretend:0")
    ways: dict[str, Callable[[], object]] = {}
    ways["an addition"] = lambda: there + torch.ones(3)
    ways["a choice of rows"] = lambda: there.index_select(0, torch.arange(2))
    ways["a view by numpy"] = lambda: there.numpy()
    parameter = there.clone().requires_grad_()
    parameter.grad = there.clone().T
    ways["a fused step over two layouts"] = torch.optim.SGD([parameter], 0.1, fused=True).step
    for name, way in ways.items():
        try:
            way()
        except (RuntimeError, TypeError):
            continue
        raise AssertionError(f"{name} was not refused")
    if pretend.WITHOUT_FLOAT64:
        try:
            there.double()
        except TypeError:
            pass
        else:
            raise AssertionError("float64 was not refused")
    assert (there + torch.tensor(1.0) + there[torch.arange(3)]).device.type == "pretend"
    assert pretend.GPU.waited(lambda: float(there.sum())) == ["_local_scalar_dense"]


def cases() -> dict[str, Callable[[], None]]:
    """A few that together reach every part; by name."""
    stacks: dict[str, Any] = {"engine": {"plan": "stacked", "workers": 2}}
    return {
        "what is refused": refusals,
        "arithmetic": arithmetic_is_put_back,
        "a trained answer, gone on with": partial(agrees, "ocs", "scaffold", again=True),
        "stacks of images": partial(agrees, "uniform", "fedavg", model=images, **stacks),
        "steps of stacks": partial(no_waiting, "stacked", images),
    }


def all_cases() -> dict[str, Callable[[], None]]:
    """Everything there is."""
    from fedcohort.algorithms import ALGORITHMS
    from fedcohort.selection import STRATEGIES

    found = cases() | {"steps of the loop": partial(no_waiting, "loop", images)}
    for name in ALGORITHMS.builtin:
        for plan in ("threads", "stacked"):
            found[f"{name}, {plan}"] = partial(agrees, "uniform", name, engine={"plan": plan, "workers": 2})
        found[f"{name}, goes on"] = partial(agrees, "uniform", name, again=True)
    for name in STRATEGIES.builtin:
        found[name] = partial(agrees, name, "fedavg")
    for plan, batch in itertools.product(("threads", "stacked"), (8, 0)):
        values: dict[str, Any] = {"engine": {"plan": plan}, "training": {"batch_size": batch, "momentum": 0.9}}
        found[f"images, {plan}, batch {batch}"] = partial(agrees, "uniform", "fedprox", model=images, **values)
    return found


def main() -> None:
    pretend.install()
    if "without_float64" in sys.argv:
        from fedcohort.core import sums

        pretend.WITHOUT_FLOAT64 = True
        sums.WITHOUT_FLOAT64.add("pretend")
    warnings.simplefilter("ignore")
    wrong = {}
    chosen = all_cases() if "all" in sys.argv else cases()
    for name, case in chosen.items():
        try:
            case()
        except Exception:
            wrong[name] = traceback.format_exc()
    print(json.dumps({"cases": len(chosen), "wrong": wrong}))


if __name__ == "__main__":
    main()
