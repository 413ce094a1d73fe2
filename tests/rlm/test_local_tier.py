"""The proxy's questions answered from snapshots, ledger, settings and the store's bytes."""

import asyncio
from dataclasses import replace

import pytest

from kip405.batches import batch_headers
from kip405.errors import Corrupt, NotFound, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.leadership import LedPartition
from rlm.remote_log.snapshot_cache import CoalescedSnapshots
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.remote_log.tier import EpochEnd, TopicRef, Watermarks
from rlmm.replay import LedgerState
from rlmm.settings_records import TrimRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import OTHER_WRITER, PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import NODE_ID
from tests.rlm.tier_site import BY_NAME, DEADLINE_MS, FINISHED, Site, second_copy, site

__all__ = ["site"]

BY_ID = TopicRef(topic_id=PARTITION.topic_id)
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


async def test_it_is_ready_when_all_was_read_and_leadership_is_known(site: Site) -> None:
    assert not site.tier.ready()
    await site.leadership.refresh()
    assert site.tier.ready()
    site.rig.ledger.is_ready = False
    assert not site.tier.ready()


@pytest.mark.parametrize("topic", [BY_NAME, BY_ID])
async def test_h17_offsets_are_not_known_before_a_snapshot_and_are_after_a_barrier(
    site: Site, topic: TopicRef
) -> None:
    await site.leadership.refresh()
    before = site.tier.partition(topic, 0)
    assert before is not None and before.led_here
    assert (before.remote_next_offset, before.watermarks) == (-1, None)
    after = await site.barrier(topic)
    assert after == site.tier.partition(topic, 0)
    assert after is not None and after.remote_next_offset == 250
    assert after.watermarks == Watermarks(
        high_watermark=300, last_stable_offset=300, log_start_offset=0
    )


async def test_h17_each_barrier_sees_what_changed_before_it(site: Site) -> None:
    assert (await site.barrier()) is not None
    site.rig.remote_start(100)
    site.rig.broker.log_start_offset = 100
    site.rig.broker.high_watermark = 290
    after = await site.barrier()
    assert after is not None and after.watermarks is not None
    assert (after.remote_log_start_offset, after.watermarks.log_start_offset) == (100, 100)
    assert after.watermarks.high_watermark == 290


async def test_h02_what_is_remote_is_withheld_where_the_remote_log_start_was_lost(
    site: Site,
) -> None:
    """Otherwise the broker's own error would lead a reader past what was trimmed."""
    key = f"start/{PARTITION.key}"
    site.rig.settings.compact(key, keep=0)
    site.rig.settings.restart()
    view = await site.barrier()
    assert view is not None
    assert (view.frozen, view.remote_log_start_offset, view.remote_next_offset) == (True, -1, 250)
    site.rig.remote_start(0)
    view = await site.barrier()
    assert view is not None
    assert (view.frozen, view.remote_log_start_offset) == (False, 0)
    site.rig.ledger.log.clear()
    site.rig.ledger.restart()
    site.rig.settings.remove(key)
    view = await site.barrier()
    assert view is not None
    assert not view.frozen, "a partition of which nothing was copied yet"
    trim = TrimRecord(partition=PARTITION.key, bound=250, planned_epoch=0)
    site.rig.settings.write(trim, epoch=0)
    view = await site.barrier()
    assert view is not None
    assert view.frozen, "the ledger is lost, too"


async def test_a_topic_that_is_not_tiered_is_none(site: Site) -> None:
    await site.leadership.refresh()
    for topic in (TopicRef(name="other"), TopicRef(topic_id=Uuid(b"\x09" * 16))):
        assert site.tier.partition(topic, 0) is None
        assert await site.barrier(topic) is None
    assert await site.barrier(BY_NAME, 7) is None


async def test_h07_a_topic_recreated_under_its_name_is_not_the_tiered_one(site: Site) -> None:
    await site.leadership.refresh()
    site.rig.broker.topic_id = Uuid(b"\x09" * 16)
    assert await site.barrier(BY_NAME) is None
    assert await site.barrier(BY_ID) is None
    site.rig.broker.exists = False
    assert await site.barrier(BY_NAME) is None


async def test_a_view_of_an_ended_leadership_is_not_used(site: Site) -> None:
    await site.barrier()
    site.rig.broker.elect(NODE_ID, 1)
    await site.leadership.refresh()
    view = site.tier.partition(BY_NAME, 0)
    assert view is not None and (view.leader_epoch, view.remote_next_offset) == (1, -1)
    with pytest.raises(Unavailable):
        await site.barrier()  # the epoch file on disk is not as new as the leadership yet
    site.rig.disk.epochs({0: 0, 1: 300})
    view = await site.barrier()
    assert view is not None and (view.leader_epoch, view.remote_next_offset) == (1, 250)


async def test_a_partition_led_elsewhere_says_so(site: Site) -> None:
    await site.barrier()
    site.rig.broker.elect(2, 1)
    view = await site.barrier()
    assert view is not None and not view.led_here
    assert (view.remote_next_offset, view.watermarks) == (-1, None)


async def test_a_barrier_that_does_not_pass_in_time_is_unavailable(site: Site) -> None:
    """What it has begun is of use to whoever asks next: old offsets are known then (H17)."""
    passes, kept = asyncio.Event(), asyncio.Event()
    barrier = site.rig.settings.barrier

    async def slow(deadline_ms: int) -> None:
        await passes.wait()
        await barrier(deadline_ms)

    site.rig.settings.barrier = slow  # type: ignore[method-assign]
    site.snapshots.on_kept = lambda _: kept.set()
    await site.leadership.refresh()
    try:
        with pytest.raises(Unavailable, match="within 20 ms"):
            await site.tier.barrier(BY_NAME, 0, 20)
        view = site.tier.partition(BY_NAME, 0)
        assert view is not None and view.remote_next_offset == -1
    finally:
        passes.set()
    async with asyncio.timeout(60):
        await kept.wait()
    view = site.tier.partition(BY_NAME, 0)
    assert view is not None and view.remote_next_offset == 250


async def test_a_barrier_reads_the_settings_once(site: Site) -> None:
    """Three reads, one after the other, would take a client's time where each is slow."""
    for elsewhere in (False, True):
        if elsewhere:
            site.rig.broker.elect(2, 1)
        before = site.rig.settings.barriers, len(site.rig.ledger.barriers)
        assert await site.barrier() is not None
        found = site.rig.settings.barriers, len(site.rig.ledger.barriers)
        assert found == (before[0] + 1, before[1] + (not elsewhere))


async def test_h17_whether_a_topic_is_tiered_is_known_behind_the_barrier(site: Site) -> None:
    site.rig.settings.lags = True
    for topic in (BY_NAME, BY_ID):
        site.rig.settings.remove(f"topic/{PARTITION.topic_id}")
        assert await site.barrier(topic) is None
        site.rig.enable()
        view = await site.barrier(topic)
        assert view is not None and view.remote_next_offset == 250


async def test_h17_what_is_known_of_a_partition_led_elsewhere_is_behind_the_barrier(
    site: Site,
) -> None:
    site.rig.broker.elect(2, 1)
    site.rig.settings.lags = True
    site.rig.remote_start(100)
    view = await site.barrier()
    assert view is not None and (view.led_here, view.remote_log_start_offset) == (False, 100)


async def test_reads_before_the_first_snapshot_are_unavailable(site: Site) -> None:
    with pytest.raises(Unavailable):
        await site.read(0, 250)


async def test_reading_on_gives_every_stored_batch_once(site: Site) -> None:
    await site.barrier()
    for max_bytes in (1, 700, 1 << 30):
        got, offset = b"", 0
        while offset < 250:
            data, offset = await site.read(offset, 250, max_bytes)
            got += data
        assert offset == 250
        assert site.rig.broker.log.startswith(got)
        last = list(batch_headers(got))[-1][1]
        assert last.last_offset == 249
    assert await site.read(250, 300) == (b"", 250)


async def test_reads_end_below_the_upper_offset(site: Site) -> None:
    await site.barrier()
    data, next_offset = await site.read(95, 110)
    assert next_offset == 100
    assert [header.base_offset for _, header in batch_headers(data)] == [90]
    data, next_offset = await site.read(100, 120)
    assert next_offset == 120


async def test_h15_a_hole_is_read_over_to_the_next_segment(site: Site) -> None:
    entry = next(
        one for one in site.rig.ledger.view.entries.values() if one.metadata.start_offset == 0
    )
    for state, previous in ((2, 1), (3, 2)):
        changed = replace(entry.metadata, state=type(entry.metadata.state)(state))
        site.rig.ledger.write(changed, previous=previous)
    await site.barrier()
    assert await site.read(20, 100) == (b"", 20)
    data, next_offset = await site.read(20, 250)
    assert next(batch_headers(data))[1].base_offset == 100
    assert next_offset == 250
    site.rig.ledger.problem = "a record cannot be read"  # so that it proves no hole any more
    with pytest.raises(Unavailable, match="not settled"):
        await site.read(20, 250)


async def test_h04_a_new_snapshot_shows_where_the_lineage_was_left(site: Site) -> None:
    """Though ledger and holes are what they were before it."""
    await site.barrier()
    assert (await site.read(100, 250))[1] == 250
    site.rig.broker.elect(NODE_ID, 1)
    site.rig.disk.epochs({0: 150, 1: 200})
    await site.barrier()
    data, next_offset = await site.read(100, 250)
    assert next_offset == 200
    assert {header.base_offset for _, header in batch_headers(data)} <= set(range(100, 200))


def segments(site: Site) -> list[RemoteLogSegmentMetadata]:
    return [entry.metadata for entry in site.rig.ledger.view.in_state(FINISHED)]


async def led_under_epoch_1(site: Site) -> None:
    """Everything up to 250 was trimmed; a new epoch began at 300 and has written to the ledger."""
    site.rig.broker.log_start_offset = 250
    site.rig.broker.elect(NODE_ID, 1)
    site.rig.disk.epochs({0: 250, 1: 300})
    site.rig.ledger.write(metadata(900, 300, 301, {1: 300}, STARTED), epoch=1)


@pytest.mark.parametrize("state", [DELETING, None])
async def test_h03_a_zombies_record_hides_no_data(
    site: Site, state: RemoteLogSegmentState | None
) -> None:
    """A paused sweeper of epoch 0 wakes: its DELETE_STARTED or tombstone is the newest record."""
    await led_under_epoch_1(site)
    for one in segments(site):
        late = replace(one, state=state) if state else None
        site.rig.ledger.write(
            late, segment_id=one.segment_id, previous=0 if state else 3, writer=OTHER_WRITER
        )
    view = await site.barrier()
    assert view is not None and view.remote_next_offset == 250
    got, offset = b"", 0
    while offset < 250:
        data, offset = await site.read(offset, 250)
        got += data
    assert site.rig.broker.log.startswith(got)
    assert (
        site.rig.ledger.view.contiguous_end(site.snapshots.snapshots[PARTITION.key].lineage, 300, 0)
        == 0
    )


@pytest.mark.parametrize("state", [STARTED, DELETING])
async def test_h15_a_gap_that_is_not_settled_is_not_read_over(
    site: Site, state: RemoteLogSegmentState
) -> None:
    """The ledger lost FINISHED, or a deletion was begun: the sweep may adopt the segment yet."""
    first, second = segments(site)
    site.rig.ledger.state = LedgerState()
    site.rig.ledger.log.clear()
    site.rig.ledger.write(replace(first, state=state))
    site.rig.ledger.copied(second)
    await led_under_epoch_1(site)
    await site.barrier()
    for ask in (site.read(20, 250), site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 0)):
        with pytest.raises(Unavailable, match="not settled"):
            await ask
    assert (await site.read(100, 250))[1] == 250


async def test_h15_a_gap_between_the_tiers_is_open_until_the_ledger_settles_it(site: Site) -> None:
    await led_under_epoch_1(site)
    _, last = segments(site)
    site.rig.ledger.write(replace(last, state=DELETING), previous=1, epoch=1)
    view = await site.barrier()
    assert view is not None
    assert (view.remote_next_offset, view.unsettled_next_offset) == (100, 250)
    site.rig.ledger.write(replace(last, state=DELETED), previous=2, epoch=1)
    view = await site.barrier()
    assert view is not None
    assert (view.remote_next_offset, view.unsettled_next_offset) == (100, -1)
    site.rig.ledger.problem = "a record cannot be read"
    view = await site.barrier()
    assert view is not None and view.unsettled_next_offset == 250


async def test_h15_what_is_open_below_a_new_remote_start_keeps_nobody_waiting(site: Site) -> None:
    """Without a new snapshot: retention goes on while the partition is at rest."""
    first, second = segments(site)
    site.rig.ledger.state = LedgerState()
    site.rig.ledger.log.clear()
    site.rig.ledger.write(replace(first, state=DELETING))
    site.rig.ledger.copied(second)
    await led_under_epoch_1(site)
    await site.leadership.refresh()
    view = await site.barrier()
    assert view is not None
    assert (view.remote_log_start_offset, view.unsettled_next_offset) == (0, 100)
    site.rig.remote_start(100)
    view = site.tier.partition(BY_NAME, 0)
    assert view is not None
    assert (view.remote_log_start_offset, view.unsettled_next_offset) == (100, -1)


async def test_a_copy_under_way_leaves_nothing_open(site: Site) -> None:
    site.rig.ledger.write(metadata(900, 250, 300, {0: 250}, STARTED))
    view = await site.barrier()
    assert view is not None
    assert (view.remote_next_offset, view.unsettled_next_offset) == (250, -1)


class NewerSnapshots:
    """Coalesced snapshots; the one that was joined is of a leadership that began meanwhile."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def take(self, led: LedPartition) -> PartitionSnapshot:
        self._site.rig.broker.elect(NODE_ID, led.leader_epoch + 1)
        self._site.rig.disk.epochs({0: 0, led.leader_epoch + 1: 300})
        return await self._site.snapshots.take(replace(led, leader_epoch=led.leader_epoch + 1))


async def test_h17_a_barrier_answers_with_the_snapshot_it_took(site: Site) -> None:
    """Else it knows of nothing remote, and an OFFSET_OUT_OF_RANGE of old data passes."""
    tier = site.tier_with(NewerSnapshots(site))
    view = await tier.barrier(BY_NAME, 0, DEADLINE_MS)
    assert view is not None
    assert (view.leader_epoch, view.remote_next_offset) == (1, 250)


async def test_timestamps_are_found_from_the_remote_start_on(site: Site) -> None:
    await site.barrier()
    expected = {
        header.base_offset: header.base_timestamp_ms
        for _, header in batch_headers(site.rig.broker.log)
    }
    found = await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, expected[40])
    assert found is not None and (found.offset, found.timestamp_ms) == (40, expected[40])
    site.rig.remote_start(100)
    found = await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 0)
    assert found is not None and found.offset == 100
    assert await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 10**12) is None


async def test_epochs_are_those_of_the_merged_lineage(site: Site) -> None:
    assert site.tier.epoch_for_offset(PARTITION.topic_id, 0, 5) == -1
    site.rig.broker.elect(NODE_ID, 3)
    site.rig.disk.epochs({0: 0, 3: 280})
    await site.barrier()
    assert site.tier.epoch_for_offset(PARTITION.topic_id, 0, 5) == 0
    assert site.tier.epoch_for_offset(PARTITION.topic_id, 0, 280) == 3
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 0) == EpochEnd(leader_epoch=0, end_offset=280)
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 3) is None


@pytest.mark.parametrize("topic", [BY_NAME, BY_ID])
async def test_watermarks_come_from_the_broker_whatever_the_ledger_does(
    site: Site, topic: TopicRef
) -> None:
    site.rig.ledger.is_ready = False
    site.rig.broker.last_stable_offset = 299
    found = await site.tier.watermarks(topic, 0, DEADLINE_MS)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (300, 299, 0)


async def test_watermarks_of_an_unknown_topic_id_are_unavailable(site: Site) -> None:
    with pytest.raises(Unavailable):
        await site.tier.watermarks(TopicRef(topic_id=Uuid(b"\x09" * 16)), 0, DEADLINE_MS)


async def test_reading_on_asks_for_the_next_segment_before_it_is_needed(site: Site) -> None:
    await site.barrier()
    _, offset = await site.read(0, 250, 700)
    assert offset < 100
    async with asyncio.timeout(60):
        while site.reader.range_scheduler.running_count:  # noqa: ASYNC110 - the loads have no event
            await asyncio.sleep(0.001)
    first, second = segments(site)
    assert second.start_offset == 100
    kept = site.reader.chunks
    assert (first.segment_id.id, 0) in kept and (second.segment_id.id, 0) in kept
    asked = site.reader.counts.ranges
    while offset < 250:
        _, offset = await site.read(offset, 250, 700)
    assert site.reader.counts.ranges == asked
    assert site.reader.reader_count == 1


async def test_a_view_is_rebuilt_only_when_something_changed(site: Site) -> None:
    await site.leadership.refresh()
    await site.barrier()
    before = site.tier.partition(BY_NAME, 0)
    assert before is not None and site.tier.partition(BY_NAME, 0) is before
    site.rig.remote_start(100)
    await site.barrier()
    after = site.tier.partition(BY_NAME, 0)
    assert after is not None
    assert (before.remote_log_start_offset, after.remote_log_start_offset) == (0, 100)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("damage", ["gone", "flipped"])
async def test_h25_of_two_copies_one_that_is_lost_stops_nobody(
    site: Site, lost: int, damage: str
) -> None:
    await site.barrier()
    first, _ = site.rig.ledger.view.in_state(FINISHED)
    copies = (first.metadata, second_copy(site.rig, first.metadata))
    wanted = await site.read(10, 250)
    timestamp_ms = first.metadata.max_timestamp_ms - 1
    found = await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, timestamp_ms)
    assert found is not None and found.offset < 100
    site.reader = site.new_reader()
    site.tier = site.tier_with(CoalescedSnapshots(site.snapshots, site.tasks))
    name = object_name(copies[lost].locator(CLUSTER_ID), ObjectKind.LOG)
    if damage == "gone":
        del site.rig.store.objects[name]
    else:
        data = site.rig.store.objects[name]
        site.rig.store.objects[name] = data[:50] + bytes([data[50] ^ 1]) + data[51:]
    assert await site.read(10, 250) == wanted
    assert await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, timestamp_ms) == found
    other = object_name(copies[1 - lost].locator(CLUSTER_ID), ObjectKind.LOG)
    del site.rig.store.objects[other]
    site.reader = site.new_reader()
    site.tier = site.tier_with(CoalescedSnapshots(site.snapshots, site.tasks))
    with pytest.raises((NotFound, Corrupt)):
        await site.read(10, 250)
    with pytest.raises((NotFound, Corrupt)):
        await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, timestamp_ms)
    ids = {copy.segment_id.id for copy in copies}
    assert len(site.tier.losses.alarms(PARTITION.key, ids)) == 2
