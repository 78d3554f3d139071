"""Parameters of plug-ins: strict dataclasses with checked fields, limits and documentation.

A strategy, an algorithm, a partition, a model or a latency law is a class marked ``@parameters``. Its fields are checked when an
instance is created, from Python and from TOML alike. ``fedcohort strategies`` and the docs print the docstring under each field.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import linecache
import sys
import textwrap
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

from pydantic import ConfigDict, PydanticUserError, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ArgsKwargs, ErrorDetails

from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.given_values import plain_numbers
from fedcohort.core.user_code.own_code import place_of
from fedcohort.core.words.setting_words import Place, expected, place_in

__all__ = [
    "NotInKey", "Parameter", "defaults", "describe", "docstring", "explain", "has_source", "in_key", "make", "parameters",
]  # fmt: skip

T = TypeVar("T")

_STRICT = ConfigDict(
    extra="forbid", strict=True, arbitrary_types_allowed=True, use_attribute_docstrings=True, allow_inf_nan=False
)


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def parameters(cls: type[T]) -> type[T]:
    """Make ``cls`` a dataclass with keyword-only fields that are checked strictly when an instance is created.

    ``cls(...)`` raises :class:`UsageError` if a value is not valid; the message names the class, the field and its value.
    """
    made: Any = checked_dataclass(cls, config=_STRICT, kw_only=True)
    checked = made.__init__

    @functools.wraps(checked)
    def initialize(self: T, /, *positional: object, **values: object) -> None:
        if positional:
            raise UsageError(f"{type(self).__name__}: {shown(positional[0])} has no name; {_by_name(made)}")
        try:
            checked(self, **plain_numbers(values))
        except ValidationError as error:
            raise explain(error, type(self).__name__, made) from None

    made.__init__ = initialize
    return cast(type[T], made)


def _by_name(cls: type) -> str:
    """How to give a parameter, in words."""
    names = list(getattr(cls, "__pydantic_fields__", {}))
    return f"give parameters by name: {', '.join(names)}" if names else "it takes no parameters"


@dataclasses.dataclass(frozen=True)
class NotInKey:
    """Mark a setting that does not enter the hash of a run: ``workers: Annotated[int, NotInKey()] = 0``.

    Attributes:
        values: the setting is left out only while it has one of these values; empty means always. A setting that is added later is
            left out at its default value, so that existing runs keep their hashes.
    """

    values: tuple[object, ...] = ()

    def leaves_out(self, value: object) -> bool:
        """Whether the hash leaves out the setting when it has this value."""
        return not self.values or value in self.values


def in_key(section: object, name: str, value: object) -> bool:
    """Whether a field of ``section`` (a class or an instance) enters the hash of a run when it has this value."""
    info = getattr(section, "__pydantic_fields__", {}).get(name)
    markers = [] if info is None else [marker for marker in info.metadata if isinstance(marker, NotInKey)]
    return not any(marker.leaves_out(value) for marker in markers)


class Parameter(NamedTuple):
    """One field of a ``@parameters`` class: name, type, default value and documentation."""

    name: str
    type: str
    default: object
    doc: str


def describe(cls: type) -> list[Parameter]:
    """The parameters of a ``@parameters`` class in the order of their definition."""
    infos: dict[str, FieldInfo] = getattr(cls, "__pydantic_fields__", {})
    return [
        Parameter(name, _type(infos[name].annotation, infos[name].metadata), default, _doc_of(cls, name))
        for name, default in defaults(cls).items()
    ]


def defaults(cls: type) -> dict[str, object]:
    """The default values of the parameters of a ``@parameters`` class, in the order of their definition; ``"required"`` without."""
    infos: dict[str, FieldInfo] = getattr(cls, "__pydantic_fields__", {})
    return {
        name: "required" if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
        for name, info in infos.items()
    }


def _doc_of(cls: type, name: str) -> str:
    """The docstring under a field, from the class or from the first base class that has one."""
    for base in cls.__mro__:
        info = getattr(base, "__pydantic_fields__", {}).get(name)
        doc = info and (info.description or _docs_in_source(base).get(name))
        if doc:
            return " ".join(doc.split())
    return ""


def docstring(plugin: object) -> str:
    """The docstring of a class or a function, without indentation; from the source if Python leaves docstrings out (``-OO``).

    A class without one has none: the sentence of its base class describes something else.
    """
    if sys.flags.optimize < 2:
        return inspect.cleandoc(getattr(plugin, "__doc__", None) or "")
    tree = _in_source(plugin)
    text = ast.get_docstring(tree) if isinstance(tree, ast.ClassDef | ast.FunctionDef) else None
    return text or ""


def has_source(cls: type) -> bool:
    """Whether the source of a class can be read; that of one typed into a console cannot, before Python 3.13."""
    return _in_source(cls) is not None


def _in_source(part: object) -> ast.stmt | None:
    """The definition of a class or a function in the source; None if there is no source."""
    try:
        [tree] = _parsed(textwrap.dedent(inspect.getsource(part))).body  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError, ValueError):
        return _in_cell(part) if isinstance(part, type) else None
    return tree


def _parsed(source: str) -> ast.Module:
    """The statements of a source with their docstrings, which ``ast.parse`` of Python 3.14 leaves out under ``-OO``."""
    return cast(ast.Module, compile(source, "<source>", "exec", ast.PyCF_ONLY_AST, optimize=0))


def _in_cell(cls: type) -> ast.stmt | None:
    """The definition of a class in the cell of a notebook, which only its methods know; None if there is none."""
    for method in vars(cls).values():
        lines = linecache.getlines(getattr(getattr(method, "__code__", None), "co_filename", ""))
        try:
            tree = _parsed("".join(lines))
        except SyntaxError:  # a cell with commands of IPython
            continue
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef) and statement.name == cls.__name__:
                return statement
    return None


def _docs_in_source(cls: type) -> dict[str, str]:
    """The docstrings under the fields, read from the source; pydantic misses them if a file was loaded under two names."""
    docstrings = {}
    for pair in itertools.pairwise(getattr(_in_source(cls), "body", [])):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(words))):
                docstrings[field] = words
    return docstrings


def _type(annotation: object, limits: Iterable[object] = ()) -> str:
    """A type as text: ``float > 0``, ``int ≥ 1 or none``, ``clip | affine``."""
    if get_origin(annotation) is Annotated:
        annotation, *limits = get_args(annotation)
    if get_origin(annotation) is Literal:
        words = " | ".join(map(str, get_args(annotation)))
    elif get_origin(annotation) in (Union, UnionType):
        words = " or ".join("none" if part is NoneType else _type(part) for part in get_args(annotation))
    elif get_origin(annotation) in (list, tuple):
        words = _list_type(get_args(annotation))
    elif get_origin(annotation) is dict:
        words = "table"
    else:
        words = inspect.formatannotation(annotation)
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    bounds = [f"{sign} {getattr(limit, key)}" for limit in limits for key, sign in signs.items() if hasattr(limit, key)]
    return " ".join([words, ", ".join(bounds)]).strip()


def _list_type(parts: tuple[object, ...]) -> str:
    """A list of any length, or of as many entries as there are parts."""
    if len(parts) == 1 or parts[1:] == (Ellipsis,):
        return f"list of {_type(parts[0])}"
    return f"[{', '.join(map(_type, parts))}]"


def make(cls: type[T], values: Mapping[str, object], where: str) -> T:
    """Create a ``cls`` from ``values``.

    Raises:
        UsageError: a value is not valid; the message names the key below ``where``, its value and a value that works.
    """
    fields: Mapping[str, FieldInfo] | None = getattr(cls, "__pydantic_fields__", None)
    unknown = [] if fields is None else [key for key in values if key not in fields]
    if unknown:
        raise UsageError(f"{where}.{unknown[0]}: {_unknown(unknown[0], fields or ())}")
    try:
        return cls(**values)
    except UsageError as error:
        invalid = error.__context__
        if isinstance(invalid, ValidationError):
            raise explain(invalid, where, cls) from None
        raise
    except PydanticUserError as error:  # a field with an unknown type
        raise UsageError(f"{where}: {cls.__name__} cannot be created: {str(error).partition(';')[0]}") from error
    except Exception as error:
        if not place_of(error):
            raise
        raise UsageError(
            f"{where}: {cls.__name__} cannot be created: {type(error).__name__}: {error}{place_of(error)}"
        ) from error


def _unknown(key: object, fields: Iterable[str]) -> str:
    """What is wrong with a key that is not one of ``fields``."""
    valid = list(fields)
    table, dot, setting = str(key).partition(".")
    if dot and table in valid:
        return f"unknown key; write {table} = {{ {setting} = … }} in a file, and {{{table!r}: {{{setting!r}: …}}}} in Python"
    return f"unknown key; {nearest(str(key), valid) if valid else 'it takes no parameters'}"


def explain(error: ValidationError, where: str, model: type | None = None) -> UsageError:
    """A pydantic error as one line: the full key, its value, and a value that works."""
    details = error.errors(include_url=False)
    detail, places = details[0], [place_in(model, each["loc"]) for each in details]
    key = ".".join([where, *places[0].keys]).strip(".")
    others = len({place.keys for place in places}) - 1
    more = f" (and {others} more error{'s' * (others > 1)})" if others else ""
    around, section = _model_at(model, detail["loc"][:-1]), _model_at(model, detail["loc"])
    return UsageError(_message(key, detail, places[0], around, section) + more)


def _message(key: str, detail: ErrorDetails, place: Place, model: type | None, section: type | None) -> str:
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: {_unknown(detail['loc'][-1], getattr(model, '__pydantic_fields__', {}))}"
    if detail["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{key}: required, but not given"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if isinstance(detail["input"], ArgsKwargs):  # parameters that cannot be combined: the message names them
        return f"{key}: {message}"
    message = _expected_form(detail, section) or expected(detail, place) or message
    if isinstance(detail["input"], list) and detail["type"] in _TYPES_OF_ONE_VALUE:
        doc = _doc_of(model, str(detail["loc"][-1])) if model else ""
        message += f", not a list{f' ({doc})' if doc else ''}"
    return f"{key} = {shown(detail['input'])}: {message}"


_TYPES_OF_ONE_VALUE = ("int_type", "float_type", "string_type", "bool_type")
"""Pydantic's error types for values that are neither lists nor tables."""


def _expected_form(detail: ErrorDetails, section: type | None) -> str | None:
    """The form of a section, if its value is no table; otherwise None."""
    if detail["type"] not in ("model_type", "dataclass_type", "dataclass_exact_type"):
        return None
    fields = list(getattr(section, "__pydantic_fields__", {}))
    if isinstance(detail["input"], str) and "name" in fields:
        return f"should be a table, such as {{ name = {shown(detail['input'])} }}"
    return f"should be a table of settings (valid: {', '.join(fields)})" if fields else "should be a table"


def _model_at(model: type | None, path: tuple[int | str, ...]) -> type | None:
    for part in path:
        fields = getattr(model, "__pydantic_fields__", None)
        if fields is None or part not in fields:
            return None
        annotation = fields[part].annotation
        model = annotation if isinstance(annotation, type) else None
    return model
