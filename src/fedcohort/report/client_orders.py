"""Describe the clients by what readers of a page can order them by: size, largest class, and how often each was selected."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcohort.report.charts.shown_clients import Clients, drawn_clients
from fedcohort.report.data.report_data import Reading, Story

__all__ = ["client_orders"]


def client_orders(story: Story, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """For each seed, the clients that charts show and the numbers that order them; empty if the runs did not record their clients.

    Of each seed: ``place`` (position of each client in the lists, by its number), ``size``, ``class`` (number of its largest class),
    ``share`` (share of this class), ``times`` (how often it was selected, by label of the row) and ``selected`` (the mean of these).
    If the points of a sweep have different clients, there is an entry for each seed and federation: ``0`` for the first federation
    under seed 0, and ``0~1`` for the second.
    """
    orders = {}
    for seed in seeds:
        own = story.at_seed(seed)
        for number in range(max(story.federation_of_point, default=0) + 1):
            readings = own.in_federation(number)
            clients = next((found for one in readings if (found := Clients.of(one.portrait, seed)) is not None), None)
            if clients is not None:
                rows = [(reading.label, reading) for reading in readings]
                orders[f"{seed}~{number}" if number else str(seed)] = _order(clients, rows)
    return orders


def _order(clients: Clients, rows: Sequence[tuple[str, Reading]]) -> dict[str, object]:
    """The numbers that order the clients of one seed."""
    shown = drawn_clients(clients)
    counts = clients.facts.get("counts", np.zeros((clients.number, 1), np.int64))[shown]
    times = {label: reading.selected.times[shown] for label, reading in rows if reading.num_clients == clients.number}
    return {
        "place": {str(client): i for i, client in enumerate(shown.tolist())},
        "size": clients.facts["samples"][shown].tolist(),
        "class": counts.argmax(axis=1).tolist(),
        "share": np.round(counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1), 4).tolist(),
        "times": {label: own.tolist() for label, own in times.items()},
        "selected": np.round(np.mean([*times.values()] or [np.zeros(len(shown), np.int64)], axis=0), 2).tolist(),
    }
