"""H24: worker and core of neighbouring versions understand each other, in both directions.

What a later version adds, a field of any message or a kind of message, is left out by the earlier
one; no client's connection ends while one takes the place of the other.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_protocol.apis import FETCH, PRODUCE
from kip405.errors import ErrorKind, Unavailable
from rlm.clock import SystemClock
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.reading.values import RemoteRead, TimestampedOffset
from rlm.remote_log.tier import ChangedMeanwhile
from rlm.workers.records_memory import RecordsMemory
from rlm.workers.remote_core import RemoteCore
from rlm.workers.v1 import core_pb2 as pb
from tests.rlm.proxy.fakes import (
    PLAIN,
    TOPIC_ID,
    WATERMARKS,
    FakeBroker,
    asked,
    blob,
    fetch_request,
    only,
    tier_partition,
)
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.uncounted import Counting, NoQuota
from tests.rlm.workers.core_site import NAMED, Core, RawWorker, core_at
from tests.rlm.workers.later_messages import as_later, of_a_later_kind, unchanged
from tests.rlm.workers.versions import Relay
from tests.waiting import until

READ = RemoteRead(
    topic_id=TOPIC_ID,
    partition=0,
    offset=10,
    upper_offset=90,
    max_bytes=200,
    at_least_one=True,
    read_committed=True,
)


@dataclass
class Neighbours:
    """A core, a worker, and between them a relay that makes either a version later."""

    core: Core
    worker: RemoteCore
    relay: Relay
    waits: list[pb.ClientWaits]


@asynccontextmanager
async def neighbours(folder: Path, *, later: str = "") -> AsyncIterator[Neighbours]:
    """`later`: which of them is of a later version, `core` or `worker`."""
    inner, outer = folder / "core.sock", folder / "relay.sock"
    waits: list[pb.ClientWaits] = []
    async with core_at(inner) as core:
        relay = Relay(outer, inner)
        relay.to_worker = as_later("ToWorker") if later == "core" else unchanged
        relay.to_core = as_later("ToCore") if later == "worker" else unchanged
        await relay.start()
        worker = RemoteCore(
            outer,
            worker=4,
            recent_ends=2,
            clock=SystemClock(),
            memory=RecordsMemory(1 << 30),
            greeted=lambda _: None,
            waited=waits.append,
        )
        running = asyncio.ensure_future(worker.run())
        try:
            await until(worker.ready)
            yield Neighbours(core, worker, relay, waits)
        finally:
            running.cancel()
            await asyncio.wait([running])
            relay.close()


@pytest.mark.parametrize("later", ["core", "worker"])
async def test_h24_every_call_is_answered_across_a_version(tmp_path: Path, later: str) -> None:
    async with neighbours(tmp_path, later=later) as n:
        n.core.tier.aborted = ((5, 6),)
        n.core.tier.timestamped = TimestampedOffset(offset=3, timestamp_ms=4, leader_epoch=5)
        assert n.worker.partition(NAMED, 0) == tier_partition()
        assert await n.worker.barrier(NAMED, 0, 60_000) == tier_partition()
        assert await n.worker.watermarks(NAMED, 0, 60_000) == WATERMARKS
        records = await n.worker.read(READ)
        assert b"".join(records.records) == blob(10, 30)
        assert records.aborted == ((5, 6),)
        found = await n.worker.offset_for_timestamp(TOPIC_ID, 0, 77)
        assert found == n.core.tier.timestamped
        assert await n.worker.raise_start(tier_partition(), 44) == 44
        n.core.tier.error = ChangedMeanwhile("deleted")
        with pytest.raises(ChangedMeanwhile):
            await n.worker.read(READ)
        counts = pb.Counts(passed_bytes=5, held_ms={"client": 7})
        counts.events.add(name="answered", labels=["fetch", "broker_0"], count=3)
        counts.spliced.add(client_id="one", size_bytes=9)
        n.core.throttle.wait_ms = 20
        n.worker.report(counts)
        await until(lambda: bool(n.waits))
        assert [one.duration_ms for one in n.waits[0].waits] == [20]
        assert n.core.metrics.outcomes == [("fetch", "broker_0")] * 3
        assert n.core.throttle.held_ms == {"client": 7}


async def test_h24_what_only_a_later_core_says_is_left_out(tmp_path: Path) -> None:
    """A message that nobody asked for, and an answer of a kind that only it knows."""
    async with neighbours(tmp_path, later="core") as n:
        [pair] = n.relay.pairs
        pair.worker.send(of_a_later_kind("ToWorker"))
        pair.worker.send(of_a_later_kind("ToWorker", call_id=1_000))
        assert await n.worker.barrier(NAMED, 0, 60_000) == tier_partition()
        assert len(n.relay.pairs) == 1


async def test_h24_what_only_a_later_worker_asks_is_refused_and_ends_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "core.sock"
    async with core_at(path):
        raw = await RawWorker().connect(path)
        hello = pb.ToCore(hello=pb.WorkerHello(oldest_protocol=1, newest_protocol=2))
        raw.link.send(as_later("ToCore")(hello.SerializeToString()))
        raw.link.send(of_a_later_kind("ToCore", call_id=7))
        await until(lambda: 7 in raw.answers())
        assert raw.answers()[7].error.kind == ErrorKind.INVALID.name
        call = pb.ToCore(call_id=8, barrier=pb.BarrierCall(topic=pb.TopicName(name="archive")))
        raw.send(call)
        await until(lambda: 8 in raw.answers())
        raw.link.close()


async def test_h24_no_client_is_cut_off_by_an_upgrade_of_the_core_and_back(tmp_path: Path) -> None:
    """The core ends, one of the next version takes its place, and then one of the first again."""
    broker = FakeBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server, neighbours(tmp_path) as n:
        settings = ProxySettings(
            listen_host="127.0.0.1",
            listen_port=0,
            upstream_host="127.0.0.1",
            upstream_port=server.sockets[0].getsockname()[1],
            barrier_wait_ms=100,
        )
        metrics = Counting()
        proxy = ProxyServer(settings, n.worker, n.worker, SystemClock(), metrics, NoQuota())
        await proxy.start()
        client = RawClient(*await asyncio.open_connection("127.0.0.1", proxy.port))
        for to_worker in (unchanged, as_later("ToWorker"), unchanged):
            await n.core.server.close()
            await until(lambda: not n.worker.is_connected)
            await _pass_local(client)
            remote = only(await client.call(FETCH, 12, fetch_request(12, asked(40))))
            assert (remote["error_code"], remote["records"]) == (0, b"")  # not ready, no verdict
            with pytest.raises(Unavailable):
                await n.worker.read(READ)
            n.relay.to_worker = to_worker
            n.core.begin()
            await n.core.server.start()
            await n.core.feed.compare_all()
            await until(n.worker.ready)
            patient = fetch_request(12, asked(40), max_wait_ms=60_000)
            assert only(await client.call(FETCH, 12, patient))["records"] == blob(40, 100)
            await _pass_local(client)
        assert metrics.causes == []
        client.writer.close()
        await proxy.close()


async def _pass_local(client: RawClient) -> None:
    data = [{"index": 0, "records": b"r" * 50}]
    request = {
        "acks": 1,
        "timeout_ms": 1_000,
        "topic_data": [{"name": PLAIN, "partition_data": data}],
    }
    answer = await client.call(PRODUCE, 9, request)
    assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 7
    found = await client.call(FETCH, 12, fetch_request(12, asked(150), topic=PLAIN))
    assert only(found)["records"] == blob(150, 200)
