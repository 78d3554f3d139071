"""The federation: data sets, their division among clients, and how clients differ in labels, features, speed and availability.

Write a partition, label noise, feature shift, latency law, network law or availability law of your own with the names of this
package: follow :class:`Rule`, or extend :class:`LabelNoise`, :class:`FeatureShift`, :class:`Latency`, :class:`Network` or
:class:`Availability`, and make the class a ``@parameters`` class. Modules are imported at the first use of one of their names.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.federation.partitions import PARTITIONS

if TYPE_CHECKING:
    from fedcohort.federation.availability import Availability, Presence
    from fedcohort.federation.data.datasets import Dataset, from_arrays
    from fedcohort.federation.data.load_dataset import load
    from fedcohort.federation.featureshift import FeatureShift, Space
    from fedcohort.federation.federation import Federation, Samples
    from fedcohort.federation.labelnoise import LabelNoise
    from fedcohort.federation.latency import Communication, Latency, Network, Times
    from fedcohort.federation.partition import Partition, Rule

__all__ = [
    "PARTITIONS", "Availability", "Card", "Communication", "Dataset", "FeatureShift", "Federation", "LabelNoise", "Latency",
    "Network", "Partition", "Presence", "Rule", "Samples", "Space", "Times", "from_arrays", "load", "parameters",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Availability": "availability:Availability",
        "Communication": "latency:Communication",
        "Dataset": "data.datasets:Dataset",
        "FeatureShift": "featureshift:FeatureShift",
        "Federation": "federation:Federation",
        "LabelNoise": "labelnoise:LabelNoise",
        "Latency": "latency:Latency",
        "Network": "latency:Network",
        "Partition": "partition:Partition",
        "Presence": "availability:Presence",
        "Rule": "partition:Rule",
        "Samples": "federation:Samples",
        "Space": "featureshift:Space",
        "Times": "latency:Times",
        "from_arrays": "data.datasets:from_arrays",
        "load": "data.load_dataset:load",
    },
)
