"""Links between the pages lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, read


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", without_code(read(page)), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        found.add(words if words not in found else f"{words}-1")
    return found


def without_code(text: str) -> str:
    """A page without its fenced blocks, in which # and [ ] mean something else."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(read(page))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}: there is no such file"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}: there is no such heading"
