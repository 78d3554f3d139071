"""Print the diagnosis of the decisions of runs."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from fedcohort.core.words.formatted_values import count, counted, percent, share
from fedcohort.core.words.score_style import score_style
from fedcohort.record import KEPT
from fedcohort.report.terminal.layout import WIDE, Column, about_hidden, dimmed, fitting_table, label_width
from fedcohort.study.decisions.diagnose_run import MANY, SCORE

if TYPE_CHECKING:
    from fedcohort.study.decisions.diagnose_run import Correlation, Diagnosis

__all__ = ["diagnoses", "diagnosis"]


def diagnosis(found: "Diagnosis", width: int = WIDE) -> Group:
    """The shares and the correlations of a run, and notes on how to read them."""
    names = _names([found])
    parts: list[RenderableType] = [
        Text.assemble((found.label, "bold"), f", seed {found.seed}: {counted(found.rounds, 'round')}"),
        "",
    ]
    if found.scored_rounds:
        parts.append(
            Text(
                f"In {counted(found.scored_rounds, 'round')} with scores, {share(found.greedy)} of the selected clients with a score "
                f"have the highest predictions; uniform selection would give {share(found.chance)}. Exploration: "
                f"{share(found.exploration)}."
            )
        )
        parts.append(Text(f"Prediction: {_about_prediction(found.prediction)}."))
        if found.unscored > 0:
            parts.append(
                Text(
                    f"{share(found.unscored)} of all selections are of clients without a score, which these shares and correlations "
                    "leave out: the strategy explores more than they say."
                )
            )
    elif not found.cut_rounds:
        parts.append(Text("The strategy gives no scores that choose between clients."))
    if found.cut_rounds:
        parts.append(Text(f"{counted(found.cut_rounds, 'round')} with scores: {UNKNOWN_CHOICE}"))
    parts.append(Text(f"Clients that were selected for the first time: {share(found.new)} of all selections."))
    if found.scored_rounds and all(each.outcome == GAIN for each in found.correlations):
        reported = "Rank correlations within rounds, with what the selected clients reported, are not known"
        parts.append(Text(f"{reported}: {UNKNOWN_CORRELATION}"))
    if found.correlations:
        columns = [
            Column("outcome", [names.get(each.outcome, each.outcome) for each in found.correlations], left=True),
            Column(
                "rank correlation\nwith the score, %",
                [_written(each) for each in found.correlations],
            ),
            Column("rounds", [count(each.rounds) for each in found.correlations]),
        ]
        parts += ["", fitting_table(columns, width)[0]]
    return Group(*parts, "", *dimmed(*_about_correlations([found], [each.outcome for each in found.correlations])))


def diagnoses(found: "Sequence[Diagnosis]", seeds: Sequence[str], width: int = WIDE) -> Group:
    """The shares and correlations of several rows side by side, means over their seeds, and notes on how to read them.

    Args:
        found: a diagnosis of each row.
        seeds: the seeds of each row in words.
        width: width of the terminal in characters.
    """
    names = _names(found)
    outcomes = list(dict.fromkeys(each.outcome for one in found for each in one.correlations))
    columns = [
        Column("strategy", [Text(one.label, style="bold") for one in found], left=True, widest=label_width(width)),
        Column("runs", list(seeds), 1, left=True),
        Column("prediction", [one.prediction if one.scored_rounds else "–" for one in found], 35, left=True),
        Column("highest\npredictions", [share(one.greedy) for one in found]),
        Column("by\nchance", [share(one.chance) for one in found]),
        Column("first\ntime", [share(one.new) for one in found], 40),
        *(
            [Column("without\nscore", [share(one.unscored) for one in found], 38)]
            if any(one.unscored > 0 for one in found)
            else []
        ),
        *(
            Column(
                f"correlation\nwith {names.get(outcome, outcome)}, %",
                [_correlation(one, outcome) for one in found],
                30 - i,
            )
            for i, outcome in enumerate(outcomes)
        ),
    ]
    table, hidden = fitting_table(columns, width)
    hidden = [heading.removesuffix(", %") for heading in hidden]
    shown = [outcome for outcome in outcomes if f"correlation with {names.get(outcome, outcome)}" not in hidden]
    about_scores, about_gain = _about_correlations(found, shown)
    notes = dimmed(
        _about_shares(
            hidden, unscored=any(one.unscored > 0 for one in found), cut=any(one.cut_rounds for one in found)
        ),
        f"Correlation: {_lower(about_scores)}" if shown else "",
        about_gain,
        about_hidden(hidden),
    )
    return Group(table, "", *notes)


GAIN = "gain"
"""The outcome that is compared over rounds; others are compared among the selected clients of each round."""

UNKNOWN_CORRELATION = "in no round did both the scores and the outcomes of three or more selected clients differ."
"""Why there is no rank correlation with what clients reported."""

UNKNOWN_CHOICE = (
    f"it is not known which clients had the highest predictions, because at least {KEPT:,} were selected, and the record keeps no "
    "more candidates of a round."
)
"""Why selections of some rounds are not compared with the highest predictions."""

UNKNOWN_GAIN = "it is known in fewer than three rounds with scores, or it or the mean scores do not differ."
"""Why there is no rank correlation with the gain."""

DOUBTFUL = f"?: fewer than {MANY} rounds, so that it can be large by chance."
"""What the mark of a correlation over few rounds says."""

COARSE = (
    "*: in rounds with about three clients. Without ties, each of them then has at least 50 or at most −50, whatever the scores are: "
    "only the mean over many rounds says something."
)
"""What the mark of a correlation within rounds of very few clients says."""


def _about_shares(hidden: Sequence[str], *, unscored: bool, cut: bool) -> str:
    """Notes on the columns of shares that are not hidden; ``cut`` tells whether they leave out rounds, see
    :attr:`Diagnosis.cut_rounds`."""
    unknown = f", or {UNKNOWN_CHOICE.removesuffix('.')}, so that such rounds are left out" if cut else ""
    shares = (
        "Highest predictions: share of the selected clients with a score that have the highest predictions; by chance: "
        f"the same share under uniform selection; –: the strategy gives no scores that choose between clients{unknown}. The rest is "
        "exploration."
    )
    sentences = [shares]
    if "prediction" not in hidden:
        sentences.append(
            "Prediction: the term that is the score without exploration, or the score itself if the record has no exploration apart "
            "from it."
        )
    if "first time" not in hidden:
        sentences.append("First time: share of the selections of clients that had not been selected before.")
    if unscored and "without score" not in hidden:
        sentences.append(
            "Without score: share of the selections of clients without a score, which the other columns leave out."
        )
    return " ".join([*sentences, "Means over seeds."])


def _about_prediction(name: str) -> str:
    """What the agreement with a greedy choice is measured by, in words."""
    if name == SCORE:
        return "the score itself, because the record has no exploration apart from it"
    if name.startswith(f"{SCORE} − "):
        return f"{name}, the score without its exploration"
    return f"the term {name}, the score without its exploration"


def _correlation(one: "Diagnosis", outcome: str) -> str:
    """The rank correlation with an outcome."""
    known = {each.outcome: _written(each) for each in one.correlations}
    return known.get(outcome, percent(math.nan, 0))


def _written(correlation: "Correlation") -> str:
    """A rank correlation in percent, with marks if it covers few rounds, or rounds of very few clients."""
    marks = f"{'?' * correlation.doubtful}{'*' * correlation.coarse}"
    return f"{percent(correlation.rank_correlation, 0)}{marks}"


def _names(found: "Sequence[Diagnosis]") -> dict[str, str]:
    """Outcomes that are called otherwise than in the record."""
    return {"accuracy": "score"} if score_style(one.labels for one in found).numeric else {}


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _about_correlations(found: "Sequence[Diagnosis]", shown: Sequence[str]) -> tuple[str, str]:
    """Notes about rank correlations with the outcomes that are ``shown``, and about the change of the test accuracy among them; empty
    texts without any."""
    known = [each for one in found for each in one.correlations if each.outcome in shown]
    if not known:
        return "", ""
    within = [outcome for outcome in shown if outcome != GAIN]
    subject = "Those with what clients reported are means" if GAIN in shown else "It is the mean"
    about_scores = [
        ABOUT_RANKS,
        ABOUT_WITHIN.format(subject) if within else "",
        *_about_marks(known),
        f"–: {UNKNOWN_CORRELATION}" if _lack(found, within) else "",
    ]
    if GAIN not in shown:
        return _joined(about_scores), ""
    score = score_style(one.labels for one in found)
    about_gain = [
        f"Gain: change of the test {score.name} in a round, compared with the mean score of its selected clients, over all rounds.",
        f"–: {UNKNOWN_GAIN}" if _lack(found, [GAIN]) else "",
    ]
    return _joined(about_scores), _joined(about_gain)


ABOUT_RANKS = (
    "Rank correlation (Spearman) of scores with outcomes: 100 means that higher scores always go with higher outcomes, 0 no "
    "relation, −100 the opposite."
)
"""What a rank correlation is."""

ABOUT_WITHIN = (
    "{} over rounds, among the selected clients. Only selected clients have outcomes, so that a strategy that selects by score shows "
    "less than the whole relation."
)
"""What correlations within rounds are, after their subject."""


def _about_marks(known: "Sequence[Correlation]") -> list[str]:
    """What the marks of some correlations say."""
    doubtful, coarse = any(each.doubtful for each in known), any(each.coarse for each in known)
    return [DOUBTFUL] * doubtful + [COARSE] * coarse


def _lack(found: "Sequence[Diagnosis]", outcomes: Sequence[str]) -> bool:
    """Whether a row lacks the rank correlation with one of these outcomes."""
    return any(not set(outcomes) <= {each.outcome for each in one.correlations} for one in found)


def _joined(sentences: Sequence[str]) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
