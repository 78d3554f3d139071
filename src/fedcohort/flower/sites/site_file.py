"""The file of a data owner, ``site.toml``: where the server is, which data there are, and what they may be used for."""

import logging
import tomllib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Lt
from pydantic import Field, ValidationError

from fedcohort.algorithms import ALGORITHMS
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.files.paths import check_writable, kind_of
from fedcohort.core.parameters import explain, make
from fedcohort.core.plugins import Table
from fedcohort.experiment import load
from fedcohort.experiment.given_objects import Given
from fedcohort.experiment.sections import Section
from fedcohort.federation.federation import Samples, split_locally
from fedcohort.flower.sites.held_out_check import unlike
from fedcohort.flower.sites.memory_versions import MemoryVersions
from fedcohort.flower.sites.owner_policy import Allowed, Budget, Spent
from fedcohort.flower.sites.protocol import Words
from fedcohort.flower.sites.site import Site
from fedcohort.flower.sites.site_work import ClientData, check_not_a_file, client_data
from fedcohort.models import MODELS
from fedcohort.runs.prepare_run import federate

__all__ = ["SiteFile", "SuperLink", "installed_plugins", "open_site", "read_site_file"]


log = logging.getLogger("fedcohort")

MOST_CLASSES = 2**31
"""Number that no label of a site reaches."""


class SuperLink(Section):
    """The server, and how the site proves that it is registered there."""

    address: str = "127.0.0.1:8000"
    """Host and port of the SuperLink."""
    root_certificates: str = ""
    """Certificate of the authority that signed the SuperLink's certificate (PEM)."""
    private_key: str = ""
    """The site's private key (OpenSSH, ECDSA). The server knows its public key."""


class SiteData(Section):
    """The data: those of the owner, or for a trial those of some clients of an experiment."""

    features: str = ""
    """File with the samples, ``.npy``: uint8 images [N, C, H, W], or floats [N, d] or [N, C, H, W]."""
    labels: str = ""
    """File with the labels, ``.npy``: integers [N] from 0."""
    held_out: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the samples that are held out for validation or calibration: the last ones, so shuffle the files."""
    experiment: str = ""
    """Experiment file with the clients of a trial."""
    clients: tuple[int, ...] = ()
    """Numbers of these clients."""


class Allow(Section):
    """What the server may learn."""

    training: bool = True
    """Whether clients train and send their updates."""
    questions: tuple[str, ...] = ()
    """Questions that are answered, such as LocalLoss."""
    reports: tuple[str, ...] = ()
    """Numbers that are sent with an update, such as loss."""
    histogram: bool = False
    """Whether the numbers of samples of each class are sent."""


class Limits(Section):
    """How much the site does in total; without a number, there is no limit."""

    rounds: Annotated[int, Ge(0)] | None = None
    """Rounds in which it trains."""
    answers: Annotated[int, Ge(0)] | None = None
    """Answers to questions, counted for each client."""
    bytes: Annotated[int, Ge(0)] | None = None
    """Bytes that it sends."""
    epochs: Annotated[int, Ge(0)] | None = None
    """Epochs that it trains, counted for each client, also those of the same work again and of questions that train."""


class SiteFile(Section):
    """A ``site.toml``; paths in it are relative to its folder."""

    name: Annotated[str, Field(max_length=100)] = ""
    """Name of the site; without one, the server uses its public key."""
    state: str = "state"
    """Folder for the clients' memories and for what was used of the budget."""
    workers: Annotated[int, Ge(0)] = 0
    """Number of threads, each of which trains one client at a time; 0 means one per core, or one per ``threads_per_client`` cores."""
    threads_per_client: Annotated[int, Ge(1)] = 1
    """Number of intra-op threads of PyTorch with which a client is trained. A site with one client and several cores trains a large
    network faster with more than one. The last digits of its updates then depend on the number."""
    superlink: SuperLink = SuperLink()
    data: SiteData = SiteData()
    allow: Allow = Allow()
    budget: Limits = Limits()


def read_site_file(path: str | Path) -> SiteFile:
    """The settings in a file.

    Raises:
        UsageError: the file cannot be read, or a setting is not valid.
    """
    if (kind := kind_of(Path(path))) not in ("", "a file"):  # a pipe would be waited for
        raise UsageError(f"{path}: is {kind}; give the path of a site.toml")
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file; give the path of a site.toml") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return SiteFile(**_tuples(values))
    except ValidationError as error:
        raise explain(error, "", SiteFile) from None


def open_site(path: str | Path) -> Site:
    """The site that a file describes, with its data.

    Raises:
        UsageError: a setting or the data cannot be used.
    """
    file, folder = read_site_file(path), Path(path).resolve().parent
    state = folder / file.state
    check_writable(state, "state =", folder=True)
    state.mkdir(parents=True, exist_ok=True)
    allowed = Allowed(
        file.allow.training, frozenset(file.allow.questions), frozenset(file.allow.reports), file.allow.histogram
    )
    spent = Spent(Budget(**file.budget.model_dump()), state / "spent.json")
    clients = _trial_clients(file.data, folder) if file.data.experiment else _own_client(file, folder)
    return Site(
        file.name, clients, installed_plugins, allowed=allowed, spent=spent, memories=MemoryVersions(state / "memories"),
        workers=file.workers,
        threads_per_client=file.threads_per_client,
    )  # fmt: skip


def installed_plugins(setup: Words) -> tuple[Any, Training, Any]:
    """Model, settings of training with their loss, and algorithm by their names; only those that are built in or installed at the
    site.

    Raises:
        UsageError: there is none of this name, or a parameter is not valid.
    """
    sections = setup.part("sections")
    model, algorithm = (
        _plugin(sections, name, table) for name, table in (("model", MODELS), ("algorithm", ALGORITHMS))
    )
    training: Training = make(Training, _plain(sections.part("training")), "training")
    check_not_a_file("training.loss.name", training.loss.get("name"))
    return model, training, algorithm


def _plugin(sections: Words, section: str, table: Table) -> Any:
    values = _plain(sections.part(section))
    name = str(values.pop("name", ""))
    check_not_a_file(f"{section}.name", name)
    return make(table.find(name, f"{section}.name"), values, section)


def _plain(words: Words) -> dict[str, Any]:
    return {name: value for name, value in words.values.items() if value is not None}


def _trial_clients(data: SiteData, folder: Path) -> dict[str, ClientData]:
    """Some clients of an experiment, named by their numbers."""
    if data.features or data.labels:
        raise UsageError("data.experiment: is for a trial without data of your own; give it, or features and labels")
    federation = federate(load(folder / data.experiment), Given()).federation
    wrong = [client for client in data.clients if not 0 <= client < federation.num_clients]
    if wrong or not data.clients:
        raise UsageError(
            f"data.clients = {list(data.clients)}: the experiment has the clients 0 to {federation.num_clients - 1}"
        )
    return {str(client): client_data(federation, client) for client in data.clients}


def _own_client(file: SiteFile, folder: Path) -> dict[str, ClientData]:
    """The owner's data as one client with the name of the site."""
    if not file.name:
        raise UsageError("name: a site with its own data needs a name, which is the name of its client")
    if not file.name.isprintable():
        raise UsageError(f"name = {file.name!r}: has characters that cannot be printed; give another name")
    if file.name != (plain := " ".join(file.name.split())):  # as messages carry it
        raise UsageError(f"name = {file.name!r}: has spaces at an end, or several in a row; give {plain!r}")
    features, labels = (_array(folder, name, getattr(file.data, name)) for name in ("features", "labels"))
    if not len(features):
        raise UsageError("data.features: has no samples")
    if len(features) != len(labels) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UsageError(
            f"data.labels: {labels.dtype} {list(labels.shape)} for {len(features)} samples; must be one integer from 0 for each"
        )
    if negative := int((labels < 0).sum()):
        raise UsageError(
            f"data.labels: {negative} of {len(labels)} are negative, the first is {labels[labels < 0][0]}; must be one integer from "
            "0 for each sample"
        )
    if labels.max() >= MOST_CLASSES:
        raise UsageError(f"data.labels: has {labels.max()}; must be classes of the server, from 0")
    if features.dtype.kind == "f":
        with np.errstate(over="ignore"):
            features = features.astype(np.float32)
        if not np.isfinite(features).all():
            raise UsageError(
                "data.features: has NaN or infinite numbers, or numbers that float32 cannot hold (above 3.4e38); remove or replace "
                "them"
            )
    elif features.dtype != np.uint8 or features.ndim != 4:
        raise UsageError(
            f"data.features: {features.dtype} {list(features.shape)}; must be floats, or uint8 images [N, C, H, W]"
        )
    held = int(split_locally(np.array([len(labels)]), file.data.held_out)[0])
    _check_held_out(labels, held, file.data.held_out)
    samples = Samples(torch.from_numpy(features), torch.from_numpy(labels.astype(np.int64)))
    cut = len(labels) - held
    return {file.name: ClientData(samples[:cut], samples[cut:])}


def _check_held_out(labels: np.ndarray, held: int, share: float) -> None:
    """Refuse a file that is sorted by class; warn if the classes of its end differ from those of the rest more than by chance.

    Raises:
        UsageError: a class is only in one of the parts.
    """
    found = unlike(labels, held)
    if found is None:
        return
    label, there, whole = found
    words = (
        f"data.held_out = {share:g}: the last {held} of {len(labels)} samples are held out, and have {there} of the {whole} samples "
        f"of class {label}; shuffle features and labels together"
    )
    if there in (0, whole):
        raise UsageError(f"{words}: the file seems to be sorted by class")
    log.warning("%s, unless the end of the file is meant to differ", words)


def _array(folder: Path, name: str, file: str) -> np.ndarray:
    if not file:
        raise UsageError(f"data.{name}: is missing; give a .npy file, or data.experiment for a trial")
    try:
        with (folder / file).open("rb") as opened:
            values = np.lib.format.read_array(opened)  # refuses pickled objects
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"data.{name} = {file!r}: cannot be read: {error}") from None
    if not isinstance(values, np.ndarray) or values.ndim == 0:
        raise UsageError(f"data.{name} = {file!r}: holds no array")
    return np.ascontiguousarray(values)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """TOML's lists as tuples, which are what the settings hold."""
    return {
        name: _tuples(value) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
    }
