"""Objects that Python hands over in place of the names in an experiment, and what of them enters a run's hash."""

import hashlib
import inspect
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fedcohort.federation.datasets import Dataset

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedcohort.algorithms import Algorithm
    from fedcohort.models import AnyModel
    from fedcohort.selection import Selector

__all__ = ["HANDED_OVER", "Given", "PublicSamples"]

PublicSamples: TypeAlias = "Dataset | NDArray[Any] | Tensor"
"""A data set whose training part is used, or samples alone [N, ...]."""

HANDED_OVER = "given"
"""The name of public samples that Python hands over."""


@dataclass(frozen=True)
class Given:
    """What Python hands over in place of names in the experiment; None leaves it to the experiment.

    Attributes:
        data: a :class:`fedcohort.Dataset`, see :func:`fedcohort.from_arrays`.
        model: an ``nn.Module``, a factory of one (called with sample shape and number of classes, or without arguments), or a Model.
        selector: a strategy; every run gets a copy.
        algorithm: an algorithm; every run gets a copy.
        data_dir: a local mirror in the layout of the Hugging Face Hub.
        public: the server's public samples, a Dataset whose training part is used, or samples alone [N, ...]; see ``[public]``.
    """

    data: Dataset | None = None
    model: "AnyModel | None" = None
    selector: "Selector | None" = None
    algorithm: "Algorithm | None" = None
    data_dir: str | Path | None = None
    public: "PublicSamples | None" = None

    def __post_init__(self) -> None:
        if self.public is not None and not isinstance(self.public, Dataset):
            from fedcohort.federation.public import samples_alone

            object.__setattr__(self, "public", samples_alone(self.public))

    @property
    def public_data(self) -> Dataset | None:
        """The public samples as a data set; None leaves them to the experiment."""
        return self.public if isinstance(self.public, Dataset) else None

    def key(self) -> str:
        """What of this decides the results, for the run's hash."""
        parts = []
        if self.data is not None:
            parts.append(self.data.fingerprint)
        if self.model is not None:
            parts.append(_identity(self.model))
        parts += [_identity(part) for part in (self.selector, self.algorithm) if part is not None]
        if self.public_data is not None:
            parts.append(f"public {self.public_data.fingerprint}")
        return "|".join(parts)

    def names(self) -> str:
        """What was handed over in Python, in words; empty if nothing was."""
        kinds = ("data", "model", "selector", "algorithm", "public")
        return ", ".join(name for name in kinds if getattr(self, name) is not None)

    def classes(self) -> dict[str, str]:
        """The classes of a strategy and an algorithm that were handed over, for the record."""
        handed = {"given selector": self.selector, "given algorithm": self.algorithm}
        return {name: type(part).__name__ for name, part in handed.items() if part is not None}

    def note(self) -> str:
        """What was handed over in Python, as comments for the head of the resolved experiment file."""
        given = {name: getattr(self, name) for name in self.names().split(", ") if name}
        if self.data is not None:
            given["data"] = f"{self.data.name}, {self.data.fingerprint[:12]}"
        if self.public_data is not None:
            given["public"] = f"{self.public_data.name}, {self.public_data.fingerprint[:12]}"
        lines = [f"# {name}: handed over in Python: {' '.join(str(value).split())}\n" for name, value in given.items()]
        return "".join(lines)


def _identity(given: Any) -> str:
    """What of an object from Python decides results: its class or function as written, its values, and a module's weights."""
    if isinstance(given, partial):
        bound = [given.args, sorted(given.keywords.items())]
        return f"partial({_identity(given.func)}, {bound!r})"
    if inspect.isfunction(given):
        cells = [cell.cell_contents for cell in given.__closure__ or ()]
        inside = [_identity(value) if callable(value) else repr(value) for value in cells]
        return f"{given.__module__}.{given.__qualname__}:{_source(given)}:{inside}:{given.__defaults__!r}:{given.__kwdefaults__!r}"
    kind = given if isinstance(given, type) else type(given)
    written = [_source(base) for base in kind.__mro__ if not base.__module__.startswith(("builtins", "torch.", "abc"))]
    name = f"{kind.__module__}.{kind.__qualname__}:{written}"
    if isinstance(given, type):
        return name
    state = getattr(given, "named_parameters", None)
    if state is None:
        return f"{name}:{given!r}"
    digest = hashlib.sha256(repr(given).encode())
    for part in given.modules():
        digest.update(_source(type(part)).encode() if not type(part).__module__.startswith("torch.") else b"")
    for entry, value in given.state_dict().items():
        digest.update(entry.encode() + value.detach().cpu().numpy().tobytes())
    return f"{name}:{digest.hexdigest()}"


def _source(written: Any) -> str:
    """Hash of the text of a class or function; its name where there is no text, as in a console."""
    try:
        return hashlib.sha256(inspect.getsource(written).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return str(getattr(written, "__qualname__", written))
