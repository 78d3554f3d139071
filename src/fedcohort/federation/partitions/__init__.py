"""Partition rules, one file each. :data:`PARTITIONS` lists the names and their classes."""

from fedcohort.core.plugins import Table

__all__ = ["PARTITIONS"]

PARTITIONS = Table(
    kind="partition",
    group="fedcohort.partitions",
    defines=("assign", "min_size", "evens_out"),
    builtin={
        "iid": "fedcohort.federation.partitions.iid:Iid",
        "dirichlet_class": "fedcohort.federation.partitions.dirichlet_class:DirichletClass",
        "dirichlet_client": "fedcohort.federation.partitions.dirichlet_client:DirichletClient",
        "shards": "fedcohort.federation.partitions.shards:Shards",
        "random_fractions": "fedcohort.federation.partitions.random_fractions:RandomFractions",
        "dominant_class": "fedcohort.federation.partitions.dominant_class:DominantClass",
        "natural": "fedcohort.federation.partitions.natural:Natural",
        "quantity": "fedcohort.federation.partitions.quantity:Quantity",
        "given_counts": "fedcohort.federation.partitions.given_counts:GivenCounts",
        "given_sizes": "fedcohort.federation.partitions.given_sizes:GivenSizes",
    },
)
"""The names of all partitions of samples among clients."""
