"""Decides which settings record counts: the fold of the settings topic. Pure.

The rules are in docs/reference/formats.md, "Settings". The newest record of a key is adopted, but
never a remote log start offset below one that was seen (H2), and never a settings record written
under an older leader epoch than the newest seen for its key. A record that was not adopted leaves
its key in `reassert`: the partition's leader writes the adopted settings record again.

A key whose newest record cannot be read is written by nobody but a version that can read it: what
it says is not known, and a record over it would end the problem that stops all deletions.
Heartbeats are excepted, as each writer has its own.

Settings records that a late record must not override carry what their writer knew
(`WriterKnowledge`). A record does not count if its writer did not know the adopted record of its
key and its epoch is not newer. A tombstone does not count if its writer did not know the record
that it would remove, or if its epoch is older. This module must not know how settings records
travel, nor how their ages are computed (`log_time`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from kip405.errors import Corrupt
from kip405.ids import PartitionKey, Uuid
from rlmm.formats import NewerFormat
from rlmm.keyed_records import KeyedRecords, partition_record_key
from rlmm.ledger import Hole
from rlmm.log_time import LogTime, RecordTimes
from rlmm.settings_codec import Headers, WriterKnowledge, decode_settings_record
from rlmm.settings_records import (
    FENCED_RECORDS,
    NO_LEADER_EPOCH,
    ClusterRecord,
    CopyLimitRecord,
    DeletionRecord,
    DiscardRecord,
    DivergenceRecord,
    FreezeRecord,
    HistoryRecord,
    HolesRecord,
    ReaderRecord,
    ServiceRecord,
    SettingsRecord,
    Stamp,
    StartRecord,
    StoreRecord,
    TopicRecord,
    TrimRecord,
    copy_limit_key,
    topic_of,
)

MOST_SKEW_MS = 60_000
"""A writer's clock further away from the brokers' is an alarm."""
_HEARTBEATS = ServiceRecord, ReaderRecord
_OF_STARTS = (StartRecord.KIND, TrimRecord.KIND, HolesRecord.KIND)
_Kind = TypeVar("_Kind", bound=SettingsRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSkew:
    """How far a service's clock is ahead of the brokers' by its last heartbeat; below 0 = behind.

    `node_id` is -1 for a reader, `who` its key in the settings topic.
    """

    node_id: int
    who: str
    skew_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedRecord:
    """The settings record that counts for its key, its writer, and the offset of its record.

    `times`: when it was appended and read, None where that is unknown.
    """

    record: SettingsRecord
    stamp: Stamp
    offset: int
    times: RecordTimes | None = None


class SettingsView:
    """One reader's state of the settings topic; `apply` awaits nothing."""

    def __init__(self, version: int = 0) -> None:
        self._adopted: KeyedRecords[AdoptedRecord] = KeyedRecords()
        self._newest_epoch: dict[str, int] = {}
        self._overruled: dict[str, int] = {}
        self._problems: dict[bytes, str] = {}
        self._newer: set[bytes] = set()
        self._log_time = LogTime()
        self.next_offset = 0
        """Every record below was read."""
        self.version = version

    def apply(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        offset: int,
        times: RecordTimes | None = None,
        headers: Headers = (),
    ) -> None:
        """Take the next record in; one that cannot be read is remembered as a problem until its
        key is mended.
        """
        self.version += 1
        self.next_offset = offset + 1
        if times is not None:
            self._log_time.note(times)
        name = key or b""
        self._problems.pop(name, None)
        self._newer.discard(name)
        try:
            knew = WriterKnowledge.decode(headers)
            decoded = None if value is None else decode_settings_record(name, value)
        except Corrupt as error:
            self._problems[name] = f"settings offset {offset}: {error}"
            if isinstance(error, NewerFormat):
                self._newer.add(name)
            return
        if value is None:
            self._remove(name.decode(errors="replace"), offset, knew)
        elif decoded is not None:
            record, stamp = decoded
            newcomer = AdoptedRecord(record=record, stamp=stamp, offset=offset, times=times)
            self._consider(newcomer, knew.seen if knew else None)

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed; None = all was understood."""
        return next(iter(self._problems.values()), None)

    @property
    def newer_format(self) -> str | None:
        """The problem of a record of a newer format, which only a later version reads."""
        return next((self._problems[key] for key in self._newer), None)

    def problem_of_start(self, partition: PartitionKey) -> str | None:
        """Why what is known of a partition's remote log start, of its topic, or of what shows that
        there was a start, may not be all; None = it is. A key that is no text may be any of them.
        """
        keys = {f"{kind}/{partition}".encode() for kind in _OF_STARTS}
        keys.add(f"{TopicRecord.KIND}/{partition.topic_id}".encode())
        found = (why for key, why in self._problems.items() if key in keys or not _is_text(key))
        return next(found, None)

    @property
    def reassert(self) -> tuple[AdoptedRecord, ...]:
        """Adopted settings records that a newer record denies; the leader of the partition
        publishes them again. Not those whose newest record cannot be read: nobody may write them.
        """
        keys = (key for key in self._overruled if self._unread(key) is None)
        known = map(self._adopted.get, keys)
        return tuple(one for one in known if one is not None)

    def get(self, key: str) -> AdoptedRecord | None:
        """The adopted settings record of a key, with its stamp."""
        return self._adopted.get(key)

    def records(self) -> Iterator[AdoptedRecord]:
        """Every adopted settings record, by key."""
        return iter(self._adopted.sorted())

    @property
    def cluster(self) -> ClusterRecord | None:
        return self._of(ClusterRecord, ClusterRecord.KIND)

    def newest_epoch(self, key: str) -> int:
        """The newest leader epoch under which the key was written, as far as is remembered; what
        has no leader any more is removed under it.
        """
        return self._newest_epoch.get(key, NO_LEADER_EPOCH)

    def keys_of(self, topic_id: Uuid) -> tuple[str, ...]:
        """Keys of all settings records of one topic, its own record first."""
        own = f"{TopicRecord.KIND}/{topic_id}"
        keys = (key for key, found in self._adopted.items() if topic_of(found.record) == topic_id)
        return tuple(sorted(keys, key=lambda key: (key != own, key)))

    def topic_ids(self) -> frozenset[Uuid]:
        """Topics of which there is any settings record, be it their own or another."""
        found = (topic_of(one.record) for _, one in self._adopted.items())
        return frozenset(one for one in found if one is not None)

    def partitions_of(self, topic_id: Uuid) -> tuple[PartitionKey, ...]:
        """Partitions of the topic that have a settings record."""
        keys = {getattr(one.record, "partition", None) for _, one in self._adopted.items()}
        return tuple(sorted(one for one in keys if one is not None and one.topic_id == topic_id))

    def store(self, store_id: Uuid) -> StoreRecord | None:
        return self._of(StoreRecord, f"{StoreRecord.KIND}/{store_id}")

    def stores(self) -> tuple[StoreRecord, ...]:
        return self._all_of(StoreRecord)

    def topic(self, topic_id: Uuid) -> TopicRecord | None:
        return self._of(TopicRecord, f"{TopicRecord.KIND}/{topic_id}")

    def topics(self) -> tuple[TopicRecord, ...]:
        return self._all_of(TopicRecord)

    @property
    def has_topics(self) -> bool:
        """Whether any topic has something to do with the remote tier."""
        return self._adopted.has_kind(TopicRecord.KIND)

    @property
    def has_trims(self) -> bool:
        """Whether brokers may miss records of any topic because of our trims."""
        return self._adopted.has_kind(TrimRecord.KIND)

    def deletion(self, topic_id: Uuid) -> DeletionRecord | None:
        """The decision that makes data of the topic deletable, while it can be undone."""
        return self._of(DeletionRecord, f"{DeletionRecord.KIND}/{topic_id}")

    def services(self) -> tuple[tuple[ServiceRecord, Stamp], ...]:
        """Heartbeats; `stamp.time_ms` is by the writer's clock: see `heard_age_ms`."""
        return self._stamped(ServiceRecord)

    def readers(self) -> tuple[tuple[ReaderRecord, Stamp], ...]:
        """Heartbeats of services without a broker, likewise."""
        return self._stamped(ReaderRecord)

    def log_time_ms(self, monotonic_ms: int) -> int | None:
        """The brokers' wall time by the newest record and the time since it was read, None = not
        known (H16). Heartbeats keep it current.
        """
        return self._log_time.now_ms(monotonic_ms)

    def heard_age_ms(self, key: str, monotonic_ms: int) -> int | None:
        """How long ago a settings record was heard, None = not since this process follows the log
        (G1, H16).

        Use it to decide whether a writer is alive; it does not depend on writers' clocks.
        """
        return self._log_time.heard_age_ms(self._times(key), monotonic_ms)

    def least_age_ms(self, key: str, monotonic_ms: int) -> int | None:
        """How old a settings record is at least, for showing: of a replay it may be older. None =
        unknown.
        """
        return self._log_time.least_age_ms(self._times(key), monotonic_ms)

    def certain_age_ms(self, key: str, *, monotonic_ms: int, now_ms: int) -> int:
        """How old a settings record certainly is, of a replay too, even if one of the clocks is
        wrong: the brokers', the writer's or our own (H16); 0 where nothing is certain.
        """
        found = self._adopted.get(key)
        if found is None or found.times is None:
            return 0
        return self._log_time.certain_age_ms(
            found.times, found.stamp.time_ms, monotonic_ms=monotonic_ms, now_ms=now_ms
        )

    def clock_skews(self) -> tuple[ClockSkew, ...]:
        """Services whose clock was more than MOST_SKEW_MS off the brokers' at their last heartbeat,
        by node id.
        """
        kinds = ServiceRecord.KIND, ReaderRecord.KIND
        beats = chain.from_iterable(self._adopted.of_kind(kind) for kind in kinds)
        skews = (_clock_skew(found) for found in beats)
        return tuple(skew for skew in skews if skew and abs(skew.skew_ms) > MOST_SKEW_MS)

    def followed_ms(self, monotonic_ms: int) -> int:
        """How long this process has followed the log beyond the replay. Before it has done so for a
        heartbeat's interval, it cannot know which services are there.
        """
        return self._log_time.followed_ms(monotonic_ms)

    def clock_skews_now(self, monotonic_ms: int, *, max_age_ms: int) -> tuple[ClockSkew, ...]:
        """How far the clocks of services beside brokers are ahead of the brokers' time now, if they
        were heard at most so long ago by our monotonic clock.

        Unlike `clock_skews` it shows at once that the brokers' time has jumped, as when a broker
        whose clock is wrong begins to lead this topic.
        """
        log_ms = self.log_time_ms(monotonic_ms)
        if log_ms is None:
            return ()
        heard = (
            (found, monotonic_ms - found.times.read_ms)
            for found in self._adopted.of_kind(ServiceRecord.KIND)
            if isinstance(found.record, ServiceRecord)
            and found.times is not None
            and found.times.read_ms is not None
        )
        return tuple(
            ClockSkew(
                node_id=found.stamp.node_id,
                who=found.record.key,
                skew_ms=found.stamp.time_ms + age_ms - log_ms,
            )
            for found, age_ms in heard
            if age_ms <= max_age_ms
        )

    def _times(self, key: str) -> RecordTimes | None:
        found = self._adopted.get(key)
        return found.times if found else None

    def remote_log_start(self, partition: PartitionKey) -> int | None:
        """The durable remote log start offset; None = never set, so nothing may be deleted (H2)."""
        record = self._of(StartRecord, partition_record_key(StartRecord.KIND, partition))
        return record.remote_log_start_offset if record else None

    def remote_log_start_epoch(self, partition: PartitionKey) -> int:
        """The leader epoch under which the remote log start was decided, -1 where none was or it
        does not say.

        The epoch it was written under is no answer: the leader of a log that was restarted may have
        written it again for another one's lower start, and no leader has ended what is in that log
        (H4). So a start without a decided epoch counts as older than every record.
        """
        found = self._adopted.get(f"{StartRecord.KIND}/{partition}")
        if found is None or not isinstance(found.record, StartRecord):
            return NO_LEADER_EPOCH
        decided = found.record.decided_epoch
        return NO_LEADER_EPOCH if decided is None else min(decided, found.stamp.leader_epoch)

    def adopted(
        self, kind: str, partitions: Sequence[PartitionKey]
    ) -> Sequence[AdoptedRecord | None]:
        """The adopted settings record of a kind for each of many partitions: the same objects as
        long as nothing changes.
        """
        return self._adopted.of_partitions(kind, partitions)

    def trim(self, partition: PartitionKey) -> TrimRecord | None:
        return self._of(TrimRecord, f"{TrimRecord.KIND}/{partition}")

    def holes(self, partition: PartitionKey) -> tuple[Hole, ...]:
        record = self._of(HolesRecord, partition_record_key(HolesRecord.KIND, partition))
        return record.holes if record else ()

    def divergence(self, partition: PartitionKey) -> DivergenceRecord | None:
        return self._of(DivergenceRecord, f"{DivergenceRecord.KIND}/{partition}")

    def discard(self, partition: PartitionKey) -> DiscardRecord | None:
        """The decision to give up what is remote of a frozen partition."""
        return self._of(DiscardRecord, f"{DiscardRecord.KIND}/{partition}")

    def discards(self) -> tuple[DiscardRecord, ...]:
        """Every such decision, by key."""
        return self._all_of(DiscardRecord)

    def history(self, partition: PartitionKey) -> HistoryRecord | None:
        """What the leader has published of the partition's history (H4). Corrupt: this version
        cannot read it, so nothing is known.
        """
        key = f"{HistoryRecord.KIND}/{partition}"
        unread = self._problems.get(key.encode())
        if unread is not None:
            raise Corrupt(unread)
        return self._of(HistoryRecord, key)

    def stopped_by(self, topic_id: Uuid, operation: str) -> str | None:
        """Who froze an operation (trim, delete, sweep) for the topic or the cluster, and why; None:
        nobody did.
        """
        keys = (FreezeRecord.KIND, f"{FreezeRecord.KIND}/{topic_id}")
        found = (self._of(FreezeRecord, key) for key in keys)
        freezes = [
            f"{record.by}: {record.why}"
            for record in found
            if record is not None and operation in record.stopped
        ]
        return "; ".join(freezes) if freezes else None

    def copy_limit(self, node_id: int) -> CopyLimitRecord | None:
        """What overrules the copy limit that a node's service is configured for: the node's own
        record before that for all; None: nothing does.
        """
        keys = (copy_limit_key(node_id), copy_limit_key(None))
        found = (self._of(CopyLimitRecord, key) for key in keys)
        return next((record for record in found if record is not None), None)

    def copy_limits(self) -> tuple[CopyLimitRecord, ...]:
        """Every such record, by key."""
        return self._all_of(CopyLimitRecord)

    def _of(self, kind: type[_Kind], key: str) -> _Kind | None:
        found = self._adopted.get(key)
        return found.record if found and isinstance(found.record, kind) else None

    def _stamped(self, kind: type[_Kind]) -> tuple[tuple[_Kind, Stamp], ...]:
        found = ((one.record, one.stamp) for one in self._adopted.of_kind(kind.KIND))
        return tuple((record, stamp) for record, stamp in found if isinstance(record, kind))

    def _all_of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        return tuple(record for record, _ in self._stamped(kind))

    def _forget(self, key: str) -> None:
        self._adopted.drop(key)
        self._newest_epoch.pop(key, None)
        self._overruled.pop(key, None)

    def _remove(self, key: str, offset: int, knew: WriterKnowledge | None) -> None:
        if knew is not None and self.objection_to_removal(key, knew) is not None:
            self._overruled[key] = offset
        else:
            self._forget(key)

    def objection_to_removal(self, key: str, knew: WriterKnowledge) -> str | None:
        """Why a tombstone may not be the next record, or would not count; None = it would."""
        unread = self._unread(key)
        if unread is not None:
            return unread
        adopted = self._adopted.get(key)
        if adopted is None:
            return None
        if adopted.offset >= knew.seen:
            return _unaware(adopted, knew.seen)
        newest_epoch = self._newest_epoch.get(key, knew.leader_epoch)
        if knew.leader_epoch < newest_epoch:
            return f"leader epoch {knew.leader_epoch} is older than {newest_epoch}"
        return None

    def objection(
        self, record: SettingsRecord, leader_epoch: int, seen: int | None = None
    ) -> str | None:
        """Why a settings record may not be the next record, or would not count; None = it would.

        `seen`: how far its writer had read, None = it does not say.
        """
        unread = None if isinstance(record, _HEARTBEATS) else self._unread(record.key)
        if unread is not None:
            return unread
        newest_epoch = self._newest_epoch.get(record.key, leader_epoch)
        if leader_epoch < newest_epoch:
            return f"leader epoch {leader_epoch} is older than {newest_epoch}"
        adopted = self._adopted.get(record.key)
        if adopted and _lowers_start(adopted.record, record):
            return "the remote log start never goes back"
        if (
            adopted is not None
            and seen is not None
            and isinstance(record, FENCED_RECORDS)
            and adopted.offset >= seen
            and leader_epoch <= adopted.stamp.leader_epoch
        ):
            return _unaware(adopted, seen)
        return None

    def _unread(self, key: str) -> str | None:
        """Why nobody knows what is on record under the key."""
        why = self._problems.get(key.encode()) if self._problems else None
        return None if why is None else f"it would replace a record that cannot be read: {why}"

    def _consider(self, newcomer: AdoptedRecord, seen: int | None) -> None:
        key = newcomer.record.key
        epoch = newcomer.stamp.leader_epoch
        why = self.objection(newcomer.record, epoch, seen)
        self._newest_epoch[key] = max(self._newest_epoch.get(key, epoch), epoch)
        if why and key in self._adopted:
            self._overruled[key] = newcomer.offset
            return
        self._overruled.pop(key, None)
        self._adopted.put(key, newcomer)


def _is_text(key: bytes) -> bool:
    try:
        return bool(key.decode())
    except UnicodeDecodeError:
        return False


def _unaware(adopted: AdoptedRecord, seen: int) -> str:
    return f"its writer had read to {seen} and did not know the record at {adopted.offset}"


def _clock_skew(found: AdoptedRecord) -> ClockSkew | None:
    if found.times is None or not isinstance(found.record, ServiceRecord | ReaderRecord):
        return None
    return ClockSkew(
        node_id=found.stamp.node_id,
        who=found.record.key,
        skew_ms=found.stamp.time_ms - found.times.appended_ms,
    )


def _lowers_start(adopted: SettingsRecord, newcomer: SettingsRecord) -> bool:
    return (
        isinstance(adopted, StartRecord)
        and isinstance(newcomer, StartRecord)
        and newcomer.remote_log_start_offset < adopted.remote_log_start_offset
    )
