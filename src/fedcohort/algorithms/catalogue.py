"""The names of algorithms and losses in experiment files, and the class that each name stands for."""

from fedcohort.core.plugins import Table

__all__ = ["ALGORITHMS", "LOSSES"]

ALGORITHMS = Table(
    kind="algorithm",
    group="fedcohort.algorithms",
    base="fedcohort.algorithms:Algorithm",
    builtin={
        "fedsgd": "fedcohort.algorithms.methods.fedsgd:FedSGD",
        "fedavg": "fedcohort.algorithms.methods.fedavg:FedAvg",
        "fedprox": "fedcohort.algorithms.methods.fedprox:FedProx",
        "fednova": "fedcohort.algorithms.methods.fednova:FedNova",
        "scaffold": "fedcohort.algorithms.methods.scaffold:Scaffold",
        "fedavgm": "fedcohort.algorithms.methods.fedavgm:FedAvgM",
        "fedadagrad": "fedcohort.algorithms.methods.fedadagrad:FedAdagrad",
        "fedadam": "fedcohort.algorithms.methods.fedadam:FedAdam",
        "fedyogi": "fedcohort.algorithms.methods.fedyogi:FedYogi",
        "median": "fedcohort.algorithms.methods.median:Median",
        "trimmed_mean": "fedcohort.algorithms.methods.trimmed_mean:TrimmedMean",
        "krum": "fedcohort.algorithms.methods.krum:Krum",
        "feddf": "fedcohort.algorithms.methods.feddf:FedDF",
        "fedbio": "fedcohort.algorithms.methods.fedbio:FedBiO",
        "rhfl": "fedcohort.algorithms.methods.rhfl:RHFL",
        "centralised": "fedcohort.algorithms.methods.centralised:Centralised",
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
