"""Writes what this service knows of the ledger to its state dir, for the next start to begin with.

Nothing depends on the file: without it, or where anything about it is doubtful, the ledger is read
from its beginning, as at the first start. `rlmm.resuming` says when a partition of the ledger is
read on from the file's position, and why no clock is asked.

A snapshot is taken of one ledger partition after the other, each as of one moment between two
records. Only that happens on the event loop; encoding and writing happen in threads.
"""

import asyncio
import contextlib
import gc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from kip405.errors import Corrupt, NotFound, RemoteStorageError
from kip405.ids import TopicPartition, Uuid
from kip405.process import software_version
from rlm.clock import Clock
from rlm.config import CommonConfig
from rlm.service.ledger_snapshot_file import SnapshotFile, SnapshotOrigin, SnapshotWriter
from rlmm.manager import Metadata
from rlmm.records import LEDGER_PARTITIONS
from rlmm.replay import LedgerState
from rlmm.resuming import ResumePoint
from rlmm.snapshot import LAYOUT, LedgerSection, decode_section, encode_section
from rlmm.topic import LEDGER_TOPIC
from rsm_plugins.files.durable import error_of_os
from rsm_plugins.threads import Threads

_CHECK_EVERY_MS: Final = 60_000
_NEW_RECORDS: Final = 20_000
"""Records that are read again in a fifth of a second after a crash."""
_AT_LATEST_MS: Final = 600_000
"""As the ledger's segment.ms: what is newer has rarely been compacted, so it is read on from
there.
"""
_REST_OF_DURATION: Final = 20
"""Writing takes at most a twentieth of the time, however large the ledger is."""
_AT_STOP_WITHIN_MS: Final = 5_000
_DAY_MS: Final = 86_400_000
"""Each day another partition of the ledger is read whole by those that start. A chain of snapshots
keeps the names of writers, topics and partitions that nothing refers to, and mistakes.
"""
_READ_WITHIN_MS: Final = 30_000
"""Of a disk that hangs, nothing is waited for."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restored:
    partition: int
    point: ResumePoint
    state: LedgerState


class LedgerSnapshots:
    """The snapshot of one service: read once at the start, written from time to time and at the
    end.
    """

    def __init__(
        self,
        metadata: Metadata,
        threads: Threads,
        clock: Clock,
        *,
        state_dir: Path,
        cluster_id: str,
    ) -> None:
        """Before the metadata log runs, which will ask this for what there is."""
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._file = SnapshotFile(state_dir)
        self._threads = threads
        self._clock = clock
        self._written_read: int | None = None
        """How much of the ledger is in the file; None = there is none that can be used."""
        self._may_write = False
        """It was run: nothing of a newer format is there, whose snapshot would be replaced (H6)."""
        self._next_ms = 0
        self._latest_ms = 0
        metadata.log.resume_with(self)

    async def restore(self, topic_id: Uuid) -> Mapping[TopicPartition, ResumePoint]:
        """See EarlierLedger."""
        began_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(_READ_WITHIN_MS / 1000):
                found = await self._read(self._origin(topic_id))
        except NotFound:
            return {}
        except (RemoteStorageError, TimeoutError) as error:
            why = str(error) or f"the disk took more than {_READ_WITHIN_MS} ms"
            log.warning("ledger_snapshot_dropped", file=str(self._file.path), why=why)
            return {}
        self._written_read = sum(one.point.position for one in found)
        found = self._without_that_of_the_day(found)
        for one in found:
            self._metadata.manager.restore(one.partition, one.state)
        took_ms = self._clock.monotonic_ms() - began_ms
        log.info("ledger_snapshot_loaded", partitions=len(found), took_ms=took_ms)
        return {TopicPartition(LEDGER_TOPIC, one.partition): one.point for one in found}

    def _without_that_of_the_day(self, found: list[_Restored]) -> list[_Restored]:
        """Without the partition that is read whole today."""
        number = self._clock.now_ms() // _DAY_MS % LEDGER_PARTITIONS
        for one in found:
            if one.partition == number:
                self._metadata.log.remember_read(one.partition, one.point)
        return [one for one in found if one.partition != number]

    async def _read(self, origin: SnapshotOrigin) -> list[_Restored]:
        """All that is made meanwhile is kept, so there is no garbage to be found in it. Looking for
        some would stop the event loop for 0.1 s several times.
        """
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return await self._threads.run(self._file.read, origin, _restored)
        finally:
            if is_collecting:
                gc.enable()

    def dropped(self, topic_partition: TopicPartition, why: str) -> None:
        """See EarlierLedger."""
        self._written_read = None
        log.warning("ledger_snapshot_dropped", partition=str(topic_partition), why=why)

    async def run(self) -> None:
        """Write when there is enough that is new, until cancelled; begun once the formats of all
        that is there are known to be ours.
        """
        self._may_write = True
        await self._metadata.log.wait_ready()
        self._latest_ms = self._clock.monotonic_ms() + _AT_LATEST_MS
        while True:
            if self._is_due():
                await self._try_write()
            await self._clock.sleep_ms(_CHECK_EVERY_MS)

    def _is_due(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._written_read is None or now_ms < self._next_ms:
            return now_ms >= self._next_ms
        new = self._metadata.log.ledger_read - self._written_read
        return new >= _NEW_RECORDS or (new > 0 and now_ms >= self._latest_ms)

    async def close(self) -> None:
        """Write what is new; for the end of the service, once it answers no client any more: they
        need not wait for the disk. A service that was refused leaves the file as it is.
        """
        metadata_log = self._metadata.log
        if not (self._may_write and metadata_log.is_ready):
            return
        if self._written_read == metadata_log.ledger_read:
            return
        try:
            async with asyncio.timeout(_AT_STOP_WITHIN_MS / 1000):
                await self._try_write()
        except TimeoutError:
            log.warning("ledger_snapshot_not_written", error="it took too long for a stop")

    async def _try_write(self) -> None:
        began_ms = self._clock.monotonic_ms()
        try:
            await self.write()
        except RemoteStorageError as error:
            log.warning("ledger_snapshot_not_written", error=str(error))
            self._next_ms = began_ms + _AT_LATEST_MS
        else:
            took_ms = self._clock.monotonic_ms() - began_ms
            self._next_ms = began_ms + took_ms * _REST_OF_DURATION
            self._latest_ms = began_ms + _AT_LATEST_MS

    async def write(self) -> None:
        """Replace the file by what is known now, where that is what the ledger holds. Unavailable
        and the like: the disk refuses.
        """
        metadata_log = self._metadata.log
        topic_id = metadata_log.topic_ids.get(LEDGER_TOPIC)
        if topic_id is None or metadata_log.damage is not None:
            return
        read = metadata_log.ledger_read
        try:
            writer = await self._threads.run(self._file.begin, self._origin(topic_id))
            try:
                await self._write_sections(writer)
                size_bytes = await self._threads.run(writer.finish)
            except BaseException:
                with contextlib.suppress(RemoteStorageError):
                    self._threads.begin(writer.abandon)
                raise
        except OSError as error:
            raise error_of_os(error, "write", str(self._file.path)) from error
        self._written_read = read
        log.info("ledger_snapshot_written", size_bytes=size_bytes)

    async def _write_sections(self, writer: SnapshotWriter) -> None:
        for partition in range(LEDGER_PARTITIONS):
            section = self._section(partition)
            if section is not None:
                await self._threads.run(writer.add, encode_section(section))

    def _section(self, partition: int) -> LedgerSection | None:
        """State and position belong together: nothing is awaited between them."""
        point = self._metadata.log.ledger_point(partition)
        ledger = self._metadata.manager.freeze(partition) if point is not None else None
        if point is None or ledger is None:
            return None
        return LedgerSection(partition=partition, point=point, ledger=ledger)

    def _origin(self, topic_id: Uuid) -> SnapshotOrigin:
        return SnapshotOrigin(
            cluster_id=self._cluster_id,
            topic=LEDGER_TOPIC,
            topic_id=str(topic_id),
            partition_count=LEDGER_PARTITIONS,
            software=software_version(),
            layout=LAYOUT,
        )


def build_ledger_snapshots(
    metadata: Metadata, config: CommonConfig, threads: Threads, clock: Clock
) -> LedgerSnapshots:
    """Those of a service in either role."""
    return LedgerSnapshots(
        metadata, threads, clock, state_dir=config.state_dir, cluster_id=config.cluster_id
    )


def _restored(data: bytes) -> _Restored:
    section = decode_section(data)
    if section.partition not in range(LEDGER_PARTITIONS):
        raise Corrupt(f"the ledger has no partition {section.partition}")
    return _Restored(
        partition=section.partition, point=section.point, state=LedgerState.of(section.ledger)
    )
