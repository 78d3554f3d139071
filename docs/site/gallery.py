"""The gallery: every chart of the quickstart comparison, as ``fedcohort figures`` writes it for a paper."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from navigation import CLONE

import fedcohort
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import paper
from fedcohort.report.page_sections import figures

__all__ = ["LARGE", "captions", "gallery_page"]

LARGE = "full-size"
"""The folder with figures that fill the window, from which Sphinx copies them as they are."""

QUICKSTART = CLONE / "experiments" / "quickstart.toml"
INTRODUCTION = (
    "Every chart that FedCohort draws about the quickstart comparison: three strategies, twelve clients, three seeds. The figures "
    "have the width of one column of a paper. A click on a figure opens it in full size. These commands make them:"
)
COMMANDS = """
```console
$ fedcohort compare experiments/quickstart.toml --set measures.clients_every=1 --runs gallery
$ fedcohort figures --runs gallery --format svg
```
""".strip()


def gallery_page(runs: Path, source: Path) -> str:
    """Write the figures below ``source``, and return the page that shows them.

    Args:
        runs: folder of run directories; missing runs of the quickstart are played there.
        source: folder of the site's pages.
    """
    experiment = fedcohort.load_experiment(QUICKSTART, ["measures.clients_every=1"])
    comparison = fedcohort.compare(experiment, runs=runs)
    files = [path.name for path in comparison.figures(source / "gallery", suffix="svg")]
    for name in files:
        _write_large(source / "gallery" / name, source / LARGE / "figures" / name)
    story = gather([run for row in comparison.rows for run in row.runs.values()], experiment.name)
    parts = [
        "# Gallery of figures",
        INTRODUCTION,
        COMMANDS,
        "[Write reports and figures](report.md#export-figures-for-a-paper) explains the options.",
    ]
    left = set(files)
    for figure in figures(story, paper(1)):
        own = [name for name in files if name in left and re.fullmatch(rf"{re.escape(figure.key)}(-.*)?\.svg", name)]
        left -= set(own)
        if own:
            pictures = [
                f'<a href="figures/{name}">![{figure.title}: {Path(name).stem}](gallery/{name})</a>' for name in own
            ]
            parts += [
                f"## {figure.title}",
                *captions(figure.note, {view.name: view.note for view in figure.views}),
                f"Files: {', '.join(f'`{name}`' for name in own)}.",
                " ".join(pictures),
            ]
    if left:
        raise SystemExit(f"figures without a place in the gallery: {sorted(left)}")
    return "\n\n".join(parts)


def captions(note: str, of_views: Mapping[str, str]) -> list[str]:
    """The paragraphs about a figure. What is true of several of its views is said once, and the rest of each in a list.

    Args:
        note: the caption of the figure.
        of_views: the caption of each view, by its name.
    """
    sentences = {name: re.split(r"(?<=[.)]) (?=[A-Z])", about) for name, about in of_views.items() if about}
    times = Counter(sentence for about in sentences.values() for sentence in about)
    shared = [sentence for sentence, often in times.items() if often > 1]
    lines = []
    for name, about in sentences.items():
        if own := " ".join(sentence for sentence in about if sentence not in shared):
            lines.append(
                f"- {name[0].upper()}{name[1:]}: {own[0].lower() if own.startswith('A ') else own[0]}{own[1:]}"
            )
    return [part for part in (" ".join([note, *shared]).strip(), "\n".join(lines)) if part]


def _write_large(drawing: Path, target: Path) -> None:
    """Write a drawing without a size of its own, so that it fills the window of a browser."""
    text = re.sub(r'(<svg [^>]*?)width="[0-9.]+" height="[0-9.]+"', r"\1", drawing.read_text(encoding="utf-8"), count=1)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
