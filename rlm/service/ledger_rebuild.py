"""`rlm ledger rebuild`: writes a lost ledger again, from the manifests in the stores (H6).

    proof -> objects and manifests of every store -> plan, which is shown
    -> ledger topic, where it is missing -> plan again, with it -> records -> cluster record

The cluster record comes last. It names the new ledger: a service takes no other ledger for its own
than the one that it knew, or the one that this record names when the service starts. So an
interrupted rebuild changes nothing for anybody, and the next one continues.

Services may run meanwhile: one that has lost its ledger writes nothing to a topic with another id.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

from kip405.errors import Invalid
from kip405.ids import Uuid
from rlm.clock import Clock
from rlm.config import ServiceConfig
from rlm.plans.ledger_rebuild import PartitionRebuild
from rlm.service.store_command import StoreCommand, run_store_command
from rlm.tasks.ledger_rebuild import LedgerRebuild
from rlm.tasks.store_survey import StoreSurvey
from rlmm.manager import Metadata
from rlmm.settings_records import ClusterRecord
from rlmm.topic import LEDGER_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """`ledger`: what is there now, in words. `written` None = nothing was to be written."""

    cluster_id: str
    ledger: str
    partitions: tuple[PartitionRebuild, ...]
    stores: tuple[StoreSurvey, ...]
    written: int | None = None

    @property
    def left_out(self) -> int:
        """How many segments stay unlisted, and manifests that cannot be used."""
        refused = sum(bool(one.refused) for one in self.partitions)
        broken = sum(len(one.broken) for one in self.partitions)
        return refused + broken + sum(len(one.unusable) for one in self.stores)


async def rebuild_ledger(
    config: ServiceConfig, clock: Clock, *, is_applied: bool, without: Collection[Uuid]
) -> RebuildReport:
    """Show, or with `is_applied` write, what the ledger lacks. `without`: stores that are left out.

    Invalid, Unavailable: something is not proven, and nothing was written. Other errors of the
    ledger: some records were written; the same command continues.
    """
    act = partial(_rebuild, is_applied=is_applied)
    return await run_store_command(config, clock, act, without=without)


async def _rebuild(command: StoreCommand, *, is_applied: bool) -> RebuildReport:
    has_ledger = await command.ledger_id() is not None
    report = await command.with_metadata(partial(_show, command), with_ledger=has_ledger)
    if not is_applied:
        return report
    if not has_ledger:
        await command.create_ledger()
    return await command.with_metadata(partial(_write, command, report), with_ledger=True)


async def _show(command: StoreCommand, metadata: Metadata) -> RebuildReport:
    """The plan; nothing is written."""
    stores = await command.survey(metadata)
    topic_id = metadata.log.topic_ids.get(LEDGER_TOPIC)
    return RebuildReport(
        cluster_id=command.cluster_id,
        ledger=_in_words(topic_id, command.proven(metadata)),
        partitions=await _task(command, metadata).plan(stores),
        stores=stores,
    )


async def _write(command: StoreCommand, shown: RebuildReport, metadata: Metadata) -> RebuildReport:
    """Plan again with the ledger as it is now, write, and name the ledger last of all."""
    cluster = command.proven(metadata)
    if metadata.manager.damage is not None:
        raise Invalid(f"the ledger cannot be relied upon: {metadata.manager.damage}")
    task = _task(command, metadata)
    plans = await task.plan(shown.stores)
    written = await task.write(plans)
    topic_id = metadata.log.topic_ids[LEDGER_TOPIC]
    if cluster.ledger_topic_id != topic_id:
        await metadata.settings.publish(replace(cluster, ledger_topic_id=topic_id))
    words = f"topic {LEDGER_TOPIC} is the one that services use when they start"
    return replace(shown, ledger=words, partitions=plans, written=written)


def _task(command: StoreCommand, metadata: Metadata) -> LedgerRebuild:
    has_ledger = LEDGER_TOPIC in metadata.log.topic_ids
    return LedgerRebuild(
        ledger=metadata.manager if has_ledger else None, unlisted=command.unlisted(metadata)
    )


def _in_words(topic_id: Uuid | None, cluster: ClusterRecord) -> str:
    if topic_id is None:
        return f"topic {LEDGER_TOPIC} is missing and would be created"
    if topic_id == cluster.ledger_topic_id:
        return f"topic {LEDGER_TOPIC} is the one that the services use"
    return f"topic {LEDGER_TOPIC} was created again, and would be taken for the ledger"
