"""What tells objects of users apart: everything that can change results, and nothing that differs between processes."""

import copy
import importlib
import linecache
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcohort
from fedcohort.core.user_code import identity as identity_module
from fedcohort.core.user_code.code_hashes import source_of
from fedcohort.core.user_code.identity import identity
from fedcohort.models import ResNet18
from fedcohort.selection.strategies.uniform import Uniform
from tests.experiments import IID, blobs, small


@dataclass
class Holder:
    """A value in an object."""

    value: object


def closing_over(value: object) -> Callable[[], object]:
    """A function that closes over a value."""
    return lambda: value


def with_default(value: object) -> Callable[[], object]:
    """A function with a default value."""

    def function(given: object = value) -> object:
        return given

    return function


def named(value: object) -> object:
    """A function of one argument."""
    return value


@pytest.mark.parametrize("given", [closing_over, with_default, lambda value: partial(named, value)])
@pytest.mark.parametrize("inside", [lambda value: value, lambda value: [1, value], lambda value: {"a": value}, Holder])
def test_functions_differ_by_arrays_whose_text_is_equal(
    given: Callable[[object], object], inside: Callable[[object], object]
) -> None:
    """The text of a long array leaves out most entries, and that of any array most digits."""
    one, other = np.zeros(2000), np.zeros(2000)
    other[1000] = 1
    pairs = [
        (one, other),
        (torch.tensor(one), torch.tensor(other)),
        (np.array([0.1234567891]), np.array([0.1234567892])),
    ]
    for first, second in pairs:
        assert identity(given(inside(first))) != identity(given(inside(second)))
        assert identity(given(inside(first))) == identity(given(inside(copy.deepcopy(first))))


def test_functions_close_over_modules_and_themselves() -> None:
    def calls_itself(n: int) -> float:
        return 0.0 if n == 0 else calls_itself(n - 1)

    assert identity(calls_itself) == identity(calls_itself)
    assert "numpy" in identity(closing_over(np))
    assert identity(closing_over([np])) == identity(closing_over([np]))
    assert identity(closing_over(object())) == identity(closing_over(object()))


class Builder:
    """An object whose text says nothing, and with a method that is given as a function."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Builder"

    def build(self) -> object:
        return self.value


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


@dataclass(slots=True)
class SlottedHolder:
    """A value in a dataclass without a dictionary."""

    value: object


@pytest.mark.parametrize("inside", [lambda value: value, closing_over, Holder, lambda value: partial(named, value)])
@pytest.mark.parametrize("make", [Builder, lambda value: Builder(value).build, Slotted])
def test_objects_differ_by_values_that_their_text_does_not_say(
    make: Callable[[object], object], inside: Callable[[object], object]
) -> None:
    """Another object than before got the run of the first one."""
    assert identity(inside(make(1))) != identity(inside(make(2)))
    assert identity(inside(make(1))) == identity(inside(make(1)))


def test_dataclasses_without_a_dictionary_differ_by_long_arrays() -> None:
    one, other = np.zeros(2000), np.zeros(2000)
    other[1000] = 1
    assert identity(SlottedHolder(one)) != identity(SlottedHolder(other))


def test_a_network_from_a_method_of_another_object_is_another_run(tmp_path: Path) -> None:
    """The two networks have the same weights."""

    class Networks:
        def __init__(self, dropout: float) -> None:
            self.dropout = dropout

        def build(self) -> nn.Module:
            return nn.Sequential(nn.Dropout(self.dropout), nn.Linear(4, 3))

    runs = [
        fedcohort.run(small(rounds=1, **IID), data=blobs(), model=Networks(dropout).build, runs=tmp_path)
        for dropout in (0.0, 0.9)
    ]
    assert runs[0].path != runs[1].path
    assert runs[0].digest() != runs[1].digest()


def test_objects_with_loggers_files_and_cycles_have_an_identity(tmp_path: Path) -> None:
    """A logger leads to all loggers and handlers of the process, and a file to its buffer."""
    log = logging.getLogger("fedcohort.tests.identity")
    log.addHandler(logging.StreamHandler())
    try:
        before = identity(Holder([log]))
        logging.getLogger("fedcohort.tests.another")
        assert identity(Holder([log])) == before
    finally:
        log.handlers.clear()
    with (tmp_path / "log.txt").open("w") as file:
        identity(Holder(file))
    around: list[object] = [1]
    around.append(around)
    held = Builder(None)
    for value in (held, held.build, partial(named, held), closing_over(held), around, {"a": around}):
        held.value = value
        assert identity(held) == identity(held)
        assert identity(closing_over(value)) == identity(closing_over(value))
    path = tmp_path / "log.txt"
    before = identity(Holder([path]))
    assert {path: 1}
    assert identity(Holder([path])) == before, "a path notes its hash, which is another one in every process"
    identity(Holder(torch.eye(2).to_sparse()))
    identity(Holder(torch.float32))


def test_functions_can_read_variables_that_have_no_value_yet() -> None:
    def reads() -> object:
        return later()

    before = identity(reads)

    def later() -> int:
        return 1

    assert identity(reads) != before


def one_class(*, first: bool) -> type:
    """One of two classes that have the same name."""
    if first:

        class Same:
            def value(self) -> int:
                return 1

        return Same

    class Same:  # type: ignore[no-redef]
        def value(self) -> int:
            return 2

    return Same


def test_classes_of_one_name_in_one_file_are_told_apart() -> None:
    """Python finds the source of the first one for both."""
    one, other = one_class(first=True), one_class(first=False)
    assert identity(one) != identity(other)
    assert identity(Holder(one)) != identity(Holder(other))
    assert identity(closing_over(one)) != identity(closing_over(other))
    assert identity(Holder(one())) != identity(Holder(other())), "an object without attributes has its class"


@pytest.mark.parametrize("module", ["abc_networks", "builtins_and_more"])
def test_a_module_of_the_user_may_be_called_like_one_of_python(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes in a file such as abc_networks.py had no source in the name of a run: other code found the results of the old one."""
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number in (1, 2):
        file = tmp_path / f"{module}.py"
        file.write_text(f"class Network:\n    def build(self):\n        return {number}\n")
        linecache.clearcache()
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module, raising=False)
        found.append(identity(importlib.import_module(module).Network))
        for compiled in tmp_path.rglob("*.pyc"):
            compiled.unlink()
    monkeypatch.delitem(sys.modules, module)
    assert found[0] != found[1]


class Scaled(nn.Module):
    """A layer with a setting, a constant and a function."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.itself = [self]
        self.register_buffer("constant", torch.ones(2), persistent=False)
        self.function = torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x) * self.scale


def frozen(net: Any) -> None:
    net[0].requires_grad_(False)


def scaled(net: Any) -> None:
    net[1].scale = 2.0


def other_constant(net: Any) -> None:
    net[1].constant += 1


def other_function(net: Any) -> None:
    net[1].function = nn.functional.gelu


def hooked(net: Any) -> None:
    net[0].register_forward_hook(lambda layer, given, output: output * 2)


def other_heads(net: Any) -> None:
    net[2].num_heads = 1


@pytest.mark.parametrize("change", [frozen, scaled, other_constant, other_function, hooked, other_heads])
def test_networks_with_equal_weights_differ_by_what_else_changes_their_outputs(
    change: Callable[[Any], None],
) -> None:
    """Neither the text of a network nor its weights say these."""
    one = nn.Sequential(nn.Linear(2, 2), Scaled(1.0), nn.MultiheadAttention(2, 2)).bfloat16()
    other = copy.deepcopy(one)
    assert identity(one) == identity(other)
    change(other)
    assert identity(one) != identity(other)


def test_a_compiled_network_is_the_same_in_every_process() -> None:
    """An interrupted run was not found: torch.compile notes an address in the network."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    one, other = torch.compile(net), torch.compile(copy.deepcopy(net))
    assert identity(one) == identity(other)
    net[0].requires_grad_(False)
    assert identity(one) != identity(other)


def test_a_network_that_was_frozen_is_another_run(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    first = fedcohort.run(small(rounds=1, **IID), data=blobs(), model=net, runs=tmp_path)
    net[0].requires_grad_(False)
    second = fedcohort.run(small(rounds=1, **IID), data=blobs(), model=net, runs=tmp_path)
    assert first.path != second.path
    assert first.digest() != second.digest()


def test_what_a_decorated_function_reads_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that a decorator of a package makes is one of the package; what it reads was not found."""
    monkeypatch.setitem(globals(), "RATE", 1)
    own = [uses_cached, uses_quiet, WithQuietMethod, cached, quiet]
    before = list(map(identity, own))
    assert len(set(before)) == len(own)
    assert before == list(map(identity, own))
    monkeypatch.setitem(globals(), "RATE", 2)
    assert not set(before) & set(map(identity, own))


RATE = 0
"""Read by decorated functions."""


@cache
def cached() -> float:
    return RATE


@torch.no_grad()
def quiet() -> float:
    return RATE


def uses_cached() -> float:
    return cached()


def uses_quiet() -> float:
    return quiet()


class WithQuietMethod(nn.Module):
    @torch.no_grad()
    def rate(self) -> float:
        return RATE


def test_what_is_read_from_a_module_of_the_user_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only functions that were imported by their own names were found."""
    package = tmp_path / "own_package_with_rates"
    package.mkdir()
    (package / "__init__.py").write_text("unused = 0\n")
    inner = package / "inner.py"
    monkeypatch.syspath_prepend(str(tmp_path))

    def identities() -> list[str]:
        for name in ("own_package_with_rates", "own_package_with_rates.inner"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        module = importlib.import_module("own_package_with_rates.inner")
        monkeypatch.setitem(globals(), "own_module", module)
        monkeypatch.setitem(globals(), "own_package", sys.modules["own_package_with_rates"])
        return [identity(reads_module), identity(reads_package), identity(lambda: module.rate())]

    found = []
    for text in (
        "def rate():\n    return 10\n",
        "def rate():\n    return 2\n",
        "other = 1\ndef rate():\n    return 2\n",
    ):
        inner.write_text(text)
        linecache.clearcache()
        found.append(identities())
    assert not set(found[0]) & set(found[1])
    assert found[1] == found[2], "what the code does not read makes no difference"


own_module: Any = None
own_package: Any = None


def reads_module() -> object:
    return own_module.rate()


def reads_package() -> object:
    return own_package.inner.rate()


OBJECTS = """
from collections import deque
import torch
from fedcohort.core.user_code.identity import identity
from fedcohort.core.parameters import parameters
from fedcohort.selection.strategies.uniform import Uniform

@parameters
class Mine(Uniform):
    names: frozenset[str] = frozenset({"a", "b", "c", "d", "e"})

@torch.no_grad()
def measure(predictions, labels):
    return 1.0

class Held:
    def __init__(self):
        self.names = deque([{"a", "b", "c", "d", "e"}])

    def measure(self, predictions, labels):
        return 1.0

print(identity(Mine()), identity(measure), identity(Held()), identity(Held().measure))
"""


def test_objects_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Sets of texts have another order in every process, and methods another address, so that an interrupted run was not found."""
    file = tmp_path / "mine.py"
    file.write_text(OBJECTS)
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    printed = [subprocess.check_output([sys.executable, file], env=one, text=True) for one in environments]
    assert printed[0] == printed[1]


class OwnUniform(Uniform):
    """A strategy of the user."""


class OwnModel(nn.Sequential):
    """A network of the user with layers of FedCohort."""


@pytest.mark.parametrize("given", [OwnUniform, OwnModel(ResNet18().build((3, 8, 8), 3))])
def test_another_version_of_fedcohort_with_other_words_finds_the_same_runs(
    given: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identity(given)
    monkeypatch.setattr(
        identity_module,
        "source_of",
        lambda written: "changed" if written.__module__.startswith("fedcohort.") else source_of(written),
    )
    assert identity(given) == before
