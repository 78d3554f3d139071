"""Links of the repository's pages, turned into links of the site."""

import posixpath
import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from navigation import CLONE, REPOSITORY

__all__ = ["BrokenLinkError", "in_both_themes", "relink"]

LINK = re.compile(r"(\]\(|<img src=\")([^)\s\"]+)(?=[)\"\s])")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\.png\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
PICTURES = (".png", ".svg", ".gif", ".jpg")


class BrokenLinkError(Exception):
    """A link to a file that does not exist."""


def relink(text: str, file: str, names: Mapping[str, str], entries: Mapping[str, str]) -> str:
    """The text of a page with links that work on the site.

    Links to pages of the site lead to these, links to other files to the repository. A link to a heading of the page of strategies
    leads to the page of its strategy or algorithm.

    Args:
        text: the page in Markdown. Code blocks are left as they are.
        file: its path in the repository.
        names: name on the site of each page, by its path in the repository.
        entries: name on the site of the page of each strategy and algorithm, by the heading on ``docs/strategies.md``.

    Raises:
        BrokenLinkError: a link leads to a file that does not exist.
    """

    def link(match: re.Match[str]) -> str:
        return match[1] + _target(match[2], file, names, entries)

    return _outside_of_code(text, lambda part: LINK.sub(link, part))


def in_both_themes(text: str, folder: Path) -> str:
    """The text of a page with two pictures in place of each one that has a dark twin, ``name-dark.png`` beside ``name.png``: the
    theme shows one of them.

    Args:
        text: the page in Markdown. Code blocks are left as they are.
        folder: the folder of the pictures.
    """

    def both(match: re.Match[str]) -> str:
        dark = f"{match[2]}-dark.png"
        if not (folder / dark).exists():
            return match[0]
        shown = {"only-light": f"{match[2]}.png", "only-dark": dark}
        return "".join(f'<img src="{name}" alt="{escape(match[1])}" class="{theme}">' for theme, name in shown.items())

    return _outside_of_code(text, lambda part: PICTURE.sub(both, part))


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _target(target: str, file: str, names: Mapping[str, str], entries: Mapping[str, str]) -> str:
    if re.match(r"[a-z]+:", target):
        return target
    path, _, anchor = target.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file
    here = posixpath.dirname(names[file]) or "."
    if found == "docs/strategies.md" and anchor in entries:
        return posixpath.relpath(entries[anchor], here) + ".md"
    if not path:
        return target
    if found == "README.md":
        found = "docs/index.md"
    if not Path(CLONE, found).exists():
        raise BrokenLinkError(f"{file}: {target}: there is no such file")
    if found in names:
        return posixpath.relpath(names[found], here) + ".md" + (f"#{anchor}" if anchor else "")
    if found.endswith(PICTURES):
        return posixpath.relpath(found.removeprefix("docs/"), here)
    kind = "tree" if (CLONE / found).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{found}" + (f"#{anchor}" if anchor else "")
