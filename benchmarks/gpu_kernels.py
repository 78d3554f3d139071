"""The GPU's time in W4 by kind of kernel: of a recorded step of FedCohort with 64 images, and of a centralized step with 640.

    PYTHONPATH=src:benchmarks python benchmarks/gpu_kernels.py [--arithmetics exact tf32 bf16]

Times are for 640 images. ``layout`` are kernels that only move activations from one memory layout to another, and copies.
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from bench import ARITHMETICS
from central import BATCH
from nets import build, compute
from ours import federation
from torch import nn
from torch.profiler import ProfilerActivity, profile
from works import Work, work

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.threads import one_thread
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import as_model

KINDS = {
    "layout": r"nchw_?(to|2)_?nhwc|nhwc_?(to|2)_?nchw|direct_copy|copy_kernel",
    "norms": r"rowwisemoments|groupnorm|gammabeta|internalgradients|computefused|backwardfused",
    "convolutions": r"xmma|conv|cudnn|gemm|cutlass|dgrad|wgrad|fprop|implicit|fft|winograd|cublas|pointwise_mult|sm90|nvjet",
    "elementwise": "",
}
"""Patterns of the names of kernels, in lower case; the first that is found counts."""
REPEATS = 5


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, kernel.lower()))


def tell(title: str, step: Callable[[], Any], images: int) -> None:
    """Print the wall time and the GPU's time of a step, each for 640 images."""
    for _ in range(REPEATS):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(REPEATS):
        step()
    torch.cuda.synchronize()
    wall = time.perf_counter() - begin
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        for _ in range(REPEATS):
            step()
        torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    for event in profiled.key_averages():
        if event.device_type.name == "CUDA":
            spent[kind_of(event.key)] += event.self_device_time_total
    scale = BATCH / images / REPEATS
    parts = ", ".join(f"{kind} {microseconds * scale / 1e3:.1f}" for kind, microseconds in spent.most_common())
    print(f"{title}: {wall * scale * 1e3:.1f} ms; of the GPU {spent.total() * scale / 1e3:.1f} ms: {parts}", flush=True)


def recorded_step(plan: Work, arithmetic: Any) -> None:
    """A recorded step of the plan ``loop``."""
    training = Training(batch_size=plan.batch, epochs=1, lr=plan.lr, momentum=plan.momentum)
    clients = federation(plan).to("cuda")
    engine = LocalEngine(
        clients, as_model(lambda: build(plan.net)), training, FedAvg(), 0, 1, plan="loop", arithmetic=arithmetic
    )
    recording = engine._trainers.get().recordings[plan.batch]
    features, labels = recording.features.clone(), recording.labels.clone()
    tell(f"{arithmetic}, recorded step", lambda: recording.play(features, labels), plan.batch)
    engine.close()


def centralized_step(plan: Work, arithmetic: str, layout: torch.memory_format) -> None:
    """A step of an ordinary loop."""
    rounded, loss_of = compute(arithmetic, torch.device("cuda")), nn.CrossEntropyLoss()
    module: nn.Module = build(plan.net).cuda().to(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(module.parameters(), lr=plan.lr, momentum=plan.momentum)
    images = torch.randn(BATCH, *plan.features.shape[1:], device="cuda").contiguous(memory_format=layout)
    labels = torch.arange(BATCH, device="cuda") % 10

    def step() -> None:
        optimizer.zero_grad()
        with rounded:
            loss = loss_of(module(images), labels)
        loss.backward()
        optimizer.step()

    tell(f"{arithmetic}, centralized, {str(layout).removeprefix('torch.')}", step, BATCH)


def main() -> None:
    """Print the times in each arithmetic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arithmetics", nargs="+", choices=ARITHMETICS, default=list(ARITHMETICS))
    args = parser.parse_args()
    plan = work("W4", 2, False, 1)
    with one_thread():
        for arithmetic in args.arithmetics:
            recorded_step(plan, arithmetic)
            for layout in (torch.contiguous_format, torch.channels_last):
                centralized_step(plan, arithmetic, layout)


if __name__ == "__main__":
    main()
