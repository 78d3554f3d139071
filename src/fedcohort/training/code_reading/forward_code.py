"""Whether the Python code of a network's forward passes does nothing but compute outputs.

A program replaces the calls of a network (see :mod:`fedcohort.training.programs.network_rows`), so that its Python code no longer
runs. Code that counts calls, prints, draws from a generator of its own or reads something that may change in between must go on
running. So must code that sets attributes, unless no forward pass reads them, as those in which attention is kept to be looked at.
The check reads the compiled code and follows the functions that it calls, but those of PyTorch and of :mod:`libraries of networks
<fedcohort.training.code_reading.network_libraries>`. What it cannot judge counts as such code.
"""

import builtins
import math
from collections import ChainMap
from collections.abc import Iterable, Sequence
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Protocol

import numpy
from torch import Tensor, nn

from fedcohort.training.code_reading.code_instructions import (
    attributes_read,
    attributes_set,
    catches_errors,
    changes_contents,
    codes_in,
    has_effects,
    names_loaded,
    reads_any,
    uses_arrays,
)
from fedcohort.training.code_reading.constant_values import OF_DATACLASSES, frozen, may_change
from fedcohort.training.code_reading.network_libraries import is_of_library

__all__ = ["OF_ALL_MODULES", "Check", "Names", "names_kept", "names_read", "only_computes", "runs_unnamed"]

_BUILTINS: dict[str, object] = {
    name: getattr(builtins, name)
    for name in (
        "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float", "getattr", "hasattr", "int", "isinstance",
        "iter", "len", "list", "map", "max", "min", "next", "pow", "range", "reversed", "round", "set", "slice", "sorted", "sum",
        "super", "tuple", "zip", "AssertionError", "NotImplementedError", "RuntimeError", "TypeError", "ValueError",
    )
}  # fmt: skip
"""Built-in names that forward passes may use."""

_REPLACEMENTS = ("fedcohort.training.matrix_products", "fedcohort.training.networks.memory_layouts")
"""FedCohort's modules with classes that take the place of a layer or a network, and compute the same."""

_UNUSED = frozenset(
    (
        "__init__", "__repr__", "__str__", "__del__", "__dir__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__",
        "__copy__", "__deepcopy__", "__init_subclass__", "__class_getitem__",
        "extra_repr", "train", "eval", "reset_parameters", "state_dict", "load_state_dict", "_load_from_state_dict",
    )
)  # fmt: skip
"""Methods that no forward pass calls."""

OF_ALL_MODULES = frozenset(vars(nn.Module()))
"""Attributes that every module has."""

_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
"""Types of tensors; subclasses may run code of their own in every call."""


def only_computes(module: nn.Module) -> bool:
    """Whether the forward passes of all parts are PyTorch's, or do nothing but compute."""
    check = Check(list(module.modules()))
    usual = all(type(tensor) in _TENSORS for tensor in (*module.parameters(), *module.buffers()))
    return usual and all(map(check.part, module.modules())) and check.effects_are_unseen()


class Names(Protocol):
    """Values by name, such as the globals of a Python module."""

    def get(self, name: str, /) -> object:
        """The value of a name; None if there is none."""


def names_read(module: nn.Module) -> list[tuple[Names, set[str]]]:
    """The names that forward passes read, besides the attributes of the network's parts, if these passes do nothing but compute.

    They are global names, variables of enclosing functions, and attributes of classes.
    """
    return _checked(module).read


def names_kept(module: nn.Module) -> frozenset[str]:
    """The attributes that forward passes set and that none of them reads; empty if these passes do anything else but compute."""
    return frozenset(_checked(module).stored) if only_computes(module) else frozenset()


def _checked(module: nn.Module) -> "Check":
    """The check of all parts of a network."""
    check = Check(list(module.modules()))
    for part in module.modules():
        check.part(part)
    return check


class Check:
    """The check of the code of some objects; every function is checked once.

    Attributes:
        parts: the objects: the modules of a network, or a local loss with its modules.
        read: what the functions read, see :func:`names_read`.
        reads_lists: whether a function reads a list, a dictionary or a record that is no local variable.
        changes_lists: whether a function may change a list or a dictionary.
        stored: names of the attributes that functions set.
        loaded: names of the attributes that they read.
        reads_any: whether a function may read attributes of any name.
    """

    def __init__(self, parts: Sequence[object]) -> None:
        self.parts = parts
        self._classes = {cls for part in self.parts for cls in type(part).__mro__}
        self.read: list[tuple[Names, set[str]]] = []
        self.reads_lists = self.changes_lists = self.reads_any = False
        self.stored: set[str] = set()
        self.loaded: set[str] = set()
        self._checked: set[FunctionType] = set()

    def effects_are_unseen(self) -> bool:
        """Whether no forward pass, and nothing of PyTorch, reads what the checked functions change."""
        if self.reads_lists and self.changes_lists:
            return False
        modules = [part for part in self.parts if isinstance(part, nn.Module)]
        return not self.stored or not (self.reads_any or self.stored & (self.loaded | _reserved(modules)))

    def part(self, part: nn.Module) -> bool:
        """Whether the forward pass of one part does nothing but compute."""
        cls = type(part)
        if any(base.__name__ == "GraphModule" for base in cls.__mro__):  # its nodes may call anything
            return False
        if all(map(_is_trusted, cls.__mro__[:-1])):
            own = [value for name, value in vars(part).items() if name not in OF_ALL_MODULES]
            return all(
                self._may_use(value, part) for value in own if callable(value) and not isinstance(value, _TENSORS)
            )
        usual = ("__call__", "__getattr__", "__getattribute__", "_call_impl", "_wrapped_call_impl")
        if any(getattr(cls, name, None) is not getattr(nn.Module, name, None) for name in usual):
            return False
        forwards = [vars(base)["forward"] for base in cls.__mro__ if "forward" in vars(base)]
        return all(self.function(forward, part) for forward in (*forwards, *_called_unnamed(cls)))

    def function(self, function: object, part: object) -> bool:
        """Whether a function that belongs to ``part``, or that a function of it calls, does nothing but compute."""
        if _is_trusted(function):
            return True
        if not isinstance(function, FunctionType):
            return False
        if function in self._checked:
            return True
        self._checked.add(function)
        used = self._values_used(function)
        return used is not None and not self._makes_objects(used) and all(self._may_use(value, part) for value in used)

    def _values_used(self, function: FunctionType) -> list[object] | None:
        """The values that a function may read; None if it has effects, catches errors, or has attributes that it may read."""
        codes = list(codes_in(function.__code__))
        if vars(function) or any(
            has_effects(code) or catches_errors(code) or uses_arrays(code, function.__globals__) for code in codes
        ):
            return None
        self.changes_lists |= any(map(changes_contents, codes))
        used: list[object] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for code in codes:
            self._note_attributes(code)
            attributes = self._attributes(code)
            names = _names_of(code, function, self.parts, attributes)
            used += _values_of(names)
            used += [vars(owner)[name] for owner in self.parts for name in attributes if name in vars(owner)]
            self.read += names
        return used

    def _makes_objects(self, used: list[object]) -> bool:
        """Whether a function that uses these values may make an object of a user's class, or call a method of such a class."""
        own = {value for value in used if isinstance(value, type) and not _is_known(value)}
        return bool(own) and (not own <= self._classes or (super not in used and isinstance not in used))

    def _note_attributes(self, code: CodeType) -> None:
        """Note the attributes that the code sets and reads."""
        self.stored |= attributes_set(code)
        self.loaded |= attributes_read(code)
        self.reads_any |= reads_any(code)

    def _attributes(self, code: CodeType) -> set[str]:
        """The names of attributes that the code may read."""
        if not reads_any(code):
            return set(code.co_names) - (attributes_set(code) - attributes_read(code))
        texts = {constant for constant in code.co_consts if isinstance(constant, str)}
        own = [part for part in self.parts if not _is_trusted(type(part))]  # names may be put together
        names = {name for part in own for place in (part, *_own_classes(part)) for name in vars(place)}
        methods = {name for name in names if not name.startswith("__")} - _UNUSED - OF_ALL_MODULES
        return methods | texts | set(code.co_names)

    def _may_use(self, value: object, part: object) -> bool:
        """Whether a forward pass that reads this value does nothing but compute."""
        if frozen(value) is not None:
            self.reads_lists |= may_change(value)
            return True
        if isinstance(value, tuple):
            return all(self._may_use(item, part) for item in value)
        if isinstance(value, ModuleType):
            return value is math or _is_trusted(value)
        if isinstance(value, property):
            return self.function(value.fget, part)
        if isinstance(value, staticmethod | classmethod):
            return self.function(value.__func__, part)
        if isinstance(value, partial):
            items = (value.func, *value.args, *value.keywords.values())
            constant = not any(frozen(item) is not None and may_change(item) for item in items)
            return constant and all(self._may_use(item, part) for item in items)
        if isinstance(value, type):
            return _is_known(value) or issubclass(value, nn.Module)
        if type(value) in _TENSORS or any(value is one for one in self.parts):
            return True
        return _is_harmless_builtin(value) or self.function(value, part)


def _reserved(parts: Iterable[nn.Module]) -> set[str]:
    """Names of attributes that PyTorch, or a class of the network, may read: setting them may change what the network computes."""
    names: set[str] = set(dir(Tensor)) | OF_ALL_MODULES
    for part in parts:
        names |= {*part._parameters, *part._buffers, *part._modules, *dir(type(part))}
        for base in filter(_is_trusted, type(part).__mro__[:-1]):
            functions = [value for value in vars(base).values() if isinstance(value, FunctionType)]
            names.update(*(code.co_names for function in functions for code in codes_in(function.__code__)))
    return names


def _own_classes(part: object) -> list[type]:
    """The classes of a part that are not PyTorch's."""
    return [cls for cls in type(part).__mro__[:-1] if not _is_trusted(cls)]


def runs_unnamed(part: object) -> bool:
    """Whether a class of ``part`` has special methods, which code may call without naming them, such as ``__call__``."""
    known = _UNUSED | OF_DATACLASSES
    methods = {name for cls in _own_classes(part) for name, value in vars(cls).items() if callable(value)}
    return any(name.startswith("__") and name not in known for name in methods)


def _called_unnamed(cls: type) -> list[FunctionType]:
    """The methods of a class that may be called although no code names them: special methods, and those that replace PyTorch's."""
    own = [base for base in cls.__mro__[:-1] if not _is_trusted(base)]
    torchs: set[str] = set().union(*(vars(base) for base in cls.__mro__[:-1] if _is_trusted(base)))
    methods = [(name, value) for base in own for name, value in vars(base).items() if isinstance(value, FunctionType)]
    return [value for name, value in methods if (name in torchs or name.startswith("__")) and name not in _UNUSED]


def _is_trusted(value: object) -> bool:
    """Whether a class, function or module is part of PyTorch, of a library of networks, or of FedCohort's replacements of layers."""
    if not isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        return False
    if isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        value = owner if isinstance(owner, type | ModuleType) else type(owner)
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return is_of_library(name) or (
        isinstance(name, str) and (name.partition(".")[0] == "torch" or name in _REPLACEMENTS)
    )


def _is_known(value: object) -> bool:
    """Whether a class is part of PyTorch, or a harmless one of Python."""
    return _is_trusted(value) or _is_harmless_builtin(value)


def _is_harmless_builtin(value: object) -> bool:
    return value is not None and _BUILTINS.get(getattr(value, "__name__", "")) is value


def _values_of(names: Iterable[tuple[Names, set[str]]]) -> list[object]:
    """The values of these names. Global names of numpy are left out: :func:`uses_arrays` checks how they are used."""
    values = [(value, owner) for owner, read in names for value in map(owner.get, read)]
    return [value for value, owner in values if value is not numpy or not isinstance(owner, ChainMap)]


class _Closure:
    """The variables of enclosing functions that a function reads."""

    def __init__(self, function: FunctionType) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def get(self, name: str, /) -> object:
        """The value of a variable; an object that no forward pass may use if there is none."""
        try:
            return self._cells[name].cell_contents
        except ValueError:
            return _MISSING


_MISSING = object()


def _names_of(
    code: CodeType, function: FunctionType, parts: Sequence[object], attributes: set[str]
) -> list[tuple[Names, set[str]]]:
    """The names that the code of a function reads, and ``attributes`` that the classes of ``parts`` have, unless these are PyTorch's.

    The code may read attributes of other objects under these names. Then the check is stricter than necessary.
    """
    classes = {cls for part in parts for cls in _own_classes(part)}
    return [
        (_Closure(function), set(function.__code__.co_freevars)),
        (ChainMap(function.__globals__, vars(builtins)), names_loaded(code)),
        *((vars(cls), attributes & vars(cls).keys()) for cls in classes),
    ]
