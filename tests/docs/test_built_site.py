"""The site is built in strict mode, with its tutorials played, and works in a browser from a folder, without a network.

Needs the dependency group ``site``, and Chromium for the tests in a browser; skipped without them. ``FEDCOHORT_SITE`` names
the folder of a site that was built before, which is tested instead of a new one.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks, read

pytest.importorskip("myst_nb", reason="the dependency group site is not installed")
pytest.importorskip("furo", reason="the dependency group site is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CHROMIUM = os.environ.get("FEDCOHORT_BROWSER") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WORK = ROOT / "build" / "site-work"
"""Runs that pictures show are kept here between builds, as by ``make site``."""
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PAGES = (
    "index",
    "tutorials/first-comparison",
    "strategy/ucb",
    "algorithm/fedavg",
    "api/fedcohort-selection",
    "commands",
    "gallery",
    "glossary",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a new site. Its notebooks are played, not taken from an earlier build."""
    if built := os.environ.get("FEDCOHORT_SITE"):
        return Path(built).resolve()
    folder = tmp_path_factory.mktemp("site")
    work = folder / "work"
    work.mkdir()
    (WORK / "runs").mkdir(parents=True, exist_ok=True)
    (work / "runs").symlink_to(WORK / "runs", target_is_directory=True)
    command = [
        sys.executable,
        str(ROOT / "docs" / "site" / "build.py"),
        "--out",
        str(folder / "html"),
        "--work",
        str(work),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_every_cell_of_a_tutorial_was_played(tutorial: Path, site: Path) -> None:
    html = read(site / "tutorials" / f"{tutorial.stem}.html")
    cells = [block for block in blocks(tutorial) if block.language == "python"]
    assert len(cells) >= 4
    assert html.count('class="cell docutils') + html.count("cell tag_") == len(cells)
    assert html.count("cell_output") >= 3


def test_types_in_the_python_reference_are_plain(site: Path) -> None:
    for page in sorted((site / "api").glob("*.html")):
        text = words(read(page))
        assert not re.findall(r"Annotated\[|ndarray\[|&lt;factory&gt;|: ~\w|, ~\w", text), page.name


def test_the_first_tutorial_ends_with_the_verdict_that_its_text_states(site: Path) -> None:
    text = words(read(site / "tutorials" / "first-comparison.html"))
    found = re.search(r"taking turns: (better|worse|not clear), p = (\d\.\d+) (\+\d+\.\d) points against uniform", text)
    assert found is not None
    assert found[1] == "better"
    assert f"a difference of {found[3][1:]} percentage points" in text
    assert f"p = {found[2]}, ten paired seeds" in text


def test_tutorials_say_of_their_output_what_it_is(site: Path) -> None:
    table = words(read(site / "tutorials" / "paper-table.html"))
    assert re.search(r"UCB \d+\.\d ± \d+\.\d [+−]\d+\.\d \[[^]]+\] not clear, ", table), (
        "the text says that it is not clear"
    )
    assert "[data] name = " in table
    assert "ClientApp at 0x" not in words(read(site / "tutorials" / "flower.html")), (
        "an object without any use for readers"
    )


def test_every_strategy_and_algorithm_has_a_picture(site: Path) -> None:
    pages = [*site.glob("strategy/*.html"), *site.glob("algorithm/*.html")]
    assert len(pages) == 54
    assert [page.name for page in pages if '<figure class="picks">' not in read(page)] == []


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
    found = {address for page in site.rglob("*.html") for address in loaded.findall(read(page))}
    assert found == set()


# --- in a browser ------------------------------------------------------------------------------------------------------------------


@dataclass
class PatientBrowser:
    """A browser whose pages may take any time on a busy machine; the tests' time limit ends one that hangs."""

    browser: Any

    def new_page(self, **settings: Any) -> Any:
        page = self.browser.new_page(**settings)
        page.set_default_timeout(0)
        return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield PatientBrowser(found)
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_pages_fit_and_load_without_errors(scheme: str, width: int, site: Path, browser: Any) -> None:
    complaints: list[str] = []
    addresses: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: addresses.append(request.url))
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness = sum(map(int, re.findall(r"\d+", color)[:3]))
        assert (lightness < 200) == (scheme == "dark"), (name, color)
    page.close()
    assert complaints == []
    assert [address for address in addresses if not address.startswith(("file:", "data:"))] == []


def test_the_index_shows_all_its_names_on_a_phone(site: Path, browser: Any) -> None:
    """Its second column was cut at the edge, and the page did not scroll to it."""
    page = browser.new_page(viewport={"width": 375, "height": 800})
    page.goto((site / "genindex.html").as_uri())
    right = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.genindextable a')].map(a => a.getBoundingClientRect().right))"
    )
    assert right <= 375
    page.close()


SHADE = """async ([picture, right]) => {
    const image = new Image();
    image.src = picture;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const at = x => canvas.getImageData(x, image.height - 4, 1, 1).data.slice(0, 3).reduce((a, b) => a + b);
    return Math.abs(at(right ? image.width - 3 : 2) - at(right ? image.width - 24 : 24));
}"""
"""How much the ground at one edge of a picture differs from that beside it, just above the lower end, where no text is."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_formulas_that_go_on_have_a_shadow_at_this_edge(scheme: str, site: Path, browser: Any) -> None:
    """A formula that ends at the edge of a phone with a closing parenthesis looked complete."""
    page = browser.new_page(viewport={"width": 375, "height": 900}, color_scheme=scheme)
    page.goto((site / "strategy" / "oort.html").as_uri())
    box = page.locator(".formulas").first
    hidden = box.evaluate("box => box.scrollWidth - box.clientWidth")
    assert hidden > 20
    for place, shaded in ((0, [False, True]), (hidden, [True, False])):
        box.evaluate("(box, place) => { box.scrollLeft = place; }", place)
        picture = f"data:image/png;base64,{base64.b64encode(box.screenshot()).decode()}"
        assert [page.evaluate(SHADE, [picture, right]) > 30 for right in (False, True)] == shaded, place
    page.close()


def test_terminal_outputs_fit_at_1280_pixels(site: Path, browser: Any) -> None:
    """Readers need not scroll sideways for lines of up to 118 characters."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    for name in ("compare-strategies", "why", "race", "tutorials/first-comparison"):
        page.goto((site / f"{name}.html").as_uri())
        wide = page.evaluate(
            "[...document.querySelectorAll('article pre')].filter(box => box.scrollWidth > box.clientWidth + 1)"
            ".filter(box => box.innerText.split('\\n').every(line => line.length <= 118)).map(box => box.innerText)"
        )
        assert wide == [], name
    page.close()


def test_no_entry_of_the_python_reference_is_empty(site: Path, browser: Any) -> None:
    page = browser.new_page()
    for path in sorted(site.glob("api/*.html")):
        page.goto(path.as_uri())
        empty = page.evaluate(
            "[...document.querySelectorAll('dl.py > dd')].filter(entry => !entry.innerText.trim())"
            ".map(entry => entry.previousElementSibling.innerText)"
        )
        assert empty == [], path.name
    page.close()


@pytest.mark.parametrize(
    "word", ["p-value", "straggler", "install", "plot", "cite", "confidence interval", "GPU", "csv"]
)
def test_the_search_finds_usual_words(word: str, site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    field = page.locator("input[name=q]").first
    field.fill(word)
    field.press("Enter")
    page.wait_for_selector("#search-results ul.search li a")
    assert page.locator("#search-results ul.search li a").count() > 0
    page.close()


def test_search_works_from_a_folder(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    field = page.locator("input[name=q]").first
    field.fill("power-of-choice")
    field.press("Enter")
    page.wait_for_selector("#search-results ul.search li a")
    page.wait_for_function("document.querySelector('#search-results .search-summary')?.textContent.includes('found')")
    found = [link.get_attribute("href") for link in page.locator("#search-results ul.search li a").all()]
    assert any("strategy/powd.html" in str(address) for address in found)
    page.locator("#search-results ul.search li a").first.click()
    page.wait_for_url(lambda address: "search.html" not in address)
    assert page.locator("h1").count() == 1
    page.close()


@pytest.mark.parametrize(
    ("word", "first"),
    [("power-of-choice", "strategy/powd"), ("dirichlet", ""), ("oort", "strategy/oort"), ("UCB1", "strategy/ucb")],
)
def test_pages_and_functions_come_before_attributes_and_have_excerpts(
    word: str, first: str, site: Path, browser: Any
) -> None:
    """A search listed attributes of classes first, and no result said where the word stands."""
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + f"?q={word}")
    page.wait_for_function("document.querySelector('#search-results .search-summary')?.textContent.includes('found')")
    page.wait_for_function("document.querySelectorAll('#search-results .context').length > 0")
    items = page.locator("#search-results ul.search > li").all_inner_texts()
    kinds = [re.search(r" \(Python (attribute|property|data)", text) is not None for text in items]
    places = [i for i, attribute in enumerate(kinds) if not attribute]
    assert places
    assert max(places) < min([i for i, attribute in enumerate(kinds) if attribute], default=len(kinds))
    found = page.evaluate(
        "[...document.querySelectorAll('#search-results ul.search > li a')].map(a => a.getAttribute('href'))"
    )
    assert found[0].startswith(first)
    texts = page.evaluate("[...document.querySelectorAll('#search-results .context')].map(p => p.textContent)")
    assert sum(word.lower()[:5] in text.lower() for text in texts) > 0.5 * len(texts)
    page.close()


@pytest.mark.parametrize(("words", "shown"), [("how do I resume a run", "resum"), ("--columns", "columns")])
def test_excerpts_are_about_the_longest_words_without_their_dashes(
    words: str, shown: str, site: Path, browser: Any
) -> None:
    """They were the beginnings of pages, which have "how" or a letter "i" somewhere, and no dashes."""
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + f"?q={words}")
    page.wait_for_function("document.querySelectorAll('#search-results .context').length >= 5")
    texts = page.evaluate("[...document.querySelectorAll('#search-results .context')].map(p => p.textContent)")
    assert sum(shown in text.lower() for text in texts) > 0.5 * len(texts)
    page.close()


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        ("how many seeds", {"compare-strategies", "honest-comparisons", "tutorials/first-comparison"}),
        ("p-value", {"glossary", "tutorials/first-comparison"}),
        ("bytes", {"clocks"}),
        ("non-iid", {"glossary", "heterogeneity"}),
        ("resume", {"compare-strategies"}),
    ],
)
def test_pages_that_are_about_the_words_come_first(words: str, pages: set[str], site: Path, browser: Any) -> None:
    """Pages with a word somewhere came in the order of the alphabet: the results, for "non-iid"."""
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + f"?q={words}")
    page.wait_for_function("document.querySelector('#search-results .search-summary')?.textContent.includes('found')")
    found = page.evaluate(
        "[...document.querySelectorAll('#search-results ul.search > li a')].map(a => a.getAttribute('href'))"
    )
    assert pages <= {address.partition(".html")[0] for address in found[:5]}, found[:8]
    page.close()


def test_wide_code_and_tables_show_on_a_phone_that_they_go_on(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 375, "height": 900})
    page.goto((site / "tutorials" / "first-comparison.html").as_uri())
    shadows = page.evaluate(
        "[...document.querySelectorAll('article .highlight pre')].filter(box => box.scrollWidth > box.clientWidth)"
        ".map(box => getComputedStyle(box).backgroundImage)"
    )
    assert shadows
    assert all(image.count("linear-gradient") == 4 for image in shadows)
    assert page.evaluate("getComputedStyle(document.querySelector('table.dataframe td')).textAlign") == "right"
    page.goto((site / "advise.html").as_uri())
    widths = page.evaluate("[...document.querySelectorAll('article td:nth-child(2)')].map(cell => cell.clientWidth)")
    assert min(widths) >= 140, "a column of sentences was as narrow as a word"
    page.close()


def test_a_click_on_a_figure_of_the_gallery_fills_the_window_with_it(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto((site / "gallery.html").as_uri())
    picture = page.locator('article a[href^="figures/"] img')
    assert picture.count() > 10
    assert {link.get_attribute("href") for link in page.locator('article a[href^="figures/"]').all()} == {
        f"figures/{file.name}" for file in (site / "figures").glob("*.svg")
    }
    picture.first.click()
    page.wait_for_url("**/figures/*.svg")
    box = page.evaluate("(({width, height}) => [width, height])(document.documentElement.getBoundingClientRect())")
    assert box[0] >= 1100
    page.close()


@pytest.mark.parametrize("width", [375, 1200])
def test_letters_in_pictures_can_be_read(width: int, site: Path, browser: Any) -> None:
    """Figures of the gallery had letters of 8 points, and on phones, the picture of a report and that of picks of 5 pixels."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
    page.goto((site / "gallery.html").as_uri())
    pictures = page.locator('article a[href^="figures/"] img')
    assert min(pictures.evaluate_all("all => all.map(picture => picture.clientWidth)")) >= 340
    assert pictures.first.evaluate("picture => getComputedStyle(picture).filter") == "brightness(0.75)"
    page.goto((site / "index.html").as_uri())
    shown = "[...document.querySelectorAll('article img')].filter(picture => picture.offsetParent)"
    assert page.evaluate(
        f"{shown}.map(p => [p.src.split('/').pop(), p.clientWidth >= 700, getComputedStyle(p).filter])"
    ) == [["report-head-dark.png", True, "none"]]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto((site / "strategy" / "ucb.html").as_uri())
    assert page.evaluate("document.querySelector('.picks text').getBoundingClientRect().height") >= 12
    shadow = page.evaluate("getComputedStyle(document.querySelector('figure.picks')).backgroundImage")
    assert shadow.count("linear-gradient") == 4, "it shows that it goes on"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.evaluate(
        "(picks => { picks.scrollLeft = 200; const box = picks.querySelector('figcaption').getBoundingClientRect();"
        " return [box.left, box.right]; })(document.querySelector('figure.picks'))"
    )
    assert box[0] >= 0, "the caption stays where it is"
    assert box[1] <= width
    page.close()


@pytest.mark.parametrize("name", ["stratified", "ocs", "powd", "fedcor", "oort"])
def test_words_beside_formulas_are_not_squeezed_on_a_phone(name: str, site: Path, browser: Any) -> None:
    """The last column of a formula was as narrow as a letter, so that its sentence was as long as five screens."""
    page = browser.new_page(viewport={"width": 375, "height": 900})
    page.goto((site / "strategy" / f"{name}.html").as_uri())
    boxes = page.evaluate(
        "[...document.querySelectorAll('.formulas > .described > span:last-child')].map(e => e.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert boxes
    assert all(width >= 100 or height < 60 for width, height in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.close()


def test_the_picture_of_picks_changes_with_the_theme(site: Path, browser: Any) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto((site / "strategy" / "ucb.html").as_uri())
    color = "getComputedStyle(document.querySelector('.picks .selected')).fill"
    light = page.evaluate(color)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(color) != light
    assert page.locator(".picks .selected").count() == 90  # 3 clients in 30 rounds
    page.close()
