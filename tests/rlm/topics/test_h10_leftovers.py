"""What no settings record of a topic accounts for: records that arrived after its end (H10), and
what is left where a topic was deleted while it was being enabled.
"""

import pytest

from kip405.segments import (
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from rlmm.records import NO_PREVIOUS
from rlmm.settings_records import StartRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.log_dir import CLUSTER_ID
from tests.rlm.topics.ends_world import (
    DELAY_MS,
    GRACE_MS,
    INTERVAL_MS,
    LONG_MS,
    Site,
    freeze_of,
    partition_of,
    segment_of,
    site_of,
    topic_id,
)

DUE_MS = GRACE_MS + DELAY_MS


async def ended(site: Site) -> None:
    """Topic 1 was deleted, and nothing of it is left."""
    service = site.service(2)
    site.delete_topic(1)
    await site.run(service, for_ms=LONG_MS)
    assert site.left(1) == []


def start_of(number: int) -> StartRecord:
    return StartRecord(
        partition=partition_of(number).key,
        remote_log_start_offset=7,
        cause="enable",
        decided_epoch=4,
    )


async def test_h10_a_start_that_arrives_after_the_end_is_removed_when_it_is_due() -> None:
    site = await site_of(1, 2)
    await ended(site)
    await site.write(start_of(1), 4)
    service = site.service()
    await site.run(service, for_ms=DUE_MS - INTERVAL_MS)
    assert site.left(1) != []
    await site.run(service, for_ms=4 * INTERVAL_MS)
    assert site.left(1) == []
    assert site.state(2) == "enabled" and len(site.objects(2)) == 18


@pytest.mark.parametrize("state", list(RemoteLogSegmentState))
async def test_h10_a_segment_record_that_arrives_after_the_end_is_removed(
    state: RemoteLogSegmentState,
) -> None:
    site = await site_of(1, 2)
    await ended(site)
    await late(site, state)
    assert site.left(1) != []
    await site.run(site.service(), for_ms=DUE_MS + 6 * INTERVAL_MS)
    assert site.left(1) == []


async def late(site: Site, state: RemoteLogSegmentState) -> None:
    """The newest record of a segment arrives when its objects are gone."""
    ledger = site.service(9).ledger
    path = {
        RemoteLogSegmentState.COPY_SEGMENT_STARTED: (0,),
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED: (1,),
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED: (1, 2),
        RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: (1, 2, 3),
    }[state]
    previous = NO_PREVIOUS
    for number in path:
        segment = segment_of(1, 0, 0, 10).in_state(
            RemoteLogSegmentState(number), event_timestamp_ms=0, broker_id=1
        )
        await ledger.publish(segment, 5, previous)
        previous = number


@pytest.mark.parametrize("states", [(0,), (0, 1), (0, 1, 2)])
async def test_h10_a_deletion_and_a_segment_that_arrive_after_the_end_are_removed(
    states: tuple[int, ...],
) -> None:
    site = await site_of(1, 2)
    await ended(site)
    await late(site, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    await marked(site, states)
    await site.run(site.service(), for_ms=DUE_MS + 6 * INTERVAL_MS)
    assert site.left(1) == []


@pytest.mark.parametrize(
    "kinds",
    [
        (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST),
        (ObjectKind.LOG, ObjectKind.INDEXES),
    ],
    ids=["whole", "readable without its manifest"],
)
async def test_h07_what_can_be_read_is_not_removed_as_a_leftover(
    kinds: tuple[ObjectKind, ...],
) -> None:
    """Its topic's settings may be what was lost, and somebody may have kept it."""
    site = await site_of(1, 2)
    await ended(site)
    await late(site, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    segment = segment_of(1, 0, 0, 10)
    sizes = {ObjectKind.LOG: 10, ObjectKind.INDEXES: segment.custom().indexes_size_bytes}
    for kind in kinds:
        name = object_name(segment.locator(CLUSTER_ID), kind)
        site.store.objects[name] = b"x" * sizes.get(kind, 1)
    before = set(site.left(1))
    service = site.service()
    await site.run(service, for_ms=LONG_MS)
    assert set(site.left(1)) > before
    assert site.state(1) == "kept"
    (listed,) = service.purge.listed()
    assert listed.record.name == partition_of(1).topic
    assert "--confirm` deletes it" in listed.waits
    await service.purge.confirm([str(topic_id(1))])
    await site.run(service, for_ms=DUE_MS + 6 * INTERVAL_MS)
    assert site.left(1) == []


async def test_h07_what_can_be_read_is_not_kept_while_a_freeze_stops_deletions() -> None:
    """Nothing is decided about a topic while nothing may be removed of it."""
    site = await site_of(1, 2)
    await ended(site)
    await late(site, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    segment = segment_of(1, 0, 0, 10)
    for kind in (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST):
        site.store.objects[object_name(segment.locator(CLUSTER_ID), kind)] = b"x" * 10
    await site.write(freeze_of(None))
    before = site.left(1)
    await site.run(site.service(), for_ms=LONG_MS)
    assert site.left(1) == before


@pytest.mark.parametrize("states", [(0,), (0, 1), (0, 1, 2)])
async def test_h10_a_deletion_that_arrives_when_the_topic_is_enabled_again_is_removed(
    states: tuple[int, ...],
) -> None:
    """Else nothing would ever be copied or trimmed of it again."""
    site = await site_of(1, 2)
    before = site.objects(1)
    await marked(site, states)
    await site.run(site.service(), for_ms=3 * INTERVAL_MS)
    view = site.service(8).ledger.ledger(partition_of(1).key)
    assert view.deletion_state is None and view.entries
    assert (site.objects(1), site.state(1)) == (before, "enabled")


async def test_h10_a_deletion_that_is_over_is_removed_though_a_segment_record_arrives() -> None:
    """The topic stays in Kafka (`disable --delete`), and its settings are removed: else it could
    never be enabled again.
    """
    site = await site_of(2)
    site.brokers.topics.add(topic_id(1))
    await late(site, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    await marked(site, (0, 1, 2))
    await site.run(site.service(), for_ms=3 * INTERVAL_MS)
    view = site.service(8).ledger.ledger(partition_of(1).key)
    assert view.deletion is None and view.entries


async def marked(site: Site, states: tuple[int, ...]) -> None:
    """The deletion of topic 1 is recorded, one state after the other."""
    ledger = site.service(9).ledger
    for state in states:
        found = RemotePartitionDeleteMetadata(
            topic_id_partition=partition_of(1),
            event_timestamp_ms=0,
            broker_id=1,
            state=RemotePartitionDeleteState(state),
        )
        await ledger.put_remote_partition_delete_metadata(found, 5)


async def test_h07_leftovers_of_a_topic_that_a_broker_knows_stay() -> None:
    """As while a topic is being enabled: its starts are written before its own record."""
    site = await site_of(2)
    site.brokers.topics.add(topic_id(1))
    await site.write(start_of(1), 4)
    service = site.service()
    await site.run(service, for_ms=LONG_MS)
    assert site.left(1) != []
    site.brokers.overrides = {(3, topic_id(1)): 0}
    site.delete_topic(1)
    await site.run(service, for_ms=LONG_MS)
    assert site.left(1) != []


async def test_h07_brokers_are_asked_again_before_leftovers_are_removed() -> None:
    site = await site_of(1, 2)
    await ended(site)
    await site.write(start_of(1), 4)
    service = site.service()
    asked_ms: list[int] = []

    async def come_back(_: int) -> None:
        if site.clock.now in asked_ms:
            site.brokers.topics.add(topic_id(1))
        asked_ms.append(site.clock.now)

    service.presence.on_ask = come_back
    await site.run(service, for_ms=LONG_MS)
    assert site.left(1) != []


async def test_a_freeze_keeps_leftovers() -> None:
    site = await site_of(1, 2)
    await ended(site)
    await site.write(start_of(1), 4)
    await site.write(freeze_of(None))
    await site.run(site.service(), for_ms=LONG_MS)
    assert site.left(1) != []


async def test_one_service_removes_leftovers_the_lowest_that_is_alive() -> None:
    site = await site_of(1, 2)
    await ended(site)
    await site.write(start_of(1), 4)
    one, two = site.service(1), site.service(2)
    one.rival = "a second service of this node is alive"
    await site.run(two, one, for_ms=LONG_MS)
    assert site.left(1) != []


async def test_a_store_that_is_away_keeps_leftovers_until_it_answers() -> None:
    site = await site_of(1, 2)
    await ended(site)
    await late(site, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    service = site.service()
    identity, site.store.identity = site.store.identity, None
    await site.run(service, for_ms=DUE_MS + 3 * INTERVAL_MS)
    assert site.left(1) != []
    site.store.identity = identity
    await site.run(service, for_ms=4 * INTERVAL_MS)
    assert site.left(1) == []
