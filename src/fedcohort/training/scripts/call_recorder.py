"""Writes down the calls that PyTorch makes while a function runs, those of autograd's backward pass included, as lines of TorchScript.

Below autograd, every computation of a network is a call of an operator on tensors. The same calls in the same order, on tensors with
the same shapes and memory layouts, give the same bits; Python and autograd are no longer needed for them.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from fedcohort.core.shared_memory import memory_number
from fedcohort.training.scripts.call_sharing import shared_call

__all__ = ["ONE_AT_A_TIME", "CallRecorder", "NoRecordError", "tensors_in"]

_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Tags of operators that return a value to Python, such as ``item``, or a number of results that depends on values."""

_LIBRARIES = frozenset(("aten", "mkldnn"))
"""PyTorch's own libraries of operators: ATen, and the products and convolutions of oneDNN. Others may do anything."""

_READS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default}
"""Operators that return a single number to Python: ``item``, ``float``, ``bool`` and the like call the first one."""

ONE_AT_A_TIME = threading.Lock()
"""Held while a recorder sees calls: PyTorch notes that in a global variable, which two threads would not restore."""

MOST_READS = 64
"""Maximum number of numbers that a pass may read. TorchScript nests a block for each, and takes minutes to compile a thousand."""

_REFUSED = frozenset(("_pack_padded_sequence", "_pad_packed_sequence", "prod", "cumprod", "_nested_tensor_from_mask"))
"""Names of operators that read values, and of those for which autograd makes other calls while it is observed."""

_DRAWS = torch.Tag.nondeterministic_seeded
"""The mark of operators that may draw random numbers."""

_PLAIN = (type(None), bool, int, str)
_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


class NoRecordError(Exception):
    """The calls cannot be written down, or other calls may be made next time."""


class CallRecorder(TorchDispatchMode):
    """Sees every call of an operator in this thread; other threads are not affected.

    The lines may ask idle threads for a part of the work, see :mod:`fedcohort.training.scripts.call_sharing`: the number of idle
    threads is ``idle``, and what they compute is ``begun``.

    Python code may read numbers, as in ``assert not x.isnan().any()``. With the same numbers, it makes the same calls. The lines
    compute each number again. If it is another one, they return ``other_calls(changed, before)``, which puts back what they have
    changed.

    Attributes:
        lines: the calls, in order; each has its results as variables.
        shares: whether there is work in them for an idle thread.
        constants: tensors of which Python code has written the values, such as ``torch.tensor([0.5])``.
        draws: whether the calls draw random numbers, from a generator that the lines call ``generator``.

    Args:
        given: names of the tensors that the calls may read.
        fixed: those of them that no call may change.
        lists: numbers of tensors of the given lists that calls such as ``_foreach_mul_`` may change, by name. TorchScript leaves out
            a call that changes the tensors of a list of its own.

    Raises:
        NoRecordError: from within a call, if it cannot be written down.
    """

    def __init__(
        self, given: Iterable[tuple[str, Tensor]], fixed: Sequence[Tensor], lists: Mapping[str, int] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines: list[str] = []
        self.constants: list[Tensor] = []
        self.draws = False
        self.shares = False
        self._read: set[int] = set()  # memory that another thread may be reading
        self._written: set[int] = set()  # memory that another thread may be writing
        self._names = WeakTensorKeyDictionary()  # weakly, because autograd reuses the memory of what nothing else holds
        self._lists = {
            f"[{', '.join(f'{name}[{i}]' for i in range(size))}]": name for name, size in (lists or {}).items()
        }
        self._number = 0
        self._reads = 0
        self._fixed = {memory_number(tensor) for tensor in fixed}
        self._given: dict[int, list[str]] = {}  # names of what the calls are given, by memory
        self._changed: set[int] = set()  # memory that calls have changed
        self._before: dict[str, str] = {}  # variables that have what a given tensor was before
        for name, tensor in given:
            self._names[tensor] = name
            self._given.setdefault(memory_number(tensor), []).append(name)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do not load PyTorch's compiler to keep it away from the calls: that takes a second."""
        return False

    def name(self, tensor: Tensor) -> str:
        """The name of a tensor in the lines."""
        found: str | None = self._names.get(tensor)
        if found is None:
            raise NoRecordError(tensor.shape)
        return found

    def _add_constant(self, tensor: Tensor) -> None:
        self._names[tensor] = f"constants[{len(self.constants)}]"
        self.constants.append(tensor)
        self._fixed.add(memory_number(tensor))

    def __torch_dispatch__(
        self, operator: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """An operator is called."""
        named = kwargs or {}
        library, _, name = operator._schema.name.partition("::")
        if operator in _READS:
            return self._read_number(operator, args)
        depends = _DEPENDENT.intersection(operator.tags) and not _is_by_integers(operator, args)
        if library not in _LIBRARIES or name in _REFUSED or depends:
            raise NoRecordError(operator)
        if operator is torch.ops.aten.lift_fresh.default and args[0] not in self._names:
            self._add_constant(args[0])
        words = [self._word(value) for value in args]
        words += [f"{name}={self._word(value)}" for name, value in named.items()]
        words += self._draw(operator, args, named) if _DRAWS in operator.tags else []
        changed = self._memory_changed(operator, args, named)
        self._changed |= changed
        self._wait_for_others(operator, args, named)
        results = operator(*args, **named)
        call = f"torch.ops.{library}.{name}({', '.join(words)})"
        shared = shared_call(operator, args, named, words, results)
        if shared is not None:
            self.shares = True
            self._read.update(map(memory_number, shared.read))
            self._written.update(map(memory_number, shared.written))
        self._note(call if shared is None else shared.line, results)
        return results

    def _memory_changed(self, operator: Any, args: tuple[Any, ...], named: dict[str, Any]) -> set[int]:
        """The memory that a call changes.

        Raises:
            NoRecordError: TorchScript would leave the call out, or it would give other results next time.
        """
        written = [*_written(operator._schema, args, named)]
        lists = [value for value in written if isinstance(value, list | tuple)]
        changed = set(map(memory_number, tensors_in(written)))
        own = any(self._word(value) not in self._lists.values() for value in lists)
        only_checks = not (changed or operator._schema.returns)
        if own or only_checks or not self._fixed.isdisjoint(changed):
            raise NoRecordError(operator)
        return changed

    def _read_number(self, operator: Any, args: tuple[Any, ...]) -> bool | int | float:
        """Python reads a number; all other calls depend on it."""
        self._reads += 1
        if self._written or self._reads > MOST_READS:
            raise NoRecordError(operator)  # another thread may be at work, or compiling would take long
        words = ", ".join(map(self._word, args))
        value: bool | int | float = operator(*args)
        if type(value) not in (bool, int, float) or (isinstance(value, float) and value == 0):
            raise NoRecordError(value)  # 0.0 equals -0.0, with which Python code may do something else
        call = f"torch.ops.aten.equal({words})" if len(args) > 1 else f"{type(value).__name__}({words})"
        undone = f"[{', '.join(self._kept())}], [{', '.join(self._before.values())}]"
        self.lines += [f"if {call} != {self._word(value)}:", f"    return other_calls({undone})"]
        return value

    def _kept(self) -> list[str]:
        """The given tensors that calls have changed; the first lines keep what they were before."""
        for names in (names for memory, names in self._given.items() if memory in self._changed):
            if len(names) > 1:
                raise NoRecordError(names)  # they may overlap
            if names[0] not in self._before:
                self._before[names[0]] = variable = self._variable()
                self.lines.insert(0, f"{variable} = {names[0]}.clone()")
        return list(self._before)

    def _note(self, call: str, results: object) -> None:
        """Write down a call with its results."""
        if isinstance(results, list):
            whole = self._variable()
            self.lines.append(f"{whole} = {call}")
            self.lines += [f"{self._new(part)} = {whole}[{i}]" for i, part in enumerate(results)]
        elif isinstance(results, tuple):
            self.lines.append(f"{', '.join(map(self._new, results))} = {call}")
        else:
            self.lines.append(call if results is None else f"{self._new(results)} = {call}")

    def _wait_for_others(self, operator: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Other threads must have finished before a call that uses their results or changes what they read."""
        used = map(memory_number, tensors_in([*args, *named.values()]))
        changed = map(memory_number, tensors_in(_written(operator._schema, args, named)))
        if self._read.isdisjoint(changed) and (operator in _VIEWS or self._written.isdisjoint(used)):
            return
        self.lines.append("finish(begun)")
        self._read.clear()
        self._written.clear()

    def _draw(self, operator: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[str]:
        """What a call of an operator that may draw is given in addition."""
        names = [argument.name for argument in operator._schema.arguments]
        given = dict(zip(names, args, strict=False)) | named
        if _has_twin_with_generator(operator, names):
            self.draws = True
            return ["generator=generator"]
        if "generator" in names and given.get("generator") is None and len(args) <= names.index("generator"):
            self.draws = True
            return ["generator=generator"]
        if "generator" in names or given.get("dropout_p", 0.0 if "dropout_p" in names else None) != 0.0:
            raise NoRecordError(operator)
        return []

    def _word(self, value: object) -> str:
        """How TorchScript writes a value."""
        if isinstance(value, Tensor):
            if value.layout != torch.strided or value.device.type != "cpu":
                raise NoRecordError(value.layout, value.device)
            return self.name(value)
        if isinstance(value, list | tuple):
            words = f"[{', '.join(map(self._word, value))}]"
            return self._lists.get(words, words)
        if isinstance(value, float):
            return f'float("{value!r}")'
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if type(value) in _PLAIN:
            return repr(value)
        if isinstance(value, _CONSTANTS):
            return str(value)
        raise NoRecordError(type(value))

    def _new(self, result: object) -> str:
        """The variable that has a result from now on."""
        variable = self._variable()
        if isinstance(result, Tensor) and result not in self._names:
            self._names[result] = variable
        return variable

    def _variable(self) -> str:
        self._number += 1
        return f"t{self._number}"


_VIEWS = {torch.ops.aten.detach.default, torch.ops.aten.t.default, torch.ops.aten.view.default}
"""Operators that give another view of a tensor, whatever its values are."""


def _has_twin_with_generator(operator: Any, names: list[str]) -> bool:
    """Whether an operator has a version that takes a generator besides its arguments, as ``randn`` and ``rand_like`` have."""
    packet = operator.overloadpacket
    others = [getattr(packet, name)._schema.arguments for name in packet.overloads()]
    found = [[argument.name for argument in arguments if argument.name != "out"] for arguments in others]
    return "generator" not in names and any(
        "generator" in one and [n for n in one if n != "generator"] == names for one in found
    )


def tensors_in(values: Iterable[object]) -> Iterator[Tensor]:
    """The tensors among the values, with those in lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _written(schema: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Iterator[object]:
    """What a call with these arguments changes: tensors and lists. PyTorch's schema of batch norm does not name all of it."""
    values = dict(enumerate(args)) | named
    for number, argument in enumerate(schema.arguments):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written or (schema.name == "aten::native_batch_norm" and argument.name in ("running_mean", "running_var")):
            yield values.get(number, values.get(argument.name))


def _is_by_integers(operator: Any, args: tuple[Any, ...]) -> bool:
    """Whether this is a selection by integers: only one by Booleans has a number of results that depends on values."""
    return operator is torch.ops.aten.index.Tensor and all(
        index is None or index.dtype in (torch.int32, torch.int64) for index in args[1]
    )
