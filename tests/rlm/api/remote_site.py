"""A reader over real segments of one partition, with everything else in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpc import aio

from kip405.batches import batch_headers
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.api.call_metadata import call_metadata
from rlm.api.calls import Gate
from rlm.api.endpoints import READER, Endpoint, Endpoints
from rlm.api.remote_fetch import RemoteDependencies, RemoteFetchService
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from rlm.remote_log.history import LineageReader
from rlm.remote_log.objects import RemoteObjects
from rlm.remote_log.remote_only import RemoteReading, RemoteView
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.status import error_of_call
from rsm_plugins.threads import Threads
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.throttle import throttle

WHO = call_metadata("tests", None)
REF = pb.TopicRef(name=PARTITION.topic)
STATE = RemoteLogSegmentState
OWN = Endpoint(grpc_address="127.0.0.1:7", role=READER, node_id=-1, version="1")


class Site:
    """Segments [0, 100), [100, 250), [250, 400) remote, and a reader that serves them."""

    def __init__(self, path: Path, tasks: asyncio.TaskGroup, threads: Threads) -> None:
        self.rig = Rig(path)
        self.reader = RemoteReader(
            store=self.rig.store,
            cluster_id=CLUSTER_ID,
            tasks=tasks,
            threads=threads,
            clock=self.rig.clock,
            limits=ReadLimits(memory_bytes=1 << 26),
        )
        ledger, settings = self.rig.ledger, self.rig.settings
        # The rig's ledger knows one partition only.
        ledger.partitions = lambda: (PARTITION.key,)  # type: ignore[method-assign]
        self.view = RemoteView(
            settings=settings,
            ledger=ledger,
            clock=self.rig.clock,
        )
        self.lineage_reader = LineageReader(self.reader, ledger)
        self.reading = RemoteReading(view=self.view, reader=self.lineage_reader)
        self.service = RemoteFetchService(
            RemoteDependencies(
                gate=Gate(),
                view=self.view,
                reading=self.reading,
                ledger=ledger,
                objects=RemoteObjects(
                    cluster_id=CLUSTER_ID,
                    ledgers=ledger,
                    store=self.rig.store,
                    threads=threads,
                ),
                endpoints=Endpoints(
                    own=OWN,
                    settings=settings,
                    clock=self.rig.clock,
                    heartbeat_interval_ms=10_000,
                ),
                throttle=throttle(self.rig.clock),
            )
        )
        self.address = ""

    async def prepare(self) -> None:
        self.rig.write_log(0, 100, 250, 400, end=420)
        await self.rig.copy.run(self.rig.led)

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        found = self.rig.ledger.view.in_state(STATE.COPY_SEGMENT_FINISHED)
        return [entry.metadata for entry in found]

    def delete(self, start_offset: int) -> None:
        """The segment is deleted in order: a hole from now on."""
        segment = next(one for one in self.segments() if one.start_offset == start_offset)
        self.begin_delete(segment)
        done = replace(segment, state=STATE.DELETE_SEGMENT_FINISHED)
        self.rig.ledger.write(done, previous=2)

    def end_second_at_200(self) -> None:
        """The third segment is deleted, and a later leader has copied the offsets from 200 on: the
        second one counts up to there.
        """
        _, second, _ = self.segments()
        self.delete(250)
        epochs = (replace(second.segment_leader_epochs[0], epoch=3, start_offset=200),)
        newer = replace(
            second,
            segment_id=replace(second.segment_id, id=Uuid(b"\x77" * 16)),
            start_offset=200,
            end_offset=299,
            segment_leader_epochs=epochs,
        )
        self.rig.ledger.copied(newer)

    def begin_delete(self, segment: RemoteLogSegmentMetadata) -> None:
        begun = replace(segment, state=STATE.DELETE_SEGMENT_STARTED)
        self.rig.ledger.write(begun, previous=1)

    async def ask(self, name: str, request: object) -> Any:
        async with self.stub() as stub:
            return await getattr(stub, name)(request, metadata=WHO)

    async def read(self, start_offset: int, **fields: object) -> list[pb.FetchResponse]:
        request = fetch(start_offset, **fields)
        async with self.stub() as stub:
            return [answer async for answer in stub.Fetch(request, metadata=WHO)]

    @contextlib.asynccontextmanager
    async def stub(self) -> AsyncIterator[Any]:
        async with aio.insecure_channel(self.address) as channel:
            try:
                yield FetchServiceStub(channel)
            except aio.AioRpcError as error:
                raise error_of_call(error, f"service at {self.address}") from error


def fetch(start_offset: int, **fields: object) -> pb.FetchRequest:
    given = {"topic": REF, "max_bytes": 700, "tiers": pb.REMOTE_ONLY, **fields}
    return pb.FetchRequest(start_offset=start_offset, **given)  # type: ignore[arg-type]


def positions(timestamp: int, **fields: object) -> pb.ListOffsetsRequest:
    given = {"topic": REF, "tiers": pb.REMOTE_ONLY, **fields}
    return pb.ListOffsetsRequest(timestamp=timestamp, **given)  # type: ignore[arg-type]


def offsets(answers: list[pb.FetchResponse]) -> list[int]:
    return [header.base_offset for one in answers for _, header in batch_headers(one.batches)]


def missing(answers: list[pb.FetchResponse]) -> list[tuple[int, int]]:
    return [(row.start_offset, row.end_offset) for one in answers for row in one.missing]
