"""Reads are routed by what segments record; a store that no plugin serves is Unavailable."""

import asyncio
from functools import partial

import pytest

from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import RemoteLogSegmentId, Uuid
from kip405.segments import ByteRange, CustomMetadata, Layout, SegmentLocator
from rlm.clock import SystemClock
from rlm.stores.hedging import HedgeCounts
from rlm.stores.stores import CopyTarget, RoutedReader, Stores, Targets
from rlmm.settings_records import StoreRecord
from rsm_plugins.endpoints import EndpointStore, RuleProvider, TopicRule
from rsm_plugins.layout.keys import object_names
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.store import MemoryStore

HOT, COLD, GONE = (Uuid(bytes([number]) * 16) for number in (1, 2, 3))
ALL = ByteRange(start=0, end=100)


class NamedConnection:
    """A StoreConnection that needs no settings."""

    def __init__(self, name: str, store_id: Uuid | None) -> None:
        self.name = name
        self.store_id = store_id
        self.store = MemoryStore("c", store_id or GONE)
        self.problem: str | None = None
        self.is_other = False
        self.layouts: frozenset[Layout] | None = frozenset({Layout.KAFKA})

    @property
    def record(self) -> StoreRecord | None:
        return None

    async def run(self, interval_ms: int) -> None:
        """Nothing is watched."""


def locator(number: int, store_id: Uuid, *, bits: int = 0) -> SegmentLocator:
    custom = CustomMetadata(store_id=store_id, entropy_bits=bits)
    return SegmentLocator(
        cluster_id="c",
        segment_id=RemoteLogSegmentId(
            topic_id_partition=PARTITION, id=Uuid(number.to_bytes(16, "big"))
        ),
        start_offset=number,
        custom_metadata=custom.encode(),
    )


def put(connection: NamedConnection, where: SegmentLocator, content: bytes) -> None:
    for name in object_names(where).values():
        connection.store.objects[name] = content


@pytest.fixture
def hot() -> NamedConnection:
    return NamedConnection("hot", HOT)


@pytest.fixture
def cold() -> NamedConnection:
    return NamedConnection("cold", COLD)


@pytest.fixture
def stores(hot: NamedConnection, cold: NamedConnection) -> Stores:
    return Stores((hot, cold))


@pytest.fixture
def routed(stores: Stores) -> RoutedReader:
    return RoutedReader(stores, ManualClock(), 0)


async def test_a_segment_is_read_from_the_store_it_records(
    hot: NamedConnection, cold: NamedConnection, routed: RoutedReader
) -> None:
    one, other = locator(1, HOT), locator(1, COLD)
    put(hot, one, b"hot")
    put(cold, other, b"cold")
    assert await routed.fetch_log_segment(one, ALL) == b"hot"
    assert await routed.fetch_log_segment(other, ALL) == b"cold"
    assert await routed.fetch_indexes(other) == b"cold"


async def test_late_reads_are_asked_for_again_in_their_own_store(
    hot: NamedConnection, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, late = list[str](), asyncio.Event()
    routed = RoutedReader(stores, SystemClock(), 5)

    async def fetch(where: SegmentLocator, *_range: ByteRange) -> bytes:
        asked.append(str(where.start_offset))
        if where.start_offset == 2 and asked.count("2") == 1:
            await late.wait()
        return b"found"

    for name in ("fetch_log_segment", "fetch_indexes"):
        monkeypatch.setattr(hot.store, name, fetch)
    for read in (partial(routed.fetch_log_segment, byte_range=ALL), routed.fetch_indexes):
        asked.clear()
        for _ in range(60):
            await read(locator(1, HOT))
        assert await read(locator(2, HOT)) == b"found"
        assert asked.count("2") == 2
    assert routed.hedges == HedgeCounts(asked_twice=2, second_was_first=2)


async def test_h11_a_store_that_nobody_serves_is_unavailable_never_not_found(
    routed: RoutedReader,
) -> None:
    for call in (
        routed.fetch_log_segment(locator(1, GONE), ALL),
        routed.fetch_indexes(locator(1, GONE)),
    ):
        with pytest.raises(Unavailable, match=str(GONE)):
            await call


async def test_h11_a_missing_object_of_another_store_proves_nothing(
    hot: NamedConnection, routed: RoutedReader
) -> None:
    with pytest.raises(NotFound):
        await routed.fetch_log_segment(locator(1, HOT), ALL)
    hot.is_other, hot.problem = True, "the plugin serves store X"
    with pytest.raises(Unavailable, match="store hot: the plugin serves store X"):
        await routed.fetch_log_segment(locator(1, HOT), ALL)


async def test_a_locator_that_names_no_store_is_refused(routed: RoutedReader) -> None:
    plain = locator(1, HOT)
    for custom in (None, b"\x09"):
        bare = SegmentLocator(
            cluster_id="c",
            segment_id=plain.segment_id,
            start_offset=1,
            custom_metadata=custom,
        )
        with pytest.raises(Invalid):
            await routed.fetch_indexes(bare)


def targets(stores: Stores, *rules: TopicRule, chosen: Layout | None = None) -> Targets:
    endpoints = [
        EndpointStore(name=name, plugin="local", location=name, entropy_bits=bits)
        for name, bits in (("hot", 0), ("cold", 3))
    ]
    return Targets(RuleProvider(endpoints, rules), stores, "c", lambda _: chosen)


BLOCKS_RULE = TopicRule(topics=".*", store="hot", layout=Layout.BLOCKS)


def test_the_topics_own_layout_comes_before_the_rules(stores: Stores, hot: NamedConnection) -> None:
    hot.layouts = frozenset(Layout)
    assert targets(stores).target(PARTITION).layout is Layout.KAFKA
    assert targets(stores, BLOCKS_RULE).target(PARTITION).layout is Layout.BLOCKS
    for chosen in Layout:
        found = targets(stores, BLOCKS_RULE, chosen=chosen).target(PARTITION)
        assert found == CopyTarget(store_id=HOT, layout=chosen)


@pytest.mark.parametrize("by_rule", [True, False])
def test_a_layout_that_the_plugin_does_not_write_is_refused(
    stores: Stores, hot: NamedConnection, by_rule: bool
) -> None:
    """Before an attempt leaves a record, and before a topic is enabled."""
    rules, chosen = ((BLOCKS_RULE,), None) if by_rule else ((), Layout.BLOCKS)
    made = targets(stores, *rules, chosen=chosen)
    for layouts, error, match in (
        (None, Unavailable, "store hot: it is not known yet whether its plugin writes the layout"),
        (frozenset({Layout.KAFKA}), Invalid, "store hot: its plugin does not write .*, but kafka"),
    ):
        hot.layouts = layouts
        with pytest.raises(error, match=match):
            made.target(PARTITION)
        with pytest.raises(error, match=match):
            made.refuse_untiered(PARTITION.topic, chosen)
    hot.layouts = frozenset({Layout.KAFKA, Layout.BLOCKS})
    assert made.target(PARTITION).layout is Layout.BLOCKS
    made.refuse_untiered(PARTITION.topic, chosen)


def test_kafkas_layout_waits_for_no_plugin(stores: Stores, hot: NamedConnection) -> None:
    hot.layouts = None
    assert targets(stores).target(PARTITION).layout is Layout.KAFKA


def test_a_copy_goes_where_the_rules_say(stores: Stores) -> None:
    assert targets(stores).target(PARTITION) == CopyTarget(store_id=HOT)
    rule = TopicRule(topics=PARTITION.topic, store="cold")
    assert targets(stores, rule).target(PARTITION) == CopyTarget(store_id=COLD, entropy_bits=3)


def test_a_store_that_is_not_known_yet_stops_only_its_own_copies(
    stores: Stores, cold: NamedConnection
) -> None:
    cold.store_id, cold.problem = None, "the plugin does not answer"
    assert targets(stores).target(PARTITION).store_id == HOT
    with pytest.raises(Unavailable, match="store cold: the plugin does not answer"):
        targets(stores, TopicRule(topics=".*", store="cold")).target(PARTITION)


def test_without_a_store_topics_are_refused_with_what_to_do() -> None:
    none = Targets(RuleProvider(()), Stores(()), "c", lambda _: None)
    with pytest.raises(Invalid, match="no store is configured: nothing is tiered; give the serv"):
        none.refuse_untiered("orders", None)
    with pytest.raises(Invalid, match="no store is configured"):
        none.target(PARTITION)


def test_two_names_of_one_store_are_reported(stores: Stores, cold: NamedConnection) -> None:
    assert stores.twins() == []
    cold.store_id = HOT
    assert stores.twins() == [f"stores hot and cold are one and the same: {HOT}"]


def test_g1_a_store_whose_plugin_serves_another_is_not_said_to_be_known(
    hot: NamedConnection, cold: NamedConnection, stores: Stores
) -> None:
    """Else others would trim what this service could not read if it led."""
    assert stores.known() == (HOT, COLD)
    cold.is_other = True
    assert stores.known() == (HOT,)
