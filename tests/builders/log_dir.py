"""A broker's log directory on disk, as Kafka writes it, for tests of scanner and tasks."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from kip405.checkpoints import encode_leader_epochs
from kip405.ids import Uuid
from kip405.indexes import AbortedTransaction, TransactionIndexEntry, encode_transaction_index
from kip405.segments import EpochEntry
from tests.kip405.batch_builder import batch

TOPIC = "orders"
TOPIC_ID = Uuid(bytes(range(16)))
CLUSTER_ID = "cluster-of-tests"
RECORDS_IN_BATCH = 10
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint")


class LogDir:
    """One log.dir with meta.properties, empty at first."""

    def __init__(self, path: Path, *, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        )
        for name in _CHECKPOINTS:
            (path / name).touch()  # a broker makes them when it starts, and writes them later

    def cleaned_up_to(self, topic: str, partition: int, offset: int) -> None:
        """What the log cleaner says it has worked on."""
        text = f"0\n1\n{topic} {partition} {offset}\n"
        (self.path / "cleaner-offset-checkpoint").write_text(text)

    def partition(
        self, topic: str = TOPIC, partition: int = 0, topic_id: Uuid | None = TOPIC_ID
    ) -> "PartitionDir":
        return PartitionDir(self, topic, partition, topic_id)

    def recovery_point(self, topic: str, partition: int, offset: int) -> None:
        text = f"0\n1\n{topic} {partition} {offset}\n"
        (self.path / "recovery-point-offset-checkpoint").write_text(text)


class PartitionDir:
    """One partition directory; `segment` adds closed segments, `active` the last one."""

    def __init__(self, log_dir: LogDir, topic: str, partition: int, topic_id: Uuid | None) -> None:
        self.path = log_dir.path / f"{topic}-{partition}"
        self.path.mkdir()
        if topic_id is not None:
            (self.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        self.epochs({0: 0})

    def epochs(self, starts: dict[int, int]) -> None:
        entries = [EpochEntry(epoch=epoch, start_offset=at) for epoch, at in starts.items()]
        (self.path / "leader-epoch-checkpoint").write_bytes(encode_leader_epochs(entries))

    def file(self, base_offset: int, suffix: str) -> Path:
        return self.path / f"{base_offset:020d}{suffix}"

    def segment(
        self,
        base_offset: int,
        next_offset: int,
        *,
        epoch: int = 0,
        first_ms: int = 1_000,
        fill: bytes = b"value",
        aborted: Sequence[tuple[AbortedTransaction, int]] = (),
        snapshot: bool = True,
    ) -> bytes:
        """A closed segment of batches of 10 records; its bytes. `aborted`: (transaction, LSO)."""
        data = self.log(base_offset, next_offset, epoch=epoch, first_ms=first_ms, fill=fill)
        last_ms = first_ms + next_offset - base_offset - 1
        self.file(base_offset, ".timeindex").write_bytes(
            struct.pack(">qi", last_ms, next_offset - 1 - base_offset)
        )
        if aborted:
            entries = [TransactionIndexEntry(one, stable) for one, stable in aborted]
            self.file(base_offset, ".txnindex").write_bytes(encode_transaction_index(entries))
        if snapshot:
            self.file(next_offset, ".snapshot").write_bytes(b"\x00\x01producers")
        return data

    def empty(self, base_offset: int, next_offset: int) -> None:
        """A closed segment as the log cleaner leaves it where nothing of it is kept."""
        for suffix in (".log", ".index", ".timeindex"):
            self.file(base_offset, suffix).write_bytes(b"")
        os.utime(self.file(base_offset, ".log"), (1, 1))  # the cleaner gives it the records' time
        self.file(next_offset, ".snapshot").write_bytes(b"\x00\x01producers")

    def active(self, base_offset: int, next_offset: int, *, epoch: int = 0) -> bytes:
        """The active segment; indexes are preallocated with zero tails as Kafka does."""
        data = self.log(base_offset, next_offset, epoch=epoch)
        for suffix in (".index", ".timeindex"):
            self.file(base_offset, suffix).write_bytes(bytes(4096))
        return data

    def log(
        self,
        base_offset: int,
        next_offset: int,
        *,
        epoch: int = 0,
        first_ms: int = 1_000,
        fill: bytes = b"value",
    ) -> bytes:
        """Only .log and .index."""
        data, index = bytearray(), bytearray()
        for base in range(base_offset, next_offset, RECORDS_IN_BATCH):
            if data:
                index += struct.pack(">ii", base - base_offset, len(data))
            count = min(RECORDS_IN_BATCH, next_offset - base)
            data += batch(
                base, count, epoch=epoch, first_ms=first_ms + base - base_offset, value=fill
            )
        self.file(base_offset, ".log").write_bytes(data)
        self.file(base_offset, ".index").write_bytes(index)
        return bytes(data)
