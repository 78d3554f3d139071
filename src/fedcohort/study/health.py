"""The health of a comparison: runs in which training failed, and results that say little, each with what to try."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.core import formatted_values
from fedcohort.core.score_style import ScoreStyle
from fedcohort.federation.own_data_names import is_own
from fedcohort.study.run_measures import Measured
from fedcohort.study.targets import Target, at_chance, chance_level, one_class
from fedcohort.study.verdicts import BASELINE, FEWEST, TOO_FEW, Verdict, lowest_p_value, needed_seeds

__all__ = ["Checked", "Finding", "findings"]

HALF = 0.5
"""A run is reported if at least this share of its rounds had no admitted update."""

FAR_ABOVE_GUESSING = 3
"""A test loss of at least this multiple of ln K, the loss of equal probabilities for K classes, means that steps were too large."""

_MORE_TRAINING = "train longer (rounds, training.epochs), change training.lr, or select more clients"

SHOWN = 4
"""Largest number of rows that a finding names."""


@dataclass(frozen=True)
class Checked:
    """A row with its runs, the number of them that reached the target, and the target."""

    label: str
    runs: Sequence[Measured]
    reached: int
    target: Target


@dataclass(frozen=True)
class Finding:
    """Something that a reader must know before the numbers.

    Attributes:
        kind: ``no update``, ``diverged``, ``one class``, ``chance``, ``target``, ``unfinished``, ``few seeds`` or ``other seeds``.
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


def findings(rows: Sequence[Checked], score: ScoreStyle, verdicts: Sequence[Verdict] = ()) -> list[Finding]:
    """What is wrong with the rows, the most serious first; ``verdicts`` are those of the rows, in their order."""
    found = list(_other_rounds(rows))
    found += [finding for check in (_no_update, _diverged, _one_class) for finding in _of_rows(check, rows)]
    told = {label for finding in found if finding.kind != "diverged" for label in finding.rows}
    chance = _no_better_than_the_mean if score.numeric else _chance
    found += _of_rows(chance, [row for row in rows if row.label not in told])
    failing = {label for finding in found if finding.kind != "diverged" for label in finding.rows}
    found += _targets_missed(rows, failing, score)
    return [*found, *_few_seeds(rows), *_no_clear_difference(rows, verdicts), *_other_seeds(rows)]


def _of_rows(check: Callable[[Checked], Finding | None], rows: Sequence[Checked]) -> Iterator[Finding]:
    """The findings of a check; rows with the same sentence and advice are one finding."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        finding = check(row)
        if finding is not None:
            same.setdefault((finding.kind, finding.text, finding.advice), []).extend(finding.rows)
    for (kind, text, advice), labels in same.items():
        yield Finding(kind, tuple(labels), text, advice)


def _no_update(row: Checked) -> Finding | None:
    """Runs in which no update entered the model, in at least half of the rounds in which clients were selected."""
    empty = [int(((run.rounds["selected"] > 0) & (run.rounds["admitted"] == 0)).sum()) for run in row.runs]
    played = [int((run.rounds["selected"] > 0).sum()) for run in row.runs]
    if not any(p and e >= HALF * p for e, p in zip(empty, played, strict=True)):
        return None
    rounds, without = sum(played), sum(empty)
    text = (
        f"no update entered the model in any of its {_counted(rounds, 'round')}: the model is the initial one"
        if without == rounds
        else f"no update entered the model in {without} of its {_counted(rounds, 'round')}, which repeat the round before"
    )
    return Finding("no update", (row.label,), text, _advice_on_updates(row))


def _advice_on_updates(row: Checked) -> str:
    """What to change, by the most frequent reason for which updates did not enter the model."""
    statuses = [status for run in row.runs for status in run.clients["status"].tolist() if status != "admitted"]
    reason = max(sorted(set(statuses)), key=statuses.count, default="")
    experiment = row.runs[0].experiment
    if reason == "declined" and experiment.selection.name == "conformal":
        return conformal_advice(row.runs)
    return {
        "declined": "loosen the rule by which the strategy admits updates",
        "late": "raise systems.deadline, or train fewer epochs",
        "failed": "lower systems.dropout, or select more clients",
        "diverged": "lower training.lr",
    }.get(reason, "look at the statuses of the clients with `fedcohort why`")


def conformal_advice(runs: Sequence[Measured]) -> str:
    """What to change if conformal participation admits no client: it depends on whether any quantile was finite."""
    clients, experiment = runs[0].clients, runs[0].experiment
    values = clients["q_hat"].to_numpy(np.float64) if "q_hat" in clients else np.zeros(0)
    finite = values[np.isfinite(values)]
    settings = {name: formatted_values.setting(value) for name, value in experiment.to_dict()["selection"].items()}
    alpha, theta = settings.get("alpha_cp", "0.1"), settings.get("theta", "0.25")
    if not len(finite):
        needed = math.ceil(1 / float(alpha)) - 1
        return (
            f"raise selection.alpha_cp (at {alpha}, a client needs {needed} held-out samples), or give clients more data: a larger "
            "federation.holdout, or fewer clients"
        )
    return (
        f"the smallest quantile was {formatted_values.number(float(finite.min()), 3)}, and selection.theta = {theta}; take more steps "
        f"(a smaller training.batch_size, now {experiment.training.batch_size}, or more selection.max_epochs, now "
        f"{settings.get('max_epochs', '40')}), raise selection.alpha_cp (now {alpha}) or theta, or give clients more data"
    )


def _diverged(row: Checked) -> Finding | None:
    """Updates with NaN or infinite entries."""
    statuses = [run.clients["status"] for run in row.runs]
    dropped, updates = sum(int((one == "diverged").sum()) for one in statuses), sum(map(len, statuses))
    if not dropped:
        return None
    text = f"{formatted_values.count(dropped)} of {_counted(updates, 'update')} had NaN or infinite entries and were dropped"
    return Finding(
        "diverged", (row.label,), text, f"{_scaling(row)}lower training.lr, or limit gradients with training.clip_norm"
    )


def _one_class(row: Checked) -> Finding | None:
    """Models that recognize one class only."""
    only = [run for run in row.runs if one_class(run)]
    if not only:
        return None
    where = (
        "the last model"
        if len(row.runs) == 1
        else f"the last model of {len(only)} of {_counted(len(row.runs), 'seed')}"
    )
    text = f"{where} predicts one class for every sample"
    advice = (
        "select more clients (selection.k), train longer or with another training.lr, or use a federation in which clients hold more "
        "classes"
    )
    return Finding("one class", (row.label,), text, _scaling(row) + _smaller_steps(row) + advice)


def _scaling(row: Checked) -> str:
    """The advice to standardize the features, with a comma, if that may help."""
    return "standardise the features (data.standardise = true), " if any(map(_may_need_scale, row.runs)) else ""


def _smaller_steps(row: Checked) -> str:
    """The advice to lower the learning rate, with a comma, if the test loss says that steps were too large."""
    unstable = [loss for loss in map(_too_high_loss, row.runs) if not math.isnan(loss)]
    if not unstable:
        return ""
    rate = formatted_values.setting(row.runs[0].experiment.training.lr)
    finite = math.isfinite(unstable[0])
    loss = f"a test loss of {formatted_values.number(unstable[0], 3)}" if finite else "an infinite test loss"
    return f"lower training.lr (now {rate}: with {loss}, steps seem too large), "


def _too_high_loss(run: Measured) -> float:
    """The last test loss if it is infinite, has risen above that of guessing, or is far above it; NaN if it is not.

    A loss that became NaN counts as infinite.
    """
    losses = run.series("test_loss")[np.isfinite(run.series("test_accuracy"))]
    if np.isnan(losses).all():
        return math.nan
    first, last = float(losses[0]), float(np.where(np.isnan(losses), np.inf, losses)[-1])
    guessing = math.log(max(1, len(run.class_accuracy)))
    too_high = last > max(first, guessing) or (guessing > 0 and last >= FAR_ABOVE_GUESSING * guessing)
    return last if too_high or math.isinf(last) else math.nan


def _may_need_scale(measured: Measured) -> bool:
    """Whether a run used a table or a function of a user as it stands, without a word about standardization."""
    data = measured.run.described.data
    return data.standardise is None and is_own(data.name)


def _chance(row: Checked) -> Finding | None:
    """Models whose mean accuracy over classes is that of guessing."""
    last = [run.class_accuracy for run in row.runs if len(run.class_accuracy) > 1]
    if not last:
        return None
    number = len(last[0])
    means = [float(np.nan_to_num(classes).mean()) for classes in last]
    if not at_chance(means, number):
        return None
    guessing = f"chance, {formatted_values.share(1 / number)} with {number} classes"
    text = (
        f"test accuracy is at {guessing}"
        if np.mean(means) <= chance_level(number)
        else f"test accuracy cannot be told from {guessing}, which its 95% interval over {len(means)} seeds contains"
    )
    return Finding(
        "chance",
        (row.label,),
        text,
        _scaling(row) + _smaller_steps(row) + _MORE_TRAINING,
    )


def _no_better_than_the_mean(row: Checked) -> Finding | None:
    """Models of numeric labels whose mean R² is at most 0."""
    if not float(np.mean([run.accuracy for run in row.runs])) <= chance_level(0, numeric=True):
        return None
    text = "test R² is at most 0: the model is not better than one that always predicts the mean of the labels"
    return Finding("chance", (row.label,), text, _scaling(row) + _smaller_steps(row) + _MORE_TRAINING)


def _targets_missed(rows: Sequence[Checked], failing: set[str], score: ScoreStyle) -> Iterator[Finding]:
    """The rows that did not reach their target, target by target."""
    for target in dict.fromkeys(row.target for row in rows):
        missed = [row.label for row in rows if not row.reached and row.target == target]
        yield from _target_missed(missed, failing, target, score)


def _target_missed(labels: Sequence[str], failing: set[str], target: Target, score: ScoreStyle) -> Iterator[Finding]:
    """Rows that did not reach the target under any seed; those that fail for another reason get other advice."""
    if math.isnan(target.accuracy):
        return
    text = f"no seed reached the target {score.name}, {score.target(target.accuracy)}"
    lower = "choose a lower target with" if target.from_results else "lower"
    told = [one for one in labels if one in failing]
    advice = {
        f"play more rounds, or {lower} measures.target_accuracy": [one for one in labels if one not in failing],
        f"first follow the advice about {'this row' if len(told) == 1 else 'these rows'} above": told,
    }
    yield from (Finding("target", tuple(missed), text, what) for what, missed in advice.items() if missed)


def _few_seeds(rows: Sequence[Checked]) -> Iterator[Finding]:
    """Rows with fewer seeds than a verdict needs."""
    few = min(len(row.runs) for row in rows)
    if few < FEWEST:
        labels = tuple(row.label for row in rows if len(row.runs) < FEWEST)
        cannot = "cannot tell a difference from chance" if len(rows) > 1 else "cannot tell how much the result varies"
        about = labels if len(labels) < len(rows) else ()
        yield Finding("few seeds", about, f"{_counted(few, 'seed')} {cannot}", f"set seeds = {FEWEST} or more")


def _no_clear_difference(rows: Sequence[Checked], verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Rows with the same seeds, too few for any difference to be clear, however large it is."""
    tested = [verdict for verdict in verdicts if verdict.words not in (BASELINE, TOO_FEW)]
    same = len({frozenset(run.experiment.seed for run in row.runs) for row in rows}) == 1
    if not tested or not same:
        return
    seeds, needed = tested[0].seeds, needed_seeds(len(tested))
    if seeds < needed:
        lowest = lowest_p_value(seeds, len(tested))
        limit = "is always 1" if lowest >= 1 else f"is at least {formatted_values.p_value(lowest)}"
        text = (
            f"{_counted(seeds, 'seed')} cannot show any difference, however large it is: with {_counted(len(tested), 'comparison')}, "
            f"p {limit}; {needed} seeds can"
        )
        yield Finding("few seeds", (), text, f"set seeds = {needed} or more")


def _other_rounds(rows: Sequence[Checked]) -> Iterator[Finding]:
    """Unfinished runs that are not equally far, so that their accuracies cannot be compared."""
    runs = [run for row in rows for run in row.runs]
    played = {run.num_rounds for run in runs}
    unfinished = sum(run.num_rounds < run.experiment.rounds and not run.run.finished for run in runs)
    if len(played) < 2 or not unfinished:
        return
    text = (
        f"{unfinished} of {_counted(len(runs), 'run')} {'is' if unfinished == 1 else 'are'} not finished, and the runs have played "
        f"{min(played)} to {max(played)} rounds: accuracies after different numbers of rounds cannot be compared"
    )
    yield Finding(
        "unfinished",
        (),
        text,
        "wait for the other runs, or compare the rounds that all have, with `fedcohort compare --partial`",
    )


def _other_seeds(rows: Sequence[Checked]) -> Iterator[Finding]:
    """Rows that were not played with the same seeds, so that their means are about different runs."""
    seeds = [{run.experiment.seed for run in row.runs} for row in rows]
    if all(own == seeds[0] for own in seeds):
        return
    least, most = min(map(len, seeds)), max(map(len, seeds))
    has = f"have {least} to {most} seeds" if least < most else "have different seeds"
    text = f"the rows {has}: a mean is over the seeds of its row, a difference over those that both rows have"
    advice = (
        "play all rows with the same seeds; if results decided which rows got more seeds, as in `fedcohort race`, p-values are too "
        "low, and the result of the race holds instead"
    )
    yield Finding("other seeds", (), text, advice)


def _counted(number: int, thing: str) -> str:
    return f"{formatted_values.count(number)} {thing}{'s' * (number != 1)}"
