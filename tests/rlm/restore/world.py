"""A source in memory, what its readers see, and restores of it into a model of Kafka."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kafka_clients.channel_security import plaintext
from kip405.batches import batch_headers
from kip405.indexes import AbortedTransaction
from kip405.records import Record, records
from rlm.download.sources import StoreSource
from rlm.download.verified import VerifiedReads
from rlm.restore.brokers import Brokers
from rlm.restore.run import PartitionReport, Restore, Restored, Wanted
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import TOPIC
from tests.builders.rig import Rig
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import batch, control_batch
from tests.rlm.download.stored import put
from tests.rlm.restore.kafka_model import KafkaModel

NEW = "orders-again"
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def row_of(record: Record) -> Row:
    """What must be equal: everything but the offset."""
    return record.timestamp_ms, record.key, record.value, record.headers


def rows_of(log: bytes) -> list[Row]:
    """All records of batches."""
    return [
        row_of(record)
        for position, header in batch_headers(log)
        if not header.is_control
        for record in records(log, position)
    ]


class World:
    """`expected` has what a restore must give, by partition."""

    def __init__(self, path: Path, kafka: KafkaModel) -> None:
        self.rig = Rig(path)
        self.kafka = kafka
        self.expected: dict[int, list[Row]] = {}
        self.reports: list[PartitionReport] = []
        self.running: Restore | None = None
        self.clock = ManualClock()
        self._segments = 0

    def put(
        self,
        log: bytes,
        *,
        partition: int = 0,
        aborted: Sequence[AbortedTransaction] = (),
        hidden: Sequence[bytes] = (),
        epochs: dict[int, int] | None = None,
    ) -> None:
        """One more segment; the records of the batches `hidden` are not expected."""
        self._segments += 1
        into = replace(PARTITION, partition=partition)
        put(self.rig, self._segments, log, epochs or {0: 0}, into, aborted)
        gone = [row for one in hidden for row in rows_of(one)]
        rows = self.expected.setdefault(partition, [])
        rows += [row for row in rows_of(log) if row not in gone]

    def fill(self) -> None:
        """Two segments; an aborted transaction lies over their border, a committed one does not."""
        first, second = (
            batch(at, 3, transactional=True, producer_id=7, value=b"aborted") for at in (4, 14)
        )
        kept = batch(7, 4, transactional=True, producer_id=8, value=b"kept", first_ms=-1)
        over = AbortedTransaction(7, 4, 17)
        log = batch(0, 4) + first + kept + control_batch(11, 1, producer_id=8)
        self.put(log, aborted=[over], hidden=[first])
        log = batch(12, 2, compression=3) + second + control_batch(17, 0) + batch(18, 5)
        self.put(log, aborted=[over], hidden=[second])

    async def restore(
        self, *, portion_bytes: int = 1, accepted: Sequence[str] = (), **wanted: object
    ) -> Restored:
        """One `rlm restore`: everything of it is new but for what Kafka has."""
        clock = self.clock = ManualClock()
        brokers = Brokers(
            [self.kafka.address], client_id="tests", security=plaintext(), clock=clock
        )
        source = StoreSource(self.rig.store, threads=THREADS, accepted=accepted)
        work = self.running = Restore(
            VerifiedReads(source, clock=clock, threads=THREADS),
            brokers,
            clock=clock,
            threads=THREADS,
            report=self.reports.append,
            portion_bytes=portion_bytes,
        )
        try:
            return await work.run(Wanted(topic=TOPIC, to_topic=NEW, **wanted))  # type: ignore[arg-type]
        finally:
            await brokers.close()

    def restored(self, partition: int = 0) -> list[Row]:
        """What a reader of the target with read_committed gets."""
        return [row_of(one) for one in self.kafka.logs[NEW, partition].committed()]
