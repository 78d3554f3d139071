"""The version of FedCohort; the package's metadata are built from it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
"""The version of the installed package, such as ``0.1.0``."""
