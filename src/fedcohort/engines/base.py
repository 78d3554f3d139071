"""The contract of an engine, which trains clients, asks them questions and evaluates models. All engines give the same results."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from fedcohort.algorithms import Algorithm, ModelState, Update
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.selection import Cohort, Question
from fedcohort.training.evaluation import Evaluation

__all__ = ["ClientError", "Engine", "Later", "MayLackAnswers", "OwnClientError", "check_split", "naming_client"]


class ClientError(RuntimeError):
    """A client's training or answer raised an error; the message names the client, and the cause is chained."""


class OwnClientError(ClientError, UsageError):
    """A :class:`ClientError` that is not a bug of FedCohort, such as an error in the user's code. Its message also names the round,
    the file and the line."""

    def __init__(self, message: str) -> None:
        UsageError.__init__(self, message)  # the one of ClientError would not make the message one line


@contextmanager
def naming_client(client: int) -> Iterator[None]:
    """Raise errors in this block, which works for ``client``, as :class:`ClientError`."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
        raise ClientError(f"client {client}: {kind}{error}") from error


class Later(Protocol):
    """An evaluation that may not be finished yet."""

    def __call__(self) -> Evaluation:
        """Wait for the result and return it."""

    def done(self) -> bool:
        """Whether the evaluation is finished."""


class Engine(Protocol):
    """Trains clients, asks them questions and evaluates models.

    ``algorithm`` is the run's algorithm. Its client half may run in another process; its server half stays with the caller.

    Attributes:
        meanwhile: short work that the caller wants to do while clients train. The thread that takes updates from :meth:`train` calls
            it while it waits for the next update, and again after a moment if it returned True. An engine may ignore it.
    """

    meanwhile: Callable[[], bool]

    @property
    def trainable(self) -> frozenset[str]:
        """Names of the model's trainable parameters; norms and similarities of updates use only these."""

    def initial_model(self) -> ModelState:
        """The model before the first round; for one seed it is the same whatever the strategy.

        Models have the entries of the network's state dictionary that clients receive and send. Frozen parameters are none of them.
        """

    def whole(self, model: ModelState) -> ModelState:
        """The network's state dictionary with the weights of ``model``, and with the entries that models do not have."""

    def train(self, model: ModelState, t: int, cohort: Cohort, algorithm: Algorithm) -> Iterator[Update]:
        """Train the cohort in round ``t`` from ``model``; yields updates in the order of the cohort.

        The update of a client that has no result has ``failure`` set. An error in the client's own code is raised.
        """

    def commit(self, admitted: Iterable[int]) -> None:
        """Give these clients, whose updates of the last round were admitted, their new memory; all others keep the old one."""

    def answer(
        self, model: ModelState, t: int, question: Question, clients: Indices, algorithm: Algorithm | None = None
    ) -> Values:
        """The clients' answers, float64 [n] or [n, question.numbers]; NaN for a client without an answer.

        In a question that needs a training, clients receive what ``algorithm`` broadcasts. Models and memories do not change.
        """

    def evaluate(self, model: ModelState, split: str) -> Evaluation:
        """Evaluate ``model`` on the server's ``"validation"`` or ``"test"`` set."""

    def evaluate_beside(self, model: ModelState, split: str, *, predictions: bool = False) -> Later:
        """Like :meth:`evaluate`, without waiting: the work may be done at the same time as the training that follows.

        A call of the returned object waits for the result. With ``predictions``, it has the predictions and the labels as well.
        """

    def state_dict(self) -> Mapping[str, Any]:
        """The clients' memories, for the checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memories that :meth:`state_dict` returned."""

    def close(self) -> None:
        """Release threads, processes and memory."""


@runtime_checkable
class MayLackAnswers(Protocol):
    """An engine whose clients can refuse a question, or fail to answer it.

    Attributes:
        unanswered: clients that gave no answer to the last question; they computed and sent nothing that the server can use.
    """

    unanswered: frozenset[int]


def check_split(split: str) -> None:
    """Refuse a name that is not one of the server's two sets.

    Raises:
        UsageError: ``split`` is not ``"validation"`` or ``"test"``.
    """
    if split not in ("validation", "test"):
        raise UsageError(f"split = {split!r}: valid are 'validation' and 'test'")
