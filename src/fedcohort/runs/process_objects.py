"""Send objects from Python to the processes of ``jobs``: classes of a notebook, modules, data sets.

This is the only file that uses cloudpickle. What it makes goes through a pipe to processes of this machine that this process has
started, and never into a file or a record.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import cloudpickle

from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.python_plugins import kept, name_of_class, put
from fedcohort.experiment import Experiment
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.python_objects import names_in
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.data.own_data import Stored, shared, stored

__all__ = ["Parcel", "packed", "unpacked"]


@dataclass(frozen=True)
class Parcel:
    """The objects that runs in other processes need.

    Attributes:
        plugins: pickled classes and objects, by the name that stands for them in experiments.
        objects: other pickled objects; each is sent once, also if several rows have it.
        givens: for each :class:`Given` the places of its objects in ``objects`` by field, and its identity, which the other process
            could not find out where it has no source.
        words: what each object is, in messages.
        loaded: users' own data that this process has loaded: their places in the cache, which the other process maps; for sequences,
            the pickled data.
        said: choices that this process has reported.
    """

    plugins: Mapping[str, bytes]
    objects: Sequence[bytes]
    givens: Sequence[tuple[Mapping[str, int], str]]
    words: Sequence[str]
    loaded: Mapping[tuple[str, str], Stored | bytes]
    said: set[str]


def packed(givens: Sequence[Given], experiments: Iterable[Experiment], jobs: int) -> Parcel:
    """The objects of ``givens``, and those that ``experiments`` name.

    Args:
        givens: objects that replace settings.
        experiments: the experiments of all runs.
        jobs: the number of processes, for messages.

    Raises:
        UsageError: an object cannot be sent.
    """
    names = dict.fromkeys(name for experiment in experiments for name in names_in(experiment))
    plugins = {name: _pickled(kept(name), f"jobs = {jobs}: {name_of_class(name)}") for name in names}
    objects = _Objects(jobs)
    sent = [(objects.places_of(given), given.key()) for given in givens]
    loaded = {key: _sent(dataset, jobs) for given in givens for key, dataset in given.loaded.items()}
    said = {message for given in givens for message in given.said}
    return Parcel(plugins, objects.contents, sent, objects.words, loaded, said)


def _sent(dataset: Dataset, jobs: int) -> Stored | bytes:
    """A data set in the cache; sequences, which the cache does not hold, as bytes."""
    return stored(dataset) if type(dataset) is Dataset else _pickled(dataset, f"jobs = {jobs}: {dataset.name}")


class _Objects:
    """Objects that are sent, each once.

    Attributes:
        contents: the pickled objects.
        words: what each object is, in messages.
    """

    def __init__(self, jobs: int) -> None:
        self.contents: list[bytes] = []
        self.words: list[str] = []
        self._jobs = jobs
        self._places: dict[int, int] = {}

    def places_of(self, given: Given) -> dict[str, int]:
        """The place of each object of ``given`` in ``contents``, by field."""
        names = [field.name for field in fields(given) if field.name not in ("known_key", "loaded", "said")]
        return {name: self._place(name, getattr(given, name)) for name in names if getattr(given, name) is not None}

    def _place(self, name: str, part: object) -> int:
        """The place of an object, which is pickled when it comes first."""
        if id(part) not in self._places:
            what = f"jobs = {self._jobs}: {name} = {getattr(part, '__name__', type(part).__name__)}"
            self.contents.append(_pickled(part, what))
            self.words.append(what)
            self._places[id(part)] = len(self.contents) - 1
        return self._places[id(part)]


def unpacked(parcel: Parcel) -> list[Given]:
    """In another process: keep the plug-ins of a parcel, and return its givens.

    Raises:
        UsageError: an object cannot be read here.
    """
    for name, content in parcel.plugins.items():
        put(name, _read(content, name_of_class(name)))
    objects = [_read(content, what) for content, what in zip(parcel.objects, parcel.words, strict=True)]
    mapped = {
        key: shared(place) if isinstance(place, Stored) else _read(place, key[0])
        for key, place in parcel.loaded.items()
    }
    loaded = {key: dataset for key, dataset in mapped.items() if dataset is not None}  # others are loaded again
    return [
        Given(
            **{field: objects[place] for field, place in parts.items()}, known_key=key, loaded=loaded, said=parcel.said
        )
        for parts, key in parcel.givens
    ]


def _pickled(given: object, where: str) -> bytes:
    """An object as bytes.

    Raises:
        UsageError: it cannot be sent; the message says why.
    """
    try:
        content: bytes = cloudpickle.dumps(given)
    except Exception as error:  # objects raise what they like
        raise UsageError(
            f"{where} cannot be sent to another process ({error}); use jobs = 1, or name it in the experiment as "
            "'path/to/file.py:Name'"
        ) from error
    return content


def _read(content: bytes, where: str) -> Any:
    """An object from :func:`_pickled`.

    Raises:
        UsageError: it cannot be made here, as if its module can be imported in the other process only.
    """
    try:
        return cloudpickle.loads(content)
    except Exception as error:
        raise UsageError(
            f"{where} was sent to another process, but cannot be read there ({type(error).__name__}: {error}); use jobs = 1, or "
            "name it in the experiment as 'path/to/file.py:Name'"
        ) from error
