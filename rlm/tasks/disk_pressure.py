"""Asks for retention to be given back while a log directory of this broker is nearly full (H18).

The service of the topic's partition-0 leader, which may be another, does it (rlm/topics/giveback).
It reads what is asked in the heartbeat of this one. Only with on.disk.pressure=giveback. Files that
the broker has deleted and that are held open (rlm.tasks.segment_holds) take space there too, and no
log shows them; so those that lie on such a disk are let go.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.log_dir.scanner import LogDirs
from rlm.plans.disk import LogDirReport, relief_bytes
from rlm.plans.giveback import ReplicaLog, give_back, limit_of
from rlm.plans.guards import refusal
from rlm.plans.retention import local_retention
from rlm.plans.trim import segments_beyond
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, deletion_guards
from rlm.tasks.disk_watch import DiskWatch
from rlmm.settings_records import STOPS_TRIM, TopicRecord
from rsm_plugins.threads import Threads

log = structlog.get_logger()


class DiskPressure:
    """`asked`: topics whose retention should be given back, and their retention.bytes."""

    def __init__(
        self,
        *,
        watch: DiskWatch,
        log_dirs: LogDirs,
        settings: Settings,
        threads: Threads,
        clock: Clock,
        interval_ms: int,
        gives_back: bool,
    ) -> None:
        self._watch = watch
        self._log_dirs = log_dirs
        self._settings = settings
        self._threads = threads
        self._clock = clock
        self._interval_ms = interval_ms
        self._gives_back = gives_back
        self.asked: Mapping[Uuid, int] = {}
        self._pressed: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Check at every interval, until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms)

    async def check(self) -> None:
        """Measure the disks, and decide what to ask for: nothing of a topic whose trim is off.
        Where logs cannot be read, what was asked before stays so.
        """
        await self._watch.measure()
        pressed = [one for one in self._watch.reports() if one.under_pressure]
        self._pressed = frozenset(one.path for one in pressed)
        if not (self._gives_back and pressed and self._settings.is_ready):
            self.asked = {}
            return
        records = {
            record.name: record
            for record in self._settings.view.topics()
            if record.state == "enabled" and record.mode == "tier" and record.trim
        }
        try:
            asked = await self._threads.run(self._wanted, pressed, records)
        except (OSError, RemoteStorageError) as error:
            log.warning("disk_pressure_not_measured", error=str(error))
            return
        if asked != self.asked:
            limits = {str(topic_id): limit for topic_id, limit in asked.items()}
            log.warning("disk_pressure", retention_bytes_asked=limits)
        self.asked = asked

    def needs_space_of(self, snapshot: PartitionSnapshot, ledger: Ledger) -> bool:
        """Whether what is held open of a partition must make room, copied or not: where its broker
        might delete it all the same if retention were given back (rlm/topics/giveback).
        """
        record = snapshot.topic.record
        is_here = os.path.dirname(snapshot.log.directory) in self._pressed
        if not (self._gives_back and is_here and record is not None and record.trim):
            return False
        return refusal(deletion_guards(snapshot, ledger, self._settings, STOPS_TRIM)) is None

    def _wanted(
        self, pressed: Sequence[LogDirReport], records: Mapping[str, TopicRecord]
    ) -> dict[Uuid, int]:
        """Blocks. What is deleted and not yet removed from the disk is as good as free."""
        partitions = self._log_dirs.partitions()
        wanted: dict[Uuid, int] = dict(self.asked)
        for report in pressed:
            here = {
                key: directory
                for key, directory in partitions.items()
                if str(PurePath(directory).parent) == report.path
            }
            going = sum(_deleted_bytes(directory) for directory in here.values())
            wanted = give_back(
                self._logs(here, records),
                relief_bytes(self._watch.floor_bytes) - (report.free_bytes or 0) - going,
                _given_back(records[topic] for topic, _ in here if topic in records) | wanted,
            )
        return wanted

    def _logs(
        self, here: Mapping[tuple[str, int], str], records: Mapping[str, TopicRecord]
    ) -> Iterator[ReplicaLog]:
        for topic, partition in here:
            record = records.get(topic)
            if record is None:
                continue
            found = self._log_dirs.scan(topic, partition)
            if found.topic_id != record.topic_id:
                continue
            beyond = segments_beyond(
                found.segments,
                local_retention(record),
                start=0,
                now_ms=self._clock.now_ms(),
            )
            yield ReplicaLog(
                topic_id=record.topic_id,
                sizes=tuple(segment.size_bytes for segment in found.segments),
                beyond=len(beyond),
            )


def _given_back(records: Iterable[TopicRecord]) -> dict[Uuid, int]:
    """The limits of topics that are given back now: also those of before this service started."""
    return {
        record.topic_id: limit_of(given)
        for record in records
        if (given := record.given_back) is not None and given.ended_ms is None
    }


def _deleted_bytes(directory: str) -> int:
    """Of files that the broker has renamed and removes in a moment (file.delete.delay.ms)."""
    with os.scandir(directory) as entries:
        names = [entry for entry in entries if entry.name.endswith(".deleted")]
        return sum(entry.stat().st_size for entry in names)
