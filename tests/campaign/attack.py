"""What an attack is: numbered cases, each of which can be repeated alone from the seed and its number."""

import random
import shutil
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

__all__ = ["Attack", "Failed", "Unavailable", "hold"]


class Failed(Exception):  # noqa: N818
    """Something that must hold did not hold in a case."""


class Unavailable(Exception):  # noqa: N818
    """This machine lacks something that the attack needs; the message says what."""


def hold(condition: object, message: str) -> None:
    """Raise :class:`Failed` with the message unless the condition holds (``assert`` would vanish under ``python -O``)."""
    if not condition:
        raise Failed(message)


class Attack(ABC):
    """An attack: what is prepared once, and a case for each number.

    Args:
        folder: an empty folder for everything that the attack writes.
        seed: the seed of the campaign.

    Attributes:
        name: the name in ``--only`` and in the table.
        did: what was done, for the table.
        unit: what is counted.
        full: number of cases in an hour of campaign; a shorter campaign plays its share of them.
        least: number of cases in the shortest campaign.
        small: numbers of the cases in the usual tests; they may lie beyond those of a campaign, and are then smaller.
        quick: numbers of the cases in a campaign of less than half an hour; empty: as many as its share.
        limit: seconds after which a case counts as hanging.
        alone: whether the cases need both cores, so that one is played at a time.
        figures: measured numbers for the table, by name; the last case's value counts.
    """

    name: ClassVar[str]
    did: ClassVar[str]
    unit: ClassVar[str] = "cases"
    full: ClassVar[int]
    least: ClassVar[int] = 1
    small: ClassVar[tuple[int, ...]]
    quick: ClassVar[tuple[int, ...]] = ()
    limit: ClassVar[float] = 120.0
    alone: ClassVar[bool] = False

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.figures: dict[str, str] = {}

    def prepare(self) -> None:  # noqa: B027 - many attacks need nothing
        """Make what all cases share, such as the undisturbed run.

        Raises:
            Unavailable: this machine lacks something that the attack needs.
        """

    @abstractmethod
    def case(self, number: int, draw: random.Random) -> int:
        """Play a case; returns how many things it did, such as kills.

        Raises:
            Failed: something did not hold.
        """

    def close(self) -> None:  # noqa: B027 - most attacks hold nothing
        """Give back what :meth:`prepare` took."""

    def play(self, number: int) -> int:
        """Play a case with its own random numbers, in the empty folder ``self.folder / "case"``."""
        place = self.folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return self.case(number, random.Random(f"{self.seed} {self.name} {number}"))

    @property
    def place(self) -> Path:
        """The folder of the current case."""
        return self.folder / "case"

    def draw(self, what: str) -> random.Random:
        """Random numbers for the preparation, which do not depend on cases."""
        return random.Random(zlib.crc32(f"{self.seed} {self.name} {what}".encode()))
