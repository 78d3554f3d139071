"""Sites on a LoopGrid: the data owners of a deployment in this process, for tests."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import Context, Message

from fedcohort.algorithms import Algorithm
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.files.state_files import unpack
from fedcohort.federation.federation import Federation
from fedcohort.flower.deployed.grid_engine import GridEngine
from fedcohort.flower.deployed.grid_link import GridLink
from fedcohort.flower.deployed.site_roster import SiteRoster
from fedcohort.flower.sites.courier import courier_app
from fedcohort.flower.sites.envelope import bytes_in
from fedcohort.flower.sites.memory_versions import MemoryVersions
from fedcohort.flower.sites.owner_policy import Allowed
from fedcohort.flower.sites.protocol import HELLO
from fedcohort.flower.sites.site import Plugins, Site
from fedcohort.flower.sites.site_work import client_data
from fedcohort.models import Model
from fedcohort.selection import QUESTIONS
from fedcohort.testing import LoopGrid
from fedcohort.testing.base import UNKNOWN_LABEL

EVERYTHING = Allowed(questions=frozenset(QUESTIONS), reports=None)


def sites_of(
    federation: Federation,
    number: int,
    plugins: Plugins,
    *,
    allowed: Allowed = EVERYTHING,
    memories: MemoryVersions | None = None,
    **settings: Any,
) -> list[Site]:
    """The clients of a federation at a number of sites, dealt in turns; clients are named by their numbers."""
    shared = MemoryVersions() if memories is None else memories
    return [
        Site(
            f"site-{i}",
            {str(c): client_data(federation, c) for c in range(i, federation.num_clients, number)},
            plugins,
            allowed=allowed,
            memories=shared,
            **settings,
        )
        for i in range(number)
    ]


def grid_of(sites: Sequence[Site], **settings: Any) -> LoopGrid:
    """A grid with one node for each site. The data of client ``BROKEN`` can be used until it has been introduced."""

    def call(context: Context, data: bytes) -> bytes:
        site = sites[int(context.node_config["partition-id"])]
        if unpack(data).get("kind") != HELLO:
            return site.handle(data)
        with labels_that_the_server_knows(site):
            return site.handle(data)

    return LoopGrid(courier_app(call), [{"partition-id": i} for i in range(len(sites))], **settings)


@contextmanager
def labels_that_the_server_knows(site: Site) -> Iterator[None]:
    """Replace the labels with which the site would refuse to introduce its clients."""
    changed = []
    for data in site.clients.values():
        labels = data.training.labels
        changed.append((labels, labels.clone()))
        labels[labels == UNKNOWN_LABEL] = 0
    yield
    for labels, before in changed:
        labels.copy_(before)


def words_of(message: Message) -> dict[str, Any]:
    """The words in a request or a reply."""
    return unpack(bytes_in(message) or b"")


def is_training(message: Message) -> bool:
    """Whether a request is about training."""
    return words_of(message)["kind"] == "train"


def met(grid: LoopGrid, federation: Federation, patience: float = 10.0) -> tuple[GridLink, SiteRoster]:
    """The link to a grid, and the roster of its clients."""
    link = GridLink(grid, patience, grid.clock)
    roster = SiteRoster(federation.num_classes)
    roster.meet(link)
    roster.fix()
    return link, roster


def making(memories: MemoryVersions | None = None, **settings: Any) -> Callable[..., GridEngine]:
    """Builds engines over grids of their own, whose sites share their memories as those of lasting owners do."""
    shared = MemoryVersions() if memories is None else memories

    def make(
        federation: Federation, model: Model, training: Training, algorithm: Algorithm, seed: int, workers: int
    ) -> GridEngine:
        sites = sites_of(federation, workers, lambda _: (model, training, algorithm), memories=shared)
        link, roster = met(grid_of(sites, order=lambda replies: replies[::-1]), federation)
        return GridEngine(
            federation,
            model,
            training,
            algorithm,
            seed,
            1,
            link=link,
            roster=roster,
            **({"errors": "raise"} | settings),
        )

    return make
