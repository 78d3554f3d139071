"""The pages of the documentation, and the fenced blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "blocks", "read"]

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(?:\{code-cell\} )?(\w*)\n((?:^:\w+:[^\n]*\n+)*)(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page that its text starts in.

    A block whose first line is ``# some/file.ext`` is the content of that file. A cell of a notebook (``{code-cell} python``) is a
    block like any other, without its options. Lines of commands that end with a backslash are joined with the next one.
    """

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is the content of."""
        match = re.match(r"# ([\w./-]+\.\w+)\n", self.text)
        return match[1] if match else None


def read(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = read(page)
    return [
        Block(
            match[1], _joined(match[3]) if match[1] == "console" else match[3], text.count("\n", 0, match.start(3)) + 1
        )
        for match in _FENCE.finditer(text)
    ]


def _joined(commands: str) -> str:
    return re.sub(r" \\\n +", " ", commands)
