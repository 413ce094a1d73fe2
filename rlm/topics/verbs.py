"""The topic verbs: enable (or change), trim on and off, disable, with remarks for the operator.

Only the service of the partition-0 leader runs them: one at a time, so that two callers cannot
interleave here, and with leader epochs and a barrier, so that two services cannot either (H14):

    read configuration -> barrier -> read the record -> publish and read back -> alter ->
    barrier

A service that alters the configuration publishes the originals first. So a configuration that was
read before the barrier is either unchanged, or its originals are visible after the barrier. A
shorter total retention is announced before it is written, and enforced later (`deletions`). Must
not know gRPC.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP
from kip405.acls import MissingAcls
from kip405.errors import Fenced, Invalid, NotFound, RemoteStorageError
from kip405.ids import PartitionKey, Uuid
from kip405.segments import Layout, RemoteLogSegmentState
from rlm.broker.answers import TopicDescription
from rlm.clock import Clock
from rlm.plans.offload import OffloadPolicy
from rlm.plans.remote_extent import extent_of
from rlm.plans.retention import Retention
from rlm.remote_log.log_starts import Remains
from rlm.remote_log.topic_refs import topic_records
from rlm.topics import rules
from rlm.topics.access import ClusterAccess
from rlm.topics.cluster import ReaderCheck
from rlm.topics.deletions import Writing
from rlm.topics.external import to_be_given_back, to_be_set
from rlm.topics.local_logs import ExistingLogs, Growth, bytes_a_day
from rlm.topics.partition_records import Starts
from rlm.topics.ports import Broker, Disk, LeaderOffsets, Ledger, Settings
from rlm.topics.recreated import former_texts
from rlm.topics.remarks import change_warnings, giveback_warnings
from rlm.topics.revocation import Revocation, kept_of
from rlm.topics.rules import Config, RetentionOptions
from rlm.topics.shortening import RetentionChange, RetentionPlan, Shortening
from rlm.topics.takeover import Settler, is_taken_over, originals_of
from rlmm.settings_records import DELETION_DISABLE, OffloadThresholds, TopicRecord, TotalRetention


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableOptions:
    """`trim` = mode tier: take retention over and trim, in one step; `tier` = the mode alone. `by`:
    the caller, for what can be undone; `yes`: what becomes deletable is confirmed. `remains`: what
    becomes of remote segments of a topic without a settings record. `offload`: None = not given,
    `rules.UNSET` = as the service says. `layout`: of new segments, None = as before.
    """

    by: str = ""
    trim: bool = False
    tier: bool = False
    retention: RetentionOptions = field(default_factory=RetentionOptions)
    offload: OffloadThresholds = field(default_factory=OffloadThresholds)
    force: bool = False
    yes: bool = False
    remains: Remains = Remains.UNDECIDED
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The settings record in force, and what the operator must know."""

    record: TopicRecord
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableCheck:
    """What `enable` would say of a topic: why it refuses, None = it would not."""

    topic: TopicDescription
    retention: Retention
    refusal: RemoteStorageError | None = None
    warnings: tuple[str, ...] = ()


RefuseUntiered = Callable[[str, Layout | None], None]
"""Called with a topic's name and its own layout: Invalid where its segments would have no store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Collaborators; the caller that created them closes them."""

    node_id: int
    broker: Broker
    offsets: LeaderOffsets
    settings: Settings
    ledger: Ledger
    disk: Disk
    starts: Starts
    access: ClusterAccess
    shortening: Shortening
    readers: ReaderCheck
    logs: ExistingLogs
    offload: OffloadPolicy
    settler: Settler
    refuse_untiered: RefuseUntiered
    clock: Clock
    barrier_deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A topic led here: its configuration read first, then its settings record behind a barrier."""

    topic: TopicDescription
    config: Config
    record: TopicRecord | None
    next_offset: int
    """The offset up to which the settings were read."""

    @property
    def leader_epoch(self) -> int:
        return self.topic.partitions[0].leader_epoch

    @property
    def writing(self) -> Writing:
        return Writing(leader_epoch=self.leader_epoch, seen=self.next_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What is written when nothing refuses it."""

    record: TopicRecord
    change: RetentionChange
    warnings: tuple[str, ...]


class TopicVerbs:
    """NotLeader: call the service of `error.leader`. Other errors say what the caller must do."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self.revocation = Revocation(
            settings=dependencies.settings,
            ledger=dependencies.ledger,
            barrier_deadline_ms=dependencies.barrier_deadline_ms,
        )
        self.lock, self._planning = asyncio.Lock(), asyncio.Lock()

    async def enable(self, name: str, options: EnableOptions) -> Outcome:
        """Enable a topic or change its options.

        NotFound: no such topic. Invalid: it must not be enabled, or LogConfig refuses the values.
        MissingAcls: the services lack rights for it; nothing was altered. Fenced: trimming would
        harm readers, or some of the log could not be copied, and no `force`; data would become
        deletable, and no `yes`; the topic has remote segments and no settings record, and `remains`
        does not say what becomes of them.
        """
        await self._dependencies.settler.wait_known(name)
        async with self.lock:
            seen = await self._see_allowed(name, tier=options.trim)
            return await self._enable(seen, options)

    async def check(self, name: str, options: EnableOptions) -> EnableCheck:
        """What `enable` would say now; alters nothing, and so keeps no verb waiting. NotFound,
        MissingAcls: the topic cannot be described. Invalid: the retention that is asked for is
        none.
        """
        seen = await self._see_allowed(name, tier=options.trim)
        retention = rules.choose_retention(options.retention, seen.record, seen.config)
        try:
            checked = await self._checked(seen, options)
            await self._dependencies.starts.check(seen.topic, options.remains)
        except RemoteStorageError as error:
            return EnableCheck(topic=seen.topic, retention=retention, refusal=error)
        return EnableCheck(topic=seen.topic, retention=retention, warnings=checked.warnings)

    async def change_taken_over(self, name: str, options: EnableOptions) -> Outcome:
        """As `enable`, but Fenced for a topic that is not enabled in mode tier (any more)."""
        async with self.lock:
            seen = await self._see_allowed(name, tier=False)
            if seen.record is None or not is_taken_over(seen.record):
                raise Fenced(f"topic {name} has left mode tier meanwhile; nothing was changed")
            return await self._enable(seen, options)

    async def plan_retention(self, name: str, options: EnableOptions) -> RetentionPlan:
        """What `enable` would make deletable; alters nothing, keeps no verb waiting. Its errors."""
        await self._dependencies.settler.wait_known(name)
        async with self._planning:
            seen = await self._see_allowed(name, tier=options.trim)
            rules.refuse(seen.topic, seen.config)
            retention = rules.choose_retention(options.retention, seen.record, seen.config)
            return await self._dependencies.shortening.plan(
                seen.topic, self._change(seen, retention, options)
            )

    async def enable_like(self, gone: TopicRecord, topic_id: Uuid) -> None:
        """Enable the topic of this id with the options of a deleted topic of the same name (H39).

        Errors as of `enable`: nobody has decided anything about remote segments of this id. Nothing
        is done if the topic got a settings record meanwhile, or if the name now belongs to another
        id.
        """
        tier = is_taken_over(gone)
        async with self.lock:
            seen = await self._see_allowed(gone.name, tier=tier)
            if seen.record is None and seen.topic.topic_id == topic_id:
                retention = RetentionOptions(
                    retention_ms=gone.retention_ms,
                    retention_bytes=gone.retention_bytes,
                    local_retention_ms=gone.local_retention_ms,
                    local_retention_bytes=gone.local_retention_bytes,
                )
                options = EnableOptions(
                    by=_REENABLED_BY,
                    trim=gone.trim,
                    tier=tier,
                    retention=retention,
                    offload=gone.offload,
                    yes=True,
                )
                await self._enable(seen, options)

    async def trim_on(self, name: str, *, force: bool) -> Outcome:
        """Take retention over and trim; the topic must be enabled."""
        async with self.lock:
            seen = await self._see_allowed(name, tier=True)
            self._enabled(seen)
            return await self._enable(seen, EnableOptions(trim=True, force=force))

    async def trim_off(self, name: str, *, giveback: bool) -> Outcome:
        """Stop trimming; with `giveback` the broker's own retention acts again (mode copy)."""
        async with self.lock:
            seen = await self._see(name)
            record = self._enabled(seen)
            mode = "copy" if giveback else record.mode
            await self._publish(seen, replace(record, trim=False, mode=mode), is_stop=True)
            settled = await self._dependencies.settler.settle(name, record.topic_id)
            if is_taken_over(settled):
                return Outcome(record=settled, warnings=(await self._growth(seen),))
            return Outcome(record=settled, warnings=self._giveback_warnings(record))

    async def disable(self, name: str, *, confirm: bool, delete_remote: bool) -> Outcome:
        """Stop copying and trimming; the originals are restored. The remote data is kept, or with
        `delete_remote` deleted after a delay, within which a call without it keeps the data.

        Fenced while there is data that only the remote store has, unless `confirm`. If the enabled
        topic no longer exists, its settings record becomes `kept` (H39).
        """
        async with self.lock:
            try:
                seen = await self._see(name)
                record = self._known(seen)
            except NotFound as error:
                if delete_remote:
                    raise NotFound(f"{error}; `rlm purge` lists deleted topics") from error
                return await self._let_go(name, error)
            left, what = kept_of(record), tuple[str, ...]()
            if delete_remote:
                left = replace(left, state="deleting", deletion_cause=DELETION_DISABLE)
                what = self._deletion_texts(seen.topic, confirm=confirm)
            elif not confirm:
                await self._refuse_unreachable(seen.topic)
            await self._publish(seen, left, is_stop=True)
            settled = await self._dependencies.settler.settle(name, record.topic_id)
            return Outcome(record=settled, warnings=(*what, *self._giveback_warnings(record)))

    def _deletion_texts(self, topic: TopicDescription, *, confirm: bool) -> tuple[str, ...]:
        """What `--delete` deletes; Fenced with it unless `confirm`."""
        ledger = self._dependencies.ledger
        keys = (key for key in ledger.partitions() if key.topic_id == topic.topic_id)
        extent = extent_of(ledger.ledger(key) for key in keys)
        what = (
            f"topic {topic.name}: {extent}, will be deleted from the remote "
            "store; what lies below the brokers' log starts is in no tier then"
        )
        if not confirm:
            raise Fenced(f"{what}; --yes decides it, and nothing was changed")
        return (f"{what}; `rlm topics disable {topic.name}` keeps it until that begins",)

    def _giveback_warnings(self, before: TopicRecord) -> tuple[str, ...]:
        if self._dependencies.settler.alters_configs:
            return giveback_warnings(before)
        return to_be_given_back(before)

    async def _let_go(self, name: str, error: NotFound) -> Outcome:
        """Keep the remote data of a deleted topic, or of one whose deletion was decided; `error`
        where there is none.
        """
        kept = await self.revocation.keep(name)
        if not kept:
            raise error
        ids = ", ".join(str(record.topic_id) for record in kept)
        but = (text for record in kept for text in self.revocation.not_kept(record))
        warnings = (f"{error}; remote data is kept of id {ids}", *but)
        return Outcome(record=kept[-1], warnings=warnings)

    async def _is_ending(self, seen: _Seen) -> bool:
        """Whether a deletion is recorded of a partition, even if no settings say so any more."""
        keys = [PartitionKey(seen.topic.topic_id, one) for one in seen.topic.partitions]
        if seen.record is not None and seen.record.state == "kept":
            await self._read_ledger(keys)
        return any(self._dependencies.ledger.ledger(key).deletion is not None for key in keys)

    async def _read_ledger(self, keys: Iterable[PartitionKey]) -> None:
        """To a barrier."""
        ledger, deadline_ms = self._dependencies.ledger, self._dependencies.barrier_deadline_ms
        await asyncio.gather(*(ledger.barrier(key, deadline_ms) for key in keys))

    async def _see(self, name: str) -> _Seen:
        topic = await self._dependencies.settler.led_topic(name)
        config = await self._dependencies.broker.topic_config(name)
        await self._dependencies.settings.barrier(self._dependencies.barrier_deadline_ms)
        view = self._dependencies.settings.view
        record = view.topic(topic.topic_id)
        return _Seen(topic=topic, config=config, record=record, next_offset=view.next_offset)

    async def _see_allowed(self, name: str, *, tier: bool) -> _Seen:
        """As `_see`; if the topic may not even be described, the error names all missing ACLs."""
        try:
            return await self._see(name)
        except MissingAcls as error:
            raise await self._dependencies.access.refusal(name, error, tier=tier) from error

    def _known(self, seen: _Seen) -> TopicRecord:
        if seen.record is None or seen.record.state == "deleting":
            raise NotFound(f"topic {seen.topic.name} is not enabled")
        return seen.record

    def _enabled(self, seen: _Seen) -> TopicRecord:
        record = self._known(seen)
        if record.state != "enabled":
            raise NotFound(f"topic {seen.topic.name} is not enabled (its remote data is kept)")
        return record

    async def _enable(self, seen: _Seen, options: EnableOptions) -> Outcome:
        checked = await self._checked(seen, options)
        record, change, warnings = checked.record, checked.change, checked.warnings
        await self._dependencies.starts.ensure(seen.topic, options.remains)
        await self._dependencies.shortening.announce(
            seen.topic, change, by=options.by, writing=seen.writing
        )
        await self._publish(seen, record)
        if not self._dependencies.settler.alters_configs:
            warnings += to_be_set(record, seen.config)
        return Outcome(record=await self._settle_or_undo(seen, record), warnings=warnings)

    async def _checked(self, seen: _Seen, options: EnableOptions) -> _Checked:
        """All that may refuse, but for missing starts; nothing is altered."""
        rules.refuse(seen.topic, seen.config)
        before = seen.record
        self._dependencies.refuse_untiered(seen.topic.name, _layout(options, before))
        if (before is not None and before.state == "deleting") or await self._is_ending(seen):
            raise Fenced(
                f"topic {seen.topic.name}: its remote data is being deleted; enable it when that "
                "is done (`rlm topics list`)"
            )
        retention = rules.choose_retention(options.retention, before, seen.config)
        change = self._change(seen, retention, options)
        await self._dependencies.shortening.check(seen.topic, change, yes=options.yes)
        record = _wanted(seen, options, retention, change.in_force)
        if not self._dependencies.settler.alters_configs:
            record = replace(record, originals=before.originals if before is not None else {})
        self._dependencies.offload.check(record, rules.total_of(seen.config))
        warnings = change_warnings(before, record, options.retention, seen.config)
        if before is None:
            records = topic_records(self._dependencies.settings.view.records())
            warnings += former_texts(records, seen.topic.name, seen.topic.topic_id)
        if _needs_more(before, record):
            warnings += await self._dependencies.access.check(
                seen.topic, tier=is_taken_over(record), force=options.force
            )
        if record.trim and not (before is not None and before.trim):
            warnings += await self._dependencies.readers.check(
                seen.topic, retention, force=options.force
            )
            warnings += await self._dependencies.logs.check(seen.topic, force=options.force)
        return _Checked(record=record, change=change, warnings=warnings)

    def _change(self, seen: _Seen, wanted: Retention, options: EnableOptions) -> RetentionChange:
        change = self._dependencies.shortening.change(
            seen.topic, seen.config, seen.record, wanted.total
        )
        return replace(change, keeps_remains=options.remains is Remains.KEEP)

    async def _settle_or_undo(self, seen: _Seen, ours: TopicRecord) -> TopicRecord:
        """A change that the cluster refuses permanently leaves the topic unchanged (H14 c).

        What another leader has written meanwhile is not reverted: its record counts.
        """
        settings = self._dependencies.settings
        published = settings.view.get(ours.key)
        seen_ours = settings.view.next_offset
        try:
            return await self._dependencies.settler.settle(seen.topic.name, seen.topic.topic_id)
        except Invalid:
            if settings.view.get(ours.key) == published and ours != seen.record:
                with contextlib.suppress(Fenced):
                    if seen.record is None:
                        await settings.tombstone(ours.key, seen.leader_epoch, seen_ours)
                    else:
                        await settings.publish(seen.record, seen.leader_epoch, seen_ours)
            raise

    async def _publish(self, seen: _Seen, record: TopicRecord, *, is_stop: bool = False) -> None:
        """`is_stop`: written even if it repeats the current record. A start with unknown outcome
        that this record stops may still arrive; it does not count after this record (H10).
        """
        if is_stop or record != seen.record:
            await self._dependencies.settings.publish(record, seen.leader_epoch, seen.next_offset)

    async def _growth(self, seen: _Seen) -> str:
        own = [
            PartitionKey(seen.topic.topic_id, row.partition)
            for row in seen.topic.partitions.values()
            if self._dependencies.node_id in row.replicas
        ]
        now_ms = self._dependencies.clock.now_ms()
        segments = (
            entry.metadata
            for key in own
            for entry in self._dependencies.ledger.ledger(key).entries.values()
        )
        growth = Growth(
            bytes_a_day=bytes_a_day(segments, now_ms),
            free_bytes=await self._dependencies.disk.free_bytes(),
        )
        return growth.words(seen.topic.name, now_ms)

    async def _refuse_unreachable(self, topic: TopicDescription) -> None:
        partitions = []
        for partition in sorted(topic.partitions):
            start = await self._dependencies.offsets.offset(topic, partition, EARLIEST_TIMESTAMP)
            lowest = self._lowest_remote(PartitionKey(topic.topic_id, partition))
            if lowest is not None and lowest < start:
                partitions.append(f"{topic.name}-{partition}: {lowest} to {start}")
        if partitions:
            raise Fenced(
                "offsets that only the remote store has would be out of reach once this service "
                f"is gone: {', '.join(partitions)}; --confirm disables all the same, and keeps them"
            )

    def _lowest_remote(self, key: PartitionKey) -> int | None:
        finished = self._dependencies.ledger.ledger(key).in_state(
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        )
        start = self._dependencies.settings.view.remote_log_start(key) or 0
        offsets = [
            max(entry.metadata.start_offset, start)
            for entry in finished
            if entry.metadata.next_offset > start
        ]
        return min(offsets, default=None)


_REENABLED_BY = "topics.reenable"


def _wanted(
    seen: _Seen, options: EnableOptions, retention: Retention, in_force: TotalRetention
) -> TopicRecord:
    """The settings record to publish; known originals are never overwritten (H14)."""
    before = seen.record
    was_enabled = before is not None and before.state == "enabled"
    stays_tier = before is not None and was_enabled and before.mode == "tier"
    tier = options.trim or options.tier or stays_tier
    originals: Mapping[str, str | None] = before.originals if before is not None else {}
    if tier and not originals:
        originals = originals_of(seen.config)
    return TopicRecord(
        topic_id=seen.topic.topic_id,
        name=seen.topic.name,
        mode="tier" if tier else "copy",
        state="enabled",
        trim=options.trim or (before is not None and was_enabled and before.trim),
        retention_ms=retention.total_ms,
        retention_bytes=retention.total_bytes,
        local_retention_ms=retention.local_ms,
        local_retention_bytes=retention.local_bytes,
        originals=originals,
        enforced=in_force.laxer(retention.total),
        offload=rules.choose_offload(options.offload, before),
        given_back=before.given_back if before is not None else None,
        layout=_layout(options, before),
        extra=before.extra if before is not None else {},
    )


def _layout(options: EnableOptions, before: TopicRecord | None) -> Layout | None:
    return before.layout if options.layout is None and before is not None else options.layout


def _needs_more(before: TopicRecord | None, after: TopicRecord) -> bool:
    """Whether a change lets the services do what they could not do before (H40)."""
    if before is None or before.state != "enabled":
        return True
    return (after.trim and not before.trim) or (is_taken_over(after) and not is_taken_over(before))
