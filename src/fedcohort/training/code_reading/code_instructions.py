"""What the compiled code of a function does, instruction by instruction."""

import dis
from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import CodeType

import numpy

__all__ = [
    "attributes_read", "attributes_set", "catches_errors", "changes_contents", "codes_in", "has_effects", "names_loaded", "reads_any",
    "uses_arrays",
]  # fmt: skip

_EFFECTS = frozenset(
    ("STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_ATTR", "DELETE_SUBSCR", "IMPORT_NAME")
)
"""Instructions with effects outside of the function. Assignments to attributes and to indices are judged apart from them."""

_READING = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
"""Instructions that read an attribute."""

_CHANGING = frozenset(
    ("append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "update", "setdefault")
)
"""Names of methods that change a list or a dictionary."""

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
"""Operation codes of jumps, after which the next instruction may be skipped."""

_NUMPY_OF_NUMBERS = frozenset(
    (
        "sqrt", "log", "log2", "log10", "exp", "ceil", "floor", "prod", "abs", "power", "pi", "e", "inf", "sin", "cos", "round",
    )
)  # fmt: skip
"""Names of numpy's functions of numbers that forward passes may use."""

_SEEDING = frozenset(
    ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "fork_rng", "default_generator")
)
"""Names of what reads or changes the state of a random generator."""

_OUTSIDE = frozenset(
    ("load", "save", "from_file", "compile", "jit", "hub", "distributed", "multiprocessing", "profiler", "library", "utils")
)  # fmt: skip
"""Names of what in PyTorch reads or writes files, or does something else than compute."""

_OF_JIT = frozenset(("is_scripting", "is_tracing"))
"""Names in ``torch.jit`` that forward passes may use: they are False in every pass that Python runs."""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def has_effects(code: CodeType) -> bool:
    """Whether the code changes something besides local variables and attributes of its first argument, ``self`` in methods."""
    steps = list(dis.get_instructions(code))
    names = set(code.co_names) - {"jit"} if _only_asks_jit(steps) else set(code.co_names)
    refused = any(name in _SEEDING or name in _OUTSIDE or name.startswith(("__", "set_")) for name in names)
    return refused or any(
        step.opname in _EFFECTS
        or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars)
        or (step.opname == "STORE_ATTR" and not _loads_first_argument(before, code))
        for before, step in pairwise(steps)
    )


def _only_asks_jit(steps: list[dis.Instruction]) -> bool:
    """Whether the code uses nothing of ``torch.jit`` but what tells how the code is run, as in ``torch.jit.is_scripting()``."""
    return all(after.argval in _OF_JIT for step, after in pairwise(steps) if step.argval == "jit")


def catches_errors(code: CodeType) -> bool:
    """Whether the code has ``try``: other values may raise another error, or none."""
    steps = dis.get_instructions(code)
    return any(
        before.opname == "PUSH_EXC_INFO" and step.opname != "WITH_EXCEPT_START" for before, step in pairwise(steps)
    )


def _loads_first_argument(step: dis.Instruction, code: CodeType) -> bool:
    """Whether an instruction loads the first argument of the function, perhaps after another local variable."""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return step.opname.startswith("LOAD_FAST") and code.co_argcount > 0 and names[-1] == code.co_varnames[0]


def changes_contents(code: CodeType) -> bool:
    """Whether the code may change the contents of a list or a dictionary: by a method, or by an assignment to an index.

    The index may also be that of a tensor, as in ``mask[:, 0] = 0``.
    """
    stores = any(step.opname in ("STORE_SUBSCR", "STORE_SLICE") for step in dis.get_instructions(code))
    return stores or not _CHANGING.isdisjoint(code.co_names)


def reads_any(code: CodeType) -> bool:
    """Whether the code may read attributes whose names are not in its instructions: by ``getattr``, ``hasattr`` or a pattern."""
    names = not {"getattr", "hasattr"}.isdisjoint(code.co_names)
    return names or any(step.opname == "MATCH_CLASS" for step in dis.get_instructions(code))


def uses_arrays(code: CodeType, names: Mapping[str, object]) -> bool:
    """Whether the code uses anything of numpy but its functions of numbers, such as ``np.sqrt(self.width)``."""
    steps = list(dis.get_instructions(code))
    used = [after.argval for step, after in pairwise(steps) if names.get(str(step.argval)) is numpy]
    return any(name not in _NUMPY_OF_NUMBERS for name in used)


def attributes_set(code: CodeType) -> set[str]:
    """The names of the attributes that the code sets."""
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}


def attributes_read(code: CodeType) -> set[str]:
    """The names of the attributes that the code reads, unless it puts them together; see :func:`reads_any`.

    What the code has set itself before is left out, if it sets it in every call: ``self.attention = …; return self.attention @ x``.
    """
    read, certain = set[str](), set[str]()
    furthest = 0  # where the jumps so far lead: they may skip the instructions before it
    for before, step in pairwise(dis.get_instructions(code)):
        if step.opname in _READING and not (step.argval in certain and _loads_first_argument(before, code)):
            read.add(step.argval)
        if step.opname == "STORE_ATTR" and step.offset >= furthest and not code.co_exceptiontable:
            certain.add(step.argval)
        if step.opcode in _JUMPS:
            furthest = max(furthest, step.argval)
    return read


def names_loaded(code: CodeType) -> set[str]:
    """The global names that the code reads."""
    return {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
