"""Make the pictures of the README and of the page on reports: ``make pictures``, or ``python docs/pictures.py``.

``python docs/pictures.py results`` makes only those of kept results: the map of the atlas, and the panels of the diagnoses.

The pictures show the quickstart comparison, with every client's accuracy measured in each round; that of the README, the comparison of
the first tutorial.
Needs Chromium and the development tools.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright import sync_api

import fedcohort
from fedcohort.report.data.report_data import Story, find_runs, gather
from fedcohort.report.figures.chart_style import paper
from fedcohort.report.figures.paper_figures import converted, drawn_to_width
from fedcohort.report.page import page
from fedcohort.report.page_sections import figures

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # for the results, which are no part of the package
from results.atlas.figure import heat_map  # noqa: E402
from results.atlas.means import Findings  # noqa: E402
from results.diagnoses_figure import score_panels  # noqa: E402
from results.result_file import names, read  # noqa: E402

EXPERIMENT = DOCS.parent / "experiments" / "quickstart.toml"
FIRST = DOCS.parent / "experiments" / "first_comparison.toml"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Run the comparison in a temporary folder, and write the pictures; with ``results``, only those of kept results."""
    if sys.argv[1:] == ["results"]:
        pictures_of_results()
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        fedcohort.compare(fedcohort.load_experiment(EXPERIMENT, ["measures.clients_every=1"]), runs=runs)
        story = gather(find_runs([runs]))
        file = Path(folder) / "report.html"
        file.write_text(page(story), encoding="utf-8")
        screenshots(file.as_uri())
        figure_of_accuracy(story)
        head_of_report(Path(folder))
    pictures_of_results()


def head_of_report(folder: Path) -> None:
    """The three answers at the head of the page about the comparison of the first tutorial, in light and in dark mode."""
    runs = folder / "first"
    fedcohort.compare(fedcohort.load_experiment(FIRST), runs=runs)
    file = folder / "first.html"
    file.write_text(page(gather(find_runs([runs]))), encoding="utf-8")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        for scheme, name in (("light", "report-head.png"), ("dark", "report-head-dark.png")):
            shown = opened(browser, file.as_uri(), 1000, 900, scheme)
            end = shown.locator("nav").first.bounding_box()
            assert end is not None
            shown.screenshot(path=DOCS / name, clip={"x": 0, "y": 0, "width": 1000, "height": end["y"] - 4})
        browser.close()


def screenshots(address: str) -> None:
    """The head of the page, the same on a phone in the dark, and the section on participation."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        wide = opened(browser, address, 1120, 1560, "light")
        wide.screenshot(path=DOCS / "report-light.png")
        wide.add_style_tag(content=".bar{position:static!important}")  # it would cover a part of the section
        wide.locator("#participation").screenshot(path=DOCS / "report-participation.png")
        opened(browser, address, 375, 1400, "dark").screenshot(path=DOCS / "report-dark.png")
        browser.close()


def program() -> str | None:
    """The path of Chromium."""
    return os.environ.get("FEDCOHORT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


def opened(browser: Any, address: str, width: int, height: int, scheme: str) -> Any:
    """The page with all its charts drawn."""
    shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    shown.goto(address)
    shown.evaluate("fedcohort.ready")
    return shown


def figure_of_accuracy(story: Story) -> None:
    """Accuracy over rounds in the size of one column, two pixels per point."""
    look = paper(1)
    figure = next(figure for figure in figures(story, look) if figure.key == "accuracy")
    (DOCS / "figure-accuracy.png").write_bytes(converted(drawn_to_width(figure, figure.views[0], look), "png", 2))


def pictures_of_results() -> None:
    """The map of the atlas, and the panels of the diagnoses, from the results that are kept."""
    look = paper(2)
    drawn = {}
    if "atlas" in names():
        drawn["atlas-map.svg"] = heat_map(Findings(read("atlas")["result"]), "accuracy", look)
    if "diagnoses" in names():
        drawn["diagnoses.svg"] = score_panels(read("diagnoses")["result"], look)
    for name, figure in drawn.items():
        (DOCS / name).write_text(drawn_to_width(figure, figure.views[0], look), encoding="utf-8")


if __name__ == "__main__":
    main()
