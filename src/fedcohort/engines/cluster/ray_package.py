"""The package Ray, which is imported only when a cluster is used, and its errors of lost hosts."""

import os
from functools import cache
from typing import Any

from fedcohort.core.errors import UsageError

__all__ = ["lost_errors", "ray_module"]


def ray_module() -> Any:
    """The module ``ray``.

    Raises:
        UsageError: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UsageError(
            "engine.name = 'ray': Ray is not installed; install it with pip install 'fedcohort[ray]', or use 'local'"
        ) from None
    return ray


@cache
def lost_errors() -> tuple[type[Exception], ...]:
    """The errors that say that a host or its result is lost; the work can be done again elsewhere."""
    errors = ray_module().exceptions
    return (
        errors.RayActorError,
        errors.ObjectLostError,
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.TaskCancelledError,
        errors.OutOfMemoryError,
    )
