"""Names that FedCohort imports from pydantic_core; see README.md."""

ArgsKwargs = ErrorDetails = dict
