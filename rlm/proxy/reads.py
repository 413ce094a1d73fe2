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
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from kafka_protocol.primitives import Buffer
from kip405.errors import (
    Fenced,
    Internal,
    OffsetOutOfRange,
    RemoteStorageError,
    Unavailable,
)
from rlm.clock import Clock
from rlm.proxy.begun import in_task
from rlm.proxy.fetch_plan import Key, PartitionFetch, Source
from rlm.proxy.purgatory import Outcome, RemoteFetch, RemoteFetchPurgatory
from rlm.proxy.session import FetchEntries
from rlm.reading.values import RemoteRead, RemoteRecords
from rlm.remote_log.tier import Tier, TierPartition, TopicRef, Watermarks, upper_offset
from rlm.spans import NO_SPAN

READ_FIRST_MS = 30  # most reads have finished by then; the broker is asked again only after that
_MOST_CLIENT_ID = 249  # characters of a client id by which quotas know it; it may have 32,767
_LONGEST_THROTTLE_MS = 1_000  # in one answer; the connection's other requests wait too
log = structlog.get_logger(__name__)
T = TypeVar("T")
WHOLE = None
STREAMED = 0


class ConnectionQuota(Protocol):
    """The quota of one connection. Calls are cheap and never fail."""

    def known_as(self, principal: str) -> None:
        """Whose connection it is was proved: the rate of its principal holds too from now on."""
        ...

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
    """The quota for one Fetch of a client; `held` gets each delay in ms."""

    def __init__(
        self,
        quota: ConnectionQuota,
        client_id: str,
        clock: Clock,
        held: Callable[[int], None],
    ) -> None:
        self._quota = quota
        self._held = held
        self._client_id = client_id[:_MOST_CLIENT_ID]
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
        """Count the bytes of both tiers in an answer. Who is given nothing of the remote tier has
        no share of its rate.
        """
        if spliced_bytes > 0:
            self._quota.spliced(self._client_id, spliced_bytes)
        self._quota.passed(broker_bytes)

    def throttle_time_ms(self) -> int:
        """The throttle time for a client whose reads were delayed."""
        throttle_ms = min(self._quota.wait_ms(self._client_id), _LONGEST_THROTTLE_MS)
        if throttle_ms:
            self._delayed(throttle_ms)
        return throttle_ms

    def end(self) -> None:
        """Count the time of a delay that ends now, if there is one."""
        if self._held_since_ms is not None:
            held_ms = self._clock.monotonic_ms() - self._held_since_ms
            self._delayed(held_ms)
            self._held_since_ms = None

    def _delayed(self, duration_ms: int) -> None:
        self._quota.held(duration_ms)
        self._held(duration_ms)


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


@dataclass(slots=True, kw_only=True)
class _Running:
    """A remote fetch, and the task that completes it; None: it needed none for its `found`, or has
    none yet.
    """

    fetch: RemoteFetch
    found: Outcome | None
    task: asyncio.Task[Outcome] | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What it has read; None while it is running."""
        if self.task is None:
            return self.found
        return self.task.result() if self.task.done() else None

    @property
    def is_pending(self) -> bool:
        """Whether it is running and not between two attempts."""
        return self.outcome is None and not self.fetch.is_backing_off

    def cancel(self) -> None:
        """Abandon it."""
        if self.task is not None:
            self.task.cancel()


class RemoteReads:
    """The remote fetches of one Fetch, at most one per partition. `cancel` abandons them, but the
    cache still gets their chunks.

    One that the quota delays begins with a later `begin_put_off`. One that has to wait goes on in a
    task of the group that `wait_in` gives.
    """

    def __init__(
        self,
        tier: Tier,
        permit: Permit,
        purgatory: RemoteFetchPurgatory,
        clock: Clock,
        *,
        read_committed: bool,
        deadline_ms: int,
    ) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tier = tier
        self._permit = permit
        self._purgatory = purgatory
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._put_off: set[Key] = set()
        self._read_committed = read_committed
        self._running: dict[Key, _Running] = {}
        self._changed = asyncio.Event()
        self._begun: dict[Key, tuple[PartitionFetch, int]] = {}
        self._gaps: dict[Key, tuple[PartitionFetch, TierPartition]] = {}
        self.span = NO_SPAN
        """The Fetch as it is traced."""

    def start(self, partition: PartitionFetch, max_bytes: int) -> int:
        """Begin to read at most `max_bytes` for a partition with known watermarks. Returns the
        bytes that it may take by its own limit.
        """
        size_bytes = max(0, min(partition.asked.partition_max_bytes, max_bytes))
        if partition.key in self._running:
            return size_bytes
        self._begun[partition.key] = (partition, size_bytes)
        if self._permit.may_read():
            self._put_off.discard(partition.key)
            deadline_ms = max(self._deadline_ms, self._clock.monotonic_ms() + READ_FIRST_MS)
            read_once = partial(self.read, partition, size_bytes, True)
            fetch = RemoteFetch(self._purgatory, read_once, deadline_ms, self._changed)
            found = fetch.begin()
            self._running[partition.key] = running = _Running(fetch=fetch, found=found)
            if found is None and self._group is not None:
                self._complete(running, self._group)
        else:
            self._put_off.add(partition.key)
        return size_bytes

    def _complete(self, running: _Running, group: asyncio.TaskGroup) -> None:
        running.task = group.create_task(running.fetch.complete())
        running.task.add_done_callback(lambda _: self._changed.set())

    def wait_in(self, group: asyncio.TaskGroup) -> None:
        """Reads that have to wait do so in tasks of this group from now on."""
        self._group = group
        for running in self._running.values():
            if running.found is None:
                self._complete(running, group)

    def begin_put_off(self) -> None:
        """Begin the reads that the quota delayed, as far as it lets them now."""
        for key in tuple(self._put_off):
            self.start(*self._begun[key])

    def ended(self) -> tuple[PartitionFetch, ...]:
        """The partitions whose offset the remote log start has passed meanwhile."""
        return tuple(
            self._begun[key][0]
            for key, one in self._running.items()
            if isinstance(one.outcome, OffsetOutOfRange)
        )

    @property
    def has_gaps(self) -> bool:
        """Whether `take_gaps` has anything."""
        return any(one.source is Source.REMOTE for one, _ in self._gaps.values())

    def take_gaps(self) -> list[tuple[PartitionFetch, TierPartition]]:
        """The partitions, with their views, that have no records from the client's offset up to
        the end of the remote data, and whose broker has proved access. Their reads are dropped.
        """
        gaps = [one for one in self._gaps.values() if one[0].source is Source.REMOTE]
        for partition, _ in gaps:
            self.forget(partition)
        return gaps

    def forget(self, partition: PartitionFetch) -> None:
        """Drop what was read for a partition whose view is no longer valid."""
        self._put_off.discard(partition.key)
        self._gaps.pop(partition.key, None)
        running = self._running.pop(partition.key, None)
        if running is not None:
            running.cancel()

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
            parent=self.span,
        )
        try:
            found = await self._tier.read(request)
        except Exception as error:  # noqa: BLE001 - logged there
            outcome = _as_value(error)
        else:
            if at_least_one and not found.size_bytes and upper == view.remote_next_offset:
                self._gaps[partition.key] = partition, view
            return found
        if outcome.retriable:
            return self._ended(partition, view) or outcome
        return outcome

    async def read_again(
        self, partition: PartitionFetch, max_bytes: int, at_least_one: bool, until_ms: int
    ) -> RemoteRecords | None:
        """Read with other limits, mostly from the cache. None: not before `until_ms`, or not at
        all. All that a Fetch reads again shares this one time, so that its answer is not late.
        """
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            return None
        await in_task()
        try:
            async with asyncio.timeout(left_ms / 1000):
                outcome = await self.read(partition, max_bytes, at_least_one)
        except TimeoutError:
            return None
        return outcome if isinstance(outcome, RemoteRecords) else None

    def _ended(self, partition: PartitionFetch, before: TierPartition) -> OffsetOutOfRange | None:
        """The error for an offset that retention or DeleteRecords has ended meanwhile."""
        offset = partition.asked.fetch_offset
        now = self._tier.partition(partition.ref, partition.asked.index)
        if now is None or now.topic_id != before.topic_id or now.remote_log_start_offset <= offset:
            return None
        start = now.remote_log_start_offset
        name = f"{before.topic}-{before.partition}"
        text = f"{name}: offset {offset} is below log_start_offset={start}"
        return OffsetOutOfRange(text, log_start_offset=start)

    def is_begun(self, partition: PartitionFetch) -> bool:
        """Whether a read was begun or delayed."""
        return partition.key in self._begun

    def outcome(self, partition: PartitionFetch) -> Outcome | None:
        """The result of a read; None while it is running or was never begun."""
        running = self._running.get(partition.key)
        return None if running is None else running.outcome

    def given_bytes(self, partition: PartitionFetch, limit_bytes: int) -> int:
        """What a read has given of the answer, within a limit; 0 without records."""
        found = self.outcome(partition)
        return taken_bytes(found, limit_bytes) if isinstance(found, RemoteRecords) else 0

    async def wait(self, duration_ms: float) -> None:
        """Wait until one more read is complete or has failed for now, at most this long."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_ms / 1000):
                await self._changed.wait()

    @property
    def is_throttled(self) -> bool:
        """Whether a read is delayed."""
        return bool(self._put_off)

    @property
    def is_pending(self) -> bool:
        """Whether a read is running that is not between two attempts."""
        return any(one.is_pending for one in self._running.values())

    def are_running(self, partitions: Iterable[PartitionFetch]) -> bool:
        """Whether a read of one of these is running that is not between two attempts."""
        return any(
            (one := self._running.get(partition.key)) is not None and one.is_pending
            for partition in partitions
        )

    def cancel(self) -> None:
        """Abandon running reads and drop what was read.

        The traceback of a cancelled task refers to this object. Records and chunks that stayed here
        would be kept until the garbage collector finds the cycle.
        """
        self._permit.end()
        for one in self._running.values():
            one.cancel()
        self._running.clear()
        self._begun.clear()
        self._gaps.clear()


def taken_bytes(records: RemoteRecords, limit_bytes: int) -> int:
    """The bytes of the answer that records use up; a broker fills them up with a part of the next
    batch.
    """
    is_all = records.exhausted or not records.size_bytes
    return records.size_bytes if is_all else max(records.size_bytes, limit_bytes)


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


class FetchUpstream(Upstream, Protocol):
    """The same, for Fetch requests."""

    async def ask_fetch(
        self, frame: Buffer, api_version: int, correlation_id: int, entries: FetchEntries
    ) -> bytearray | None:
        """As `ask`; a large answer goes straight to the client, and `entries` sees each partition
        on the way.
        """
        ...

    def go_on(self) -> None:
        """Show `entries` again the partition that it did not let pass."""
        ...

    def beside(self, work: Coroutine[Any, None, None]) -> None:
        """Run work in a task of its own, which is cancelled with the connection."""
        ...
