"""Raises the remote log start after a client's DeleteRecords, so that both tiers end there (H26).

The broker has already deleted when `raise_start` is called, with the client's own rights. What is
decided here is whether the remote tier may follow: under the leadership under which the request was
forwarded, while nothing stops deletions. Objects below the new start are deleted by nobody here. A
raise that was begun is completed, whether or not the client still waits for it. This module must
not know Kafka's protocol.
"""

import asyncio
from functools import partial
from typing import Protocol
from weakref import WeakValueDictionary

import structlog

from kip405.errors import Fenced, Internal, RemoteStorageError
from kip405.ids import PartitionKey, TopicIdPartition
from rlm.broker.answers import TopicDescription
from rlm.broker.leadership import LedPartition
from rlm.plans.guards import Forbidden
from rlm.remote_log.log_starts import LogStarts
from rlm.remote_log.ports import Ledger, Settings
from rlm.remote_log.tier import TierPartition
from rlmm.settings_records import CAUSE_DELETE_RECORDS, STOPS_DELETE

log = structlog.get_logger(__name__)


class LeadershipCheck(Protocol):
    """Asks our broker whether it still leads (rlm.remote_log.snapshots.Snapshots)."""

    async def check_leadership(self, led: LedPartition) -> TopicDescription: ...


class ClientDeletions:
    """Implements rlm.remote_log.tier.Deletions. Raises run in `tasks`, which the owner ends."""

    def __init__(
        self,
        *,
        node_id: int,
        settings: Settings,
        ledger: Ledger,
        leadership: LeadershipCheck,
        starts: LogStarts,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._ledger = ledger
        self._leadership = leadership
        self._starts = starts
        self._tasks = tasks
        self._raising: WeakValueDictionary[PartitionKey, asyncio.Lock] = WeakValueDictionary()

    def refusal(self, view: TierPartition) -> str | None:
        """See `Deletions`."""
        if view.frozen:
            return "the partition is frozen: `rlm status` says why"
        problem = self._settings.problem or self._ledger.problem
        if problem is not None:
            return problem
        stopped = self._settings.view.stopped_by(view.topic_id, STOPS_DELETE)
        return None if stopped is None else f"{Forbidden.FREEZE_RECORD.value}: {stopped}"

    async def raise_start(self, view: TierPartition, offset: int) -> int:
        """See `Deletions`."""
        outcome = await asyncio.shield(self._tasks.create_task(self._outcome(view, offset)))
        if isinstance(outcome, RemoteStorageError):
            raise outcome
        return outcome

    async def _outcome(self, view: TierPartition, offset: int) -> int | RemoteStorageError:
        names = {"topic": view.topic, "partition": view.partition, "offset": offset}
        try:
            start = await self._raise(view, offset)
        except RemoteStorageError as error:
            log.warning("delete_records_not_finished", **names, error=str(error))
            return error
        except Exception as error:
            log.exception("delete_records_not_finished", **names)
            return Internal(f"raising a remote log start failed: {error!r}")
        log.info("delete_records_finished", **names, remote_log_start_offset=start)
        return start

    async def _raise(self, view: TierPartition, offset: int) -> int:
        """One at a time for each partition: the settings topic never gets a lower start last."""
        led = self._led(view)
        async with self._raising.setdefault(led.key, asyncio.Lock()):
            return await self._starts.raise_to(
                led.topic_id_partition,
                offset,
                leader_epoch=view.leader_epoch,
                cause=CAUSE_DELETE_RECORDS,
                check=partial(self._check, view, led),
            )

    async def _check(self, view: TierPartition, led: LedPartition) -> None:
        stopped = self.refusal(view)
        if stopped is not None:
            raise Fenced(f"{view.topic}-{view.partition}: {stopped}")
        await self._leadership.check_leadership(led)

    def _led(self, view: TierPartition) -> LedPartition:
        return LedPartition(
            topic_id_partition=TopicIdPartition(
                topic_id=view.topic_id, topic=view.topic, partition=view.partition
            ),
            leader=self._node_id,
            leader_epoch=view.leader_epoch,
            replicas=(),
            isr=(),
        )
