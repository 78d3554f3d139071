"""The arrows between rooms (docs/design.md), and what no room may do. Read from the source, nothing is imported."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import fedcohort

SOURCE = Path(fedcohort.__file__).parent

LEAVES = {"arrays", "errors", "parameters", "plugins", "states", "streams", "threads"}
"""They know nothing of the others, and everybody may know them."""

ARROWS: dict[str, set[str]] = {
    # room: what of fedcohort it may import, beside leaves and itself
    "selection": {"conformal"},
    "algorithms": set(),
    "federation": set(),
    "models": set(),
    "measures": set(),
    "conformal": set(),
    "training": {"algorithms", "federation", "selection.base", "conformal"},
    "engines": {"training", "algorithms", "federation", "models", "selection.base"},
    "pairings": {"algorithms", "selection"},
    "experiment": {"algorithms", "federation", "models", "selection", "pairings"},
    "record": {"experiment", "summary", "report"},
    "summary": {"measures", "experiment"},
    "accounts": {"algorithms", "record", "selection.base", "training"},
    "rounds": {"accounts", "algorithms", "engines.base", "federation", "record", "selection", "training", "measures"},
}
"""A module that is not listed is on top: it may import anything but the command line, and no listed room may import it."""

ARROWS_OF_TYPES = {"federation": {"algorithms"}, "summary": {"record"}}
"""Allowed under ``if TYPE_CHECKING`` only."""

NUMBERS = {"numpy", "scipy", "torch", "sklearn", "annotated_types"}
"""What strategies may import from outside, beside the standard library."""

DOORS = {"cli", "__main__"}
"""Nobody imports the command line but the door of ``python -m fedcohort``."""


@dataclass(frozen=True)
class Import:
    """``module`` is imported in ``file`` at ``line``."""

    file: str
    line: int
    module: str
    for_types: bool

    @property
    def importer(self) -> str:
        return self.file.removesuffix(".py").split("/")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(file: str, tree: ast.AST, for_types: bool = False) -> Iterator[Import]:
    """All imports of a file, wherever they stand; ``from a import b`` counts as a.b."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(file, node.lineno, name.name, for_types)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            for name in node.names:
                yield Import(file, node.lineno, f"{node.module}.{name.name}", for_types)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(file, node, for_types=True)
        else:
            yield from imports(file, node, for_types)


IMPORTS = [found for file, tree in trees() for found in imports(file, tree)]
OURS = [(found, found.module.removeprefix("fedcohort.")) for found in IMPORTS if found.module.startswith("fedcohort.")]


def allowed(found: Import, module: str) -> bool:
    rooms = LEAVES | {found.importer}
    if found.importer not in LEAVES:
        rooms = rooms | ARROWS[found.importer]
    if found.for_types:
        rooms = rooms | ARROWS_OF_TYPES.get(found.importer, set())
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def test_the_rooms_are_there() -> None:
    rooms = {path.stem for path in SOURCE.iterdir()}
    assert LEAVES | set(ARROWS) <= rooms
    assert len(OURS) > 50


@pytest.mark.parametrize("room", sorted(LEAVES | set(ARROWS)))
def test_arrows_point_downwards(room: str) -> None:
    wrong = [str(found) for found, module in OURS if found.importer == room and not allowed(found, module)]
    assert not wrong, f"{room} may import leaves and {sorted(ARROWS.get(room, set()))}: {wrong}"


def test_the_table_forbids_what_it_should() -> None:
    def may(file: str, module: str, for_types: bool = False) -> bool:
        return allowed(Import(file, 1, f"fedcohort.{module}", for_types), module)

    assert may("selection/ucb.py", "selection.base.Round")
    assert not may("selection/ucb.py", "engines.local.LocalEngine")
    assert not may("selection/ucb.py", "training.local.Trainer", for_types=True)
    assert may("engines/local.py", "selection.base.Cohort")
    assert not may("engines/local.py", "selection.ucb.UCB")
    assert may("federation/systems.py", "algorithms.base.Update", for_types=True)
    assert not may("federation/systems.py", "algorithms.base.Update")
    assert not may("states.py", "record.Run")


def test_nobody_imports_the_command_line() -> None:
    wrong = [str(found) for found, module in OURS if module.split(".")[0] == "cli" and found.importer not in DOORS]
    assert not wrong


def test_strategies_import_numbers_only() -> None:
    known = NUMBERS | {"fedcohort"} | set(sys.stdlib_module_names)
    wrong = [str(f) for f in IMPORTS if f.importer == "selection" and f.module.split(".")[0] not in known]
    assert not wrong


# --- what no room may do ---------------------------------------------------------------------------------------------------

NEVER = {"random", "pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
"""Global randomness, and files that run code when they are read."""

NAMED = {"Generator", "Philox", "SeedSequence", "BitGenerator"}
"""The parts of ``numpy.random`` without a global state."""

DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like"}
"""Draws of torch that take a ``generator``."""

SEEDED = {"streams.py"}
"""Where torch's global generators are seeded for a while, because modules draw from nowhere else."""


def test_no_pickle_and_no_global_random_module() -> None:
    wrong = [str(found) for found in IMPORTS if found.module.split(".")[0] in NEVER]
    assert not wrong


def test_no_room_for_odds_and_ends() -> None:
    wrong = [file for file, _ in trees() if Path(file).stem in {"utils", "util", "helpers", "common", "misc"}]
    assert not wrong


@pytest.mark.parametrize("file", [file for file, _ in trees()])
def test_randomness_is_named(file: str) -> None:
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in ("np.random", "numpy.random") and node.attr not in NAMED:
                wrong.append(f"{file}:{node.lineno}: {owner}.{node.attr}")
            if owner in ("torch", "torch.cuda", "torch.random") and node.attr in (
                "manual_seed",
                "seed",
                "set_rng_state",
                "fork_rng",
                "default_generator",
                "default_generators",
            ):
                wrong += [] if file in SEEDED else [f"{file}:{node.lineno}: {owner}.{node.attr}"]
        if isinstance(node, ast.ImportFrom) and node.module in ("numpy.random", "torch.random"):
            wrong += [f"{file}:{node.lineno}: {node.module}.{n.name}" for n in node.names if n.name not in NAMED]
        if isinstance(node, ast.Call):
            name, keywords = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
            if name in {f"torch.{draw}" for draw in DRAWS} and "generator" not in keywords:
                wrong.append(f"{file}:{node.lineno}: {name} without a generator")
            if name in ("torch.save", "torch.load") or "allow_pickle" in keywords:
                wrong.append(f"{file}:{node.lineno}: {name} pickles")
    assert not wrong
