"""Models that stay on the host that trained them: only the means of groups, and models that are read, travel to the driver."""

from collections.abc import Callable, Mapping

from fedcohort.algorithms import ModelState
from fedcohort.engines.cluster.flat_arrays import ModelLayout
from fedcohort.engines.cluster.host_pool import Member
from fedcohort.engines.cluster.messages import Failed, TrainedGroup
from fedcohort.engines.cluster.ray_package import lost_errors, ray_module

__all__ = ["RemoteModels"]


class RemoteModels:
    """Implements :class:`fedcohort.algorithms.updates.ModelGroup` for models on a host.

    Args:
        engine: name of the engine on the hosts.
        number: number of the group.
        trained: what came back instead of the models.
        layout: where the entries of a model lie in its bytes.
        member: the host.
        again: trains the group again on another host, and returns that host; called if the host was lost, with the error that says so.
        weighed: called with each mean that is asked for: whether its weights are numbers of samples.
    """

    def __init__(
        self,
        engine: str,
        number: int,
        trained: TrainedGroup,
        layout: ModelLayout,
        member: Member,
        again: Callable[[Member, Exception], Member],
        weighed: Callable[[bool], None],
    ) -> None:
        self.size, self.num_bytes, self.mixed_with = len(trained.clients), layout.model_bytes, 0
        self._finite = [client.finite for client in trained.clients]
        samples = [float(client.words["num_samples"]) if client.has_model else 0.0 for client in trained.clients]
        self._samples = {position: number for position, number in enumerate(samples) if number}
        self._mean, self._weighed = trained.mean, weighed
        self._engine, self._number, self._layout, self._member, self._again = engine, number, layout, member, again

    def state_of(self, position: int) -> ModelState:
        """See :class:`~fedcohort.algorithms.updates.ModelGroup`."""
        return self._call("state", position)

    def is_finite(self, position: int) -> bool:
        """See :class:`~fedcohort.algorithms.updates.ModelGroup`."""
        return self._finite[position]

    def mean(self, weights: Mapping[int, float]) -> ModelState:
        """See :class:`~fedcohort.algorithms.updates.ModelGroup`."""
        self._weighed(all(weight == self._samples.get(position) for position, weight in weights.items()))
        if self._mean is not None and weights == self._samples:
            [state] = self._layout.states(self._mean)
            return state
        return self._call("mean", dict(weights))

    def _call(self, method: str, argument: object) -> ModelState:
        ray = ray_module()
        while True:
            try:
                row = ray.get(getattr(self._member.actor, method).remote(self._engine, self._number, argument))
            except lost_errors() as error:
                self._member = self._again(self._member, error)
                continue
            if isinstance(row, Failed):
                raise row.error()
            [state] = self._layout.states(row)
            return state
