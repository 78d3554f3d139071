"""The description of a run: TOML and Python both end up here, checked by one schema.

An :class:`Experiment` is complete (every default is filled in), strict (an unknown key is an error) and hashable (the hash names
its run). Variants, sweeps and seeds expand into :class:`Cell`\\ s, each a single experiment that is one run.
"""

import copy
import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, ValidationError

from fedcohort.algorithms.local import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import explain
from fedcohort.core.plugins import is_file_name, short_name
from fedcohort.experiment.completion import NOT_IN_ROWS, completed
from fedcohort.experiment.sections import (
    Algorithm,
    Choice,
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
from fedcohort.experiment.values import by_content, flattened, merge, nested, strings, without_none

__all__ = ["Cell", "Experiment"]


class Experiment(Section):
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
            super().__init__(**completed(values))
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
            if key.partition(".")[0] in NOT_IN_ROWS:
                raise UsageError(f"sweep.{key}: cannot differ between rows; set it once for the experiment")
        if self.variants or self.sweep:
            self.rows()

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> "Experiment":
        """From the description that a run keeps, which was complete and right when it was written: built-in plug-ins are not imported
        to check their parameters again, so that records are read without torch."""
        found = cls.__new__(cls)
        try:
            BaseModel.__init__(found, **completed(values, recorded=True))
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
            values[section] = flattened(values[section])
        for section in ("partition", "label_noise", "feature_shift"):
            values["federation"][section] = flattened(values["federation"][section])
        for section in ("latency", "availability", "network"):
            values["systems"][section] = flattened(values["systems"][section])
        values["variants"] = [{"label": row.label, **copy.deepcopy(row.overrides)} for row in self.variants]
        ordered = {key: values[key] for key in type(self).model_fields}
        return {key: value for key, value in ordered.items() if value or key not in ("variants", "sweep")}

    def to_toml(self) -> str:
        """The complete description as TOML; reading it back gives an equal experiment."""
        import tomli_w

        return tomli_w.dumps(without_none(self.to_dict()))

    def own_files(self) -> list[Path]:
        """The users' own files that plug-ins come from."""
        found = {name.rpartition(":")[0] for name in strings(self.to_dict()) if is_file_name(name)}
        return [Path(name) for name in sorted(found)]

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Experiment":
        """A new experiment with nested values replaced; a new name in a plugged section drops the old one's parameters."""
        return Experiment(**merge(self.to_dict(), overrides, where=""))

    def single(self, seed: int) -> "Experiment":
        """This experiment's base as one run."""
        values = self.to_dict() | {"seed": seed, "seeds": 1, "variants": [], "sweep": {}}
        return Experiment(**values)

    @property
    def label(self) -> str:
        """What a table calls this row when nobody named it."""
        return short_name(self.selection.name)

    @property
    def all_seeds(self) -> range:
        """The seeds of the repetitions: ``seed``, ``seed + 1``, …"""
        return range(self.seed, self.seed + self.seeds)

    @property
    def base(self) -> "Experiment":
        """This experiment without its variants and its sweep."""
        return Experiment(**(self.to_dict() | {"variants": [], "sweep": {}}))

    def rows(self) -> list[tuple[str, "Experiment"]]:
        """The base and every variant, each for every point of the sweep, with distinct labels."""
        base = self.to_dict() | {"variants": [], "sweep": {}}
        named = [(self.label, Experiment(**base))]
        for variant in self.variants:
            where = f"variants.{variant.label}"
            if any(variant.label == label for label, _ in named):
                raise UsageError(f"{where}: the label stands twice; the base row is called {self.label!r}")
            values = merge(base, variant.overrides, where)
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
            swept = experiment.with_overrides(nested(settings, "sweep"))
            rows.append((f"{label}, {words}" if words else label, swept))
        return rows

    def cells(self) -> "list[Cell]":
        """Every run of the experiment: rows × seeds.

        Raises:
            UsageError: the strategy and the algorithm of a row do not go together.
        """
        from fedcohort.experiment.pairings import check

        for label, row in self.rows():
            try:
                check(row.selection.build(), row.algorithm.build())
            except UsageError as error:
                raise UsageError(f"row {label!r}: {error}") from None
        return [Cell(label, seed, row.single(seed)) for label, row in self.rows() for seed in self.all_seeds]

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
        text = json.dumps([by_content(values), extra], sort_keys=True)
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
