"""Federated algorithms: one file per algorithm, with its client half and its server half.

Write an algorithm of your own with the names of this package: extend :class:`Algorithm`, make the class a ``@parameters`` class,
and give it a :class:`Card`. :data:`ALGORITHMS` and :data:`LOSSES` list the built-in names in experiment files; the classes of the
built-in algorithms, such as :class:`FedProx`, are in this package, too. Modules are imported at the first use of one of their names.
"""

from typing import TYPE_CHECKING

from fedcohort.algorithms.catalogue import ALGORITHMS, LOSSES
from fedcohort.core.lazy import lazy_names
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card

if TYPE_CHECKING:
    from fedcohort.algorithms.base import Algorithm, Correction, WeightMode
    from fedcohort.algorithms.local_problem import Problem, per_client
    from fedcohort.algorithms.losses import Loss
    from fedcohort.algorithms.methods.centralised import Centralised
    from fedcohort.algorithms.methods.fedadagrad import FedAdagrad
    from fedcohort.algorithms.methods.fedadam import FedAdam
    from fedcohort.algorithms.methods.fedavg import FedAvg
    from fedcohort.algorithms.methods.fedavgm import FedAvgM
    from fedcohort.algorithms.methods.fedbio import FedBiO
    from fedcohort.algorithms.methods.feddf import FedDF
    from fedcohort.algorithms.methods.fednova import FedNova
    from fedcohort.algorithms.methods.fedprox import FedProx
    from fedcohort.algorithms.methods.fedsgd import FedSGD
    from fedcohort.algorithms.methods.fedyogi import FedYogi
    from fedcohort.algorithms.methods.krum import Krum
    from fedcohort.algorithms.methods.median import Median
    from fedcohort.algorithms.methods.rhfl import RHFL
    from fedcohort.algorithms.methods.scaffold import Scaffold
    from fedcohort.algorithms.methods.trimmed_mean import TrimmedMean
    from fedcohort.algorithms.server_tools import ServerTools
    from fedcohort.algorithms.training_settings import Training
    from fedcohort.algorithms.updates import Members, ModelState, Tensors, Update
    from fedcohort.algorithms.weighted_means import RunningMean, blend

__all__ = [
    "ALGORITHMS", "LOSSES", "RHFL", "Algorithm", "Card", "Centralised", "Correction", "FedAdagrad", "FedAdam",
    "FedAvg", "FedAvgM", "FedBiO", "FedDF", "FedNova", "FedProx", "FedSGD", "FedYogi", "Krum", "Loss", "Median", "Members",
    "ModelState",
    "Problem", "RunningMean", "Scaffold", "ServerTools", "Tensors", "Training", "TrimmedMean", "Update", "WeightMode", "blend",
    "parameters", "per_client",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Algorithm": "base:Algorithm",
        "Correction": "base:Correction",
        "Loss": "losses:Loss",
        "Members": "updates:Members",
        "ModelState": "updates:ModelState",
        "Problem": "local_problem:Problem",
        "RunningMean": "weighted_means:RunningMean",
        "ServerTools": "server_tools:ServerTools",
        "Tensors": "updates:Tensors",
        "Training": "training_settings:Training",
        "Update": "updates:Update",
        "WeightMode": "base:WeightMode",
        "blend": "weighted_means:blend",
        "per_client": "local_problem:per_client",
        **ALGORITHMS.locations_by_class(),
    },
)
