"""Find the rows in which training failed: how each kind of failure is recognized, its sentence, and what to try."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.core import formatted_values
from fedcohort.federation.own_data_names import is_own
from fedcohort.study.run_measures import Measured
from fedcohort.study.targets import Target, at_chance, chance_level, one_class

__all__ = ["AT_CHANCE", "CHECKS", "NOT_BETTER", "Check", "Checked", "Finding", "failing_rows"]

HALF = 0.5
"""A run is reported if at least this share of its rounds had no admitted update."""

FAR_ABOVE_GUESSING = 3
"""A test loss of at least this multiple of ln K, the loss of equal probabilities for K classes, means that steps were too large."""

ABOVE_GUESSING, GREW = 1.15, 1.25
"""So does one of at least the first multiple of ln K that is at least the second multiple of the loss after the first round. In short
runs with skewed classes, losses stay near ln K although steps are small."""

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


def _range(values: Iterable[float], write: Callable[[float], str] = formatted_values.count) -> str:
    """Numbers in words: one, or the lowest and the highest."""
    known = sorted(values)
    return " to ".join(dict.fromkeys((write(known[0]), write(known[-1]))))


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
    empty = _range(without for without, _ in counts)
    rounds = _range(of for _, of in counts) + (" rounds" if counts[0][1] != 1 else " round")
    text = (
        f"no update entered the model in any of its {rounds}: the model is the initial one"
        if all(without == of for without, of in counts)
        else f"no update entered the model in {empty} of its {rounds}, which repeat the round before"
    )
    return text, _advice_on_updates(rows[0])


def _advice_on_updates(row: Checked) -> str:
    """What to change, by the most frequent reason for which updates did not enter the model."""
    statuses = [status for run in row.runs for status in run.clients["status"].tolist() if status != "admitted"]
    reason = max(sorted(set(statuses)), key=statuses.count, default="")
    experiment = row.runs[0].experiment
    if reason == "declined" and experiment.selection.name == "conformal":
        return _conformal_advice(row.runs)
    return {
        "declined": "loosen the rule by which the strategy admits updates",
        "late": "raise systems.deadline, or train fewer epochs",
        "failed": "lower systems.dropout, or select more clients",
        "diverged": "lower training.lr",
    }.get(reason, "look at the statuses of the clients with `fedcohort why`")


def _conformal_advice(runs: Sequence[Measured]) -> str:
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


def _dropped(row: Checked) -> tuple[int, int]:
    """The number of updates with NaN or infinite entries, and of all."""
    statuses = [run.clients["status"] for run in row.runs]
    return sum(int((one == "diverged").sum()) for one in statuses), sum(map(len, statuses))


def _diverged(row: Checked) -> Hashable | None:
    """Updates with NaN or infinite entries."""
    return _scaling(row) if _dropped(row)[0] else None


def _words_of_diverged(rows: Sequence[Checked]) -> tuple[str, str]:
    counts = [_dropped(row) for row in rows]
    updates = _range(of for _, of in counts) + (" updates" if counts[0][1] != 1 else " update")
    text = f"{_range(dropped for dropped, _ in counts)} of {updates} had NaN or infinite entries and were dropped"
    return text, f"{_scaling(rows[0])}lower training.lr, or limit gradients with training.clip_norm"


def _one_class(row: Checked) -> Hashable | None:
    """Models that recognize one class only."""
    return (len(row.runs), _scaling(row), bool(_smaller_steps([row]))) if any(map(one_class, row.runs)) else None


def _words_of_one_class(rows: Sequence[Checked]) -> tuple[str, str]:
    seeds = len(rows[0].runs)
    only = _range(sum(map(one_class, row.runs)) for row in rows)
    where = "the last model" if seeds == 1 else f"the last model of {only} of {formatted_values.counted(seeds, 'seed')}"
    advice = (
        "select more clients (selection.k), train longer or with another training.lr, or use a federation in which clients hold more "
        "classes"
    )
    return f"{where} predicts one class for every sample", _scaling(rows[0]) + _smaller_steps(rows) + advice


def _scaling(row: Checked) -> str:
    """The advice to standardize the features, with a comma, if that may help."""
    return "standardise the features (data.standardise = true), " if any(map(_may_need_scale, row.runs)) else ""


def _smaller_steps(rows: Sequence[Checked]) -> str:
    """The advice to lower the learning rate, with a comma, if the test losses say that steps were too large."""
    unstable = [loss for row in rows for loss in map(_too_high_loss, row.runs) if not math.isnan(loss)]
    if not unstable:
        return ""
    rates = _range((row.runs[0].experiment.training.lr for row in rows), formatted_values.setting)
    shown = unstable if len(rows) > 1 else unstable[:1]
    finite = [loss for loss in shown if math.isfinite(loss)]
    known = _range(finite, lambda loss: formatted_values.magnitude(loss)) if finite else ""
    if not finite:
        loss = "an infinite test loss"
    elif len(finite) < len(shown):
        loss = f"test losses of {known} or infinite ones"
    else:
        loss = f"test losses of {known}" if " to " in known else f"a test loss of {known}"
    return f"lower training.lr (now {rates}: with {loss}, steps seem too large), "


def _too_high_loss(run: Measured) -> float:
    """The last test loss if it is infinite, has grown and is above that of guessing, or is far above that; NaN if it is not.

    A loss that became NaN counts as infinite.
    """
    losses = run.series("test_loss")[np.isfinite(run.series("test_accuracy"))]
    if np.isnan(losses).all():
        return math.nan
    first, last = float(losses[0]), float(np.where(np.isnan(losses), np.inf, losses)[-1])
    guessing = math.log(max(1, len(run.class_accuracy)))
    grew = last >= GREW * first and last >= ABOVE_GUESSING * guessing
    too_high = grew or (guessing > 0 and last >= FAR_ABOVE_GUESSING * guessing)
    return last if too_high or math.isinf(last) else math.nan


def _may_need_scale(measured: Measured) -> bool:
    """Whether a run used a table or a function of a user as it stands, without a word about standardization."""
    data = measured.run.described.data
    return data.standardise is None and is_own(data.name)


def _guesses(row: Checked) -> tuple[int, bool] | None:
    """For a row at chance: the number of classes, and whether its mean accuracy is at most that of chance. None for other rows.

    At chance means that the accuracy, as a mean over classes, cannot be told from that of a model that guesses.
    """
    last = [run.class_accuracy for run in row.runs if len(run.class_accuracy) > 1]
    if not last:
        return None
    number = len(last[0])
    means = [float(np.nan_to_num(classes).mean()) for classes in last]
    return (number, bool(np.mean(means) <= chance_level(number))) if at_chance(means, number) else None


def _chance(row: Checked) -> Hashable | None:
    """Models at chance: they are not clearly better than a model that guesses."""
    guesses = _guesses(row)
    return (*guesses, len(row.runs), _scaling(row), bool(_smaller_steps([row]))) if guesses else None


def _words_of_chance(rows: Sequence[Checked]) -> tuple[str, str]:
    number, at_most = _guesses(rows[0]) or (0, True)
    guessing = f"chance, {formatted_values.share(1 / number)} with {number} classes"
    seeds = sum(len(run.class_accuracy) > 1 for run in rows[0].runs)
    text = (
        f"test accuracy is at {guessing}"
        if at_most
        else f"test accuracy cannot be told from {guessing}, which its 95% interval over {seeds} seeds contains"
    )
    return text, _scaling(rows[0]) + _smaller_steps(rows) + _MORE_TRAINING


def _no_better_than_the_mean(row: Checked) -> Hashable | None:
    """Models that are not better than the mean of the labels: R², as a mean over seeds, is at most 0."""
    low = float(np.mean([run.accuracy for run in row.runs])) <= chance_level(0, numeric=True)
    return (_scaling(row), bool(_smaller_steps([row]))) if low else None


def _words_of_no_better(rows: Sequence[Checked]) -> tuple[str, str]:
    text = "test R² is at most 0: the model is not better than one that always predicts the mean of the labels"
    return text, _scaling(rows[0]) + _smaller_steps(rows) + _MORE_TRAINING


CHECKS = (
    Check("no update", _no_update, _words_of_no_update),
    Check("diverged", _diverged, _words_of_diverged),
    Check("one class", _one_class, _words_of_one_class),
)
AT_CHANCE = Check("chance", _chance, _words_of_chance)
NOT_BETTER = Check("chance", _no_better_than_the_mean, _words_of_no_better)
