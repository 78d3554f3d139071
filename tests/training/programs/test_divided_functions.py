"""Attention and GELU in parts have the bits, the types and the layouts of PyTorch's operators."""

import pytest
import torch
from torch import Tensor

from fedcohort.training.programs.divided_functions import (
    attention_gradients,
    attention_outputs,
    gelu_gradients,
    gelu_outputs,
)

TYPES = (torch.float32, torch.float64, torch.bfloat16)


def heads(dtype: torch.dtype) -> list[Tensor]:
    """Query, key and value, as a layer for all three gives them: [6 samples, 2 heads, 8 places, 16 numbers]; and a gradient."""
    draw = torch.Generator().manual_seed(1)
    together = torch.randn(6, 8, 4, 2, 16, generator=draw).to(dtype)
    return [together[:, :, i].transpose(1, 2) for i in range(4)]


def strides(tensors: tuple[Tensor, ...]) -> list[list[int]]:
    return [list(tensor.stride()) for tensor in tensors]


def same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    assert strides(found) == strides(expected)
    assert [one.dtype for one in found] == [one.dtype for one in expected]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("idle", [0, 1, 2, 5])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_attention(dtype: torch.dtype, causal: bool, idle: int) -> None:
    query, key, value, delta = heads(dtype)
    helpers = [torch.tensor(idle)]
    whole = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, scale=0.3)
    same(torch.jit.script(attention_outputs)(query, key, value, causal, 0.3, strides(whole), 6, helpers), whole)
    back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    gradients = back(delta, query, key, value, *whole, 0.0, causal, scale=0.3)
    divided = torch.jit.script(attention_gradients)
    same(divided(delta, query, key, value, *whole, causal, 0.3, strides(gradients), 6, helpers), gradients)


@pytest.mark.parametrize("idle", [0, 1, 2, 5])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", TYPES)
def test_gelu(dtype: torch.dtype, approximate: str, idle: int) -> None:
    draw, helpers = torch.Generator().manual_seed(1), [torch.tensor(idle)]
    x, delta = (torch.randn(7, 4, 64, generator=draw).to(dtype) for _ in range(2))
    outputs = torch.ops.aten.gelu(x, approximate=approximate)
    same((torch.jit.script(gelu_outputs)(x, approximate, 7, helpers),), (outputs,))
    gradients = torch.ops.aten.gelu_backward(delta, x, approximate=approximate)
    same((torch.jit.script(gelu_gradients)(delta, x, approximate, 7, helpers),), (gradients,))
