"""Make this Python behave as on another system: take away what that system lacks, and refuse what it refuses.

:func:`environment` writes a module ``sitecustomize`` that Python imports at its start, in all processes that are started with this
environment, also in those that they start.
"""

import os
from pathlib import Path

__all__ = ["PEAK", "environment"]

PEAK = 123_000_000
"""Peak memory that the stand-in for ``psutil`` reports, in bytes."""

_COMMON = """
import os, signal, sys

def remove(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

inspecting = []  # the stand-ins below may look at what they hide

def without_proc(event, arguments):
    if event == "open" and not inspecting and str(arguments[0]).startswith("/proc/"):
        if sys._getframe(1).f_code.co_filename.endswith("threadpoolctl.py"):
            return  # it asks Windows in another way; scikit-learn before 1.6 calls it when it is imported
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

sys.addaudithook(without_proc)
remove(os, "sched_getaffinity", "process_cpu_count", "posix_fallocate")

def refused(source, target, **_):
    raise PermissionError(1, "Operation not permitted", source)

os.link = refused  # as on a disk formatted with exFAT
"""

_WINDOWS = f'''
remove(os, "O_DIRECTORY", "fork", "forkpty", "setsid", "getpgid", "killpg", "getloadavg", "mkfifo", "nice", "sync")
remove(signal, "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "setitimer", "pthread_sigmask", "pthread_kill", "sigwait")
for name in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules[name] = None

import types
psutil = types.ModuleType("psutil")
psutil.Process = lambda: types.SimpleNamespace(memory_info=lambda: types.SimpleNamespace(rss=1, peak_wset={PEAK}))
sys.modules["psutil"] = psutil

import shutil
shutil._use_fd_functions = False
open_file = os.open

def no_folders(path, flags, *arguments, **settings):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return open_file(path, flags, *arguments, **settings)

os.open = no_folders

def in_use(path):
    """Whether this process has a file open or mapped, or a file below a folder."""
    path = os.path.realpath(path)
    inspecting.append(path)
    try:
        with open("/proc/self/maps") as maps:
            used = {{line.split(None, 5)[5].strip() for line in maps if line.count(" /")}}
        for number in os.listdir("/proc/self/fd"):
            try:
                used.add(os.readlink("/proc/self/fd/" + number))
            except OSError:
                pass
    finally:
        inspecting.remove(path)
    return any(file == path or file.startswith(path + os.sep) for file in used)

def careful(function):
    def call(*paths, **settings):
        for path in paths:
            shared_memory = os.fsdecode(path).startswith("/dev/shm/")  # of multiprocessing, which Windows does without
            if os.path.lexists(path) and not shared_memory and in_use(path):
                raise PermissionError(13, "The process cannot access the file because it is being used by another process", path)
        return function(*paths, **settings)
    return call

rename, os.replace, os.rename = os.rename, careful(os.replace), careful(os.rename)
os.unlink = os.remove = careful(os.unlink)

def rename_new(source, target, **settings):
    if os.path.lexists(target):
        raise FileExistsError(17, "Cannot create a file when that file already exists", target)
    return careful(rename)(source, target, **settings)

os.rename = rename_new
'''

_SYSTEMS = {"macOS": _COMMON, "Windows": _COMMON + _WINDOWS}


def environment(system: str, folder: Path, *missing: str) -> dict[str, str]:
    """The environment of a process on a stand-in for another system.

    Args:
        system: ``macOS`` or ``Windows``.
        folder: an empty folder for ``sitecustomize.py``.
        missing: modules that are not installed there.
    """
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in missing)
    (folder / "sitecustomize.py").write_text(_SYSTEMS[system] + blocked, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "FEDCOHORT_CACHE": str(folder / "cache")}
