"""REMOTE_ONLY where data is gone or unknown: the answer never looks as if there were none."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kip405.errors import Corrupt, Invalid, Unavailable
from kip405.ids import PartitionKey
from rlm.reading.throttle import ReadThrottle, ThrottleLimits
from rlm.v1 import fetch_pb2 as pb
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.rlm.api.remote_site import REF, WHO, Site, offsets, positions


async def test_h25_a_lost_object_is_an_error_and_what_follows_is_read(site: Site) -> None:
    first = site.segments()[0]
    del site.rig.store.objects[object_name(first.locator(CLUSTER_ID), ObjectKind.LOG)]
    with pytest.raises(Corrupt, match="damaged or gone"):  # NotFound is for topics (H11)
        await site.read(0)
    assert list(site.lineage_reader.losses.alarms(PARTITION.key, [first.segment_id.id]))
    assert offsets(await site.read(100)) == list(range(100, 400, 10))
    with pytest.raises(Corrupt, match="damaged or gone"):
        await site.ask("ListOffsets", positions(0))


async def test_h11_objects_that_were_deleted_in_order_are_not_called_lost(site: Site) -> None:
    """The view learns of it only after the read has failed."""
    first = site.segments()[0]
    del site.rig.store.objects[object_name(first.locator(CLUSTER_ID), ObjectKind.LOG)]
    _after_the_next_barrier(site, lambda: site.begin_delete(first))
    with pytest.raises(Unavailable, match="changed meanwhile"):
        await site.read(0)
    site.rig.ledger.write(first, previous=2)
    _after_the_next_barrier(site, lambda: site.rig.remote_start(100))
    with pytest.raises(Invalid, match="log_start_offset=100"):
        await site.read(0)


def _after_the_next_barrier(site: Site, happens: Callable[[], object]) -> None:
    passed: list[None] = []

    async def barrier(deadline_ms: int) -> None:
        passed.append(None)
        if len(passed) == 2:
            happens()

    site.rig.settings.barrier = barrier  # type: ignore[method-assign]


async def test_h23_who_reads_objects_waits_before_and_holds_nothing_meanwhile(site: Site) -> None:
    limits = ThrottleLimits(
        service_bytes_per_second=1 << 40, client_bytes_per_second=1_000, cores=1.0
    )
    quota = ReadThrottle(limits, site.rig.clock, lambda: 0.0)
    site.service._remote = replace(site.service._remote, throttle=quota)
    segment = site.segments()[1]
    request = pb.ReadObjectRequest(
        topic=REF,
        segment_id=segment.segment_id.id.raw,
        start_position=0,
        end_position=segment.segment_size_bytes,
    )
    began_ms = site.rig.clock.now
    async with site.stub() as stub:
        for waited in (False, True):
            data = b"".join([one.data async for one in stub.ReadObject(request, metadata=WHO)])
            assert len(data) == segment.segment_size_bytes > 1_000
            assert (site.rig.clock.now > began_ms) == waited


async def test_h17_while_kafka_is_away_nothing_is_positively_unknown(site: Site) -> None:
    async def away(deadline_ms: int) -> None:
        raise Unavailable("no broker")

    site.rig.settings.barrier = away  # type: ignore[method-assign]
    for _ in range(2):
        for fields in ({"topic": pb.TopicRef(name="new")}, {"partition": 1}):
            with pytest.raises(Unavailable, match="Kafka does not answer"):
                await site.read(0, **fields)
        with pytest.raises(Unavailable, match="Kafka does not answer"):
            await site.ask("DescribeTopics", pb.DescribeTopicsRequest(topics=["new"]))
    assert (await site.ask("DescribeTopics", pb.DescribeTopicsRequest())).topics


async def test_h17_while_kafka_is_away_no_partition_is_positively_empty(site: Site) -> None:
    """A reader that may not read the ledger has an empty one, and follows nothing."""
    for start_offset in (0, 100, 250):
        site.delete(start_offset)
    assert offsets(await site.read(0)) == []

    async def away(key: PartitionKey, deadline_ms: int) -> None:
        raise Unavailable("no broker")

    site.rig.ledger.barrier = away  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(Unavailable, match="no remote record, as far as was read: Kafka does"):
            await site.read(0)
        with pytest.raises(Unavailable, match="Kafka does not answer"):
            await site.ask("ListOffsets", positions(-1))
