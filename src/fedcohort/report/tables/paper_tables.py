"""Tables of comparisons as files: LaTeX for papers, in the style of booktabs, and CSV."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcohort.core.files.durable_files import write_named_file
from fedcohort.core.files.paths import check_target
from fedcohort.core.words import formatted_values
from fedcohort.core.words.score_style import ScoreStyle
from fedcohort.report.notes.comparison_notes import (
    about_clients,
    about_error,
    about_federations,
    about_personal,
)
from fedcohort.report.notes.failed_training import about_judged
from fedcohort.report.notes.own_versions import about_own_versions
from fedcohort.report.notes.seed_notes import over_seeds
from fedcohort.report.notes.unranked_rows import about_different_seeds, about_planned
from fedcohort.report.notes.worst_clients import in_comparison
from fedcohort.report.tables.compared_rows import compared_rows
from fedcohort.study.comparison import Comparison
from fedcohort.study.targets import about_cost_marks, shown_cost
from fedcohort.study.verdicts import about_cut, with_intervals

__all__ = ["escaped", "measured_columns", "to_csv", "to_latex"]

_CHARACTERS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    '"': "''", "[": "{[}", "]": "{]}", "–": "--", "—": "---", "…": r"\ldots{}", "“": "``", "”": "''",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "∞": r"$\infty$", "≤": r"$\le$", "≥": r"$\ge$",
    "→": r"$\to$", "√": r"$\surd$", "²": "$^2$",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "η": r"$\eta$",
    "θ": r"$\theta$", "κ": r"$\kappa$", "λ": r"$\lambda$", "μ": r"$\mu$", "π": r"$\pi$", "ρ": r"$\rho$", "σ": r"$\sigma$",
    "τ": r"$\tau$", "φ": r"$\varphi$", "ω": r"$\omega$",
}  # fmt: skip
"""Characters that LaTeX does not print as they are, and what prints them with pdfLaTeX and its default fonts."""


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; line breaks become spaces, and straight quotation marks closing ones. LaTeX has no control
    characters, and they are left out.

    >>> print(escaped("50% of k_max"))
    50\\% of k\\_max
    """
    line = " ".join(text.split())
    return "".join(_CHARACTERS.get(letter, letter) for letter in line if unicodedata.category(letter) != "Cc")


def to_csv(compared: Comparison, file: str | Path | None = None) -> str:
    """The table of a comparison as CSV; see :meth:`fedcohort.Comparison.to_csv`."""
    table = compared.table.map(lambda value: as_text(value) if isinstance(value, str) else value)
    return _written(table.to_csv(index=False, lineterminator="\n"), file)


def as_text(text: str) -> str:
    """A text that spreadsheets show as it is: with an apostrophe before it, if they would take it for a formula.

    >>> as_text("=1+1"), as_text("UCB")
    ("'=1+1", 'UCB')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def to_latex(compared: Comparison, file: str | Path | None = None) -> str:
    """The table of a comparison for a paper; see :meth:`fedcohort.Comparison.to_latex`."""
    table = compared_rows(compared)
    records = [table[i] for i in compared.in_groups]
    columns = _columns(compared, records)
    lines = [" & ".join(cells) for cells in zip(*(cells for _, _, cells in columns), strict=True)]
    text = "\n".join(
        [
            r"% \usepackage{booktabs,graphicx}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_caption(compared, records)}}}",
            rf"  \label{{tab:{_key(compared.name)}}}",
            r"  \footnotesize\setlength{\tabcolsep}{4pt}",
            rf"  \sbox0{{\begin{{tabular}}{{{''.join(align for _, align, _ in columns)}}}",
            r"    \toprule",
            f"    {' & '.join(heading for heading, _, _ in columns)} \\\\",
            r"    \midrule",
            *(f"    {line} \\\\" for line in lines),
            r"    \bottomrule",
            r"  \end{tabular}}",
            r"  \ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
            r"\end{table}",
            "",
        ]
    )
    return _written(text, file)


Column = tuple[str, str, list[str]]
"""Heading, alignment and cells of a column."""


def measured_columns(compared: Comparison, rows: Sequence[Mapping[str, object]]) -> list[Column]:
    """The columns of what only some experiments measure: accuracies of clients and of personal models, and own measures."""
    score, worst = compared.score, in_comparison(compared)
    own = [_own_measure(name, rows) for name in compared.own_measures]
    return [*_client_columns(rows, score, worst), *_personal_columns(rows, score, worst), *own]


def _client_columns(rows: Sequence[Mapping[str, Any]], score: ScoreStyle, worst: str) -> list[Column]:
    """The accuracy on the clients' own samples, if it was measured."""
    if not _measured(rows, "client_accuracy"):
        return []
    means = [score.spread(row["client_accuracy"], row["client_accuracy_sd"]) for row in rows]
    return [
        ("Over clients", "r", means),
        (worst.capitalize(), "r", [score.value(row["worst_client_accuracy"]) for row in rows]),
    ]


def _measured(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(math.isfinite(row[name]) for row in rows)


def _personal_columns(rows: Sequence[Mapping[str, Any]], score: ScoreStyle, worst: str) -> list[Column]:
    """The accuracy of personal models, if it was measured."""
    if not _measured(rows, "personal_accuracy"):
        return []
    headings = {
        "Personal (%)" if score.unit else "Personal": "personal_accuracy",
        f"Personal, {worst}" if _measured(rows, "client_accuracy") else worst.capitalize(): "worst_personal_accuracy",
    }
    return [(text, "r", [score.value(row[name]) for row in rows]) for text, name in headings.items()]


def _columns(compared: Comparison, rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns of a paper's table."""
    score, several = compared.score, len({row["algorithm"] for row in rows}) > 1
    columns: list[Column] = [("Strategy", "l", [row["label"] for row in rows])]
    if several:
        columns.append(("Algorithm", "l", [row["algorithm"] for row in rows]))
    columns.append(_score(rows, score))
    if rows[1:]:
        columns.append(
            (f"Difference{' [95% CI]' * with_intervals(rows)}", "r", [_difference(row, score) for row in rows])
        )
        columns.append(("Verdict, p", "l", [formatted_values.verdict(row["verdict"], row["p_holm"]) for row in rows]))
    columns += measured_columns(compared, rows)
    columns += _costs(rows, compared.goal, score)
    return [(_with_p(escaped(heading)), align, [escaped(cell) for cell in cells]) for heading, align, cells in columns]


def _costs(rows: Sequence[Mapping[str, Any]], goal: str, score: ScoreStyle) -> list[Column]:
    targets = [score.value(row["target_accuracy"]) for row in rows]
    return [
        *([("Target", "r", targets)] if len(set(targets)) > 1 else []),
        (
            f"Rounds to {goal}",
            "r",
            [
                formatted_values.rounds(shown_cost(row, "rounds_to_target"), row["reached"], row["seeds"])
                for row in rows
            ],
        ),
        ("Jain", "r", [formatted_values.index(row["jain"]) for row in rows]),
        ("Bytes", "r", [formatted_values.size(row["bytes"]) for row in rows]),
    ]


def _score(rows: Sequence[Mapping[str, object]], score: ScoreStyle) -> Column:
    """The column of the score."""
    heading = f"{score.title} (%)" if score.unit else score.title
    return heading, "r", score.means(rows)


def _own_measure(name: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    """The column of an own measure."""
    return name, "r", [formatted_values.number_spread(row[name], row[f"{name}_sd"]) for row in rows]


def _with_p(heading: str) -> str:
    return heading.replace("Verdict, p", "Verdict, $p$")


def _difference(row: Mapping[str, Any], score: ScoreStyle) -> str:
    if row["reference"] == row["label"]:
        return "–"
    return score.difference(row["difference"], row["difference_low"], row["difference_high"])


def _caption(compared: Comparison, rows: Sequence[Mapping[str, Any]]) -> str:
    """What the table shows, and how its intervals and p-values are made."""
    seeds, score, comparisons = compared.seeds, compared.score, compared.comparisons
    several = over_seeds(seeds, (row["seeds"] for row in rows))
    over = f"seed {seeds[0]}" if len(seeds) == 1 else f"mean and standard deviation {several}"
    sentences = [f"{compared.name}: test {score.name} {compared.when}, {over}."]
    if rows[1:]:
        references = list(dict.fromkeys(row["reference"] for row in rows))
        first = references[0] if len(references) == 1 else "the reference with the same settings"
        sentences.append(
            f"Difference to {first}:{f'{score.points},' if score.points else ''} paired over seeds{_about_interval(rows)}."
        )
    if any(math.isfinite(row["p_holm"]) for row in rows):
        corrected = f", p corrected by Holm for {comparisons} comparisons" if comparisons > 1 else ""
        sentences.append(f"Verdict: two-sided permutation test of the paired differences{corrected}.")
    about_targets = compared.about_targets if rows and not math.isnan(compared.targets[0].accuracy) else ""
    notes = [
        about_clients(compared, rows),
        about_personal(compared, rows),
        about_error(compared.own_measures, score),
        about_different_seeds(compared),
        about_federations(compared),
        about_planned(compared),
        about_own_versions(compared),
        about_judged(compared),
        *(f"{found.about}{found.text}." for found in compared.health if found.kind == "equal rows"),
        about_targets + about_cost_marks(rows),
        compared.note,
        compared.about_counted,
    ]
    return escaped(" ".join(filter(None, [*sentences, *notes])))


def _about_interval(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the intervals of differences are, or why there are none, after a comma or a semicolon; empty without differences."""
    if with_intervals(rows):
        return f", with a 95% interval (Student's t){about_cut(rows)}"
    one_seed = any(row["paired_seeds"] == 1 for row in rows if row["reference"] != row["label"])
    return "; one seed gives no interval" if one_seed else ""


def _key(name: str) -> str:
    """A name for ``\\label``: letters and digits, with hyphens between words."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "comparison"


def _written(text: str, file: str | Path | None) -> str:
    """``text``, after writing it to ``file`` if one is given.

    Raises:
        UsageError: the file cannot be written.
    """
    if file is not None:
        check_target(file, "file =")
        write_named_file(file, text, str(file))
    return text
