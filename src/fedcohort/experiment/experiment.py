"""The description of a run, from TOML or from Python.

An :class:`Experiment` is complete (every default is filled in) and strict (an unknown key is an error). Its hash identifies its run.
Variants, sweeps and seeds expand into :class:`Cell`\\ s, each of which describes one run.
"""

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, ValidationError

from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError, shown
from fedcohort.core.notebook_display import Bundle, bundle
from fedcohort.core.parameters import NotInKey, explain
from fedcohort.core.plugins import is_ours, short_name
from fedcohort.core.words.formatted_values import counted
from fedcohort.experiment.client_counts import is_capped
from fedcohort.experiment.completion import completed, plug_in_sections
from fedcohort.experiment.handed_over import comments
from fedcohort.experiment.nested_values import flattened, merge, nested, replace_at, without_none
from fedcohort.experiment.overview import overview
from fedcohort.experiment.pairings import check_row
from fedcohort.experiment.plain_values import check_values
from fedcohort.experiment.plugin_files import by_content, plugin_files, with_copies
from fedcohort.experiment.provided_data import check_provided
from fedcohort.experiment.python_objects import with_names
from fedcohort.experiment.sections import (
    Algorithm,
    Data,
    Engine,
    FederationSection,
    Measures,
    Model,
    Public,
    Section,
    Selection,
    Systems,
    Variant,
)
from fedcohort.experiment.setting_checks import check_engine, check_measures
from fedcohort.experiment.settings_in_key import settings_in_key
from fedcohort.experiment.sweep_checks import about_unknown_key, check_number_of_rows, check_sweep
from fedcohort.experiment.swept_labels import swept_labels
from fedcohort.experiment.tasks import check_task
from fedcohort.experiment.unnamed_settings import settings_of_data, unnamed_settings, without_unnamed

__all__ = ["Cell", "Experiment"]


class Experiment(Section):
    """Everything that determines the results of a run.

    Unknown keys, wrong types and impossible combinations raise :class:`UsageError`.

    >>> Experiment(rounds=5, selection={"name": "all"}).selection.name
    'all'
    """

    name: Annotated[str, NotInKey()] = "quickstart"
    """Name of the run directories; it does not change results. In a file, the default is the name of the file."""
    rounds: Annotated[int, Ge(1), Le(10_000_000)] = 20
    """Number of rounds of federated training (n)."""
    seed: Annotated[int, Ge(0)] = 0
    """First seed; all random draws are derived from it."""
    seeds: Annotated[int, Ge(1), Le(10_000), NotInKey()] = 3
    """Number of repetitions, with seeds seed, seed + 1, …"""
    data: Data = Data()
    """The data set."""
    public: Public = Public()
    """Unlabeled samples that the server holds, for algorithms that distill."""
    federation: FederationSection = FederationSection()
    """The clients: how many there are, and how the data are divided among them."""
    systems: Systems = Systems()
    """Speed, availability and network of the clients."""
    model: Model = Model()
    """The model."""
    training: Training = Training()
    """Local training: epochs, batch size, optimizer."""
    algorithm: Algorithm = Algorithm()
    """What clients optimize, and how the server merges their updates."""
    selection: Selection = Selection()
    """The selection strategy, and the number of clients for each round (k)."""
    engine: Engine = Engine()
    """Where and how the work runs."""
    measures: Measures = Measures()
    """What is measured and recorded beyond the defaults."""
    variants: Annotated[tuple[Variant, ...], NotInKey()] = ()
    """Named rows that override settings of the base; the base is the first row."""
    sweep: Annotated[dict[str, list[Any]], NotInKey()] = Field(default_factory=dict)
    """Dotted key → list of values. Every row is run for every combination of the values."""

    def __init__(self, /, **values: object) -> None:
        values = with_names(values)
        check_values(values)
        try:
            super().__init__(**completed(values))
        except ValidationError as error:
            raise explain(error, "", type(self)) from None
        self.__dict__["_unnamed"] = unnamed_settings(values)
        self._cap_k(values.get("selection"))
        check_engine(self.engine)
        check_measures(self.measures, self.data.validation, self.rounds)
        selector, algorithm = self.selection.build(), self.algorithm.build()
        self.check_needs(selector.needs, repr(self.selection.name))
        self.check_needs(algorithm.needs, repr(self.algorithm.name))
        check_task(self.training, self.federation.label_noise.name, selector, algorithm)
        check_number_of_rows(len(self.variants), self.sweep, self.seeds)
        for key, choices in self.sweep.items():
            check_sweep(key, choices)
        if self.variants or self.sweep:
            self.rows()  # report a row that is not valid before the first run

    def __repr__(self) -> str:
        """The choices that tables name; :meth:`to_toml` has all settings."""
        rows = (1 + len(self.variants)) * math.prod(len(choices) for choices in self.sweep.values())
        return (
            f"<Experiment {self.name}: {self.data.name}, {counted(self.federation.clients, 'client')} by "
            f"{self.federation.partition.name}, {self.selection.k} by {short_name(self.selection.name)}, "
            f"{short_name(self.algorithm.name)}, {counted(self.rounds, 'round')}, {counted(rows, 'row')}, "
            f"{counted(self.seeds, 'seed')}>"
        )

    __str__ = __repr__

    def _repr_mimebundle_(self, **_: object) -> Bundle:
        """What a notebook displays: the settings that rows name, and the rows."""
        return bundle(repr(self), f"Experiment {self.name}", [], overview(self))

    def _cap_k(self, given: object) -> None:
        """Select all clients if there are fewer than the default k; a larger k that was ``given`` is an error. If the data decide how
        many clients there are, :meth:`settled` checks k."""
        k, steps, clients = self.selection.k, self.selection.k_steps, self.federation.clients
        is_default = "federation.clients" in self.unnamed
        if "federation.clients" in self.left_to_data or not is_capped(k, steps, clients, given, is_default=is_default):
            return
        object.__setattr__(self, "selection", self.selection.model_copy(update={"k": clients}))
        self.__dict__["_unnamed"] -= {"selection.k"}  # variants keep the number

    @property
    def left_to_data(self) -> frozenset[str]:
        """The settings that were not given and that a user's own files decide."""
        return settings_of_data(self.unnamed, self.data.name, self.federation.partition)

    @classmethod
    def recorded(cls, values: Mapping[str, object]) -> "Experiment":
        """The experiment that a run directory describes.

        The description was complete and valid when it was written. No plug-in is imported to check it again, so that records can be
        read without torch, and reading a record runs no code of it.
        """
        experiment = cls.__new__(cls)
        try:
            BaseModel.__init__(experiment, **completed(values, recorded=True))
        except ValidationError as error:
            raise explain(error, "", cls) from None
        return experiment

    def ours(self, *, built_in: bool = False) -> list[str]:
        """Names of the strategy and the algorithm, each only if it is our own interpretation or design (status ``ours``).

        Args:
            built_in: consider only built-in names; no other code is imported.
        """
        named = [
            (section.name, section.table.find(section.name, "name"))
            for section in (self.selection, self.algorithm)
            if section.name in section.table.builtin or not built_in
        ]
        return [name for name, plugin in named if is_ours(plugin)]

    def check_needs(self, needs: frozenset[str], plugin: str) -> None:
        """Check that the experiment provides the data that a strategy or an algorithm needs.

        Args:
            needs: any of ``validation``, ``holdout``, ``public``, and others that every experiment provides.
            plugin: name of the strategy or the algorithm, for the message.

        Raises:
            UsageError: something is missing; the message names the setting that provides it.
        """
        check_provided(needs, plugin, self.data.validation, self.federation.holdout, self.public.name)

    def to_dict(self) -> dict[str, Any]:
        """The complete description as plain values, in the shape of the TOML file, also of what a user's own data decide."""
        values = self.model_dump(exclude={"variants", "training"})
        values["training"] = asdict(self.training)
        for path in plug_in_sections(self):
            replace_at(values, tuple(path.split(".")), flattened)
        values["variants"] = [{"label": row.label, **copy.deepcopy(row.overrides)} for row in self.variants]
        ordered = {key: values[key] for key in type(self).model_fields}
        return {key: value for key, value in ordered.items() if value or key not in ("variants", "sweep")}

    def to_toml(self, copies: Mapping[Path, str] | None = None) -> str:
        """The description as TOML, complete except for what a user's own data decide. Reading it gives an equal experiment, unless
        :meth:`own_files` are replaced by ``copies``, which has the path of each file's copy."""
        import tomli_w

        values = with_copies(without_unnamed(self.to_dict(), self.left_to_data), copies or {})
        return comments(self.handed_over) + tomli_w.dumps(without_none(values))

    def own_files(self) -> list[Path]:
        """The users' own files that define plug-ins of this experiment."""
        return plugin_files(self.to_dict())

    def with_overrides(self, overrides: Mapping[str, object]) -> "Experiment":
        """A new experiment with nested values replaced. A new plug-in name drops the parameters of the old plug-in."""
        overrides = with_names(overrides)
        check_values(overrides)
        changed = Experiment(**merge(without_unnamed(self.to_dict(), self.unnamed), overrides, where=""))
        return changed.with_handed_over(self.handed_over)

    @property
    def handed_over(self) -> dict[str, str]:
        """Objects from Python that a description in a run directory names, in words, and that must be handed over again to play it."""
        named: dict[str, str] = self.__dict__.get("_handed_over", {})
        return named

    def with_handed_over(self, objects: Mapping[str, str]) -> "Experiment":
        """This experiment with other :attr:`handed_over`."""
        same = self.model_copy()
        same.__dict__["_handed_over"] = dict(objects)
        return same

    @property
    def unnamed(self) -> frozenset[str]:
        """The settings that were not given and that data may decide, see :mod:`~fedcohort.experiment.unnamed_settings`; none in a
        record."""
        unnamed: frozenset[str] = self.__dict__.get("_unnamed", frozenset())
        return unnamed

    def settled(self, settings: Mapping[str, object]) -> "Experiment":
        """This experiment with ``settings`` by dotted key, and with no setting left open for the data to decide."""
        return Experiment(**merge(self.to_dict(), nested(settings, "data"), where=""))

    def with_engine(self, **settings: object) -> "Experiment":
        """This experiment with other settings of the engine. Only these are checked; all others were checked before."""
        return self.model_copy(update={"engine": Engine(**(self.engine.model_dump() | settings))})

    def single(self, seed: int) -> "Experiment":
        """The base of this experiment as one run under ``seed``."""
        if type(seed) is not int or not 0 <= seed < 2**64:  # the record has integers of 64 bits
            raise UsageError(f"seed = {shown(seed)}: should be a whole number of at least 0, and below 2**64")
        return self.base.model_copy(update={"seed": seed, "seeds": 1})

    @property
    def label(self) -> str:
        """The label of this row in tables, unless the experiment sets one."""
        return short_name(self.selection.name)

    @property
    def all_seeds(self) -> range:
        """The seeds of the repetitions: ``seed``, ``seed + 1``, …"""
        return range(self.seed, self.seed + self.seeds)

    @property
    def base(self) -> "Experiment":
        """This experiment without its variants and its sweep."""
        return self.model_copy(update={"variants": (), "sweep": {}})

    def rows(self) -> list[tuple[str, "Experiment"]]:
        """The base and every variant, each for every point of the sweep, with distinct labels."""
        base = without_unnamed(self.base.to_dict(), self.unnamed)
        named = [(self.label, self.base)]
        for variant in self.variants:
            where = f"variants.{variant.label}"
            if any(variant.label == label for label, _ in named):
                raise UsageError(
                    f"{where}: this label is used twice; choose another one (the base row has {self.label!r})"
                )
            values = merge(base, variant.overrides, where)
            try:
                named.append((variant.label, Experiment(**values)))
            except UsageError as error:
                raise UsageError(f"{where}: {error}") from None
        return self._at_points(named) if self.sweep else named

    def _at_points(self, named: "Sequence[tuple[str, Experiment]]") -> "list[tuple[str, Experiment]]":
        """The rows for every point of the sweep."""
        points = [dict(zip(self.sweep, values, strict=True)) for values in itertools.product(*self.sweep.values())]
        pairs = [(label, row, point) for label, row in named for point in points]
        try:
            rows = [row.with_overrides(nested(point, "sweep")) for _, row, point in pairs]
        except UsageError as error:
            hint = about_unknown_key(str(error), self.sweep, [row.to_dict() for _, row in named])
            raise UsageError(f"sweep: {error}{hint}") from None
        strategies = [row.label if pair[0] == self.label else None for pair, row in zip(pairs, rows, strict=True)]
        labels = swept_labels([label for label, _, _ in pairs], [point for _, _, point in pairs], strategies)
        return list(zip(labels, rows, strict=True))

    def cells(self) -> "list[Cell]":
        """Every run of the experiment: rows × seeds.

        Raises:
            UsageError: the strategy and the algorithm of a row cannot be combined.
        """
        rows = self.rows()
        for label, row in rows:
            check_row(label, row.selection.build(), row.algorithm.build())
        return [Cell(label, seed, row.single(seed)) for label, row in rows for seed in self.all_seeds]

    def key(self, extra: str = "") -> str:
        """Stable hash of everything that determines the results of one run, 12 hex digits.

        Settings that do not change the results are marked :class:`~fedcohort.core.parameters.NotInKey` at their definition.

        Args:
            extra: text that identifies objects that were passed in Python in place of settings.
        """
        values = settings_in_key(self, self.to_dict())
        if trace := self._trace():
            values["systems"]["availability"]["file"] = trace
        values["engine"]["device"] = self.engine.device.partition(":")[0]  # one GPU is like another
        text = json.dumps([by_content(values), extra], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _trace(self) -> str:
        """A hash of the files that determine availability, so that another trace gives another run. Empty if there are no files, or
        if a file cannot be read."""
        try:
            fingerprint: str = self.systems.availability.build().fingerprint()
        except UsageError:  # reported when the file is read; a finished run can be opened without it
            return ""
        return fingerprint


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: a row and a seed.

    Attributes:
        label: label of the row.
        seed: seed of the run.
        experiment: the row as a single run under this seed, see :meth:`Experiment.single`.
    """

    label: str
    seed: int
    experiment: Experiment
