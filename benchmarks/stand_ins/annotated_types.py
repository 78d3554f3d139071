"""Limits without any check; see README.md."""


class Ge:
    """A limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit


Gt = Le = Lt = Ge
