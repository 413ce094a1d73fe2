"""`rlm reconcile`: compares all stores of a cluster with its ledger (H6, H12).

    proof -> objects and manifests of every store -> barrier -> plan, which is shown
    -> records: COPY_SEGMENT_FINISHED of what is adopted, COPY_SEGMENT_STARTED of what cleanup gets

Services run meanwhile. It works only with the ledger that they use and that has no problem; a lost
one is rebuilt first.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.plans.reconcile import PartitionReconcile
from rlm.service.store_command import StoreCommand, run_store_command
from rlm.tasks.reconcile import Reconcile, Reconciled
from rlm.tasks.store_survey import StoreSurvey
from rlmm.manager import Metadata
from rlmm.topic import LEDGER_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileReport:
    """`written` None = nothing was to be written."""

    cluster_id: str
    partitions: tuple[PartitionReconcile, ...]
    stores: tuple[StoreSurvey, ...]
    written: Reconciled | None = None

    @property
    def left_out(self) -> int:
        """How many partitions, segments and objects are left as they are, except young ones."""
        rows = self.partitions
        refused = sum(bool(one.found.refused) for one in rows)
        broken = sum(len(one.found.broken) + len(one.contradicting) for one in rows)
        unreplaced = sum(len(one.unreplaced) for one in rows)
        return refused + broken + unreplaced + sum(len(one.unusable) for one in self.stores)


async def reconcile_stores(
    config: ServiceConfig, clock: Clock, *, is_applied: bool, without: Collection[Uuid]
) -> ReconcileReport:
    """Show, or with `is_applied` do, what becomes of objects that the ledger does not list.

    Errors as `rebuild_ledger`.
    """
    act = partial(_reconcile, config, clock, is_applied)
    return await run_store_command(config, clock, act, without=without)


async def _reconcile(
    config: ServiceConfig, clock: Clock, is_applied: bool, command: StoreCommand
) -> ReconcileReport:
    if await command.ledger_id() is None:
        raise Invalid(f"topic {LEDGER_TOPIC} is missing; see rlm ledger rebuild")
    act = partial(_compare, config, clock, is_applied, command)
    return await command.with_metadata(act, with_ledger=True)


async def _compare(
    config: ServiceConfig,
    clock: Clock,
    is_applied: bool,
    command: StoreCommand,
    metadata: Metadata,
) -> ReconcileReport:
    cluster = command.proven(metadata)
    if cluster.ledger_topic_id != metadata.log.topic_ids[LEDGER_TOPIC]:
        raise Invalid(f"topic {LEDGER_TOPIC} was created again; see rlm ledger rebuild")
    stores = await command.survey(metadata)
    task = Reconcile(
        ledger=metadata.manager,
        unlisted=command.unlisted(metadata),
        clock=clock,
        grace_ms=config.remote_unreferenced_grace_ms,
    )
    plans = await task.plan(stores)
    problem = metadata.manager.problem or metadata.settings.problem
    if problem is not None:
        raise Invalid(f"nothing can be said about unlisted objects: {problem}")
    report = ReconcileReport(cluster_id=command.cluster_id, partitions=plans, stores=stores)
    return replace(report, written=await task.write(plans)) if is_applied else report
