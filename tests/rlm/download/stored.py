"""A partition that the project's own copier copied, in memory and as a folder of objects."""

from collections.abc import Sequence
from pathlib import Path

from kip405.batches import batch_headers
from kip405.checkpoints import encode_leader_epochs
from kip405.contracts import IndexType
from kip405.crc import crc32c
from kip405.errors import Unavailable
from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import (
    AbortedTransaction,
    ChunkChecksums,
    build_indexes_object,
    encode_aborted,
)
from kip405.segments import (
    ByteRange,
    CustomMetadata,
    EpochEntry,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from rlm.download.plan import PartitionPlan, Piece
from rlm.download.run import Download, Progress
from rlm.download.sources import StoreSource
from rlm.remote_log.objects import RemoteLogs
from rlmm.ledger_values import encode_value
from rsm_plugins.layout.keys import ObjectKind, object_names
from rsm_plugins.layout.manifest import Manifest, ManifestObject, build_manifest
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.builders.remote_segment import indexes_of
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.builders.threads import THREADS

CHUNK_BYTES = 1 << 20


async def copied(path: Path, *bases: int, end: int) -> Rig:
    """A rig whose closed segments are all copied."""
    rig = Rig(path)
    rig.write_log(*bases, end=end)
    await rig.copy.run(rig.led)
    return rig


async def grow(rig: Rig, base: int, next_offset: int, *, end: int) -> None:
    """The segment that was active is closed and copied; the log goes on to `end`."""
    rig.disk.segment(base, next_offset)
    rig.disk.active(next_offset, end)
    rig.broker.ends_at(end)
    rig.log_dir.recovery_point(TOPIC, PARTITION.partition, end)
    await rig.copy.run(rig.led)


def put(
    rig: Rig,
    number: int,
    log: bytes,
    epochs: dict[int, int],
    partition: TopicIdPartition = PARTITION,
    aborted: Sequence[AbortedTransaction] = (),
    *,
    stored: dict[int, int] | None = None,
    store_id: Uuid = STORE_ID,
) -> None:
    """A finished segment of whole batches, stored with its manifest as a copier would. `stored`:
    the leader's lineage to its end, if that has more than the segment's own epochs.
    """
    headers = [header for _, header in batch_headers(log)]
    lineage, merged = (
        tuple(EpochEntry(epoch=epoch, start_offset=at) for epoch, at in one.items())
        for one in (epochs, stored or epochs)
    )
    indexes = _indexes_object(log, headers[0].base_offset, merged, aborted)
    custom = CustomMetadata(
        store_id=store_id,
        indexes_size_bytes=len(indexes),
        log_crc32c=crc32c(log),
        indexes_crc32c=crc32c(indexes),
    )
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            topic_id_partition=partition, id=Uuid(number.to_bytes(16, "big"))
        ),
        start_offset=headers[0].base_offset,
        end_offset=headers[-1].last_offset,
        broker_id=1,
        max_timestamp_ms=headers[-1].max_timestamp_ms,
        event_timestamp_ms=0,
        segment_leader_epochs=lineage,
        segment_size_bytes=len(log),
        custom_metadata=custom.encode(),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    locator = metadata.locator(CLUSTER_ID)
    names = object_names(locator)
    rig.store.objects[names[ObjectKind.LOG]] = log
    rig.store.objects[names[ObjectKind.INDEXES]] = indexes
    manifest = Manifest(
        cluster_id=CLUSTER_ID,
        store_id=store_id,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=metadata.segment_id.id,
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        remote_log_start_offset=0,
        layout="kafka",
        software="tests",
        objects=tuple(
            ManifestObject(name=names[kind], size_bytes=len(data), crc32c=crc32c(data))
            for kind, data in ((ObjectKind.LOG, log), (ObjectKind.INDEXES, indexes))
        ),
        segment_metadata=encode_value(metadata),
    )
    rig.store.objects[names[ObjectKind.MANIFEST]] = build_manifest(manifest)


def _indexes_object(
    log: bytes,
    base_offset: int,
    lineage: tuple[EpochEntry, ...],
    aborted: Sequence[AbortedTransaction],
) -> bytes:
    offsets, times = indexes_of(log, base_offset, every=2)
    return build_indexes_object(
        {
            IndexType.OFFSET: offsets,
            IndexType.TIMESTAMP: times,
            IndexType.PRODUCER_SNAPSHOT: b"",
            IndexType.LEADER_EPOCH: encode_leader_epochs(lineage),
            IndexType.ABORTED_TRANSACTIONS: encode_aborted(aborted),
            IndexType.CHUNK_CHECKSUMS: ChunkChecksums(
                chunk_size_bytes=CHUNK_BYTES,
                crcs=tuple(
                    crc32c(log[at : at + CHUNK_BYTES]) for at in range(0, len(log), CHUNK_BYTES)
                ),
            ).encode(),
        }
    )


def remote_logs(rig: Rig) -> RemoteLogs:
    """What a service over the rig answers."""

    def known(key: PartitionKey) -> object:
        return rig.led if key == PARTITION.key else None

    return RemoteLogs(
        cluster_id=CLUSTER_ID,
        known=known,  # type: ignore[arg-type]  # a LedPartition or None
        snapshots=rig.snapshots,
        ledgers=rig.ledger,
        store=rig.store,
        threads=THREADS,
    )


class BreakingSource(StoreSource):
    """Fails every read of the log after `reads` of them, once `breaks` is set."""

    reads = 0
    breaks_after: int | None = None

    async def read_log(self, plan: PartitionPlan, piece: Piece, wanted: ByteRange) -> bytes:
        self.reads += 1
        if self.breaks_after is not None and self.reads > self.breaks_after:
            raise Unavailable("the store is away")
        return await super().read_log(plan, piece, wanted)


class Work:
    """Downloads of one rig into one directory."""

    def __init__(self, rig: Rig, root: Path, accepted: Sequence[str] = ()) -> None:
        self.source = BreakingSource(rig.store, threads=THREADS, accepted=accepted)
        self.root = root
        self.folder = root / f"{TOPIC}-0"
        self.reports: list[Progress] = []
        self._clock = ManualClock()

    async def run(self) -> list[PartitionPlan]:
        work = Download(
            self.source,
            self.root,
            clock=self._clock,
            threads=THREADS,
            report=self.reports.append,
        )
        return list(await work.run(TOPIC, None))

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}
