"""Adds to the ledger what it lacks, from the manifests in the stores (H6).

    stores surveyed by the caller -> barrier of settings and ledger -> objects seen whole now
    -> plan -> COPY_SEGMENT_FINISHED of each segment, read back

The stores are listed before the barrier: a copy publishes COPY_SEGMENT_STARTED before its first
object, and a deletion removes the objects before the ledger forgets a segment (H12). So what is
whole and without a record after the barrier has lost its record. A record that appears meanwhile
fences ours, and nothing is contradicted. `rlm/plans/ledger_rebuild.py` decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kip405.errors import Invalid
from kip405.ids import PartitionKey, TopicIdPartition, Uuid
from kip405.segments import RemoteLogSegmentMetadata
from rlm.plans.ledger_rebuild import KnownPartition, PartitionRebuild, StoredSegment, plan_rebuild
from rlm.remote_log.ports import Ledger, Settings
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.segment_deletion import each_at_once
from rlm.tasks.store_survey import StoreSurvey
from rlmm.ledger import PartitionLedger
from rlmm.records import NO_PREVIOUS, ledger_partition
from rlmm.settings_records import ClusterRecord
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.pinterest import is_marked

_ASKED_AT_ONCE = 200
_PUBLISHED_AT_ONCE = 64
_IMPORTED = (
    "it is imported: its log is in a bucket of Pinterest's uploader, and readers alone use it"
)


class UnlistedEvidence:
    """What ledger, settings and stores say about segments that the ledger may not list. `ledger`
    None = there is none (yet).
    """

    def __init__(
        self,
        *,
        ledger: Ledger | None,
        settings: Settings,
        evidence: StoreEvidence,
        barrier_deadline_ms: int,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._evidence = evidence
        self._barrier_deadline_ms = barrier_deadline_ms

    async def pass_barriers(self, keys: Iterable[PartitionKey]) -> None:
        """Read the settings, and the ledger of these partitions, to their present ends."""
        await self._settings.barrier(self._barrier_deadline_ms)
        if self._ledger is None:
            return
        for key in {ledger_partition(key): key for key in keys}.values():
            await self._ledger.barrier(key, self._barrier_deadline_ms)

    def known(self, key: PartitionKey) -> KnownPartition:
        """What the views have of one partition."""
        view = self._settings.view
        return KnownPartition(
            ledger=PartitionLedger.empty(key) if self._ledger is None else self._ledger.ledger(key),
            is_topic_known=view.topic(key.topic_id) is not None,
            remote_log_start_offset=view.remote_log_start(key),
            remote_log_start_epoch=view.remote_log_start_epoch(key),
            holes=view.holes(key),
        )

    async def seen(
        self, stored: Sequence[StoredSegment], known: KnownPartition
    ) -> tuple[StoredSegment, ...]:
        """The same segments; those that are not listed with what their objects lack now.

        A ledger never gets an imported segment: others may delete its log, so that no trim may
        rely on it.
        """
        new = [
            one.metadata for one in stored if one.metadata.segment_id.id not in known.ledger.entries
        ]
        imported = {one.segment_id.id for one in new if is_marked(self._evidence.locator(one))}
        unlisted = [one for one in new if one.segment_id.id not in imported]
        missing = dict.fromkeys(imported, _IMPORTED)
        for at in range(0, len(unlisted), _ASKED_AT_ONCE):
            missing |= await self._evidence.missing(unlisted[at : at + _ASKED_AT_ONCE])
        return tuple(
            replace(one, broken=missing.get(one.metadata.segment_id.id, "")) for one in stored
        )


class LedgerRebuild:
    """Plans and writes for all partitions of a cluster."""

    def __init__(self, *, ledger: Ledger | None, unlisted: UnlistedEvidence) -> None:
        """`ledger` None = there is none (yet), and nothing is written."""
        self._ledger = ledger
        self._unlisted = unlisted

    async def plan(self, surveys: Iterable[StoreSurvey]) -> tuple[PartitionRebuild, ...]:
        """What every partition of the surveyed stores gets back; changes nothing.

        Unavailable where settings, ledger or a store do not answer, Invalid where a store is not
        the expected one any more.
        """
        stored = by_partition(surveys)
        partitions = sorted(stored, key=lambda one: (one.topic, one.topic_id, one.partition))
        await self._unlisted.pass_barriers(partition.key for partition in partitions)
        return tuple([await self._plan(one, stored[one]) for one in partitions])

    async def _plan(
        self, partition: TopicIdPartition, stored: Sequence[StoredSegment]
    ) -> PartitionRebuild:
        known = self._unlisted.known(partition.key)
        return plan_rebuild(partition, await self._unlisted.seen(stored, known), known)

    async def write(self, plans: Iterable[PartitionRebuild]) -> int:
        """Publish what the plans add; the number of records, each read back as the newest.

        Errors as `publish_new`. A repeated call of the command continues.
        """
        if self._ledger is None:
            raise Invalid("there is no ledger to write to")
        done = 0
        for plan in plans:
            await publish_new(self._ledger, plan.added, plan.leader_epoch)
            done += len(plan.added)
        return done


def by_partition(
    surveys: Iterable[StoreSurvey],
) -> dict[TopicIdPartition, list[StoredSegment]]:
    """The segments of all stores."""
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for survey in surveys:
        for partition, segments in survey.segments.items():
            stored.setdefault(partition, []).extend(segments)
    return stored


async def publish_new(
    ledger: Ledger, segments: Iterable[RemoteLogSegmentMetadata], leader_epoch: int
) -> None:
    """Publish records of segments that have none, each read back as the newest.

    Fenced where somebody else has written a record of such a segment meanwhile; Unavailable,
    OutcomeUnknown where a record was not read back.
    """

    async def publish(metadata: RemoteLogSegmentMetadata) -> None:
        await ledger.publish(metadata, leader_epoch, NO_PREVIOUS)

    await each_at_once(segments, _PUBLISHED_AT_ONCE, publish)


def proven_cluster(
    view: SettingsView, *, cluster_id: str, settings_topic_id: Uuid
) -> ClusterRecord:
    """The cluster record, if the settings prove to be those of this cluster; Invalid says what does
    not fit. Without them nobody knows where the remote logs start.
    """
    if view.problem is not None:
        raise Invalid(f"the settings cannot be relied upon: {view.problem}")
    cluster = view.cluster
    if cluster is None:
        raise Invalid("the settings topic has no cluster record: it is not what services wrote")
    if cluster.cluster_id != cluster_id:
        raise Invalid(f"the settings belong to cluster {cluster.cluster_id}, not to {cluster_id}")
    if cluster.settings_topic_id != settings_topic_id:
        raise Invalid(
            f"the settings topic was created again: its id is {settings_topic_id}, the cluster "
            f"record says {cluster.settings_topic_id}"
        )
    return cluster


def check_all_stores(
    view: SettingsView, surveyed: Mapping[Uuid, object], without: Iterable[Uuid]
) -> None:
    """Invalid where the settings know a store that was not surveyed: what lies there would be
    missing from the ledger.
    """
    left = {record.store_id for record in view.stores()} - surveyed.keys() - set(without)
    for record in (one for one in view.stores() if one.store_id in left):
        raise Invalid(
            f"store {record.store_id} ({record.plugin} {record.uri}) is not in this configuration: "
            "name it there, or leave out what lies in it with --without-store"
        )
