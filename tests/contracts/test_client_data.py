"""Every label noise and feature shift fulfills its contract, and the checks detect rules that do not."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcohort.core.parameters import make, parameters
from fedcohort.experiment.sections import FeatureShift as FeatureShiftSection
from fedcohort.experiment.sections import LabelNoise as LabelNoiseSection
from fedcohort.federation import FeatureShift, LabelNoise
from fedcohort.testing import check_feature_shift, check_label_noise

NOISES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in LabelNoiseSection.table if name != "none"),
    ("beta", {"a": 0.0}),
    ("beta", {"a": 100.0, "flip": "pairflip"}),
    ("constant", {"flip": "asymmetric_cifar10", "rate": 0.5}),
    ("some_clients", {"bernoulli": True}),
]
SHIFTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in FeatureShiftSection.table if name != "none"),
    ("gauss", {"sigma": 0.0}),
    ("dead_pixels", {"share": 1.0}),
]


@pytest.mark.parametrize(("name", "values"), NOISES)
def test_every_label_noise_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    check_label_noise(partial(make, LabelNoiseSection.table.find(name, "label_noise"), values, "label_noise"))


@pytest.mark.parametrize(("name", "values"), SHIFTS)
def test_every_feature_shift_fulfills_the_contract(name: str, values: dict[str, Any]) -> None:
    rule = partial(make, FeatureShiftSection.table.find(name, "feature_shift"), values, "feature_shift")
    check_feature_shift(rule)
    check_feature_shift(rule, shape=(3, 6, 6))


def test_a_flip_matrix_fits_the_number_of_classes() -> None:
    found = LabelNoiseSection.table.find("constant", "label_noise")
    noise = partial(make, found, {"flip": "matrix", "matrix": [[0.9, 0.1], [0.0, 1.0]]}, "label_noise")
    check_label_noise(noise, num_classes=2)
    with pytest.raises(
        AssertionError, match=r"raised UsageError: federation\.label_noise\.matrix: is 2×2, but the data have 10"
    ):
        check_label_noise(noise)


def test_a_flip_matrix_is_checked_without_the_post_init_of_the_base_class() -> None:
    @parameters
    class Own(LabelNoise):
        """A rule that does not call the method of its base class."""

        def __post_init__(self) -> None:
            self.rate = 0.2

        def rates(self, num_clients: int, rng: Any) -> Any:
            return np.full(num_clients, self.rate)

    check_label_noise(Own)
    with pytest.raises(AssertionError, match=r"federation\.label_noise\.matrix: required with flip = 'matrix'"):
        check_label_noise(lambda: Own(flip="matrix"))


def noise(rates: Callable[[Any, int, Any], Any]) -> type[LabelNoise]:
    """A rule with this method ``rates(self, num_clients, rng)``."""

    @parameters
    class Own(LabelNoise):
        """A rule."""

        def rates(self, num_clients: int, rng: Any) -> Any:
            return rates(self, num_clients, rng)

    return Own


def drawn_once(self: Any, m: int, rng: Any) -> Any:
    if not hasattr(self, "_rates"):
        self._rates = rng.uniform(0, 1, m)
    return self._rates


def more_each_time(self: Any, m: int, rng: Any) -> Any:
    self._uses = getattr(self, "_uses", 0) + 1
    return np.full(m, 0.1 * self._uses)


WRONG_NOISES: list[tuple[Any, str]] = [
    (lambda self, m, rng: [0.1] * m, r"Own\.rates returned list; it must return \[6\]"),
    (lambda self, m, rng: 0.1, r"Own\.rates returned float"),
    (lambda self, m, rng: np.full(m, 0.1).astype(object), r"Own\.rates returned object; it must return floats"),
    (lambda self, m, rng: np.full(6, 0.1), r"1 clients, seed 0: raised UsageError: .*returned \[6\]; it must return \[1\]"),
    (lambda self, m, rng: rng.uniform(0, 30, m), r"client 0 has the rate .*; rates are in \[0, 1\]"),
    (lambda self, m, rng: np.arange(m) / (m - 1), "1 clients, seed 0: raised .*has the rate nan; rates are in"),
    (lambda self, m, rng: rng.normal(0, 0.1, m), r"has the rate -0\.\d+; rates are in"),
    (lambda self, m, rng: np.random.uniform(0, 1, m), "draws from numpy.random; draw from the argument rng"),  # noqa: NPY002
    (lambda self, m, rng: np.random.default_rng().uniform(0, 1, m), "another rule gave other rates; draw from rng only"),
    (drawn_once, "6 clients, seed 1: a rule that was used before gave other rates"),
    (more_each_time, "6 clients, seed 1: a rule that was used before gave other rates; draw from rng only, and keep nothing on self"),
]  # fmt: skip


@pytest.mark.parametrize(("rates", "message"), WRONG_NOISES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_wrong_label_noises_are_found(rates: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own, .*{message}"):
        check_label_noise(noise(rates))


def one_each(self: Any, clients: Any, space: Any, rng: Any) -> Any:
    return rng.uniform(0, 1, len(clients))


def darker(samples: Any, drawn: Any, rng: Any) -> Any:
    return samples * drawn.reshape(-1, *[1] * (samples.ndim - 1)).astype(samples.dtype)


def shift(change: Callable[..., Any] = darker, draw: Callable[..., Any] = one_each, words: Any = None) -> type:
    """A rule with these methods."""

    @parameters
    class Own(FeatureShift):
        """A rule."""

        images_only: ClassVar[bool] = False

        def draw(self, clients: Any, space: Any, rng: Any) -> Any:
            return draw(self, clients, space, rng)

        def change(self, samples: Any, drawn: Any, space: Any, rng: Any) -> Any:
            return change(samples, drawn, rng)

        def words(self, drawn: Any) -> Any:
            return [""] * len(drawn) if words is None else words

    return Own


def kept(self: Any, clients: Any, space: Any, rng: Any) -> Any:
    self._kept = getattr(self, "_kept", 0.0) + 0.1
    return np.full(len(clients), self._kept)


WRONG_SHIFTS: list[tuple[dict[str, Any], str]] = [
    ({"change": lambda x, drawn, rng: None}, "change returned None; it must return the shifted samples"),
    ({"change": lambda x, drawn, rng: x[:1]}, r"change returned float(32|64) \[1, .*; it must return the shifted samples"),
    ({"change": lambda x, drawn, rng: np.log(x - x)}, "change returned samples that are not finite"),
    ({"change": lambda x, drawn, rng: x - x.mean()}, "change: changes a sample otherwise if other samples are given"),
    ({"change": lambda x, drawn, rng: x + np.random.default_rng().normal()}, "another rule gave other samples; draw from rng"),
    ({"change": lambda x, drawn, rng: x + np.random.normal()}, "draws from numpy.random; draw from the argument rng"),  # noqa: NPY002
    ({"change": lambda x, drawn, rng: darker(x, drawn[:, 0], rng)}, r"raised IndexError: .*test_client_data\.py"),
    ({"draw": lambda self, clients, space, rng: 0.5}, r"draw, clients \[0, 1, 2, 3, 4, 5\] of 6: returned float; return an array"),
    (
        {"draw": lambda self, clients, space, rng: rng.uniform(0, 1, space.num_clients)},
        r"draw, clients \[3, 4\] of 6: returned \[6\]; return an array with one entry for each given client",
    ),
    ({"draw": lambda self, clients, space, rng: np.random.default_rng().normal(size=len(clients))}, "the same generator gave other"),
    ({"draw": kept}, "the same generator gave other numbers; draw from rng only, and keep nothing on self"),
    ({"words": ["dark"]}, r"words: raised UsageError: .*words returned \['dark'\]; it must return a list of one text for each of 6"),
]  # fmt: skip


@pytest.mark.parametrize(("methods", "message"), WRONG_SHIFTS)
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_wrong_feature_shifts_are_found(methods: dict[str, Any], message: str) -> None:
    check_feature_shift(shift())
    with pytest.raises(AssertionError, match=rf"^Own.*{message}"):
        check_feature_shift(shift(**methods))


def test_a_shift_that_refuses_the_samples_is_given_others() -> None:
    rotate = FeatureShiftSection.table.find("rotate", "feature_shift")
    with pytest.raises(
        AssertionError, match=r"^Rotate: refuses samples of the shape \(1, 4, 6\); give another: .*square"
    ):
        check_feature_shift(rotate, shape=(1, 4, 6))
