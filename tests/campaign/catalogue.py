"""The attacks, in the order of the table."""

from tests.campaign.attack import Attack
from tests.campaign.byte_flips import ByteFlips
from tests.campaign.full_disk import FullDisk
from tests.campaign.kills import Kills
from tests.campaign.same_bits import SameBits
from tests.campaign.starters import Starters

__all__ = ["ATTACKS"]

ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in (Kills, FullDisk, ByteFlips, Starters, SameBits)}
