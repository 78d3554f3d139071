"""Take clients that join between rounds into the strategy of a run."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from fedcohort.flower.deployed.deployable import check_trains, without_histogram
from fedcohort.flower.deployed.site_roster import KnownClient, MetSite, SiteRoster
from fedcohort.selection import Selector
from fedcohort.selection.joining import extend_or_restore

__all__ = ["JoiningClients"]


class JoiningClients:
    """Gives joining clients the free seats of the census; the number of seats is fixed when the run begins.

    Args:
        selector: the strategy, after ``setup``.
        roster: the clients so far.
    """

    def __init__(self, selector: Selector, roster: SiteRoster) -> None:
        self._selector, self._roster = selector, roster

    def __call__(self, site: MetSite, clients: Sequence[KnownClient]) -> None:
        """Take in the new clients of a site.

        Args:
            site: the site.
            clients: its new clients, in the order of their numbers.

        Raises:
            UsageError: the site does not allow what the run needs, or the strategy cannot take in clients; nothing has changed.
        """
        selector, first = self._selector, len(self._roster.clients)
        check_trains(site)
        census = selector.census
        sizes, histogram = census.num_samples.copy(), None if census.histogram is None else census.histogram.copy()
        for seat, client in enumerate(clients, first):
            sizes[seat] = client.num_samples
            if histogram is not None:
                if client.histogram is None:
                    raise without_histogram(selector, site.name)
                histogram[seat] = np.array(client.histogram, dtype=np.int64)
        extend_or_restore(selector, dataclasses.replace(census, num_samples=sizes, histogram=histogram))
