"""H4 for readers of the remote tier alone: they refuse and end where the leader's tier does."""

import json

import pytest

from kip405.errors import Fenced, NotFound, Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.remote_log.reads import ReadRequest
from rlm.v1 import fetch_pb2 as pb
from rlmm.settings_records import HistoryRecord
from tests.builders.ledger import PARTITION
from tests.rlm.api.remote_site import REF, Site, missing, offsets, positions
from tests.rlm.plans.views import lineage

UNCLEAN = {0: 0, 6: 200}
"""Epoch 6 began at 200, below what epoch 0 has copied."""


def publish(
    site: Site, epochs: dict[int, int], *, frozen: str | None = None, epoch: int = 6
) -> None:
    record = HistoryRecord(partition=PARTITION.key, frozen=frozen, lineage=lineage(epochs))
    site.rig.settings.write(record, epoch=epoch)


async def end(site: Site) -> int:
    return int((await site.ask("ListOffsets", positions(-1))).offset)


async def test_h04_readers_end_where_a_newer_epoch_began(site: Site) -> None:
    publish(site, UNCLEAN)
    answers = await site.read(0)
    assert offsets(answers) == list(range(0, 200, 10))
    assert (answers[-1].next_offset, answers[-1].high_watermark, missing(answers)) == (200, 200, [])
    assert await site.read(300) == []
    assert await end(site) == 200
    assert (await site.ask("ListOffsets", positions(-5))).offset == 199
    assert (await site.ask("ListOffsets", positions(-1))).leader_epoch == 6
    plan = await site.ask("DescribeTopics", pb.DescribeTopicsRequest())
    assert plan.topics[0].partitions[0].remote_next_offset == 200


async def test_h04_a_frozen_partition_is_refused_until_it_is_not(site: Site) -> None:
    publish(site, {6: 0}, frozen="log and copies contradict each other")
    for timestamp in (-1, -2, -5, 0):
        with pytest.raises(Fenced, match="is frozen: log and copies"):
            await site.ask("ListOffsets", positions(timestamp))
    for start in (0, 390, 500):
        with pytest.raises(Fenced, match="is frozen: log and copies"):
            await site.read(start)
    plan = await site.ask("DescribeTopics", pb.DescribeTopicsRequest())
    (row,) = plan.topics[0].partitions
    assert row.remote_next_offset == 400  # a plan that left it out would fail nowhere
    publish(site, {0: 0})
    assert offsets(await site.read(0)) == list(range(0, 400, 10))
    assert await end(site) == 400


async def test_h04_a_log_that_was_adopted_leaves_what_was_copied_before_unread(site: Site) -> None:
    """As the leader's tier does: the objects stay, the records are of no history any more."""
    publish(site, {9: 0}, epoch=9)
    assert await site.read(0) == []
    assert await end(site) == 0


async def test_h04_streams_that_are_under_way_end_with_the_freeze_or_the_change(
    site: Site,
) -> None:
    wanted = ReadRequest(start_offset=0, end_offset=None, max_bytes=700, read_committed=False)
    frozen, changed = (site.reading.stream(REF, 0, wanted) for _ in range(2))
    for stream in (frozen, changed):
        assert (await anext(stream)).next_offset < 200
    publish(site, UNCLEAN, frozen="look at it")
    with pytest.raises(Fenced, match="look at it"):
        await anext(frozen)
    publish(site, UNCLEAN)
    with pytest.raises(Unavailable, match="offset 399 is of leader epoch 6 and not of 0"):
        await anext(changed)


async def test_h04_words_that_change_nothing_below_end_no_stream(site: Site) -> None:
    wanted = ReadRequest(start_offset=0, end_offset=None, max_bytes=700, read_committed=False)
    stream = site.reading.stream(REF, 0, wanted)
    await anext(stream)
    publish(site, {0: 0, 6: 400})
    assert [piece.next_offset async for piece in stream][-1] == 400


async def test_h04_the_history_of_an_old_leader_is_ignored(site: Site) -> None:
    publish(site, {0: 0, 6: 200, 8: 300}, epoch=8)
    publish(site, {0: 0}, epoch=7, frozen="an old leader's")
    assert await end(site) == 200


async def test_h04_a_history_of_a_later_version_is_not_guessed(site: Site) -> None:
    publish(site, UNCLEAN)
    key = f"history/{PARTITION.key}".encode()
    later = json.dumps({"v": 2, "kind": "history"}).encode()
    site.rig.settings.view.apply(key=key, value=later, offset=site.rig.settings.view.version)
    with pytest.raises(Unavailable, match=r"cannot be read: .*v=2 is not known"):
        await site.read(0)
    publish(site, UNCLEAN, epoch=7)
    assert await end(site) == 200


async def test_h04_a_topic_recreated_inherits_no_word(site: Site) -> None:
    """A published history belongs to a topic id: neither to its name nor to another partition."""
    others = (PartitionKey(Uuid(b"\x09" * 16), 0), PartitionKey(PARTITION.topic_id, 1))
    for number, key in enumerate(others):
        record = HistoryRecord(partition=key, frozen=f"other {number}", lineage=lineage({9: 0}))
        site.rig.settings.write(record, epoch=9)
    assert await end(site) == 400
    with pytest.raises(NotFound, match="no partition 1"):
        await site.read(0, partition=1)
