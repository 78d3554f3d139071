"""Names that FedCohort imports from pydantic; see ../README.md."""

ConfigDict = dict


class ValidationError(ValueError):
    """Never raised."""
