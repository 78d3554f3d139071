"""Check that an experiment can be played in a deployment, and that the sites allow what its strategy needs."""

import logging

from fedcohort.core.errors import UsageError
from fedcohort.core.plugins import is_file_name
from fedcohort.experiment import Experiment
from fedcohort.federation.data.datasets import Dataset
from fedcohort.flower.deployed.grid_link import GridLink
from fedcohort.flower.deployed.site_roster import MetSite, SiteRoster
from fedcohort.flower.rehearsal import requirements
from fedcohort.flower.roster import LOOK, introduced, looks
from fedcohort.models import Model
from fedcohort.selection import Census, Selector

__all__ = [
    "check_data",
    "check_experiment",
    "check_name_for_sites",
    "check_sites",
    "check_trains",
    "gather_clients",
    "without_histogram",
]

log = logging.getLogger("fedcohort")

ANSWERED_BY_CLOCK = frozenset({"Speed"})
"""Questions that the server answers from its own measurements, without asking clients."""


def check_experiment(experiment: Experiment, *, wall: bool) -> None:
    """Refuse settings that only a simulation has.

    Raises:
        UsageError: one of them is set.
    """
    systems = experiment.systems
    only_simulated = {
        "systems.dropout": systems.dropout != 0,
        "systems.overcommit": systems.overcommit != 1,
        "systems.availability": systems.availability.name != "always",
    }
    for name, is_set in only_simulated.items():
        if wall and is_set:
            raise UsageError(
                f"{name}: describes simulated clients; leave it out, or set time = 'simulated' for a rehearsal"
            )
    for name in ("clients_every", "personal_epochs"):
        if getattr(experiment.measures, name):
            raise UsageError(f"measures.{name}: asks all clients for the record; leave it out in a deployment")
    if experiment.engine.device != "cpu" or experiment.engine.plan not in ("threads", "loop"):
        raise UsageError("engine: a deployment has the plan 'threads' and the device 'cpu'; leave both out")
    if experiment.engine.threads_per_client > 1:
        raise UsageError(
            f"engine.threads_per_client = {experiment.engine.threads_per_client}: leave it out; each site has its own number, "
            "threads_per_client in its site.toml"
        )
    check_name_for_sites("model.name", experiment.model.name)
    check_name_for_sites("algorithm.name", experiment.algorithm.name)
    check_name_for_sites("training.loss.name", experiment.training.loss.get("name"))


def check_name_for_sites(where: str, name: object) -> None:
    """Refuse a plug-in in a file, which sites would refuse.

    Args:
        where: the setting.
        name: the name of the plug-in.

    Raises:
        UsageError: it is a file.
    """
    if isinstance(name, str) and is_file_name(name):
        raise UsageError(
            f"{where} = {name!r}: is a file, and sites do not run files of the server; use a built-in or installed name"
        )


def check_data(experiment: Experiment, dataset: Dataset, model: Model) -> None:
    """Refuse data that sites do not train on: they have floats or images, and classes as labels.

    Raises:
        UsageError: the data are others.
    """
    reads_integers = dataset.train_features.dtype.kind == "i" and not dataset.standardise and model.reads_integers
    kinds = {
        "numeric labels": dataset.train_numbers is not None,
        "sequences of tokens": getattr(dataset, "vocabulary", 0) > 0,
        "integers as features, which the network reads as they are": reads_integers,
    }
    if found := [kind for kind, is_found in kinds.items() if is_found]:
        raise UsageError(
            f"data.name = {experiment.data.name!r}: has {found[0]}; a deployment needs tables of floats or images, and classes as "
            "labels"
        )


def gather_clients(link: GridLink, roster: SiteRoster, expected: int, enough: int, after_patience: int) -> None:
    """Wait until enough clients are connected and have introduced themselves, and for further nodes that are connected, at most for
    the patience of the link.

    Args:
        link: carries messages.
        roster: gets the clients.
        expected: number of clients of the run.
        enough: number of clients to wait for.
        after_patience: number of clients that is enough after the patience.

    Raises:
        UsageError: there are fewer or more.
    """
    notes, told = list[str](), -1
    for _ in looks(link.patience):
        for note in (new := roster.meet(link, LOOK)):
            log.warning("%s", note)
        notes += new
        if roster.connected > expected:
            raise UsageError(
                f"federation.clients = {expected}: the connected sites have {roster.connected} clients; set federation.clients to "
                "their number"
            )
        if roster.connected == expected or (roster.connected >= enough and not roster.waits(link)):
            return
        if roster.connected != told:
            told = roster.connected
            others = "the others" if told < enough else "nodes that have not introduced their clients yet"
            log.warning("%d of %d clients are connected; waiting for %s", told, enough, others)
    if roster.connected < after_patience:
        notes = [*dict.fromkeys(notes), *roster.silent()]
        raise _too_few(expected, enough, roster.connected, link.patience, notes)


def _too_few(expected: int, enough: int, connected: int, patience: float, notes: list[str]) -> UsageError:
    why = f" ({'; '.join(notes[:3])})" if notes else ""
    setting = f"federation.clients = {expected}" if enough == expected else f"min_clients = {enough}"
    return UsageError(f"{setting}: only {introduced(connected)} within {patience:g} s{why}")


def check_trains(site: MetSite) -> None:
    """Refuse a site that only answers questions.

    Raises:
        UsageError: it allows no training.
    """
    if not site.training:
        raise UsageError(f"site {site.name!r} allows no training: its owner has to set allow.training = true")


def without_histogram(selector: Selector, site: str) -> UsageError:
    """The error for a site whose clients do not disclose the label counts that a strategy needs."""
    return UsageError(
        f"{type(selector).__name__} needs the label counts of all clients, which site {site!r} does not disclose: its owner has to "
        "set allow.histogram = true"
    )


def check_sites(selector: Selector, census: Census, roster: SiteRoster) -> None:
    """Check that sites allow what a strategy needs. A question that only some sites answer is allowed: the others have no answer.

    Raises:
        UsageError: no site allows something that it needs, or a site allows no training.
    """
    name, sites = type(selector).__name__, roster.sites
    for site in sites:
        check_trains(site)
    if "histogram" in selector.needs and census.histogram is None:
        without = [client.site for client in roster.clients if client.histogram is None]
        raise without_histogram(selector, without[0])
    needed = requirements(selector, census)
    questions = {"LocalLoss" if kind == "LossChange" else kind for kind in needed.questions} - ANSWERED_BY_CLOCK
    if missing := sorted(questions - frozenset[str]().union(*(site.questions for site in sites))):
        raise UsageError(
            f"{name} asks clients for {' and '.join(missing)}, which no site allows: owners have to add it to allow.questions"
        )
    if any(site.reports is None for site in sites):
        return
    reported = frozenset[str]().union(*(site.reports or () for site in sites))
    if missing := sorted(needed.reports - reported):
        raise UsageError(
            f"{name} reads the reports {', '.join(missing)}, which no site allows: owners have to add them to allow.reports"
        )
