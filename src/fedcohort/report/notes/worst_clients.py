"""Name the tenth of the clients with the lowest accuracy: of at most ten clients, it is one client."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedcohort.core.words import formatted_values

if TYPE_CHECKING:
    from fedcohort.study.comparison import Comparison

__all__ = [
    "ABOUT_ONE",
    "ONE",
    "about_diverged",
    "about_worst",
    "in_comparison",
    "lowest_personal",
    "numbers_of_clients",
    "worst",
]

ONE = 10
"""Of at most this many clients, the worst tenth is a single client."""

ABOUT_ONE = f"Of at most {ONE} clients, the worst tenth is one client."
"""What :data:`ONE` means, in a sentence."""


def worst(clients: Iterable[int]) -> str:
    """What the worst tenth is called in tables and charts of runs with these numbers of clients.

    >>> worst([5, 10]), worst([5, 11])
    ('worst client', 'worst tenth')
    """
    return "worst client" if max(clients, default=0) <= ONE else "worst tenth"


def in_comparison(compared: "Comparison") -> str:
    """What the worst tenth is called in a comparison."""
    return worst(numbers_of_clients(compared))


def numbers_of_clients(compared: "Comparison") -> list[int]:
    """The number of clients with an accuracy in each run."""
    return [run.clients_with_data for i in range(len(compared.rows)) for run in compared.measured(i)]


def lowest_personal(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    """The lowest accuracy of a personal model in each row of the table of fairness."""
    return [float(row["personal_worst"].value) for row in rows]


def about_diverged(lowest: Iterable[float]) -> str:
    """A sentence with a space before it on personal models whose training diverged, from the lowest accuracies of personal models in
    each row; empty if none can have diverged.

    >>> about_diverged([0.4, 0.0]), about_diverged([0.4, -math.inf]), about_diverged([0.4])
    (' A personal model whose training diverged counts as 0%.', ' A personal model whose training diverged counts as −∞.', '')
    """
    counts_as = {0.0: "0%", -math.inf: "−∞"}
    found = next((counts_as[low] for low in lowest if low in counts_as), "")
    return f" A personal model whose training diverged counts as {found}." if found else ""


def about_worst(clients: Iterable[int]) -> str:
    """A sentence with a space before it, if the worst tenth is one client in some runs and several clients in others, or is not
    exactly a tenth. Clients without an accuracy do not count: they have no data, or hold out no samples.

    >>> about_worst([5, 20]), about_worst([5]), about_worst([20])
    (' Of at most 10 clients, the worst tenth is one client.', '', '')
    >>> about_worst([15, 15])
    ' Of 15 clients that were measured, the worst tenth is 2 clients.'
    """
    known = set(clients)
    if known and min(known) <= ONE < max(known):
        return f" {ABOUT_ONE}"
    if len(known) == 1 and (number := max(known)) > ONE and number % 10:
        measured = formatted_values.count(number)
        return f" Of {measured} clients that were measured, the worst tenth is {math.ceil(number / 10)} clients."
    return ""
