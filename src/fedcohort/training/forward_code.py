"""Whether the Python code of a network's forward passes does nothing but compute outputs.

A program replaces the calls of a network (see :mod:`fedcohort.training.network_rows`), so that its Python code no longer runs. Code
that counts calls, prints, keeps activations, draws from a generator of its own or reads something that may change in between must go
on running. The check reads the compiled code and follows the functions that it calls. What it cannot judge counts as such code.
"""

import builtins
import dis
import inspect
import math
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import torch
from torch import nn

__all__ = ["only_computes"]

_BUILTINS: dict[str, object] = {
    function.__name__: function
    for function in (
        abs,
        all,
        any,
        bool,
        enumerate,
        float,
        getattr,
        hasattr,
        int,
        isinstance,
        len,
        list,
        max,
        min,
        range,
        reversed,
        super,
    )
} | {kind.__name__: kind for kind in (tuple, zip, AssertionError, NotImplementedError, RuntimeError, ValueError)}
"""Built-in names that forward passes may use."""

_PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.memory_format)
"""Types of values that cannot change."""

_REPLACEMENTS = ("fedcohort.training.matrix_products", "fedcohort.training.memory_layouts")
"""FedCohort's modules with classes that take the place of a layer or a network, and compute the same."""

_EFFECTS = frozenset(
    f"{what}_{where}" for what in ("STORE", "DELETE") for where in ("GLOBAL", "NAME", "ATTR", "SUBSCR", "SLICE")
) | {"IMPORT_NAME"}
"""Instructions that change something besides local variables, or may run other code."""


_SEEDING = frozenset(
    ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "fork_rng", "default_generator")
)
"""Names of what reads or changes the state of a random generator."""

_UNUSED = frozenset(
    ("__init__", "extra_repr", "train", "eval", "reset_parameters", "state_dict", "load_state_dict", "_load_from_state_dict")
)  # fmt: skip
"""Methods that no forward pass of PyTorch's layers calls."""


def only_computes(module: nn.Module) -> bool:
    """Whether the forward passes of all parts are PyTorch's, or do nothing but compute."""
    check = _Check(module)
    return all(check.part(part) for part in module.modules())


class _Check:
    """The check of one network; every function is checked once."""

    def __init__(self, module: nn.Module) -> None:
        self._parts = list(module.modules())
        self._checked: set[FunctionType] = set()

    def part(self, part: nn.Module) -> bool:
        """Whether the forward pass of one part does nothing but compute."""
        cls = type(part)
        if any(base.__name__ == "GraphModule" for base in cls.__mro__):  # its nodes may call anything
            return False
        if all(map(_is_torchs, cls.__mro__[:-1])):
            return all(self._may_use(value, part) for value in vars(part).values() if isinstance(value, FunctionType))
        usual = ("__call__", "__getattr__", "__getattribute__", "_call_impl", "_wrapped_call_impl")
        if any(getattr(cls, name, None) is not getattr(nn.Module, name, None) for name in usual):
            return False
        forwards = [vars(base)["forward"] for base in cls.__mro__ if "forward" in vars(base)]
        return all(self._function(forward, part) for forward in (*forwards, *_overriding(cls)))

    def _function(self, function: object, part: nn.Module) -> bool:
        """Whether a function that belongs to ``part``, or that a function of it calls, does nothing but compute."""
        if _is_torchs(function):
            return True
        if not isinstance(function, FunctionType):
            return False
        if function in self._checked:
            return True
        self._checked.add(function)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        used: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        try:
            used += [cell.cell_contents for _, cell in cells]
            for code in _codes(function.__code__):
                if _has_effects(code):
                    return False
                used += _globals_of(code, function)
                used += [value for owner in self._parts for value in _attributes_of(code, owner)]
        except (ValueError, KeyError):  # an empty cell, or a name that does not exist
            return False
        return all(self._may_use(value, part) for value in used)

    def _may_use(self, value: object, part: nn.Module) -> bool:
        """Whether a forward pass that reads this value does nothing but compute."""
        if isinstance(value, _PLAIN):
            return True
        if isinstance(value, tuple):
            return all(self._may_use(item, part) for item in value)
        if isinstance(value, ModuleType):
            return value is math or value.__name__.partition(".")[0] == "torch"
        if isinstance(value, property):
            return self._function(value.fget, part)
        if isinstance(value, staticmethod | classmethod):
            return self._function(value.__func__, part)
        if isinstance(value, type):
            return _is_torchs(value) or issubclass(value, nn.Module) or _is_harmless_builtin(value)
        return _is_harmless_builtin(value) or self._function(value, part)


def _overriding(cls: type) -> list[FunctionType]:
    """The methods of a class that replace some of PyTorch's, which PyTorch's code may call."""
    own = [base for base in cls.__mro__[:-1] if not _is_torchs(base)]
    torchs: set[str] = set().union(*(vars(base) for base in cls.__mro__[:-1] if _is_torchs(base)))
    methods = [(name, value) for base in own for name, value in vars(base).items() if isinstance(value, FunctionType)]
    return [value for name, value in methods if name in torchs - _UNUSED]


def _is_torchs(value: object) -> bool:
    """Whether a class or function is part of PyTorch, or of FedCohort's replacements of its layers."""
    if isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        value = owner if isinstance(owner, type | ModuleType) else type(owner)
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and (name.partition(".")[0] == "torch" or name in _REPLACEMENTS)


def _is_harmless_builtin(value: object) -> bool:
    return value is not None and _BUILTINS.get(getattr(value, "__name__", "")) is value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _has_effects(code: CodeType) -> bool:
    """Whether the code changes something besides local variables."""
    return not _SEEDING.isdisjoint(code.co_names) or any(
        instruction.opname in _EFFECTS
        or (instruction.opname == "STORE_DEREF" and instruction.argval in code.co_freevars)
        for instruction in dis.get_instructions(code)
    )


def _globals_of(code: CodeType, function: FunctionType) -> list[object]:
    """The values of the global names that the code reads.

    Raises:
        KeyError: a name does not exist.
    """
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    known = vars(builtins) | function.__globals__
    return [known[name] for name in names]


def _attributes_of(code: CodeType, part: nn.Module) -> list[object]:
    """The values that attributes read in the code have in the part, and in its classes that are not PyTorch's.

    The code may read attributes of other objects under these names. Then the check is stricter than necessary.
    """
    own = [vars(part)[name] for name in code.co_names if name in vars(part)]
    classes = [cls for cls in type(part).__mro__ if cls is not object and not _is_torchs(cls)]
    return own + [inspect.getattr_static(cls, name) for cls in classes for name in code.co_names if name in vars(cls)]
