"""What all sections of an experiment file have in common."""

import copy
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from fedcohort.core.errors import UsageError, shown
from fedcohort.core.plugins import Table, is_file_name

__all__ = ["Choice", "Section"]


class Section(BaseModel):
    """One table of an experiment file: immutable, and strict about keys and types."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
    )

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change a setting.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{name} = {shown(value)}: an experiment cannot be changed; make another one, such as "
            "experiment.with_overrides({'selection': {'k': 5}})"
        )


class Choice(Section):
    """A section that chooses a plug-in: its name and its parameters, which are in the same TOML table."""

    table: ClassVar[Table]
    name: str
    """Name of the plug-in."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """All parameters of the plug-in, including defaults."""

    def build(self) -> Any:
        """A new instance.

        Raises:
            UsageError: the section was read from the record of a run, and its plug-in is a file of the run directory.
        """
        if is_file_name(self.name) and not Path(self.name).is_absolute():  # only a record has a relative path here
            raise UsageError(
                f"{type(self).__name__.lower()}.name = {self.name!r}: is a file of a run directory, which is not run when the record "
                "is read; to run it, load the experiment of the run directory with trust=True"
            )
        return self.table.find(self.name, type(self).__name__.lower())(**copy.deepcopy(self.parameters))
