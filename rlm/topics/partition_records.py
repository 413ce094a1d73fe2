"""Writes the settings records of partitions: remote log starts, freezes, accepted divergences.

The durable remote log start of every partition is written before a topic's mode takes effect (H2).
When a topic is enabled, the service of the partition-0 leader writes all of them: it asks each
partition's leader for its log start (a read, so routing it is harmless), publishes under that
partition's leader epoch and reads back. For a partition added later, the service of its leader
writes the start when it first takes a snapshot of it (rlm.tasks.copy). An existing start is changed
only by `LogStarts` (rlm.remote_log.log_starts). One that the settings have lost is set by an
operator alone, where the remote segments begin: that ends nothing.

A freeze record stops trim, deletes and sweeps on every service. It needs no leader and no store:
any service writes it, and every service reads it from the settings topic within moments. An
operator can adopt a leader's log after a freeze (H4) and a foreign log start (H1).
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from kafka_protocol.apis.offsets import DEBUGGING_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.errors import Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from rlm.broker.answers import OwnOffsets, TopicDescription
from rlm.broker.leadership import LedPartition
from rlm.remote_log.log_starts import (
    LogStarts,
    Remains,
    first_start,
    publish_first,
    sign_of_start,
)
from rlm.tasks.unlisted_segments import Listing
from rlm.topics.ports import Broker, LeaderOffsets, Ledger, Settings
from rlmm.settings_records import (
    CAUSE_COMMAND,
    STOPS_DELETE,
    STOPS_SWEEP,
    STOPS_TRIM,
    DivergenceRecord,
    FreezeRecord,
    StartRecord,
    TopicRecord,
)


class Starts:
    """Publishes missing starts; the settings must have passed a barrier."""

    def __init__(
        self,
        *,
        settings: Settings,
        ledger: Ledger,
        offsets: LeaderOffsets,
        barrier_deadline_ms: int,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._offsets = offsets
        self._barrier_deadline_ms = barrier_deadline_ms

    async def ensure(self, topic: TopicDescription, remains: Remains = Remains.UNDECIDED) -> int:
        """Write missing starts of partitions; returns their number. Unavailable without a
        leader, or where a start may have been lost. Fenced: `remains` does not say what becomes of
        remote segments.
        """
        missing = self._missing(topic)
        for partition in missing:
            await self._publish(topic, partition, remains)
        return len(missing)

    async def check(self, topic: TopicDescription, remains: Remains) -> None:
        """Errors as of `ensure`; nothing is written."""
        for partition in self._missing(topic):
            names, start = await self._log_start(topic, partition)
            first_start(
                self._settings.view,
                names,
                start,
                ledger=self._ledger.ledger(names.key),
                damage=self._damage(names.key),
                remains=remains,
            )

    def _missing(self, topic: TopicDescription) -> list[int]:
        partitions = sorted(topic.partitions)
        return [one for one in partitions if self._known(topic, one) is None]

    def _known(self, topic: TopicDescription, partition: int) -> int | None:
        return self._settings.view.remote_log_start(PartitionKey(topic.topic_id, partition))

    async def _log_start(
        self, topic: TopicDescription, partition: int
    ) -> tuple[TopicIdPartition, int]:
        """The leader's log start; the partition's ledger is read to a barrier."""
        start = await self._offsets.offset(topic, partition, EARLIEST_TIMESTAMP)
        names = TopicIdPartition(topic_id=topic.topic_id, topic=topic.name, partition=partition)
        await self._ledger.barrier(names.key, self._barrier_deadline_ms)
        return names, start

    def _damage(self, key: PartitionKey) -> str | None:
        return self._ledger.damage_of(key) or self._settings.damage_of_start(key)

    async def _publish(self, topic: TopicDescription, partition: int, remains: Remains) -> None:
        names, start = await self._log_start(topic, partition)
        try:
            await publish_first(
                self._settings,
                names,
                start,
                leader_epoch=topic.partitions[partition].leader_epoch,
                ledger=self._ledger.ledger(names.key),
                damage=self._damage(names.key),
                remains=remains,
            )
        except Fenced:
            if self._known(topic, partition) is None:
                raise  # no other service was faster: our record is refused


class LocalStarts:
    """Ends the remote log of a topic that stays in Kafka where its brokers' logs begin (G4)."""

    def __init__(
        self, *, broker: Broker, settings: Settings, offsets: LeaderOffsets, starts: LogStarts
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._offsets = offsets
        self._starts = starts

    async def raise_starts(
        self, record: TopicRecord, check: Callable[[], Awaitable[object]]
    ) -> None:
        """Raise the remote log start of every partition that has one to its leader's log start.

        `check` raises unless the deletion still counts; asked before each raise. NotFound: no topic
        has this id now. Unavailable: a partition has no leader; call again.
        """
        topic = await self._broker.topic(record.name)
        if topic.topic_id != record.topic_id:
            raise NotFound(f"no topic has the id {record.topic_id}")
        for partition, described in sorted(topic.partitions.items()):
            names = TopicIdPartition(
                topic_id=topic.topic_id, topic=record.name, partition=partition
            )
            start = await self._offsets.offset(topic, partition, EARLIEST_TIMESTAMP)
            if self._settings.view.remote_log_start(names.key) is not None:
                await self._starts.raise_to(
                    names,
                    start,
                    leader_epoch=described.leader_epoch,
                    cause=f"{CAUSE_COMMAND}: disable --delete",
                    check=check,
                )


STOPPED = (STOPS_TRIM, STOPS_DELETE, STOPS_SWEEP)


class Freezes:
    """Writes and lists freezes; an empty `topic` = all topics, an id = that of a former topic whose
    name another one may have (H39).
    """

    def __init__(self, *, settings: Settings, broker: Broker, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._broker = broker
        self._barrier_deadline_ms = barrier_deadline_ms

    async def freeze(self, topic: str, *, by: str, why: str) -> None:
        """Durable when this returns; NotFound for a topic that is not enabled."""
        record = FreezeRecord(topic_id=await self._topic_id(topic), stopped=STOPPED, by=by, why=why)
        await self._settings.publish(record)

    async def unfreeze(self, topic: str) -> None:
        """Remove one freeze; NotFound where there is none."""
        topic_id = await self._topic_id(topic)
        key = FreezeRecord(topic_id=topic_id, stopped=(), by="", why="").key
        await self._settings.barrier(self._barrier_deadline_ms)
        if self._settings.view.get(key) is None:
            raise NotFound(f"{topic or 'the cluster'} is not frozen")
        await self._settings.tombstone(key)

    def listed(self) -> tuple[tuple[str, FreezeRecord, int], ...]:
        """(topic name or empty, record, since ms) of all freezes in force."""
        return tuple(
            (self._name(found.record.topic_id), found.record, found.stamp.time_ms)
            for found in self._settings.view.records()
            if isinstance(found.record, FreezeRecord)
        )

    def _name(self, topic_id: Uuid | None) -> str:
        if topic_id is None:
            return ""
        record = self._settings.view.topic(topic_id)
        return record.name if record else str(topic_id)

    async def _topic_id(self, topic: str) -> Uuid | None:
        """Looked up in the settings first: a freeze must work while the broker has problems."""
        if not topic:
            return None
        await self._settings.barrier(self._barrier_deadline_ms)
        records = self._settings.view.topics()
        for record in records:
            if str(record.topic_id) == topic:
                return record.topic_id
        ids = [record.topic_id for record in records if record.name == topic]
        if len(ids) == 1:
            return ids[0]
        described = await self._broker.topic(topic)
        if described.topic_id not in ids:
            raise NotFound(f"topic {topic} is not enabled, so there is nothing to freeze")
        return described.topic_id


class Unlisted(Protocol):
    """The objects of a partition in all stores (rlm.tasks.unlisted_segments)."""

    async def listing(self, partition: TopicIdPartition) -> Listing:
        """Those that the ledger does not list; a store that was not listed is in `errors`."""
        ...


class Adoption:
    """For partitions that our broker leads; other services must not decide."""

    def __init__(
        self,
        *,
        broker: OwnOffsets,
        settings: Settings,
        ledger: Ledger,
        unlisted: Unlisted,
        starts: LogStarts,
        barrier_deadline_ms: int,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._ledger = ledger
        self._unlisted = unlisted
        self._starts = starts
        self._barrier_deadline_ms = barrier_deadline_ms

    async def adopt_log(self, led: LedPartition, *, frozen: str, by: str) -> None:
        """Accept the leader's log as it is, up to its current epoch; Invalid if nothing is frozen,
        or a discard of what is remote is pending.

        Remote segments outside its lineage stay where they are and are no longer read.
        """
        if not frozen:
            raise Invalid(f"{led} is not frozen: there is nothing to adopt")
        discard = self._settings.view.discard(led.key)
        if discard is not None:
            raise Invalid(
                f"{led}: {discard.by} gives up what is remote; `rlm deletions undo` comes first"
            )
        epoch = led.leader_epoch
        end = await self._broker.list_offset(
            led.topic_id_partition.topic,
            led.topic_id_partition.partition,
            LATEST_TIMESTAMP,
            leader_epoch=epoch,
            replica_id=DEBUGGING_REPLICA_ID,
        )
        record = DivergenceRecord(
            partition=led.key,
            action="adopt",
            epoch=epoch,
            offset=end.offset,
            cause=f"adopted by {by}; {frozen}",
        )
        await self._settings.publish(record, epoch)

    async def adopt_log_start(self, led: LedPartition, *, frozen: str, by: str) -> None:
        """Make the broker's log start the remote log start: what lies below has ended permanently.
        Where the settings have lost the start, it becomes where the remote segments begin, and
        nothing ends; where nothing at all is remote, it becomes the broker's log start.

        Invalid where the log start is no higher, or is where our own trim put it (H1), or while the
        partition is frozen. Unavailable: no start is known, and settings or ledger have a problem,
        or the ledger lists nothing and a store has segments, or cannot be asked.
        """
        epoch = led.leader_epoch
        answer = await self._broker.list_offset(
            led.topic_id_partition.topic,
            led.topic_id_partition.partition,
            EARLIEST_TIMESTAMP,
            leader_epoch=epoch,
        )

        if await self._lost_start(led):
            return await self._begin_again(led, answer.offset, frozen, by)

        async def check() -> None:
            self._check_foreign(led, answer.offset, frozen)

        await self._starts.raise_to(
            led.topic_id_partition,
            answer.offset,
            leader_epoch=epoch,
            cause=f"{CAUSE_COMMAND}: {by}",
            check=check,
        )

    async def _lost_start(self, led: LedPartition) -> bool:
        """Whether a partition of a topic that the settings know, and that does not end, had a start
        that they have lost.
        """
        await self._settings.barrier(self._barrier_deadline_ms)
        await self._ledger.barrier(led.key, self._barrier_deadline_ms)
        view = self._settings.view
        topic = view.topic(led.key.topic_id)
        if topic is None or topic.state == "deleting" or view.remote_log_start(led.key) is not None:
            return False
        return sign_of_start(view, self._ledger.ledger(led.key)) is not None

    async def _begin_again(
        self, led: LedPartition, log_start_offset: int, frozen: str, by: str
    ) -> None:
        """Nothing is known to have ended, so nothing ends: what was deleted may be read again."""
        problem = self._ledger.problem or self._settings.problem
        if problem is not None:
            raise Unavailable(f"{led} has no remote log start that can be read: {problem}")
        if frozen:
            raise Invalid(f"{led} is frozen ({frozen}): `rlm partition adopt` comes first")
        if not self._ledger.ledger(led.key).entries:
            await self._refuse_stored(led)
        entries = self._ledger.ledger(led.key).entries.values()
        first = min((entry.metadata.start_offset for entry in entries), default=log_start_offset)
        record = StartRecord(
            partition=led.key,
            remote_log_start_offset=min(first, log_start_offset),
            cause=f"{CAUSE_COMMAND}: {by}; the start was lost",
            decided_epoch=led.leader_epoch,
        )
        await self._settings.publish(record, led.leader_epoch)

    async def _refuse_stored(self, led: LedPartition) -> None:
        """Unavailable unless every store shows that nothing is remote: without any segments in the
        ledger, the start would be our own trim (H1).
        """
        listing = await self._unlisted.listing(led.topic_id_partition)
        await self._ledger.barrier(led.key, self._barrier_deadline_ms)
        if listing.errors:
            raise Unavailable(
                f"{led} has no remote log start, and the ledger has no segment of it; whether a "
                f"store has is not known: {'; '.join(listing.errors)}"
            )
        count = sum(one.has_manifest for one in listing.segments.values())
        if count:
            raise Unavailable(
                f"{led} has no remote log start, and the ledger has lost {count} segments that are "
                "in the stores: `rlm ledger rebuild` comes first"
            )

    def _check_foreign(self, led: LedPartition, log_start_offset: int, frozen: str) -> None:
        known = self._settings.view.remote_log_start(led.key)
        if known is None:
            raise NotFound(f"{led} has no remote log start: the topic is not enabled")
        if frozen:
            raise Invalid(f"{led} is frozen ({frozen}): `rlm partition adopt` comes first")
        if log_start_offset <= known:
            raise Invalid(
                f"{led}: the broker's log start {log_start_offset} is not above the remote log "
                f"start {known}: there is nothing to adopt"
            )
        trim = self._settings.view.trim(led.key)
        if trim is not None and log_start_offset <= trim.bound:
            raise Invalid(
                f"{led}: the broker's log start {log_start_offset} is our own trim (up to "
                f"{trim.bound}), not a foreign move: there is nothing to adopt"
            )
