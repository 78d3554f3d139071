"""Where the work runs. The same inputs give the same results on every engine."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.selection import Cohort, Question
from fedcohort.training.forward import Evaluation

__all__ = ["ClientError", "Engine", "Later"]


class ClientError(RuntimeError):
    """A client's training or answer raised an error; the message names the client, the cause is chained."""


class Later(Protocol):
    """An evaluation that is worked out beside something else."""

    def __call__(self) -> Evaluation:
        """The result, which is waited for."""
        ...

    def done(self) -> bool:
        """Whether there is nothing to wait for."""
        ...


class Engine(Protocol):
    """Trains clients, asks them questions and evaluates models.

    ``algorithm`` is the run's; its client half may live elsewhere, its server half stays with the caller.

    Attributes:
        meanwhile: something short that the caller would like to do while clients train: called, by the thread that takes updates from
            :meth:`train`, when it has to wait for the next one; again after a moment if it returns True. An engine may leave it.
    """

    meanwhile: Callable[[], bool]

    @property
    def trainable(self) -> frozenset[str]:
        """Names of the model's trainable parameters; norms and similarities of updates use these only."""
        ...

    def initial_model(self) -> ModelState:
        """The model before the first round, the same under one seed whatever the strategy."""
        ...

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """Train the cohort in round ``t`` from ``model``; updates stream out in cohort order.

        A client that fails in the field comes back with ``failure`` set. An error in the client's own code is raised.
        """
        ...

    def commit(self, admitted: Iterable[int]) -> None:
        """The server admitted these clients' updates of the last round: they keep their new memory, the others their old."""
        ...

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        """One row a client, float64 [n] or [n, question.numbers]; NaN where nobody answered.

        A question that trains receives what ``algorithm`` broadcasts, and leaves models and memories as they were.
        """
        ...

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """``model`` on the server's ``"validation"`` or ``"test"`` set."""
        ...

    def evaluate_beside(self, model: ModelState, split: str) -> Later:
        """The same without waiting: the work may be done beside the training that follows. The result of a call is that of
        :meth:`evaluate`."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """The clients' memories, for the checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        ...

    def close(self) -> None:
        """Give back threads, processes and memory."""
        ...


def check_split(split: str) -> None:
    """Only the server's two sets can be evaluated."""
    if split not in ("validation", "test"):
        raise UsageError(f"split = {split!r}: valid are 'validation' and 'test'")
