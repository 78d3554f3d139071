"""The metadata of the built package: the description on its page has links that work outside of the repository."""

import re
import tomllib
from typing import Any

import pytest

from tests.docs.pages import ROOT, read

hatchling = pytest.importorskip("hatchling.metadata.core", reason="hatchling builds the package")
pytest.importorskip("hatch_fancy_pypi_readme", reason="the plug-in of hatchling is not installed")


@pytest.fixture(scope="module")
def metadata() -> Any:
    """The metadata as hatchling writes it into the package."""
    from hatchling.plugin.manager import PluginManager

    return hatchling.ProjectMetadata(str(ROOT), PluginManager()).core


def repository() -> str:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    return str(project["urls"]["Homepage"])


def test_every_link_of_the_package_page_has_an_address(metadata: Any) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", metadata.readme)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_links_lead_to_the_files_of_the_repository(metadata: Any) -> None:
    written = [target for target in re.findall(r"\]\(([^)\s]+)\)", read(ROOT / "README.md")) if "://" not in target]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", read(ROOT / "README.md"))
    raw = repository().replace("https://github.com", "https://raw.githubusercontent.com")
    for target in written:
        if target.startswith("#"):
            continue
        assert (ROOT / target.partition("#")[0]).exists()
        address = f"{raw}/main/{target}" if target in pictures else f"{repository()}/blob/main/{target}"
        assert f"]({address})" in metadata.readme


def test_nothing_but_links_is_changed(metadata: Any) -> None:
    """In particular not the code of the page."""
    without = re.compile(r"\]\([^)\s]*\)")
    assert without.sub("](…)", metadata.readme) == without.sub("](…)", read(ROOT / "README.md"))
    assert metadata.readme_content_type == "text/markdown"


def test_the_metadata_names_authors_addresses_and_systems(metadata: Any) -> None:
    assert metadata.authors
    assert set(metadata.urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert all(address.startswith(repository()) for address in metadata.urls.values())
    for system in ("MacOS", "Microsoft :: Windows", "POSIX :: Linux"):
        assert f"Operating System :: {system}" in metadata.classifiers
