"""Federated algorithms, one file each, client half and server half. :data:`ALGORITHMS` and
:data:`LOSSES` say where each name comes from."""

from fedcohort.plugins import Table

__all__ = ["ALGORITHMS", "LOSSES"]

ALGORITHMS = Table(
    kind="algorithm",
    group="fedcohort.algorithms",
    builtin={
        "fedsgd": "fedcohort.algorithms.fedsgd:FedSGD",
        "fedavg": "fedcohort.algorithms.fedavg:FedAvg",
    },
)

LOSSES = Table(
    kind="loss",
    group="fedcohort.losses",
    builtin={
        "ce": "fedcohort.algorithms.losses:CrossEntropy",
        "robust": "fedcohort.algorithms.losses:Robust",
        "sl": "fedcohort.algorithms.losses:SymmetricLearning",
        "sce": "fedcohort.algorithms.losses:SymmetricCrossEntropy",
        "double_softmax": "fedcohort.algorithms.losses:DoubleSoftmax",
    },
)
