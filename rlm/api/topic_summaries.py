"""Describes topics for the API: the settings record, with the additions of ledger and broker."""

from collections.abc import Iterable, Mapping

from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import Uuid
from kip405.segments import RemoteLogSegmentState
from rlm.api import messages
from rlm.api.ports import Broker, Ledger, Pending
from rlm.broker.answers import TopicDescription
from rlm.plans.offload import OffloadPolicy
from rlm.remote_log.topic_refs import topic_records
from rlm.topics.ports import Settings
from rlm.topics.recreated import GoneTopic, gone_text, gone_topics, recreated, recreated_text
from rlm.topics.rules import (
    Durability,
    durability_of,
    durability_warnings,
    is_internal,
)
from rlm.v1 import admin_pb2 as pb
from rlmm.settings_records import TopicRecord

Present = Mapping[str, TopicDescription]


class TopicSummaries:
    """Answers from the views of this process. Only the partitions, and whether a topic was deleted,
    need the broker: while it does not answer, no topic counts as deleted.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        pending: Pending,
        ledger: Ledger,
        broker: Broker,
        offload: OffloadPolicy,
        barrier_deadline_ms: int,
    ) -> None:
        self._settings = settings
        self._pending = pending
        self._ledger = ledger
        self._broker = broker
        self._offload = offload
        self._barrier_deadline_ms = barrier_deadline_ms

    async def describe(
        self, record: TopicRecord, warnings: tuple[str, ...] = ()
    ) -> pb.TopicDescription:
        """One topic, by its settings record."""
        present = await self._present([record])
        found = _same(record, present)
        durability = Durability() if found is None else await self._durability(found)
        if found is not None:
            warnings += durability_warnings(durability, found)
        return self._message(record, present, warnings, durability)

    async def all(self) -> list[pb.TopicDescription]:
        """Every topic that was enabled and is not deleted, by name; those that are gone too."""
        await self._settings.barrier(self._barrier_deadline_ms)
        records = sorted(self._settings.view.topics(), key=lambda record: record.name)
        present = await self._present(records)
        return [self._message(record, present, (), Durability()) for record in records]

    async def candidates(self) -> list[pb.CandidateTopic]:
        """Every topic of the cluster but internal ones, by name."""
        topics = await self._broker.topics()
        await self._settings.barrier(self._barrier_deadline_ms)
        found = []
        for topic in sorted(topics, key=lambda one: one.name):
            if not is_internal(topic):
                record = self._settings.view.topic(topic.topic_id)
                state, mode = ("", "") if record is None else (record.state, record.mode)
                found.append(pb.CandidateTopic(topic=topic.name, state=state, mode=mode))
        return found

    async def by_name(self, name: str) -> TopicRecord:
        """The record of the topic that has the name now, else of the newest that had it (H39).

        NotFound says whether the topic does not exist or is not enabled.
        """
        await self._settings.barrier(self._barrier_deadline_ms)
        records = [record for record in self._records() if record.name == name]
        if not records:
            await self._broker.topic(name)
            raise NotFound(f"topic {name} is not enabled")
        present = await self._present(records)
        for record in records:
            if (
                present is not None
                and name in present
                and present[name].topic_id == record.topic_id
            ):
                return record
        return records[-1]

    async def enabled(self, name: str) -> TopicRecord:
        """As `by_name`; NotFound where the topic is not enabled any more."""
        record = await self.by_name(name)
        if record.state != "enabled":
            raise NotFound(f"topic {name} is not enabled (its remote data: {record.state})")
        return record

    def _records(self) -> tuple[TopicRecord, ...]:
        return topic_records(self._settings.view.records())

    async def _present(self, records: Iterable[TopicRecord]) -> Present | None:
        """The topics that have these names now; None while the broker does not answer."""
        try:
            topics = await self._broker.topics(sorted({record.name for record in records}))
        except RemoteStorageError:
            return None
        return {topic.name: topic for topic in topics}

    async def _durability(self, topic: TopicDescription) -> Durability:
        """Unknown while the broker does not answer."""
        try:
            return durability_of(await self._broker.topic_config(topic.name))
        except RemoteStorageError:
            return Durability()

    def _message(
        self,
        record: TopicRecord,
        present: Present | None,
        warnings: tuple[str, ...],
        durability: Durability,
    ) -> pb.TopicDescription:
        finished = [
            entry.metadata
            for key in self._ledger.partitions()
            if key.topic_id == record.topic_id
            for entry in self._ledger.ledger(key).in_state(
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            )
        ]
        gone = self._gone(record, present)
        found = None if present is None else present.get(record.name)
        return messages.topic_message(
            record,
            gone=gone,
            partitions=len(found.partitions) if found is not None and gone is None else 0,
            remote_size_bytes=sum(segment.segment_size_bytes for segment in finished),
            remote_segments=len(finished),
            pending=self._pending(record),
            warnings=(*warnings, *self._gone_texts(gone)),
            offload=self._offload.of(record),
            durability=durability,
        )

    def _gone(self, record: TopicRecord, present: Present | None) -> GoneTopic | None:
        if present is None:
            return None
        return next(iter(gone_topics([record], _ids(present))), None)

    def _gone_texts(self, gone: GoneTopic | None) -> tuple[str, ...]:
        if gone is None:
            return ()
        name, present_id = gone.record.name, gone.present_id
        ids = {} if present_id is None else {name: present_id}
        found = recreated((one for one in self._records() if one.name == name), ids)
        return tuple(recreated_text(one) for one in found) or (gone_text(gone),)


def _same(record: TopicRecord, present: Present | None) -> TopicDescription | None:
    """The topic itself, not another one of its name; None where it is gone or not known."""
    found = None if present is None else present.get(record.name)
    return found if found is not None and found.topic_id == record.topic_id else None


def _ids(present: Present) -> dict[str, Uuid]:
    return {name: topic.topic_id for name, topic in present.items()}
