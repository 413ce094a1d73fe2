"""Topics as the API describes them: the fact, and what the ledger and the broker add."""

from collections.abc import Sequence

from kip405.errors import NotFound, RemoteStorageError
from kip405.ids import Uuid
from kip405.states import RemoteLogSegmentState
from rlm.api import messages
from rlm.api.ports import Broker, Ledger
from rlm.topics.ports import Settings
from rlm.v1 import admin_pb2 as pb
from rlmm.facts import TopicFact


class TopicSummaries:
    """Answers from this process's views; only partition counts need the broker."""

    def __init__(
        self,
        *,
        settings: Settings,
        ledger: Ledger,
        broker: Broker,
        barrier_deadline_ms: int,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._broker = broker
        self._barrier_deadline_ms = barrier_deadline_ms

    async def describe(
        self, fact: TopicFact, warnings: tuple[str, ...] = ()
    ) -> pb.TopicDescription:
        """One topic as its fact stands."""
        counts = await self._counts([fact])
        return self._message(fact, counts.get(fact.topic_id, 0), warnings)

    async def all(self) -> list[pb.TopicDescription]:
        """Every topic that was enabled and is not deleted, by name."""
        await self._settings.barrier(self._barrier_deadline_ms)
        facts = sorted(self._settings.view.topics(), key=lambda fact: fact.name)
        counts = await self._counts(facts)
        return [self._message(fact, counts.get(fact.topic_id, 0), ()) for fact in facts]

    async def by_name(self, name: str) -> TopicFact:
        """NotFound tells a topic that does not exist from one that is not enabled."""
        await self._settings.barrier(self._barrier_deadline_ms)
        facts = [fact for fact in self._settings.view.topics() if fact.name == name]
        if len(facts) == 1:
            return facts[0]
        topic_id = (await self._broker.topic(name)).topic_id
        for fact in facts:
            if fact.topic_id == topic_id:
                return fact
        raise NotFound(f"topic {name} is not enabled")

    async def _counts(self, facts: Sequence[TopicFact]) -> dict[Uuid, int]:
        """Partitions by topic id; empty while the broker does not answer."""
        try:
            topics = await self._broker.topics([fact.name for fact in facts])
        except RemoteStorageError:
            return {}
        return {topic.topic_id: len(topic.partitions) for topic in topics}

    def _message(
        self, fact: TopicFact, partitions: int, warnings: tuple[str, ...]
    ) -> pb.TopicDescription:
        finished = [
            entry.metadata
            for key in self._ledger.partitions()
            if key.topic_id == fact.topic_id
            for entry in self._ledger.ledger(key).in_state(
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            )
        ]
        return messages.topic_message(
            fact,
            partitions=partitions,
            remote_size_bytes=sum(segment.segment_size_bytes for segment in finished),
            remote_segments=len(finished),
            warnings=warnings,
        )
