"""Reads that are under way when retention deletes their segment: it is looked up again, nothing is
lost, and nothing is skipped.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.error_codes import OFFSET_OUT_OF_RANGE
from kip405.errors import OffsetOutOfRange, Unavailable
from kip405.segments import ByteRange, RemoteLogSegmentState, SegmentLocator
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.reads import ReadRequest
from rlm.remote_log.tier import ChangedMeanwhile
from tests.builders.rig import Rig
from tests.builders.threads import some_threads
from tests.rlm.api.enabled import enabled_node
from tests.rlm.api.harness import ApiTier, Log
from tests.rlm.api.remote_site import REF
from tests.rlm.api.remote_site import Site as RemoteSite
from tests.rlm.api.test_fetch_service import offsets, read
from tests.rlm.proxy.fakes import FakeBroker, proxied
from tests.rlm.proxy.test_h04_real_tier import LONG_MS, Behind
from tests.rlm.tier_site import FINISHED, Site, site
from tests.rlm.topics.cluster import Cluster

__all__ = ["site"]
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


def end_first(rig: Rig) -> None:
    """Retention deletes [0, 100) in the order of G4, up to its objects."""
    segment = rig.ledger.view.in_state(FINISHED)[0].metadata
    rig.remote_start(segment.next_offset)
    rig.ledger.write(replace(segment, state=DELETING), previous=1)
    for name in [name for name in rig.store.objects if str(segment.segment_id.id) in name]:
        del rig.store.objects[name]


def at_the_first_range(rig: Rig, happens: Callable[[], object]) -> None:
    """Before the next range of a log that a reader asks for."""
    fetch, left = rig.store.fetch_log_segment, [happens]

    async def ending(locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        while left:
            left.pop()()
        return await fetch(locator, byte_range)

    rig.store.fetch_log_segment = ending  # type: ignore[method-assign]


async def test_h02_ended_records_are_not_skipped_like_a_hole(site: Site) -> None:
    await site.barrier()
    end_first(site.rig)
    with pytest.raises(ChangedMeanwhile, match="starts at 100 by now"):
        await site.read(50, 250)
    assert (await site.read(100, 250))[1] > 100


async def test_h02_a_segment_that_is_deleted_during_a_read_is_not_lost(site: Site) -> None:
    await site.barrier()
    at_the_first_range(site.rig, lambda: end_first(site.rig))
    with pytest.raises(ChangedMeanwhile, match="deleted meanwhile"):
        await site.read(50, 250)
    assert site.tier.losses.partitions == ()


async def test_h02_what_another_service_deleted_is_not_lost(site: Site) -> None:
    """The deletion is in the ledger's log, and this service has not read that far."""
    await site.barrier()
    site.rig.ledger.lags = site.rig.settings.lags = True
    end_first(site.rig)
    with pytest.raises(ChangedMeanwhile, match="deleted meanwhile"):
        await site.read(50, 250)
    assert site.tier.losses.partitions == ()


async def test_h11_a_loss_is_noticed_while_kafka_is_away(site: Site) -> None:
    await site.barrier()
    site.rig.store.objects.clear()

    def away() -> None:
        raise Unavailable("no broker")

    site.rig.ledger.on_barrier = away
    with pytest.raises(Exception, match=r"\.log|\.indexes"):
        await site.read(50, 250)
    assert site.tier.losses.partitions


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


async def test_h02_a_consumer_is_sent_to_the_new_start(behind: Behind) -> None:
    """No error by which it would think that data is lost, and no record beyond a silent gap."""
    await behind.known_to_be_fine()
    at_the_first_range(behind.site.rig, lambda: end_first(behind.site.rig))
    during = await behind.fetch(50, max_wait_ms=LONG_MS)
    assert (during["error_code"], during["records"] or b"") == (OFFSET_OUT_OF_RANGE, b"")
    assert behind.world.metrics.completions[-1] == "ended"
    after = await behind.fetch(100, max_wait_ms=LONG_MS)
    assert after["records"] in behind.stored


async def test_h02_a_stream_of_a_leader_continues_by_the_new_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_tier, log, failed = ApiTier.read, Log(), list[int]()

    async def changing(tier: ApiTier, request: RemoteRead) -> RemoteRecords:
        if not failed:
            failed.append(request.offset)
            log.remote_start = log.start_with_error
            raise ChangedMeanwhile("deleted")
        return await read_tier(tier, request)

    monkeypatch.setattr(ApiTier, "read", changing)
    async with enabled_node(Cluster(), log=log) as node:
        assert offsets(await read(node.address, start_offset=0))[0] == 0
        assert failed == [0]
        failed.clear()
        log.start_with_error = 6
        with pytest.raises(OffsetOutOfRange, match="log_start_offset=6"):
            await read(node.address, start_offset=3)


async def test_h02_a_reader_without_a_broker_names_the_new_start(tmp_path: Path) -> None:
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            site = RemoteSite(tmp_path, tasks, threads)
            await site.prepare()
            rig = site.rig

            def elsewhere() -> None:
                rig.ledger.lags = rig.settings.lags = True
                end_first(rig)

            at_the_first_range(rig, elsewhere)
            request = ReadRequest(
                start_offset=50, end_offset=None, max_bytes=700, read_committed=False
            )
            stream = site.reading.stream(REF, 0, request)
            with pytest.raises(OffsetOutOfRange, match="log_start_offset=100"):
                await anext(stream)
            assert site.lineage_reader.losses.partitions == ()
