"""Hostile descriptions of experiments: files, ``--set`` options and sweeps that no user would write, and many that one might.

:func:`cases` generates them from a seed, and :func:`outcome` puts one of them through the code that the command line uses before a run
starts: reading, completing, listing the rows and runs, and hashing. Nothing is trained. :func:`complaint` says what is wrong with an
outcome. Run as a program, it tries many::

    python -m tests.experiment.description_fuzzer SEED COUNT
"""

import math
import random
import string
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from fedcohort.cli.chosen_experiment import experiment_of, row_of
from fedcohort.cli.entry import cli
from fedcohort.cli.options import (
    set_option,
    variant_option,
    with_options,
)
from fedcohort.core.errors import LONGEST
from fedcohort.core.parameters import describe
from fedcohort.experiment import Choice, Experiment
from fedcohort.experiment.plugin_files import PLUGIN_SECTIONS

PREFIX = "fedcohort: error: "
MAX_SECONDS = 5.0
"""Largest processor time of a case in seconds, for the fuzzer as a program and for the campaign; tests have no limit."""


@dataclass(frozen=True)
class Case:
    """A command to try.

    Attributes:
        kind: the function that made the case.
        content: the experiment file; None if the command gets none.
        arguments: options of the command.
    """

    kind: str
    content: bytes | None
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        file = "" if self.content is None else repr(self.content[:400])
        return f"{self.kind}: {file} {' '.join(argument[:200] for argument in self.arguments)!r}"


@dataclass(frozen=True)
class Outcome:
    """What came of a case: exit code, standard error, processor time in seconds, and the traceback of an exception that escaped."""

    exit_code: int
    stderr: str
    seconds: float
    traceback: str


def cases(seed: int, count: int) -> Iterator[Case]:
    """``count`` cases; case i depends only on the seed and on i."""
    kinds = list(_KINDS)
    for i in range(count):
        draw = random.Random(f"{seed} {i}")
        kind = kinds[i % len(kinds)]
        yield _KINDS[kind](draw)


def outcome(case: Case, folder: Path) -> Outcome:
    """Try a case; the experiment file is written into ``folder``."""
    arguments = list(case.arguments)
    if case.content is not None:
        file = folder / "case.toml"
        file.write_bytes(case.content)
        arguments.insert(0, str(file))
    began = time.process_time()
    result = CliRunner().invoke(_checks, ["check", *arguments])
    escaped = ""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        escaped = "".join(traceback.format_exception(result.exception))
    return Outcome(result.exit_code, result.stderr, time.process_time() - began, escaped)


def complaint(outcome: Outcome, slowest: float = math.inf) -> str:
    """What is wrong with an outcome; empty if nothing is. ``slowest`` is the largest allowed processor time in seconds."""
    if outcome.traceback:
        return f"a traceback: {outcome.traceback}"
    if outcome.seconds > slowest:
        return f"took {outcome.seconds:.1f} s"
    if outcome.exit_code == 0:
        return ""
    if outcome.exit_code != 2:
        return f"exit code {outcome.exit_code}"
    message = outcome.stderr.removesuffix("\n")
    if not message.startswith(PREFIX) or not message.isprintable():
        return f"is not one line after {PREFIX!r}: {message[:1000]!r}"
    if len(message) > len(PREFIX) + LONGEST:
        return f"has {len(message)} characters: {message[:1000]}"
    return ""


@click.group(cls=type(cli))
def _checks() -> None:
    """As ``fedcohort``, with a command that checks an experiment as far as possible without data."""


@_checks.command()
@click.argument("file", required=False)
@with_options(set_option, variant_option)
def check(file: str | None, settings: tuple[str, ...], variant: str | None) -> None:
    """Do what ``run`` and ``compare`` do before they load data."""
    experiment = experiment_of(file, settings, trust=False)
    row_of(experiment, variant)
    for cell in experiment.cells()[:3]:
        cell.experiment.key()
        cell.experiment.to_toml()
        cell.experiment.own_files()


# --- values --------------------------------------------------------------------------------------------------------------------


def _string(text: str) -> str:
    """A TOML string."""
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def _nested(draw: random.Random) -> str:
    depth = draw.choice([2, 20, 31, 32, 33, 100, 900, 5000])
    return draw.choice(
        [
            "[" * depth + "]" * depth,
            "[" * depth,
            "{a=" * depth + "1" + "}" * depth,
            "{" + ".".join("a" * depth) + " = 1}",
        ]
    )


def _long(draw: random.Random) -> str:
    length = (
        draw.choice([99, 301, 5_000, 120_000, 10_000_000]) if draw.random() < 0.05 else draw.choice([99, 301, 5_000])
    )
    return draw.choice(
        [
            _string(draw.choice(["x", "é", "x ", "x.", "/", "../", "漢"]) * (length // 2)),
            f"[{', '.join(['1'] * min(length, 200_000))}]",
            f"[{', '.join(_string('a') for _ in range(min(length, 100_000)))}]",
            "{" + ", ".join(f"k{i} = {i}" for i in range(min(length, 20_000))) + "}",
            "9" * min(length, 20_000),
            "0x" + "f" * min(length, 100_000),
            f"1e{'9' * min(length, 5_000)}",
            f"0.{'1' * min(length, 100_000)}",
        ]
    )


_NUMBERS = [
    "0", "-1", "1", "2", "3", "255", "65536", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "1" + "0" * 400, "0x10", "0o7", "0b1", "1_000", "0.0", "-0.0", "0.5", "1.0", "1.5", "1e308", "1e309",
    "-1e309", "5e-324", "nan", "-nan", "inf", "-inf",
]  # fmt: skip

_OTHERS = [
    "true", "false", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "0001-01-01T00:00:00", "[]", "{}", "[[]]", "[{}]", "[nan]",
    "[1, 'a', 1.5]", "[[1, 2], [3]]", "{name = 1}", "{name = nan}", "{name = []}", "{name = 'uniform', k = 'x'}",
    "{name = 'nowhere.py:C'}", "{parameters = 5}", "{parameters = {k = 1}}", "{self = 1}", "{__dataclass_self__ = 1}", "{'' = 1}",
    "{name = 'powd', d = 2.5}", "{name = 'conformal', base = {}}", "{name = 'conformal', base = {name = 'x.py:Y'}}",
]  # fmt: skip

_WORDS = [
    "", " ", "none", "uniform", "ucb", "auto", "\n", "\r\n", "\t", "\x00", "\x1b[31mred", "\x7f", "\u202eabc", "\u2028", "\ufeff",
    "e\u0301", "👩‍👩‍👧", "漢字", "ﷺ", "\U0010ffff", "\ufffe", "..", ".", "/", "~", "~nobody", "~nobody/x", "a/b", "a/b/c", "/dev/null",
    "/dev/full", "/proc/self/mem", "con", "nan", "1", "[", "]", "{", "}", "=", "%s", "{0}", "{name}", "${HOME}", "'", '"', "\\", "#",
    "<b>", "[bold]", "[/bold]", "x" * 255, "x" * 256, "-h", "--help",
]  # fmt: skip

_LIKE_PLUGINS = [
    ".py:", ".py:C", "a.py:", "a.py:C", "a.py:C:D", "a.py:1", "a b.py:C", "/a.py:C", "~nobody/a.py:C", "\x00.py:C", "a\n.py:C",
    "a.py:C\n", "..py:C", "//.py:C", "x" * 300 + ".py:C", "a/" * 3000 + "b.py:C", "note.py: see below", "http://x.py:80/a", "/.py:é",
    "fedcohort.selection:Uniform", "os:system", "a.pyc:C", "{OWN}:Broken", "{OWN}:Good", "{OWN}:number", "{OWN}:nothing",
]  # fmt: skip

OWN = """
from fedcohort.selection import Cohort, Selector, parameters

number = 5


@parameters
class Good(Selector):
    def select(self, round):
        return Cohort(round.available[: round.k])


class Broken(Selector):
    def __init__(self):
        raise ValueError("a message of\\nseveral lines \\x1b[0m" + "and long " * 500)
"""
"""A plug-in file that some cases name."""


def _value(draw: random.Random) -> str:
    """A value as TOML."""
    kind = draw.random()
    if kind < 0.25:
        return draw.choice(_NUMBERS)
    if kind < 0.45:
        return draw.choice(_OTHERS)
    if kind < 0.65:
        return _string(draw.choice(_WORDS))
    if kind < 0.8:
        return _string(draw.choice(_LIKE_PLUGINS).replace("{OWN}", str(_own_file())))
    if kind < 0.9:
        return _nested(draw)
    if kind < 0.97:
        return _long(draw)
    return _string("".join(chr(draw.choice([*range(0xD800), *range(0xE000, 0x11000)])) for _ in range(20)))


@cache
def _own_file() -> Path:
    """The file with :data:`OWN`; it is written once for each process."""
    file = Path(tempfile.mkdtemp(prefix="fedcohort-fuzz-")) / "own.py"
    file.write_text(OWN)
    return file


# --- keys ----------------------------------------------------------------------------------------------------------------------

_ODD_KEYS = [
    "self", "cls", "__init__", "__dataclass_self__", "__class__", "model_config", "model_fields", "parameters", "table", "label",
    "overrides", "''", "'a b'", "'é'", "'\\u0000'", '"\\u0000"', '"\\n"', '"a.b"', "'selection.k'", "1", "-", "seeds.x", "name.x",
    "rounds.k", "variants.label", "sweep.rounds", "x" * 500, "'" + "y z" * 200 + "'",
]  # fmt: skip


@cache
def _keys() -> list[str]:
    """All dotted keys of the schema, with the parameters of all plug-ins."""
    keys = []
    for name, value in Experiment().to_dict().items():
        keys += [name, *([f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [])]
    keys += ["variants", "sweep", "training.loss.name"]
    for path in PLUGIN_SECTIONS:
        keys += [".".join(path), ".".join((*path, "name"))]
    for choice in Choice.__subclasses__():
        where = next((".".join(path) for path in PLUGIN_SECTIONS if path[-1] == _name_of(choice)), "training.loss")
        for name in choice.table.builtin:
            keys += [f"{where}.{row.name}" for row in describe(choice.table.find(name, where))]
    return keys


@cache
def _plain_keys() -> list[str]:
    """The keys of the sections themselves, without parameters of plug-ins."""
    return [
        key for key in _keys() if key.partition(".")[0] not in ("selection", "algorithm", "model") or "." not in key
    ][:60]


def _name_of(choice: type[Choice]) -> str:
    """``LabelNoise`` as ``label_noise``."""
    return "".join(f"_{c.lower()}" if c in string.ascii_uppercase else c for c in choice.__name__).lstrip("_")


@cache
def _plugins() -> list[tuple[str, str, list[str]]]:
    """Section, name and parameters of all built-in plug-ins."""
    rows = []
    for choice in Choice.__subclasses__():
        where = next((".".join(path) for path in PLUGIN_SECTIONS if path[-1] == _name_of(choice)), "training.loss")
        for name in choice.table.builtin:
            rows.append((where, name, [row.name for row in describe(choice.table.find(name, where))]))
    return rows


def _key(draw: random.Random) -> str:
    if draw.random() < 0.15:
        odd = draw.choice(_ODD_KEYS)
        return odd if draw.random() < 0.5 else f"{draw.choice(_keys())}.{odd}"
    return draw.choice(_keys())


# --- kinds of cases ------------------------------------------------------------------------------------------------------------


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def one_value(draw: random.Random) -> Case:
    """One setting has a hostile value."""
    return Case("one_value", _encoded(f"{draw.choice([_key(draw), draw.choice(_plain_keys())])} = {_value(draw)}\n"))


def one_parameter(draw: random.Random) -> Case:
    """One parameter of a plug-in has a hostile value."""
    section, name, parameters = draw.choice(_plugins())
    key = draw.choice(parameters) if parameters else "x"
    return Case("one_parameter", _encoded(f"{section}.name = '{name}'\n{section}.{key} = {_value(draw)}\n"))


def plausible(draw: random.Random) -> Case:
    """Plug-ins with parameters near their defaults, so that checks of whole sections are reached; sometimes one hostile value."""
    lines = [f"rounds = {draw.choice([1, 3, 20])}", f"federation.clients = {draw.choice([1, 2, 12, 1000, 10**12])}"]
    lines += [f"{key} = {draw.choice(['0', '0.1', '0.5'])}" for key in ("data.validation", "federation.holdout")]
    for where in {section for section, *_ in _plugins()}:
        if draw.random() < 0.6:
            continue
        name, parameters = draw.choice(
            [(name, parameters) for section, name, parameters in _plugins() if section == where]
        )
        lines.append(f"{where}.name = '{name}'")
        for key in draw.sample(parameters, min(len(parameters), draw.choice([0, 1, 1, 2]))):
            lines.append(f"{where}.{key} = {_near(draw, _default(where, name, key))}")
    if draw.random() < 0.2:
        lines.append(f"{draw.choice(_keys())} = {_value(draw)}")
    return Case("plausible", _encoded("\n".join(lines)))


@cache
def _default(where: str, name: str, key: str) -> Any:
    choice = next(c for c in Choice.__subclasses__() if where.endswith(_name_of(c)))
    return next(row.default for row in describe(choice.table.find(name, where)) if row.name == key)


def _near(draw: random.Random, default: Any) -> str:
    """A value of the type of a default, as TOML."""
    match default:
        case bool():
            return draw.choice(["true", "false"])
        case int():
            return str(draw.choice([default, default + 1, 0, 1, 2, 10**6, 2**62]))
        case float():
            return repr(draw.choice([default, default / 2, 0.0, 1.0, 0.999999, 1e-300, 1e300]))
        case str():
            return draw.choice([_string(default), _string(draw.choice(_WORDS)), _value(draw)])
    return draw.choice(
        ["[1.0, 2.0]", "[0, 1]", "[[0.5, 0.5], [0.5, 0.5]]", "[]", "1", "0.5", "1e300", "{}", _value(draw)]
    )


def several_values(draw: random.Random) -> Case:
    """Several settings have hostile or plausible values; keys may be given twice."""
    lines = [f"{_key(draw)} = {_value(draw) if draw.random() < 0.4 else draw.choice(_NUMBERS)}" for _ in range(4)]
    return Case("several_values", _encoded("\n".join(lines)))


def options(draw: random.Random) -> Case:
    """``--set`` in all forms, also with bytes that are not UTF-8, as Python gives them to programs."""

    def option() -> str:
        key = draw.choice(
            [_key(draw), "", ".", "..", "a", "a.", ".a", " rounds ", "selection . k", "'rounds'", "a" + ".a" * 60]
        )
        sign = draw.choice(["=", "=", "=", "=", " = ", "", "==", ":"])
        value = draw.choice(
            [_value(draw), draw.choice(_WORDS), "", "3\nseeds = 5", "1 # x", "\udcff\udc80", "'" * 3, "x\x1by"]
        )
        return key + sign + value

    chosen: list[str] = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        chosen += ["--set", option()]
    return Case("options", draw.choice([None, b"rounds = 3\n", b"selection = 'ucb'\n"]), tuple(chosen))


def variants(draw: random.Random) -> Case:
    """Rows with hostile labels and overrides."""
    rows = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        label = draw.choice([f"label = {_value(draw)}", "label = 'a'", "label = 'b'", ""])
        rows.append(f"[[variants]]\n{label}\n{_key(draw)} = {_value(draw)}\n")
    if draw.random() < 0.02:
        rows = [f"[[variants]]\nlabel = 'v{i}'\n" for i in range(draw.choice([300, 6_000, 20_000]))]
    return Case("variants", _encoded("".join(rows)), draw.choice([(), (), ("--variant", draw.choice(_WORDS))]))


def sweeps(draw: random.Random) -> Case:
    """Sweeps with hostile keys, values and numbers of rows."""
    if draw.random() < 0.1:
        size = draw.choice([3, 18, 100, 3_000])
        many = f"[{', '.join(str(i) for i in range(1, size + 1))}]"
        return Case(
            "sweeps", _encoded(f'[sweep]\n"selection.k" = {many}\n"training.epochs" = {many}\n"rounds" = {many}\n')
        )
    lines = [f"'{_key(draw)}' = [{', '.join(_value(draw) for _ in range(draw.choice([0, 1, 2])))}]" for _ in range(2)]
    return Case("sweeps", _encoded("[sweep]\n" + "\n".join(lines)))


VALID = """# a valid description
name = "candidates"
rounds = 20
seeds = 5
data = { name = "digits", validation = 0.2 }

[federation]
clients = 12
partition = { name = "dirichlet_class", alpha = 0.1 }

[training]
loss = { name = "sce" }
lr = 1e-2

[selection]
name = "select_by_loss"
k = 3

[sweep]
"selection.d" = [3, 6, 12]

[[variants]]
label = "UCB"
selection = { name = "ucb" }
"""


def damaged_text(draw: random.Random) -> Case:
    """A valid file with bytes changed, inserted, repeated or cut."""
    content = bytearray(VALID.encode())
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        at = draw.randrange(len(content))
        match draw.randrange(6):
            case 0:
                content[at] = draw.randrange(256)
            case 1:
                content[at:at] = draw.choice(
                    [b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"'''", b"[", b"{", b"."]
                )
            case 2:
                del content[at : at + draw.choice([1, 5, 30])]
            case 3:
                content += content[at : at + draw.choice([10, 50, 300])]
            case 4:
                content[at:at] = draw.choice([b"\r", b"\r\n", b"\n", b"\t", b"\x0b", "é".encode(), "\u2028".encode()])
            case 5:
                lines = bytes(content).split(b"\n")
                draw.shuffle(lines)
                content = bytearray(b"\n".join(lines))
        if not content:
            break
    return Case("damaged_text", bytes(content))


def hostile_files(draw: random.Random) -> Case:
    """Files that are large, deep or not text."""
    content: Callable[[], bytes] = draw.choice(
        [
            lambda: draw.randbytes(draw.choice([1, 100, 10_000])),
            lambda: b"",
            lambda: b"\xef\xbb\xbfrounds = 3\n",
            lambda: "rounds = 3".encode("utf-16"),
            lambda: b"# " + b"x" * draw.choice([900_000, 2_000_000]),
            lambda: b"\n" * draw.choice([900_000, 2_000_000]),
            lambda: ("a." * draw.choice([150, 250, 100_000]) + "a = 1").encode(),
            lambda: ("[" + "a." * draw.choice([150, 250, 100_000]) + "a]").encode(),
            lambda: ("'a'.\"b\" . " * draw.choice([90, 250, 50_000]) + "a = 1").encode(),
            lambda: "".join(f"[a{i}]\n" for i in range(draw.choice([10, 50_000]))).encode(),
            lambda: "".join(f"k{i} = {i}\n" for i in range(draw.choice([10, 50_000]))).encode(),
            lambda: ("name = '" + "." * draw.choice([300, 900_000]) + "'").encode(),
            lambda: ("name = '" + "x." * draw.choice([300, 400_000]) + "'").encode(),
            lambda: ("name = '" + "x" * draw.choice([990_000, 10_000_000]) + "'").encode(),
        ]
    )
    return Case("hostile_files", content())


_KINDS: dict[str, Callable[[random.Random], Case]] = {
    function.__name__: function
    for function in (
        one_value,
        one_parameter,
        plausible,
        several_values,
        options,
        variants,
        sweeps,
        damaged_text,
        hostile_files,
    )
}


def _main() -> int:
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    failures, codes, slowest = 0, {0: 0, 2: 0}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(cases(seed, count)):
            result = outcome(case, Path(folder))
            codes[result.exit_code] = codes.get(result.exit_code, 0) + 1
            slowest = max(slowest, result.seconds)
            if wrong := complaint(result, MAX_SECONDS):
                failures += 1
                print(f"--- case {i}: {case}\n{wrong}\n", flush=True)
    print(f"{count} cases with seed {seed}: {failures} failures, exit codes {codes}, slowest case {slowest:.2f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(_main())
