"""Publishes, reads back and adopts settings records; holds the view that all decisions use.

This module must not know the purpose of a settings record. Records are in `settings_records`, the
rules of adoption in `settings_view`.
"""

from dataclasses import replace

import structlog

from kip405.errors import Fenced
from kip405.ids import PartitionKey, TopicPartition, Uuid
from rlmm.ledger import Hole
from rlmm.log_reader import TailRecord
from rlmm.log_time import RecordTimes
from rlmm.metadata_log import Log
from rlmm.publisher import OutcomeUnknown, Record
from rlmm.settings_codec import WriterKnowledge, encode_settings_record
from rlmm.settings_records import (
    FENCED_RECORDS,
    NO_LEADER_EPOCH,
    ClusterRecord,
    CopyLimitRecord,
    DeletionRecord,
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
)
from rlmm.settings_view import AdoptedRecord, SettingsView
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC, NowMs
from rlmm.waiting import Changes

__all__ = [
    "NO_LEADER_EPOCH",
    "AdoptedRecord",
    "ClusterRecord",
    "CopyLimitRecord",
    "DeletionRecord",
    "DivergenceRecord",
    "FreezeRecord",
    "HistoryRecord",
    "Hole",
    "HolesRecord",
    "OutcomeUnknown",
    "ReaderRecord",
    "ServiceRecord",
    "Settings",
    "SettingsRecord",
    "SettingsView",
    "Stamp",
    "StartRecord",
    "StoreRecord",
    "TopicRecord",
    "TrimRecord",
]

_PARTITION = TopicPartition(SETTINGS_TOPIC, 0)

log = structlog.get_logger(__name__)


class Settings:
    """Reads and writes settings records; `view` is what this process knows now."""

    def __init__(
        self,
        *,
        log: Log,
        node_id: int,
        writer: Uuid,
        now_ms: NowMs,
        monotonic_ms: NowMs,
        publish_timeout_ms: int,
    ) -> None:
        """`writer` is drawn once per process start; `publish_timeout_ms` limits ack and read-back
        together.
        """
        self.view = SettingsView()
        self._log = log
        self._node_id = node_id
        self._writer = writer
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._is_replay = True
        self._skewed: frozenset[str] = frozenset()
        self._publish_timeout_ms = publish_timeout_ms
        self._changes = Changes()
        log.register(SETTINGS_TOPIC, self)

    @property
    def is_ready(self) -> bool:
        """The topic was read up to the end it had at the start; before that nothing is known."""
        return self._log.is_ready

    @property
    def problem(self) -> str | None:
        """Why nothing may be deleted or trimmed now."""
        if not self.is_ready:
            return "the settings were not read to their end yet"
        return self._log.problem or self.view.problem or self._foreign_topics()

    def damage_of_start(self, partition: PartitionKey) -> str | None:
        """Why what was read may not be all there is (see MetadataLog.damage) of what shows a
        partition's remote log start; None = it is, as far as it was read.
        """
        return self._log.damage or self.view.problem_of_start(partition)

    async def barrier(self, deadline_ms: int) -> None:
        """Return once the view knows all that was published before this call; Unavailable after
        `deadline_ms`.
        """
        await self._log.barrier(_PARTITION, deadline_ms)

    async def wait_changed(self) -> None:
        """Return after the next record."""
        await self._changes.wait()

    async def publish(
        self, record: SettingsRecord, leader_epoch: int = NO_LEADER_EPOCH, seen: int | None = None
    ) -> None:
        """Publish a settings record; returns when it was read back and is the one that counts.

        `seen`: `view.next_offset` when this was decided, None = just now; a settings record of the
        topic's, written by another process since, is not overwritten. Fields of the present
        settings record that this version does not know are written again. Fenced: an older leader
        epoch, a lower start, or a record that was not known or cannot be read. Unavailable: not
        written.
        OutcomeUnknown: barrier, then look; it may land later still, but not undo what is written
        meanwhile.
        """
        seen = self.view.next_offset if seen is None else seen
        adopted = self.view.get(record.key)
        if adopted is not None:
            record = replace(record, extra={**adopted.record.extra, **record.extra})
        stamp = Stamp(
            node_id=self._node_id,
            leader_epoch=leader_epoch,
            writer=self._writer,
            time_ms=self._now_ms(),
        )
        why = self.view.objection(record, leader_epoch, seen)
        if why:
            raise Fenced(f"settings record {record.key}: {why}")
        key, value = encode_settings_record(record, stamp)
        knew = WriterKnowledge(seen=seen, leader_epoch=leader_epoch)
        headers = knew.encode() if isinstance(record, FENCED_RECORDS) else ()
        offset = await self._log.publish(
            Record(topic_partition=_PARTITION, key=key, value=value, headers=headers),
            self._publish_timeout_ms,
        )
        adopted = self.view.get(record.key)
        if adopted is None or adopted.offset != offset:
            raise Fenced(f"settings record {record.key}: our record at {offset} does not count")

    async def tombstone(
        self, key: str, leader_epoch: int = NO_LEADER_EPOCH, seen: int | None = None
    ) -> None:
        """Remove a settings record; returns when that was read back and counts. `seen`, errors as
        `publish`: only what was known when this was decided is removed.
        """
        seen = self.view.next_offset if seen is None else seen
        knew = WriterKnowledge(seen=seen, leader_epoch=leader_epoch)
        why = self.view.objection_to_removal(key, knew)
        if why:
            raise Fenced(f"tombstone of {key}: {why}")
        offset = await self._log.publish(
            Record(topic_partition=_PARTITION, key=key.encode(), value=None, headers=knew.encode()),
            self._publish_timeout_ms,
        )
        adopted = self.view.get(key)
        if adopted is not None and adopted.offset < offset:
            raise Fenced(f"tombstone of {key}: our record at {offset} does not count")

    async def reassert(self, partition: PartitionKey, leader_epoch: int) -> int:
        """Write again what newer, overruled records of the partition deny; answers how many. For
        its leader only.

        A topic's own settings record, deletion and freeze belong to the leader of partition 0, the
        freeze of everything and copy limits to every leader. The stamp is new, the settings record
        is not: its own fields say under which epoch something was decided, never its stamp.
        """
        mine = [found.record for found in self.view.reassert if _belongs(found.record, partition)]
        for record in mine:
            is_leaders = not isinstance(record, FreezeRecord | CopyLimitRecord)
            await self.publish(record, leader_epoch if is_leaders else NO_LEADER_EPOCH)
            log.warning("settings_record_reasserted", key=record.key, leader_epoch=leader_epoch)
        return len(mine)

    def apply(self, record: TailRecord) -> None:
        """Sink of the settings topic."""
        read_ms = None if self._is_replay else self._monotonic_ms()
        self.view.apply(
            key=record.key,
            value=record.value,
            offset=record.offset,
            times=RecordTimes(appended_ms=record.timestamp_ms, read_ms=read_ms),
            headers=record.headers,
        )
        if not self._is_replay:
            self._say_skews()
        self._changes.notify()

    def start_over(self, partition: int) -> None:
        """Sink of the settings topic: it is read from its beginning."""
        self.view = SettingsView(version=self.view.version + 1)

    def go_live(self, replay_ms: int) -> None:
        """Sink of the settings topic: the initial replay is over."""
        self._is_replay = False
        self._say_skews()
        self._changes.notify()

    def _say_skews(self) -> None:
        skews = {skew.who: skew for skew in self.view.clock_skews()}
        for who in sorted(skews.keys() - self._skewed):
            log.error("clock_skew", who=who, ahead_ms=skews[who].skew_ms)
        self._skewed = frozenset(skews)

    def _foreign_topics(self) -> str | None:
        """The cluster record names other topics than those we read: one was recreated
        while no service was running (H6).
        """
        cluster = self.view.cluster
        if cluster is None:
            return None
        known = {LEDGER_TOPIC: cluster.ledger_topic_id, SETTINGS_TOPIC: cluster.settings_topic_id}
        for name, topic_id in self._log.topic_ids.items():
            if known[name] != topic_id:
                return f"topic {name} has id {topic_id}, the cluster record says {known[name]}"
        return None


def _belongs(record: SettingsRecord, partition: PartitionKey) -> bool:
    if isinstance(record, FreezeRecord) and record.topic_id is None:
        return True
    if isinstance(record, CopyLimitRecord):
        return True
    if isinstance(record, TopicRecord | DeletionRecord | FreezeRecord) and record.topic_id:
        return partition == PartitionKey(record.topic_id, 0)
    return getattr(record, "partition", None) == partition
