"""The package Ray, which is imported only when a cluster is used, and its errors of lost hosts."""

import os
from functools import cache
from typing import Any

from fedcohort.core.errors import UsageError

__all__ = ["about_token_mode", "lost_errors", "ray_module", "ray_prints_to_stderr"]


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
def ray_prints_to_stderr() -> None:
    """Let Ray print its lines about lost hosts to standard error; it prints them to standard output, also between results in JSON."""
    worker = getattr(getattr(ray_module(), "_private", None), "worker", None)
    usual = getattr(worker, "print_to_stdstream", None)  # a part of Ray that may change
    if usual is None:
        return

    def to_stderr(data: dict[str, Any], *arguments: Any, **settings: Any) -> None:
        usual({**data, "is_err": True}, *arguments, **settings)

    worker.print_to_stdstream = to_stderr  # type: ignore[union-attr]


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


def about_token_mode(address: str) -> str:
    """What to try if hosts cannot be started on the cluster at ``address``; empty if nothing is known.

    With ``auto``, Ray uses the token of this machine, also if the cluster was started before there was one.
    """
    if address and os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return "; if the cluster was started without a token, set RAY_AUTH_MODE=disabled"
    return ""
