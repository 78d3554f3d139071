"""The ClientApp: it carries messages to the data owner's process, which decides what is answered."""

from fedcohort.flower.sites.courier import app

__all__ = ["app"]
