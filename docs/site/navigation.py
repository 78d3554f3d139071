"""The parts of the site, and the pages of the repository that they consist of."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CLONE", "DOCS", "HOME", "PARTS", "REPOSITORY", "Part", "handwritten"]

DOCS = Path(__file__).resolve().parents[1]
CLONE = DOCS.parent
REPOSITORY = "https://github.com/fedcohort/fedcohort"
HOME = "docs/index.md"


@dataclass(frozen=True)
class Part:
    """A part of the site: its title, its page, and the files of its other pages.

    Attributes:
        title: heading of the part in the navigation.
        page: name of its first page on the site, which lists the others.
        files: pages written by hand, as paths in the repository, in reading order.
        made: names of further pages on the site, which are made from the code.
    """

    title: str
    page: str
    files: tuple[str, ...]
    made: tuple[str, ...] = ()


PARTS = (
    Part(
        "Tutorials",
        "tutorials/index",
        (
            "docs/tutorials/first-comparison.md",
            "docs/tutorials/my-data.md",
            "docs/tutorials/my-strategy.md",
            "docs/tutorials/flower.md",
            "docs/tutorials/paper-table.md",
        ),
    ),
    Part(
        "How-to guides",
        "how-to",
        (
            "docs/installation.md",
            "docs/compare-strategies.md",
            "docs/race.md",
            "docs/advise.md",
            "docs/why.md",
            "docs/report.md",
            "docs/notebooks.md",
            "docs/own-data.md",
            "docs/heterogeneity.md",
            "docs/sequences.md",
            "docs/regression.md",
            "docs/write-a-strategy.md",
            "docs/algorithms.md",
            "docs/own-server.md",
            "docs/flower.md",
            "docs/deployment.md",
            "docs/cluster.md",
            "docs/json-output.md",
        ),
    ),
    Part(
        "Reference",
        "reference",
        ("docs/experiment-file.md", "docs/strategies.md", "docs/stability.md", "docs/security.md", "CHANGELOG.md"),
        ("api/index", "commands", "json", "gallery"),
    ),
    Part(
        "Explanation",
        "explanation",
        (
            "docs/honest-comparisons.md",
            "docs/randomness.md",
            "docs/clocks.md",
            "docs/design.md",
            "docs/decisions/README.md",
            "docs/results.md",
            "docs/atlas.md",
            "docs/diagnoses.md",
            "docs/performance.md",
            "docs/reliability.md",
        ),
        ("glossary",),
    ),
    Part("Project", "project", ("CONTRIBUTING.md", "docs/releasing.md", "SECURITY.md")),
)
"""All parts of the site. Decision records are below their overview, strategies and algorithms below ``strategies``."""


def handwritten() -> dict[str, str]:
    """The name on the site of every page that is written by hand, by its path in the repository."""
    files = [HOME, "docs/glossary.md", *(file for part in PARTS for file in part.files)]
    files += sorted(path.relative_to(CLONE).as_posix() for path in DOCS.glob("decisions/[0-9]*.md"))
    files += sorted(path.relative_to(CLONE).as_posix() for path in DOCS.glob("schemas/*.md"))
    return {file: _name(file) for file in files}


def _name(file: str) -> str:
    name = file.removeprefix("docs/").removesuffix(".md")
    if name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        return {"SECURITY": "report-a-vulnerability"}.get(name, name.lower())
    return name.replace("decisions/README", "decisions/index")
