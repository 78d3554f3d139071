"""Names that FedCohort imports of pydantic; see ../README.md."""

ConfigDict = dict


class ValidationError(ValueError):
    """Never raised."""
