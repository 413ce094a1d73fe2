"""Checks before retention is taken over which parts of a topic's existing logs could not be copied.

It reads the replicas on this broker's disks: the leader's own, or a follower's copy of the same
records. A segment that cannot be copied would block every trim behind it permanently, while the
broker's retention is already off. Only names, sizes and the first batch of each closed segment are
checked; the copy itself is the full check. Must not know gRPC or the ledger.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from kip405.batches import read_header
from kip405.errors import Corrupt, Fenced, NotFound, RemoteStorageError
from kip405.lineage import Lineage
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.log_dir.partition_log import LocalSegment, PartitionLog
from rlm.plans.holes import doubtful_segments
from rsm_plugins.threads import Threads

_FIRST_BYTES = 64
_MOST_MS = 10_000
"""Disks may be slow and logs long; the caller waits for the answer, other topics for the lock."""
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
        ends_at_ms = self._clock.monotonic_ms() + _MOST_MS
        for partition in sorted(topic.partitions):
            place = f"{topic.name}-{partition}"
            if self._clock.monotonic_ms() >= ends_at_ms:
                unseen.append(place)
                continue
            try:
                found += await self._threads.run(self._problems, topic.name, partition)
            except NotFound:
                elsewhere.append(place)
            except RemoteStorageError as error:
                found.append(f"{place}: {error}")
        warnings = (
            *_not_seen("this broker has no replica of", elsewhere),
            *_not_seen("there was no time to look at", unseen),
        )
        if not found:
            return warnings
        text = f"of {topic.name} this could not be copied: {'; '.join(_named(found))}"
        if not force:
            raise Fenced(f"{text}. Nothing behind it would ever be trimmed; --force goes on")
        return (*warnings, text)

    def _problems(self, topic: str, partition: int) -> list[str]:
        log = self._scan(topic, partition)
        place = f"{topic}-{partition}"
        doubtful = [
            f"{place} at {one.base_offset}: {one.path} has 0 bytes: {one.why}"
            for one in doubtful_segments(log, 0)
        ]
        damaged = [
            f"{place} at {segment.base_offset}: {segment.path}: {why}"
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


def _not_seen(why: str, places: list[str]) -> Iterator[str]:
    if places:
        named = ", ".join(_named(places))
        yield f"{why} {named}: whether all of it can be copied was not looked at"


def _named(texts: list[str]) -> list[str]:
    more = len(texts) - _MOST_NAMED
    return texts[:_MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
