"""`rlm freeze` and `unfreeze`: facts that stop trim, deletes and sweeps on every service.

They need no leader and no store: any service writes them, and every service reads them from the
settings topic within moments.
"""

from kip405.errors import NotFound
from kip405.ids import Uuid
from rlm.topics.ports import Broker, Settings
from rlmm.facts import FreezeFact

STOPPED = ("trim", "delete", "sweep")


class Freezes:
    """Writes and lists freezes; `topic` empty = everything."""

    def __init__(self, *, settings: Settings, broker: Broker, barrier_deadline_ms: int) -> None:
        self._settings = settings
        self._broker = broker
        self._barrier_deadline_ms = barrier_deadline_ms

    async def freeze(self, topic: str, *, by: str, why: str) -> None:
        """Durable when this returns; NotFound for a topic that is not enabled."""
        fact = FreezeFact(topic_id=await self._topic_id(topic), stopped=STOPPED, by=by, why=why)
        await self._settings.publish(fact)

    async def unfreeze(self, topic: str) -> None:
        """Take one freeze away; NotFound where there is none."""
        topic_id = await self._topic_id(topic)
        key = FreezeFact(topic_id=topic_id, stopped=(), by="", why="").key
        await self._settings.barrier(self._barrier_deadline_ms)
        if self._settings.view.get(key) is None:
            raise NotFound(f"{topic or 'the cluster'} is not frozen")
        await self._settings.tombstone(key)

    def listed(self) -> tuple[tuple[str, FreezeFact, int], ...]:
        """(topic name or empty, fact, since ms) of all that holds now."""
        return tuple(
            (self._name(found.fact.topic_id), found.fact, found.stamp.time_ms)
            for found in self._settings.view.facts()
            if isinstance(found.fact, FreezeFact)
        )

    def _name(self, topic_id: Uuid | None) -> str:
        if topic_id is None:
            return ""
        fact = self._settings.view.topic(topic_id)
        return fact.name if fact else str(topic_id)

    async def _topic_id(self, topic: str) -> Uuid | None:
        """By the settings first: a freeze must work while the broker has other troubles."""
        if not topic:
            return None
        await self._settings.barrier(self._barrier_deadline_ms)
        ids = [fact.topic_id for fact in self._settings.view.topics() if fact.name == topic]
        if len(ids) == 1:
            return ids[0]
        described = await self._broker.topic(topic)
        if described.topic_id not in ids:
            raise NotFound(f"topic {topic} is not enabled, so there is nothing to freeze")
        return described.topic_id
