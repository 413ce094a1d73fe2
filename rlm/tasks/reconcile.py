"""Compares whole stores with the ledger: adopts, and hands leftovers to cleanup (H6, H12).

`rlm/plans/reconcile.py` decides, `UnlistedEvidence` supplies ledger, settings and objects in the
order that makes it safe. Nothing is deleted here: what is registered becomes a broken attempt,
which the cleanup of the partition's leader deletes, in the order of G4, if it is one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kip405.ids import TopicIdPartition
from rlm.clock import Clock
from rlm.plans.ledger_rebuild import StoredSegment
from rlm.plans.reconcile import Age, Leftover, PartitionReconcile, plan_reconcile, registration
from rlm.remote_log.ports import Ledger
from rlm.tasks.ledger_rebuild import UnlistedEvidence, by_partition, publish_new
from rlm.tasks.store_survey import StoreSurvey


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """How many segments got a record."""

    adopted: int
    registered: int


class Reconcile:
    """Plans and writes for all partitions. `grace_ms`: remote.unreferenced.grace.ms."""

    def __init__(
        self, *, ledger: Ledger, unlisted: UnlistedEvidence, clock: Clock, grace_ms: int
    ) -> None:
        self._ledger = ledger
        self._unlisted = unlisted
        self._clock = clock
        self._grace_ms = grace_ms

    async def plan(self, surveys: Sequence[StoreSurvey]) -> tuple[PartitionReconcile, ...]:
        """What becomes of every object that the ledger does not list; changes nothing. Errors as
        `LedgerRebuild.plan`.
        """
        stored = by_partition(surveys)
        leftovers: dict[TopicIdPartition, list[Leftover]] = {}
        for one in (one for survey in surveys for one in survey.leftovers):
            leftovers.setdefault(one.partition, []).append(one)
        partitions = sorted(
            {*stored, *leftovers}, key=lambda one: (one.topic, one.topic_id, one.partition)
        )
        await self._unlisted.pass_barriers(partition.key for partition in partitions)
        return tuple(
            [
                await self._plan(one, stored.get(one, ()), leftovers.get(one, ()))
                for one in partitions
            ]
        )

    async def _plan(
        self,
        partition: TopicIdPartition,
        stored: Sequence[StoredSegment],
        leftovers: Iterable[Leftover],
    ) -> PartitionReconcile:
        known = self._unlisted.known(partition.key)
        seen = await self._unlisted.seen(stored, known)
        age = Age(now_ms=self._clock.now_ms(), grace_ms=self._grace_ms)
        return plan_reconcile(partition, seen, leftovers, known, age)

    async def write(self, plans: Iterable[PartitionReconcile]) -> Reconciled:
        """Publish what the plans adopt and register. Errors as `LedgerRebuild.write`."""
        adopted = registered = 0
        for plan in plans:
            epoch = max(plan.found.leader_epoch, 0)
            now_ms = self._clock.now_ms()
            started = [
                registration(one, leader_epoch=epoch, now_ms=now_ms) for one in plan.registered
            ]
            await publish_new(self._ledger, (*plan.found.added, *started), epoch)
            adopted += len(plan.found.added)
            registered += len(plan.registered)
        return Reconciled(adopted=adopted, registered=registered)
