"""Given times: every client needs as long as a table says, to compute and to communicate. All times are simulated."""

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.federation.latency import Communication, Latency, Network, Times

__all__ = ["GivenNetwork", "GivenTimes", "check_one_each"]


@parameters
class GivenTimes(Latency):
    """Every client has a given computation time. It is the same in every round, and does not depend on the client's number of
    samples.

    ``fedcohort advise`` makes such a law of the times in a table of clients. The law is ours.
    """

    times_of_clients: list[Annotated[float, Gt(0)]]
    """Time of each client for the nominal work of a round, in any unit, such as [12.5, 40.0] seconds for two clients."""

    def times(self, num_samples: Indices, seed: int) -> Times:
        """See :class:`Latency`."""
        check_one_each("systems.latency.times_of_clients", len(self.times_of_clients), len(num_samples))
        times = np.array(self.times_of_clients)
        return lambda _: times

    def least(self, num_samples: Indices, seed: int) -> Values:
        """See :class:`Latency`."""
        return self.times(num_samples, seed)(0)


@parameters
class GivenNetwork(Network):
    """Every client has a given time to receive and send a model. The latency law gives the computation time only.

    T_i = tl_i + tc_i, where tc_i is proportional to the bytes that are sent and received. The law is ours.
    """

    times_of_clients: list[Annotated[float, Ge(0)]]
    """Time of each client for one model down and one up, in the unit of the latency law, such as [3.0, 0.5] for two clients."""

    def split(self, num_clients: int, seed: int, nominal_bytes: int) -> Communication:
        """See :class:`Network`."""
        check_one_each("systems.network.times_of_clients", len(self.times_of_clients), num_clients)
        nominal = np.array(self.times_of_clients)

        def split(times: Values, clients: Indices, sent: Values) -> tuple[Values, Values]:
            sending = nominal[clients] * (sent / nominal_bytes if nominal_bytes else np.ones(len(clients)))
            return times + sending, sending

        return split


def check_one_each(setting: str, given: int, num_clients: int) -> None:
    """Refuse a list of times with another length than the number of clients.

    Raises:
        UsageError: it has.
    """
    if given != num_clients:
        raise UsageError(
            f"{setting}: has {given} times, one for each client, and federation.clients = {num_clients}; give {num_clients}"
        )
