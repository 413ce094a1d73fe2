"""What `rlm ledger rebuild` writes of a ledger that lost records, by its own planner (H6)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kip405.ids import PartitionKey, TopicIdPartition
from rlm.plans.ledger_rebuild import KnownPartition, StoredSegment, plan_rebuild
from rlmm.ledger import PartitionLedger
from rlmm.ledger_values import decode_value
from rlmm.publisher import Record
from rlmm.records import NO_PREVIOUS, LedgerKey, RecordHeaders, encode_record_value
from rlmm.settings_view import SettingsView
from rsm_plugins.layout.keys import ObjectKind
from rsm_plugins.layout.manifest import Manifest
from tests.simulation.invariants import Broken, replayed
from tests.simulation.model_service import LEDGER, SETTINGS

if TYPE_CHECKING:
    from tests.simulation.world import World


def rebuild(world: "World") -> None:
    """Nothing else runs meanwhile. Broken: the planner refuses a partition, though no settings were
    lost.
    """
    stored: dict[TopicIdPartition, list[StoredSegment]] = {}
    for segment in _stored(world):
        stored.setdefault(segment.metadata.topic_id_partition, []).append(segment)
    world.happened("ledger rebuilt")
    for partition, segments in stored.items():
        plan = plan_rebuild(partition, segments, _known(world, partition.key))
        if plan.refused is not None:
            raise Broken(f"the ledger of {partition} is not rebuilt: {plan.refused}")
        headers = RecordHeaders(
            leader_epoch=plan.leader_epoch,
            expected_previous=NO_PREVIOUS,
            writer=world.services[1].writer,
        )
        for metadata in plan.added:
            world.topics.append(
                Record(
                    topic_partition=LEDGER,
                    key=LedgerKey.of(metadata.segment_id).encode(),
                    value=encode_record_value(metadata),
                    headers=tuple(headers.encode()),
                )
            )
            world.happened("segment rebuilt", str(metadata.segment_id.id))


def _stored(world: "World") -> Iterator[StoredSegment]:
    """Every segment with a manifest."""
    for name, data in sorted(world.store.objects.items()):
        if name.endswith(ObjectKind.MANIFEST.value):
            manifest = Manifest.parse(data, name)
            yield StoredSegment(
                metadata=decode_value(manifest.segment_metadata),
                remote_log_start_offset=manifest.remote_log_start_offset,
                broken="" if world.watch.whole(name) else "an object is missing",
            )


def _known(world: "World", key: PartitionKey) -> KnownPartition:
    records, view = world.topics.records, SettingsView()
    state = replayed(records.get(LEDGER, [])).partitions.get(key)
    for one in records.get(SETTINGS, []):
        view.apply(key=one.key, value=one.value, offset=one.offset, headers=one.headers)
    return KnownPartition(
        ledger=PartitionLedger.of(key, state) if state else PartitionLedger.empty(key),
        is_topic_known=view.topic(key.topic_id) is not None,
        remote_log_start_offset=view.remote_log_start(key),
        remote_log_start_epoch=view.remote_log_start_epoch(key),
        holes=view.holes(key),
    )
