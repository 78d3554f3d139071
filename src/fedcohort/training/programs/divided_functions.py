"""Activations and attention in scripts (TorchScript) that threads divide: they treat each sample alone."""

import torch
from torch import Tensor

from fedcohort.training.programs.divided_calls import parts_now
from fedcohort.training.programs.forward_functions import edges_of_parts

__all__ = ["attention_gradients", "attention_outputs", "gelu_gradients", "gelu_outputs"]


def gelu_outputs(x: Tensor, approximate: str, most: int, idle: list[Tensor]) -> Tensor:
    """GELU; idle threads compute some samples. ``most`` and ``idle`` are as for
    :func:`~fedcohort.training.programs.divided_calls.convolution_outputs`.

    Args:
        x: inputs, contiguous.
        approximate: "none" or "tanh".
    """
    outputs, parts = torch.empty_like(x), parts_now(most, idle)
    edges = edges_of_parts(x.size(0), parts)
    calls = [torch.jit.fork(_gelu_of_part, x, approximate, outputs, edges[i], edges[i + 1]) for i in range(1, parts)]
    _gelu_of_part(x, approximate, outputs, edges[0], edges[1])
    for call in calls:
        torch.jit.wait(call)
    return outputs


def _gelu_of_part(x: Tensor, approximate: str, outputs: Tensor, begin: int, end: int) -> Tensor:
    """Write the outputs for the samples from ``begin`` to ``end`` into ``outputs``."""
    torch.ops.aten.gelu(x[begin:end], approximate=approximate, out=outputs[begin:end])
    return outputs


def gelu_gradients(delta: Tensor, x: Tensor, approximate: str, most: int, idle: list[Tensor]) -> Tensor:
    """The gradient of the inputs of GELU, as for :func:`gelu_outputs`; ``delta`` is the gradient of its outputs."""
    before, parts = torch.empty_like(x), parts_now(most, idle)
    edges = edges_of_parts(x.size(0), parts)
    calls = [
        torch.jit.fork(_gelu_gradients_of_part, delta, x, approximate, before, edges[i], edges[i + 1])
        for i in range(1, parts)
    ]
    _gelu_gradients_of_part(delta, x, approximate, before, edges[0], edges[1])
    for call in calls:
        torch.jit.wait(call)
    return before


def _gelu_gradients_of_part(delta: Tensor, x: Tensor, approximate: str, before: Tensor, begin: int, end: int) -> Tensor:
    """Write the gradients for the samples from ``begin`` to ``end`` into ``before``."""
    torch.ops.aten.gelu_backward(delta[begin:end], x[begin:end], approximate=approximate, grad_input=before[begin:end])
    return before


def attention_outputs(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float | None, layouts: list[list[int]], most: int,
    idle: list[Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Scaled dot product attention without a mask; idle threads compute some samples. ``most`` and ``idle`` are as for
    :func:`~fedcohort.training.programs.divided_calls.convolution_outputs`.

    Args:
        query, key, value: [samples, heads, places, width].
        causal: whether a place sees only those before it.
        scale: the factor of the products; None for 1/√width.
        layouts: the strides of what is returned.

    Returns:
        The outputs, and the logarithms of the sums of each place, which the backward pass needs.
    """
    parts = parts_now(most, idle)
    if parts < 2:
        outputs, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, scale=scale
        )
        return outputs, sums
    samples, heads, places = query.size(0), query.size(1), query.size(2)
    outputs = torch.empty_strided([samples, heads, places, value.size(3)], layouts[0], dtype=query.dtype)
    exact = torch.float64 if query.dtype == torch.float64 else torch.float32
    sums = torch.empty_strided([samples, heads, places], layouts[1], dtype=exact)
    edges = edges_of_parts(samples, parts)
    calls = [
        torch.jit.fork(_attention_of_part, query, key, value, causal, scale, outputs, sums, edges[i], edges[i + 1])
        for i in range(1, parts)
    ]
    _attention_of_part(query, key, value, causal, scale, outputs, sums, edges[0], edges[1])
    for call in calls:
        torch.jit.wait(call)
    return outputs, sums


def _attention_of_part(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float | None, outputs: Tensor, sums: Tensor,
    begin: int, end: int,
) -> Tensor:  # fmt: skip
    """Write the results for the samples from ``begin`` to ``end`` into ``outputs`` and ``sums``."""
    found, logarithms = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query[begin:end], key[begin:end], value[begin:end], 0.0, causal, scale=scale
    )
    outputs[begin:end].copy_(found)
    sums[begin:end].copy_(logarithms)
    return outputs


def attention_gradients(
    delta: Tensor, query: Tensor, key: Tensor, value: Tensor, outputs: Tensor, sums: Tensor, causal: bool,
    scale: float | None, layouts: list[list[int]], most: int, idle: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of the query, the key and the value of :func:`attention_outputs`.

    Args:
        delta: the gradient of the outputs.
        query, key, value, causal, scale: what :func:`attention_outputs` was given.
        outputs, sums: what it returned.
        layouts: the strides of what is returned.
        most, idle: as for :func:`~fedcohort.training.programs.divided_calls.convolution_outputs`.
    """
    parts = parts_now(most, idle)
    if parts < 2:
        of_query, of_key, of_value = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            delta, query, key, value, outputs, sums, 0.0, causal, scale=scale
        )
        return of_query, of_key, of_value
    of_query = torch.empty_strided(query.size(), layouts[0], dtype=query.dtype)
    of_key = torch.empty_strided(key.size(), layouts[1], dtype=key.dtype)
    of_value = torch.empty_strided(value.size(), layouts[2], dtype=value.dtype)
    gradients = [of_query, of_key, of_value]
    edges = edges_of_parts(query.size(0), parts)
    calls = [
        torch.jit.fork(
            _attention_gradients_of_part, delta, query, key, value, outputs, sums, causal, scale, gradients, edges[i], edges[i + 1]
        )
        for i in range(1, parts)
    ]  # fmt: skip
    _attention_gradients_of_part(delta, query, key, value, outputs, sums, causal, scale, gradients, edges[0], edges[1])
    for call in calls:
        torch.jit.wait(call)
    return of_query, of_key, of_value


def _attention_gradients_of_part(
    delta: Tensor, query: Tensor, key: Tensor, value: Tensor, outputs: Tensor, sums: Tensor, causal: bool,
    scale: float | None, gradients: list[Tensor], begin: int, end: int,
) -> Tensor:  # fmt: skip
    """Write the gradients for the samples from ``begin`` to ``end`` into ``gradients``."""
    of_query, of_key, of_value = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        delta[begin:end], query[begin:end], key[begin:end], value[begin:end], outputs[begin:end], sums[begin:end], 0.0, causal,
        scale=scale,
    )  # fmt: skip
    gradients[0][begin:end].copy_(of_query)
    gradients[1][begin:end].copy_(of_key)
    gradients[2][begin:end].copy_(of_value)
    return delta
