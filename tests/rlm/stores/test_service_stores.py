"""What a service says of its stores: usage, alarms of their set-up, and what is not configured."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kip405.contracts import FindingKind, StoreFinding
from kip405.errors import Unavailable
from kip405.ids import Uuid
from kip405.segments import (
    CustomMetadata,
    Layout,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlm.api.messages import report_message, store_message
from rlm.service.dependencies import ServiceStores
from rlm.service.gauges import store_gauges
from rlm.stores.inspection import Inspection
from rlm.stores.opened import OpenStores
from rlm.stores.reports import DAY_MS, Level
from rlm.stores.stores import RoutedReader, Stores, StoresInUse, StoreUsage, Targets
from rlmm.settings_records import StoreRecord, TopicRecord
from rsm_plugins.endpoints import EndpointStore, RuleProvider, TopicRule
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION, MemorySettings, metadata
from tests.rlm.api.node_fakes import FullLedger
from tests.rlm.stores.test_routes import COLD, GONE, HOT, NamedConnection
from tests.waiting import pass_time

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


class KnownConnection(NamedConnection):
    """A link with the fact that the settings have of its store."""

    @property
    def record(self) -> StoreRecord | None:
        if self.store_id is None:
            return None
        return StoreRecord(
            store_id=self.store_id, plugin="s3", uri=f"s3://{self.name}/p", prefix="p"
        )


class World:
    """Two stores, a ledger and settings in memory, and the stores of a service over them."""

    def __init__(self, names: Sequence[str] = ("hot", "cold")) -> None:
        ids = {"hot": HOT, "cold": COLD}
        self.connections = {name: KnownConnection(name, ids[name]) for name in names}
        self.settings = MemorySettings()
        self.ledger = FullLedger()
        self.stores = Stores(tuple(self.connections.values()))
        endpoint_stores = [EndpointStore(name=name, plugin="s3", location=name) for name in names]
        rules = [TopicRule(topics="bids", store="cold")] if "cold" in names else []
        targets = Targets(RuleProvider(endpoint_stores, rules), self.stores, "c", lambda _: None)
        clock = ManualClock()
        in_use = StoresInUse(self.ledger, clock)
        self.service_stores = ServiceStores(
            opened=OpenStores(
                stores=self.stores,
                routed=RoutedReader(self.stores, clock, 0),
                in_use=in_use,
                settings=self.settings,
                plugins=(),
            ),
            targets=targets,
            inspection=Inspection(
                stores=self.stores,
                targets=targets,
                in_use=in_use,
                view=lambda: self.settings.view,
                cluster_id="c",
                prefixes=dict.fromkeys(names, "p"),
                clock=clock,
            ),
            inspect_interval_ms=lambda: 1_000,
        )

    def can_be_read(self) -> bool:
        return self.service_stores.opened.can_be_read()

    def segment(
        self,
        number: int,
        store_id: Uuid,
        state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    ) -> None:
        self.ledger.write(
            _in_store(metadata(number, number * 10, number * 10 + 10, {0: 0}, state), store_id)
        )

    def topic(
        self, name: str = PARTITION.topic, topic_id: Uuid = PARTITION.topic_id, days: int = 30
    ) -> None:
        self.settings.write(
            TopicRecord(
                topic_id=topic_id,
                name=name,
                mode="copy",
                state="enabled",
                trim=False,
                retention_ms=days * DAY_MS,
                retention_bytes=-1,
                local_retention_ms=-2,
                local_retention_bytes=-2,
            )
        )

    def expire(self, name: str, days: int, applies_to: str = "p/c/") -> None:
        self.connections[name].store.findings = (
            StoreFinding(
                kind=FindingKind.LIFECYCLE_EXPIRY,
                state="Expiration",
                days=days,
                applies_to=applies_to,
            ),
        )


def _in_store(segment: RemoteLogSegmentMetadata, store_id: Uuid) -> RemoteLogSegmentMetadata:
    return replace(segment, custom_metadata=CustomMetadata(store_id=store_id).encode())


@pytest.fixture
def world() -> World:
    return World()


async def test_usage_counts_what_is_finished_and_knows_who_needs_the_store(world: World) -> None:
    world.segment(1, HOT)
    world.segment(2, HOT)
    world.segment(3, COLD, STARTED)
    world.segment(4, GONE, DELETED)
    await world.service_stores.opened.in_use.refresh()
    topics = frozenset((PARTITION.topic_id,))
    assert world.service_stores.opened.in_use.by_store == {
        HOT: StoreUsage(segments=2, size_bytes=2, topics=topics),
        COLD: StoreUsage(topics=topics),
    }
    world.segment(5, HOT)
    await world.service_stores.opened.in_use.refresh()
    assert world.service_stores.opened.in_use.by_store[HOT].segments == 3


def problems(world: World) -> list[str]:
    return [row.problem for row in world.service_stores.statuses() if row.problem]


async def test_h11_a_store_that_segments_need_and_nobody_configures_is_an_alarm(
    world: World,
) -> None:
    world.settings.write(StoreRecord(store_id=GONE, plugin="s3", uri="s3://gone", prefix=""))
    world.segment(1, GONE)
    assert problems(world) == []
    await world.service_stores.opened.in_use.refresh()
    (problem,) = problems(world)
    assert problem.startswith(
        f"store {GONE} (s3 s3://gone) is not in this service's configuration: 1 segments of 1"
    )
    [*_, stranger] = world.service_stores.statuses()
    assert (stranger.name, stranger.store_id, stranger.uri) == ("", GONE, "s3://gone")
    assert not store_message(stranger).name
    gauges = store_gauges(world.service_stores.statuses())
    assert gauges["rlm_stores_configured"] == {(): 2}
    assert gauges["rlm_store_available"] == {
        ("hot", str(HOT)): 1,
        ("cold", str(COLD)): 1,
        ("", str(GONE)): 0,
    }


async def test_a_store_that_is_not_found_yet_is_not_called_unconfigured(world: World) -> None:
    world.segment(1, COLD)
    await world.service_stores.opened.in_use.refresh()
    world.connections["cold"].store_id, world.connections["cold"].problem = (
        None,
        "the plugin is away",
    )
    assert problems(world) == ["the plugin is away"], "the id of that store is not known yet"
    world.settings.write(
        StoreRecord(store_id=COLD, plugin="s3", uri="s3://cold", prefix="", names=("cold",))
    )
    assert problems(world) == ["the plugin is away"]
    [cold] = [row for row in world.service_stores.statuses() if row.name == "cold"]
    assert (cold.segments, cold.size_bytes, cold.uri) == (1, 1, "s3://cold")
    world.settings.write(
        StoreRecord(store_id=COLD, plugin="s3", uri="s3://cold", prefix="", names=("ice",))
    )
    texts = problems(world)
    assert texts[0] == "the plugin is away"
    assert "is not found (yet)" in texts[1], "it may be called cold from now on, or be another"


async def test_h11_an_expiry_is_compared_with_the_topics_in_the_store(world: World) -> None:
    world.topic()
    world.segment(1, COLD)
    world.expire("hot", 40)
    world.expire("cold", 7)
    hot, cold = await world.service_stores.inspect()
    assert not hot.alarms
    (alarm,) = cold.alarms
    assert "removes objects after 7 d, before their time: orders (kept 30 d)" in alarm
    assert problems(world) == []
    (status,) = [row for row in world.service_stores.statuses() if row.name == "cold"]
    assert status.alarms == (alarm,)
    message = report_message(cold)
    assert (message.findings[0].days, message.findings[0].HasField("value")) == (7, False)
    assert message.verdicts[0].level == "alarm"


async def test_h11_where_the_next_segments_go_counts_before_the_first_one_is_there(
    world: World,
) -> None:
    world.topic()
    world.topic("bids", Uuid(b"\x31" * 16))
    world.expire("cold", 7)
    world.expire("hot", 7)
    hot, cold = await world.service_stores.inspect()
    assert "orders" in hot.alarms[0] and "bids" not in hot.alarms[0]
    assert "bids" in cold.alarms[0] and "orders" not in cold.alarms[0]


async def test_segments_of_a_topic_without_settings_record_are_kept_without_limit(
    world: World,
) -> None:
    world.segment(1, HOT)
    world.expire("hot", 36_500)
    hot, _ = await world.service_stores.inspect()
    assert f"topic {PARTITION.topic_id} (kept without limit)" in hot.alarms[0]


async def test_a_store_that_does_not_answer_says_so_and_hides_no_other(world: World) -> None:
    async def away() -> tuple[StoreFinding, ...]:
        raise Unavailable("no answer")

    world.connections["hot"].store.inspect = away  # type: ignore[method-assign]
    hot, cold = await world.service_stores.inspect()
    assert (hot.problem, hot.verdicts) == ("no answer", ())
    assert cold.verdicts[0].level is Level.UNKNOWN


async def test_a_store_that_hangs_is_not_waited_for(world: World) -> None:
    async def hang() -> tuple[StoreFinding, ...]:
        await asyncio.sleep(3_600)
        return ()

    async def answer() -> tuple[StoreFinding, ...]:
        found = await inspect()
        asyncio.get_running_loop().call_soon(pass_time, 500)
        return found

    stores = {name: one.store for name, one in world.connections.items()}
    inspect = stores["cold"].inspect
    stores["hot"].inspect = hang  # type: ignore[method-assign]
    stores["cold"].inspect = answer  # type: ignore[method-assign]
    world.service_stores.inspection._answer_ms = 500_000
    hot, cold = await world.service_stores.inspect()
    assert (hot.problem, cold.problem) == ("no answer within 500000 ms", "")


async def test_what_another_store_says_is_not_evaluated(world: World) -> None:
    world.connections["hot"].is_other, world.connections["hot"].problem = True, "it is store X"
    hot, _ = await world.service_stores.inspect()
    assert (hot.problem, hot.findings) == ("it is store X", ())


def test_without_a_store_none_is_configured() -> None:
    none = World(())
    assert store_gauges(none.service_stores.statuses()) == {"rlm_stores_configured": {(): 0}}


def test_a_reader_can_answer_once_it_knows_and_has_reached_every_store() -> None:
    world = World()
    cold = world.connections["cold"]
    assert world.can_be_read()
    cold.problem = "not reachable"
    assert world.can_be_read(), "an outage takes no reader away"
    cold.layouts = None
    assert not world.can_be_read(), "it was never reached"
    cold.layouts, cold.store_id = frozenset({Layout.KAFKA}), None
    assert not world.can_be_read(), "the settings do not know it"
