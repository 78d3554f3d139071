"""Products by the quicker library are the products."""

import pytest
import torch

from fedcohort.training import products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_times_rows(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(n, 17, generator=generator, dtype=dtype) for n in (33, 5))
    expected = x.double() @ w.double().T
    for found in (products.linear(x, w), products.linear(x.T.contiguous().T, w.T.contiguous().T)):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def test_a_build_without_the_quicker_one_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        pass

    products._single.cache_clear()
    monkeypatch.setattr(torch.ops, "mkldnn", Nothing())
    try:
        assert products._single() is torch.nn.functional.linear
    finally:
        products._single.cache_clear()
