"""A name that FedCohort imports; see ../README.md."""


class FieldInfo:
    """No instance is made."""
