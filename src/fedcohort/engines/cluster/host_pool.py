"""The hosts of a Ray cluster: actors with some processor cores (or one GPU) each, replaced when they are lost."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from fedcohort.core.errors import UsageError
from fedcohort.core.processor import processor
from fedcohort.core.signals import Signalled
from fedcohort.engines.cluster.host import Host
from fedcohort.engines.cluster.messages import Facts
from fedcohort.engines.cluster.ray_package import (
    about_token,
    about_token_mode,
    awaited,
    first_line,
    hosts_with_room,
    last_line,
    lost_errors,
    ray_module,
    ray_prints_to_stderr,
)

__all__ = ["PATIENCE", "HostPool", "Member", "listed_clients", "shared_pool"]

log = logging.getLogger("fedcohort")

PATIENCE = 600.0
"""Default number of seconds that a run waits for a host when none is left."""
STARTS = 3
"""Number of times that a private cluster is started; Ray gives up after 30 s, which a busy machine can exceed."""
REACH_SECONDS = 10.0
"""Seconds to wait for the address of a cluster to answer."""
HTTP2_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HTTP2_SETTINGS
"""How a client of HTTP/2 begins, which Ray speaks; the server begins with a frame of settings, whose type is its fourth byte.
Ray itself would try for minutes to speak with a server of another kind."""
NOTICE_SECONDS = 15.0
"""Seconds without a host after which a warning says what the run waits for."""
NAMED = 20
"""Maximum number of clients that a message names."""
HOST_BYTES = 300 * 2**20
"""Memory that a host takes without data and models, about."""
PAUSE = 1.0
"""Seconds between a host that could not be started and its replacement."""


@dataclass(eq=False)
class Member:
    """A host of the pool.

    Attributes:
        actor: Ray's handle.
        facts: what the host said of itself; None until it has answered.
    """

    actor: Any
    greeting: Any
    facts: Facts | None = None


class HostPool:
    """Hosts on a cluster. They are started once, and several engines may use them one after another.

    Args:
        address: address of a Ray cluster, such as ``"10.0.0.5:6379"`` or ``"auto"``; empty for a private one on this machine.
        hosts: number of hosts; 0 means as many as the cluster has cores, or GPUs, for.
        cores: number of cores of each host.
        gpu: whether each host needs a GPU.
        patience: seconds to wait for a host when none is left.

    Raises:
        UsageError: the cluster cannot be reached, or a private cluster has no room for the hosts.
    """

    def __init__(
        self, address: str = "", hosts: int = 0, cores: int = 1, *, gpu: bool = False, patience: float = PATIENCE
    ) -> None:
        self.address, self.cores, self.gpu, self.patience = address, cores, gpu, patience
        self._ray = ray_module()
        self._connect(hosts)
        resources = self._ray.cluster_resources()
        if self._own_cluster and not address:
            try:
                _check_room(resources, hosts, gpu=gpu)
            except UsageError:
                self._ray.shutdown()
                raise
        self.size = hosts or hosts_with_room(cores, gpu=gpu)
        self._start = self._ray.remote(
            num_cpus=cores,
            num_gpus=1 if gpu else 0,
            max_restarts=0,
            enable_task_events=False,  # Ray's own record of every call, which nothing here reads
            concurrency_groups={"models": 1},
        )(_actor_class(self._ray)).remote
        self._warned: set[tuple[str, str]] = set()
        self._alone_since: float | None = None
        self._told, self._not_started, self._next_start = False, "", 0.0
        self.members: list[Member] = []
        self._lock = threading.Lock()  # a thread that awaits models replaces hosts, too
        self.refill()

    @property
    def ready(self) -> list[Member]:
        """The hosts that have answered."""
        return [member for member in self.members if member.facts is not None]

    @property
    def greetings(self) -> dict[Any, Member]:
        """The hosts that have not answered yet, by the reference to their answer."""
        return {member.greeting: member for member in self.members if member.facts is None}

    def greet(self, member: Member) -> None:
        """Note the answer of a new host. From then on it can work."""
        try:
            member.facts = self._ray.get(member.greeting)
        except lost_errors() as error:
            self.lose(member)
            why = f"{last_line(error).rstrip('.')}{about_token_mode(self.address)}"
            self._not_started = f" (the last one could not be started: {why})"
            self._next_start = time.monotonic() + PAUSE
            return
        self._alone_since = None
        self._compare(member.facts)

    def lose(self, member: Member) -> None:
        """Remove a host; its actor is ended if it still runs."""
        with self._lock:
            if member in self.members:
                self.members.remove(member)
        with suppress(self._ray.exceptions.RayError):  # on a busy cluster, Ray can have cancelled the start of an actor
            self._ray.kill(member.actor, no_restart=True)

    def lost(self, member: Member, clients: Sequence[int], error: BaseException) -> None:
        """Remove a host that was lost, and say so in one line.

        Args:
            member: the host.
            clients: the clients whose work it had.
            error: how it was noticed.
        """
        if member in self.members:
            name = "a host" if member.facts is None else member.facts.name
            again = f"its work for clients {listed_clients(clients)} is done again" if clients else "it had no work"
            log.warning("%s was lost (%s); %s", name, first_line(error).rstrip("."), again)
        self.lose(member)

    def refill(self) -> None:
        """Start hosts in place of those that were lost.

        Raises:
            UsageError: no host was left for as long as the pool's patience.
        """
        now = time.monotonic()
        where = f"engine.address = {self.address!r}" if self.address else "engine.name = 'ray'"
        if now >= self._next_start:
            with self._lock:
                for _ in range(self.size - len(self.members)):
                    actor = self._start()
                    self.members.append(Member(actor, actor.facts.remote()))
        if self.ready:
            self._alone_since, self._told = None, False
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > NOTICE_SECONDS and not self._told:
            self._told = True
            log.warning(
                "%s: no host has answered for %.0f s%s; waiting up to %.0f s (engine.patience) for %s",
                where, now - self._alone_since, self._not_started, self.patience, awaited(self.cores, gpu=self.gpu),
            )  # fmt: skip
        elif now - self._alone_since > self.patience:
            raise UsageError(
                f"{where}: no host has answered for {self.patience:.0f} s (engine.patience){self._not_started}; the record is "
                "complete up to the last round: start hosts and repeat the command to continue"
            )

    def wait_until_ready(self) -> None:
        """Wait for the first host."""
        while not self.ready:
            self.refill()
            if not self.greetings:  # Ray does not wait for nothing
                time.sleep(PAUSE)
            done, _ = self._ray.wait(list(self.greetings), num_returns=1, timeout=PAUSE)
            for greeting in done:
                self.greet(self.greetings[greeting])

    def close(self) -> None:
        """End all hosts, and the private cluster."""
        for member in list(self.members):
            self.lose(member)
        if self._own_cluster:
            self._ray.shutdown()

    def _connect(self, hosts: int) -> None:
        """Connect to the cluster, or start a private one. A connection that the caller's program already has is used."""
        self._own_cluster = not self._ray.is_initialized()
        if not self._own_cluster:
            return
        ray_prints_to_stderr()
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address:
            try:
                _reach(self.address)
                with _sigterm_unchanged():
                    self._ray.init(address=self.address, **options)
            except (OSError, RuntimeError, ValueError) as error:
                raise UsageError(
                    f"engine.address = {self.address!r}: no Ray cluster answers there ({first_line(error)}); give the address that "
                    f"ray start --head printed, or leave it out for a private cluster on this machine{about_token()}"
                ) from None
            return
        cores = max(max(hosts, 1) * self.cores, os.cpu_count() or 1)
        for attempt in range(1, STARTS + 1):
            try:
                with _sigterm_unchanged():
                    self._ray.init(address="local", num_cpus=cores, include_dashboard=False, **options)
            except Exception as error:
                self._ray.shutdown()
                if attempt == STARTS:
                    raise UsageError(
                        f"engine.name = 'ray': no private cluster could be started ({first_line(error)}); use engine.name = 'local'"
                    ) from error
                log.warning("Ray did not start (%s); another attempt follows", first_line(error))
            else:
                return

    def _compare(self, facts: Facts) -> None:
        """Warn once if a host has another processor than this process, or uses other instructions."""
        here = processor(), torch.backends.cpu.get_cpu_capability()
        there = facts.processor, facts.instructions
        if there != here and there not in self._warned:
            self._warned.add(there)
            log.warning(
                "%s computes on %s with %s instructions, and this machine on %s with %s: results may differ in the last bits",
                facts.name, *there, *here,
            )  # fmt: skip


@contextmanager
def _sigterm_unchanged() -> Iterator[None]:
    """Keep the handler of SIGTERM, which ``ray.init`` replaces by one that ends the process without a word.

    Raises:
        Signalled: the signal arrived while Ray handled it.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise Signalled(signal.SIGTERM) from None
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_room(resources: Mapping[str, float], hosts: int, *, gpu: bool) -> None:
    """Refuse hosts for which a private cluster, which no machine can join, has no room.

    Raises:
        UsageError: there is no GPU, or too little memory.
    """
    if gpu and not resources.get("GPU"):
        raise UsageError(
            "engine.device = 'cuda': Ray sees no GPU on this machine; use 'cpu', or engine.address = that of a cluster with GPUs"
        )
    room = int(resources.get("memory", hosts * HOST_BYTES) // HOST_BYTES)
    if hosts > max(room, os.cpu_count() or 1):
        raise UsageError(
            f"engine.workers = {hosts}: this machine has memory for about {room} hosts, with {HOST_BYTES / 2**20:.0f} MB each; "
            "lower it, or leave it out for one host per core"
        )


def _actor_class(ray: Any) -> type[Host]:
    """The class of the actors: means of models are computed beside the training that goes on."""

    class HostActor(Host):
        mean = ray.method(concurrency_group="models")(Host.mean)
        state = ray.method(concurrency_group="models")(Host.state)

    return HostActor


def _reach(address: str) -> None:
    """Try to reach the cluster, because Ray would try for many minutes. ``auto`` is Ray's word for the cluster of this machine.

    Raises:
        OSError: the address does not answer.
        ValueError: the address has another form, or another program answers there.
    """
    if address == "auto" and not (address := _latest_address()):
        return
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise ValueError("the form is HOST:PORT")
    with socket.create_connection((host, int(port)), REACH_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") == "1":
            return
        connection.sendall(HTTP2_GREETING)
        answer = connection.recv(len(HTTP2_SETTINGS), socket.MSG_WAITALL)
    if answer[3:4] != HTTP2_SETTINGS[3:4]:
        raise ValueError("another program answers")


def _latest_address() -> str:
    """The address that ``auto`` stands for, of the last cluster that was started on this machine; empty if Ray does not tell it.

    Raises:
        ConnectionError: there is no cluster, or more than one.
    """
    try:
        from ray._private.services import canonicalize_bootstrap_address_or_die as latest

        return str(latest("auto"))
    except ConnectionError:
        raise
    except Exception:  # it is not part of Ray's public interface
        return ""


def listed_clients(clients: Sequence[int]) -> str:
    """At most :data:`NAMED` clients."""
    more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
    return ", ".join(map(str, clients[:NAMED])) + more


_POOLS: dict[tuple[Any, ...], HostPool] = {}


def shared_pool(address: str, hosts: int, cores: int = 1, *, gpu: bool, patience: float) -> HostPool:
    """The pool of this process for these settings; it stays until the process ends, so that the next run starts at once."""
    key = address, hosts, cores, gpu
    if key not in _POOLS:
        for other in list(_POOLS):
            _POOLS.pop(other).close()
        _POOLS[key] = HostPool(address, hosts, cores, gpu=gpu, patience=patience)
    _POOLS[key].patience = patience
    return _POOLS[key]
