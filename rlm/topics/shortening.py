"""Changes of a topic's total retention: what they make deletable, who confirms it, and its delay.

A shorter retention that makes data deletable needs a confirmation, and is announced before it is
written (`deletions`). What is deletable is planned from the ledger and, where retention by size
needs it, from this broker's replicas: local segments that no store has count towards a partition's
size. Those of other partitions are not known here, so the plan may name too little; the delay holds
for all.
"""

from dataclasses import dataclass

from kip405.errors import Fenced, RemoteStorageError
from kip405.ids import MAX_OFFSET, PartitionKey
from kip405.lineage import Lineage
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.deletable import DeletableRecords, deletable_records
from rlm.plans.expiry import ExpiryView
from rlm.plans.history import published_lineage
from rlm.plans.problems import human_bytes
from rlm.plans.retention import UNLIMITED, retention_in_force
from rlm.topics import rules
from rlm.topics.deletions import Announcements, Writing
from rlm.topics.local_logs import Scan
from rlm.topics.ports import Ledger, Settings
from rlm.topics.rules import Config
from rlmm.settings_records import TopicRecord, TotalRetention
from rsm_plugins.threads import Threads

_MOST_MS = 10_000
"""Disks may be slow; the caller waits for the answer, and others for a lock of the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionChange:
    """A topic's total retention: in force and decided until now, and wanted.

    Without a decision of ours, the one that acts counts as decided. `keeps_remains`: where a
    partition has no remote log start, its remote log will start with its first segment.
    """

    in_force: TotalRetention
    decided: TotalRetention
    wanted: TotalRetention
    keeps_remains: bool = False

    @property
    def shortens(self) -> bool:
        return self.wanted.laxer(self.decided) != self.wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What a change makes deletable now, by partition."""

    topic: str
    change: RetentionChange
    deletable: tuple[DeletableRecords, ...]

    @property
    def words(self) -> str:
        """What an operator confirms."""
        records = sum(one.next_offset - one.start_offset for one in self.deletable)
        size_bytes = sum(one.size_bytes for one in self.deletable)
        return (
            f"the shorter retention makes {records} records ({human_bytes(size_bytes)}) of "
            f"{self.topic} deletable, in {len(self.deletable)} partitions"
        )


class Shortening:
    """Plans, confirms and announces changes of total retention."""

    def __init__(
        self,
        *,
        settings: Settings,
        ledger: Ledger,
        announcements: Announcements,
        scan: Scan,
        threads: Threads,
        clock: Clock,
    ) -> None:
        """`scan` blocks; NotFound where this broker has no replica."""
        self._settings = settings
        self._ledger = ledger
        self._announcements = announcements
        self._scan = scan
        self._threads = threads
        self._clock = clock

    def change(
        self,
        topic: TopicDescription,
        config: Config,
        record: TopicRecord | None,
        wanted: TotalRetention,
    ) -> RetentionChange:
        """Where no record of ours says what is in force, it is the brokers' own retention; but
        nothing deletes what is in the store already.
        """
        if record is not None and record.state == "enabled":
            in_force = retention_in_force(record)
            return RetentionChange(in_force=in_force, decided=record.total, wanted=wanted)
        keys = (PartitionKey(topic.topic_id, partition) for partition in topic.partitions)
        is_stored = any(self._ledger.ledger(key).entries for key in keys)
        in_force = TotalRetention() if is_stored else rules.total_of(config)
        return RetentionChange(in_force=in_force, decided=in_force, wanted=wanted)

    async def plan(self, topic: TopicDescription, change: RetentionChange) -> RetentionPlan:
        """What the change makes deletable now; nothing where it shortens nothing."""
        partitions = sorted(topic.partitions) if change.shortens else []
        ends_at_ms = self._clock.monotonic_ms() + _MOST_MS
        found = [
            await self._deletable(topic, partition, change, ends_at_ms) for partition in partitions
        ]
        return RetentionPlan(
            topic=topic.name,
            change=change,
            deletable=tuple(one for one in found if one is not None),
        )

    async def check(self, topic: TopicDescription, change: RetentionChange, *, yes: bool) -> None:
        """Fenced where the change makes data deletable and nobody has confirmed it, or while a
        deletion of another kind is pending.
        """
        self._announcements.refuse_other(topic.name, topic.topic_id)
        if yes:
            return
        plan = await self.plan(topic, change)
        if plan.deletable:
            raise Fenced(f"{plan.words}; --yes confirms it")

    async def announce(
        self, topic: TopicDescription, change: RetentionChange, *, by: str, writing: Writing
    ) -> None:
        """Announce a shorter retention before it is written; nothing where it is not shorter."""
        if change.shortens:
            await self._announcements.announce(topic.topic_id, by=by, writing=writing)

    async def _deletable(
        self, topic: TopicDescription, partition: int, change: RetentionChange, ends_at_ms: int
    ) -> DeletableRecords | None:
        key, view = PartitionKey(topic.topic_id, partition), self._settings.view
        ledger = self._ledger.ledger(key)
        start = view.remote_log_start(key)
        if start is None and change.keeps_remains:
            start = 0
        by_size = change.wanted.retention_bytes != UNLIMITED and bool(ledger.entries)
        has_time = self._clock.monotonic_ms() < ends_at_ms
        snapshot = ExpiryView(
            ledger=ledger,
            lineage=published_lineage(ledger, view.history(key)),
            log_end_offset=MAX_OFFSET,
            remote_log_start_offset=start,
            remote_log_start_epoch=view.remote_log_start_epoch(key),
            log=await self._log(topic.name, partition, is_needed=by_size and has_time),
            local_log_start_offset=MAX_OFFSET,
            holes=view.holes(key),
            copying=(),
            retention=change.wanted,
            now_ms=self._clock.now_ms(),
            most_percent=None,
        )
        return deletable_records(snapshot, before=change.in_force, after=change.wanted)

    async def _log(self, topic: str, partition: int, *, is_needed: bool) -> PartitionLog:
        """What is on this broker's disks, or an empty log."""
        if is_needed:
            try:
                return await self._threads.run(self._scan, topic, partition)
            except RemoteStorageError:  # no replica here, or the disk does not answer
                pass
        return PartitionLog(
            topic=topic,
            partition=partition,
            topic_id=None,
            directory="",
            segments=(),
            lineage=Lineage(()),
            recovery_point=None,
        )
