"""Objects from Python that replace settings of an experiment, and their part in the hash of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.files.paths import as_path
from fedcohort.core.parameters import make
from fedcohort.core.plugins import is_ours
from fedcohort.core.user_code.identity import identity
from fedcohort.experiment.handed_over import comments
from fedcohort.experiment.own_measures import OwnMeasure, check_names
from fedcohort.federation.data.datasets import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedcohort.algorithms import Algorithm
    from fedcohort.experiment.experiment import Experiment
    from fedcohort.models import AnyModel
    from fedcohort.selection import Selector

__all__ = ["HANDED_OVER", "Given", "GivenMeasures", "PublicSamples"]

PublicSamples: TypeAlias = "Dataset | NDArray[Any] | Tensor"
"""A data set (the training part is used), or only samples [N, ...]."""

GivenMeasures: TypeAlias = Sequence[OwnMeasure] | Mapping[str, OwnMeasure]
"""Own measures: functions, or functions by the names that tables show."""

HANDED_OVER = "given"
"""The value of ``public.name`` for public samples that are given in Python."""


@dataclass(frozen=True)
class Given:
    """Objects from Python that replace settings of an experiment; None means that the setting applies.

    Attributes:
        data: a :class:`fedcohort.Dataset`, see :func:`fedcohort.from_arrays`.
        model: an ``nn.Module``, a function that builds one (called with the sample shape and the number of classes, or
            without arguments), or a Model.
        selector: a strategy, or its class, which stands for its default parameters; each run gets a copy.
        algorithm: an algorithm, or its class; each run gets a copy.
        data_dir: a local mirror in the layout of the Hugging Face Hub.
        public: the server's public samples: a Dataset (the training part is used), or only samples [N, ...]; see ``[public]``.
        measures: own measures by name, besides those of ``measures.extra``; a list of functions becomes a dictionary.
        known_key: the identity of the objects, if another process has found it out; see :meth:`key`.
        loaded: data sets of users' own files that were loaded for this call, by name and columns.
        said: choices that were reported in this call.
        divides_data: whether the clients get their samples from the data of the experiment, as in every simulation.

    Raises:
        UsageError: an object has another type.
    """

    data: Dataset | None = None
    model: "AnyModel | None" = None
    selector: "Selector | None" = None
    algorithm: "Algorithm | None" = None
    data_dir: str | Path | None = None
    public: "PublicSamples | None" = None
    measures: "GivenMeasures | None" = None
    known_key: str | None = None
    loaded: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False, compare=False)
    said: set[str] = field(default_factory=set, repr=False, compare=False)
    divides_data: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.measures is not None:
            object.__setattr__(self, "measures", _functions(self.measures))
        _check_data(self.data)
        if self.data_dir is not None:
            as_path(self.data_dir, "data_dir")
        for name in ("selector", "algorithm"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _plugin(name, getattr(self, name)))
        if self.model is not None:
            from fedcohort.models import as_model

            as_model(self.model)
        if self.public is not None and not isinstance(self.public, Dataset):
            from fedcohort.federation.public_samples import unlabeled_dataset

            object.__setattr__(self, "public", unlabeled_dataset(self.public))

    @property
    def public_data(self) -> Dataset | None:
        """The public samples as a data set; None if the setting applies."""
        return self.public if isinstance(self.public, Dataset) else None

    @property
    def own_measures(self) -> dict[str, OwnMeasure]:
        """The own measures by name; empty without any."""
        return _functions(self.measures) if self.measures else {}

    def key(self) -> str:
        """The identity of all objects that determine the results, for the hash of the run."""
        return self._own_key if self.known_key is None else self.known_key

    @cached_property
    def _own_key(self) -> str:
        """What :meth:`key` returns, found once: every run of a call asks for it several times, and weights may be large."""
        parts = []
        if self.data is not None:
            parts.append(self.data.fingerprint)
        if self.model is not None:
            parts.append(identity(self.model))
        parts += [identity(part) for part in (self.selector, self.algorithm) if part is not None]
        if self.public_data is not None:
            parts.append(f"public {self.public_data.fingerprint}")
        parts += [f"measure {name} {identity(measure)}" for name, measure in self.own_measures.items()]
        return "|".join(parts)

    def names(self) -> str:
        """The names of the objects that were given, in words; empty without objects."""
        return ", ".join(self.objects())

    def sections(self) -> list[str]:
        """The sections of the experiment whose plug-ins are replaced by objects."""
        given = {"model": self.model, "algorithm": self.algorithm, "selection": self.selector}
        return [section for section, part in given.items() if part is not None]

    def classes(self) -> dict[str, str]:
        """The classes of the strategy and the algorithm that were given, for the record."""
        plugins = {"given selector": self.selector, "given algorithm": self.algorithm}
        return {name: type(part).__name__ for name, part in plugins.items() if part is not None}

    def ours(self, experiment: "Experiment") -> list[str]:
        """Names of the strategy and the algorithm, given or else of the experiment, each only if its card has the status ``ours``."""
        named = experiment.ours()
        for section, given in ((experiment.selection, self.selector), (experiment.algorithm, self.algorithm)):
            if given is not None:
                named = [name for name in named if name != section.name]
                named += [section.table.builtin_name(type(given)) or type(given).__name__] * is_ours(given)
        return named

    def note(self) -> str:
        """The objects that were given, as comments for the head of the experiment file in the run directory."""
        return comments(self.objects())

    def objects(self) -> dict[str, object]:
        """The objects that were given, by name; data and measures in words."""
        names = ("data", "model", "selector", "algorithm", "public", "measures")
        every = {name: getattr(self, name) for name in names}
        given = {name: value for name, value in every.items() if value is not None and value != {}}
        if self.data is not None:
            given["data"] = f"{self.data.name}, {self.data.fingerprint[:12]}"
        if self.public_data is not None:
            given["public"] = f"{self.public_data.name}, {self.public_data.fingerprint[:12]}"
        if self.measures:
            given["measures"] = ", ".join(self.own_measures)
        return given


def _check_data(data: object) -> None:
    """Refuse data that are not a :class:`Dataset`."""
    if data is None or isinstance(data, Dataset):
        return
    if isinstance(data, str | Path):
        raise UsageError(
            f"data = {shown(str(data))}: give a Dataset; a name or a folder is a setting: Experiment(data={{'name': …}})"
        )
    if type(data).__name__ == "DataFrame":
        raise UsageError(
            "data = a DataFrame: save it as a table, and name the file: Experiment(data={'name': 'mine.csv'}); or name a function "
            "that returns it, 'mine.py:load'; or give a Dataset of arrays, fedcohort.from_arrays(…)"
        )
    raise UsageError(
        f"data = {_kind(data)}: give a Dataset, such as fedcohort.from_arrays((train_features, train_labels), "
        "(test_features, test_labels))"
    )


def _functions(given: object) -> dict[str, OwnMeasure]:
    """Own measures by name.

    Raises:
        UsageError: they are not functions, or two have the same name.
    """
    if isinstance(given, Mapping):
        functions: list[tuple[object, object]] = list(given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        functions = [(getattr(one, "__name__", type(one).__name__), one) for one in given]
    else:
        raise UsageError(
            f"measures = {shown(given)}: give a list of functions, or a dictionary from names to functions"
        )
    for name, one in functions:
        if isinstance(one, type) or not callable(one):
            raise UsageError(
                f"measures: {shown(name)} is {_kind(one)}; give a function of (predictions, labels) that returns one number; "
                "a function in a file is a setting: Experiment(measures={'extra': ['my.py:f1']})"
            )
    by_name: dict[Any, Any] = dict(functions)
    if len(by_name) < len(functions):
        raise UsageError("measures: two functions have the same name; give a dictionary from names to functions")
    check_names(by_name, "measures")
    return by_name


def _plugin(name: str, given: object) -> object:
    """A strategy or an algorithm; for its class, an instance with default parameters.

    Raises:
        UsageError: the object is neither, or the class has required parameters.
    """
    from fedcohort.algorithms import Algorithm
    from fedcohort.selection import Selector

    base: type = Selector if name == "selector" else Algorithm
    if isinstance(given, type) and issubclass(given, base):
        return make(given, {}, f"{name} = {given.__name__}")
    if isinstance(given, base):
        return given
    example = "UCB()" if name == "selector" else "FedProx(mu=0.1)"
    if isinstance(given, str):
        setting = "selection" if name == "selector" else "algorithm"
        raise UsageError(
            f"{name} = {shown(given)}: give an object, such as {example}; a name is a setting: Experiment({setting}={given!r})"
        )
    if isinstance(given, list | tuple):
        raise UsageError(
            f"{name} = {_kind(given)}: give one object, such as {example}; fedcohort.compare also takes a dictionary from "
            "labels to objects, and adds a row for each"
        )
    raise UsageError(
        f"{name} = {_kind(given)}: give an object that extends {base.__module__.rsplit('.', 1)[0]}.{base.__name__}, "
        f"such as {example}"
    )


def _kind(given: object) -> str:
    """What an object is, in words."""
    return f"the class {given.__name__}" if isinstance(given, type) else f"an object of type {type(given).__name__}"
