"""The client of the fetch API.

When a service fails, stalls, is busy or no longer leads the partition, a stream continues at
another service after its last whole batch. Calls block their thread; there is no asyncio. Flow
control is gRPC's own: a message is read when the caller asks for it. This module must not know read
modes or record formats.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.errors import ErrorKind
from rlm.v1 import fetch_pb2 as pb
from tiered_reads.endpoints import READER, Endpoint, Endpoints, RetryPolicy
from tiered_reads.errors import ServiceError
from tiered_reads.service_calls import Channels, Failure, Received, StallWatchdog, failure_of
from tiered_reads.shared import Shared
from tiered_reads.stopping import Stop, Stopped
from tiered_reads.values import Fetched, OffsetRange, ServiceConnection, TopicPartition

MESSAGE_BYTES = 4 << 20
"""Asked for per message. Each costs its service about 0.7 ms of Python, whatever it carries."""
NO_TOPIC_PARTITION = TopicPartition("", 0)
_DESCRIBE_LIMIT_MS = 5_000
_MOST_TOPICS_BY_NAME = 8
_MOST_SURPRISES = 5
"""Refusals in a row as INVALID that the log's bounds do not explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAsk:
    """The request of one range. `topic_id`: the topic with that id only. `max_bytes`: of one
    message, unless a single batch is larger.
    """

    wanted: OffsetRange
    remote_only: bool
    read_committed: bool
    topic_id: bytes | None = None
    max_bytes: int = MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One message. `missing`: half-open ranges in it that the requested tiers do not have."""

    piece: Fetched
    missing: tuple[tuple[int, int], ...] = ()


class BelowLogStart(Exception):
    """The offset asked for lies below where the log begins."""

    def __init__(self, log_start_offset: int, what: str) -> None:
        super().__init__(log_start_offset, what)
        self.log_start_offset = log_start_offset
        self.what = what


class BeyondLogEnd(Exception):
    """The offset asked for lies beyond where the log ends now."""


class FetchClient:
    """Thread-safe. `patience_ms`: how long to go on without any progress. `question_limit_ms`: how
    long to wait for the one answer of a service, if shorter than for a message of a stream.
    """

    def __init__(
        self,
        connection: ServiceConnection,
        *,
        patience_ms: int,
        question_limit_ms: int | None = None,
    ) -> None:
        self._limit_ms = connection.call_timeout_ms
        self._question_limit_ms = min(self._limit_ms, question_limit_ms or self._limit_ms)
        self._patience_ms = patience_ms
        self._channels = Channels(connection)
        self._watchdog = StallWatchdog()
        self.endpoints = Endpoints(connection.endpoints)

    def close(self) -> None:
        """End every call, close every channel."""
        self._channels.close()
        self._watchdog.close()

    def fetch(self, ask: FetchAsk, stop: Stop) -> Generator[Answer, None, None]:
        """Answers in offset order from the range's start to its end, or the requested tiers' end.

        BelowLogStart, BeyondLogEnd, ServiceError (NOT_FOUND, CORRUPT, ... or no progress), Stopped.
        """
        retry_policy = self._retry_policy(ask.wanted.topic_partition, ask.remote_only, stop)
        position, surprises = ask.wanted.start_offset, 0
        while position < ask.wanted.end_offset:
            address = retry_policy.address()
            try:
                for answer in self._stream(address, ask, position, stop):
                    if not ask.remote_only:
                        self.endpoints.leads(ask.wanted.topic_partition, address)
                    position, surprises = answer.piece.next_offset, 0
                    yield answer
                    # Only now, because the consumer's time does not count as the service's.
                    retry_policy.progressed(address)
                return
            except _CallFailed as failed:
                stop.check()
                failure = failed.failure
                if failure.lacks_bounds:
                    failure = self._with_bounds(failure, address, ask, position, stop)
                _refuse_out_of_range(failure, position)
                if failure.lacks_bounds and surprises < _MOST_SURPRISES:
                    surprises += 1
                    continue
                stop.wait(retry_policy.failed(address, failure))

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        remote_only: bool,
        read_committed: bool,
        stop: Stop,
    ) -> int | None:
        """The offset of a timestamp (ms), -1 latest or -2 earliest; None where no record matches.

        ServiceError, Stopped.
        """
        found = self.list_dated_offset(
            topic_partition,
            timestamp,
            remote_only=remote_only,
            read_committed=read_committed,
            stop=stop,
        )
        return None if found is None else found[0]

    def list_dated_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        *,
        remote_only: bool,
        read_committed: bool,
        stop: Stop,
    ) -> tuple[int, int] | None:
        """As list_offset, with the timestamp (ms) of the record that was found, -1 = none."""
        request = pb.ListOffsetsRequest(
            topic=pb.TopicRef(name=topic_partition.topic),
            partition=topic_partition.partition,
            timestamp=timestamp,
            isolation_level=_isolation(read_committed),
            tiers=_tiers(remote_only),
        )
        answer: pb.ListOffsetsResponse = self._unary(
            self._retry_policy(topic_partition, remote_only, stop),
            lambda stub, **sent: stub.ListOffsets.future(request, **sent),
            stop,
        )
        return (answer.offset, answer.timestamp_ms) if answer.offset >= 0 else None

    def describe_topics(
        self, topics: tuple[str, ...], topic_partition: TopicPartition, stop: Stop
    ) -> tuple[pb.TieredTopic, ...]:
        """Those of the topics that are enabled, all enabled ones if none is given. Readers are
        asked first.

        `topic_partition` spreads the question like fetches of that partition. ServiceError,
        Stopped.
        """
        found: list[pb.TieredTopic] = []
        for request in _describe_requests(topics):
            try:
                answer: pb.DescribeTopicsResponse = self._unary(
                    self._retry_policy(topic_partition, True, stop),
                    lambda stub, request=request, **sent: stub.DescribeTopics.future(
                        request, **sent
                    ),
                    stop,
                )
            except ServiceError as error:
                if error.kind != ErrorKind.NOT_FOUND.name or not request.topics:
                    raise
                continue
            found.extend(row for row in answer.topics if not topics or row.topic in topics)
        return tuple(found)

    def remote_window(
        self, topic_partition: TopicPartition, topic_id: bytes, start_offset: int, stop: Stop
    ) -> pb.RemoteLog | None:
        """The segments that hold the offsets from `start_offset` on, for who reads the store
        itself. None: a service of an older version has answered. ServiceError, also where the
        remote tier does not have the offset; Stopped.
        """
        request = pb.DescribeRemoteLogRequest(
            topic=pb.TopicRef(topic_id=topic_id),
            partition=topic_partition.partition,
            tiers=pb.REMOTE_ONLY,
            start_offset=start_offset,
        )
        answer: pb.RemoteLog = self._unary(
            self._retry_policy(topic_partition, True, stop),
            lambda stub, **sent: stub.DescribeRemoteLog.future(request, **sent),
            stop,
        )
        return answer if answer.tiers == pb.REMOTE_ONLY else None

    def _with_bounds(
        self, failure: Failure, address: str, ask: FetchAsk, position: int, stop: Stop
    ) -> Failure:
        """The failure with the bound that the position violates, asked of the service that refused
        it without one. The failure unchanged where the position is in range by now; if the
        question itself fails, its failure.
        """
        try:
            earliest = self._bound(EARLIEST_TIMESTAMP, address, ask, stop)
            latest = self._bound(LATEST_TIMESTAMP, address, ask, stop)
        except _CallFailed as other:
            return failure if other.failure.kind is ErrorKind.INVALID else other.failure
        if position < earliest:
            return replace(failure, log_start_offset=earliest)
        # A fetch from the remote tier alone ends at its end without an error.
        if not ask.remote_only and 0 <= latest < position:
            return replace(failure, high_watermark=latest)
        return failure

    def _bound(self, timestamp: int, address: str, ask: FetchAsk, stop: Stop) -> int:
        request = pb.ListOffsetsRequest(
            topic=_topic_ref(ask),
            partition=ask.wanted.topic_partition.partition,
            timestamp=timestamp,
            tiers=_tiers(ask.remote_only),
        )
        answer: pb.ListOffsetsResponse = self._result(
            lambda stub, **sent: stub.ListOffsets.future(request, **sent),
            address,
            self._question_limit_ms,
            stop,
        )
        return answer.offset

    def _unary(self, retry_policy: RetryPolicy, call: Callable[..., Any], stop: Stop) -> Any:
        while True:
            address = retry_policy.address()
            try:
                return self._result(call, address, self._question_limit_ms, stop)
            except _CallFailed as failed:
                stop.wait(retry_policy.failed(address, failed.failure))

    def _result(self, call: Callable[..., Any], address: str, limit_ms: int, stop: Stop) -> Any:
        """One unary call to one service. _CallFailed, Stopped."""
        future = call(
            self._channels.stub(address),
            metadata=self._channels.metadata,
            timeout=limit_ms / 1000,
        )
        try:
            with stop.running(future.cancel):
                return future.result()
        except grpc.FutureCancelledError as error:
            raise Stopped from error
        except grpc.RpcError as error:
            raise _CallFailed(failure_of(error, address)) from error

    def _stream(self, address: str, ask: FetchAsk, position: int, stop: Stop) -> Iterator[Answer]:
        call = self._channels.fetch(address, _fetch_request(ask, position))
        with (
            contextlib.closing(_Cancelling(call)),
            stop.running(call.cancel),
            self._watchdog.watching(call.cancel, self._limit_ms) as watched,
        ):
            try:
                while True:
                    watched.waits()
                    response = next(call, None)
                    watched.rests()
                    if response is None:
                        return
                    answer = _answer(response, position)
                    if answer.piece.next_offset <= position:
                        raise _does_not_advance(address, position, answer.piece.next_offset)
                    position = answer.piece.next_offset
                    yield answer
            except grpc.RpcError as error:
                failure = failure_of(error, address)
                if watched.was_stalled:
                    stalled = f"service at {address}: no message for {self._limit_ms} ms"
                    failure = replace(failure, kind=ErrorKind.UNAVAILABLE, what=stalled)
                raise _CallFailed(failure) from error

    def _retry_policy(
        self, topic_partition: TopicPartition, remote_only: bool, stop: Stop
    ) -> RetryPolicy:
        self._find_endpoints(stop)
        of = self.endpoints
        return RetryPolicy(
            of,
            lambda: (
                of.for_remote(topic_partition) if remote_only else of.for_leader(topic_partition)
            ),
            patience_ms=self._patience_ms,
        )

    def _find_endpoints(self, stop: Stop) -> None:
        """Ask for the cluster's services; if none describes them, the given ones are all."""
        if not self.endpoints.is_due:
            return
        request = pb.DescribeEndpointsRequest()
        has_answered = False
        for address in self.endpoints.for_description():
            try:
                answer: pb.DescribeEndpointsResponse = self._result(
                    lambda stub, **sent: stub.DescribeEndpoints.future(request, **sent),
                    address,
                    min(self._question_limit_ms, _DESCRIBE_LIMIT_MS),
                    stop,
                )
            except _CallFailed as failed:
                if failed.failure.kind is ErrorKind.UNAVAILABLE:
                    self.endpoints.failed(address)
                else:
                    has_answered = True
                continue
            self.endpoints.described(
                Endpoint(
                    address=row.grpc_address,
                    is_reader=row.role == READER,
                    heartbeat_age_ms=row.heartbeat_age_ms,
                )
                for row in answer.endpoints
                if row.grpc_address
            )
            return
        if has_answered:
            self.endpoints.described(())


class _CallFailed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def _refuse_out_of_range(failure: Failure, position: int) -> None:
    """BelowLogStart or BeyondLogEnd if a service has refused the position for that."""
    log_start = failure.log_start_offset
    if log_start is not None and log_start > position:
        raise BelowLogStart(log_start, failure.what)
    if failure.high_watermark is not None:
        raise BeyondLogEnd(failure.what)


def _does_not_advance(address: str, position: int, next_offset: int) -> _CallFailed:
    """An answer after which records would be repeated, or the same request sent endlessly."""
    what = f"service at {address}: asked from offset {position} it goes on at {next_offset}"
    return _CallFailed(Failure(kind=ErrorKind.INTERNAL, what=what))


@dataclass(frozen=True, slots=True)
class _Cancelling:
    call: grpc.Call

    def close(self) -> None:
        self.call.cancel()


def _fetch_request(ask: FetchAsk, position: int) -> pb.FetchRequest:
    wanted = ask.wanted
    return pb.FetchRequest(
        topic=_topic_ref(ask),
        partition=wanted.topic_partition.partition,
        start_offset=position,
        end_offset=wanted.end_offset,
        max_bytes=ask.max_bytes,
        isolation_level=_isolation(ask.read_committed),
        tiers=_tiers(ask.remote_only),
    )


def _topic_ref(ask: FetchAsk) -> pb.TopicRef:
    if ask.topic_id is not None:
        return pb.TopicRef(topic_id=ask.topic_id)
    return pb.TopicRef(name=ask.wanted.topic_partition.topic)


def _describe_requests(topics: tuple[str, ...]) -> tuple[pb.DescribeTopicsRequest, ...]:
    """One request per topic, because a request for several is NOT_FOUND if one is not enabled. For
    many topics one request asks for all.
    """
    if not 0 < len(topics) <= _MOST_TOPICS_BY_NAME:
        return (pb.DescribeTopicsRequest(),)
    return tuple(pb.DescribeTopicsRequest(topics=[topic]) for topic in topics)


def _answer(received: Received, position: int) -> Answer:
    rest = received.rest
    return Answer(
        piece=Fetched(
            batches=received.batches,
            start_offset=position,
            next_offset=rest.next_offset,
            aborted=tuple((row.producer_id, row.first_offset) for row in rest.aborted_transactions),
        ),
        missing=tuple((row.start_offset, row.end_offset) for row in rest.missing),
    )


def _isolation(read_committed: bool) -> pb.IsolationLevel:
    return pb.READ_COMMITTED if read_committed else pb.READ_UNCOMMITTED


def _tiers(remote_only: bool) -> pb.Tiers:
    return pb.REMOTE_ONLY if remote_only else pb.ALL_TIERS


SHARED: Shared[FetchClient] = Shared()


def leased_client(
    connection: ServiceConnection, patience_ms: int
) -> contextlib.AbstractContextManager[FetchClient]:
    """This process's client for the connection."""
    return SHARED.leased(
        (connection, patience_ms), lambda: FetchClient(connection, patience_ms=patience_ms)
    )
