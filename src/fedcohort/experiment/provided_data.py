"""Data that strategies and algorithms need beside the clients' training samples."""

from fedcohort.core.errors import UsageError

__all__ = ["check_provided"]


def check_provided(needs: frozenset[str], plugin: str, validation: float, holdout: float, public: str) -> None:
    """Check that an experiment provides what a strategy or an algorithm needs.

    Args:
        needs: any of ``validation``, ``holdout``, ``public``, and others that every experiment provides.
        plugin: name of the strategy or the algorithm, for the message.
        validation, holdout, public: the settings ``data.validation``, ``federation.holdout`` and ``public.name``.

    Raises:
        UsageError: something is missing; the message names the setting that provides it.
    """
    if "validation" in needs and validation == 0:
        raise UsageError(f"data.validation = 0: {plugin} needs a validation set; use a value above 0, such as 0.1")
    if "holdout" in needs and holdout == 0:
        raise UsageError(
            f"federation.holdout = 0: {plugin} needs a held-out part of each client's data; use a value above 0, such as 0.2"
        )
    if "public" in needs and public == "none":
        raise UsageError(
            f"public.name = 'none': {plugin} needs public samples; use 'holdout', another data set of the same shape, "
            "or 'given' with public=… in Python"
        )
