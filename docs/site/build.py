"""Build the site: ``make site``, or ``python docs/site/build.py``.

The pages under ``docs`` are copied to a folder, in which links lead to pages of the site, and pages made from the code are added.
Sphinx turns this folder into HTML. A warning of Sphinx, such as a link to nothing, an error in a notebook, and a public name without
documentation end the build with an error.
"""

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from command_pages import command_pages, experiment_schema
from entry_pages import entry_pages, without_entries
from formulas import typeset
from gallery import LARGE, gallery_page
from links import in_both_themes, relink
from navigation import CLONE, DOCS, PARTS, handwritten
from picks import pictures
from public_names import ENTRIES, api_pages, undocumented
from search_texts import write_search_texts

__all__ = ["assemble", "made_pages", "main"]

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Assemble the pages, and let Sphinx build them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=CLONE / "build" / "site", help="folder of the site")
    parser.add_argument(
        "--work", type=Path, default=CLONE / "build" / "site-work", help="folder of what is kept between builds"
    )
    given = parser.parse_args()
    start = time.monotonic()
    if missing := undocumented():
        raise SystemExit(f"{len(missing)} public names without documentation: {', '.join(missing)}")
    source = given.work / "source"
    runs = given.work / "runs"
    assemble(source, pictures(runs), runs)
    print(f"pages and pictures: {time.monotonic() - start:.0f} s")
    build(source, given.out, given.work)
    write_search_texts(given.out)
    print(f"{given.out / 'index.html'}: {time.monotonic() - start:.0f} s")


def build(source: Path, out: Path, work: Path) -> None:
    """Run Sphinx in strict mode."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "html",
        "-c",
        str(HERE),
        "-d",
        str(work / "doctrees"),
        "-W",
        "--keep-going",
        "-q",
    ]
    large = source / LARGE
    large.mkdir(parents=True, exist_ok=True)  # figures in full size, which Sphinx copies as they are
    settings = {"nb_execution_cache_path": work / "notebooks", "html_extra_path": large}
    command += [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    command += [str(source), str(out)]
    path = os.pathsep.join([str(CLONE / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    if subprocess.run(command, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100"}).returncode:
        raise SystemExit("the site was not built: see the warnings above")


def made_pages() -> dict[str, str]:
    """The pages that are made from the code without playing runs, by their names on the site."""
    return {
        **api_pages(),
        **command_pages(),
        **{name: _overview(name) for name in ("how-to", "reference", "explanation", "project")},
    }


def assemble(source: Path, drawn: dict[str, str], runs: Path | None) -> None:
    """Write all pages to a folder. Pages that did not change keep their time, so that Sphinx reads only the others.

    Args:
        source: the folder; pages in it that are not of the site are removed.
        drawn: the pictures of strategies and algorithms in HTML, by name.
        runs: folder of run directories for the gallery; None leaves it out.
    """
    pages = {**pages_by_hand(), **made_pages(), **entry_pages(drawn)}
    source.mkdir(parents=True, exist_ok=True)
    pages["gallery"] = gallery_page(runs, source) if runs else "# Gallery of figures\n\nThis build has no figures."
    written = {source / f"{name}.md" for name in pages}
    for name, text in pages.items():
        write(source / f"{name}.md", text.rstrip() + _toctrees(name) + "\n")
    for old in set(source.rglob("*.md")) - written:
        old.unlink()
    for picture in [*DOCS.glob("*.png"), *DOCS.glob("*.svg"), *DOCS.glob("tutorials/*.png")]:
        target = source / picture.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, target)
    write(source / "experiment.schema.json", experiment_schema())


def write(file: Path, text: str) -> None:
    """Write a file if its text changes."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def pages_by_hand() -> dict[str, str]:
    """The pages of the repository with the links of the site, by their names on the site."""
    names = handwritten()
    entries = {name: entry.page for name, entry in ENTRIES.items()}
    pages = {}
    for file, name in names.items():
        text = (CLONE / file).read_text(encoding="utf-8")
        if file == "docs/strategies.md":
            text = typeset(without_entries(text))
        pages[name] = in_both_themes(relink(text, file, names, entries), (DOCS / name).parent)
    pages["tutorials/index"] = _overview("tutorials/index")
    return pages


def _overview(page: str) -> str:
    """The first page of a part, which lists its pages with their first sentences."""
    part = next(part for part in PARTS if part.page == page)
    names, folder = handwritten(), posixpath.dirname(page)
    lines = [f"# {part.title}", "", f"{INTRODUCTIONS[page]}", ""]
    for file in part.files:
        title, sentence = heading_and_sentence((CLONE / file).read_text(encoding="utf-8"))
        lines.append(f"- [{title}]({posixpath.relpath(names[file], folder or '.')}.md): {sentence}")
    lines += [f"- {MADE[name]}" for name in part.made]
    return "\n".join(lines)


INTRODUCTIONS = {
    "tutorials/index": "Learn FedCohort step by step. Each tutorial is a notebook whose output on these pages was made when the site "
    "was built. Start with the first; it needs no knowledge of federated learning.",
    "how-to": "Solve a task. Each guide shows what to write and how to read the result.",
    "reference": "Look up keys, options, formulas and functions.",
    "explanation": "Understand how FedCohort works, and why its comparisons can be trusted.",
    "project": "Take part in the project.",
}
MADE = {
    "api/index": "[Python reference](api/index.md): every public class and function.",
    "commands": "[Command line](commands.md): every command and option.",
    "json": "[JSON schemas](json.md): experiment files, and the output of commands.",
    "gallery": "[Gallery of figures](gallery.md): every chart, with the command that makes it.",
    "glossary": "[Glossary](glossary.md): the terms of these pages.",
}


def heading_and_sentence(text: str) -> tuple[str, str]:
    """The title of a page, and the first sentence after it, without links."""
    body = re.sub(r"^---\n.*?\n---\n", "", text, flags=re.DOTALL)
    match = re.search(r"^# (.+?)\n+(?!#)([^\n].*?)(?:\n\n|\Z)", body, re.DOTALL | re.MULTILINE)
    assert match is not None, body[:80]
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(match[2].split())).replace("**", "")
    return match[1].strip(), re.split(r"(?<=[.:]) ", words)[0].rstrip(":.") + "."


def _toctrees(name: str) -> str:
    """The hidden tables of contents of a page that has pages below it."""
    if name == "index":
        return _toctree([*(part.page for part in PARTS[:4]), "glossary", PARTS[4].page])
    names = handwritten()
    for part in PARTS:
        if part.page == name:
            below = [names[file] for file in part.files] + [made for made in part.made if made != "glossary"]
            return _toctree([posixpath.relpath(page, posixpath.dirname(name) or ".") for page in below])
    if name == "strategies":
        kinds = [
            [f"{entry.page}" for entry in ENTRIES.values() if entry.kind == kind] for kind in ("strategy", "algorithm")
        ]
        return _toctree(kinds[0], "Strategies") + _toctree(kinds[1], "Algorithms")
    if name == "decisions/index":
        return _toctree(sorted(posixpath.basename(page) for page in names.values() if page.startswith("decisions/0")))
    if name == "json":
        return _toctree(sorted(page for page in names.values() if page.startswith("schemas/")))
    return ""


def _toctree(pages: list[str], caption: str = "") -> str:
    if not pages:
        return ""
    lines = ["", "", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
