"""Every Python, TOML and console block of the README and of the how-to pages runs without an error, in the order of the page."""

import glob
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fedcohort.cli import cli
from fedcohort.experiment import Experiment, load
from fedcohort.selection import STRATEGIES
from tests.docs.pages import PAGES, ROOT, Block, blocks, read
from tests.repetitions import slow_unless

HOW_TO = (
    "report",
    "notebooks",
    "compare-strategies",
    "own-data",
    "race",
    "advise",
    "why",
    "heterogeneity",
    "sequences",
    "algorithms",
    "write-a-strategy",
    "experiment-file",
    "own-server",
    "flower",
    "regression",
)
RUNNABLE = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in HOW_TO)]
TAKE_LONG = {
    "algorithms",
    "compare-strategies",
    "heterogeneity",
    "notebooks",
    "own-data",
    "race",
    "regression",
    "report",
    "sequences",
}
"""Pages whose blocks take 2 to 25 s."""
ONE_ROUND = ["--set", "rounds=1", "--set", "seeds=1", "--quiet"]
"""Options added to commands that play rounds, so that pages can show experiments of realistic size."""
SHORT = {
    "profile": ["--batch-size", "32", "--seconds", "0.2", "--rounds", "0"],
    "race": ["--set", "rounds=1", "--max-seeds", "2", "--quiet"],
    "advise": ["--set", "rounds=1", "--max-seeds", "2", "--quiet"],
}
"""Options added to commands that measure."""


NEEDS = {"report": "tensorboard", "flower": "flwr"}
"""Pages that show an extra, and its package."""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with the project's experiments, a separate cache, and a small mirror of one Hub data set."""
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    fashion = tmp_path / "mirror" / "zalando-datasets" / "fashion_mnist"
    write_image_parquet(fashion)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FEDCOHORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def write_image_parquet(folder: Path) -> None:
    """Write a data set of random images with 10 classes in the layout of the Hub."""
    from datasets import ClassLabel, Dataset, Features, Image

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    features = Features({"image": Image(), "label": ClassLabel(names=[str(label) for label in range(10)])})
    for split, count in (("train", 2000), ("test", 200)):
        images = list(rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        rows = Dataset.from_dict({"image": images, "label": [i % 10 for i in range(count)]}, features=features)
        rows.to_parquet(folder / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize(
    "page", slow_unless(lambda page: page.stem not in TAKE_LONG, RUNNABLE), ids=lambda page: page.stem
)
def test_all_blocks_of_a_page_run(page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem], reason="the extra that the page shows is not installed")
    names: dict[str, object] = {"__name__": "page"}
    assert any(block.language in ("python", "toml", "console") for block in blocks(page))
    for block in blocks(page):
        if block.language == "python":
            run_python(page, block, names)
        elif block.language == "toml":
            check_toml(block)
        elif block.language == "console":
            run_console(block, monkeypatch)


def run_python(page: Path, block: Block, names: dict[str, object]) -> None:
    """Run a block in the page's namespace. A block that is a file is written instead, and its tests are called."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    if block.file is None:
        exec(code, names)
        return
    Path(block.file).write_text(block.text, encoding="utf-8")
    if block.file.startswith("test_"):
        names_in_file: dict[str, object] = {}
        exec(code, names_in_file)
        tests = [test for name, test in names_in_file.items() if name.startswith("test_")]
        assert tests
        for test in tests:
            assert callable(test)
            test()


def check_toml(block: Block) -> None:
    """Check an experiment by the schema. A block that is a file is written first."""
    values = tomllib.loads(block.text)
    if block.file is None:
        Experiment(**values)
        return
    Path(block.file).write_text(block.text, encoding="utf-8")
    if block.file != "pyproject.toml":
        load(block.file)


def run_console(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every ``fedcohort`` command, which must exit with 0, and check that the targets of ``make`` exist."""
    for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
        program, *arguments = shlex.split(line, comments=True)
        if program == "export":
            name, _, value = arguments[0].partition("=")
            monkeypatch.setenv(name, value)
        elif program == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif program == "fedcohort":
            arguments = [name for word in arguments for name in (sorted(glob.glob(word)) if "*" in word else [word])]  # noqa: PTH207
            arguments, output_file = (arguments[:-2], arguments[-1]) if arguments[-2:-1] == [">"] else (arguments, None)
            plays = arguments[0] in ("run", "compare", "sweep") and not any(a.startswith("runs/") for a in arguments)
            shortened = ONE_ROUND if plays else SHORT.get(arguments[0], [])
            result = CliRunner().invoke(cli, [*arguments, *shortened], prog_name="fedcohort")
            assert result.exit_code == 0, f"{line}\n{result.output}"
            if output_file is not None:
                Path(output_file).write_text(result.stdout, encoding="utf-8")
        else:
            assert program in ("pip", "git", "cd", "flwr"), f"not a command this test knows: {line}"


# --- outputs -------------------------------------------------------------------------------------------------------------------

WIDTH = 120
"""Width of the terminal for outputs with longer lines than 100 characters."""
MEASURED = re.compile(r"\b\d[\d.,:]* ?(?:s|ms|min)\b|[\d.]+\s+times\s+the\s+wall\s+time|[─ ]{3,}")
"""Wall times, and the lines and blanks whose length depends on them."""
PLAYED = re.compile(r"^\$ (fedcohort (?:compare|why|race|advise)[^\n]*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
"""A command, and its output in the same block."""
WITH_OUTPUTS = ("compare-strategies", "why", "write-a-strategy", "race", "advise")


def plain(output: str) -> list[str]:
    """The words of an output without wall times."""
    return MEASURED.sub(" ", output).split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in WITH_OUTPUTS)], ids=lambda page: page.stem
)
def test_an_output_on_a_page_is_what_is_printed(
    page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands and code whose output follows on the page are played in full, and their output is compared with it."""
    names: dict[str, object] = {"__name__": "page"}
    found, compared = blocks(page), 0
    for block, after in zip(found, [*found[1:], None], strict=True):
        below = after.text if after is not None and after.language == "text" else ""
        outputs: list[tuple[str, str]] = []
        if block.language == "python":
            monkeypatch.setenv("COLUMNS", str(columns(below)))
            capsys.readouterr()
            run_python(page, block, names)
            outputs = [(capsys.readouterr().out, below)]
        elif block.language == "toml":
            check_toml(block)
        elif block.language == "console":
            commands = PLAYED.findall(block.text)
            outputs = [
                (play(line, columns(shown or below), monkeypatch), shown or below)
                for number, (line, shown) in enumerate(commands)
                if shown or (below and number == len(commands) - 1)
            ]
        for printed, shown in outputs:
            if printed and shown and not shown.startswith("$ "):
                compared += 1
                assert plain(printed) == plain(shown), f"{page.name}, line {block.line}"
    assert compared >= 2


def columns(output: str) -> int:
    """The width of the terminal in which an output was printed."""
    return 100 if all(len(line) <= 100 for line in output.splitlines()) else WIDTH


def play(line: str, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints in a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    words = shlex.split(line, comments=True)[1:]
    words = [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]  # noqa: PTH207
    result = CliRunner().invoke(cli, words, prog_name="fedcohort")
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.stdout


def test_the_entry_point_of_the_page_adds_a_strategy(workspace: Path) -> None:
    page = ROOT / "docs" / "write-a-strategy.md"
    strategy = next(block for block in blocks(page) if block.file == "least_often.py")
    settings = next(block for block in blocks(page) if block.file == "pyproject.toml")
    (group, names), *others = tomllib.loads(settings.text)["project"]["entry-points"].items()
    assert group == STRATEGIES.group
    assert not others
    package = workspace / "my_strategies"  # a package, because setuptools refuses several modules that stand alone
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "least_often.py").write_text(strategy.text, encoding="utf-8")
    installed = workspace / "my_strategies-0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-strategies\nVersion: 0.1\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in names.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    assert set(names) <= {point.name for point in entry_points(group=group)}
    assert set(names) <= set(STRATEGIES)
    assert Experiment(selection="least_often").selection.build().__class__.__name__ == "LeastOften"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_fences_are_closed_and_have_a_language(page: Path) -> None:
    assert read(page).count("\n```") % 2 == 0
    assert all(block.language for block in blocks(page))
