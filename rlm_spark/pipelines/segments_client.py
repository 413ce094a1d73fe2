"""Lists segments and reads their objects, byte for byte, through the fetch API.

This is the fetch client with three more calls. Any service of the cluster answers them, and
services without a broker are called first. This module must not know what the bytes mean.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import grpc

from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from tiered_reads.fetch_client import FetchClient
from tiered_reads.service_calls import failure_of
from tiered_reads.shared import Shared
from tiered_reads.stopping import Stop
from tiered_reads.values import ServiceConnection, TopicPartition

RANGE_BYTES = 8 << 20
"""At most 16 MiB may be asked for at once; one is in memory at a time."""

T = TypeVar("T")
Row_co = TypeVar("Row_co", covariant=True)


class _Call(Protocol[Row_co]):
    def cancel(self) -> object: ...

    def __iter__(self) -> Iterator[Row_co]: ...


class SegmentsClient(FetchClient):
    """Thread-safe. Every call may raise ServiceError: refused, or no answer in time."""

    def finished_segments(self, topic: str, stop: Stop) -> tuple[pb.Segment, ...]:
        """All FINISHED segments of a topic, by partition and start offset."""
        request = pb.ListSegmentsRequest(topic=pb.TopicRef(name=topic))
        return tuple(
            self._all(
                TopicPartition(topic, 0),
                lambda stub, metadata: stub.ListSegments(request, metadata=metadata),
                stop,
            )
        )

    def indexes(self, segment: pb.Segment, stop: Stop) -> bytes:
        """The whole indexes object, unchecked."""
        return self._object(segment, pb.INDEXES, (0, 0), stop)

    def log(self, segment: pb.Segment, positions: tuple[int, int], stop: Stop) -> bytes:
        """Bytes [start, end) of the log object, unchecked, clipped to its end."""
        return self._object(segment, pb.LOG, positions, stop)

    def _object(
        self, segment: pb.Segment, kind: pb.ObjectKind, positions: tuple[int, int], stop: Stop
    ) -> bytes:
        start, end = positions
        request = pb.ReadObjectRequest(
            topic=pb.TopicRef(topic_id=segment.topic_id),
            partition=segment.partition,
            segment_id=segment.segment_id,
            kind=kind,
            start_position=start,
            end_position=end,
        )
        rows = self._all(
            TopicPartition(segment.topic, segment.partition),
            lambda stub, metadata: stub.ReadObject(request, metadata=metadata),
            stop,
        )
        return b"".join(row.data for row in rows)

    def _all(
        self,
        topic_partition: TopicPartition,
        ask: Callable[[FetchServiceStub, tuple[tuple[str, str], ...]], _Call[T]],
        stop: Stop,
    ) -> list[T]:
        """One whole streamed answer of one service; a failure starts it again elsewhere."""
        retry_policy = self._retry_policy(topic_partition, True, stop)
        while True:
            address = retry_policy.address()
            stop.check()
            call = ask(self._channels.stub(address), self._channels.metadata)
            try:
                with (
                    stop.running(call.cancel),
                    self._watchdog.watching(call.cancel, self._limit_ms) as watched,
                ):
                    return list(_watched(call, watched.waits))
            except grpc.RpcError as error:
                stop.wait(retry_policy.failed(address, failure_of(error, address)))


def _watched(call: _Call[T], waits: Callable[[], object]) -> Iterator[T]:
    waits()
    for row in call:
        yield row
        waits()


SHARED: Shared[SegmentsClient] = Shared()


def leased_client(
    connection: ServiceConnection, patience_ms: int
) -> contextlib.AbstractContextManager[SegmentsClient]:
    """This process's client for the connection."""
    return SHARED.leased(
        (connection, patience_ms), lambda: SegmentsClient(connection, patience_ms=patience_ms)
    )


def bytes_per_offset(segments: Sequence[pb.Segment]) -> dict[TopicPartition, float]:
    """Stored bytes per offset by partition, in the newest segment of each."""
    newest: dict[TopicPartition, pb.Segment] = {}
    for segment in segments:
        topic_partition = TopicPartition(segment.topic, segment.partition)
        if (
            topic_partition not in newest
            or newest[topic_partition].start_offset < segment.start_offset
        ):
            newest[topic_partition] = segment
    return {
        topic_partition: one.size_bytes / max(one.next_offset - one.start_offset, 1)
        for topic_partition, one in newest.items()
    }
