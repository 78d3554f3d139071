"""The device of tensors, and its arithmetic.

* ``exact`` switches off what torch does by default or may choose for speed: TF32 in convolutions, and algorithms with results that
  depend on the order of threads. Reference runs are exact.
* ``tf32`` lets matrix products and convolutions round their inputs to 10 bits of mantissa.
* ``bf16`` runs the network's forward and backward passes in bfloat16. Parameters and optimizer stay in the experiment's precision.

On a CPU, only ``bf16`` makes a difference.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.core.errors import UsageError
from fedcohort.core.sums import WITHOUT_FLOAT64

__all__ = [
    "Arithmetic",
    "arithmetic",
    "check_precision",
    "in_bfloat16",
    "leave_stream",
    "moved",
    "new_stream",
    "of_process",
    "on_stream",
    "pick_device",
]

Arithmetic = Literal["exact", "tf32", "bf16"]


def pick_device(name: str) -> str:
    """The device that a name means: ``auto`` means a GPU if torch sees one, and any other name means itself.

    Raises:
        UsageError: this machine has no such device; the message names those that it has.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError("engine.device = 'mps': torch sees no GPU of a Mac; use 'cpu', or 'auto'")
    if name.startswith("cuda"):
        _check_gpu(name)
    return name


def check_precision(device: str, precision: str) -> None:
    """Refuse a precision that a device does not have.

    Raises:
        UsageError: it is float64, on the GPU of a Mac.
    """
    if device in WITHOUT_FLOAT64 and precision == "float64":
        raise UsageError(
            f"training.precision = 'float64': not on engine.device = {device!r}, which has none; use 'float32'"
        )


def _check_gpu(name: str) -> None:
    """Refuse ``cuda`` without a GPU, and ``cuda:N`` unless there are more than N."""
    if not torch.cuda.is_available():
        raise UsageError(
            f"engine.device = {name!r}: torch sees no GPU; use 'cpu', or 'auto' to use a GPU only if there is one"
        )
    _, _, number = name.partition(":")
    count = torch.cuda.device_count()
    if number and int(number) >= count:
        valid = "'cuda:0'" if count == 1 else f"'cuda:0' to 'cuda:{count - 1}'"
        raise UsageError(
            f"engine.device = {name!r}: torch sees {count} GPU{'s' if count > 1 else ''}; use {valid}, or 'cuda'"
        )


def of_process(name: str, process: int) -> str:
    """The device of one of several processes: with ``cuda`` and several GPUs, processes take turns among them.

    Args:
        name: the device of the experiment; only ``cuda`` is divided.
        process: number of the process, from 0.
    """
    count = torch.cuda.device_count() if name == "cuda" else 1
    return f"cuda:{process % count}" if count > 1 else name


def arithmetic(kind: Arithmetic) -> Callable[[], None]:
    """Set torch's switches for CUDA; returns a function that restores what was set before."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark

    def switch(products: bool, convolutions: bool, deterministic: bool, benchmark: bool) -> None:
        matmul.allow_tf32, cudnn.allow_tf32 = products, convolutions
        cudnn.deterministic, cudnn.benchmark = deterministic, benchmark

    exact = kind == "exact"
    switch(kind == "tf32", kind == "tf32", exact, not exact)
    return lambda: switch(*before)


def in_bfloat16(module: nn.Module) -> nn.Module:
    """Make the module's forward pass run under autocast, in place; its outputs have the number format of its parameters.

    Autocast would compute GroupNorm in single precision, and the activations between two convolutions with it. It is computed in
    bfloat16 if its inputs are; its means and variances are in single precision in any case.

    Raises:
        UsageError: it has an LSTM, and PyTorch has none in bfloat16 for this processor.
    """
    _check_lstms(module)

    def rounded(self: nn.Module, *inputs: Tensor) -> Tensor:
        example = next(p for p in self.parameters() if p.is_floating_point())
        with torch.autocast(example.device.type, torch.bfloat16):
            outputs: Tensor = type(self).forward(self, *inputs)
        return outputs.to(example.dtype)

    # bound as methods, so that a copy of the module runs the copy
    for part in module.modules():
        if type(part) is nn.GroupNorm:
            part.forward = MethodType(_rounded_groups, part)  # type: ignore[method-assign]
    module.forward = MethodType(rounded, module)
    return module


def _check_lstms(module: nn.Module) -> None:
    """Refuse LSTMs on a CPU for which oneDNN, which would compute them, has none in bfloat16."""
    lstms = [part for part in module.modules() if isinstance(part, nn.LSTM) and not part.proj_size]
    if not any(lstm.weight_ih_l0.device.type == "cpu" for lstm in lstms):
        return
    trial = nn.LSTM(1, 1, device="meta").to_empty(device="cpu")  # without drawing weights
    try:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            trial(torch.zeros(1, 1, 1))
    except RuntimeError as error:
        raise UsageError(
            "engine.arithmetic = 'bf16': PyTorch has no LSTM in bfloat16 for this processor; use 'exact', or a GRU in your own network"
        ) from error


def _rounded_groups(self: nn.GroupNorm, inputs: Tensor) -> Tensor:
    """GroupNorm in the number format of its inputs, if that is bfloat16."""
    if inputs.dtype != torch.bfloat16:
        return nn.GroupNorm.forward(self, inputs)
    with torch.autocast(inputs.device.type, enabled=False):
        weight, bias = (None if value is None else value.to(inputs.dtype) for value in (self.weight, self.bias))
        return functional.group_norm(inputs, self.num_groups, weight, bias, self.eps)


def new_stream(device: torch.device) -> Any:
    """A stream of a GPU of CUDA, whose work it does beside that of other streams; None for other devices."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Give the GPU this thread's work on ``stream``, after all that its usual stream has now, and before all that this is given later.

    None means the usual stream.
    """
    if stream is None:
        yield
        return
    usual = torch.cuda.default_stream(stream.device)
    stream.wait_stream(usual)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        usual.wait_stream(stream)


def leave_stream(state: object, device: torch.device) -> None:
    """Let the usual stream of a GPU use the tensors of a nested state, which were computed on another stream.

    Their memory is not used again before the work that the usual stream has by then is done.
    """
    if device.type != "cuda":
        return
    if isinstance(state, Tensor):
        if state.is_cuda:  # some of what clients send is computed on the CPU
            state.record_stream(torch.cuda.default_stream(device))
    elif isinstance(state, Mapping):
        leave_stream(list(state.values()), device)
    elif isinstance(state, list):
        for part in state:
            leave_stream(part, device)


def moved(state: object, device: torch.device) -> Any:
    """Nested state with its tensors on ``device``; tensors that are already there are not copied."""
    if isinstance(state, Tensor):
        return state.to(device)
    if isinstance(state, Mapping):
        return {key: moved(value, device) for key, value in state.items()}
    if isinstance(state, list):
        return [moved(value, device) for value in state]
    return state
