"""The schema: every section of an experiment file, with its settings, limits and defaults."""

import copy
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field

from fedcohort.algorithms import ALGORITHMS, LOSSES
from fedcohort.core.plugins import Table
from fedcohort.federation.partitions import PARTITIONS
from fedcohort.models import MODELS
from fedcohort.selection import STRATEGIES

__all__ = [
    "Algorithm",
    "Availability",
    "Choice",
    "Data",
    "Engine",
    "FeatureShift",
    "FederationSection",
    "LabelNoise",
    "Latency",
    "Loss",
    "Measures",
    "Model",
    "Network",
    "Partition",
    "Public",
    "Section",
    "Selection",
    "Systems",
    "Variant",
]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )


class Choice(Section):
    """A plug-in by name, with its parameters; in TOML they stand side by side in one table."""

    table: ClassVar[Table]
    name: str
    """Which one."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Its parameters, complete."""

    def build(self) -> Any:
        """A new instance."""
        return self.table.find(self.name, type(self).__name__.lower())(**copy.deepcopy(self.parameters))


class Partition(Choice):
    """How training samples are spread over clients."""

    table: ClassVar[Table] = PARTITIONS
    name: str = "dirichlet_class"


class LabelNoise(Choice):
    """Wrong labels in the clients' data."""

    table: ClassVar[Table] = Table(
        "label noise",
        "fedcohort.label_noises",
        {
            "none": "fedcohort.federation.labelnoise:NoLabelNoise",
            "beta": "fedcohort.federation.labelnoise:Beta",
            "constant": "fedcohort.federation.labelnoise:Constant",
            "some_clients": "fedcohort.federation.labelnoise:SomeClients",
        },
    )
    name: str = "none"


class FeatureShift(Choice):
    """Clients whose samples look different."""

    table: ClassVar[Table] = Table(
        "feature shift",
        "fedcohort.feature_shifts",
        {
            "none": "fedcohort.federation.featureshift:NoFeatureShift",
            "gauss": "fedcohort.federation.featureshift:Gauss",
            "rotate": "fedcohort.federation.featureshift:Rotate",
            "brightness_contrast": "fedcohort.federation.featureshift:BrightnessContrast",
            "dead_pixels": "fedcohort.federation.featureshift:DeadPixels",
        },
    )
    name: str = "none"


class Model(Choice):
    """The network."""

    table: ClassVar[Table] = MODELS
    name: str = "mlp"


class Loss(Choice):
    """What clients minimise."""

    table: ClassVar[Table] = LOSSES
    name: str = "ce"


class Algorithm(Choice):
    """How clients learn and results merge."""

    table: ClassVar[Table] = ALGORITHMS
    name: str = "fedavg"


class Selection(Choice):
    """Which clients take part."""

    table: ClassVar[Table] = STRATEGIES
    name: str = "uniform"
    k: Annotated[int, Ge(1)] = 3
    """Clients per round; where nothing is said and there are fewer, all of them."""


class Data(Section):
    """The data set."""

    name: str = "digits"
    """An embedded name, a Hub id (owner/name), or a folder."""
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the training samples that is used, of each class the same, always the same ones; less makes a trial quick."""
    validation: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Share of the test set that becomes the server's validation set: rewards and early stopping see it, reports never do."""
    image_column: str | None = None
    """Column with the image, where the data set has several."""
    label_column: str | None = None
    """Column with the label, where the data set has several."""


class Public(Section):
    """Unlabelled samples at the server, for algorithms whose models teach each other on them."""

    name: str = "none"
    """none; holdout: a random part of the training samples, which no client gets, whatever the algorithm; or another data set (a name,
    a Hub id or a folder) with samples of the same shape, whose training part is used; given: what Python hands over as ``public``.
    Labels are discarded."""
    share: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Size of the holdout, as a share of the training samples."""

    @property
    def words(self) -> str:
        """What the record says of it."""
        if self.name == "none":
            return "none"
        if self.name == "holdout":
            return (
                f"holdout: a random {self.share:.4g} of the training samples, taken from the clients, labels discarded; "
                "of the clients' own distribution, an advantage over samples from elsewhere"
            )
        return f"proxy: {self.name}, labels discarded"


class FederationSection(Section):
    """Who the clients are."""

    clients: Annotated[int, Ge(1)] = 12
    """Number of clients (m)."""
    partition: Partition = Partition()
    label_noise: LabelNoise = LabelNoise()
    holdout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of each client's data that it keeps for validation or calibration and never trains on; drawn once, after label noise."""
    feature_shift: FeatureShift = FeatureShift()


class Latency(Choice):
    """How long clients compute."""

    table: ClassVar[Table] = Table(
        "latency law",
        "fedcohort.latencies",
        {"shifted_exponential": "fedcohort.federation.latency:ShiftedExponential"},
    )
    name: str = "shifted_exponential"


class Availability(Choice):
    """Which clients are there in which round."""

    table: ClassVar[Table] = Table(
        "availability law",
        "fedcohort.availabilities",
        {
            "always": "fedcohort.federation.availability:Always",
            "bernoulli": "fedcohort.federation.availability:Bernoulli",
            "markov": "fedcohort.federation.availability:Markov",
            "diurnal": "fedcohort.federation.availability:Diurnal",
            "trace": "fedcohort.federation.availability:Trace",
        },
    )
    name: str = "always"


class Network(Choice):
    """How much of a client's time is communication."""

    table: ClassVar[Table] = Table(
        "network law",
        "fedcohort.networks",
        {
            "share": "fedcohort.federation.latency:Share",
            "lognormal": "fedcohort.federation.latency:LogNormalBandwidth",
        },
    )
    name: str = "share"


class Systems(Section):
    """How fast clients are, whether they are there, and for whom the server waits."""

    latency: Latency = Latency()
    availability: Availability = Availability()
    network: Network = Network()
    dropout: Annotated[float, Ge(0), Le(1)] = 0.0
    """Probability with which a selected client fails before it sends its update."""
    deadline: Annotated[float, Gt(0)] | None = None
    """Simulated time after which the server waits no longer (T_max): slower clients are late, and the round lasts that long."""
    overcommit: Annotated[float, Ge(1)] = 1.0
    """Clients invited per client wanted (c): ⌈c·k⌉ take part, the k fastest count, and the others are late."""
    idle_time: Annotated[float, Ge(0)] = 0.0
    """Simulated time that passes in a round in which nobody is available."""


class Engine(Section):
    """Where the work runs. The plan ``stacked``, the device and the arithmetic change results, by rounding; nothing else does."""

    plan: Literal["auto", "loop", "threads", "stacked"] = "threads"
    """loop: one client after another; threads: one client per thread, the same bits; stacked: a group of clients in each call, the
    same to rounding, and several times as fast for small models (clients that a rule stops early go one by one); auto: the fastest by
    measurement on this machine, which the run keeps."""
    workers: Annotated[int, Ge(0)] = 0
    """Threads; 0 means one per core."""
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Where tensors live: cpu; cuda, a GPU; auto: a GPU where there is one. The run keeps which."""
    arithmetic: Literal["exact", "tf32", "bf16"] = "exact"
    """How products are rounded: exact, to the experiment's precision; tf32: GPU products with 10-bit inputs; bf16: networks run in
    bfloat16. The last two are faster on GPUs that have them, and other results."""


class Measures(Section):
    """What is measured, and how it is reported."""

    evaluate_every: Annotated[int, Ge(1)] = 1
    """Evaluate the test set every so many rounds, and after the last."""
    clients_every: Annotated[int, Ge(0)] = 0
    """Evaluate the global model on every client's own data every so many rounds, and after the last: on the part it holds out where
    there is one, else on its training data; 0 for never. No strategy sees it or pays for it."""
    target_accuracy: Annotated[float, Gt(0), Le(1)] | None = None
    """Test accuracy for rounds-, time- and bytes-to-accuracy; by default what every row of a comparison reaches."""
    patience: Annotated[int, Ge(1)] = 100
    """Rounds without a better validation accuracy after which early stopping would have stopped."""
    checkpoint_every: Annotated[int, Ge(1)] = 1
    """Rounds between checkpoints; a killed run goes on after the last one."""


class Variant(Section):
    """A named row of a comparison: what it changes in the base."""

    label: str
    overrides: dict[str, Any] = Field(default_factory=dict)
