"""Models: networks by name, and what makes a model of a user's own network."""

from fedcohort.models.base import Model
from fedcohort.models.given_models import AnyModel, as_model
from fedcohort.models.network_checks import check_network, refuse_complex, refuse_lazy
from fedcohort.models.networks import (
    MODELS,
    CnnA,
    CnnB,
    CnnStrided,
    Logistic,
    Mlp,
    ResNet18,
    parameters,
)
from fedcohort.models.repeated_builds import built_repeatably

__all__ = [
    "MODELS",
    "AnyModel",
    "CnnA",
    "CnnB",
    "CnnStrided",
    "Logistic",
    "Mlp",
    "Model",
    "ResNet18",
    "as_model",
    "built_repeatably",
    "check_network",
    "parameters",
    "refuse_complex",
    "refuse_lazy",
]
