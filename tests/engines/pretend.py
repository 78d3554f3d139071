"""A device that pretends to be a GPU: its tensors say that they live there, the CPU computes, and what a GPU refuses is refused.

Refused are operations on tensors of both devices (a number is welcome everywhere, and so are positions to index by), numpy's view of a
tensor, and fused optimisers over tensors that lie in memory in different ways. Counted is what makes a program wait for a GPU: every
number that is looked at, and every copy between the devices that is not said to need no waiting.

It has to be there before the first backward pass of a process, so a process of its own needs it: ``python -m tests.engines.pretend``
runs the cases of ``pretend_cases.py`` and prints what each found, as JSON.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten

OWN = ("empty.memory_format", "empty_strided", "_copy_from", "arange", "arange.start", "arange.start_step", "randperm")
"""Operations that reach the device without one of its tensors, or with Python's dispatch switched off."""
MOVES = ("copy_", "_to_copy", "_copy_from")
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class There(Tensor):
    """A tensor on the device; ``here`` are its numbers."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        return Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), storage_offset=here.storage_offset(), dtype=here.dtype, device=DEVICE
        )  # fmt: skip

    def __init__(self, here: Tensor) -> None:
        self.here = here

    def tolist(self) -> Any:
        GPU.waits.append("tolist")
        return self.here.tolist()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["here"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Any, size: Any, stride: Any) -> "There":
        return There(inner["here"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return compute(func, *args, **kwargs or {})


class Device:
    """The device, and how often somebody waited for it."""

    def __init__(self) -> None:
        self.waits: list[str] = []

    def waited(self, work: Callable[[], object]) -> list[str]:
        """The operations during ``work`` that make a program wait."""
        self.waits.clear()
        work()
        return list(self.waits)


DEVICE = torch.device("cpu")
WITHOUT_FLOAT64 = False
"""Whether the device refuses float64, as the GPU of a Mac does."""
GPU = Device()


def install() -> torch.device:
    """Make the device."""
    global DEVICE
    _setup_privateuseone_for_python_backend("pretend")
    DEVICE = torch.device("pretend", 0)
    factories = torch.library.Library("aten", "IMPL")
    for name in OWN:
        operation = getattr(getattr(aten, name.partition(".")[0]), name.partition(".")[2] or "default")
        factories.impl(name, lambda *args, _f=operation, **kwargs: compute(_f, *args, **kwargs), "PrivateUse1")
    globals()["_library"] = factories  # it ends with the object
    return DEVICE


def compute(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Do on the CPU what a GPU would do, or refuse what it would refuse."""
    name = function._schema.name.partition("::")[2]
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    _refuse(name, args, given)
    _count(name, function, args, kwargs, given)
    if name == "_copy_from":
        args[1].here.copy_(here(args[0]))
        return args[1]
    asked = kwargs.get("device")
    on_device = any(isinstance(value, There) for value in given) if asked is None else asked.type == DEVICE.type
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    found = function(*tree_map(here, args), **tree_map(here, kwargs))
    known = {id(here(value)): value for value in given}
    return tree_map(lambda value: _back(value, known, on_device), found)


def here(value: Any) -> Any:
    """Its numbers."""
    return value.here if isinstance(value, There) else value


def _back(value: Any, known: dict[int, Tensor], on_device: bool) -> Any:
    if not isinstance(value, Tensor):
        return value
    if on_device and WITHOUT_FLOAT64 and value.dtype == torch.float64:
        raise TypeError("Cannot convert a tensor to float64: the device does not have it")
    return known.get(id(value)) if id(value) in known else There(value) if on_device else value


def _refuse(name: str, args: Any, given: list[Tensor]) -> None:
    if name in MOVES:
        return
    if name in INDEXED and isinstance(args[0], There):
        given = [args[0], *(value for value in args[2:] if isinstance(value, Tensor))]
    elsewhere = [value for value in given if not isinstance(value, There) and value.dim()]
    if elsewhere and len(elsewhere) < len(given) and any(isinstance(value, There) for value in given):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found pretend:0 and cpu in {name}")
    if name.startswith("_fused_"):
        for group in zip(*(values for values in args[:3] if isinstance(values, list) and values), strict=False):
            if len({_layout(value) for value in group}) > 1:
                raise RuntimeError(
                    f"{name}: params, grads and state must have the same strides: {[v.stride() for v in group]}"
                )


def _layout(value: Tensor) -> tuple[int, ...]:
    return tuple(step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1)


def _count(name: str, function: Any, args: Any, kwargs: Any, given: list[Tensor]) -> None:
    if name in ("_local_scalar_dense", "nonzero", "masked_select", "bincount"):
        GPU.waits.append(name)
    if name in INDEXED and any(i is not None and (i.dtype == torch.bool or not isinstance(i, There)) for i in args[1]):
        GPU.waits.append(f"{name} by a mask or by positions on the CPU")
    if name == "_to_copy":
        to = kwargs.get("device", args[0].device)
        if (to.type == DEVICE.type) != isinstance(args[0], There) and not kwargs.get("non_blocking", False):
            GPU.waits.append("copy between the devices")
    elif name in ("copy_", "_copy_from"):
        free = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        if isinstance(args[0], There) != isinstance(args[1], There) and not free:
            GPU.waits.append("copy between the devices")
