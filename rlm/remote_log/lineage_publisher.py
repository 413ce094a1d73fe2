"""Tells readers of the remote tier alone what only the partition's leader knows (H4).

Before a look counts for the leader's own tier, so that readers refuse or end no later than it does.
A settings topic that takes no records keeps no look back for more than one publish in a while: the
leader's own clients depend on what it sees, not on who was told. What is told: plans/history.
"""

import asyncio

import structlog

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.clock import Clock
from rlm.plans.history import fact_of, history_to_tell, is_settled
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.snapshots import Look
from rlmm.facts import HistoryFact

QUIET_MS = 30_000
log = structlog.get_logger()


class Herald:
    """Publishes history facts of the partitions its service leads, one at a time of each."""

    def __init__(self, *, settings: Settings, ledger: Ledger, clock: Clock) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._telling: dict[PartitionKey, asyncio.Lock] = {}
        self._quiet_until_ms: dict[PartitionKey, int] = {}

    async def tell(self, look: Look) -> None:
        """Return once readers can know what the look has found; where that cannot be told, it is
        tried again with a look in a while.
        """
        try:
            if self._due(look) is not None:
                async with self._telling.setdefault(look.key, asyncio.Lock()):
                    await self._publish(look)
        except RemoteStorageError as error:
            self._quiet_until_ms[look.key] = self._clock.monotonic_ms() + QUIET_MS
            log.warning("history_not_told", **_place(look), error=str(error))

    def forget(self, key: PartitionKey) -> None:
        """The partition is led elsewhere now."""
        self._telling.pop(key, None)
        self._quiet_until_ms.pop(key, None)

    async def _publish(self, look: Look) -> None:
        """What is still to be told, now that other looks at the partition have told theirs."""
        fact = self._due(look)
        if fact is None:
            return
        await self._settings.publish(fact, look.led.leader_epoch)
        self._quiet_until_ms.pop(look.key, None)
        epochs = len(fact.lineage.entries)
        log.warning("history_told", **_place(look), frozen=fact.frozen, epochs=epochs)

    def _due(self, look: Look) -> HistoryFact | None:
        if self._clock.monotonic_ms() < self._quiet_until_ms.get(look.key, 0):
            return None
        told, trusted = self._settings.view.history(look.key), self._ledger.problem is None
        fact = history_to_tell(
            look.ledger,
            look.lineage,
            look.frozen,
            leader_epoch=look.led.leader_epoch,
            told=told,
            trusted=trusted,
        )
        if fact is None and trusted and _may_be_cut(look, told):
            return fact_of(look.ledger, look.lineage, None, told)
        return fact


def _may_be_cut(look: Look, told: HistoryFact | None) -> bool:
    """Whether the broker's own retention may cut the epoch file of what only that knows (H8); our
    own trims tell before (rlm.tasks.trim).
    """
    is_ours = look.frozen is None and look.ledger.newest_epoch <= look.led.leader_epoch
    return (
        is_ours
        and look.topic.retention_bounded is not None
        and not is_settled(
            look.ledger,
            look.lineage,
            told=told,
            local=look.log.lineage,
            bound=look.ledger.readable_end,
        )
    )


def _place(look: Look) -> dict[str, object]:
    place = look.led.topic_id_partition
    return {
        "topic": place.topic,
        "partition": place.partition,
        "leader_epoch": look.led.leader_epoch,
    }
