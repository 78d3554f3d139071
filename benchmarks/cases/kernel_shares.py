"""What limits networks that autograd trains, and which library multiplies faster on this processor.

    python -m benchmarks.cases.kernel_shares [--seconds 5] [--only resnet-group transformer] [--keep]
    python -m benchmarks.cases.kernel_shares --products

The first command profiles the gradients of networks of ``benchmarks/cases`` on one core, and prints which share of their time is spent
in convolutions, in products, in recurrent layers and in attention, that is, in the libraries that PyTorch calls for them (oneDNN and
MKL). No loop can be faster than that share. With ``--keep``, it writes results/kernel-shares.json, from which the table in
docs/performance.md is made. The second command prints the processor time of the products of a linear layer by MKL and
by oneDNN, and whether both give the same bits. Use a machine that does nothing else.
"""

import argparse
import time
from collections.abc import Callable

import torch
from results.result_file import commit, provenance, sources, write
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from .definitions import CASES
from .networks import build

NETWORKS = ("resnet-group", "resnet-batch", "cnn-groupnorm", "lstm", "transformer")
KINDS = {
    "convolutions": ("mkldnn_convolution", "convolution_backward"),
    "products": ("addmm", "aten::mm", "bmm"),
    "recurrent layers": ("mkldnn_rnn",),
    "attention": ("scaled_dot_product",),
    "norms": ("norm",),
}
"""Kinds of work, by parts of the names of PyTorch's operators."""
SHAPES = (
    (20, 784, 200),
    (64, 784, 200),
    (128, 784, 200),
    (16, 4096, 64),
    (64, 4096, 64),
    (20, 3072, 512),
    (600, 64, 256),
)
"""Samples, inputs and outputs of linear layers."""


def gradient(name: str) -> Callable[[], None]:
    """A function that computes the gradient of one batch of this case by autograd, with images in channels-last layout."""
    case = CASES[name]
    module = build(case)
    train, labels, _, _ = case.arrays()
    inputs, targets = torch.from_numpy(train[: case.batch]), torch.from_numpy(labels[: case.batch])
    if inputs.dim() == 4:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = inputs.float().div_(255).contiguous(memory_format=torch.channels_last)

    def compute() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        functional.cross_entropy(module(inputs).flatten(0, -2), targets.flatten()).backward()

    return compute


def shares(name: str, seconds: float) -> dict[str, float]:
    """The share of the time of a gradient that each kind of work takes, and ``ms``, its processor time, from as many gradients as take
    this number of seconds."""
    compute = gradient(name)
    compute()
    begin = time.process_time()
    steps, spent = 0, 0.0
    while spent < seconds:
        compute()
        steps, spent = steps + 1, time.process_time() - begin
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(steps):
            compute()
    events = recorded.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    found = dict.fromkeys(KINDS, 0.0)
    for event in events:
        kind = next((kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)), None)
        if kind is not None:
            found[kind] += event.self_cpu_time_total / total
    return found | {"ms": 1e3 * spent / steps}


def processor_time(work: Callable[[], Tensor]) -> float:
    """Microseconds of processor time of a call: the least of several measurements of 20 ms."""
    work()
    begin = time.process_time()
    work()
    calls = max(3, min(400, int(0.02 / max(time.process_time() - begin, 1e-6))))
    found = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(calls):
            work()
        found.append((time.process_time() - begin) / calls)
    return 1e6 * min(found)


def print_products() -> None:
    """Outputs, gradient of the weight, and gradient of the inputs of linear layers, by both libraries."""
    by_onednn = torch.ops.mkldnn._linear_pointwise
    print("samples, inputs, outputs: µs by MKL, µs by oneDNN, and = if the bits are the same")
    for samples, inputs, outputs in SHAPES:
        x, weight, delta = (
            torch.randn(samples, inputs),
            torch.randn(outputs, inputs) / 20,
            torch.randn(samples, outputs),
        )
        cells = []
        for title, a, b in (("outputs", x, weight), ("weight", delta.T, x.T), ("inputs", delta, weight.T)):
            ways: list[Callable[[], Tensor]] = [
                lambda a=a, b=b: functional.linear(a, b),  # type: ignore[misc]
                lambda a=a, b=b: by_onednn(a, b, None, "none", [], ""),  # type: ignore[misc]
            ]
            mkl, onednn = map(processor_time, ways)
            cells.append(f"{title} {mkl:.0f} {onednn:.0f} {'=' if torch.equal(ways[0](), ways[1]()) else '≠'}")
        print(f"{samples:5d} {inputs:5d} {outputs:4d}: {', '.join(cells)}", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time of the gradients that are profiled")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=NETWORKS, help="networks")
    parser.add_argument("--keep", action="store_true", help="write results/kernel-shares.json")
    parser.add_argument("--products", action="store_true", help="compare the libraries instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.products:
        print_products()
        return
    begin, made_by, known, rows = time.perf_counter(), commit(), sources(), []
    for name in args.only:
        found = shares(name, args.seconds)
        parts = [f"{kind} {share:.0%}" for kind, share in found.items() if kind != "ms" and share >= 0.005]
        print(f"{name}: {found['ms']:.1f} ms of processor time for a gradient: {', '.join(parts)}", flush=True)
        rows.append([f"{CASES[name].title}, {CASES[name].batch} samples", f"{found['ms']:.3g} ms", ", ".join(parts)])
    if args.keep:
        command = "python -m benchmarks.cases.kernel_shares --keep"
        heads = ["network", "processor time of a gradient", "time that PyTorch's libraries take"]
        made = provenance(command, ["benchmarks/cases/kernel_shares.py"], time.perf_counter() - begin, made_by, known)
        write("kernel-shares", made | {"table": {"columns": heads, "rows": rows}})


if __name__ == "__main__":
    main()
