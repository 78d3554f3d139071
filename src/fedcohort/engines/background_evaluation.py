"""An evaluation that is computed in pieces, at the same time as other work."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from fedcohort.training.evaluation import Evaluation, sum_up

__all__ = ["EvaluationPiece", "PendingEvaluation"]


@dataclass(eq=False)
class EvaluationPiece:
    """A piece of an evaluation; a call computes it.

    Attributes:
        work: evaluates the piece, block by block.
        result: result of the work, once it is done.
    """

    work: Callable[[], list[Evaluation]]
    result: Future[list[Evaluation]] = field(default_factory=Future)

    def __call__(self) -> None:
        try:
            self.result.set_result(self.work())
        except BaseException as error:
            self.result.set_exception(error)


@dataclass(frozen=True)
class PendingEvaluation:
    """Implements :class:`fedcohort.engines.base.Later`.

    Attributes:
        pieces: the pieces of the evaluation.
        begin: begins all pieces that no thread has begun.
        num_outputs: number of outputs of the model.
    """

    pieces: list[EvaluationPiece]
    begin: Callable[[], None]
    num_outputs: int

    def __call__(self) -> Evaluation:
        self.begin()
        return sum_up([block for piece in self.pieces for block in piece.result.result()], self.num_outputs)

    def done(self) -> bool:
        """Whether all pieces are done."""
        return all(piece.result.done() for piece in self.pieces)
