"""A fetch API over real gRPC that serves one partition's batches and fails as a test scripts it."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc

from kip405.errors import Invalid, NotFound, OffsetOutOfRange, RemoteStorageError
from rlm.remote_log.reads import below_log_start
from rlm.v1 import fetch_pb2 as pb
from rlm.v1 import fetch_pb2_grpc
from rsm_plugins.contract.status import status_of_error
from tests.kip405.batch_builder import batch
from tiered_reads.values import ServiceConnection

Responses = Iterator[pb.FetchResponse]
Behaviour = Callable[["FakeService", pb.FetchRequest, grpc.ServicerContext], Responses]
TOPIC_ID = bytes(range(16))
# What a test does not need is left unimplemented.
_Servicer: Any = fetch_pb2_grpc.FetchServiceServicer


@dataclass(slots=True, eq=False)
class FakeService(_Servicer):  # type: ignore[misc]
    """Records [start, end) in batches of `per_batch`; `remote_end` is where REMOTE_ONLY ends.

    `scripted`: what the next Fetch calls do instead, one each. `token`: asked for where set.
    `is_older`: an offset out of range is refused without the bound, as before there were fields.
    """

    start: int = 0
    end: int = 30
    remote_end: int = 30
    per_batch: int = 3
    value: bytes = b"value"
    topics: tuple[str, ...] = ("t",)
    topic_id: bytes = TOPIC_ID
    missing: tuple[tuple[int, int], ...] = ()
    token: str | None = None
    is_older: bool = False
    endpoints: tuple[pb.Endpoint, ...] = ()
    scripted: deque[Behaviour] = field(default_factory=deque)
    failing_offsets: deque[RemoteStorageError] = field(default_factory=deque)
    calls: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)
    address: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def connection(self, *others: str, **options: Any) -> ServiceConnection:
        return ServiceConnection(
            endpoints=(self.address, *others),
            principal="tester",
            token=self.token,
            **{"call_timeout_ms": 20_000, **options},
        )

    def asked(self, method: str) -> list[Any]:
        return [request for name, request, _ in self.calls if name == method]

    @contextlib.contextmanager
    def running(self, credentials: grpc.ServerCredentials | None = None) -> Iterator["FakeService"]:
        pool = ThreadPoolExecutor(8)
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        fetch_pb2_grpc.add_FetchServiceServicer_to_server(self, server)
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        self.address = f"127.0.0.1:{port}"
        server.start()
        try:
            yield self
        finally:
            self.released.set()
            server.stop(0).wait()
            pool.shutdown()

    def Fetch(self, request: pb.FetchRequest, context: grpc.ServicerContext) -> Responses:
        self._note("Fetch", request, context)
        if self.scripted:
            yield from self.scripted.popleft()(self, request, context)
        else:
            yield from self.serve(request, context)

    def serve(self, request: pb.FetchRequest, context: grpc.ServicerContext) -> Responses:
        """One message per batch."""
        remote_only = request.tiers == pb.REMOTE_ONLY
        upper = min(request.end_offset, self.remote_end if remote_only else self.end)
        if request.start_offset < self.start:
            refuse(
                context,
                self._out_of_range(below_log_start("t-0", request.start_offset, self.start)),
            )
        if request.start_offset > self.end and not remote_only:
            text = f"t-0: offset {request.start_offset} is beyond high_watermark={self.end}"
            refuse(context, self._out_of_range(OffsetOutOfRange(text, high_watermark=self.end)))
        position = request.start_offset
        while position < upper:
            base = position - position % self.per_batch
            gaps = [gap for gap in self.missing if gap[0] <= position < gap[1]]
            if gaps:
                position = gaps[0][1]
                rows = [pb.OffsetRange(start_offset=a, end_offset=b) for a, b in gaps]
                yield pb.FetchResponse(next_offset=position, missing=rows)
                continue
            position = base + self.per_batch
            yield pb.FetchResponse(
                batches=batch(base, self.per_batch, value=self.value),
                next_offset=position,
                tier=pb.REMOTE,
            )

    def _out_of_range(self, error: OffsetOutOfRange) -> Invalid:
        return Invalid(str(error)) if self.is_older else error

    def ListOffsets(
        self, request: pb.ListOffsetsRequest, context: grpc.ServicerContext
    ) -> pb.ListOffsetsResponse:
        self._note("ListOffsets", request, context)
        if self.failing_offsets:
            refuse(context, self.failing_offsets.popleft())
        end = self.remote_end if request.tiers == pb.REMOTE_ONLY else self.end
        dated = max(self.start, request.timestamp - 1_000)
        found = {-1: end, -2: self.start}.get(request.timestamp, dated)
        return pb.ListOffsetsResponse(offset=found if self.start <= found <= end else -1)

    def DescribeTopics(
        self, request: pb.DescribeTopicsRequest, context: grpc.ServicerContext
    ) -> pb.DescribeTopicsResponse:
        self._note("DescribeTopics", request, context)
        unknown = set(request.topics) - set(self.topics)
        if unknown:
            refuse(context, NotFound(f"{unknown} not enabled"))
        row = pb.TieredPartition(
            partition=0, remote_log_start_offset=self.start, remote_next_offset=self.remote_end
        )
        return pb.DescribeTopicsResponse(
            topics=[
                pb.TieredTopic(topic=topic, topic_id=self.topic_id, partitions=[row])
                for topic in request.topics or self.topics
            ]
        )

    def DescribeEndpoints(
        self, request: pb.DescribeEndpointsRequest, context: grpc.ServicerContext
    ) -> pb.DescribeEndpointsResponse:
        self._note("DescribeEndpoints", request, context)
        return pb.DescribeEndpointsResponse(endpoints=self.endpoints)

    def _note(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        self.calls.append((method, request, metadata))
        if self.token is not None and metadata.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call shows no valid token")


def refuse(context: grpc.ServicerContext, error: RemoteStorageError) -> None:
    """End the call as our services do."""
    code, what, trailing = status_of_error(error)
    context.set_trailing_metadata(trailing)
    context.abort(code, what)


def refusing(error: RemoteStorageError, after: int = 0) -> Behaviour:
    """Sends that many messages, then the error."""

    def behave(
        service: FakeService, request: pb.FetchRequest, context: grpc.ServicerContext
    ) -> Responses:
        for number, response in enumerate(service.serve(request, context)):
            if number == after:
                break
            yield response
        refuse(context, error)

    return behave


def stalling(after: int = 0) -> Behaviour:
    """Sends that many messages, then nothing until the caller cancels."""

    def behave(
        service: FakeService, request: pb.FetchRequest, context: grpc.ServicerContext
    ) -> Responses:
        for number, response in enumerate(service.serve(request, context)):
            if number == after:
                break
            yield response
        context.add_callback(service.released.set)
        service.released.wait(60)

    return behave


def ending(after: int) -> Behaviour:
    """Sends that many messages, then ends the stream early but without an error."""

    def behave(
        service: FakeService, request: pb.FetchRequest, context: grpc.ServicerContext
    ) -> Responses:
        for number, response in enumerate(service.serve(request, context)):
            if number == after:
                return
            yield response

    return behave
