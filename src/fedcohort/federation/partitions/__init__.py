"""Partitions, one file a rule. :data:`PARTITIONS` says where each name comes from; nothing registers itself."""

from fedcohort.core.plugins import Table

__all__ = ["PARTITIONS"]

PARTITIONS = Table(
    kind="partition",
    group="fedcohort.partitions",
    builtin={
        "iid": "fedcohort.federation.partitions.iid:Iid",
        "dirichlet_class": "fedcohort.federation.partitions.dirichlet_class:DirichletClass",
        "dirichlet_client": "fedcohort.federation.partitions.dirichlet_client:DirichletClient",
        "shards": "fedcohort.federation.partitions.shards:Shards",
        "random_fractions": "fedcohort.federation.partitions.random_fractions:RandomFractions",
        "dominant_class": "fedcohort.federation.partitions.dominant_class:DominantClass",
        "natural": "fedcohort.federation.partitions.natural:Natural",
        "quantity": "fedcohort.federation.partitions.quantity:Quantity",
    },
)
