"""The schema of an experiment file: its sections, with their settings, limits and defaults."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, Field

from fedcohort.algorithms import ALGORITHMS, LOSSES
from fedcohort.core.parameters import NotInKey
from fedcohort.core.plugins import Table
from fedcohort.experiment.client_counts import KSteps
from fedcohort.experiment.device_names import device_name
from fedcohort.experiment.section_base import Choice, Section
from fedcohort.federation.partitions import PARTITIONS
from fedcohort.models import MODELS
from fedcohort.selection import STRATEGIES

if TYPE_CHECKING:
    from fedcohort import models
    from fedcohort.algorithms import Algorithm as AlgorithmClass
    from fedcohort.selection import Selector

__all__ = [
    "Algorithm", "Availability", "Choice", "Data", "Engine", "FeatureShift", "FederationSection", "LabelNoise", "Latency", "Loss",
    "Measures", "Model", "Network", "Partition", "Public", "Section", "Selection", "Systems", "Variant",
]  # fmt: skip


class Partition(Choice):
    """How training samples are divided among clients."""

    table: ClassVar[Table] = PARTITIONS
    name: str = "dirichlet_class"

    @property
    def is_natural(self) -> bool:
        """Whether clients of the data become the clients."""
        return self.name == "natural" or self.parameters.get("natural") is True


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
        base="fedcohort.federation.labelnoise:LabelNoise",
    )
    name: str = "none"


class FeatureShift(Choice):
    """Differences between clients in the features of their samples."""

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
        base="fedcohort.federation.featureshift:FeatureShift",
    )
    name: str = "none"


class Model(Choice):
    """The network."""

    table: ClassVar[Table] = MODELS
    name: str = "mlp"

    def build(self) -> "models.Model":
        """A new instance."""
        model: models.Model = super().build()
        return model


class Loss(Choice):
    """The loss that clients minimize."""

    table: ClassVar[Table] = LOSSES
    name: str = "ce"


class Algorithm(Choice):
    """How clients train and how the server combines their models."""

    table: ClassVar[Table] = ALGORITHMS
    name: str = "fedavg"

    def build(self) -> "AlgorithmClass":
        """A new instance."""
        algorithm: AlgorithmClass = super().build()
        return algorithm


class Selection(Choice):
    """Which clients are selected."""

    table: ClassVar[Table] = STRATEGIES
    name: str = "uniform"
    k: Annotated[int, Ge(1)] = 3
    """Clients to select per round; capped at the number of clients unless set."""
    k_steps: Annotated[KSteps, NotInKey(((),))] = ()
    """Changes of k, as pairs of a round and the number of clients from that round on: [[50, 5], [100, 2]]."""

    def build(self) -> "Selector":
        """A new instance."""
        selector: Selector = super().build()
        return selector


class Data(Section):
    """The data set."""

    name: str = "digits"
    """A built-in name, a Hub id (owner/name), a folder, a table (.csv, .parquet, .npz), a text ``….txt`` with lines ``ROLE: text``, or
    your own function (path/to/file.py:function)."""
    share: Annotated[float, Gt(0), Le(1), NotInKey((1.0,))] = 1.0
    """Share of the training samples to use, equal for every class. A small share makes a trial run fast. The samples are
    always the same."""
    classes: Annotated[int | None, Ge(2), NotInKey((None,))] = None
    """Number of classes to use, the first ones; samples of the others are left out, also of the test set. By default, all classes."""
    validation: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Share of the test set that becomes the server's validation set. It is used for rewards and early stopping, never for reports."""
    image_column: str | None = None
    """Column with the image, if the data set has several columns of images."""
    label_column: str | None = None
    """Column with the label, if the data set has several columns of labels. In a table: the column with the label, ``label`` by
    default."""
    client_column: Annotated[str | None, NotInKey((None,))] = None
    """Column of a table with the id of the client that a sample comes from; by default ``client``, if there is such a column."""
    feature_columns: Annotated[list[str] | None, NotInKey((None,))] = None
    """Columns of a table with features; by default all but those with label, client and split."""
    standardise: Annotated[bool | None, NotInKey((None,))] = None
    """Whether features enter the model with mean 0 and standard deviation 1 over the training samples of all clients, per channel of
    images and per column of tables. By default, built-in data sets and images in folders and on the Hub do; tables, your own functions
    and arrays from Python do not."""
    numeric: Annotated[bool, NotInKey((False,))] = False
    """Whether the labels of a table or of your own function are numbers, for regression; see ``training.loss``. Otherwise they are
    classes."""
    window: Annotated[int, Ge(1), Le(100_000), NotInKey((32,))] = 32
    """Number of characters of a sample, for texts (``dialogue``, ``dialogue_roles``, a file ``….txt``)."""
    task: Annotated[Literal["next", "role"], NotInKey(("next",))] = "next"
    """What a model predicts from a file ``….txt``: the next character at each position, or the role that speaks."""


class Public(Section):
    """Unlabeled samples at the server, for algorithms that distill knowledge between models."""

    name: str = "none"
    """none; holdout: a random part of the training samples, which no client gets under any algorithm; given: the samples passed as
    ``public`` in Python; or the training part of another data set (a name, a Hub id or a folder) with samples of the same shape.
    Labels are discarded."""
    share: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Size of the holdout, as a share of the training samples."""

    @property
    def words(self) -> str:
        """Where the public samples come from, as the record states it."""
        if self.name == "none":
            return "none"
        if self.name == "holdout":
            return (
                f"holdout: a random {self.share:.4g} of the training samples, taken from the clients, labels discarded; "
                "of the clients' own distribution, an advantage over samples from elsewhere"
            )
        return f"proxy: {self.name}, labels discarded"


class FederationSection(Section):
    """The clients and their data."""

    clients: Annotated[int, Ge(1)] = 12
    """Number of clients (m)."""
    partition: Partition = Partition()
    label_noise: LabelNoise = LabelNoise()
    holdout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of each client's data that the client never trains on and keeps for validation or calibration; drawn once, after label
    noise."""
    feature_shift: FeatureShift = FeatureShift()


class Latency(Choice):
    """How long clients take to compute."""

    table: ClassVar[Table] = Table(
        "latency law",
        "fedcohort.latencies",
        {
            "shifted_exponential": "fedcohort.federation.latency:ShiftedExponential",
            "given_times": "fedcohort.federation.given_times:GivenTimes",
        },
        base="fedcohort.federation.latency:Latency",
    )
    name: str = "shifted_exponential"


class Availability(Choice):
    """Which clients are available in which round."""

    table: ClassVar[Table] = Table(
        "availability law",
        "fedcohort.availabilities",
        {
            "always": "fedcohort.federation.availability:Always",
            "bernoulli": "fedcohort.federation.availability:Bernoulli",
            "markov": "fedcohort.federation.availability:Markov",
            "diurnal": "fedcohort.federation.availability:Diurnal",
            "trace": "fedcohort.federation.availability:Trace",
            "given_shares": "fedcohort.federation.availability:GivenShares",
        },
        base="fedcohort.federation.availability:Availability",
    )
    name: str = "always"


class Network(Choice):
    """How long clients take to communicate."""

    table: ClassVar[Table] = Table(
        "network law",
        "fedcohort.networks",
        {
            "share": "fedcohort.federation.latency:Share",
            "lognormal": "fedcohort.federation.latency:LogNormalBandwidth",
            "given_times": "fedcohort.federation.given_times:GivenNetwork",
        },
        base="fedcohort.federation.latency:Network",
    )
    name: str = "share"


class Systems(Section):
    """The speed and availability of clients, and how long the server waits."""

    latency: Latency = Latency()
    availability: Availability = Availability()
    network: Network = Network()
    dropout: Annotated[float, Ge(0), Le(1)] = 0.0
    """Probability that a selected client fails before it sends its update."""
    deadline: Annotated[float, Gt(0)] | None = None
    """Simulated time after which the server stops waiting (T_max). Slower clients are late, and the round lasts until the deadline."""
    overcommit: Annotated[float, Ge(1), Le(1_000_000)] = 1.0
    """Over-commitment factor (c): ⌈c·k⌉ clients are selected, the server waits for the k fastest, and the others are late."""
    idle_time: Annotated[float, Ge(0)] = 0.0
    """Simulated time that passes in a round without available clients."""


class Engine(Section):
    """Where and how training runs. Only the plans ``stacked`` and ``means``, the threads per client, the device and the arithmetic
    change results, through rounding."""

    name: Annotated[Literal["local", "ray"], NotInKey()] = "local"
    """local: clients are trained in threads of this process; ray: on the hosts of a Ray cluster, with the same results (needs
    ``pip install 'fedcohort[ray]'``)."""
    plan: Annotated[Literal["auto", "loop", "threads", "stacked", "means"], NotInKey(("auto", "loop", "threads"))] = (
        "threads"
    )
    """loop: one client after another; threads: one client per thread, with bit-identical results; stacked: several clients in each
    call, with results equal up to rounding, and several times faster for small models (clients that may stop early train one by one);
    means: models stay on the hosts of a cluster, which send the means of blocks of clients, with results equal up to rounding; auto:
    the plan that is fastest in a measurement on this machine, which the record then states (``threads`` on a cluster)."""
    workers: Annotated[int, Ge(0), NotInKey()] = 0
    """Number of threads, or of hosts of a cluster, each of which trains one client at a time; 0 means one per core, or one per
    ``threads_per_client`` cores."""
    threads_per_client: Annotated[int, Ge(1), NotInKey((1,))] = 1
    """Number of intra-op threads of PyTorch with which a client is trained. If a round has fewer clients than there are cores, large
    networks are faster with more than one. Each number has results of its own, through rounding. Only for the plans ``threads`` and
    ``loop`` on CPUs; ``auto`` then means ``threads``."""
    address: Annotated[str, NotInKey()] = ""
    """Address of the Ray cluster, such as ``10.0.0.5:6379``; empty means a private cluster on this machine. Only for ``ray``."""
    patience: Annotated[float, Gt(0), NotInKey()] = 600.0
    """Seconds that a run waits for a host when none is left. Only for ``ray``."""
    device: Annotated[str, AfterValidator(device_name)] = "cpu"
    """Where tensors are stored: cpu; cuda: a GPU; cuda:N: the GPU with number N, from 0; mps: the GPU of a Mac; auto: a GPU if torch
    sees one through CUDA, which the record then states. With several GPUs, cuda divides the runs of ``--jobs`` among them. On a
    cluster, cuda means one GPU for each host. A run on cuda:1 is the same run as one on cuda."""
    arithmetic: Annotated[Literal["exact", "tf32", "bf16"], NotInKey(("exact",))] = "exact"
    """How products are rounded. exact: to the experiment's precision; tf32: GPU products with 10-bit inputs; bf16: networks run in
    bfloat16. The last two change results. They are faster on GPUs that support them; bf16 is also faster on a CPU that does, for
    large networks."""


class Measures(Section):
    """What is measured and how it is reported."""

    evaluate_every: Annotated[int, Ge(1)] = 1
    """Number of rounds between evaluations on the test set; the last round is always evaluated."""
    clients_every: Annotated[int, Ge(0), NotInKey((0,))] = 0
    """Number of rounds between evaluations of the global model on each client's own data; the last round is always evaluated, and 0
    means never. With ``federation.holdout``, each client uses its held-out samples, and a client without any has no result; otherwise
    it uses its training samples. If the data set says which test samples are a client's, these are used instead, in every evaluation
    on the test set. Strategies do not see the results, and the record counts no cost."""
    personal_epochs: Annotated[int, Ge(0), NotInKey((0,))] = 0
    """Local epochs after which the global model is measured on each client's own data, as its personal model: on its test samples
    if the data set says which they are, otherwise on its held-out samples,
    or on a fifth of its samples, without which it is then fine-tuned. 0 means never. Nothing else in the run changes."""
    personal_every: Annotated[int, Ge(0), NotInKey((0,))] = 0
    """Rounds between measurements of personal models; the last round is always measured, and 0 means only that one."""
    extra: Annotated[list[str], NotInKey(([],))] = Field(default_factory=list)
    """Own measures: functions in files, such as ``["my.py:f1"]``. After each evaluation on the test set, each is called with the
    predictions, float64 [samples, classes], and the labels [samples], and returns one number. Strategies do not see the results."""
    target_accuracy: Annotated[Annotated[float, Gt(0), Le(1)] | None, NotInKey()] = None
    """Target test accuracy, to which rounds, time and bytes are counted; by default a level that the mean best accuracy of every row
    of a comparison reaches, without the rows that fail."""
    patience: Annotated[int, Ge(1), NotInKey()] = 100
    """Number of rounds without a better validation accuracy after which early stopping would end a run. All rounds are played; *early
    stop* in results is the test accuracy that a run stopped in this way would give."""
    checkpoint_every: Annotated[int, Ge(0), NotInKey()] = 0
    """Rounds between checkpoints; a killed run resumes after the last checkpoint. 0 leaves it to ``checkpoint_seconds``."""
    checkpoint_seconds: Annotated[float, Ge(0), NotInKey()] = 1.0
    """Least number of seconds between checkpoints, and between writes of rounds to the record, if ``checkpoint_every`` is 0.
    Checkpoints take at most 2% of the time. With 0, every round is written with its checkpoint, as it always is if clients train on
    other machines."""
    durable_seconds: Annotated[float, Ge(0), NotInKey()] = 5.0
    """Least number of seconds between durable checkpoints; after a power loss, a run resumes after the last of them. 0 makes every
    checkpoint durable; any other number limits the cost to 2% of the time."""


class Variant(Section):
    """A named row of a comparison: its label and the settings that differ from the base."""

    label: str
    overrides: dict[str, Any] = Field(default_factory=dict)
