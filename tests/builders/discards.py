"""The discard of a partition's remote part over a rig's fakes."""

from rlm.remote_log.snapshots import Snapshots
from rlm.tasks.discard import DiscardTask
from rlm.tasks.partition_end import PartitionEnd
from rlm.topics.discards import Discards
from tests.builders.rig import NODE_ID, Rig

DELAY_MS = 86_400_000


def discard_task(rig: Rig, snapshots: Snapshots | None = None) -> DiscardTask:
    return DiscardTask(
        snapshots=snapshots or rig.snapshots,
        ledger=rig.ledger,
        settings=rig.settings,
        starts=rig.starts,
        partition_end=PartitionEnd(
            ledger=rig.ledger,
            settings=rig.settings,
            deleter=rig.deleter,
            audit=rig.audit,
            clock=rig.clock,
            node_id=NODE_ID,
            barrier_deadline_ms=1_000,
        ),
        audit=rig.audit,
        clock=rig.clock,
        time=rig.time,
        barrier_deadline_ms=1_000,
    )


def discards(rig: Rig, task: DiscardTask) -> Discards:
    return Discards(
        snapshot=lambda _: rig.snapshots.take(rig.led),
        ledger=rig.ledger,
        settings=rig.settings,
        unmark=lambda key: rig.ledger.tombstone_partition_delete(key, 0),
        lock=task.lock,
        clock=rig.clock,
        delay_ms=DELAY_MS,
        barrier_deadline_ms=1_000,
    )
