"""What tells objects of users apart: source, values and weights, for the hash of a run."""

import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import partial
from itertools import chain
from logging import Logger
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.code_hashes import (
    VALUES,
    attribute_names,
    digest_of_code,
    digest_of_values,
    global_names,
    is_plain,
    methods_of,
    source_of,
    written_by_user,
)
from fedcohort.core.user_code.own_code import is_of_user

if TYPE_CHECKING:
    from torch import nn

__all__ = ["code_identity", "identity"]


def identity(given: object) -> str:
    """Everything in an object that determines results: source of its class or function, values, and weights of a module.

    The functions, classes, numbers and texts that code of the user reads from its module are part of it.
    """
    used = _Used()
    text = _identity(given, used)
    return f"{text}:{used.others}" if used.others else text


def code_identity(cls: type) -> str:
    """Hashes of the compiled methods and of the plain values of a class and its base classes, except for those of installed packages.

    The source that Python finds is that of another class of the same name, if a file or a notebook defines the name twice.
    """
    return "".join(
        f"{digest_of_code([*methods_of(base)])}{digest_of_values(base)}"
        for base in cls.__mro__
        if written_by_user(base)
    )


class _Used:
    """What code of users reads outside of itself.

    Attributes:
        others: functions and classes of users by name and source, numbers and texts by name and value; in the order of their use.
        inside: the objects that are being read, each of which is in the one before it.
    """

    def __init__(self) -> None:
        self.others: list[str] = []
        self.inside: list[object] = []
        self._seen: set[object] = set()

    @contextmanager
    def reading(self, value: object) -> Iterator[None]:
        """Read a value in this block: where it holds itself, :meth:`is_inside` is true."""
        self.inside.append(value)
        try:
            yield
        finally:
            self.inside.pop()

    def is_inside(self, value: object) -> bool:
        """Whether a value is being read already, so that a cycle ends."""
        return any(value is other for other in self.inside)

    def add(self, functions: Iterable[FunctionType], *, closures: bool = True) -> None:
        """Add what ``functions`` read from their module and, with ``closures``, from the functions around them.

        Without, only what they read from modules in these functions is added.
        """
        for function in map(_unwrapped, functions):
            if function in self._seen or not is_of_user(function.__code__.co_filename):
                continue
            self._seen.add(function)
            attributes = tuple(dict.fromkeys(attribute_names(function.__code__)))
            for name in dict.fromkeys(global_names(function.__code__)):
                self._add_value(name, function.__globals__.get(name), attributes)
            for name, value in _closure(function).items():
                if closures or isinstance(value, ModuleType):
                    self._add_value(name, value, attributes)

    def add_class(self, cls: type) -> None:
        """Add what the methods of a class and of its base classes read."""
        self._seen.add(cls)
        for base in cls.__mro__:
            self.add(methods_of(base))

    def _add_value(self, name: str, value: object, attributes: tuple[str, ...]) -> None:
        """Add a value; of a module of the user, what ``attributes``, those that the code reads of any object, are in it."""
        value = _unwrapped(value)
        if isinstance(value, ModuleType):
            self._add_module(name, value, attributes)
        elif isinstance(value, VALUES):
            self.others.append(f"{name}={value!r}")
        elif isinstance(value, type | FunctionType) and value not in self._seen and written_by_user(value):
            self.others.append(f"{name}={source_of(value)}")
            if isinstance(value, type):
                self.add_class(value)
            else:
                self.add([value])

    def _add_module(self, name: str, module: ModuleType, attributes: tuple[str, ...]) -> None:
        file = getattr(module, "__file__", None)
        if file is None or not is_of_user(file):
            return
        for attribute in attributes:
            if attribute in vars(module):
                others = tuple(other for other in attributes if other != attribute)
                self._add_value(f"{name}.{attribute}", vars(module)[attribute], others)


def _unwrapped(value: Any) -> Any:
    """The user's function in one of a package, as of ``functools.cache`` or ``torch.no_grad()``; any other value as it is."""
    if not hasattr(value, "__wrapped__") or isinstance(value, type) or written_by_user(value):
        return value
    inner = inspect.unwrap(value)
    return inner if isinstance(inner, FunctionType) and written_by_user(inner) else value


def _closure(function: FunctionType) -> dict[str, Any]:
    """The variables of the functions around a function that it reads, by name, without those that have no value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _identity(given: object, used: _Used) -> str:
    """What :func:`identity` returns, without what is added to ``used``."""
    if isinstance(given, MethodType):
        return f"{_identity(given.__func__, used)} of {_value(given.__self__, used)}"
    given = given if inspect.isfunction(given) else _unwrapped(given)
    if isinstance(given, type):
        used.add_class(given)
        return _identity_of_class(given)
    if used.is_inside(given):
        return f"{type(given).__name__} {getattr(given, '__qualname__', '')}"
    with used.reading(given):
        return _identity_of_object(given, used)


def _identity_of_object(given: Any, used: _Used) -> str:
    """:func:`_identity` of an object that is neither a class nor a bound method."""
    if isinstance(given, partial):
        bound = [given.args, sorted(given.keywords.items())]
        return f"partial({_identity(given.func, used)}, {_value(bound, used)})"
    if inspect.isfunction(given):
        used.add([given], closures=False)  # they are part of the text
        return _identity_of_function(given, used)
    if hasattr(given, "named_parameters"):
        module = cast("nn.Module", given)
        for part in module.modules():
            used.add_class(type(part))
        return f"{_identity_of_class(type(given))}:{_digest_of_module(module, used)}"
    used.add_class(type(given))
    return f"{_identity_of_class(type(given))}:{_state(given, used)}"


def _state(given: object, used: _Used) -> str:
    """What an object holds: its text if it holds only plain values, as a ``@parameters`` object does, and otherwise a hash.

    The default text of Python's objects has an address, that of long arrays leaves out most values, and a class can have any text.
    """
    held = _held(given) or {}
    if is_dataclass(given) and all(map(is_plain, held.values())):
        return _ADDRESS.sub("", repr(given))
    pieces = _pieces(held or _ADDRESS.sub("", repr(given)), used)
    return _digest([code_identity(type(given)).encode()], pieces)


def _held(value: object) -> dict[str, object] | None:
    """The attributes of an object by name; None if it has none, so that its text has to do.

    Those in ``__slots__`` count for classes of the user and for dataclasses only: other packages keep there what they have computed,
    such as the hash of a path.
    """
    if not is_dataclass(value) and not written_by_user(type(value)):
        return getattr(value, "__dict__", None)
    state = object.__getstate__(value)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    return {**(attributes or {}), **{name: own for name, own in (slots or {}).items() if not name.startswith("__")}}


def _value(value: object, used: _Used) -> str:
    """A value that a function or a layer holds: the text of a number or a string, the name of a module, and a hash of other values."""
    if value is None or isinstance(value, VALUES):
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    return _identity(value, used) if callable(value) else _digest(_pieces(value, used))


def _digest(*pieces: Iterable[bytes]) -> str:
    """A hash of bytes."""
    digest = hashlib.sha256()
    for piece in chain(*pieces):
        digest.update(piece)
    return digest.hexdigest()[:16]


def _pieces(value: object, used: _Used) -> Iterator[bytes]:
    """A value as bytes that determine it: numbers, texts, arrays, tensors, functions, classes, and objects and collections of them."""
    yield f"{type(value).__name__} ".encode()
    if used.is_inside(value):
        yield b"cycle"
    elif isinstance(value, set | frozenset):
        yield from sorted(b"".join(_pieces(inner, used)) for inner in value)
    elif isinstance(value, Mapping | MutableSequence | tuple):
        inside = [*value.items()] if isinstance(value, Mapping) else value
        yield f"{len(inside)} ".encode()
        with used.reading(value):
            for inner in inside:
                yield from _pieces(inner, used)
    else:
        yield from _pieces_of_one(value, used)


def _pieces_of_one(value: Any, used: _Used) -> Iterator[bytes]:
    """What :func:`_pieces` yields for a value that is not a collection."""
    if hasattr(value, "detach") and hasattr(value, "is_floating_point"):  # a tensor; files can be detached, too
        value = value.detach().cpu().to_dense()
        value = value.double().numpy() if value.is_floating_point() else value.numpy()
    if hasattr(value, "__array__"):
        import numpy as np

        array = np.asarray(value)
        yield f"{array.dtype.str}{array.shape} ".encode()
        yield repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    elif isinstance(value, type | FunctionType | MethodType | partial) or hasattr(value, "named_parameters"):
        yield _identity(value, used).encode()
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
    elif isinstance(value, Logger):  # it holds all loggers of the process
        yield value.name.encode()
    elif (held := _held(value)) is not None:
        used.add_class(type(value))
        yield _identity_of_class(type(value)).encode()
        with used.reading(value):
            yield from _pieces(held, used)
    else:
        yield _ADDRESS.sub("", repr(value)).encode()


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OF_PYTHON = ("builtins", "abc")
"""Modules of Python; the source of base classes in them does not count."""
_VERSIONED = ("torch.", "fedcohort.")
"""Packages whose source is not part of a run's identity: runs made with another version of them are found again."""


def _identity_of_function(function: FunctionType, used: _Used) -> str:
    """The source of a function, its default values, and the variables that it closes over."""
    inside = [_value(value, used) for value in _closure(function).values()]
    defaults = f"{_value(function.__defaults__, used)}:{_value(function.__kwdefaults__, used)}"
    return f"{function.__module__}.{function.__qualname__}:{source_of(function)}:{inside}:{defaults}"


def _identity_of_class(cls: type) -> str:
    """The source of a class and of its base classes, except for those of Python, torch and FedCohort."""
    own = [
        base for base in cls.__mro__ if not (base.__module__ in _OF_PYTHON or base.__module__.startswith(_VERSIONED))
    ]
    written = [source_of(base) for base in own]
    return f"{cls.__module__}.{cls.__qualname__}:{written}"


def _digest_of_module(module: "nn.Module", used: _Used) -> str:
    """A hash of the structure, the source and the weights of a module, and of everything else in it that changes its outputs.

    Raises:
        UsageError: a parameter has no values, as in lazy layers before their first call.
    """
    digest = hashlib.sha256(repr(module).encode())
    for part in module.modules():
        digest.update(source_of(type(part)).encode() if not type(part).__module__.startswith(_VERSIONED) else b"")
    for entry, value in module.state_dict().items():
        digest.update(_entry(entry, value, type(module).__name__))
    for name, part in module.named_modules():
        if settings := _settings(part, used):
            digest.update(f"{name} {settings}".encode())
    return digest.hexdigest()


def _entry(name: str, value: Any, model: str) -> bytes:
    """An entry of a module's state as bytes.

    Raises:
        UsageError: it has no values.
    """
    from torch import bfloat16

    if not hasattr(value, "is_meta"):  # such as the dtype of quantized layers, or what get_extra_state returns
        return f"{name} {_ADDRESS.sub('', repr(value))}".encode()
    if value.is_meta or type(value).__name__.startswith("Uninitialized"):
        raise UsageError(
            f"model = {model}: {name} has no values yet; give layers their sizes, or a function that builds the model"
        )
    value = value.float() if value.dtype is bfloat16 else value  # which NumPy lacks
    values: bytes = value.detach().cpu().numpy().tobytes()
    return name.encode() + values


def _settings(layer: "nn.Module", used: _Used) -> list[str]:
    """What neither the text nor the state of a layer says: frozen parameters, buffers that are not saved, hooks, and attributes.

    Of the attributes of a layer of a package, only public ones that are plain values or functions count: what ``torch.compile`` notes
    in others is new in every process. Layers of torch print theirs, if they print any.
    """
    from torch import nn

    said = type(layer).__module__.startswith("torch.") and type(layer).extra_repr is not nn.Module.extra_repr
    written = written_by_user(type(layer))
    usual = vars(nn.Module())
    own = {} if said else {name: value for name, value in vars(layer).items() if name not in usual}
    unsaved = {name: layer._buffers.get(name) for name in sorted(layer._non_persistent_buffers_set)}
    hooks = [*layer._forward_pre_hooks.values(), *layer._forward_hooks.values()]
    return [
        *(f"frozen {name}" for name, value in layer.named_parameters(recurse=False) if not value.requires_grad),
        *(f"{name}={_value(value, used)}" for name, value in unsaved.items()),
        *(f"hook {_value(hook, used)}" for hook in hooks),
        *(
            f"{name}={_value(value, used)}"
            for name, value in own.items()
            if written or (not name.startswith("_") and (is_plain(value) or isinstance(value, FunctionType)))
        ),
    ]
