"""Conformal prediction sets of a run's final model, calibrated on the validation set and measured on the test set.

With numeric labels, the sets are intervals: the score of a sample is its absolute residual |y − ŷ|.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.experiment import load
from fedcohort.experiment.given_objects import Given
from fedcohort.measures.conformal import (
    PredictionSets,
    absolute_residuals,
    calibrate,
    coverage_quantiles,
    coverage_range,
    measure_intervals,
    measure_sets,
    prediction_sets,
    quantile,
)
from fedcohort.record import Run
from fedcohort.runs.prepare_run import federate, model_of

if TYPE_CHECKING:
    from fedcohort.federation.federation import Samples

__all__ = ["Conformal", "Predictions", "conformal", "predict"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a model for a set of samples.

    Attributes:
        probabilities: probability of each class for each sample, float64 [n, K]; predicted numbers [n, 1] if labels are numbers, in
            their units.
        labels: the right classes, int64 [n], or numbers, float64 [n].
    """

    probabilities: Values
    labels: "Indices | Values"


def predict(run: Run, given: Given, *, trust: bool = False) -> tuple[Predictions, Predictions]:
    """The predictions of a run's final model for the server's validation and test sets.

    Args:
        run: the run.
        given: the objects from Python that the run was started with.
        trust: run the plug-in files in the run directory.

    Raises:
        UsageError: the run is not finished, its data have changed, or it has plug-in files and ``trust`` is not set.
    """
    from safetensors.torch import load_file

    from fedcohort.core.threads import one_thread
    from fedcohort.engines.initial_network import build_module
    from fedcohort.training.evaluation import probabilities
    from fedcohort.training.networks.model_states import DTYPES

    if not run.finished:
        raise UsageError(f"{run.path}: is not finished and has no final model yet; `fedcohort run` resumes it")
    experiment = load(run.path / "experiment.toml", trust=trust)
    federated = federate(experiment, given)
    if federated.public.fingerprint != run.meta["data"]:
        raise UsageError(
            f"{run.path}: its data differ from those that data.name = {experiment.data.name!r} has now; restore the data"
        )
    federation, dtype = federated.federation, DTYPES[experiment.training.precision]
    module = build_module(model_of(experiment, given), federation, experiment.seed).to(dtype=dtype)
    module.load_state_dict(load_file(run.path / "model.safetensors"))
    module.eval()

    def predictions(samples: "Samples") -> Predictions:
        with one_thread():
            outputs, labels = probabilities(module, federation, dtype, samples), samples.labels.numpy().ravel()
        if federation.numbers is None:
            return Predictions(outputs, labels)
        return Predictions(federation.numbers.in_units(outputs), federation.numbers.in_units(labels))

    return predictions(federation.validation), predictions(federation.test)


@dataclass(frozen=True)
class Conformal:
    """Prediction sets of a run's model.

    Attributes:
        alpha: the target error rate.
        threshold: the largest score in a set, 1 − p_y of a class, or |y − ŷ| of a number; inf with too few calibration samples.
        sets: coverage, mean size and share of empty sets on the test set; the size of an interval is its length.
        expected: range of the mean coverage over calibration sets.
        likely: range of the coverage for 90% of the calibration sets of this size, on a very large test set; on a small one, it varies
            more.
        num_calibration: number of calibration samples.
        labels: ``classes``, or ``numbers``, whose sets are intervals in the units of the labels.
    """

    alpha: float
    threshold: float
    sets: PredictionSets
    expected: tuple[float, float]
    likely: tuple[float, float]
    num_calibration: int
    labels: str = "classes"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **asdict(self),
            "sets": self.sets._asdict(),
            "expected": list(self.expected),
            "likely": list(self.likely),
        }


def conformal(
    run: Run,
    alpha: float = 0.1,
    *,
    data_dir: str | Path | None = None,
    trust: bool = False,
) -> Conformal:
    """Split conformal prediction with a finished run's model, calibrated on the server's validation set and measured on its test set.

    The score of a class is 1 − its probability, and that of a number is the absolute residual |y − ŷ|.

    Args:
        run: the run.
        alpha: target error rate, in (0, 1).
        data_dir: a local mirror of data sets in the layout of the Hugging Face Hub.
        trust: run the plug-in files in the run directory: the clients, the data and the model are built again.

    Raises:
        UsageError: the run is not finished, has no validation set, or has plug-in files and ``trust`` is not set.
    """
    validation, test = predict(run, Given(data_dir=data_dir), trust=trust)
    if not len(validation.labels):
        raise UsageError(
            "data.validation = 0: there are no samples to calibrate on; run the experiment with data.validation = 0.1"
        )
    if run.labels == "numbers":
        threshold = quantile(absolute_residuals(validation.probabilities, validation.labels), alpha)
        sets = measure_intervals(test.probabilities, test.labels, threshold)
    else:
        threshold = calibrate(validation.probabilities, validation.labels, alpha)
        sets = measure_sets(prediction_sets(test.probabilities, threshold), test.labels)
    low, high = coverage_quantiles(alpha, len(validation.labels))
    return Conformal(
        alpha=alpha,
        threshold=threshold,
        sets=sets,
        expected=coverage_range(alpha, len(validation.labels)),
        likely=(low, high),
        num_calibration=len(validation.labels),
        labels=run.labels,
    )
