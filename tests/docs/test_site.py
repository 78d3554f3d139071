"""The pages of the site: complete, linked and documented. ``tests/docs/test_built_site.py`` builds it."""

import importlib
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fedcohort.algorithms import ALGORITHMS
from fedcohort.core.parameters import describe
from fedcohort.core.words.synonyms import ALSO_KNOWN_AS
from fedcohort.selection import STRATEGIES
from tests.docs.pages import ROOT, read
from tests.docs.test_links import without_code

SITE = ROOT / "docs" / "site"
pytest.importorskip("flwr", reason="the extra flower is not installed, whose module is public")


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, Any]]:
    """The modules that make the site."""
    sys.path.insert(0, str(SITE))
    yield {
        path.stem: importlib.import_module(path.stem)
        for path in SITE.glob("*.py")
        if path.stem not in ("conf", "autodoc_hooks")
    }
    sys.path.remove(str(SITE))


@pytest.fixture(scope="module")
def source(modules: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which Sphinx would build the site, without the pictures of runs."""
    folder = tmp_path_factory.mktemp("site")
    modules["build"].assemble(folder, {}, None)
    return folder


@pytest.fixture(scope="module")
def pages(source: Path) -> dict[str, str]:
    """All pages of the site without the pictures of runs, by their names."""
    return {path.relative_to(source).as_posix().removesuffix(".md"): read(path) for path in source.rglob("*.md")}


def below(name: str, page: str) -> list[str]:
    """The names of the pages in the tables of contents of a page."""
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), line)) for line in lines]


def test_every_page_of_the_repository_is_on_the_site(modules: dict[str, Any]) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    files |= {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    assert set(modules["navigation"].handwritten()) == files, "name it in docs/site/navigation.py"


def test_every_page_is_in_one_table_of_contents(pages: dict[str, str]) -> None:
    listed = [entry for name, page in pages.items() for entry in below(name, page)]
    assert sorted(listed) == sorted(set(pages) - {"index"})


def test_links_between_pages_of_the_site_lead_to_pages(pages: dict[str, str]) -> None:
    links = 0
    for name, page in pages.items():
        for target in re.findall(r"\]\(([^)\s#]+\.md)[^)]*\)", without_code(page)):
            if "://" not in target:
                links += 1
                assert (
                    posixpath.normpath(posixpath.join(posixpath.dirname(name), target)).removesuffix(".md") in pages
                ), (name, target)
    assert links > 400


def test_every_picture_of_a_page_is_in_the_folder(pages: dict[str, str], source: Path) -> None:
    named = [
        (name, target)
        for name, page in pages.items()
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", without_code(page))
    ]
    assert len(named) >= 7
    for name, targets in named:
        picture = source / posixpath.dirname(name) / ("".join(targets))
        assert picture.is_file(), f"{name}: {picture.name}"


def test_pages_have_different_titles(pages: dict[str, str]) -> None:
    """Two pages with one title are the same in the navigation and in the search."""
    titles = [match[1] for page in pages.values() if (match := re.search(r"^# (.+)$", page, re.MULTILINE))]
    assert [title for title in titles if titles.count(title) > 1] == []


def test_the_symbols_on_the_overview_are_typeset(pages: dict[str, str]) -> None:
    symbols = pages["strategies"].partition("The formulas use these symbols")[2].partition("Rules marked")[0]
    assert symbols.count("<math>") >= 5
    assert not re.search(r"[A-Z]_[a-z]|w\^", symbols)


def test_a_link_to_no_file_ends_the_build(modules: dict[str, Any]) -> None:
    links = modules["links"]
    with pytest.raises(links.BrokenLinkError, match=r"there is no such file"):
        links.relink("[gone](gone.md)", "docs/index.md", {"docs/index.md": "index"}, {})


def test_links_lead_to_pages_of_the_site_or_to_the_repository(modules: dict[str, Any]) -> None:
    names = {"docs/decisions/README.md": "decisions/index", "docs/why.md": "why", "docs/strategies.md": "strategies"}
    text = "[a](../why.md#b) [c](../../experiments/x86.toml) [d](../strategies.md#ucb) [e](https://a.b)\n```text\n[f](../why.md)\n```"
    found = modules["links"].relink(text, "docs/decisions/README.md", names, {"ucb": "strategy/ucb"})
    repository = modules["navigation"].REPOSITORY
    first, *code = found.split("\n")
    assert (
        first
        == f"[a](../why.md#b) [c]({repository}/blob/main/experiments/x86.toml) [d](../strategy/ucb.md) [e](https://a.b)"
    )
    assert code == ["```text", "[f](../why.md)", "```"]


def test_every_public_name_is_documented(modules: dict[str, Any]) -> None:
    assert modules["public_names"].undocumented() == []


def test_a_public_name_without_documentation_is_found(modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        """A class."""

        field: int
        told: int
        """A field with a text."""

        def method(self) -> None: ...

    Bare.__module__ = "fedcohort.chooser"
    monkeypatch.setattr("fedcohort.Bare", Bare, raising=False)
    monkeypatch.setattr("fedcohort.__all__", ["Bare"])
    names = modules["public_names"]
    monkeypatch.setattr(names, "modules", lambda: ["fedcohort"])
    monkeypatch.setattr(names, "_written_beside", lambda module: {("Bare", "told"): "A field with a text."})
    assert names.undocumented() == ["fedcohort.Bare.method", "fedcohort.Bare.field"]


def test_every_strategy_and_algorithm_has_a_page_with_its_card_and_parameters(pages: dict[str, str]) -> None:
    for kind, table in (("strategy", STRATEGIES), ("algorithm", ALGORITHMS)):
        for name in table.builtin:
            page, cls = pages[f"{kind}/{name}"], table.find(name, name)
            assert cls.card.source in page
            assert "* Discloses about a client" in page
            assert all(other in page for other in ALSO_KNOWN_AS.get(name, ())), "the search finds these names"
            assert f"autoclass:: fedcohort.{'selection' if kind == 'strategy' else 'algorithms'}.{cls.__name__}" in page
    assert "| `epsilon` | float ≥ 0, ≤ 1 | `0.1` |" in pages["strategy/ucb"]


def test_the_python_reference_names_every_public_name(modules: dict[str, Any], pages: dict[str, str]) -> None:
    reference = "".join(page for name, page in pages.items() if name.startswith(("api/", "strategy/", "algorithm/")))
    written = set(re.findall(r":: (fedcohort[\w.]*)$", reference, re.MULTILINE))
    names = modules["public_names"]
    assert written == {f"{module}.{name}" for module in names.modules() for name in names.public_names(module)}


def test_the_reference_of_the_command_line_has_every_option(modules: dict[str, Any], pages: dict[str, str]) -> None:
    sections = dict(re.findall(r"^## `(fedcohort .*?)`\n(.*?)(?=^## |\Z)", pages["commands"], re.MULTILINE | re.DOTALL))
    found = dict(modules["command_pages"].commands())
    assert set(sections) == set(found) - {"fedcohort"}
    for path, section in sections.items():
        shown = [parameter for parameter in found[path].params if not getattr(parameter, "hidden", False)]
        options = [option for parameter in shown for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if option not in section] == [], path


def test_the_picture_of_picks_has_a_filled_cell_for_every_admitted_update(modules: dict[str, Any]) -> None:
    import numpy as np

    state = np.array([[1, 0, 2], [0, 1, 1]], dtype=np.int8)
    picture = modules["picks"].drawn_picks(state, [10, 1200], "a < b")
    assert picture.count('class="selected"') == 3
    assert picture.count('class="lost"') == 1
    assert picture.count('class="empty"') == 2
    assert picture.index("1,200") < picture.index(">10<")  # the larger client first
    assert "a &lt; b" in picture
    assert all(f">{heading}</text>" in picture for heading in ("samples", "client", "round 1", "rounds"))
    assert "hollow" in picture


def test_the_flower_guide_says_how_a_simulation_keeps_away_from_a_ray_cluster(pages: dict[str, str]) -> None:
    before, command, _ = pages["flower"].partition("$ flwr run . --stream --federation-config")
    assert command
    assert "`RAY_ADDRESS=local`" in before, "Ray joins any cluster that runs on the machine"


def test_a_picture_with_a_dark_twin_follows_the_theme(
    modules: dict[str, Any], pages: dict[str, str], tmp_path: Path
) -> None:
    """The first picture of the site was white in dark mode."""
    (tmp_path / "head-dark.png").touch()
    text = modules["links"].in_both_themes('![A "head"](head.png)\n\n![B](other.png)\n', tmp_path)
    assert text == (
        '<img src="head.png" alt="A &quot;head&quot;" class="only-light"><img src="head-dark.png" alt="A &quot;head&quot;" '
        'class="only-dark">\n\n![B](other.png)\n'
    )
    assert 'src="report-head-dark.png"' in pages["index"]


def test_the_home_page_is_that_of_the_folder(pages: dict[str, str]) -> None:
    home = read(Path(ROOT, "docs", "index.md"))
    assert pages["index"].startswith(home.split("\n\n")[0])
    assert len(below("index", pages["index"])) == 6


def test_texts_under_fields_are_found_in_the_cell_of_a_notebook() -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    cell = 'class Of(Selector):\n    count: int = 1\n    """How many."""\n\n    def select(self, round): ...\n'
    assert shell.run_cell(f"from fedcohort.selection import Selector, parameters\n\n\n@parameters\n{cell}").success
    [row] = describe(shell.user_ns["Of"])
    assert row.doc == "How many."


def test_options_in_texts_are_code(pages: dict[str, str]) -> None:
    """Outside of code, Sphinx would turn the two hyphens into a dash."""
    bare = [
        line for line in pages["commands"].splitlines() if re.search(r"(?<![\w-])--[a-z]", re.sub(r"`[^`]*`", "", line))
    ]
    assert bare == []
    assert "what a command prints with `--json`" in pages["commands"]


def test_words_that_go_on_in_the_next_line_are_one_text(modules: dict[str, Any]) -> None:
    long = "a text that is longer than a formula and says what the scale of the utilities is, so"
    block = modules["formulas"].formula_block(f"scale   {long}\n        that it goes on\nx       = 1\n        + 2")
    assert f"{long} that it goes on</span></div>" in block
    assert block.count("<div") == 1 + 3, "the lines of a formula stay where they are"
    assert block.count('class="described"') == 1


def test_signatures_have_plain_types(modules: dict[str, Any]) -> None:
    given = "(*, c: Annotated[float, Ge(0), Le(1)] = 0.1, r: Literal['a', 'b'] = 'a', q: dict[str, Annotated[int, Ge(1)]] | None)"
    assert modules["signatures"].without_limits(given) == (
        "(*, c: float = 0.1, r: Literal['a', 'b'] = 'a', q: dict[str, int] | None)"
    )
    assert modules["signatures"].without_limits("(k: ~typing.Annotated[int, Ge(ge=1)] = 3)") == "(k: int = 3)"


def test_signatures_have_the_short_names_of_arrays(modules: dict[str, Any]) -> None:
    """NumPy's ArrayLike stands for seven types, which made signatures of several lines."""
    typing = pytest.importorskip("sphinx.util.typing")
    from numpy.typing import ArrayLike, NDArray

    short = modules["signatures"].with_short_arrays
    for mode in ("smart", "fully-qualified-except-typing"):
        assert short(typing.stringify_annotation(ArrayLike, mode)) == "~numpy.typing.ArrayLike"
        assert "ndarray[" not in short(typing.stringify_annotation(NDArray[Any] | None, mode))
    assert short("(*, k: int = 3) -> float") == "(*, k: int = 3) -> float"


def test_attributes_have_types_as_signatures_have_them(modules: dict[str, Any]) -> None:
    """Properties had the limits of their values, and lists of attributes NumPy's long names of arrays."""
    typing = pytest.importorskip("sphinx.util.typing")
    from numpy.typing import NDArray

    long = typing.stringify_annotation(NDArray[np.int64] | None, "fully-qualified-except-typing")
    lines = [f":vartype clients: {long}", ":ivar clients: ndarray[tuple[Any, ...], dtype[int64]] in words"]
    importlib.import_module("autodoc_hooks").plain_types(None, "class", "", None, None, lines)
    assert lines == [
        ":vartype clients: ~numpy.typing.NDArray[numpy.int64] | None",
        ":ivar clients: ndarray[tuple[Any, ...], dtype[int64]] in words",
    ]
    plain = modules["signatures"].plain
    assert plain("~typing.Annotated[float, Ge(ge=0), Le(le=1)]") == "float"
    assert (
        plain("(terms: dict[str, ~numpy.ndarray]=<factory>, k: int = 3)")
        == "(terms: dict[str, ~numpy.ndarray] = ..., k: int = 3)"
    )


def test_symbols_in_the_tables_of_the_python_reference_are_typeset(pages: dict[str, str]) -> None:
    for module in ("selection", "algorithms"):
        table = pages[f"api/fedcohort-{module}"].partition("## Built-in")[2].partition("\n## ")[0]
        assert not re.search(r"[A-Za-zα-ω]_[a-z]\b", re.sub(r"`[^`]*`", "", table)), module
    assert "<math>" in pages["api/fedcohort-selection"]


def test_no_link_leads_to_a_heading_of_the_readme(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        assert not re.search(r"\]\((?:\.\./)*index\.md#", page), (
            f"{name}: the site's first page has no headings of the README"
        )


FORMULAS = {
    "N_i": "<math><msub><mi>N</mi><mrow><mi>i</mi></mrow></msub></math>",
    "Σ_ii": "<math><msub><mo>Σ</mo><mrow><mi>ii</mi></mrow></msub></math>",
    "w^{t+1}": "<math><msup><mi>w</mi><mrow><mi>t</mi><mo>+</mo><mn>1</mn></mrow></msup></math>",
    "γ_t²": "<math><msubsup><mi>γ</mi><mrow><mi>t</mi></mrow><mrow><mn>2</mn></mrow></msubsup></math>",
    "√(a + 1)": "<math><msqrt><mi>a</mi>{}<mo>+</mo>{}<mn>1</mn></msqrt></math>",
    "λI": "<math><mrow><mi>λ</mi><mi>I</mi></mrow></math>",
    "the mean loss": "the mean loss",
    "a d-subset of max_epochs": "a <math><mi>d</mi></math>-subset of max_epochs",
}


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_math_and_words_stay_words(modules: dict[str, Any], text: str) -> None:
    space = '<mspace width="0.22em"></mspace>'
    assert modules["formulas"].inline(text) == FORMULAS[text].format(space, space)


def test_every_formula_of_the_strategies_and_algorithms_is_typeset(pages: dict[str, str]) -> None:
    blocks = 0
    for name, page in pages.items():
        if not re.fullmatch(r"(strategy|algorithm)/\w+", name):
            continue
        assert "```text" not in page, f"{name}: a formula is plain text"
        assert "``" not in re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE), (
            f"{name}: an open code span"
        )
        for block in re.findall(r'^<div class="formulas">.*$', page, re.MULTILINE):
            words = "".join(ElementTree.fromstring(block).itertext())
            assert "<math>" in block or not re.search("[=≤∝Σ√]", words), f"{name}: {words}"
            blocks += 1
        shown = re.sub(r"```.*?```|`[^`]*`|<math>.*?</math>|\[[^\]]*\]\([^)]*\)", "", page, flags=re.DOTALL)
        left = re.findall(r"(?<![\w])[A-Za-zα-ωΑ-Ω](?:_(?:[a-z]{1,2}\b|\{)|\^[a-z])", shown)
        assert not left, f"{name}: {left}"
    assert blocks >= 50


def test_the_search_has_the_words_of_pages_without_their_menus(modules: dict[str, Any], tmp_path: Path) -> None:
    page = (
        '<nav>menu</nav><article role="main" id="x"><section><h1>Title<a class="headerlink" href="#x">¶</a></h1>'
        "<p>Uniform &amp; <b>fair</b>, as ever .</p><svg><text>5</text></svg><script>no()</script></section></article>"
        "<footer>end</footer>"
    )
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "one.html").write_text(page, encoding="utf-8")
    (tmp_path / "search.html").write_text(page, encoding="utf-8")
    modules["search_texts"].write_search_texts(tmp_path)
    assert read(tmp_path / "search-texts.js") == 'window.searchTexts = {"api/one": "Uniform & fair, as ever."};\n'


def test_figures_in_full_size_have_no_size_of_their_own(modules: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "small.svg").write_text(
        '<svg xmlns="s" width="252" height="90.5" viewBox="0 0 252 90.5"><rect width="3"/></svg>'
    )
    modules["gallery"]._write_large(tmp_path / "small.svg", tmp_path / "figures" / "small.svg")
    assert read(tmp_path / "figures" / "small.svg") == '<svg xmlns="s"  viewBox="0 0 252 90.5"><rect width="3"/></svg>'


def test_a_caption_of_the_gallery_says_once_what_is_true_of_several_views(modules: dict[str, Any]) -> None:
    """The first paragraph of the gallery had the same three sentences three times."""
    views = {
        "rounds": "Triangle: the target. Lines.",
        "time": "A point is late. Triangle: the target. Lines.",
        "bytes": "",
    }
    assert modules["gallery"].captions("Mean.", views) == [
        "Mean. Triangle: the target. Lines.",
        "- Time: a point is late.",
    ]
    assert modules["gallery"].captions("Mean.", {"": ""}) == ["Mean."]
