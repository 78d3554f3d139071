"""The order of the packages (docs/design.md), and what none of them may do. Read from the source; nothing is imported."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fedcohort

SOURCE = Path(fedcohort.__file__).parent

ARROWS: dict[str, set[str]] = {
    # package or module at the top: what of fedcohort it may import, besides itself
    "core": set(),
    "measures": {"core"},
    "algorithms": {"core"},
    "models": {"core"},
    "federation": {"core", "algorithms"},
    "selection": {"core", "measures"},
    "experiment": {"core", "algorithms", "models", "federation", "selection"},
    "training": {"core", "algorithms", "measures", "federation", "selection"},
    "engines": {"core", "algorithms", "models", "federation", "selection", "training"},
    "record": {"core", "experiment"},
    "rounds": {"core", "algorithms", "federation", "selection", "training", "engines", "record"},
    "runs": {"core", "algorithms", "models", "federation", "selection", "experiment", "training", "engines", "record", "rounds"},
    "study": {
        "core", "algorithms", "measures", "models", "federation", "selection", "experiment", "training", "engines", "record", "rounds",
        "runs",
    },
    "report": {"core", "measures", "federation", "experiment", "record", "runs", "study"},
    "testing": {"core", "algorithms", "models", "federation", "selection", "training", "engines"},
    "api": {"algorithms", "models", "federation", "selection", "experiment", "record", "runs", "study", "report"},
    "cli": {"core", "federation", "experiment", "record", "runs", "study", "report"},
    "__init__": {"core", "federation", "experiment", "api"},
    "__main__": {"cli"},
}  # fmt: skip
"""Every package, each below what it imports. Imports inside functions and for types count like any other."""

MOST_LINES = 350
LONGER: dict[str, str] = {}
"""Files that may be longer than :data:`MOST_LINES`, each with its reason."""

NUMBERS = {"numpy", "scipy", "torch", "sklearn", "annotated_types"}
"""What strategies may import from outside, besides the standard library."""


@dataclass(frozen=True)
class Import:
    """``module`` is imported in ``file`` at ``line``."""

    file: str
    line: int
    module: str

    @property
    def package(self) -> str:
        """The package or module at the top that ``file`` belongs to."""
        return self.file.removesuffix(".py").split("/")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(file: str, tree: ast.Module) -> Iterator[Import]:
    """All imports of a file, wherever they stand; ``from a import b`` counts as ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(file, node.lineno, name.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            for name in node.names:
                yield Import(file, node.lineno, f"{node.module}.{name.name}")


def module_of(file: str) -> str:
    """The dotted name of a file."""
    return ".".join(["fedcohort", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


IMPORTS = [line for file, tree in trees() for line in imports(file, tree)]
OURS = [(line, line.module.split(".")[1]) for line in IMPORTS if line.module.startswith("fedcohort.")]
MODULES = {module_of(file) for file, _ in trees()}


def test_every_package_is_listed() -> None:
    entries = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(ARROWS) == entries
    assert len(entries) <= 22
    assert len(OURS) > 500


def test_the_arrows_have_no_circle() -> None:
    TopologicalSorter(ARROWS).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter(ARROWS | {"core": {"cli"}}).prepare()


def test_the_list_is_in_order() -> None:
    above: set[str] = set()
    for package, imported in ARROWS.items():
        assert imported <= above, f"{package} imports {sorted(imported - above)}, which stand below it"
        above.add(package)


@pytest.mark.parametrize("package", ARROWS)
def test_imports_follow_the_arrows(package: str) -> None:
    used = {name for line, name in OURS if line.package == package} - {package}
    wrong = [str(line) for line, name in OURS if line.package == package and name not in {package, *ARROWS[package]}]
    assert not wrong, f"{package} may import {sorted(ARROWS[package])}: {wrong}"
    assert used == ARROWS[package], f"{package} does not use {sorted(ARROWS[package] - used)}; take it from the list"


def test_the_files_have_no_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for line, _ in OURS:
        name = line.module
        while name not in MODULES:
            name = name.rpartition(".")[0]
        importer = module_of(line.file)
        if name not in (importer, "fedcohort"):
            graph[importer].add(name)
    TopologicalSorter(graph).prepare()


def test_files_are_short() -> None:
    lengths = {
        path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")
    }
    assert {file for file, lines in lengths.items() if lines > MOST_LINES} == set(LONGER)


def test_strategies_import_numbers_only() -> None:
    known = NUMBERS | {"fedcohort"} | set(sys.stdlib_module_names)
    wrong = [str(line) for line in IMPORTS if line.package == "selection" and line.module.split(".")[0] not in known]
    assert not wrong


# --- what no package may do ---------------------------------------------------------------------------------------------------

NEVER = {"random", "pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
"""Global randomness, and files that run code when they are read."""

NAMED = {"Generator", "Philox", "SeedSequence", "BitGenerator"}
"""The parts of ``numpy.random`` without a global state."""

DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like"}
"""Draws of torch that take a ``generator``."""

SEEDED = {"core/streams.py"}
"""Where torch's global generators are seeded for a while, because modules draw from nowhere else."""


def test_no_pickle_and_no_global_random_module() -> None:
    wrong = [str(line) for line in IMPORTS if line.module.split(".")[0] in NEVER]
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
