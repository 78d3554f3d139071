"""Select clients for a server of your own, and record the decisions."""

from fedcohort.chooser.chooser import Ask, Chooser, ClientResult
from fedcohort.chooser.server_record import ServerRecord

__all__ = ["Ask", "Chooser", "ClientResult", "ServerRecord"]
