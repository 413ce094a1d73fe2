"""The proxy over the real tier: what is frozen and what is of a dead lineage is never given out.

Stored bytes are real batches, those of the broker behind the proxy are not: an answer shows which
tier gave it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.apis import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kafka_protocol.error_codes import KAFKA_STORAGE_ERROR, LEADER_NOT_AVAILABLE
from kip405.batches import batch_headers
from kip405.errors import Fenced
from tests.builders.ledger import PARTITION
from tests.builders.rig import NODE_ID
from tests.builders.threads import some_threads
from tests.rlm.proxy.fakes import FakeBroker, Log, Proxied, Value, asked, blob, only, proxied
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.tier_site import Site

READ_COMMITTED, READ_UNCOMMITTED = 1, 0
EARLIEST = -2
DIVERGED_AT = 180
LONG_MS = 20_000
"""A snapshot, or a read of files in threads, may take a while."""
KEY = (PARTITION.topic, PARTITION.partition)


@dataclass
class Behind:
    """[0, 250) is remote, the log goes up to 300, its oldest records are trimmed; a proxy."""

    site: Site
    world: Proxied
    client: RawClient

    @property
    def stored(self) -> bytes:
        """What the store was given, and beyond: the log of the first epoch."""
        return self.site.rig.broker.log

    def log_is(self, start: int, end: int) -> None:
        """From here on this is the broker's log, for snapshots and for clients."""
        broker = self.site.rig.broker
        broker.log_start_offset = start
        broker.ends_at(end)
        self.world.broker.logs[KEY] = Log(
            start=start,
            high_watermark=end,
            last_stable=end,
            leader_epoch=broker.partition.leader_epoch,
        )

    async def known_to_be_fine(self) -> None:
        """A snapshot that froze nothing, which the proxy goes by until it learns better."""
        await self.site.leadership.refresh()
        view = await self.site.barrier()
        assert view is not None and not view.frozen and view.remote_next_offset == 250

    async def fetch(
        self, offset: int, isolation: int = READ_UNCOMMITTED, *, max_wait_ms: int = 100
    ) -> Value:
        part = asked(offset)
        request = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "isolation_level": isolation,
            "topics": [{"topic": PARTITION.topic, "partitions": [part]}],
        }
        return only(await self.client.call(FETCH, 11, request))

    async def refused(self, offset: int, isolation: int) -> None:
        """A fetch is refused, though perhaps not before a snapshot is over; none gets records."""
        async with asyncio.timeout(60):
            while (answer := await self.fetch(offset, isolation))["error_code"] == 0:
                assert not answer["records"], offset
        assert answer["error_code"] == KAFKA_STORAGE_ERROR, offset

    async def position(self, timestamp: int) -> Value:
        parts = [{"partition_index": PARTITION.partition, "timestamp": timestamp}]
        request = {"replica_id": -1, "topics": [{"name": PARTITION.topic, "partitions": parts}]}
        return await self._one(LIST_OFFSETS, 7, request)

    async def epoch_end(self, epoch: int) -> Value:
        parts = [{"partition": PARTITION.partition, "leader_epoch": epoch}]
        request = {"replica_id": -1, "topics": [{"topic": PARTITION.topic, "partitions": parts}]}
        return await self._one(OFFSET_FOR_LEADER_EPOCH, 3, request)

    async def _one(self, api: Any, version: int, request: Value) -> Value:
        answer = await self.client.call(api, version, request)
        partition: Value
        [partition] = answer["topics"][0]["partitions"]
        return partition


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Behind]:
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            site = Site(tmp_path, tasks, threads)
            await site.prepare()
            async with proxied(site.tier, FakeBroker(), barrier_wait_ms=5_000) as made:
                found = Behind(site, made, await made.connect())
                found.log_is(150, 300)
                yield found


def _timestamp_of(log: bytes, offset: int) -> int:
    return next(
        header.base_timestamp_ms for _, header in batch_headers(log) if header.base_offset == offset
    )


async def test_what_is_remote_comes_from_the_store(behind: Behind) -> None:
    """Else the tests below could not fail."""
    await behind.known_to_be_fine()
    answer = await behind.fetch(0, max_wait_ms=LONG_MS)
    assert answer["error_code"] == 0
    assert behind.stored.startswith(answer["records"])
    assert len(answer["records"]) > 1_000
    assert (await behind.position(EARLIEST))["offset"] == 0


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
@pytest.mark.parametrize("known", [True, False], ids=["known before", "first snapshot"])
@pytest.mark.parametrize("lost", ["tail", "all"])
async def test_h04_nothing_of_a_frozen_partition_comes_from_the_store(
    behind: Behind, lost: str, known: bool, isolation: int
) -> None:
    """The log came back shorter than what was copied of it, or with nothing at all."""
    if known:
        await behind.known_to_be_fine()
    else:
        await behind.site.leadership.refresh()
    start, end = (150, 200) if lost == "tail" else (0, 0)
    behind.log_is(start, end)
    offsets = (0, 20, 120, 210, 249) if lost == "tail" else (20, 120, 249)
    for offset in offsets:
        for _ in range(2):
            answer = await behind.fetch(offset, isolation)
            assert answer["error_code"] in (0, KAFKA_STORAGE_ERROR), offset
            assert not answer["records"], offset
    view = await behind.site.barrier()
    assert view is not None and view.frozen
    for offset in offsets:
        await behind.refused(offset, isolation)
    for timestamp in (EARLIEST, _timestamp_of(behind.stored, 20)):
        refused = await behind.position(timestamp)
        assert (refused["error_code"], refused["offset"]) == (LEADER_NOT_AVAILABLE, -1)
    for late in (
        behind.site.read(20, 250),
        behind.site.tier.offset_for_timestamp(PARTITION.topic_id, PARTITION.partition, 0),
    ):
        with pytest.raises(Fenced, match="frozen"):  # also reads that began by an older view
            await late
    if lost == "tail":
        assert (await behind.fetch(160, isolation))["records"] == blob(160, 200)


@pytest.mark.parametrize("known", [True, False], ids=["known before", "first snapshot"])
@pytest.mark.parametrize("log_start", [150, DIVERGED_AT, 200])
async def test_h04_a_dead_lineage_is_read_up_to_where_it_was_left_only(
    behind: Behind, log_start: int, known: bool
) -> None:
    """An unclean election: epoch 1 begins at 180, below the end of a copy that epoch 0 wrote."""
    if known:
        await behind.known_to_be_fine()
    rig = behind.site.rig
    rig.broker.elect(NODE_ID, 1)
    rig.disk.epochs({0: 150, 1: DIVERGED_AT})
    behind.log_is(150, 300)
    await behind.site.leadership.refresh()
    if log_start > 150:  # the first snapshot under the epoch has published where it began
        await behind.site.barrier()
        rig.disk.epochs({1: log_start})
        behind.log_is(log_start, 300)
    assert await _read_from_store(behind, 100, min(DIVERGED_AT, log_start)) in behind.stored
    for offset in (DIVERGED_AT, 190, 240):
        answer = await behind.fetch(offset, max_wait_ms=LONG_MS)
        assert answer["error_code"] == 0
        assert answer["records"] == blob(max(offset, log_start), 300), "the dead copy was read"
    in_dead_copy_only = _timestamp_of(behind.stored, 210)
    found = await behind.position(in_dead_copy_only)
    assert found["offset"] == log_start + 20, "not the broker's answer"
    assert (await behind.position(EARLIEST))["offset"] == 0
    if log_start >= DIVERGED_AT:  # else the fake broker ends epochs even lower
        assert (await behind.epoch_end(0))["end_offset"] == DIVERGED_AT


async def _read_from_store(behind: Behind, offset: int, end: int) -> bytes:
    """Fetch by fetch; nothing from `end` on may be among it."""
    got = b""
    while offset < end:
        answer = await behind.fetch(offset, max_wait_ms=LONG_MS)
        assert answer["error_code"] == 0
        batches = [header for _, header in batch_headers(answer["records"])]
        assert batches, offset
        got, offset = got + answer["records"], batches[-1].last_offset + 1
        assert offset <= DIVERGED_AT
    return got
