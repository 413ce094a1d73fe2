"""Asks for retention to be given back while a log directory of this broker is nearly full (H18).

The service of the topic's partition-0 leader, which may be another, does it (rlm/topics/giveback).
It reads what is asked in the heartbeat of this one. Only with on.disk.pressure=giveback. Files that
the broker has deleted and that are held open (rlm.tasks.segment_holds) take space there too, and no
log shows them; so those that lie on such a disk are let go.

A topic with a log there that cannot be read is left out, and that is a finding: how much local
retention keeps of it is not known. What is known of other topics must make room all the same. But
a log may be unreadable for a moment, as while the broker renames its files, and what a topic will
free that was asked already is not known then either. So nothing more is asked of others while it is
unread, for `MOST_UNREAD_CHECKS` checks: what they give back goes uncopied.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import TopicPartition, Uuid
from rlm.clock import Clock
from rlm.log_dir.scanner import LogDirs, partitions_in
from rlm.plans.disk import LogDirReport, relief_bytes
from rlm.plans.giveback import ReplicaLog, give_back, limit_of
from rlm.plans.guards import refusal
from rlm.plans.problem_rules import partition_finding
from rlm.plans.problems import Finding, ProblemKind
from rlm.plans.retention import local_retention
from rlm.plans.trim import segments_beyond
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import PartitionSnapshot, deletion_guards
from rlm.tasks.disk_watch import DiskWatch
from rlmm.settings_records import STOPS_TRIM, TopicRecord
from rsm_plugins.threads import Threads

log = structlog.get_logger()
MOST_UNREAD_CHECKS = 3
"""In a row, per log directory; a log that stays unreadable must not let the disk fill up."""


@dataclass(slots=True)
class _Logs:
    """Logs of one log directory by topic id, and why some of them, or it, are not known;
    `topics_unread`: the topics of these.
    """

    known: dict[Uuid, list[ReplicaLog]] = field(default_factory=dict)
    unread: list[Finding] = field(default_factory=list)
    topics_unread: set[Uuid] = field(default_factory=set)


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
        interval_ms: Callable[[], int],
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
        self._unread: tuple[Finding, ...] = ()
        self._unread_checks: dict[str, int] = {}

    def findings(self) -> tuple[Finding, ...]:
        """What could not be read on a nearly full disk, by the last check."""
        return self._unread

    async def run(self) -> None:
        """Check at every interval, until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep_ms(self._interval_ms())

    async def check(self) -> None:
        """Measure the disks, and decide what to ask for: nothing of a topic whose trim is off.
        Where logs of a topic cannot be read, what was asked of it before stays so.
        """
        await self._watch.measure()
        pressed = [one for one in self._watch.reports() if one.under_pressure]
        self._pressed = frozenset(one.path for one in pressed)
        if not (self._gives_back and pressed and self._settings.is_ready):
            self.asked, self._unread, self._unread_checks = {}, (), {}
            return
        records = {
            record.name: record
            for record in self._settings.view.topics()
            if record.state == "enabled" and record.mode == "tier" and record.trim
        }
        try:
            asked, self._unread = await self._threads.run(self._wanted, pressed, records)
        except RemoteStorageError as error:
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
    ) -> tuple[dict[Uuid, int], tuple[Finding, ...]]:
        """Blocks. What is deleted and not yet removed from the disk is as good as free."""
        wanted: dict[Uuid, int] = dict(self.asked)
        unread: list[Finding] = []
        for report in pressed:
            try:
                here = partitions_in(report.path)
            except RemoteStorageError as error:
                unread.append(_unread_dir(report, error))
                continue
            logs = self._logs(here, records)
            unread += logs.unread
            before = _given_back(records[topic] for topic, _ in here if topic in records) | wanted
            if self._waits(report.path, logs.topics_unread & before.keys()):
                wanted = before
                continue
            going = sum(_deleted_bytes(directory) for directory in here.values())
            wanted = give_back(
                (log for several in logs.known.values() for log in several),
                relief_bytes(self._watch.floor_bytes) - (report.free_bytes or 0) - going,
                before,
            )
        return wanted, tuple(unread)

    def _waits(self, path: str, asked_unread: Collection[Uuid]) -> bool:
        """Whether it is too early to ask more: what these topics free is not known just now."""
        count = self._unread_checks.get(path, 0) + 1 if asked_unread else 0
        self._unread_checks[path] = count
        return 0 < count <= MOST_UNREAD_CHECKS

    def _logs(self, here: Iterable[tuple[str, int]], records: Mapping[str, TopicRecord]) -> _Logs:
        found = _Logs()
        for topic, partition in here:
            record = records.get(topic)
            if record is None:
                continue
            try:
                replica = self._replica(topic, partition, record)
            except NotFound:
                continue  # the broker has removed it meanwhile
            except (OSError, RemoteStorageError) as error:
                found.unread.append(_unread_log(TopicPartition(topic, partition), error))
                found.topics_unread.add(record.topic_id)
                continue
            if replica is not None:
                found.known.setdefault(record.topic_id, []).append(replica)
        for topic_id in found.topics_unread:
            found.known.pop(topic_id, None)
        return found

    def _replica(self, topic: str, partition: int, record: TopicRecord) -> ReplicaLog | None:
        """None: the log is of another topic of this name."""
        found = self._log_dirs.scan(topic, partition)
        if found.topic_id != record.topic_id:
            return None
        beyond = segments_beyond(
            found.segments, local_retention(record), start=0, now_ms=self._clock.now_ms()
        )
        return ReplicaLog(
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
    """Of files that the broker has renamed and removes in a moment (file.delete.delay.ms); without
    those that are gone already.
    """
    try:
        with os.scandir(directory) as entries:
            return sum(_size(entry) for entry in entries if entry.name.endswith(".deleted"))
    except OSError:
        return 0  # it is not counted, so more is asked for


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _unread_log(partition: TopicPartition, error: Exception) -> Finding:
    text = f"its log directory is nearly full, and the topic's logs make no room there: {error}"
    return partition_finding(partition, ProblemKind.LOG_DIR_UNKNOWN, text)


def _unread_dir(report: LogDirReport, error: Exception) -> Finding:
    return Finding(
        kind=ProblemKind.LOG_DIR_UNKNOWN,
        subject=f"logs in {report.path}",
        text=f"it is nearly full, and no log makes room there: {error}",
    )
