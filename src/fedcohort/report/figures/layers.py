"""Put charts over each other. Altair's own layers copy and check all charts at every step, which takes most of the time of a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import altair as alt
from altair.utils.schemapi import debug_mode

__all__ = ["INDEPENDENT_X", "Layers", "constant", "decided", "layered", "with_properties"]

INDEPENDENT_X = {"resolve": {"axis": {"x": "independent"}}}
"""The property of layers that each have an x axis of their own."""


@dataclass(frozen=True)
class Layers:
    """Charts over each other, of which Altair would make the same specification.

    Attributes:
        layers: the charts, the lowest first; they have no size of their own.
        own: the properties of the whole, such as its width.
    """

    layers: Sequence[alt.Chart]
    own: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self, validate: bool = True) -> dict[str, Any]:
        """The Vega-Lite specification, on request checked against the schema, as that of a chart."""
        with debug_mode(False):
            specification = self._specification()
        if validate:
            alt.LayerChart.validate(specification)
        return specification

    def _specification(self) -> dict[str, Any]:
        """The Vega-Lite specification, without a check against the schema."""
        shell = _shell(self.layers)
        whole = alt.LayerChart(data=shell.data, layer=[], params=shell.params, **self.own)
        specification: dict[str, Any] = whole.to_dict(validate=False)
        datasets: dict[str, Any] = {}
        context = {"top_level": False, "datasets": datasets}
        if shell.data is not alt.Undefined:
            context["data"] = shell.data
        specification["layer"] = [
            _part(layer, found, lifted=shell.data is not alt.Undefined).to_dict(validate=False, context=context)
            for layer, found in zip(self.layers, shell.layer, strict=True)
        ]
        if datasets:
            specification.setdefault("datasets", {}).update(datasets)
        return specification


def _shell(layers: Sequence[alt.Chart]) -> alt.LayerChart:
    """Altair's layers, in which only charts with parameters are whole: Altair gives them names, and moves the parameters, and the data
    of all charts if they are the same, to the layers."""
    return alt.LayerChart(
        layer=[alt.Chart(chart.data) if chart.params is alt.Undefined else _unchecked(chart) for chart in layers]
    )


class _Selection(alt.SelectionParameter):
    """A selection that is not checked against the schema whenever Altair reads it: the whole specification is."""

    @classmethod
    def validate(cls, *_: Any, **__: Any) -> None:
        """Check nothing."""


def _unchecked(chart: alt.Chart) -> alt.Chart:
    """The chart with selections that are not checked."""
    copy: alt.Chart = chart.copy(deep=False)
    copy.params = [
        _Selection(**param.to_dict(validate=False)) if type(param) is alt.SelectionParameter else param
        for param in chart.params
    ]
    return copy


def _part(layer: alt.Chart, found: Any, *, lifted: bool) -> alt.Chart:
    """The layer with the name that Altair ``found``, without what belongs to all layers."""
    part: alt.Chart = layer.copy(deep=False)
    part.name, part.params = found.name, alt.Undefined
    if lifted:
        part.data = alt.Undefined
    return part


Channel = TypeVar("Channel")
Drawn = TypeVar("Drawn", bound=alt.Chart | Layers)


def layered(*layers: alt.Chart, **own: Any) -> Layers:
    """Charts over each other, the lowest first, with properties of the whole."""
    return Layers(layers, own)


def constant(channel: Callable[..., Channel], value: Any) -> Channel:
    """The encoding by a value. Altair makes the same from the value alone, but slowly."""
    return channel(value)


def decided(channel: Callable[..., Channel], by: str | alt.FieldOneOfPredicate, yes: Any, no: Any) -> Channel:
    """The encoding by one of two values, as the condition says. Altair makes the same from a condition alone, but slowly."""
    return channel(**alt.condition(by, alt.value(yes), alt.value(no)))


def with_properties(chart: Drawn, **own: Any) -> Drawn:
    """The chart with these properties. The tests check them against the schema, which Altair would do at every call."""
    if isinstance(chart, Layers):
        return replace(chart, own={**chart.own, **own})
    changed: Drawn = chart.copy(deep=False)
    for name, value in own.items():
        setattr(changed, name, value)
    return changed
