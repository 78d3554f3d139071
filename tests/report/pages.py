"""What a report's page says, read back from its HTML without a browser."""

import json
from html.parser import HTMLParser
from typing import Any

from fedcohort.report.data.report_data import Story
from fedcohort.report.figures.figure import Figure
from fedcohort.report.headline.headline import answers

__all__ = ["Page", "caption"]


def _refused(constant: str) -> None:
    """Browsers read no NaN and no infinite numbers: a page with one would have no charts."""
    raise ValueError(f"{constant} is no JSON")


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        cells: the numbers behind the cells of each table, by row and field.
        texts: what the same cells show.
        payload: what the charts draw.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.cells: dict[str, list[dict[str, str]]] = {}
        self.texts: dict[str, list[dict[str, str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.payload: dict[str, Any] = {}
        self._table, self._field, self._payload = "", "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._payload = found.get("id") == "payload"
        if tag == "table":
            self._table = found.get("id") or ""
            self.cells[self._table], self.texts[self._table] = [], []
        if tag == "tr" and "data-strategy" in found:
            self.cells[self._table].append({"strategy": found["data-strategy"] or ""})
            self.texts[self._table].append({"strategy": found["data-strategy"] or ""})
        if "data-kind" in found:
            self.cells[self._table][-1]["kind"] = found["data-kind"] or ""
        if "data-field" in found:
            self._field = found["data-field"] or ""
            self.cells[self._table][-1][self._field] = found.get("data-value") or ""
            self.texts[self._table][-1][self._field] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._field:
            row = self.texts[self._table][-1]
            row |= {field: " ".join(text.split()) for field, text in row.items()}
            self._field = ""

    def handle_data(self, data: str) -> None:
        if self._field:
            self.texts[self._table][-1][self._field] += data
        if self._payload and data.strip():
            self.payload = json.loads(data, parse_constant=_refused)
            for name, columns in self.payload["data"].items():
                rows = zip(*columns.values(), strict=True)
                self.payload["data"][name] = [dict(zip(columns, row, strict=True)) for row in rows]
            self._payload = False
        elif self.tags and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)

    @property
    def prose(self) -> str:
        """All words that are shown."""
        return " ".join(" ".join(self.words).split())

    def row(self, table: str, strategy: str) -> dict[str, str]:
        """The numbers of one row."""
        return next(row for row in self.cells[table] if row["strategy"] == strategy)


def caption(figure: Figure) -> str:
    """What the caption says about the figure and all its views."""
    return " ".join([figure.note, *(view.note for view in figure.views if view.note)])


def headline(story: Story) -> list[str]:
    """All sentences of the answers at the head of a page, about the first point of a sweep."""
    return [sentence for _, sentences in answers(story)[0].answers for sentence in sentences]
