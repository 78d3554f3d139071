"""What FedCohort finds on this machine: versions, devices, the cache, the data mirror, and optional packages.

Only the standard library is imported at the beginning, so that an installation with missing packages can be examined.
"""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from fedcohort.core.errors import UsageError
from fedcohort.core.processor import cores, processor
from fedcohort.core.version import __version__

__all__ = [
    "CPU_TORCH",
    "EXTRAS",
    "CacheFolder",
    "Extra",
    "Installation",
    "Package",
    "Problem",
    "examine",
    "install_command",
]

OLDEST_PYTHON = (3, 11)

CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
"""Installs PyTorch for a CPU; on Linux, a plain ``pip install torch`` also installs the libraries for NVIDIA GPUs."""

DISTRIBUTION = "fedcohort"


class Extra(NamedTuple):
    """An extra of the package.

    Attributes:
        packages: the packages that it installs.
        use: what they are for.
    """

    packages: tuple[str, ...]
    use: str


EXTRAS = {
    "hub": Extra(("datasets", "pyarrow"), "image folders, Parquet files, and data sets of the Hugging Face Hub"),
    "flower": Extra(("flwr",), "strategies in Flower apps"),
    "ray": Extra(("ray",), "training the clients on a Ray cluster"),
    "mlflow": Extra(("mlflow-skinny",), "logging to MLflow"),
    "tensorboard": Extra(("tensorboard",), "logging to TensorBoard"),
    "wandb": Extra(("wandb",), "logging to Weights & Biases"),
}
"""The optional packages, by extra."""


class Package(NamedTuple):
    """A package that FedCohort needs or can use.

    Attributes:
        name: name of the package.
        version: the installed version; None if it is not installed.
        oldest: the oldest version that works; empty if any version does.
    """

    name: str
    version: str | None
    oldest: str = ""


class Problem(NamedTuple):
    """Something that keeps FedCohort from working.

    Attributes:
        text: what it is.
        cure: what to do about it.
    """

    text: str
    cure: str


class CacheFolder(NamedTuple):
    """The cache of decoded data sets.

    Attributes:
        folder: where it is.
        entries: number of its entries.
        num_bytes: size of its entries.
        free: free bytes on its disk.
    """

    folder: str
    entries: int
    num_bytes: int
    free: int


@dataclass
class Installation:
    """What :func:`examine` found.

    Attributes:
        packages: the required packages.
        extras: the optional packages, by extra.
        torch: PyTorch's version with its build, such as ``2.13.0+cpu``; empty if it cannot be imported.
        devices: the devices that experiments can train on, the CPU first.
        cache: the cache of data sets; None if it cannot be used.
        mirror: the data mirror; empty without one.
        mirrored: names of the data sets that the mirror has.
        problems: what keeps FedCohort from working.
        notes: what could be better.
    """

    fedcohort: str = __version__
    python: str = platform.python_version()
    system: str = field(default_factory=platform.platform)
    cores: int = field(default_factory=cores)
    packages: list[Package] = field(default_factory=list)
    extras: dict[str, list[Package]] = field(default_factory=dict)
    torch: str = ""
    devices: list[str] = field(default_factory=list)
    cache: CacheFolder | None = None
    mirror: str = ""
    mirrored: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def missing(self, extra: str) -> list[str]:
        """The packages of an extra that are not installed."""
        return [package.name for package in self.extras[extra] if package.version is None]


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def examine(data_dir: str | None = None) -> Installation:
    """Examine this machine. Nothing is changed, except that the folder of the cache is created if it is missing.

    Args:
        data_dir: the data mirror; default: the environment variable ``FEDCOHORT_DATA``.
    """
    found = Installation()
    found.problems += _problems_of_python()
    found.packages = list(_required())
    found.problems += filter(None, map(_problem_of, found.packages))
    found.extras = {
        extra: [Package(name, _version(name)) for name in described.packages] for extra, described in EXTRAS.items()
    }
    _examine_torch(found)
    _examine_cache(found)
    _examine_mirror(found, data_dir)
    return found


def _problems_of_python() -> list[Problem]:
    if sys.version_info >= OLDEST_PYTHON:
        return []
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return [Problem(f"Python {platform.python_version()} is too old", f"use Python {oldest} or later")]


def _required() -> Iterator[Package]:
    """The packages that the installed metadata requires on this system; without metadata, only PyTorch."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        requirements = ["torch"]
    for requirement in requirements:
        specifier, _, marker = requirement.partition(";")
        if "extra" in marker or ("sys_platform" in marker and sys.platform not in re.findall(r"[\w.]+", marker)):
            continue
        parsed = re.match(r"\s*([\w.-]+)[^>]*(?:>=\s*([\w.]+))?", specifier)
        assert parsed is not None, requirement
        yield Package(parsed[1], _version(parsed[1]), parsed[2] or "")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _problem_of(package: Package) -> Problem | None:
    """The problem with a required package; None if there is none."""
    wanted = f"{package.name}>={package.oldest}" if package.oldest else package.name
    cure = (
        CPU_TORCH + "; for an NVIDIA GPU, pip install torch" if package.name == "torch" else f"pip install '{wanted}'"
    )
    if package.version is None:
        return Problem(f"{package.name} is not installed", cure)
    if _numbers(package.version) < _numbers(package.oldest):
        return Problem(f"{package.name} {package.version} is older than {package.oldest}", cure)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version, such as (2, 13, 0) of ``2.13.0+cpu``, without zeros at the end."""
    beginning = re.match(r"[\d.]*", version)
    numbers = [int(part) for part in beginning[0].split(".") if part] if beginning else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _examine_torch(found: Installation) -> None:
    """Import PyTorch, and list its devices."""
    found.devices = [f"cpu: {processor()}, {found.cores} {'core' if found.cores == 1 else 'cores'}"]
    if _version("torch") is None:
        return  # a required package, so that the problem is listed already
    try:
        import torch
    except Exception as error:  # a library of the system is missing, or the installation is damaged
        reason = " ".join(str(error).split())
        found.problems.append(Problem(f"torch cannot be imported ({reason})", f"install it again: {CPU_TORCH}"))
        return
    found.torch = torch.__version__
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        found.devices.append(f"cuda:{number}: {facts.name}, {facts.total_memory / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        found.devices.append("mps: Apple GPU")
    if torch.version.cuda and not torch.cuda.is_available():
        found.notes.append(
            f"this PyTorch is built for CUDA {torch.version.cuda}, but finds no GPU; the build for a CPU is smaller by several GB: "
            f"pip uninstall torch, then {CPU_TORCH}"
        )


def _examine_cache(found: Installation) -> None:
    """Find the size of the cache, and whether it can be written."""
    try:
        from fedcohort.core.files.user_cache import cache_folder
        from fedcohort.federation.data.cache_listing import cached_data
    except ImportError:  # of a required package, so that the problem is listed already
        return
    try:
        entries, folder = cached_data(), cache_folder("datasets").parent
        free = shutil.disk_usage(folder).free
    except (UsageError, OSError) as error:
        found.problems.append(Problem(str(error), "name another folder with FEDCOHORT_CACHE"))
        return
    found.cache = CacheFolder(str(folder), len(entries), sum(entry.num_bytes for entry in entries), free)
    if not os.access(folder / "datasets", os.W_OK):
        found.problems.append(
            Problem(
                f"the cache {folder} cannot be written", "make it writable, or name another folder with FEDCOHORT_CACHE"
            )
        )


def _examine_mirror(found: Installation, data_dir: str | None) -> None:
    """Find the known data sets in the data mirror."""
    found.mirror = data_dir or os.environ.get("FEDCOHORT_DATA") or ""
    if not found.mirror:
        return
    if not Path(found.mirror).is_dir():
        option = "--data-dir" if data_dir else "FEDCOHORT_DATA"
        found.problems.append(
            Problem(f"{option} = {found.mirror!r}: no such folder", "use the folder of a local mirror, or leave it out")
        )
        return
    try:
        from fedcohort.federation.data.load_dataset import SOURCES
    except ImportError:
        return
    found.mirrored = [
        name for name, folders in SOURCES.items() if any(Path(found.mirror, folder).is_dir() for folder in folders)
    ]
