"""Frozen partitions, dead histories and copies with other borders, read through the real tier (H4,
H15, H25).
"""

from dataclasses import replace

import pytest

from kip405.batches import batch_headers
from kip405.errors import Fenced, NotFound, Unavailable
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.plans.coverage import NO_RECORDS
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.snapshot_cache import CoalescedSnapshots
from rlm.remote_log.tier import EpochEnd, TopicRef
from rlmm.ledger import Hole
from rlmm.settings_records import DivergenceRecord, HolesRecord
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION, metadata
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import NODE_ID
from tests.rlm.tier_site import FINISHED, Site, site

__all__ = ["site"]
NEW_EPOCH_START, NEW_COPY_END, NEW_LOG_END = 220, 400, 450


async def read_all(site: Site, start: int, end: int, max_bytes: int = 1 << 30) -> bytes:
    """As a client reads on, from a batch's first offset."""
    got, offset = b"", start
    while offset < end:
        data, following = await site.read(offset, end, max_bytes)
        assert following > offset
        got += data
        offset = following
    return got


def of_broker(site: Site, start: int, end: int) -> bytes:
    """What the broker's log holds there, whole batches."""
    log = site.rig.broker.log
    return b"".join(
        log[position : position + header.size_bytes]
        for position, header in batch_headers(log)
        if start <= header.base_offset < end
    )


async def elect_uncleanly(site: Site) -> None:
    """Epoch 2 begins at 220 in a log that never had the rest of epoch 0; it is copied up to 400."""
    rig = site.rig
    rig.begin_epoch(2, NEW_EPOCH_START)
    rig.broker.log = of_broker(site, 0, NEW_EPOCH_START)
    for base in (100, 250):
        rig.disk.file(base, ".log").unlink()
    rig.disk.log(100, NEW_EPOCH_START)
    rig.broker.log += rig.disk.segment(NEW_EPOCH_START, NEW_COPY_END, epoch=2, fill=b"new")
    rig.broker.log += rig.disk.active(NEW_COPY_END, NEW_LOG_END, epoch=2)
    rig.broker.ends_at(NEW_LOG_END)
    await rig.copied_by_another(NEW_EPOCH_START, NEW_COPY_END, epochs={2: NEW_EPOCH_START})


async def test_h04_a_dead_history_is_not_read(site: Site) -> None:
    await elect_uncleanly(site)
    view = await site.barrier()
    assert view is not None
    assert (view.leader_epoch, view.remote_next_offset, view.frozen) == (2, NEW_COPY_END, False)
    for max_bytes in (1, 700, 1 << 30):
        found = await read_all(site, 0, NEW_COPY_END, max_bytes)
        assert found == of_broker(site, 0, NEW_COPY_END)
    data, _ = await site.read(230, NEW_COPY_END)
    assert {header.leader_epoch for _, header in batch_headers(data)} == {2}


async def test_h04_no_timestamp_is_answered_out_of_a_dead_history(site: Site) -> None:
    """Epoch 0 had a record of that time at 230; in the leader's history it is at 350."""
    await elect_uncleanly(site)
    await site.barrier()
    found = await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 1_130)
    assert found is not None
    assert (found.offset, found.leader_epoch, found.timestamp_ms) == (350, 2, 1_130)


async def test_h04_a_frozen_partition_is_not_read_until_an_operator_decides(site: Site) -> None:
    await site.barrier()
    assert await site.read(0, 100)
    site.rig.ledger.copied(metadata(900, 250, 5_000, {0: 250}))
    view = await site.barrier()
    assert view is not None and view.frozen
    with pytest.raises(Fenced, match="beyond the log's end 300"):
        await site.read(0, 100)
    with pytest.raises(Fenced, match="is frozen"):
        await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 0)
    site.rig.broker.ends_at(5_000)
    view = await site.barrier()
    assert view is not None and not view.frozen
    assert await read_all(site, 0, 250) == of_broker(site, 0, 250)


async def test_h08_an_emptied_disk_is_read_again_once_it_was_accepted(site: Site) -> None:
    rig = site.rig
    for path in rig.disk.path.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    rig.broker.elect(1, 3)
    rig.disk.epochs({3: 0})
    rig.broker.log = b""
    rig.write_log(0, 40, end=60, epoch=3)
    view = await site.barrier()
    assert view is not None and view.frozen
    with pytest.raises(Fenced, match="outside the leader's lineage"):
        await site.read(0, 40)
    word = DivergenceRecord(
        partition=PARTITION.key, action="adopt", epoch=3, offset=0, cause="new disk"
    )
    rig.settings.write(word, epoch=3)
    view = await site.barrier()
    assert view is not None and not view.frozen
    assert await site.read(0, 40) == (b"", 0)
    await rig.copy.run(rig.led)
    await site.barrier()
    assert await read_all(site, 0, 40) == of_broker(site, 0, 40)


@pytest.mark.parametrize("chunk_size_bytes", [64, 700, 1 << 20])
async def test_h25_a_copy_with_other_borders_and_chunks_stands_in(
    site: Site, chunk_size_bytes: int
) -> None:
    """Another leader copied [50, 150); the objects of [100, 250) are gone."""
    first, second = (entry.metadata for entry in site.rig.ledger.view.in_state(FINISHED))
    await site.rig.copied_by_another(50, 150, chunk_size_bytes=chunk_size_bytes)
    await site.barrier()
    assert await read_all(site, 0, 250) == of_broker(site, 0, 250)
    del site.rig.store.objects[object_name(second.locator(CLUSTER_ID), ObjectKind.LOG)]
    site.reader = site.new_reader()
    site.tier = site.tier_with(CoalescedSnapshots(site.snapshots, site.tasks))
    assert first.next_offset == 100
    data, following = await site.read(120, 150)
    assert (data, following) == (of_broker(site, 120, 150), 150)


async def test_h37_epochs_begin_at_the_remote_log_start_as_a_brokers_do_at_its_own(
    site: Site,
) -> None:
    site.rig.broker.elect(NODE_ID, 7)
    site.rig.disk.epochs({2: 0, 5: 100, 7: 280})
    await site.barrier()
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 1) == EpochEnd(leader_epoch=1, end_offset=0)
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 2) == EpochEnd(leader_epoch=2, end_offset=100)
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 4) == EpochEnd(leader_epoch=2, end_offset=100)
    site.rig.remote_start(150)
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 2) == EpochEnd(leader_epoch=2, end_offset=150)
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 5) == EpochEnd(leader_epoch=5, end_offset=280)
    assert site.tier.epoch_end(PARTITION.topic_id, 0, 6) == EpochEnd(leader_epoch=5, end_offset=280)


async def ask(site: Site, offset: int, upper_offset: int) -> RemoteRecords:
    return await site.tier.read(
        RemoteRead(
            topic_id=PARTITION.topic_id,
            partition=0,
            offset=offset,
            upper_offset=upper_offset,
            max_bytes=1 << 30,
            at_least_one=True,
            read_committed=False,
        )
    )


def restart_ledger(site: Site) -> list[RemoteLogSegmentMetadata]:
    """The segments that were copied; the ledger knows none of them any more."""
    found = [entry.metadata for entry in site.rig.ledger.view.in_state(FINISHED)]
    site.rig.ledger.log.clear()
    site.rig.ledger.restart()
    return found


async def test_h15_what_is_missing_is_reported_and_no_more(site: Site) -> None:
    _, second = restart_ledger(site)
    site.rig.ledger.copied(second)
    await site.barrier()
    assert (await ask(site, 20, 60)).missing == ((20, 60),)
    assert (await ask(site, 20, 120)).missing == ((20, 100),)
    assert (await ask(site, 250, 300)).missing == ((250, 300),)
    hole = Hole(start=10, end=100, cause=NO_RECORDS)
    site.rig.settings.write(HolesRecord(partition=PARTITION.key, holes=(hole,)), epoch=0)
    assert (await ask(site, 20, 120)).missing == ()


async def test_a_segment_without_records_at_its_end_is_read_on_from(site: Site) -> None:
    """Its last offsets were compacted away before the topic was tiered."""
    first = await site.rig.copied_by_another(0, 90)
    _, second, *_ = (one for one in restart_ledger(site) if one != first)
    site.rig.ledger.copied(replace(first, end_offset=99), second)
    await site.barrier()
    data, following = await site.read(90, 120)
    assert (data, following) == (of_broker(site, 100, 120), 120)


async def test_h15_no_timestamp_is_unknown_while_the_end_is_not_settled(site: Site) -> None:
    first, second = restart_ledger(site)
    started = second.in_state(
        RemoteLogSegmentState.COPY_SEGMENT_STARTED, event_timestamp_ms=0, broker_id=2
    )
    site.rig.ledger.copied(first)
    site.rig.ledger.write(started)
    site.rig.broker.log_start_offset = 250
    site.rig.disk.epochs({0: 250})
    await site.barrier()
    with pytest.raises(Unavailable, match="not settled"):
        await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 10**12)


async def test_h25_a_copy_that_ends_earlier_does_not_answer_for_a_lost_one(site: Site) -> None:
    await site.rig.copied_by_another(100, 150)
    _, second, *_ = [
        entry.metadata
        for entry in site.rig.ledger.view.in_state(FINISHED)
        if entry.metadata.segment_id.id.raw[-2:] != (900).to_bytes(2, "big")
    ]
    del site.rig.store.objects[object_name(second.locator(CLUSTER_ID), ObjectKind.LOG)]
    await site.barrier()
    with pytest.raises(NotFound):
        await site.tier.offset_for_timestamp(PARTITION.topic_id, 0, 1_120)


async def test_h25_a_segment_that_can_be_read_again_is_no_loss(site: Site) -> None:
    await site.barrier()
    first = next(entry.metadata for entry in site.rig.ledger.view.in_state(FINISHED))
    name = object_name(first.locator(CLUSTER_ID), ObjectKind.LOG)
    kept = site.rig.store.objects.pop(name)
    with pytest.raises(NotFound):
        await site.read(0, 100)
    assert first.segment_id.id in site.tier.losses.segments(PARTITION.key)
    site.rig.store.objects[name] = kept
    assert await read_all(site, 0, 100) == of_broker(site, 0, 100)
    assert not site.tier.losses.segments(PARTITION.key)


async def test_h17_the_tier_is_ready_when_both_were_read(site: Site) -> None:
    await site.leadership.refresh()
    for one in (site.rig.settings, site.rig.ledger):
        assert site.tier.ready()
        one.is_ready = False
        assert not site.tier.ready()
        one.is_ready = True


async def test_h39_an_id_means_its_own_topic_also_where_the_new_one_is_tiered(site: Site) -> None:
    """Deleted, recreated under its name, and enabled again."""
    old = site.rig.settings.view.topic(PARTITION.topic_id)
    assert old is not None
    site.rig.broker.topic_id = Uuid(b"\x09" * 16)
    site.rig.settings.write(replace(old, topic_id=site.rig.broker.topic_id))
    assert await site.barrier(TopicRef(topic_id=PARTITION.topic_id)) is None


async def test_h17_a_view_grows_with_the_ledger(site: Site) -> None:
    """What the copy task finished is remote at once, without another snapshot."""
    await site.leadership.refresh()
    await site.barrier()
    site.rig.ledger.copied(metadata(900, 250, 300, {0: 250}))
    view = site.tier.partition(TopicRef(name=PARTITION.topic), 0)
    assert view is not None
    assert view.remote_next_offset == 300
