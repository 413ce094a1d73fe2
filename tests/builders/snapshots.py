"""A snapshot of a partition that we lead, made of values."""

from kip405.ids import TopicIdPartition
from kip405.lineage import Lineage
from kip405.segments import EpochEntry
from rlm.broker.leadership import LedPartition
from rlm.log_dir.scanner import PartitionLog
from rlm.plans.copy import TopicState
from rlm.remote_log.mirrored import LeaderEpochs
from rlm.remote_log.snapshots import PartitionSnapshot, TopicSnapshot
from rlm.remote_log.tier import Watermarks
from rlmm.ledger import PartitionLedger
from rlmm.settings_records import TotalRetention


def snapshot_of(
    partition: TopicIdPartition,
    *,
    ledger: PartitionLedger,
    lineage: Lineage,
    leader_epoch: int = 0,
    end_offset: int = 0,
) -> PartitionSnapshot:
    """Of an enabled topic whose log is empty; everything below `end_offset` is committed, and one
    record follows.
    """
    return PartitionSnapshot(
        led=LedPartition(
            topic_id_partition=partition,
            leader=1,
            leader_epoch=leader_epoch,
            replicas=(1,),
            isr=(1,),
        ),
        topic=TopicSnapshot(
            record=None,
            state=TopicState(
                enabled=True, internal=False, cleanup_policy="delete", native_tiering=False
            ),
            retention_bounded=None,
            broker_retention=TotalRetention(),
        ),
        watermarks=Watermarks(
            log_start_offset=0, last_stable_offset=end_offset, high_watermark=end_offset
        ),
        log_end_offset=end_offset + 1,
        log=PartitionLog(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=partition.topic_id,
            directory=f"{partition.topic}-{partition.partition}",
            segments=(),
            lineage=lineage,
            recovery_point=None,
        ),
        ledger=ledger,
        lineage=lineage,
        remote_log_start_offset=None,
        frozen=None,
    )


def epochs_from(*starts: tuple[int, int]) -> LeaderEpochs:
    """Of a log up to 200; (leader epoch, its start offset) each."""
    entries = tuple(EpochEntry(epoch=epoch, start_offset=start) for epoch, start in starts)
    return LeaderEpochs(lineage=Lineage(entries), log_end_offset=200, remote_log_start_offset=0)
