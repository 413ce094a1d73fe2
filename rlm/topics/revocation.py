"""Keeps the remote data of a topic whose deletion was decided, or that seems to be deleted (H7).

A settings record keeps the data; that its deletion has begun is in the ledger. A service that
begins reads the settings again after it wrote that, and before each step that deletes. So the
ledger is read before the record is written, and again after it: whoever began meanwhile has seen
the record and deletes nothing, or is seen here, and nobody is told that all is kept. A partition
that was discarded (`rlm partition discard`) is deleted whatever becomes of its topic: of the others
the data is kept, and it is named. Where there are no others, nothing is left to be kept. Must not
know how a topic is disabled that exists (rlm/topics/verbs.py).
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kip405.errors import Fenced
from kip405.ids import PartitionKey, Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.plans.discard import BEGUN
from rlm.remote_log.topic_refs import topic_records
from rlm.topics.ports import Ledger, Settings
from rlmm.settings_records import NO_LEADER_EPOCH, TopicRecord


def kept_of(record: TopicRecord) -> TopicRecord:
    """The settings record of a disabled topic: nothing is copied, trimmed or deleted, and no
    retention is in force for what is stored.
    """
    return replace(record, state="kept", trim=False, mode="copy", enforced=None, deletion_cause="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """What can be read of a topic: its finished segments, and where each partition begins."""

    segments: frozenset[Uuid]
    starts: Mapping[PartitionKey, int | None]

    def is_in(self, later: "_Whole") -> bool:
        """Whether that has all of it."""
        are_there = all(later.starts.get(key) == start for key, start in self.starts.items())
        return are_there and self.segments <= later.segments


class Revocation:
    """Writes that remote data is kept, while nothing of it is deleted."""

    def __init__(self, *, settings: Settings, ledger: Ledger, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._ledger = ledger
        self._barrier_deadline_ms = barrier_deadline_ms

    async def keep(self, name: str) -> tuple[TopicRecord, ...]:
        """Keep what is remote of all topics that this name or id may mean; their new records,
        none where there is no such topic.

        Originals are kept: if the broker only does not know the topic yet, they are restored later.
        Fenced where its remote data is being deleted already, or was when the record was written.
        """
        return await self._keep_all(lambda record: _may_be_kept(record, name))

    async def keep_topics(self, topic_ids: Collection[Uuid]) -> tuple[TopicRecord, ...]:
        """The same of topics by their ids, which are being deleted or are proven to be gone."""
        return await self._keep_all(
            lambda record: record.topic_id in topic_ids and record.state in ("deleting", "enabled")
        )

    def not_kept(self, record: TopicRecord) -> tuple[str, ...]:
        """For people, the partitions of a topic that are kept no more, by what is known now."""
        discards = (self._settings.view.discard(key) for key in self._discarded(record))
        return tuple(
            f"partition {one.partition.partition}: {one.by} has discarded it, and its remote data "
            "is being deleted or is gone"
            for one in discards
            if one is not None
        )

    async def _keep_all(self, is_meant: Callable[[TopicRecord], bool]) -> tuple[TopicRecord, ...]:
        await self._settings.barrier(self._barrier_deadline_ms)
        records = topic_records(self._settings.view.records())
        kept = []
        for record in (one for one in records if is_meant(one)):
            kept.append(kept_of(record))
            await self._keep(record)
        return tuple(kept)

    async def _keep(self, record: TopicRecord) -> None:
        settings = self._settings
        if await self._has_begun(record):
            raise Fenced(f"{_begun(record)}; `rlm freeze {record.topic_id}` stops it")
        before = self._whole(record)
        adopted = settings.view.get(record.key)
        epoch = adopted.stamp.leader_epoch if adopted is not None else NO_LEADER_EPOCH
        await settings.publish(kept_of(record), epoch)
        is_cut = await self._has_begun(record) or not before.is_in(self._whole(record))
        if record.state == "deleting" and is_cut:
            raise Fenced(f"{_begun(record)} meanwhile: a part may be gone, and the rest is kept")

    async def _has_begun(self, record: TopicRecord) -> bool:
        """Whether it is being deleted, other than of partitions that were discarded; or these have
        all that there was.
        """
        deadline_ms = self._barrier_deadline_ms
        keys = self._all_keys(record)
        await asyncio.gather(*(self._ledger.barrier(key, deadline_ms) for key in keys))
        views = [self._ledger.ledger(key) for key in self._keys(record)]
        has_more = any(view.finished_total.segments for view in views)
        if record.state == "deleting" and self._discarded(record) and not has_more:
            return True
        return any(view.deletion_state in BEGUN for view in views)

    def _whole(self, record: TopicRecord) -> _Whole:
        keys = self._keys(record)
        state = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        entries = (one for key in keys for one in self._ledger.ledger(key).in_state(state))
        return _Whole(
            segments=frozenset(one.metadata.segment_id.id for one in entries),
            starts={key: self._settings.view.remote_log_start(key) for key in keys},
        )

    def _keys(self, record: TopicRecord) -> list[PartitionKey]:
        discard = self._settings.view.discard
        return [key for key in self._all_keys(record) if discard(key) is None]

    def _all_keys(self, record: TopicRecord) -> list[PartitionKey]:
        return [key for key in self._ledger.partitions() if key.topic_id == record.topic_id]

    def _discarded(self, record: TopicRecord) -> list[PartitionKey]:
        """Those of which the deletion has begun."""
        view, ledger = self._settings.view, self._ledger
        return [
            key
            for key in self._all_keys(record)
            if view.discard(key) is not None and ledger.ledger(key).deletion_state in BEGUN
        ]


def _begun(record: TopicRecord) -> str:
    return (
        f"the deletion of the remote data of topic {record.name} (id {record.topic_id}) has begun"
    )


def _may_be_kept(record: TopicRecord, name: str) -> bool:
    """Of one whose deletion was decided, `name` may be the id: another topic may have the name by
    now (H39).
    """
    if record.state == "deleting":
        return record.is_named(name)
    return record.state == "enabled" and record.name == name
