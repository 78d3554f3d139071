"""Measure the operations of a workload and the limits of the machine: rates of products, convolutions and copies.

python benchmarks/limits.py --work W2 --device cpu

Operations are the multiplications and additions of the forward and backward passes as PyTorch counts them, without the gradient
of the images. Rates are the best of several repetitions, in single precision and, on a GPU, in each of FedCohort's arithmetics.

For networks with convolutions on a CPU, the script also measures an isolated step: forward pass, loss and backward pass of the
network as FedCohort computes them, repeatedly on the same batch, by one thread; alone, and while every other core does the same
in a process of its own. With one client per thread and these calls, training cannot be faster than that.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from nets import build, compute
from protocol import arguments
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from works import Work

from fedcohort.training.matrix_products import quick_products
from fedcohort.training.programs.network_rewriting import relu_last
from fedcohort.training.programs.plain_network import program_of


def operations(net: str, images: torch.Tensor) -> float:
    """Operations of the forward and backward pass of one sample."""
    module = build(net)
    with FlopCounterMode(display=False) as counter:
        module(images).sum().backward()
    return float(counter.get_total_flops() / len(images))


def rate(work: Callable[[], Any], amount: float, device: torch.device) -> float:
    """``amount`` per second, in the best of several repetitions."""
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return amount / best


def and_back(images: torch.Tensor, kernels: torch.Tensor, groups: int = 1) -> tuple[torch.Tensor, ...]:
    """A convolution and both of its gradients."""
    points = images.detach().requires_grad_(), kernels.detach().requires_grad_()
    outputs = functional.conv2d(*points, padding=1, groups=groups)
    return torch.autograd.grad(outputs, points, outputs.detach())


def rates(device: torch.device) -> dict[str, float]:
    """Rates of one CPU thread or of a GPU, in GFLOP/s, and in GB/s for copies."""
    torch.set_num_threads(1)
    found: dict[str, float] = {}
    n = 1024 if device.type == "cpu" else 8192
    a, b = (torch.randn(n, n, device=device) for _ in range(2))
    batch = 16 if device.type == "cpu" else 4096
    images = torch.randn(batch, 64, 32, 32, device=device).to(memory_format=torch.channels_last)
    kernels = torch.randn(64, 64, 3, 3, device=device).to(memory_format=torch.channels_last)
    pixels = 2e-9 * 9 * 64 * 64 * 32 * 32 * batch
    # the same for ten clients in parallel, which is how torch.func.vmap computes their convolutions
    stack = 10
    grouped = images[: batch // stack * stack].contiguous().reshape(-1, stack * 64, 32, 32)
    many = kernels.contiguous().repeat(stack, 1, 1, 1)
    for kind in ("exact",) if device.type == "cpu" else ("exact", "tf32", "bf16"):
        name = "" if device.type == "cpu" else f", {kind}"
        compute(kind, device)
        number = torch.bfloat16 if kind == "bf16" else torch.float32
        c, d, e, f, g, h = (value.to(number) for value in (a, b, images, kernels, grouped, many))
        found[f"product{name}"] = rate(partial(torch.matmul, c, d), 2e-9 * n**3, device)
        found[f"convolution{name}"] = rate(partial(functional.conv2d, e, f, padding=1), pixels, device)
        if device.type == "cuda":
            first, weights = e.contiguous(), f.contiguous()
            found[f"convolution and back{name}"] = rate(partial(and_back, e, f), 3 * pixels, device)
            found[f"the same, channels first{name}"] = rate(partial(and_back, first, weights), 3 * pixels, device)
            amount = 3 * pixels * len(grouped) * stack / batch
            found[f"the same, ten clients{name}"] = rate(partial(and_back, g, h, stack), amount, device)
    if device.type == "cpu":
        product = torch.ops.mkldnn._linear_pointwise
        found["product, oneDNN"] = rate(lambda: product(a, b, None, "none", [], ""), 2e-9 * n**3, device)
    one = torch.randn(2**25 if device.type == "cpu" else 2**28, device=device)
    other = torch.empty_like(one)
    found["copy, GB/s read and written"] = rate(lambda: other.copy_(one), 2e-9 * one.nbytes, device)
    return found


def bare_step(work: Work) -> Callable[[], None]:
    """A function that computes the forward and backward pass of one batch."""
    torch.set_num_threads(1)
    module = quick_products(relu_last(build(work.net))).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.from_numpy(work.standardised(work.clients[0][: work.batch])).to(memory_format=torch.channels_last)
    labels = torch.from_numpy(work.labels[: len(images)])

    program = program_of(module, images.shape[1:])
    assert program is not None

    def step() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        program.backward(images, labels, None, len(labels))

    return step


def step_ms(work: Work, seconds: float = 3.0) -> dict[str, float]:
    """Median milliseconds of a step, alone and while every other core computes such steps; measured in turns."""
    step, found = bare_step(work), dict[str, list[float]]({"alone": [], "beside": []})
    for _ in range(3):
        for name, others in (("alone", 0), ("beside", len(os.sched_getaffinity(0)) - 1)):
            with ExitStack() as stack:
                for _ in range(others):
                    stack.enter_context(busy(work))
                end = time.perf_counter() + seconds
                while (begin := time.perf_counter()) < end:
                    step()
                    found[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(times) for name, times in found.items()}


@contextmanager
def busy(work: Work) -> Iterator[None]:
    """Let another process compute such steps at the same time."""
    command = [sys.executable, __file__, "--work", work.name, "--endless"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise RuntimeError("the process that should compute at the same time has ended")
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--endless", action="store_true", help="repeat steps until the process is ended")
    parser.add_argument("--no-rates", action="store_true", help="only count operations")
    args, work = arguments(parser)
    if args.endless:
        step = bare_step(work)
        step()
        print("begun", flush=True)
        while True:
            step()
    images = torch.from_numpy(work.standardised(work.clients[0][:2]))
    found: dict[str, Any] = {
        "operations_a_sample": operations(work.net, images),
        "rates": {} if args.no_rates else rates(torch.device(args.device)),
        "processor": torch.cuda.get_device_name() if args.device == "cuda" else "",
    }
    if args.device == "cpu" and work.net == "cnn_a":
        found["step_ms"] = step_ms(work)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
