"""Federated algorithms, one file each, client half and server half. :data:`ALGORITHMS` says where each name comes from."""

from fedcohort.plugins import Table

__all__ = ["ALGORITHMS"]

ALGORITHMS = Table(
    kind="algorithm",
    group="fedcohort.algorithms",
    builtin={
        "fedsgd": "fedcohort.algorithms.fedsgd:FedSGD",
        "fedavg": "fedcohort.algorithms.fedavg:FedAvg",
    },
)
