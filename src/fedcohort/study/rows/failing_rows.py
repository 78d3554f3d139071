"""Find the rows in which training failed: how each kind of failure is recognized, its sentence, and what to try."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedcohort.core.words import formatted_values
from fedcohort.core.words.formatted_values import in_words
from fedcohort.federation.data.own_data_names import is_own
from fedcohort.study.conformal_advice import conformal_advice
from fedcohort.study.guessing import diverged_seeds, equal_test_labels, guessed_score, guessing, hardly_above_chance
from fedcohort.study.rows.rows_without_clients import never_selected, words_of_never_selected
from fedcohort.study.run_measures import Measured
from fedcohort.study.step_sizes import (
    hardly_changed,
    rates,
    smaller_steps,
    too_large_steps,
    unsettled_loss,
    value_range,
)
from fedcohort.study.targets import Target, of_one_class, one_class

__all__ = [
    "AT_CHANCE",
    "CHECKS",
    "LARGE_LOSS",
    "NOT_BETTER",
    "SHOWN",
    "Check",
    "Checked",
    "Finding",
    "failing_rows",
    "one_class_seeds",
    "seeds_in_words",
]

HALF = 0.5
"""A run is reported if at least this share of its rounds had no admitted update."""

SHOWN = 4
"""Largest number of rows that a finding names."""


NO_TARGET = Target(math.nan, "")


@dataclass(frozen=True)
class Checked:
    """A row with its runs, the number of them that reached the target, and the target."""

    label: str
    runs: Sequence[Measured]
    reached: int = 0
    target: Target = NO_TARGET


@dataclass(frozen=True)
class Finding:
    """Something that a reader must know before the numbers.

    Attributes:
        kind: ``no update``, ``diverged``, ``one class``, ``chance``, ``large loss``, ``target``, ``equal rows``, ``unfinished``,
            ``few seeds``, ``other seeds`` or ``missing``.
        rows: labels of the rows that it is about.
        text: what is wrong, in a sentence.
        advice: what to try, in a sentence.
    """

    kind: str
    rows: tuple[str, ...]
    text: str
    advice: str

    @property
    def about(self) -> str:
        """The rows in words, with a colon; empty if it is about all rows."""
        shown = ", ".join(map(repr, self.rows[:SHOWN]))
        left = len(self.rows) - SHOWN
        more = f" and {left} more row{'s' * (left > 1)}" if left > 0 else ""
        return f"{shown}{more}: " if self.rows else ""

    @property
    def sentences(self) -> str:
        """The rows, what is wrong, and what to try."""
        return f"{self.about}{self.text}. Try: {self.advice}."

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A check that looks at one row at a time. Rows that fail it in the same way share one finding, which gives the lowest and the
    highest number of them.

    Attributes:
        kind: kind of its findings.
        sign: tells rows apart that need another sentence or other advice; None for a row that is sound.
        words: text and advice for such rows.
    """

    kind: str
    sign: Callable[[Checked], Hashable | None]
    words: Callable[[Sequence[Checked]], tuple[str, str]]


def failing_rows(check: Check, rows: Sequence[Checked]) -> Iterator[Finding]:
    """The findings of a check."""
    same: dict[Hashable, list[Checked]] = {}
    for row in rows:
        sign = check.sign(row)
        if sign is not None:
            same.setdefault(sign, []).append(row)
    for alike in same.values():
        yield Finding(check.kind, tuple(row.label for row in alike), *check.words(alike))


def _rounds_without(row: Checked) -> tuple[int, int]:
    """The number of rounds in which no update entered the model, and of all in which clients were selected, over all runs."""
    empty = [int(((run.rounds["selected"] > 0) & (run.rounds["admitted"] == 0)).sum()) for run in row.runs]
    played = [int((run.rounds["selected"] > 0).sum()) for run in row.runs]
    return (sum(empty), sum(played)) if any(p and e >= HALF * p for e, p in zip(empty, played, strict=True)) else (0, 0)


def _no_update(row: Checked) -> Hashable | None:
    """Runs in which no update entered the model, in at least half of the rounds in which clients were selected."""
    without, rounds = _rounds_without(row)
    return (without == rounds, _advice_on_updates(row)) if rounds else None


def _words_of_no_update(rows: Sequence[Checked]) -> tuple[str, str]:
    counts = [_rounds_without(row) for row in rows]
    others = sum(of for _, of in counts) < sum(len(run.rounds) for row in rows for run in row.runs)
    what = f"round{'s' * (counts[0][1] != 1)}{' with selected clients' * others}"
    several = max(len(row.runs) for row in rows) > 1
    seeds = value_range(len(row.runs) for row in rows)
    rounds = f"{value_range(of for _, of in counts)} {what}"
    of_all = f"the {rounds} of its {seeds} seeds" if several else f"its {rounds}"
    text = (
        f"no update entered the model in any of {of_all}: the model is the initial one"
        if all(without == of for without, of in counts)
        else f"no update entered the model in {value_range(own for own, _ in counts)} of {of_all}, which repeat the round before"
    )
    return text, _advice_on_updates(rows[0])


def _advice_on_updates(row: Checked) -> str:
    """What to change, by the most frequent reason for which updates did not enter the model."""
    statuses = [status for run in row.runs for status in run.clients["status"].tolist()]
    reason = max(sorted(set(statuses) - {"admitted"}), key=statuses.count, default="")
    if reason == "failed" and statuses.count("late") > statuses.count("admitted"):
        return "raise systems.deadline, or train fewer epochs: most clients that did not fail were late"
    if reason == "declined" and row.runs[0].experiment.selection.name == "conformal":
        return conformal_advice(row.runs)
    return {
        "diverged": f"{_scaling(row)}lower training.lr",
        "declined": "loosen the rule by which the strategy admits updates",
        "late": "raise systems.deadline, or train fewer epochs",
        "failed": "lower systems.dropout, or select more clients",
    }.get(reason, "look at the statuses of the clients with `fedcohort why`")


def _dropped(row: Checked) -> tuple[int, int]:
    """The number of updates with NaN or infinite entries, and of all that the server received."""
    return sum(run.diverged for run in row.runs), sum(run.updates for run in row.runs)


def _diverged(row: Checked) -> Hashable | None:
    """Updates with NaN or infinite entries."""
    return _scaling(row) if _dropped(row)[0] else None


def _words_of_diverged(rows: Sequence[Checked]) -> tuple[str, str]:
    counts = [_dropped(row) for row in rows]
    updates = value_range(of for _, of in counts) + (" updates" if counts[0][1] != 1 else " update")
    some = "all" if all(dropped == of > 1 for dropped, of in counts) else f"{value_range(own for own, _ in counts)} of"
    text = f"{some} {updates} had NaN or infinite entries and were dropped"
    text += f", the first in round {_first_diverged(rows[0])}" if len(rows) == 1 else ""
    return text, f"{_scaling(rows[0])}lower training.lr, or limit gradients with training.clip_norm"


def _first_diverged(row: Checked) -> str:
    """The first round with such an update, and its seeds."""
    rounds = [(run.clients.loc[run.clients["status"] == "diverged", "round"].min(), run) for run in row.runs]
    first = int(min(t for t, _ in rounds if t == t))
    return f"{first} of {seeds_in_words([run.experiment.seed for t, run in rounds if t == first])}"


def _one_class(row: Checked) -> Hashable | None:
    """Models that recognize one class only."""
    if not any(map(one_class, row.runs)):
        return None
    return len(row.runs), of_one_class(row.runs), _scaling(row), too_large_steps(row.runs)


def _words_of_one_class(rows: Sequence[Checked]) -> tuple[str, str]:
    seeds = len(rows[0].runs)
    only = value_range(sum(map(one_class, row.runs)) for row in rows)
    some = f" ({_seeds_of_rows(rows)})" if any(len(one_class_seeds(row.runs)) < seeds for row in rows) else ""
    where = (
        "the last model"
        if seeds == 1
        else f"the last model of {only} of {formatted_values.counted(seeds, 'seed')}{some}"
    )
    smaller = smaller_steps(_runs(rows))
    advice = (
        f"{smaller}select more clients (selection.k), train longer{'' if smaller else ' or with another training.lr'}, or use a "
        "federation in which clients hold more classes"
    )
    return f"{where} {of_one_class(rows[0].runs)}", f"{_scaling(rows[0])}{advice}"


def one_class_seeds(runs: Sequence[Measured]) -> list[int]:
    """The seeds of a row whose last model recognizes one class only."""
    return [run.experiment.seed for run in runs if one_class(run)]


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Seeds in a sentence: seed 0; seeds 0, 1 and 3."""
    return f"seed{'s' * (len(seeds) > 1)} {in_words(list(map(str, seeds)))}"


def _seeds_of_rows(rows: Sequence[Checked]) -> str:
    """The seeds whose last models recognize one class only, row by row if there are several."""
    seeds = [seeds_in_words(one_class_seeds(row.runs)) for row in rows]
    if len(rows) == 1:
        return seeds[0]
    listed = [f"{row.label!r}: {own}" for row, own in zip(rows, seeds, strict=True)]
    return "; ".join([*listed[:SHOWN], *(["and others"] if listed[SHOWN:] else [])])


def _scaling(row: Checked) -> str:
    """The advice to standardize the features, with a comma, if that may help."""
    return "standardise the features (data.standardise = true), " if any(map(_may_need_scale, row.runs)) else ""


def _runs(rows: Sequence[Checked]) -> list[Sequence[Measured]]:
    return [row.runs for row in rows]


def _advice_on_steps(rows: Sequence[Checked]) -> str:
    """What to try for rows that are no better than guessing."""
    if hardly_changed(rows[0].runs):
        now = f"now {rates(_runs(rows))}: the test loss hardly changed, so steps seem too small"
        return f"raise training.lr ({now}), or train longer (rounds)"
    smaller = smaller_steps(_runs(rows))
    other_rate = "" if smaller else ", change training.lr"
    return f"{smaller}train longer (rounds, training.epochs){other_rate}, or select more clients"


def _large_loss(row: Checked) -> Hashable | None:
    """Models with a very large test loss: their training did not settle, even if their accuracy is above chance."""
    huge = [not math.isnan(unsettled_loss(run)) for run in row.runs]
    return (len(huge), len(row.runs[0].class_accuracy), _scaling(row)) if any(huge) else None


def _words_of_large_loss(rows: Sequence[Checked]) -> tuple[str, str]:
    losses = [loss for row in rows for loss in map(unsettled_loss, row.runs) if not math.isnan(loss)]
    classes = len(rows[0].runs[0].class_accuracy)
    seeds, huge = len(rows[0].runs), [sum(not math.isnan(unsettled_loss(run)) for run in row.runs) for row in rows]
    some = f" of {value_range(huge)} of {seeds} seeds" if min(huge) < seeds else ""
    guessing = ""
    if classes > 1:
        level = formatted_values.magnitude(math.log(classes))
        guessing = f", where equal probabilities for {classes} classes have {level}"
    text = (
        f"the last test loss{some} is {value_range(losses, _loss)}{guessing}: steps were so large that training did not settle, even "
        "if the accuracy is above chance"
    )
    lower = f"lower training.lr (now {rates(_runs(rows))}), or limit gradients with training.clip_norm"
    return text, _scaling(rows[0]) + lower


def _loss(value: float) -> str:
    return "infinite" if math.isinf(value) else formatted_values.magnitude(value)


def _may_need_scale(measured: Measured) -> bool:
    """Whether a run used data of a user as they stand, without a word about standardization; the record knows what the data say."""
    data, recorded = measured.run.described.data, measured.run.meta.get("standardised")
    given = "data" in measured.run.meta.get("given", "").split(", ")
    return data.standardise is None and recorded != "yes" and (is_own(data.name) or (given and recorded == "no"))


def _chance(row: Checked) -> Hashable | None:
    """Models at chance: they are not clearly better than a model that guesses."""
    guesses = guessing(row.runs)
    return (
        (
            *guesses,
            hardly_above_chance(row.runs),
            len(row.runs),
            _scaling(row),
            too_large_steps(row.runs),
            hardly_changed(row.runs),
        )
        if guesses
        else None
    )


def _words_of_chance(rows: Sequence[Checked]) -> tuple[str, str]:
    number, at_most = guessing(rows[0].runs) or (0, True)
    chance = f"chance, {formatted_values.share(1 / number)} with {number} classes"
    seeds = sum(len(run.class_accuracy) > 1 for run in rows[0].runs)
    score = guessed_score(*_runs(rows))
    text = f"{score} is {'hardly above' if hardly_above_chance(rows[0].runs) else 'at'} {chance}"
    if not at_most:
        text = f"{score} cannot be told from {chance}, "
        text += "with one seed" if seeds == 1 else f"which its 95% interval over {seeds} seeds contains"
    return text, _scaling(rows[0]) + _advice_on_steps(rows)


def _no_better_than_the_mean(row: Checked) -> Hashable | None:
    """Models that are not better than the mean of the labels, or have no R²: as a mean over seeds, it is at most 0."""
    if seeds := diverged_seeds(row.runs):
        return len(seeds), len(row.runs), _scaling(row)
    if equal_test_labels(row.runs):
        return "equal labels"
    return (_scaling(row), too_large_steps(row.runs), hardly_changed(row.runs)) if guessing(row.runs) else None


def _words_of_no_better(rows: Sequence[Checked]) -> tuple[str, str]:
    if diverged := diverged_seeds(rows[0].runs):
        seeds = len(rows[0].runs)
        of_seeds = f" of {len(diverged)} of {formatted_values.counted(seeds, 'seed')}" if seeds > 1 else ""
        text = f"the last model{of_seeds} diverged: it has no finite test loss, and no R²"
        lower = f"lower training.lr (now {rates(_runs(rows))}), or limit gradients with training.clip_norm"
        return text, _scaling(rows[0]) + lower
    if equal_test_labels(rows[0].runs):
        text = "there is no test R², because all labels of the test set are equal"
        return text, "use test samples with different labels, or compare errors such as the mae"
    text = "test R² is at most 0: the model is not better than one that always predicts the mean of the labels"
    return text, _scaling(rows[0]) + _advice_on_steps(rows)


CHECKS = (
    Check("no update", lambda row: never_selected(row.runs), lambda rows: words_of_never_selected(_runs(rows))),
    Check("no update", _no_update, _words_of_no_update),
    Check("diverged", _diverged, _words_of_diverged),
    Check("one class", _one_class, _words_of_one_class),
)
LARGE_LOSS = Check("large loss", _large_loss, _words_of_large_loss)
AT_CHANCE = Check("chance", _chance, _words_of_chance)
NOT_BETTER = Check("chance", _no_better_than_the_mean, _words_of_no_better)
