"""The names of algorithms and losses in experiment files, and the class that each name stands for."""

from fedcohort.core.plugins import Table

__all__ = ["ALGORITHMS", "LOSSES"]

ALGORITHMS = Table(
    kind="algorithm",
    group="fedcohort.algorithms",
    base="fedcohort.algorithms:Algorithm",
    builtin={
        "fedsgd": "fedcohort.algorithms.fedsgd:FedSGD",
        "fedavg": "fedcohort.algorithms.fedavg:FedAvg",
        "fedprox": "fedcohort.algorithms.fedprox:FedProx",
        "fednova": "fedcohort.algorithms.fednova:FedNova",
        "scaffold": "fedcohort.algorithms.scaffold:Scaffold",
        "fedavgm": "fedcohort.algorithms.fedavgm:FedAvgM",
        "fedadagrad": "fedcohort.algorithms.fedadagrad:FedAdagrad",
        "fedadam": "fedcohort.algorithms.fedadam:FedAdam",
        "fedyogi": "fedcohort.algorithms.fedyogi:FedYogi",
        "median": "fedcohort.algorithms.median:Median",
        "trimmed_mean": "fedcohort.algorithms.trimmed_mean:TrimmedMean",
        "krum": "fedcohort.algorithms.krum:Krum",
        "feddf": "fedcohort.algorithms.feddf:FedDF",
        "fedbio": "fedcohort.algorithms.fedbio:FedBiO",
        "rhfl": "fedcohort.algorithms.rhfl:RHFL",
        "centralised": "fedcohort.algorithms.centralised:Centralised",
    },
)
"""The names of all algorithms, and of those that installed packages add."""

LOSSES = Table(
    kind="loss",
    group="fedcohort.losses",
    base="fedcohort.algorithms.losses:Loss",
    builtin={
        "ce": "fedcohort.algorithms.losses:CrossEntropy",
        "robust": "fedcohort.algorithms.losses:Robust",
        "sl": "fedcohort.algorithms.losses:SymmetricLearning",
        "sce": "fedcohort.algorithms.losses:SymmetricCrossEntropy",
        "double_softmax": "fedcohort.algorithms.losses:DoubleSoftmax",
        "mse": "fedcohort.algorithms.losses:SquaredError",
        "huber": "fedcohort.algorithms.losses:Huber",
    },
)
"""The names of all losses of local training."""
