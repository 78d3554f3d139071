"""The data owner's process: it answers requests at a socket, and keeps the SuperNode running that carries them."""

import logging
import math
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedcohort.core.errors import UsageError
from fedcohort.core.files.durable_files import remove_leftovers
from fedcohort.core.files.paths import check_writable
from fedcohort.flower.addresses import port_of
from fedcohort.flower.sites import kept_process
from fedcohort.flower.sites.answer_log import budget_words
from fedcohort.flower.sites.courier import receive, send
from fedcohort.flower.sites.site import Site
from fedcohort.flower.sites.site_file import SiteFile, SuperLink, open_site, read_site_file

__all__ = ["is_loopback", "listening", "serve_site", "supernode_command"]

log = logging.getLogger("fedcohort")

LARGEST_REQUEST = 2**34
"""Bytes of a request that are read at most."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PAUSE = 0.5
ATTEMPTS, AGAIN_SECONDS, STAYS_SECONDS = 8, 10.0, 60.0
"""Number of times in a row that a SuperNode is started again, seconds before each of them, and seconds after which it
counts as running. After the kill of a site, a SuperLink takes its node for connected until two heartbeats are missing, which is a
minute."""


def serve_site(path: str | Path, *, insecure: bool = False) -> int:
    """Answer the server's requests with the data of ``site.toml`` until the process is ended, or the SuperNode cannot be kept
    running.

    A training that is under way is not waited for, because it can take hours: the process then ends at once, without returning.

    Args:
        path: the file.
        insecure: connect without TLS and without a key; only to a server on this machine.

    Returns:
        The exit code of a SuperNode that does not stay; 0 if this process was asked to end.

    Raises:
        UsageError: a setting or the data cannot be used.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("fedcohort site serve: needs sockets with a path, which Linux and macOS have")
    file, folder = read_site_file(path), Path(path).resolve().parent
    port_of(file.superlink.address, "superlink.address")
    check_security(file, folder, insecure=insecure)
    if not insecure:
        check_files(file.superlink, folder)
    with private_files(), alone(folder / file.state):
        site = open_site(path)
        code = _serve(file, folder, site, insecure=insecure)
        if site.at_work:
            log.warning("the request that was being answered is not waited for")
            os._exit(code)  # a return would wait for the threads of the training
    return code


@contextmanager
def private_files() -> Iterator[None]:
    """Let this process write files that only its user can read: memories of clients depend on the owner's data."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the lock of a folder of memories and budget: two processes would spend the same budget twice.

    Raises:
        UsageError: another process holds it, or the folder cannot be written.
    """
    from filelock import FileLock, Timeout

    check_writable(state, "state =", folder=True)
    state.mkdir(parents=True, exist_ok=True)
    lock = FileLock(state / "site.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"state = {str(state)!r}: another `fedcohort site serve` uses this folder; end it, or give each site a folder of its own"
        ) from None
    except (OSError, NotImplementedError) as error:  # perhaps a file system without locks
        raise UsageError(f"state = {str(state)!r}: cannot be locked ({error}); give a folder on another disk") from None
    if os.name == "posix" and state.stat().st_mode & 0o077:
        log.warning("state = %r: other users of this machine can open it; run chmod -R go= on it", str(state))
    remove_leftovers(state.rglob(".*"), math.inf)  # no other process writes there
    try:
        yield
    finally:
        lock.release()


def _serve(file: SiteFile, folder: Path, site: Site, *, insecure: bool) -> int:
    samples = sum(len(data.training) for data in site.clients.values())
    log.warning(
        "%d client%s with %d samples; the server is %s; %s",
        len(site.clients), "s" * (len(site.clients) > 1), samples, file.superlink.address, budget_words(site.spent.left()),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="fedcohort-") as private:  # only this user can open it
        where = Path(private) / "site"
        with listening(site, where):
            try:
                return keep_running(supernode_command(file, folder, where, insecure=insecure))
            except KeyboardInterrupt:  # also SIGTERM: the usual end
                return 0


def check_security(file: SiteFile, folder: Path, *, insecure: bool) -> None:
    """Refuse a connection without TLS or key, except to this machine.

    Raises:
        UsageError: a file is missing, or ``insecure`` is given for another machine.
    """
    link = file.superlink
    if insecure:
        if not is_loopback(link.address):
            raise UsageError(
                f"--insecure: only for a server on this machine, and superlink.address = {link.address!r}; leave it out, and give "
                "root_certificates and private_key"
            )
        return
    for name in ("root_certificates", "private_key"):
        value = getattr(link, name)
        if not value or not (folder / value).is_file():
            raise UsageError(
                f"superlink.{name} = {value!r}: there is no such file; TLS and a key are required, see docs/deployment.md"
            )
    key = folder / link.private_key
    if os.name == "posix" and key.stat().st_mode & 0o077:
        raise UsageError(f"superlink.private_key = {link.private_key!r}: others can read it; run chmod 600 on it")


def check_files(link: SuperLink, folder: Path) -> None:
    """Refuse a certificate or a key that a SuperNode cannot use.

    Raises:
        UsageError: one of them is not what it should be.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        ssl.create_default_context(cafile=folder / link.root_certificates)
    except OSError as error:  # also errors of SSL
        reason = (
            f"superlink.root_certificates = {link.root_certificates!r}: has no certificate that can be read ({error})"
        )
        raise UsageError(f"{reason}; use the ca.crt of the server's administrator") from None
    try:
        key: object = load_ssh_private_key((folder / link.private_key).read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        key = error
    if not isinstance(key, EllipticCurvePrivateKey):
        why = key if isinstance(key, Exception) else "it is of another kind"
        raise UsageError(
            f"superlink.private_key = {link.private_key!r}: is no ECDSA key without a passphrase ({why}); make one with ssh-keygen -t "
            'ecdsa -b 384 -N "" -f FILE'
        )


def is_loopback(address: str) -> bool:
    """Whether an address ``host:port`` is on this machine."""
    return address.rpartition(":")[0] in LOOPBACK


def supernode_command(file: SiteFile, folder: Path, where: Path, *, insecure: bool) -> list[str]:
    """The command that starts the SuperNode.

    Raises:
        UsageError: Flower is not installed.
    """
    beside = Path(sys.executable).with_name("flower-supernode")
    program = str(beside) if beside.exists() else shutil.which("flower-supernode")
    if program is None:
        raise UsageError("flower-supernode: is not installed; run pip install 'fedcohort[flower]'")
    link = file.superlink
    security = ["--insecure"]
    if not insecure:
        security = ["--root-certificates", str(folder / link.root_certificates)]
        security += ["--auth-supernode-private-key", str(folder / link.private_key)]
    return [
        program, "--superlink", link.address, *security, "--node-config", f'site="{where}"', "--host", "127.0.0.1",
        "--port", str(_free_port()),
    ]  # fmt: skip


@contextmanager
def listening(site: Site, where: Path) -> Iterator[None]:
    """Answer requests at a socket while the block runs. The socket is for this user only. A request that is being answered at the end
    is not waited for."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(where))
        where.chmod(0o600)
        server.listen()
        ends = threading.Event()
        thread = threading.Thread(target=_accept, args=(server, site, ends), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=5)
            where.unlink(missing_ok=True)
            if not site.at_work:
                site.close()


def _accept(server: socket.socket, site: Site, ends: threading.Event) -> None:
    """Answer requests until the end, also after a moment without a free file or thread for another one."""
    while not ends.is_set():
        connection = None
        try:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection, site), daemon=True).start()
        except (OSError, RuntimeError) as error:
            if connection is not None:
                connection.close()
            if not ends.is_set():  # at the end, the socket is closed
                log.warning("a request was not accepted: %s", error)
                ends.wait(PAUSE)


def _answer(connection: socket.socket, site: Site) -> None:
    with connection:
        try:
            send(connection, site.handle(receive(connection, LARGEST_REQUEST)))
        except OSError as error:
            log.warning("a request was not answered: %s", error)


def keep_running(command: Sequence[str]) -> int:
    """Run the SuperNode, and start it again if it ends; returns its exit code, or 1 instead of 0, if it does not stay."""
    attempt = 0
    while True:
        begin = time.monotonic()
        code = _run(command) or 1  # 0: the server does not know it any more
        attempt = 1 if time.monotonic() - begin > STAYS_SECONDS else attempt + 1
        if attempt > ATTEMPTS:
            return code
        log.warning(
            "the SuperNode has ended; attempt %d of %d to start it again follows in %g s. A server refuses keys that are not "
            "registered, clocks that are wrong, and for about a minute a site whose last process was killed",
            attempt, ATTEMPTS, AGAIN_SECONDS,
        )  # fmt: skip
        time.sleep(AGAIN_SECONDS)


def _run(command: Sequence[str]) -> int:
    """Run the SuperNode until it ends; end it with this process, and with it the processes that it has started."""
    settings = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # it starts programs beside itself
    kept = [sys.executable, "-m", kept_process.__name__, *command]
    environment = os.environ | settings | {"PATH": path}
    node = subprocess.Popen(kept, env=environment, stdin=subprocess.PIPE, start_new_session=True)
    try:
        while (code := node.poll()) is None:
            time.sleep(PAUSE)
        return code
    finally:
        end_group(node)
        if node.stdin is not None:
            node.stdin.close()


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process that leads a group, and its group."""
    for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
