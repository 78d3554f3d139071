"""How sure a run's final model is: conformal prediction sets, calibrated on the validation set and measured on the test set."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.measures.conformal import (
    PredictionSets,
    calibrate,
    coverage_quantiles,
    coverage_range,
    judge,
    prediction_sets,
)
from fedcohort.record import Run
from fedcohort.runs.given import Given
from fedcohort.runs.prepare import federate

if TYPE_CHECKING:
    from fedcohort.federation.federation import Samples

__all__ = ["Conformal", "Predictions", "conformal", "predict"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of a set of samples.

    Attributes:
        probabilities: of each class for each sample, float64 [n, K].
        labels: the right classes, int64 [n].
    """

    probabilities: Values
    labels: Indices


def predict(run: Run, given: Given) -> tuple[Predictions, Predictions]:
    """What the final model of a run says of the server's validation and test sets.

    Args:
        run: the run.
        given: what the run was given in Python in place of names.

    Raises:
        UsageError: the run is not finished, or was made on other data.
    """
    from safetensors.torch import load_file

    from fedcohort.core.threads import one_thread
    from fedcohort.engines.local import build_module
    from fedcohort.models import as_model
    from fedcohort.training.forward import probabilities
    from fedcohort.training.shared import DTYPES

    experiment = run.experiment
    if not run.finished:
        raise UsageError(f"{run.path}: is not finished and has no final model yet; `fedcohort run` goes on with it")
    found = federate(experiment, given)
    if found.public.fingerprint != run.meta["data"]:
        raise UsageError(
            f"{run.path}: was made on other data than {experiment.data.name!r} now gives; restore the data"
        )
    federation, dtype = found.federation, DTYPES[experiment.training.precision]
    model = as_model(given.model) if given.model is not None else experiment.model.build()
    module = build_module(model, federation, experiment.seed).to(dtype=dtype)
    module.load_state_dict(load_file(run.path / "model.safetensors"))
    module.eval()

    def says(samples: "Samples") -> Predictions:
        with one_thread():
            return Predictions(probabilities(module, federation, dtype, samples), samples.labels.numpy())

    return says(federation.validation), says(federation.test)


@dataclass(frozen=True)
class Conformal:
    """Prediction sets of a run's model.

    Attributes:
        alpha: the error rate that was asked for.
        threshold: the largest score 1 − p_y that enters a set; inf where too few samples calibrate.
        sets: coverage, mean size and share of empty sets on the test set.
        expected: where the coverage lies on average over calibration sets.
        likely: where it lies for nine calibration sets in ten, of as many samples as this one.
        num_calibration: samples that calibrated.
    """

    alpha: float
    threshold: float
    sets: PredictionSets
    expected: tuple[float, float]
    likely: tuple[float, float]
    num_calibration: int

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
    data: Any = None,
    model: Any = None,
    data_dir: str | Path | None = None,
    public: Any = None,
) -> Conformal:
    """Split conformal prediction with a finished run's model: calibrated on the server's validation set, measured on its test set.

    Args:
        run: the run.
        alpha: error rate, in (0, 1).
        data, model, public: what the run was given in Python in place of names, as for :func:`fedcohort.run`.
        data_dir: a local mirror of data sets in Hub layout.

    Raises:
        UsageError: the run is not finished, or has no validation set.
    """
    validation, test = predict(run, Given(data=data, model=model, data_dir=data_dir, public=public))
    if not len(validation.labels):
        raise UsageError("data.validation = 0: there is nothing to calibrate on; run with 0.1, say")
    threshold = calibrate(validation.probabilities, validation.labels, alpha)
    low, high = coverage_quantiles(alpha, len(validation.labels))
    return Conformal(
        alpha=alpha,
        threshold=threshold,
        sets=judge(prediction_sets(test.probabilities, threshold), test.labels),
        expected=coverage_range(alpha, len(validation.labels)),
        likely=(low, high),
        num_calibration=len(validation.labels),
    )
