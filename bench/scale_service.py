"""A whole service over a ledger of many partitions, without servers: what bench/scale.py measures.

All components are those of `rlm serve`; only what they read from broker and disk is set here.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from kip405.ids import PartitionKey, RemoteLogSegmentId, TopicIdPartition, TopicPartition, Uuid
from kip405.lineage import Lineage
from kip405.segments import EpochEntry, RemoteLogSegmentMetadata, RemoteLogSegmentState
from rlm.broker.answers import PartitionDescription, TopicDescription
from rlm.broker.leadership import LedPartition, Snapshot, partitions_of
from rlm.clock import SystemClock
from rlm.config.loader import from_mapping
from rlm.log_dir.scanner import Closed, LocalSegment, PartitionLog
from rlm.plans.copy import TopicState, WhyNot
from rlm.plans.expiry import Held, NoExpiry
from rlm.plans.trim import NoTrim
from rlm.remote_log.snapshots import PartitionSnapshot, TopicSnapshot
from rlm.remote_log.tier import Watermarks
from rlm.service.broker_service import BrokerService
from rlm.service.threads import service_threads
from rlm.tasks.cleanup import CleanupStatus
from rlm.tasks.copy import CopyStatus
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.trim import TrimStatus
from rlm.v1 import admin_pb2
from rlmm.log_reader import TailRecord
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.records import LedgerKey, RecordHeaders, encode_record_value, ledger_partition
from rlmm.settings_codec import encode_settings_record
from rlmm.settings_records import SettingsRecord, Stamp, StartRecord, TopicRecord, TotalRetention
from rlmm.topic import LEDGER_TOPIC, SETTINGS_TOPIC

NODE_ID = 1
SEGMENTS = 100
RECORDS = 1_000
SIZE_BYTES = 64 << 20
DAY_MS = 86_400_000
EPOCHS = (EpochEntry(epoch=0, start_offset=0),)
TOPIC_ID = Uuid(b"topic-of-a-bench")
_WRITER = Uuid(b"writer-of-bench-")
_TOPIC = "bench"
_LOCAL_SEGMENTS = 3
_ADDRESS = "127.0.0.1:1"


def partition(number: int) -> TopicIdPartition:
    """One partition of the one topic."""
    return TopicIdPartition(topic_id=TOPIC_ID, topic=_TOPIC, partition=number)


def segment(number: int, at: int, now_ms: int) -> RemoteLogSegmentMetadata:
    """The finished segment `at` of a partition; the newest of SEGMENTS is a day old."""
    raw = number.to_bytes(8, "big") + at.to_bytes(8, "big")
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(topic_id_partition=partition(number), id=Uuid(raw)),
        start_offset=at * RECORDS,
        end_offset=(at + 1) * RECORDS - 1,
        broker_id=NODE_ID,
        max_timestamp_ms=now_ms - (SEGMENTS - at) * DAY_MS,
        event_timestamp_ms=now_ms,
        segment_leader_epochs=(EpochEntry(epoch=0, start_offset=at * RECORDS),),
        segment_size_bytes=SIZE_BYTES,
        custom_metadata=None,
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )


class Ledger:
    """Feeds a manager the encoded records of so many partitions; `add` is one more segment."""

    def __init__(self, manager: TopicBasedRemoteLogMetadataManager, partitions: int) -> None:
        self.manager = manager
        self._next_offset: dict[int, int] = {}
        self._now_ms = SystemClock().now_ms()
        for number in range(partitions):
            for at in range(SEGMENTS):
                self.add(number, at)

    def add(self, number: int, at: int) -> None:
        """One record, as it was read from the topic."""
        metadata = segment(number, at, self._now_ms)
        ledger = ledger_partition(metadata.topic_id_partition.key)
        offset = self._next_offset.get(ledger, 0)
        self._next_offset[ledger] = offset + 1
        headers = RecordHeaders(leader_epoch=0, expected_previous=-1, writer=_WRITER)
        self.manager.apply(
            TailRecord(
                topic_partition=TopicPartition(LEDGER_TOPIC, ledger),
                offset=offset,
                timestamp_ms=self._now_ms,
                key=LedgerKey.of(metadata.segment_id).encode(),
                value=encode_record_value(metadata),
                headers=tuple(headers.encode()),
            )
        )


def local_log(number: int) -> PartitionLog:
    """A partition directory whose closed segments are remote."""
    end, now_ms = SEGMENTS * RECORDS, SystemClock().now_ms()
    bases = [end - (_LOCAL_SEGMENTS - 1 - at) * RECORDS for at in range(_LOCAL_SEGMENTS)]
    return PartitionLog(
        topic=_TOPIC,
        partition=number,
        topic_id=TOPIC_ID,
        directory=f"/logs/{_TOPIC}-{number}",
        segments=tuple(
            LocalSegment(
                base_offset=base,
                next_offset=None if base == end else base + RECORDS,
                closed=Closed.ACTIVE if base == end else Closed.CLOSED,
                size_bytes=SIZE_BYTES,
                inode=base,
                path=f"/logs/{_TOPIC}-{number}/{base:020}.log",
                max_timestamp_ms=now_ms,
            )
            for base in bases
        ),
        lineage=Lineage(EPOCHS),
        recovery_point=None,
    )


class Service:
    """`rlm serve` that leads so many partitions, after each of their tasks has run once."""

    def __init__(self, service: BrokerService, partitions: int) -> None:
        self._service = service
        self._dependencies = service._dependencies
        self._partitions = partitions
        self.ledger = Ledger(self._dependencies.metadata.manager, partitions)

    def lead(self) -> None:
        """Sets what tasks and polls would have found. Not part of what reading the ledger costs."""
        settings = self._dependencies.metadata.settings
        records: list[SettingsRecord] = [_topic_record()]
        records += map(_start_record, range(self._partitions))
        for offset, record in enumerate(records):
            key, value = encode_settings_record(record, _stamp())
            settings.apply(
                TailRecord(
                    topic_partition=TopicPartition(SETTINGS_TOPIC, 0),
                    offset=offset,
                    timestamp_ms=SystemClock().now_ms(),
                    key=key,
                    value=value,
                    headers=(),
                )
            )
        self.poll()
        cast(Any, self._dependencies.broker).topics = _answering(_described(self._partitions))
        for row in self.rows():
            self._ran(row)

    def poll(self) -> None:
        """The next answer of the broker about what it leads; it arrives every second."""
        leadership, described = self._dependencies.leadership, _described(self._partitions)
        leadership.snapshot = Snapshot(
            taken_at_ms=SystemClock().monotonic_ms(),
            asked=frozenset({_TOPIC}),
            topics={_TOPIC: described},
            partitions=partitions_of([described], leadership.snapshot.partitions),
        )

    def _ran(self, row: LedPartition) -> None:
        tasks, cache = self._service._tasks.partition_tasks, self._dependencies.snapshots
        verify = self._service._tasks.verify.watch
        verify._known[row.key] = verify._first(row)
        snapshot = self.snapshot(row)
        cache._snapshots[row.key] = snapshot
        tasks.copy._statuses[row.key] = _copy_status(snapshot)
        tasks.trim._statuses[row.key] = TrimStatus(
            leader_epoch=0,
            reason=NoTrim.WITHIN_RETENTION.value,
            detail="",
            local_log_start_offset=0,
        )
        tasks.expiry._statuses[row.key] = ExpiryStatus(held=Held(reason=NoExpiry.WITHIN_RETENTION))
        tasks.cleanup._statuses[row.key] = CleanupStatus(refused=None, leftovers=0)

    def snapshot(self, row: LedPartition) -> PartitionSnapshot:
        """What a task would see of the partition."""
        key, log = row.key, local_log(row.key.partition)
        end = SEGMENTS * RECORDS + RECORDS
        return PartitionSnapshot(
            led=row,
            topic=TopicSnapshot(
                record=self._dependencies.metadata.settings.view.topic(key.topic_id),
                state=TopicState(
                    enabled=True, internal=False, cleanup_policy="delete", native_tiering=False
                ),
                retention_bounded=None,
                broker_retention=TotalRetention(retention_ms=-1, retention_bytes=-1),
            ),
            watermarks=Watermarks(
                log_start_offset=log.segments[0].base_offset,
                last_stable_offset=end,
                high_watermark=end,
            ),
            log_end_offset=end,
            log=log,
            ledger=self._dependencies.metadata.manager.ledger(key),
            lineage=Lineage(EPOCHS),
            remote_log_start_offset=0,
            frozen=None,
        )

    def rows(self) -> tuple[LedPartition, ...]:
        """All partitions."""
        return self._dependencies.leadership.snapshot.led_by(NODE_ID)

    def metrics(self) -> bytes:
        """The body of /metrics."""
        return self._service._listening._http._metrics()

    async def status(self) -> bytes:
        """The answer to Admin.Status, as it goes over the wire."""
        admin = cast(Any, self._service._listening._admin)
        asked = admin_pb2.StatusRequest()
        found: bytes = await admin._dependencies.status.whole(asked, "User:bench")
        return found


def _topic_record() -> TopicRecord:
    return TopicRecord(
        topic_id=TOPIC_ID,
        name=_TOPIC,
        mode="tier",
        state="enabled",
        trim=True,
        retention_ms=90 * DAY_MS,
        retention_bytes=-1,
        local_retention_ms=DAY_MS,
        local_retention_bytes=-1,
        originals={"retention.ms": None, "retention.bytes": None},
    )


def _start_record(number: int) -> StartRecord:
    return StartRecord(
        partition=PartitionKey(TOPIC_ID, number), remote_log_start_offset=0, cause="enable"
    )


def _stamp() -> Stamp:
    return Stamp(node_id=NODE_ID, leader_epoch=0, writer=_WRITER, time_ms=SystemClock().now_ms())


def _described(partitions: int) -> TopicDescription:
    rows = {
        number: PartitionDescription(
            partition=number, leader=NODE_ID, leader_epoch=0, replicas=(NODE_ID,), isr=(NODE_ID,)
        )
        for number in range(partitions)
    }
    return TopicDescription(name=_TOPIC, topic_id=TOPIC_ID, internal=False, partitions=rows)


def _answering(described: TopicDescription) -> Any:
    async def topics(_names: object = None) -> tuple[TopicDescription, ...]:
        return (described,)

    return topics


def _copy_status(snapshot: PartitionSnapshot) -> CopyStatus:
    return CopyStatus(
        topic=_TOPIC,
        partition=snapshot.key.partition,
        leader_epoch=snapshot.led.leader_epoch,
        reason=WhyNot.CAUGHT_UP.value,
        detail="",
        frozen=None,
        copied_next_offset=SEGMENTS * RECORDS,
        log_start_offset=snapshot.watermarks.log_start_offset,
        last_stable_offset=snapshot.watermarks.last_stable_offset,
        high_watermark=snapshot.watermarks.high_watermark,
        pending_segments=0,
        pending_bytes=0,
        lag_segments=0,
        lag_bytes=0,
        measured_at_ms=SystemClock().monotonic_ms() + DAY_MS,  # stays known while it is measured
        behind_since_ms=None,
    )


@asynccontextmanager
async def service_of(partitions: int) -> AsyncIterator[Service]:
    """A service that has read its ledger, and leads nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        config = from_mapping(
            {
                "cluster.id": "bench",
                "node.id": NODE_ID,
                "state.dir": str(Path(folder)),
                "log.dirs": [folder],
                "kafka.bootstrap.servers": _ADDRESS,
                "broker.direct.address": _ADDRESS,
                "broker.tiered.address": _ADDRESS,
                "proxy.listen": _ADDRESS,
                "proxy.advertised": "bench:9092",
                "grpc.listen": _ADDRESS,
                "http.listen": _ADDRESS,
                "plugin.address": _ADDRESS,
            }
        )
        with service_threads(config) as threads:
            async with asyncio.TaskGroup() as tasks:
                made = BrokerService(config, SystemClock(), tasks, threads, lambda: config)
                try:
                    yield Service(made, partitions)
                finally:
                    await made.close()
