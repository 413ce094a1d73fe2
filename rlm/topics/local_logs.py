"""What a topic verb checks of this broker's disks: existing logs, their growth, and free space.

Before retention is taken over, it finds the segments of existing logs that could not be copied. It
reads the replicas on this broker's disks: the leader's own, or a follower's copy of the same
records. A segment that cannot be copied would block every trim behind it permanently, while the
broker's retention is already off. Only names, sizes and the first batch of each closed segment are
checked; the copy itself is the full check.

With trim off, a log grows until its disk is full (H18). The growth is estimated from the ledger of
the last day: what was copied is what was produced. Free space is that of the fullest of this
broker's log.dirs. Must not know gRPC.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from kip405.batches import read_header
from kip405.errors import Corrupt, Fenced, NotFound, RemoteStorageError, Unavailable
from kip405.lineage import Lineage
from kip405.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.log_dir.scanner import LocalSegment, PartitionLog
from rlm.log_dir.space import space_of
from rlm.plans.coverage import doubtful_segments
from rlm.plans.problems import human_bytes
from rsm_plugins.threads import Threads

_FIRST_BYTES = 64
_MOST_MS = 10_000
"""Disks may be slow and logs long; the caller waits for the answer, other topics for the lock."""
_SETTLES_MS = 5_000
"""Within this time a broker makes what belongs to the directory of a partition that is new."""
_POLL_MS = 100
_MOST_NAMED = 10

Scan = Callable[[str, int], PartitionLog]


class ExistingLogs(Protocol):
    """What a topic verb checks before it takes retention over."""

    async def check(self, topic: TopicDescription, *, force: bool) -> tuple[str, ...]:
        """Warnings for the operator. Fenced: what could not be copied, unless `force`."""
        ...


class DiskLogs:
    """Implements ExistingLogs over the log dirs of this broker; `scan` blocks."""

    def __init__(self, scan: Scan, threads: Threads, clock: Clock) -> None:
        self._scan = scan
        self._threads = threads
        self._clock = clock

    async def check(self, topic: TopicDescription, *, force: bool) -> tuple[str, ...]:
        found: list[str] = []
        elsewhere: list[str] = []
        unseen: list[str] = []
        now_ms = self._clock.monotonic_ms()
        settles_at_ms, ends_at_ms = now_ms + _SETTLES_MS, now_ms + _MOST_MS
        for partition in sorted(topic.partitions):
            name = f"{topic.name}-{partition}"
            if self._clock.monotonic_ms() >= ends_at_ms:
                unseen.append(name)
                continue
            try:
                found += await self._settled_problems(topic.name, partition, settles_at_ms)
            except NotFound:
                elsewhere.append(name)
            except RemoteStorageError as error:
                found.append(f"{name}: {error}")
        warnings = (
            *_not_seen("this broker has no replica of", elsewhere),
            *_not_seen("there was no time to check", unseen),
        )
        if not found:
            return warnings
        text = f"of {topic.name} this could not be copied: {'; '.join(_named(found))}"
        if not force:
            raise Fenced(f"{text}. Nothing behind it would ever be trimmed; --force goes on")
        return (*warnings, text)

    async def _settled_problems(self, topic: str, partition: int, settles_at_ms: int) -> list[str]:
        while True:
            try:
                return await self._threads.run(self._problems, topic, partition)
            except Unavailable:
                if self._clock.monotonic_ms() >= settles_at_ms:
                    raise
            await self._clock.sleep_ms(_POLL_MS)

    def _problems(self, topic: str, partition: int) -> list[str]:
        log = self._scan(topic, partition)
        name = f"{topic}-{partition}"
        doubtful = [
            f"{name} at {one.base_offset}: {one.path} has 0 bytes: {one.why}"
            for one in doubtful_segments(log, 0)
        ]
        damaged = [
            f"{name} at {segment.base_offset}: {segment.path}: {why}"
            for segment in log.segments
            for why in _damage(segment, log.lineage)
        ]
        return doubtful + damaged


def _damage(segment: LocalSegment, lineage: Lineage) -> Iterator[str]:
    """Why the copy of a closed segment would be refused, as far as its beginning shows."""
    if segment.next_offset is None or segment.size_bytes == 0:
        return
    try:
        with open(segment.path, "rb") as file:
            header = read_header(file.read(_FIRST_BYTES))
    except FileNotFoundError:
        return  # retention deleted it meanwhile
    except OSError as error:
        yield f"it cannot be read: {error.strerror}"
        return
    except Corrupt as error:
        yield str(error)
        return
    if not segment.base_offset <= header.base_offset < segment.next_offset:
        yield f"its first batch is at offset {header.base_offset}"
        return
    known = lineage.epoch_for_offset(header.base_offset)
    if known is not None and header.leader_epoch != known:
        yield f"its first batch is of epoch {header.leader_epoch}, the checkpoint says {known}"


def _not_seen(why: str, partitions: list[str]) -> Iterator[str]:
    if partitions:
        named = ", ".join(_named(partitions))
        yield f"{why} {named}: whether all of it can be copied was not checked"


def _named(texts: list[str]) -> list[str]:
    more = len(texts) - _MOST_NAMED
    return texts[:_MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])


DAY_MS = 86_400_000
_LEAST_SPAN_MS = 60_000
_FAR_DAYS = 3_650


class LogDirSpace:
    """Free bytes of the fullest of some directories."""

    def __init__(self, log_dirs: Sequence[Path], quota_bytes: int, threads: Threads) -> None:
        self._log_dirs = tuple(log_dirs)
        self._quota_bytes = quota_bytes
        self._threads = threads

    async def free_bytes(self) -> int:
        """Unavailable where the free space of a directory cannot be read."""
        try:
            return await self._threads.run(self._free_bytes)
        except OSError as error:
            raise Unavailable(f"log.dirs: free space is not known: {error.strerror}") from error

    def _free_bytes(self) -> int:
        return min(space_of(path, self._quota_bytes).free_bytes for path in self._log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Growth of a topic's replicas on one broker."""

    bytes_a_day: int
    free_bytes: int

    def words(self, topic: str, now_ms: int) -> str:
        """One sentence for an operator."""
        free = f"{human_bytes(self.free_bytes)} are free in its log.dirs"
        if self.bytes_a_day <= 0:
            return (
                f"the local log of {topic} grows from now on; how fast is not known yet, as "
                f"nothing was copied in the last day; {free}"
            )
        days = self.free_bytes / self.bytes_a_day
        until = "for more than ten years"
        if days < _FAR_DAYS:
            end = datetime.fromtimestamp((now_ms + days * DAY_MS) / 1000, tz=UTC)
            until = f"until about {end:%Y-%m-%d %H:%M} UTC"
        return (
            f"the local log of {topic} grows from now on, on this broker by "
            f"{human_bytes(self.bytes_a_day)} a day; {free}, which lasts {until}"
        )


def bytes_a_day(segments: Iterable[RemoteLogSegmentMetadata], now_ms: int) -> int:
    """Bytes of FINISHED segments of the last 24 h, scaled up where the data is younger."""
    [size_bytes] = a_day(segments, now_ms, lambda segment: segment.segment_size_bytes)
    return size_bytes


def a_day(
    segments: Iterable[RemoteLogSegmentMetadata],
    now_ms: int,
    *amounts: Callable[[RemoteLogSegmentMetadata], int],
) -> list[int]:
    """The same of other amounts of each segment; all are counted in one pass."""
    counted, oldest_ms = [0] * len(amounts), now_ms
    for segment in segments:
        at_ms = segment.max_timestamp_ms
        if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED or at_ms > now_ms:
            continue
        oldest_ms = min(oldest_ms, at_ms)
        if at_ms > now_ms - DAY_MS:
            for number, amount in enumerate(amounts):
                counted[number] += amount(segment)
    span_ms = min(DAY_MS, max(now_ms - oldest_ms, _LEAST_SPAN_MS))
    return [one * DAY_MS // span_ms for one in counted]
