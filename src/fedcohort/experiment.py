"""The description of a run: TOML and Python both end up here, checked by one schema.

An :class:`Experiment` is complete (every default is filled in), strict (an unknown key is an error) and hashable (the hash names
its run). Variants, sweeps and seeds expand into :class:`Cell`\\ s, each a single experiment that is one run.
"""

import copy
import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedcohort.algorithms import ALGORITHMS, LOSSES
from fedcohort.algorithms.local import Training
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.parameters import explain, make
from fedcohort.core.plugins import Table, is_file_name, short_name
from fedcohort.federation.partitions import PARTITIONS
from fedcohort.models import MODELS
from fedcohort.selection import STRATEGIES

__all__ = ["Cell", "Choice", "Experiment", "Variant", "load"]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )


class Choice(_Section):
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


class Data(_Section):
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


class Public(_Section):
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


class FederationSection(_Section):
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


class Systems(_Section):
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


class Engine(_Section):
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


class Measures(_Section):
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


class Variant(_Section):
    """A named row of a comparison: what it changes in the base."""

    label: str
    overrides: dict[str, Any] = Field(default_factory=dict)


class Experiment(_Section):
    """Everything that decides a run. Unknown keys, wrong types and impossible combinations are :class:`UsageError`\\ s.

    >>> Experiment(rounds=5, selection={"name": "all"}).selection.name
    'all'
    """

    name: str = "quickstart"
    """Names the run directories; decides nothing."""
    rounds: Annotated[int, Ge(1), Le(10_000_000)] = 20
    """Rounds of federated training (n)."""
    seed: Annotated[int, Ge(0)] = 0
    """First seed; everything random follows from it."""
    seeds: Annotated[int, Ge(1), Le(10_000)] = 3
    """Repetitions, with seeds seed, seed + 1, …"""
    data: Data = Data()
    public: Public = Public()
    federation: FederationSection = FederationSection()
    systems: Systems = Systems()
    model: Model = Model()
    training: Training = Training()
    algorithm: Algorithm = Algorithm()
    selection: Selection = Selection()
    engine: Engine = Engine()
    measures: Measures = Measures()
    variants: tuple[Variant, ...] = ()
    """Named rows that override anything; the base is the first row."""
    sweep: dict[str, list[Any]] = Field(default_factory=dict)
    """Dotted key → list of values; the grid of all combinations, for every row."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**_complete(values))
        except ValidationError as error:
            raise explain(error, "", type(self)) from None
        k, m = self.selection.k, self.federation.clients
        given = values.get("selection")
        if k > m and not isinstance(given, Selection) and not (isinstance(given, Mapping) and "k" in given):
            object.__setattr__(self, "selection", self.selection.model_copy(update={"k": m}))  # nobody asked for more
        elif k > m:
            raise UsageError(f"selection.k = {k}: more than federation.clients = {m}; use 1 to {m}")
        for section in ("selection", "algorithm"):
            choice: Choice = getattr(self, section)
            self.meet(choice.build().needs, repr(choice.name))
        for key, choices in self.sweep.items():
            if not choices:
                raise UsageError(f"sweep.{key} = []: give at least one value")
            if any(choices.count(choice) > 1 for choice in choices):
                raise UsageError(f"sweep.{key} = {choices!r}: the same value stands twice")
            if key.partition(".")[0] in _NOT_IN_ROWS:
                raise UsageError(f"sweep.{key}: cannot differ between rows; set it once for the experiment")
        if self.variants or self.sweep:
            self.rows()

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> "Experiment":
        """From the description that a run keeps, which was complete and right when it was written: built-in plug-ins are not imported
        to check their parameters again, so that records are read without torch."""
        found = cls.__new__(cls)
        try:
            BaseModel.__init__(found, **_complete(values, recorded=True))
        except ValidationError as error:
            raise explain(error, "", cls) from None
        return found

    def ours(self) -> list[str]:
        """Names of the strategy and the algorithm, as far as they are our reading or design, not published methods."""
        named = [
            (section.name, section.table.find(section.name, "name")) for section in (self.selection, self.algorithm)
        ]
        cards = [(name, getattr(plugged, "card", None)) for name, plugged in named]
        return [name for name, card in cards if card is not None and card.status == "ours"]

    def meet(self, needs: frozenset[str], who: str) -> None:
        """Check that there is what a strategy or an algorithm says it needs.

        Raises:
            UsageError: there is not; names the parameter, and ``who`` needs it.
        """
        if "validation" in needs and self.data.validation == 0:
            raise UsageError(f"data.validation = 0: {who} needs a validation set; use 0.1, say")
        if "holdout" in needs and self.federation.holdout == 0:
            raise UsageError(f"federation.holdout = 0: {who} needs a held-out part of each client's data; use 0.2, say")
        if "public" in needs and self.public.name == "none":
            raise UsageError(
                f"public.name = 'none': {who} needs public samples; use 'holdout', another data set of the same shape, "
                "or 'given' with public=… in Python"
            )

    def to_dict(self) -> dict[str, Any]:
        """The complete description as plain values, in the shape of the TOML file."""
        values = self.model_dump(exclude={"variants", "training"})
        values["training"] = asdict(self.training)
        for section in ("model", "algorithm", "selection"):
            values[section] = _flat(values[section])
        for section in ("partition", "label_noise", "feature_shift"):
            values["federation"][section] = _flat(values["federation"][section])
        for section in ("latency", "availability", "network"):
            values["systems"][section] = _flat(values["systems"][section])
        values["variants"] = [{"label": row.label, **copy.deepcopy(row.overrides)} for row in self.variants]
        ordered = {key: values[key] for key in type(self).model_fields}
        return {key: value for key, value in ordered.items() if value or key not in ("variants", "sweep")}

    def to_toml(self) -> str:
        """The complete description as TOML; reading it back gives an equal experiment."""
        import tomli_w

        return tomli_w.dumps(_without_none(self.to_dict()))

    def own_files(self) -> list[Path]:
        """The users' own files that plug-ins come from."""
        found = {name.rpartition(":")[0] for name in _strings(self.to_dict()) if is_file_name(name)}
        return [Path(name) for name in sorted(found)]

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Experiment":
        """A new experiment with nested values replaced; a new name in a plugged section drops the old one's parameters."""
        return Experiment(**_merge(self.to_dict(), overrides, where=""))

    def single(self, seed: int) -> "Experiment":
        """This experiment's base as one run."""
        values = self.to_dict() | {"seed": seed, "seeds": 1, "variants": [], "sweep": {}}
        return Experiment(**values)

    @property
    def label(self) -> str:
        """What a table calls this row when nobody named it."""
        return short_name(self.selection.name)

    def rows(self) -> list[tuple[str, "Experiment"]]:
        """The base and every variant, each for every point of the sweep, with distinct labels."""
        base = self.to_dict() | {"variants": [], "sweep": {}}
        named = [(self.label, Experiment(**base))]
        for variant in self.variants:
            where = f"variants.{variant.label}"
            if any(variant.label == label for label, _ in named):
                raise UsageError(f"{where}: the label stands twice; the base row is called {self.label!r}")
            values = _merge(base, variant.overrides, where)
            try:
                named.append((variant.label, Experiment(**values)))
            except UsageError as error:
                raise UsageError(f"{where}: {error}") from None
        if not self.sweep:
            return named
        rows = []
        for (label, experiment), point in itertools.product(named, itertools.product(*self.sweep.values())):
            settings = dict(zip(self.sweep, point, strict=True))
            words = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
            swept = experiment.with_overrides(_nested(settings, "sweep"))
            rows.append((f"{label}, {words}" if words else label, swept))
        return rows

    def cells(self) -> "list[Cell]":
        """Every run of the experiment: rows × seeds.

        Raises:
            UsageError: the strategy and the algorithm of a row do not go together.
        """
        from fedcohort.pairings import check

        for label, row in self.rows():
            try:
                check(row.selection.build(), row.algorithm.build())
            except UsageError as error:
                raise UsageError(f"row {label!r}: {error}") from None
        return [
            Cell(label, seed, row.single(seed))
            for label, row in self.rows()
            for seed in range(self.seed, self.seed + self.seeds)
        ]

    def key(self, extra: str = "") -> str:
        """Stable hash of what decides the results of one run, 12 hex digits; ``extra`` stands for data and models given in Python."""
        values = self.to_dict()
        for name in ("name", "seeds", "variants", "sweep"):
            values.pop(name, None)
        values["engine"].pop("workers")
        if (
            values["engine"]["plan"] != "stacked"
        ):  # the others give the same bits; what "auto" chose takes its place in a run
            values["engine"].pop("plan")
        if values["engine"]["arithmetic"] == "exact":  # as if there were no such setting
            values["engine"].pop("arithmetic")
        for name in ("target_accuracy", "patience", "checkpoint_every"):
            values["measures"].pop(name)
        if values["algorithm"].get("max_weight") is None:
            values["algorithm"].pop("max_weight", None)
        if values["data"]["share"] == 1:  # as if there were no such setting
            values["data"].pop("share")
        if values["training"]["augment"] == "none":
            values["training"].pop("augment")
        if not values["measures"]["clients_every"]:
            values["measures"].pop("clients_every")
        if traced := self._trace():
            values["systems"]["availability"]["file"] = traced
        text = json.dumps([_by_content(values), extra], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _trace(self) -> str:
        """A hash of the files that decide who is available: another trace is another run. Empty without files, or if they are gone."""
        try:
            found: str = self.systems.availability.build().fingerprint()
        except UsageError:  # whoever needs the file says so; a finished run can be read without it
            return ""
        return found


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: a row under a seed."""

    label: str
    seed: int
    experiment: Experiment


def load(path: str | Path, overrides: Iterable[str] = (), *, recorded: bool = False) -> Experiment:
    """Read an experiment file.

    Args:
        path: a TOML file.
        overrides: ``section.key=value`` settings that replace what the base says; values are TOML, or plain words.
        recorded: the file is a run's own description, see :meth:`Experiment.recorded`.

    Raises:
        UsageError: the file is missing or not TOML, or something in it is wrong.
    """
    file = Path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{file}: no such experiment file; give the path of a .toml file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    from fedcohort.federation.datasets import NAMES

    values = _anchored(values, file.parent)
    for row in [values, *(row for row in _list(values.get("variants")) if isinstance(row, Mapping))]:
        _anchor(row, ("systems", "availability"), "file", file.parent)
        for section in ("data", "public"):
            _anchor(row, (section,), "name", file.parent, only=lambda path: path.is_dir() and path.name not in NAMES)
    values = _merge(values, parse_overrides(overrides), where="")
    return Experiment.recorded(values) if recorded else Experiment(**values)


def parse_overrides(overrides: Iterable[str], option: str = "--set", example: str = "selection.k=5") -> dict[str, Any]:
    """``section.key=value`` settings as nested values; ``option`` and ``example`` are for messages."""
    settings: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r}: write section.key=value, such as {example}")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = value.strip()
    return _nested(settings, option)


# --- completing, merging, flattening -------------------------------------------------------------------------------------

_PLUGS: dict[tuple[str, ...], type[Choice]] = {
    ("federation", "partition"): Partition,
    ("federation", "label_noise"): LabelNoise,
    ("federation", "feature_shift"): FeatureShift,
    ("systems", "latency"): Latency,
    ("systems", "availability"): Availability,
    ("systems", "network"): Network,
    ("model",): Model,
    ("algorithm",): Algorithm,
    ("selection",): Selection,
}


def _complete(values: Mapping[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """Check the parameters of every plug-in against its class and fill in its defaults; split rows from their overrides."""
    complete = dict(values)
    for path, choice in _PLUGS.items():
        where = ".".join(path)
        parent = complete
        if len(path) == 2:
            inner = complete.get(path[0], {})
            if not isinstance(inner, Mapping):
                continue
            parent = complete[path[0]] = dict(inner)
        given = parent.get(path[-1], {})
        if isinstance(given, str):
            given = {"name": given}
        if isinstance(given, Mapping):
            parent[path[-1]] = _plug(choice, given, where, recorded)
        elif not isinstance(given, choice):
            raise _no_plug(where, given, choice)
    if isinstance(complete.get("training"), Mapping):
        complete["training"] = make(Training, _with_loss(complete["training"], recorded), "training")
    if isinstance(complete.get("variants"), list | tuple):
        complete["variants"] = tuple(_variant(row, i) for i, row in enumerate(complete["variants"]))
    return complete


def _with_loss(training: Mapping[str, Any], recorded: bool) -> dict[str, Any]:
    """``[training]`` with the loss's name and parameters complete."""
    given = training.get("loss", "ce")
    flat = {"name": given} if isinstance(given, str) else given
    if not isinstance(flat, Mapping):
        raise _no_plug("training.loss", given, Loss)
    return {**training, "loss": _flat(_plug(Loss, flat, "training.loss", recorded))}


def _no_plug(where: str, given: Any, choice: type[Choice]) -> UsageError:
    return UsageError(
        f"{where} = {given!r}: should be a name, or a table with a name and its parameters, such as "
        f"{choice.model_fields['name'].default!r}"
    )


def _anchored(value: Any, folder: Path) -> Any:
    """``value`` with the paths of plug-in files, which an experiment file gives from where it lies, made absolute."""
    if isinstance(value, Mapping):
        return {key: _anchored(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [_anchored(inner, folder) for inner in value]
    if isinstance(value, str) and is_file_name(value):
        path, _, attribute = value.rpartition(":")
        return f"{(folder / Path(path).expanduser()).resolve()}:{attribute}"
    return value


def _anchor(
    values: Mapping[str, Any],
    section: tuple[str, ...],
    key: str,
    folder: Path,
    only: Callable[[Path], bool] = lambda path: True,
) -> None:
    """Make the path ``values[section][key]``, given from where the experiment file lies, absolute; in place."""
    inner: Any = values
    for part in section:
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    if isinstance(inner, dict) and isinstance(inner.get(key), str) and inner[key]:
        path = folder / Path(inner[key]).expanduser()
        if only(path):
            inner[key] = str(path.resolve())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _by_content(value: Any) -> Any:
    """``value`` with plug-in files named by what stands in them, so that a changed strategy is another run."""
    if isinstance(value, Mapping):
        return {key: _by_content(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_by_content(inner) for inner in value]
    if isinstance(value, str) and is_file_name(value):
        path, _, attribute = value.rpartition(":")
        return f"{hashlib.sha256(Path(path).read_bytes()).hexdigest()}:{attribute}"
    return value


def _plug(choice: type[Choice], given: Mapping[str, Any], where: str, recorded: bool) -> dict[str, Any]:
    own = {key: value for key, value in given.items() if key in choice.model_fields and key != "parameters"}
    rest = {key: value for key, value in given.items() if key not in own and key != "parameters"}
    rest |= given.get("parameters", {}) if isinstance(given.get("parameters"), Mapping) else {}
    name = own.get("name", choice.model_fields["name"].default)
    if not isinstance(name, str):
        raise UsageError(f"{where}.name = {name!r}: should be a name; {nearest(str(name), choice.table)}")
    if recorded and name in choice.table.builtin:
        return {**own, "name": name, "parameters": rest}
    if is_file_name(name):
        name = _anchored(name, Path.cwd())
    found = choice.table.find(name, f"{where}.name")
    if not isinstance(found, type):
        raise UsageError(f"{where}.name = {name!r}: is a {type(found).__name__}; a {choice.table.kind} is a class")
    if rest and not hasattr(found, "__pydantic_fields__"):
        raise UsageError(f"{where}.{min(rest)}: {name!r} takes no parameters; a class with @parameters has them")
    try:
        instance: Any = make(found, rest, where)
    except UsageError as error:
        fields = [*(f for f in choice.model_fields if f != "parameters"), *getattr(found, "__pydantic_fields__", {})]
        unknown = next((key for key in rest if key not in fields), None)
        if unknown is None:
            raise
        raise UsageError(f"{where}.{unknown}: unknown key for {name!r}; {nearest(unknown, fields)}") from error
    parameters = {key: getattr(instance, key) for key in getattr(found, "__pydantic_fields__", {})}
    complete: dict[str, Any] = {**own, "name": name, "parameters": parameters}
    return complete


def _variant(row: Any, position: int) -> Variant:
    if isinstance(row, Variant):
        return row
    if not isinstance(row, Mapping) or not isinstance(row.get("label"), str) or not row["label"].strip():
        raise UsageError(f'variants.{position}.label: required; every [[variants]] table needs a label = "…"')
    for key in row:
        if key in _NOT_IN_ROWS:
            raise UsageError(
                f"variants.{row['label']}.{key}: cannot differ between rows; set it once for the experiment"
            )
    return Variant(label=row["label"], overrides={key: value for key, value in row.items() if key != "label"})


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``base`` with ``overrides`` laid over it, tables merged key by key."""
    merged = {key: copy.deepcopy(value) for key, value in base.items()}
    for key, value in overrides.items():
        before = merged.get(key)
        if isinstance(value, str) and isinstance(before, Mapping) and "name" in before:
            value = {"name": value}
        if isinstance(value, Mapping) and isinstance(before, str | Mapping) and before:
            old: Mapping[str, Any] = {"name": before} if isinstance(before, str) else before
            if "name" in value and old.get("name", value["name"]) != value["name"]:
                old = {name: kept for name, kept in old.items() if _stays(key, name, old.get("name"), value["name"])}
            merged[key] = _merge(old, value, f"{where}.{key}")
        else:
            merged[key] = copy.deepcopy(value)
    return merged


_NOT_IN_ROWS = ("name", "seed", "seeds", "variants", "sweep", "public")
_KEPT = {"selection": ("k",), "algorithm": ("weights", "server_lr"), "data": ("validation",)}
"""What a section keeps when a row names another plug-in: what does not belong to the one that goes."""


def _stays(section: str, parameter: str, old: Any, new: Any) -> bool:
    """Whether a parameter outlives a change of name. A server learning rate that means something else for the new algorithm (a
    server optimiser's step instead of damping: it has another default) does not."""
    if parameter not in _KEPT.get(section, ()):
        return False
    if section != "algorithm":
        return True
    found = [
        Algorithm.table.find(name, "algorithm.name") for name in (old or Algorithm.model_fields["name"].default, new)
    ]
    fields = [getattr(one, "__pydantic_fields__", {}) for one in found]
    defaults = [declared[parameter].default for declared in fields if parameter in declared]
    return len(defaults) == len(fields) and len(set(defaults)) == 1


def _nested(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        inner, parts = nested, key.split(".")
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{where} {key}: {part} was given a plain value as well")
        inner[parts[-1]] = value
    return nested


def _flat(section: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in section.items() if key != "parameters"}
    return {**own, **copy.deepcopy(section["parameters"])}


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value
