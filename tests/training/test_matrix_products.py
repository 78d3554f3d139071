"""Products by the quicker library are the products."""

import copy
import math
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedcohort.core.threads import one_thread
from fedcohort.training import matrix_products as products
from fedcohort.training.programs.plain_network import program_of

pytestmark = pytest.mark.usefixtures("by_onednn")


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

    assert products._float32_product() is not torch.nn.functional.linear
    products._float32_product.cache_clear()
    monkeypatch.setattr(torch.ops, "mkldnn", Nothing())
    assert products._float32_product() is torch.nn.functional.linear


def test_intels_processors_use_pytorchs_product(monkeypatch: pytest.MonkeyPatch) -> None:
    products._float32_product.cache_clear()
    monkeypatch.setattr(products, "processor", lambda: "Intel(R) Xeon(R) Platinum 8488C (family 6, model 143)")
    layer = products.quick_products(nn.Linear(400, 100))
    assert type(layer) is nn.Linear
    assert products.product_limit(layer) == math.inf


@pytest.mark.parametrize(
    ("capability", "quick"), [("DEFAULT", False), ("AVX2", False), ("AVX512", True), ("SVE256", True)]
)
def test_processors_without_avx512_use_pytorchs_product(
    capability: str, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    products._float32_product.cache_clear()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    layer = products.quick_products(nn.Linear(400, 100))
    assert (type(layer) is not nn.Linear) == quick
    assert products.product_limit(layer) == (products.LARGE if quick else math.inf)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("trained", [("weight", "bias"), ("bias",), ("weight",)])
def test_a_layer_by_quick_products_is_the_layer(rows: int, bias: bool, trained: tuple[str, ...]) -> None:
    """With few rows and many, forward and back, whatever part of it is trained."""
    generator = torch.Generator().manual_seed(1)
    plain = nn.Linear(400, 100, bias=bias)
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_(name in trained)
    quick = products.quick_products(nn.Sequential(copy.deepcopy(plain)))[0]
    assert isinstance(quick, nn.Linear)
    assert dict(quick.named_parameters()).keys() == dict(plain.named_parameters()).keys()
    x, delta = torch.randn(rows, 400, generator=generator), torch.randn(rows, 100, generator=generator)
    found = []
    for layer in (plain, quick):
        inputs = x.clone().requires_grad_()
        outputs = layer(inputs)
        outputs.backward(delta)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), outputs, atol=1e-4, rtol=1e-5)
        found.append([outputs, inputs.grad, *(p.grad for p in layer.parameters() if p.requires_grad)])
    assert len(found[0]) == 2 + len([name for name in trained if bias or name == "weight"])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "quick"),
    [
        ("AMD EPYC (family 26, model 2)", True),
        ("AMD EPYC 9654 96-Core Processor (family 25, model 17)", False),
        ("AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD", True),
        ("Intel64 Family 26 Model 151 Stepping 2, GenuineIntel", False),
        ("Intel(R) Xeon(R) Platinum 8488C (family 6, model 143)", False),
        ("arm", False),
    ],
)
def test_processors_on_which_sequences_are_multiplied_faster(
    monkeypatch: pytest.MonkeyPatch, name: str, quick: bool
) -> None:
    """By the names that Linux, Windows and macOS give them."""
    monkeypatch.setattr(products, "processor", lambda: name)
    assert products._quick_for_sequences.__wrapped__() == quick


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("AMD EPYC (family 26, model 2)", products.LARGE),
        ("AMD EPYC 9654 96-Core Processor (family 25, model 17)", products.LARGE_BEFORE),
        ("AMD64 Family 25 Model 97 Stepping 2, AuthenticAMD", products.LARGE_BEFORE),
        ("arm", products.LARGE),
    ],
)
def test_the_processor_says_from_which_size_on_products_are_onednns(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    monkeypatch.undo()  # the limit that tests share
    monkeypatch.setattr(products, "processor", lambda: name)
    assert products._large.__wrapped__() == limit


def test_sequences_are_left_to_pytorch_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_quick_for_sequences", lambda: False)
    layer = products.quick_products(nn.Linear(64, 192))
    x = torch.randn(10, 60, 64)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    monkeypatch.setattr(products._Product, "apply", lambda *_: pytest.fail("not by PyTorch"))
    layer(x.requires_grad_()).sum().backward()


def test_sequences_of_rows_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of a transformer gets [batch, positions, inputs]."""
    monkeypatch.setattr(products, "_quick_for_sequences", lambda: True)
    draw = torch.Generator().manual_seed(2)
    usual = nn.Linear(64, 192)
    quick = products.quick_products(copy.deepcopy(usual))
    x, delta = torch.randn(10, 60, 64, generator=draw), torch.randn(10, 60, 192, generator=draw)
    found: list[list[Tensor]] = []
    for layer, flat in ((usual, False), (quick, False), (quick, True)):
        layer.zero_grad()
        inputs = (x.flatten(0, 1) if flat else x).clone().requires_grad_()
        outputs = layer(inputs)
        outputs.backward(delta.view(outputs.shape))
        assert torch.equal(layer(inputs), outputs)
        with torch.no_grad():
            assert torch.equal(layer(inputs), outputs)
        assert inputs.grad is not None
        gradients = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
        found.append([outputs.flatten(0, -2), inputs.grad.flatten(0, -2), *gradients])
    for by_torch, of_sequences, of_rows in zip(*found, strict=True):
        assert torch.equal(of_sequences, of_rows)
        torch.testing.assert_close(of_sequences, by_torch, atol=1e-4, rtol=1e-5)


@given(samples=st.integers(1, products.SHORT), outputs=st.integers(8, 700), inputs=st.integers(8, products.NARROW))
def test_both_libraries_give_the_same_gradients_of_weights_for_short_batches(
    samples: int, outputs: int, inputs: int
) -> None:
    """So that results do not depend on which of them a machine takes."""
    if not products._quick_for_short_batches():
        pytest.skip("this machine takes PyTorch's product for short batches")
    assume(samples * outputs * inputs >= products.LARGE)
    draw = torch.Generator().manual_seed(samples * outputs * inputs)
    delta, x = torch.randn(samples, outputs, generator=draw), torch.randn(samples, inputs, generator=draw)
    with one_thread():
        assert torch.equal(products.linear(delta.T, x.T), delta.T @ x)


def test_the_library_for_short_batches_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken only if it is clearly faster, and gives the same bits."""
    usual = torch.nn.functional.linear

    def answer(product: Callable[..., Tensor]) -> bool:
        monkeypatch.setattr(products, "_float32_product", lambda: product)
        products._quick_for_short_batches.cache_clear()
        return products._quick_for_short_batches()

    def slow(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        time.sleep(1e-3)
        return usual(x, weight, bias)

    try:
        monkeypatch.setattr(torch.nn.functional, "linear", slow)
        assert answer(usual)
        assert not answer(lambda x, weight, bias: usual(x, weight, bias) * 2)
        monkeypatch.setattr(torch.nn.functional, "linear", usual)
        assert not answer(slow)
    finally:
        products._quick_for_short_batches.cache_clear()


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(("rows", "inputs"), [(20, 784), (64, 784), (65, 784), (20, 4096)])
def test_a_program_has_the_gradients_of_a_layer_by_quick_products(
    monkeypatch: pytest.MonkeyPatch, rows: int, inputs: int, quick: bool
) -> None:
    """On both sides of the limits for the gradient of the weights, which another library may compute for short batches."""
    monkeypatch.setattr(products, "_quick_for_short_batches", lambda: quick)
    network = products.quick_products(nn.Sequential(nn.Linear(inputs, 200), nn.ReLU(), nn.Linear(200, 10)))
    program = program_of(network, (inputs,))
    assert program is not None
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, inputs, generator=generator)
    labels = torch.randint(10, (rows,), generator=generator)
    nn.functional.cross_entropy(network(x), labels).backward()
    _, _, found = program.gradients(x, labels, None, rows)
    assert [layer.short for layer in program._layers if layer.kind == "linear"] == [
        0 if quick or inputs == 4096 else 64,
        0 if quick else 64,
    ]
    for parameter, gradient in zip(network.parameters(), found, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)


def test_what_is_not_float32_in_rows_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = products.quick_products(nn.Sequential(nn.Linear(400, 100)))
    assert layer(torch.ones(40, 400)).shape == (40, 100)
    monkeypatch.setattr(products, "_float32_product", lambda: None)  # would fail if it were called
    assert products.quick_products(nn.Linear(4000, 400))(torch.ones(4000)).shape == (400,)
    assert layer.double()(torch.ones(40, 400, dtype=torch.float64)).dtype == torch.float64


class OwnLayer(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 0


def test_a_layer_of_somebodys_own_stays_as_it_is() -> None:
    own = products.quick_products(nn.Sequential(OwnLayer(400, 100)))
    assert type(own[0]) is OwnLayer
    assert not own(torch.ones(40, 400)).any()


def test_what_the_quicker_library_cannot_do_is_left_to_torch() -> None:
    generator = torch.Generator().manual_seed(2)
    plain = nn.Linear(400, 100)
    quick = products.quick_products(nn.Sequential(copy.deepcopy(plain)))[0]
    x = torch.randn(40, 400, generator=generator)
    waves = torch.randn(500, generator=generator).unfold(0, 400, 1)  # rows that overlap
    for inputs in (x, x.to_sparse(), waves, x.T.contiguous().T):
        torch.testing.assert_close(quick(inputs), plain(inputs), atol=1e-4, rtol=1e-5)
    both = torch.stack([x, -x])
    torch.testing.assert_close(torch.func.vmap(quick)(both), torch.func.vmap(plain)(both), atol=1e-4, rtol=1e-5)
    slopes = [torch.func.grad(lambda at, layer=layer: layer(at).square().sum())(x) for layer in (plain, quick)]
    torch.testing.assert_close(*slopes, atol=1e-3, rtol=1e-4)
    with torch.autocast("cpu"):
        assert quick(x).dtype == plain(x).dtype == torch.bfloat16


def test_gradients_of_gradients() -> None:
    generator = torch.Generator().manual_seed(3)
    plain = nn.Linear(400, 100)
    quick = products.quick_products(nn.Sequential(copy.deepcopy(plain)))[0]
    x = torch.randn(40, 400, generator=generator)
    found = []
    for layer in (plain, quick):
        at = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(at).tanh().sum(), at, create_graph=True)
        slope.square().sum().backward()
        found.append([slope, at.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
