"""What tests of training share."""

from collections.abc import Iterator

import pytest
import torch

from fedcohort.training import matrix_products


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products from ``LARGE`` on are oneDNN's, as on AMD's processors with AVX-512, whatever the processor of this machine is."""
    chosen = (
        matrix_products._float32_product,
        matrix_products._large,
        matrix_products._quick_for_sequences,
        matrix_products._quick_for_short_batches,
    )
    monkeypatch.setattr(matrix_products, "LARGE_BEFORE", matrix_products.LARGE)
    monkeypatch.setattr(matrix_products, "processor", lambda: "AMD EPYC (family 25, model 17)")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    for choice in chosen:
        choice.cache_clear()
    yield
    for choice in chosen:
        choice.cache_clear()
