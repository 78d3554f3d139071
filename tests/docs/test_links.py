"""Links between the pages lead to existing files and headings."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, read


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub generates them."""
    names: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", without_code(read(page)), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        names.add(words if words not in names else f"{words}-1")
    return names


def without_code(text: str) -> str:
    """A page without its fenced blocks, in which # and [ ] have other meanings."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_and_headings_are_valid(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(read(page))):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}: there is no such file"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}: there is no such heading"


def test_files_that_a_page_names_with_their_folder_are_in_it() -> None:
    """The folder alone existed still after its files had moved to another one."""
    named = 0
    for page in PAGES:
        for files, folder in re.findall(
            r"see ((?:`\w+\.py`[,\s]*(?:and\s+)?)+)\s*in\s+\[[^\]]*\]\(([^)#]+)\)", read(page)
        ):
            for file in re.findall(r"\w+\.py", files):
                named += 1
                assert (page.parent / folder / file).is_file(), f"{page.name}: no {file} in {folder}"
    assert named >= 8
