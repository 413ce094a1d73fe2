"""Runs the remote reads of one Fetch beside the request to the broker, within the read quota.

A read may be slow, may fail and may be abandoned; none of these may end the connection.

The quota delays reads within max_wait and throttles clients, because spliced bytes bypass the
broker's own quotas (H23). A partition whose read is delayed is answered empty and error-free with
the real watermarks, as Kafka's remote fetch quota does (KIP-956). A client that reads only such
partitions also gets a `throttle_time_ms`. A Fetch that also asks for records of the broker gets
none, because the client would pause those too.

`Upstream` is what a handler may do with the client's connection to the broker. This module must not
know the broker, sockets, frames, or how quotas are counted.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import structlog

from kafka_protocol.primitives import Buffer
from kip405.errors import Fenced, Internal, RemoteStorageError, Unavailable
from rlm.clock import Clock
from rlm.proxy.fetch_plan import Key, PartitionFetch
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.tier import Tier, TopicRef, Watermarks, upper_offset

_LONGEST_THROTTLE_MS = 1_000  # in one answer; the connection's other requests wait too
log = structlog.get_logger(__name__)
T = TypeVar("T")
Outcome = RemoteRecords | RemoteStorageError
WHOLE = None
STREAMED = 0


class ConnectionQuota(Protocol):
    """The quota of one connection. Calls are cheap and never fail."""

    def wait_ms(self, client_id: str) -> int:
        """How long before the next remote read of the client; 0 = now."""
        ...

    def spliced(self, client_id: str, size_bytes: int) -> None:
        """Record bytes of the remote tier in an answer."""
        ...

    def passed(self, size_bytes: int) -> None:
        """Record bytes of the broker in an answer."""
        ...

    def held(self, duration_ms: int) -> None:
        """Reads that had to wait were delayed by this time."""
        ...


class FetchQuota(Protocol):
    """The quota of all connections."""

    def moved(self, size_bytes: int) -> None:
        """Count bytes that came from a client or from the broker."""
        ...

    def connection(self) -> ConnectionQuota:
        """The quota of a new connection."""
        ...


class Permit:
    """The quota for one Fetch of a client."""

    def __init__(self, quota: ConnectionQuota, client_id: str, clock: Clock) -> None:
        self._quota = quota
        self._client_id = client_id
        self._clock = clock
        self._held_since_ms: int | None = None

    def may_read(self) -> bool:
        """Whether a remote read may begin now."""
        if self._quota.wait_ms(self._client_id):
            if self._held_since_ms is None:
                self._held_since_ms = self._clock.monotonic_ms()
            return False
        self.end()
        return True

    def gave(self, spliced_bytes: int, broker_bytes: int) -> None:
        """Count the bytes of both tiers in an answer."""
        self._quota.spliced(self._client_id, spliced_bytes)
        self._quota.passed(broker_bytes)

    def throttle_time_ms(self) -> int:
        """The throttle time for a client whose reads were delayed."""
        throttle_ms = min(self._quota.wait_ms(self._client_id), _LONGEST_THROTTLE_MS)
        if throttle_ms:
            self._quota.held(throttle_ms)
        return throttle_ms

    def end(self) -> None:
        """Count the time of a delay that ends now, if there is one."""
        if self._held_since_ms is not None:
            held_ms = self._clock.monotonic_ms() - self._held_since_ms
            self._quota.held(held_ms)
            self._held_since_ms = None


async def guarded(work: Awaitable[T]) -> T | RemoteStorageError:
    """The result of a call of the tier, or its error as a value."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - logged there
        return _as_value(error)


def _as_value(error: Exception) -> RemoteStorageError:
    """An error of the tier as a value: a bug of the tier must not close connections (H24)."""
    if isinstance(error, RemoteStorageError):
        return error
    log.error("tier_call_failed", error=repr(error), exc_info=error)
    return Internal(f"tier call failed: {error!r}")


def is_lost(outcome: Outcome | None) -> bool:
    """Whether it is an error that waiting does not cure (H25), or a frozen partition (H4)."""
    return isinstance(outcome, RemoteStorageError) and not outcome.retriable


class RemoteReads:
    """Runs at most one read per partition. `cancel` abandons the reads, but the cache still gets
    their chunks.

    A read that the quota delays begins with a later `retry`.
    """

    def __init__(
        self, group: asyncio.TaskGroup, tier: Tier, permit: Permit, *, read_committed: bool
    ) -> None:
        self._group = group
        self._tier = tier
        self._permit = permit
        self._put_off: set[Key] = set()
        self._read_committed = read_committed
        self._tasks: dict[Key, asyncio.Task[Outcome]] = {}
        self._begun: dict[Key, tuple[PartitionFetch, int]] = {}

    def start(self, partition: PartitionFetch, max_bytes: int) -> int:
        """Begin to read at most `max_bytes` for a partition with known watermarks. Returns the
        bytes that it may take by its own limit.
        """
        size_bytes = max(0, min(partition.asked.partition_max_bytes, max_bytes))
        if partition.key in self._tasks:
            return size_bytes
        self._begun[partition.key] = (partition, size_bytes)
        if self._permit.may_read():
            self._put_off.discard(partition.key)
            self._tasks[partition.key] = self._group.create_task(
                self.read(partition, size_bytes, True)
            )
        else:
            self._put_off.add(partition.key)
        return size_bytes

    def retry(self) -> None:
        """Begin the delayed reads, and repeat those that failed with a retriable error."""
        for key in tuple(self._put_off):
            self.start(*self._begun[key])
        for key, task in list(self._tasks.items()):
            failed = task.result() if task.done() else None
            if isinstance(failed, RemoteStorageError) and failed.retriable:
                del self._tasks[key]
                self.start(*self._begun[key])

    def forget(self, partition: PartitionFetch) -> None:
        """Drop what was read for a partition whose view is no longer valid."""
        self._put_off.discard(partition.key)
        task = self._tasks.pop(partition.key, None)
        if task is not None:
            task.cancel()

    async def read(self, partition: PartitionFetch, max_bytes: int, at_least_one: bool) -> Outcome:
        """Read now; never raises an error of the tier."""
        view, watermarks = partition.tiered, partition.watermarks
        if view is None or watermarks is None:
            return Unavailable(f"{partition.key}: nothing is known of the partition")
        upper = upper_offset(view, watermarks, read_committed=self._read_committed)
        if partition.asked.fetch_offset >= upper:
            return Unavailable(f"{view.topic}-{view.partition}: watermarks are below the offset")
        request = RemoteRead(
            topic_id=view.topic_id,
            partition=view.partition,
            offset=partition.asked.fetch_offset,
            upper_offset=upper,
            max_bytes=max_bytes,
            at_least_one=at_least_one,
            read_committed=self._read_committed,
        )
        try:
            return await self._tier.read(request)
        except Exception as error:  # noqa: BLE001 - logged there
            return _as_value(error)

    def is_begun(self, partition: PartitionFetch) -> bool:
        """Whether a read was begun or delayed."""
        return partition.key in self._begun

    def outcome(self, partition: PartitionFetch) -> Outcome | None:
        """The result of a read; None while it is running or was never begun."""
        task = self._tasks.get(partition.key)
        return task.result() if task is not None and task.done() else None

    async def wait(self, duration_ms: float) -> None:
        """Wait until one more read has finished, at most this long."""
        pending = [task for task in self._tasks.values() if not task.done()]
        if pending:
            await asyncio.wait(
                pending, timeout=duration_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )

    @property
    def is_throttled(self) -> bool:
        """Whether a read is delayed."""
        return bool(self._put_off)

    @property
    def is_pending(self) -> bool:
        """Whether a read is running."""
        return any(not task.done() for task in self._tasks.values())

    def cancel(self) -> None:
        """Abandon running reads and drop what was read.

        The traceback of a cancelled task refers to this object. Records and chunks that stayed here
        would be kept until the garbage collector finds the cycle.
        """
        self._permit.end()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._begun.clear()


def frozen(outcome: object) -> bool:
    """Whether the tier says that the partition is frozen (H4)."""
    return isinstance(outcome, Fenced)


async def watermarks_or_none(
    tier: Tier, ref: TopicRef, partition: int, bound_ms: int
) -> Watermarks | None:
    """Watermarks, or None where even our own broker does not answer."""
    outcome = await guarded(tier.watermarks(ref, partition, bound_ms))
    return None if isinstance(outcome, RemoteStorageError) else outcome


class Upstream(Protocol):
    """The connection to the broker, with the client's identity."""

    async def ask(
        self, frame: Buffer, api_version: int, correlation_id: int, stream_above: int | None
    ) -> bytearray | None:
        """Send a request (without its length) and wait for its answer.

        An answer of more than `stream_above` bytes (None = no limit but max_frame_bytes) goes
        straight to the client; None is returned once all of it has passed. Raises ConnectionError.
        """
        ...

    async def settled(self) -> None:
        """Wait until every earlier request was answered, before we send an answer of our own."""
        ...
