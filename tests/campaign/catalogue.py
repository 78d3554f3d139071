"""The attacks, in the order of the table."""

from tests.campaign.attack import Attack
from tests.campaign.byte_flips import ByteFlips
from tests.campaign.callers import Callers
from tests.campaign.data_files import DataFiles
from tests.campaign.descriptions import Descriptions
from tests.campaign.full_disk import FullDisk
from tests.campaign.hostile_names import HostileNames
from tests.campaign.kills import Kills
from tests.campaign.log_cuts import LogCuts
from tests.campaign.same_bits import SameBits
from tests.campaign.soak import Soak
from tests.campaign.starters import Starters

__all__ = ["ATTACKS"]

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        Kills, LogCuts, FullDisk, ByteFlips, Starters, Descriptions, DataFiles, HostileNames, SameBits, Soak, Callers,
    )
}  # fmt: skip
