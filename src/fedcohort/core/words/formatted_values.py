"""How numbers and settings become text, in the same form for the terminal, the report page and the figures.

Every function writes NaN, an unknown number, as "–", and infinite numbers as "∞" and "−∞". The minus sign is "−"; of the
numbers that are rounded to zero, only differences keep theirs.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

__all__ = [
    "D3_FORMATS",
    "UNTRIED",
    "about_of_seeds",
    "as_json",
    "by_dotted_key",
    "clock",
    "count",
    "counted",
    "duration",
    "first_in_words",
    "in_words",
    "index",
    "large",
    "magnitude",
    "number",
    "number_spread",
    "of_seeds",
    "p_value",
    "part",
    "percent",
    "rounds",
    "setting",
    "share",
    "signed",
    "simulated_time",
    "size",
    "spread",
    "target",
    "time_on",
    "verdict",
    "weight_percent",
]

UNTRIED = 1e4
"""A bonus of a bandit strategy from here on says that the client was never selected before, and comes first. UCB divides by 0 + 1e-10
selections, which gives a bonus of about 2.4e5; after one selection it is below 10."""

D3_FORMATS = {"percent": ".1%", "share": ".0%", "count": ",.0f", "index": ".3f", "number": ",.4~r"}
"""The formats of d3 that equal :func:`percent` (with "%"), :func:`share`, :func:`count`, :func:`index` and :func:`number`. Charts with
large tables contain only numbers, and the browser formats them in tooltips."""


LARGEST_WHOLE = 1e21
"""From here on, :func:`number` writes an exponent, as browsers do."""

LONGEST_LIST = 60
"""Length in characters of the longest list that :func:`setting` writes out."""


def as_json(value: object) -> str:
    """One JSON document in ASCII, so that it is valid in every encoding; NaN and ±∞ become null, paths become strings."""
    return json.dumps(_json(value), indent=2, ensure_ascii=True, allow_nan=False)


def by_dotted_key(values: Mapping[str, object]) -> dict[str, object]:
    """The values in nested tables, each by its whole key, such as ``selection.k``."""
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": leaf for inner, leaf in by_dotted_key(value).items()}
        else:
            flat[key] = value
    return flat


def percent(fraction: float, digits: int = 1) -> str:
    """0.8123 as 81.2: a fraction in percent, for places with the "%" in the heading or the sentence."""
    return _not_finite(fraction) or f"{100 * fraction:z.{digits}f}".replace("-", "−")


def weight_percent(fraction: float) -> str:
    """A share of the weights in percent, with one decimal, that is 0.0 only if it is exactly that: a large cohort has small shares.

    >>> weight_percent(0.0), weight_percent(1 / 16_000), weight_percent(0.0006), weight_percent(1 / 3)
    ('0.0', '<0.1', '0.1', '33.3')
    """
    return "<0.1" if 0 < fraction < 0.0005 else percent(fraction)


def share(fraction: float, digits: int = 0) -> str:
    """0.8123 as 81%."""
    return _not_finite(fraction) or f"{percent(fraction, digits)}%"


def part(fraction: float) -> str:
    """A share in whole percent that is 0% or 100% only if it is exactly that.

    >>> part(0.0), part(1 / 225), part(0.5), part(224 / 225), part(1.0)
    ('0%', '<1%', '50%', '>99%', '100%')
    """
    if 0 < fraction < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= fraction < 1 else share(fraction)


def target(fraction: float) -> str:
    """A target accuracy with all its digits: 0.54 as 54%, 0.955 as 95.5%."""
    return _not_finite(fraction) or f"{100 * fraction:g}%"


def spread(mean: float, sd: float) -> str:
    """A mean fraction and its standard deviation in percent: 81.2 ± 3.5; 81.2 if the deviation is unknown."""
    return f"{percent(mean)} ± {percent(sd)}" if math.isfinite(sd) else percent(mean)


def signed(fraction: float) -> str:
    """A difference of fractions in percentage points: 0.031 as +3.1."""
    return _not_finite(fraction) or f"{100 * fraction:+.1f}".replace("-", "−")


def p_value(p: float) -> str:
    """A p-value with two significant digits: 0.0156 as 0.016, 1.0 as 1, and <0.001. A value just above 0.05, which is not clear, has
    as many as it needs to be told from 0.05: 0.0503."""
    if unknown := _not_finite(p):
        return unknown
    digits = next((digits for digits in range(2, 6) if p <= 0.05 or float(f"{p:.{digits}g}") > 0.05), 2)
    return "<0.001" if p < 0.001 else f"{p:.{digits}g}"


def verdict(verdict: str, p: float) -> str:
    """What a difference says, and its corrected p-value: better, 0.016; only the words if there is no p-value."""
    return f"{verdict}, {p_value(p)}" if math.isfinite(p) else verdict


def count(value: float, digits: int = 0) -> str:
    """1234.5 as 1,234."""
    return _not_finite(value) or f"{value:z,.{digits}f}".replace("-", "−")


def counted(value: float, one: str, many: str = "") -> str:
    """A number with what it counts: 1 round, 1,234 rounds; 3 client passes.

    Args:
        value: the number.
        one: what is counted, of a single one.
        many: of several; by default with an "s" at the end.
    """
    text = count(value)
    return f"{text} {one if text == '1' else many or f'{one}s'}"


def in_words(names: Sequence[str]) -> str:
    """Names in a sentence: a; a and b; a, b and c. Names that contain a comma are separated by semicolons: a, or b; c; and d."""
    if len(names) > 2 and any(", " in name for name in names):
        return f"{'; '.join(names[:-1])}; and {names[-1]}"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def first_in_words(names: Sequence[str], most: int, others: str = "more row") -> str:
    """The first names as :func:`in_words` writes them, and how many more rows, or ``others``, there are.

    >>> first_in_words(["a", "b", "c"], 2), first_in_words(["a", "b"], 2)
    ('a, b and 1 more row', 'a and b')
    """
    more = len(names) - most
    return in_words([*names[:most], *([counted(more, others)] if more > 0 else [])])


def rounds(mean: float, reached: int = 0, seeds: int = 0) -> str:
    """A mean number of rounds: 16, or 16.5; 16.5 (2/3) if only 2 of 3 seeds reached the target."""
    return of_seeds(count(mean, 0 if not math.isfinite(mean) or float(mean).is_integer() else 1), reached, seeds)


def of_seeds(text: str, known: int, seeds: int) -> str:
    """A mean over the seeds that have a value, with their number if not all have one, such as the cost of a target: 2.1 MB (2/3)."""
    return f"{text} ({known}/{seeds})" if 0 < known < seeds else text


def about_of_seeds(numbers: Iterable[tuple[int, int]], did: str, where: str = "") -> str:
    """What the marks of :func:`of_seeds` mean, in a sentence; empty without marks.

    Args:
        numbers: for each mean, the number of seeds that have a value, and of all.
        did: what the seeds did that have one.
        where: what the marks are beside, with a space before it, if there are others.

    >>> about_of_seeds([(3, 3), (2, 3)], "reached it")
    '(2/3): 2 of 3 seeds reached it; the means cover only those.'
    """
    known, seeds = next(((known, seeds) for known, seeds in numbers if 0 < known < seeds), (0, 0))
    return f"({known}/{seeds}){where}: {known} of {seeds} seeds {did}; the means cover only those." if known else ""


def index(value: float) -> str:
    """An index between 0 and 1, such as Jain's: 0.872."""
    return _not_finite(value) or f"{value:.3f}"


def number(value: float, digits: int = 4) -> str:
    """Any number with four significant digits; with more digits before the point, and from 1,000 on, rounded to an integer: 1.438,
    209,600, −0.02. Huge numbers, such as losses of models that diverge, have an exponent: 1.755e+30."""
    if not math.isfinite(value):
        return _not_finite(value)
    whole = min(1000, 10**digits - 0.5) <= abs(value) < LARGEST_WHOLE
    text = f"{value:z,.0f}" if whole else f"{value:z.{digits}g}"
    return text.replace("-", "−")


def magnitude(value: float) -> str:
    """A number in a sentence, with three significant digits, and with an exponent from a million on: 81.2, 6,692, 2.37e+19."""
    return number(value, 3) if not 1e6 <= abs(value) < math.inf else f"{value:.3g}".replace("-", "−")


LONGEST_WHOLE = 1e9
"""From here on, means have an exponent in :func:`number_spread`: the errors of models that diverge can have 20 digits."""


def number_spread(mean: float, sd: float) -> str:
    """The mean of any numbers and their standard deviation: 1.438 ± 0.021; 1.438 if the deviation is unknown. Very large numbers have
    an exponent: 3.513e+15 ± 5.7e+15."""
    texts = [
        f"{value:.{digits}g}".replace("-", "−") if LONGEST_WHOLE <= abs(value) < math.inf else number(value, digits)
        for value, digits in ((mean, 4), (sd, 2))
    ]
    return " ± ".join(texts) if math.isfinite(sd) else texts[0]


def size(number_of_bytes: float) -> str:
    """1234567 bytes as 1.2 MB."""
    if unknown := _not_finite(number_of_bytes):
        return unknown
    for unit in ("B", "kB", "MB", "GB"):
        if number_of_bytes < 999.5:
            whole = unit == "B" or number_of_bytes >= 99.5
            return f"{number_of_bytes:.0f} {unit}" if whole else f"{number_of_bytes:.1f} {unit}"
        number_of_bytes /= 1000
    return f"{number_of_bytes:,.1f} TB"


def duration(seconds: float) -> str:
    """Wall time: 0.012 s, 3.1 s, 2:05 min, 1:02:05 h.

    >>> duration(0.0), duration(0.0001), duration(0.012), duration(0.0544), duration(0.12), duration(125)
    ('0.0 s', '<0.001 s', '0.012 s', '0.054 s', '0.1 s', '2:05 min')
    """
    if not math.isfinite(seconds):
        return _not_finite(seconds)
    if 0 < seconds < 0.0995:
        return f"{seconds:.3f} s" if seconds >= 0.0005 else "<0.001 s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes}:{left:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{left:02d} h"


def time_on(clock: str, value: float) -> str:
    """A time of a run's clock: 3,060 if it is ``simulated``, and 3.1 s if it is ``wall``."""
    return duration(value) if clock == "wall" else simulated_time(value)


def simulated_time(value: float) -> str:
    """A simulated time. Its unit is that of the laws of the clients' times, such as an hour: below 100, it has three significant
    digits, as in 14.2 or 0.0351; longer times are whole, as in 3,060."""
    return number(value, 3) if abs(value) < 99.95 else count(value)


def clock(seconds: float) -> str:
    """Remaining wall time in the form of a digital clock: 2:05, 1:02:05."""
    if not math.isfinite(seconds):
        return _not_finite(seconds)
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{left:02d}" if minutes >= 60 else f"{minutes}:{left:02d}"


def setting(value: object) -> str:
    """The value of a setting as an experiment file has it: 0.5, 20.0, 1e6, true, none; long lists as their number: 40 values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return large(value) or (f"{value:.1f}" if value.is_integer() else f"{value:.6g}")
    if isinstance(value, list) and len(str(value)) > LONGEST_LIST:
        return f"{len(value)} values"
    return "none" if value is None else str(value)


def large(value: float) -> str:
    """A whole number from a million on with an exponent, if that is exact: 1e6, 2.5e7. Empty for all others."""
    short = f"{value:.6g}".replace("e+0", "e").replace("e+", "e")
    return short if "e" in short and abs(value) >= 1e6 and float(short) == value else ""


def _not_finite(value: float) -> str:
    """The text of a number that is NaN or infinite; empty for all others."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return ""


def _json(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
