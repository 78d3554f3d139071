"""The contract of an engine's answers and evaluations."""

import math
import threading

import numpy as np

from fedcohort.algorithms import ModelState
from fedcohort.core.errors import UsageError
from fedcohort.engines.base import Engine
from fedcohort.selection import Cohort, GradientNorm, LocalAccuracy, LocalLoss, UpdateNorm
from fedcohort.testing.base import (
    HEALTHY,
    ControlVariates,
    require,
)
from fedcohort.testing.updates import alike_updates, trained
from fedcohort.training.evaluation import Evaluation
from fedcohort.training.trial_training import norm_of_update

__all__ = ["check_answers", "check_evaluation"]


def check_answers(engine: Engine, model: ModelState) -> None:
    """Check that answers have the right form, do not depend on other clients, and agree with the training that follows."""
    clients = np.array(HEALTHY)
    losses = engine.answer(model, 1, LocalLoss(), clients)
    fine = losses.dtype == np.float64 and losses.shape == clients.shape
    require(fine, f"answer: {losses.dtype} {list(losses.shape)}, not float64 {list(clients.shape)}")
    alone = engine.answer(model, 1, LocalLoss(), clients[3:4])
    require(alone.tolist() == losses[3:4].tolist(), "answer: a client that is asked alone gives a different answer")
    require(
        engine.answer(model, 1, LocalLoss(), clients[:0]).shape == (0,),
        "answer: no client was asked, so there must be no answer",
    )
    accuracies = engine.answer(model, 1, LocalAccuracy(), clients)
    require(
        bool(((accuracies >= 0) & (accuracies <= 1)).all()), f"answer: accuracies {accuracies}; must be within [0, 1]"
    )
    norms = engine.answer(model, 1, GradientNorm(), clients)
    require(
        bool((np.isfinite(norms) & (norms > 0)).all()),
        f"answer: norms of gradients {norms}; must be finite and above 0",
    )
    for algorithm in (ControlVariates(), None):
        trial = engine.answer(model, 1, UpdateNorm(), clients, algorithm)
        require(trial.shape == (len(clients), 2), f"answer: {list(trial.shape)}, not two numbers for each client")
        updates = engine.train(model, 1, Cohort(clients), algorithm or ControlVariates())
        sent = [[norm_of_update(update, model, sorted(engine.trainable)), update.passes] for update in updates]
        require(
            trial.tolist() == sent,
            f"answer: norms and passes {trial.tolist()} differ from those of the updates, {sent}",
        )
    batch, later = (engine.answer(model, t, LocalLoss(batch=3), clients) for t in (1, 2))
    require(batch.tolist() != later.tolist(), "answer: rounds 1 and 2 drew the same mini-batches")


def check_evaluation(engine: Engine, model: ModelState) -> None:
    """Check that evaluations count every sample of the two sets, and refuse other sets."""
    for split, size in (("validation", 40), ("test", 150)):
        evaluation = engine.evaluate(model, split)
        total = evaluation.total
        fine = total.shape == (3,) and total.sum() == size and (evaluation.right <= total).all()
        require(
            fine and math.isfinite(evaluation.loss),
            f"evaluate({split!r}): must count {size} samples by class and have a finite loss, not {evaluation}",
        )
    _check_evaluation_beside(engine, model)
    try:
        engine.evaluate(model, "train")
    except UsageError:
        return
    raise AssertionError("evaluate('train'): must be a UsageError; only 'validation' and 'test' exist")


def _check_evaluation_beside(engine: Engine, model: ModelState) -> None:
    """Check that an evaluation in the background uses its own model, and does not affect other work."""
    expected, updates = engine.evaluate(model, "test"), trained(engine, model, 1, HEALTHY)
    other = {name: value + 1 if value.is_floating_point() else value for name, value in model.items()}
    beside, unread = engine.evaluate_beside(model, "test"), engine.evaluate_beside(other, "validation")
    engine.answer(other, 1, LocalLoss(), np.array(HEALTHY))
    asked: list[threading.Thread] = []

    def meanwhile() -> bool:
        asked.append(threading.current_thread())
        return False

    engine.meanwhile = meanwhile
    require(
        alike_updates(trained(engine, model, 1, HEALTHY), updates), "evaluate_beside: changed the results of training"
    )
    require(
        set(asked) <= {threading.current_thread()},
        "meanwhile: called by a thread other than the one that reads the updates",
    )
    engine.meanwhile = lambda: False
    require(_same_numbers(beside(), expected), "evaluate_beside: differs from evaluate")
    require(beside.done(), "evaluate_beside: gave its result, but says that it is not done")
    require(_same_numbers(beside(), expected), "evaluate_beside: a second call gives a different result")
    require(_same_numbers(unread(), engine.evaluate(other, "validation")), "evaluate_beside: mixed up two models")
    _check_predictions(engine.evaluate_beside(model, "test", predictions=True)(), expected)


def _check_predictions(actual: Evaluation, expected: Evaluation) -> None:
    """Check the predictions of an evaluation, and that asking for them changes nothing else."""
    predictions, labels = actual.predictions, actual.labels
    fine = predictions is not None and labels is not None and predictions.shape == (len(labels), len(expected.total))
    require(
        fine and _same_numbers(actual, expected) and bool(np.allclose(np.sum(predictions, axis=1), 1)),  # type: ignore[arg-type]
        "evaluate_beside(…, predictions=True): must have a probability of each class for every sample, and its label",
    )
    right = np.bincount(labels[np.argmax(predictions, axis=1) == labels], minlength=len(expected.right))  # type: ignore[index,arg-type]
    require(right.tolist() == expected.right.tolist(), "evaluate_beside: its predictions do not give its accuracy")


def _same_numbers(actual: Evaluation, expected: Evaluation) -> bool:
    same: bool = actual.loss == expected.loss and (actual.right == expected.right).all()
    return same and bool((actual.total == expected.total).all())
