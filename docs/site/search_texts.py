"""Write the texts of all pages into a script, from which the search of the site takes its excerpts."""

import json
import re
from html import unescape
from pathlib import Path

__all__ = ["text_of", "write_search_texts"]

ARTICLE = re.compile(r'<article role="main"[^>]*>(.*?)</article>', re.DOTALL)
LEFT_OUT = re.compile(r'<(script|style|svg)\b.*?</\1>|<a class="headerlink".*?</a>|<h1>.*?</h1>', re.DOTALL)
NOT_FOUND = ("genindex", "py-modindex", "search")
"""Pages that the search does not find."""


def text_of(html: str) -> str:
    """The words of a page without its title, its menus and its pictures."""
    article = ARTICLE.search(html)
    words = re.sub(r"<[^>]+>", " ", LEFT_OUT.sub(" ", article[1])) if article else ""
    return re.sub(r"\s+([.,;:!?)])", r"\1", re.sub(r"\s+", " ", unescape(words))).strip()


def write_search_texts(site: Path) -> None:
    """Write ``search-texts.js`` into the folder of a site."""
    pages = {file.relative_to(site).with_suffix("").as_posix(): file for file in sorted(site.rglob("*.html"))}
    texts = {name: text_of(file.read_text(encoding="utf-8")) for name, file in pages.items() if name not in NOT_FOUND}
    script = f"window.searchTexts = {json.dumps({name: text for name, text in texts.items() if text}, ensure_ascii=False)};\n"
    (site / "search-texts.js").write_text(script, encoding="utf-8")
