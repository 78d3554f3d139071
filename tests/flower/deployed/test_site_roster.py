"""Sites introduce their clients; names stay with their keys, and introductions that cannot be used are refused with the reason."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fedcohort.core.files.state_files import pack, unpack
from fedcohort.flower.deployed.grid_link import GridLink
from fedcohort.flower.deployed.site_roster import SiteRoster
from fedcohort.flower.sites.envelope import reply_message
from fedcohort.flower.sites.site import Site
from fedcohort.flower.stored_rows import rows_of
from fedcohort.testing import LoopGrid
from fedcohort.testing.base import small_federation
from tests.flower.deployed.sites import EVERYTHING, grid_of, sites_of, words_of

FEDERATION = small_federation(trouble=False)


@dataclasses.dataclass
class Node:
    node_id: int
    public_key: bytes
    last_activated_at: str


class KeyedGrid(LoopGrid):
    """A grid whose nodes have keys, and keep their numbers when they are started again."""

    keys: dict[int, bytes]
    started: dict[int, str]

    def get_nodes(self) -> list[Any]:
        return [Node(node, self.keys[node], self.started.get(node, "")) for node in self.get_node_ids()]


def keyed(sites: list[Site], keys: list[bytes], **settings: Any) -> KeyedGrid:
    grid = grid_of(sites, **settings)
    grid.__class__ = KeyedGrid
    assert isinstance(grid, KeyedGrid)
    grid.keys, grid.started = dict(zip(grid.nodes, keys, strict=True)), {}
    return grid


def sites() -> list[Site]:
    return sites_of(FEDERATION, 2, lambda _: (None, None, None), allowed=EVERYTHING)  # type: ignore[arg-type,return-value]


def roster_on(grid: LoopGrid, **settings: Any) -> tuple[SiteRoster, GridLink]:
    return SiteRoster(3, **settings), GridLink(grid, 5.0, grid.clock)


def test_a_client_keeps_its_number_at_another_node_with_the_same_key() -> None:
    one, two = sites()
    grid = keyed([one, two, one], [b"a", b"b", b"a"])
    grid.offline = {2}
    roster, link = roster_on(grid)
    assert roster.meet(link) == []
    roster.fix()
    assert roster.present().tolist() == list(range(10))
    assert roster.node(0) == grid.nodes[0]
    grid.offline = {0}  # the same site at a new node
    assert roster.meet(link) == []
    assert roster.node(0) == grid.nodes[2]
    assert roster.present().tolist() == list(range(10))


def test_a_site_that_is_back_before_its_old_node_is_gone_takes_part_again() -> None:
    """A server notices only after a while that a node is gone."""
    one, two = sites()
    grid = keyed([one, two, one], [b"a", b"b", b"a"])
    grid.offline = {2}
    roster, link = roster_on(grid)
    roster.meet(link)
    roster.fix()
    grid.offline = set()
    [note] = roster.meet(link)
    assert "another connected node also has the client '0'" in note
    assert roster.meet(link) == []
    grid.offline = {0}
    assert roster.meet(link) == []
    assert roster.node(0) == grid.nodes[2]
    assert roster.present().tolist() == list(range(10))


def test_a_name_with_another_key_is_a_forged_identity() -> None:
    one, two = sites()
    grid = keyed([one, two, one], [b"a", b"b", b"c"])
    grid.offline = {2}
    roster, link = roster_on(grid)
    roster.meet(link)
    roster.fix()
    again = SiteRoster(3)
    again.load_state_dict(unpack(pack(roster.state_dict())))  # also in the next process
    grid.offline = {0}
    for each in (roster, again):
        [note] = each.meet(link)
        assert "forged identity: client '0' belongs to a node with another key" in note
        assert each.present().tolist() == [1, 3, 5, 7, 9]
        assert each.meet(link) == []  # it is not asked again


def test_without_authentication_a_client_is_known_by_its_name_alone() -> None:
    """Flower gives a node without a key a new one at every start."""
    one, two = sites()
    grid = keyed([one, two, one], [b"random", b"b", b"another"])
    grid.offline = {2}
    roster, link = roster_on(grid, authenticated=False)
    roster.meet(link)
    roster.fix()
    assert {client.key for client in roster.clients} == {""}
    again = SiteRoster(3, authenticated=False)
    again.load_state_dict(unpack(pack(roster.state_dict())))  # also in the next process
    begun_with_keys = SiteRoster(3, authenticated=False)
    begun_with_keys.load_state_dict(
        {"clients": [row | {"key": "a key"} for row in rows_of(roster.state_dict()["clients"])]}
    )
    grid.offline = {0}
    for each in (roster, again, begun_with_keys):
        assert each.meet(link) == []
        assert each.present().tolist() == list(range(10))
        assert each.node(0) == grid.nodes[2]


def test_without_authentication_a_site_without_a_name_is_known_by_its_node() -> None:
    one, two = sites()
    one.name = two.name = ""
    roster, link = roster_on(keyed([one, two], [b"a", b"b"]), authenticated=False)
    roster.meet(link)
    assert [site.name for site in roster.sites] == [f"node-{node}" for node in link.grid.get_node_ids()]


def test_a_site_without_a_name_is_known_by_its_key_and_else_by_its_node() -> None:
    one, two = sites()
    one.name = two.name = ""
    roster, link = roster_on(keyed([one, two], [b"a", b""]))
    roster.meet(link)
    names = [site.name for site in roster.sites]
    assert names == ["key-ca978112ca1bbdca", f"node-{link.grid.get_node_ids()[1]}"]  # type: ignore[index]


def test_a_site_that_joins_later_takes_no_part() -> None:
    one, two = sites()
    grid = keyed([one, two], [b"a", b"b"])
    grid.offline = {1}
    roster, link = roster_on(grid)
    roster.meet(link)
    roster.fix()
    grid.offline = set()
    [note] = roster.meet(link)
    assert "its client '1' was not there when the run began" in note
    assert len(roster.clients) == 5


def test_clients_join_while_there_are_seats() -> None:
    one, two, three = sites_of(FEDERATION, 3, lambda _: (None, None, None), allowed=EVERYTHING)  # type: ignore[arg-type,return-value]
    grid = keyed([one, two, three], [b"a", b"b", b"c"])
    grid.offline = {1, 2}
    link = GridLink(grid, 5.0, grid.clock)
    roster = SiteRoster(3, seats=7)
    roster.meet(link)
    roster.fix()
    roster.closed = ""
    assert [client.name for client in roster.clients] == ["0", "3", "6", "9"]
    assert roster.sizes().tolist() == [9, 23, 30, 6, 0, 0, 0]
    grid.offline = set()
    *joined, refused = roster.meet(link)  # both other sites have three clients, and there are three seats
    assert joined == [f"client '{name}' joined as client {number}" for name, number in (("1", 4), ("4", 5), ("7", 6))]
    assert "its client '2' is one more than federation.clients = 7" in refused
    assert roster.sizes().tolist() == [9, 23, 30, 6, 16, 12, 7]
    assert roster.present().tolist() == list(range(7))


def test_a_client_whose_data_have_changed_is_refused() -> None:
    one, two = sites()
    grid = keyed([one, two], [b"a", b"b"])
    roster, link = roster_on(grid)
    roster.meet(link)
    roster.fix()
    grid.offline = {0}
    roster.meet(link)
    grid.offline = set()
    one.clients["0"] = dataclasses.replace(one.clients["0"], training=one.clients["0"].training[:3])
    [note] = roster.meet(link)
    assert "client '0' had 9 + 2 samples when the run began, and now has 3 + 2" in note


def test_a_site_that_is_started_again_within_a_round_introduces_itself_again() -> None:
    """Its node has the number that it had before, and was never seen to be away."""
    one, two = sites()
    grid = keyed([one, two], [b"a", b"b"])
    roster, link = roster_on(grid)
    whole = one.clients["0"]
    assert roster.meet(link) == []
    roster.fix()
    one.clients["0"] = dataclasses.replace(whole, training=whole.training[:3])
    assert roster.meet(link) == []
    grid.started[grid.nodes[0]] = "noon"
    [note] = roster.meet(link)
    assert "client '0' had 9 + 2 samples when the run began, and now has 3 + 2" in note
    one.clients["0"] = whole
    assert roster.meet(link) == []
    assert roster.present().tolist() == [1, 3, 5, 7, 9]
    grid.started[grid.nodes[0]] = "one o'clock"
    assert roster.meet(link) == []
    assert roster.present().tolist() == list(range(10))


def test_of_two_nodes_with_the_same_client_neither_takes_part() -> None:
    one, two = sites()
    roster, link = roster_on(keyed([one, two, one], [b"a", b"b", b"c"]))
    notes = roster.meet(link)
    assert len(notes) == 2
    assert all("another connected node also has the client '0'" in note for note in notes)
    assert roster.connected == 5


def said(**change: Any) -> Any:
    def tamper(position: int, message: Message, reply: Message) -> Message:
        words = words_of(reply)
        return reply_message(pack(words | change), message) if position == 0 else reply

    return tamper


CLIENT = {"name": "x", "num_samples": 3, "held_out": 0, "histogram": None}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"clients": []}, "it introduced no clients, or two of the same name"),
        ({"clients": [CLIENT, CLIENT]}, "it introduced no clients, or two of the same name"),
        ({"clients": [CLIENT | {"name": ""}]}, "a client has no name"),
        (
            {"clients": [CLIENT | {"name": "a\x00b"}]},
            r"the name 'a\x00b' of a client has characters that cannot be printed",
        ),
        ({"clients": [CLIENT | {"num_samples": -1}]}, "num_samples is no count"),
        (
            {"clients": [CLIENT | {"histogram": [1, 1]}]},
            "the class counts of client 'x' do not fit 3 classes and 3 samples",
        ),
        (
            {"clients": [CLIENT | {"histogram": [1, 1, 9]}]},
            "the class counts of client 'x' do not fit 3 classes and 3 samples",
        ),
        ({"questions": [1]}, "message.questions is not a list of texts"),
        ({"refused": "not today"}, "refused: not today"),
        (
            {"version": 2},
            "it has version 2 of the messages, not 1; install the same version of FedCohort on the server and at all",
        ),
    ],
)
def test_an_introduction_that_cannot_be_used_is_refused(change: dict[str, Any], reason: str) -> None:
    grid = keyed(sites(), [b"a", b"b"], tamper=said(**change))
    roster, link = roster_on(grid)
    [note] = roster.meet(link)
    assert reason in note
    assert roster.connected == 5


def test_a_silent_site_is_waited_for_once_and_takes_part_when_it_has_replied() -> None:
    class SlowGrid(LoopGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return self.pull_within(message_ids, 1.0)

    grid = grid_of(sites(), seconds=lambda position, _: 30.0 * position)
    grid.__class__ = SlowGrid
    roster, link = roster_on(grid)
    assert roster.meet(link) == [
        "node 1002 takes no part: it did not introduce itself within 5 s; it is not waited for again, and takes part when it has"
    ]
    assert grid.clock() == 5.0
    assert roster.meet(link) == []
    assert grid.clock() == 5.0
    grid.pull_within([], 25.0)
    assert roster.meet(link) == []
    assert roster.connected == FEDERATION.num_clients
    assert len(grid.messages) == 3  # the silent one was asked again


def test_a_checkpoint_holds_the_clients_as_one_array_and_earlier_ones_are_read() -> None:
    """A list of some thousand clients took a second in every round."""
    roster, link = roster_on(grid_of(sites()))
    roster.meet(link)
    roster.fix()
    kept = roster.state_dict()["clients"]
    assert isinstance(kept, np.ndarray)
    for state in (unpack(pack(roster.state_dict())), {"clients": rows_of(kept)}):
        again = SiteRoster(3)
        again.load_state_dict(state)
        assert again.clients == roster.clients
        assert again.numbers == roster.numbers
