"""Take absolute paths out of a page: the live page says nothing about the folders of the machine."""

import html
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import markupsafe
from jinja2.utils import htmlsafe_json_dumps

__all__ = ["without_paths"]

_PATHS = re.compile(
    r'''"((?:[/~]|[A-Za-z]:[\\/]|\\\\)(?:[^"\\\n]|\\.)+)"'''  # a whole string of a description, also with spaces
    r"""|(?<![\w.:/\\…-])((?:~?/|[A-Za-z]:\\)[^\s"'<>/\\]+[/\\][^\s"'<>]+)"""  # a path in a sentence, of at least two parts
)


def without_paths(text: str, sources: Iterable[str], folders: Iterable[Path] = ()) -> str:
    """``text`` with absolute paths replaced by ``…/`` and their last part.

    Args:
        text: a page or a message.
        sources: texts whose absolute paths are looked for in ``text``, such as descriptions of runs.
        folders: further paths to replace; relative paths are made absolute.
    """
    found = {str(form) for folder in folders for form in (folder.absolute(), folder.resolve())}
    for source in sources:
        found |= {quoted or bare for quoted, bare in _PATHS.findall(source)}
    for path in sorted(found, key=lambda path: (-len(path), path)):
        last = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
        if not last:
            continue
        for form, short in _forms(path, f"…/{last}").items():
            text = re.sub(rf"(?<![\w.…/-]){re.escape(form)}", short.replace("\\", r"\\"), text)
    return text


def _forms(path: str, short: str) -> dict[str, str]:
    """How a path stands in a page, and what replaces it there: a name in it may be markup, and must stay escaped as it was."""
    ways: list[Callable[[str], str]] = [
        str,
        html.escape,
        lambda part: str(markupsafe.escape(part)),
        lambda part: json.dumps(part)[1:-1],
        lambda part: json.dumps(part, ensure_ascii=False)[1:-1],
        lambda part: str(htmlsafe_json_dumps(part))[1:-1],
    ]
    return {written(path): written(short) for written in reversed(ways)}
