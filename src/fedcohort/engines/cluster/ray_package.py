"""The package Ray, which is imported only when a cluster is used, its errors, and how many hosts a cluster has room for."""

import os
import textwrap
from functools import cache
from typing import Any

from fedcohort.core.errors import UsageError

__all__ = [
    "about_token", "about_token_mode", "awaited", "first_line", "hosts_with_room", "last_line", "lost_errors", "ray_module",
    "ray_prints_to_stderr",
]  # fmt: skip


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


def about_token() -> str:
    """How to use the token of a cluster: from an address, Ray does not use the token that it has saved."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return "; its token must be the one in ~/.ray/auth_token of this machine"
    return "; if ray start said that token authentication is enabled, set RAY_AUTH_MODE=token"


def about_token_mode(address: str) -> str:
    """What to try if hosts cannot be started on the cluster at ``address``; empty if nothing is known.

    With ``auto``, Ray uses the token of this machine, also if the cluster was started before there was one.
    """
    if address and os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return "; if the cluster was started without a token, set RAY_AUTH_MODE=disabled"
    return ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; Ray's have many."""
    return _shortened((str(error).strip().splitlines() or [type(error).__name__])[0])


def last_line(error: BaseException) -> str:
    """The last line of an error's message, in which Ray has the cause of a host that could not be started."""
    return _shortened((str(error).strip().splitlines() or [type(error).__name__])[-1])


def _shortened(line: str) -> str:
    return textwrap.shorten(line, 200, placeholder=" …")


def hosts_with_room(cores: int, *, gpu: bool) -> int:
    """Number of hosts, with so many cores or one GPU each, for which the machines of the cluster have room; at least 1."""
    return max(1, sum(int(own.get("GPU", 0) if gpu else own.get("CPU", 0) // cores) for own in _machines()))


def awaited(cores: int, *, gpu: bool) -> str:
    """What a host with so many cores, or one GPU, waits for, in words."""
    if gpu or cores == 1:
        return f"a free {'GPU' if gpu else 'core'} of the cluster"
    most = int(max((own.get("CPU", 0) for own in _machines()), default=0))
    largest = f"; the largest has {most}, so lower engine.threads_per_client" if most < cores else ""
    return f"{cores} free cores on one machine of the cluster{largest}"


def _machines() -> list[dict[str, float]]:
    """The resources of each machine of the cluster."""
    return [node["Resources"] for node in ray_module().nodes() if node["Alive"]]
