"""Names that FedCohort imports of pydantic_core; see README.md."""

ArgsKwargs = ErrorDetails = dict
