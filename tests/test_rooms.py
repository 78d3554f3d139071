"""The permitted imports between packages (docs/design.md), and rules for all modules; checked by reading the source."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fedcohort

SOURCE = Path(fedcohort.__file__).parent

PERMITTED: dict[str, set[str]] = {
    # top-level package or module: the packages of fedcohort that it may import besides itself
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
        "core", "algorithms", "measures", "federation", "selection", "experiment", "training", "engines", "record", "rounds", "runs",
    },
    "racing": {"core", "algorithms", "measures", "federation", "selection", "experiment", "record", "runs", "study"},
    "report": {"core", "measures", "federation", "experiment", "record", "runs", "study", "racing"},
    "testing": {"core", "algorithms", "models", "federation", "selection", "training", "engines"},
    "chooser": {"core", "experiment", "record", "rounds", "selection"},
    "flower": {
        "core", "algorithms", "models", "federation", "selection", "experiment", "training", "engines", "record", "rounds", "runs",
        "chooser",
    },
    "api": {"core", "algorithms", "models", "federation", "selection", "experiment", "record", "runs", "study", "racing", "report"},
    "cli": {"core", "federation", "experiment", "record", "runs", "study", "racing", "report", "flower"},
    "__init__": {"core", "federation", "models", "experiment", "chooser", "api"},
    "__main__": {"cli"},
}  # fmt: skip
"""Every package, listed below the packages it imports. Imports inside functions and for type checking count."""

MAX_LINES = 350
LENGTH_EXCEPTIONS: dict[str, str] = {}
"""Files that may be longer than :data:`MAX_LINES`, each with its reason."""

NUMERICAL = {"numpy", "scipy", "torch", "sklearn", "annotated_types"}
"""Packages that strategies may import besides fedcohort and the standard library."""


@dataclass(frozen=True)
class Import:
    """An import of ``module`` in ``file`` at ``line``."""

    file: str
    line: int
    module: str

    @property
    def package(self) -> str:
        """The top-level package or module that ``file`` belongs to."""
        return self.file.removesuffix(".py").split("/")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def files() -> list[str]:
    return [path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py"))]


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Each file and its syntax tree; read by the first test that needs it, not by every process that collects tests."""
    return [(file, ast.parse((SOURCE / file).read_text(encoding="utf-8"))) for file in files()]


def imports(file: str, tree: ast.Module) -> Iterator[Import]:
    """All imports of a file, at any level; ``from a import b`` counts as ``a.b``."""
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


@cache
def all_imports() -> list[Import]:
    return [line for file, tree in trees() for line in imports(file, tree)]


@cache
def internal_imports() -> list[tuple[Import, str]]:
    """The imports from this package, and the package or module of it that each of them names."""
    return [(line, line.module.split(".")[1]) for line in all_imports() if line.module.startswith("fedcohort.")]


MODULES = {module_of(file) for file in files()}


def test_all_packages_are_listed() -> None:
    entries = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(PERMITTED) == entries
    assert len(entries) <= 22
    assert len(internal_imports()) > 500


def test_permitted_imports_have_no_cycle() -> None:
    TopologicalSorter(PERMITTED).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter(PERMITTED | {"core": {"cli"}}).prepare()


def test_packages_are_listed_below_everything_they_import() -> None:
    above: set[str] = set()
    for package, imported in PERMITTED.items():
        assert imported <= above, f"{package} imports {sorted(imported - above)}, which are listed below it"
        above.add(package)


@pytest.mark.parametrize("package", PERMITTED)
def test_a_package_imports_exactly_the_listed_packages(package: str) -> None:
    used = {name for line, name in internal_imports() if line.package == package} - {package}
    wrong = [
        str(line)
        for line, name in internal_imports()
        if line.package == package and name not in {package, *PERMITTED[package]}
    ]
    assert not wrong, f"{package} may import {sorted(PERMITTED[package])}: {wrong}"
    assert used == PERMITTED[package], (
        f"{package} does not use {sorted(PERMITTED[package] - used)}; remove it from the list"
    )


def test_imports_between_files_have_no_cycle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for line, _ in internal_imports():
        name = line.module
        while name not in MODULES:
            name = name.rpartition(".")[0]
        importer = module_of(line.file)
        if name not in (importer, "fedcohort"):
            graph[importer].add(name)
    assert sum(len(imported) for imported in graph.values()) > 300
    TopologicalSorter(graph).prepare()


def inner_imports() -> dict[str, set[str]]:
    """The packages inside packages, such as ``report.charts``, and the others that the files of each of them import."""
    inner = {path.parent for path in map(Path, files()) if len(path.parts) > 2}
    graph: dict[str, set[str]] = {path.as_posix(): set() for path in inner}
    for line, _ in internal_imports():
        importer, imported = Path(line.file).parent.as_posix(), "/".join(line.module.split(".")[1:3])
        if importer in graph and imported in graph and importer != imported:
            graph[importer].add(imported)
    return graph


def test_packages_inside_packages_have_no_import_cycle() -> None:
    """They had one in the package ``report``: in figures, charts, notes, tables, the headline and the terminal."""
    graph = inner_imports()
    assert {"report/charts", "training/stack"} <= graph.keys()
    assert sum(len(imported) for imported in graph.values()) > 30
    TopologicalSorter(graph).prepare()


def test_no_file_is_too_long() -> None:
    lengths = {
        path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")
    }
    assert {file for file, lines in lengths.items() if lines > MAX_LINES} == set(LENGTH_EXCEPTIONS)


def exported(tree: ast.Module) -> set[str] | None:
    """The names in the ``__all__`` of a file; None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def test_files_export_every_name_that_others_import() -> None:
    """A reader sees in ``__all__`` what other files use; 30 such names were not in it."""
    names = {module_of(file): exported(tree) for file, tree in trees()}
    wrong = []
    for line, _ in internal_imports():
        module, _, name = line.module.rpartition(".")
        if names.get(module) is not None and line.module not in MODULES and name not in (names[module] or ()):
            wrong.append(f"{line}, which is not in __all__")
    assert not wrong


def test_every_module_says_what_it_holds() -> None:
    """The module list of docs/design.md is made of these sentences."""
    assert not [file for file, tree in trees() if "." not in (ast.get_docstring(tree) or "")]


def test_strategies_import_only_numerical_packages() -> None:
    known = NUMERICAL | {"fedcohort"} | set(sys.stdlib_module_names)
    wrong = [
        str(line) for line in all_imports() if line.package == "selection" and line.module.split(".")[0] not in known
    ]
    assert not wrong


# --- rules for all modules ----------------------------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"random", "pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
"""Modules with a global random state, and file formats that can run code when they are read."""

EXPLICIT_RANDOM = {"Generator", "Philox", "SeedSequence", "BitGenerator", "get_state"}
"""The parts of ``numpy.random`` that use no global state, or only read it."""

TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like", "randn_like"}
"""Random functions of torch that take a ``generator``."""

MAY_SEED_TORCH = {"core/random_streams.py"}
"""Files that may seed torch's global generators temporarily, because torch modules draw only from them."""


MAY_SEND_OBJECTS = {("runs/process_objects.py", "cloudpickle")}
"""Files that may send objects to processes of this machine; tests/runs/test_process_objects.py holds that no file is written."""


def test_no_module_imports_pickle_or_the_global_random_module() -> None:
    found = [(line.file, line.module.split(".")[0], str(line)) for line in all_imports()]
    assert not [
        words for file, module, words in found if module in FORBIDDEN_MODULES and (file, module) not in MAY_SEND_OBJECTS
    ]


def test_no_module_has_a_catch_all_name() -> None:
    wrong = [file for file in files() if Path(file).stem in {"utils", "util", "helpers", "common", "misc"}]
    assert not wrong


@pytest.mark.parametrize("file", files())
def test_random_draws_use_explicit_generators_and_files_no_pickle(file: str) -> None:
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in ("np.random", "numpy.random") and node.attr not in EXPLICIT_RANDOM:
                wrong.append(f"{file}:{node.lineno}: {owner}.{node.attr}")
            if owner in ("torch", "torch.cuda", "torch.random") and node.attr in (
                "manual_seed",
                "seed",
                "set_rng_state",
                "fork_rng",
                "default_generator",
                "default_generators",
            ):
                wrong += [] if file in MAY_SEED_TORCH else [f"{file}:{node.lineno}: {owner}.{node.attr}"]
        if isinstance(node, ast.ImportFrom) and node.module in ("numpy.random", "torch.random"):
            wrong += [
                f"{file}:{node.lineno}: {node.module}.{n.name}" for n in node.names if n.name not in EXPLICIT_RANDOM
            ]
        if isinstance(node, ast.Call):
            name, keywords = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
            if name in {f"torch.{draw}" for draw in TORCH_DRAWS} and "generator" not in keywords:
                wrong.append(f"{file}:{node.lineno}: {name} without a generator")
            if name in ("torch.save", "torch.load") or "allow_pickle" in keywords:
                wrong.append(f"{file}:{node.lineno}: {name} pickles")
    assert not wrong


# --- where tests lie ----------------------------------------------------------------------------------------------------------

TESTS = Path(__file__).parent


def test_a_test_of_one_module_lies_in_the_folder_of_its_package() -> None:
    """``tests/training/networks/test_mixed_samples.py`` tests ``training/networks/mixed_samples.py``."""
    folders: dict[tuple[str, str], set[Path]] = {}
    for path in map(Path, files()):
        folders.setdefault((path.parts[0], path.stem), set()).add(path.parent)
    found = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]
    own = {test: folders.get((test.parts[0], test.stem.removeprefix("test_"))) for test in found}
    assert sum(folder is not None for folder in own.values()) > 100
    assert not [str(test) for test, folder in own.items() if folder is not None and test.parent not in folder]
