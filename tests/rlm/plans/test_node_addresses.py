"""Which addresses clients are given: what is certain of a service, and what is not (H17, H19)."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.node_addresses import NodeAddress, NodeAddresses
from kip405.ids import PartitionKey, Uuid
from rlm.plans.node_addresses import (
    KnownProxies,
    ServiceObservation,
    observe_services,
    parse_node_address,
)
from rlmm.settings_records import ServiceRecord, TopicRecord, TrimRecord
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemorySettings

OWN = 1
MAX_AGE_MS = 30_000
TOPIC_ID = Uuid(b"t" * 16)


def proxy(node_id: int, port: int = 19_092) -> NodeAddress:
    return NodeAddress(host=f"proxy-{node_id}", port=port)


def proxies(*node_ids: int) -> dict[int, NodeAddress]:
    return {node_id: proxy(node_id) for node_id in node_ids}


def known(*remembered: int) -> KnownProxies:
    return KnownProxies(own_node_id=OWN, own=proxy(OWN), proxies=proxies(*remembered))


def seen(*node_ids: int, dead: Iterable[int] = (), **changes: Any) -> ServiceObservation:
    rest = {"has_topics": True, "has_trims": False, "is_certain": True, **changes}
    return ServiceObservation(proxies=proxies(*node_ids), dead=frozenset(dead), **rest)


def named(node_ids: Iterable[int], *, keeps_others: bool) -> NodeAddresses:
    return NodeAddresses(replaced=proxies(*node_ids), keeps_others=keeps_others)


def test_h17_before_the_settings_are_read_only_what_was_remembered_is_named() -> None:
    assert known().addresses == named([1], keeps_others=False)
    assert known(2, 3).addresses == named([1, 2, 3], keeps_others=False)


def test_nodes_without_a_service_keep_their_address_once_that_is_known() -> None:
    one = known(2)
    assert one.see(seen(1, 2))
    assert one.addresses == named([1, 2], keeps_others=True)
    assert not one.see(seen(1, 2))
    assert one.see(seen(1, 2, 3))
    assert one.addresses.replaced == proxies(1, 2, 3)


def test_h19_once_anything_was_trimmed_a_node_without_a_service_is_left_out() -> None:
    """A client that came to it would learn there where the brokers are, and pass by the proxies."""
    one = known()
    one.see(seen(1, 2))
    assert not one.addresses.leaves_out(3)
    one.see(seen(1, 2, has_trims=True))
    assert one.addresses.leaves_out(3)
    one.see(seen(1, 2, 3, has_trims=True))
    assert one.addresses == named([1, 2, 3], keeps_others=False)


def test_h19_a_dead_service_keeps_its_clients_while_a_topic_is_tiered() -> None:
    one = known()
    one.see(seen(1, 2, dead=[2]))
    assert one.addresses.replaced == proxies(1, 2)


def test_h24_a_dead_service_gives_its_clients_back_where_nothing_is_tiered() -> None:
    one = known()
    one.see(seen(1, 2, dead=[2], has_topics=False))
    assert one.addresses == named([1], keeps_others=True)
    assert one.proxies == proxies(1, 2)  # remembered
    one.see(seen(1, 2, has_topics=False))
    assert one.addresses.replaced == proxies(1, 2)


def test_the_own_proxy_is_named_whatever_is_known() -> None:
    one = known()
    one.see(seen(2, dead=[1, 2], has_topics=False))
    assert one.addresses.replaced == proxies(1)


def test_a_service_that_moved_is_followed_and_one_that_was_removed_is_forgotten() -> None:
    one = known(2, 3)
    moved = ServiceObservation(
        proxies={2: proxy(2, 7)},
        dead=frozenset(),
        has_topics=True,
        has_trims=False,
        is_certain=True,
    )
    one.see(moved)
    assert one.addresses.replaced == {1: proxy(1), 2: proxy(2, 7)}


@pytest.mark.parametrize("has_topics", [True, False])
def test_h06_what_is_seen_in_doubt_takes_nothing_away(has_topics: bool) -> None:
    one = known(2)
    doubt: dict[str, Any] = {"is_certain": False, "has_topics": has_topics}
    one.see(seen(**doubt))
    assert (one.addresses, one.is_settled) == (named([1, 2], keeps_others=False), False)
    one.see(seen(1, 2))
    assert (one.addresses, one.is_settled) == (named([1, 2], keeps_others=True), True)
    one.see(seen(3, dead=[2], **doubt))
    assert one.addresses == named([1, 2, 3], keeps_others=True)
    one.see(seen(**doubt, has_trims=True))
    assert one.addresses == named([1, 2, 3], keeps_others=False)


def test_h19_what_was_given_up_comes_back_for_a_topic_even_in_doubt() -> None:
    one = known()
    one.see(seen(1, 2, dead=[2], has_topics=False))
    one.see(seen(1, 2, has_topics=False, is_certain=False))
    assert one.addresses.replaced == proxies(1)
    one.see(seen(1, 2, is_certain=False))
    assert one.addresses.replaced == proxies(1, 2)


NODES = st.frozensets(st.integers(1, 5))
OBSERVATIONS = st.builds(
    lambda nodes, dead, **changes: seen(*nodes, dead=dead, **changes),
    NODES,
    NODES,
    has_topics=st.booleans(),
    has_trims=st.booleans(),
    is_certain=st.booleans(),
)


@given(st.frozensets(st.integers(1, 5)), st.lists(OBSERVATIONS, max_size=12))
def test_h19_no_history_names_a_broker_past_its_proxy_while_a_topic_is_tiered(
    remembered: frozenset[int], history: list[ServiceObservation]
) -> None:
    """Except one that certainly never had a proxy, and only while nothing was trimmed."""
    one, ever = known(*remembered), set(remembered)
    for step in history:
        one.see(step)
        ever = set(step.proxies) if step.is_certain else ever | set(step.proxies)
        assert one.addresses.replaced[OWN] == proxy(OWN)
        if step.has_topics:
            assert ever <= one.addresses.replaced.keys()
        if step.has_trims or not one.is_settled:
            assert all(
                one.addresses.leaves_out(node) for node in range(9) if node not in ever | {1}
            )


class Followed:
    """The settings topic as the service of node 1 reads it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.settings = MemorySettings()
        self.settings.clock = self.clock

    def beat(self, *node_ids: int, text: str = "proxy-{}:19092") -> None:
        for node_id in node_ids:
            record = ServiceRecord(
                node_id=node_id,
                listen={},
                advertised={"proxy": text.format(node_id)},
                version="1",
            )
            self.settings.write(record, node_id=node_id)

    def observed(self) -> ServiceObservation:
        return observe_services(
            self.settings.view,
            OWN,
            monotonic_ms=self.clock.monotonic_ms(),
            max_age_ms=MAX_AGE_MS,
            is_certain=True,
        )


def test_a_service_that_is_not_heard_any_more_is_dead() -> None:
    topic = Followed()
    topic.beat(1, 2, 3)
    topic.clock.advance(MAX_AGE_MS)
    topic.beat(1, 3)
    assert topic.observed().dead == frozenset()
    topic.clock.advance(1)
    assert topic.observed().dead == {2}
    topic.beat(2)
    assert topic.observed().dead == frozenset()
    assert topic.observed().proxies == proxies(1, 2, 3)


def test_h16_one_that_does_not_hear_itself_knows_nobody_to_be_dead() -> None:
    topic = Followed()
    topic.beat(1, 2)
    topic.clock.advance(10 * MAX_AGE_MS)
    assert topic.observed().dead == frozenset()
    topic.beat(1)
    assert topic.observed().dead == {2}


def test_h16_a_service_of_a_replay_is_dead_only_after_its_time() -> None:
    topic = Followed()
    topic.beat(1, 2)
    topic.settings.restart()
    assert topic.observed().dead == frozenset()
    topic.beat(1)
    assert topic.observed().dead == frozenset()
    topic.clock.advance(MAX_AGE_MS + 1)
    topic.beat(1)
    assert topic.observed().dead == {2}


def test_a_service_that_names_no_address_for_clients_has_no_proxy() -> None:
    topic = Followed()
    for text in ("", "unix:/proxy.sock", "nothing"):
        topic.beat(2, text=text)
        assert topic.observed().proxies == {}
    topic.settings.write(ServiceRecord(node_id=2, listen={}, advertised={}, version="0"), node_id=2)
    assert topic.observed().proxies == {}
    topic.beat(2, text="[::1]:9")
    assert topic.observed().proxies == {2: NodeAddress(host="::1", port=9)}


def topic_record() -> TopicRecord:
    return TopicRecord(
        topic_id=TOPIC_ID,
        name="t",
        mode="copy",
        state="enabled",
        trim=False,
        retention_ms=-1,
        retention_bytes=-1,
        local_retention_ms=-2,
        local_retention_bytes=-2,
    )


def test_topics_and_trims_are_seen() -> None:
    topic = Followed()
    trim = TrimRecord(partition=PartitionKey(TOPIC_ID, 0), bound=5, planned_epoch=1)
    topic.settings.write(trim)
    assert (topic.observed().has_topics, topic.observed().has_trims) == (False, False)
    topic.settings.write(topic_record())
    assert (topic.observed().has_topics, topic.observed().has_trims) == (True, True)
    topic.settings.remove(trim.key)
    assert (topic.observed().has_topics, topic.observed().has_trims) == (True, False)


def test_addresses_for_clients() -> None:
    assert parse_node_address("broker-1.example:19092") == NodeAddress(
        host="broker-1.example", port=19_092
    )
    assert parse_node_address("[fe80::1]:1") == NodeAddress(host="fe80::1", port=1)
    assert parse_node_address("unix:/x") is None
    assert parse_node_address("broker") is None
