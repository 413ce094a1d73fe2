"""`python -m bench.ledger`: the ledger of one process at a million segments.

Measured are memory (growth of the resident set, after a garbage collection), records a second of
the replay (processor time of `manager.apply`, two records a segment: STARTED, FINISHED), lookups by
offset, and a record more of a partition with very many segments: the next view and its cover. The
records are written to a file once (`--records`); `bench.ledger_native` reads the same file.
"""

import gc
import json
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import psutil

from bench.command import measure, parser, say
from bench.machine import commit, load_in_words, machine_in_words
from kip405.ids import (
    MAX_OFFSET,
    PartitionKey,
    RemoteLogSegmentId,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from kip405.lineage import Lineage
from kip405.segments import CustomMetadata, EpochEntry, RemoteLogSegmentMetadata
from kip405.segments import RemoteLogSegmentState as State
from rlmm.ledger_values import encode_value
from rlmm.log_reader import TailRecord
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.records import NO_PREVIOUS, LedgerKey, RecordHeaders, ledger_partition
from rlmm.topic import LEDGER_TOPIC

_FRAME = struct.Struct(">b36sI")
"""Expected previous state, key, and size of the value that follows."""
RECORDS_A_SEGMENT = 1_000
_BATCH = 20_000
_SEED = 12
_TOPIC_ID = Uuid(b"topic-of-a-bench")
_WRITER = Uuid(b"writer-of-bench-")
_STORE = Uuid(b"store-of-a-bench")
_LINEAGE = Lineage((EpochEntry(epoch=3, start_offset=0),))


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(topic_id=_TOPIC_ID, topic="bench", partition=number)


def segment(number: int, at: int, segment_id: Uuid, state: State) -> RemoteLogSegmentMetadata:
    """Segment `at` of a partition."""
    custom = CustomMetadata(store_id=_STORE, indexes_size_bytes=70_000, log_crc32c=at + 1)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(topic_id_partition=partition(number), id=segment_id),
        start_offset=at * RECORDS_A_SEGMENT,
        end_offset=(at + 1) * RECORDS_A_SEGMENT - 1,
        broker_id=1,
        max_timestamp_ms=1_790_000_000_000 + at,
        event_timestamp_ms=1_790_000_000_000 + at,
        segment_leader_epochs=(EpochEntry(epoch=3, start_offset=at * RECORDS_A_SEGMENT),),
        segment_size_bytes=512 << 20,
        custom_metadata=custom.encode(),
        state=state,
    )


def write_records(path: Path, partitions: int, segments: int) -> None:
    """Two records of every segment, partition by partition for each segment in turn."""
    draw = random.Random(_SEED)
    with path.open("wb") as out:
        for at in range(segments):
            for number in range(partitions):
                segment_id = Uuid(draw.randbytes(16))
                key = LedgerKey(partition=partition(number).key, segment_id=segment_id).encode()
                for previous, state in (
                    (NO_PREVIOUS, State.COPY_SEGMENT_STARTED),
                    (0, State.COPY_SEGMENT_FINISHED),
                ):
                    value = encode_value(segment(number, at, segment_id, state))
                    out.write(_FRAME.pack(previous, key, len(value)) + value)


class _Log:
    """The manager registers itself; the bench feeds it."""

    def register(self, topic: str, sink: object) -> None:
        del topic, sink


class Feeder:
    """A manager, and the records that were not yet given to it."""

    def __init__(self) -> None:
        log = cast(Any, _Log())
        self.manager = TopicBasedRemoteLogMetadataManager(
            log=log, writer=_WRITER, publish_timeout_ms=1
        )
        self.next_offset: dict[int, int] = {}
        self._headers = {
            previous: tuple(
                RecordHeaders(leader_epoch=3, expected_previous=previous, writer=_WRITER).encode()
            )
            for previous in (NO_PREVIOUS, 0)
        }

    def record(self, previous: int, key: bytes, value: bytes) -> TailRecord:
        """As the tail delivers it: the bytes of every record are its own."""
        topic_partition = TopicPartition(
            LEDGER_TOPIC, ledger_partition(LedgerKey.decode(key).partition)
        )
        offset = self.next_offset.get(topic_partition.partition, 0)
        self.next_offset[topic_partition.partition] = offset + 1
        return TailRecord(
            topic_partition=topic_partition,
            offset=offset,
            timestamp_ms=1_790_000_000_000,
            key=key,
            value=value,
            headers=tuple((name, bytes(bytearray(data))) for name, data in self._headers[previous]),
        )

    def feed(self, records: Sequence[TailRecord]) -> float:
        """Seconds of processor time that the manager took."""
        began = time.process_time()
        for record in records:
            self.manager.apply(record)
        return time.process_time() - began

    def feed_file(self, path: Path) -> tuple[int, float]:
        """All records of the file: how many, and processor time in seconds."""
        batch: list[TailRecord] = []
        count, took_s = 0, 0.0
        for one in _read(path):
            batch.append(self.record(*one))
            if len(batch) == _BATCH:
                took_s += self.feed(batch)
                count += len(batch)
                batch = []
        return count + len(batch), took_s + self.feed(batch)

    def add(self, number: int, at: int, segment_id: Uuid) -> None:
        """One FINISHED segment more."""
        found = segment(number, at, segment_id, State.COPY_SEGMENT_FINISHED)
        self.feed(
            [self.record(NO_PREVIOUS, LedgerKey.of(found.segment_id).encode(), encode_value(found))]
        )

    def lookup(self, key: PartitionKey, offset: int) -> int:
        """Start offset of the segment that a fetch at the offset reads."""
        found = self.manager.ledger(key).usable_segment_for(_LINEAGE, MAX_OFFSET, offset)
        if found is None:
            raise AssertionError(f"no segment of {key} holds offset {offset}")
        return found.metadata.start_offset


def _read(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    with path.open("rb") as source:
        while head := source.read(_FRAME.size):
            previous, key, size = _FRAME.unpack(head)
            yield previous, key, source.read(size)


def _rss_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _quantiles_us(work: Callable[[], object], times: int) -> dict[str, float]:
    wall, processor = [], []
    for _ in range(times):
        began, cpu_began = time.perf_counter_ns(), time.thread_time_ns()
        work()
        processor.append((time.thread_time_ns() - cpu_began) / 1_000)
        wall.append((time.perf_counter_ns() - began) / 1_000)
    cut, cpu_cut = statistics.quantiles(wall, n=100), statistics.quantiles(processor, n=100)
    return {
        "p50": round(cut[49], 2),
        "p99": round(cut[98], 2),
        "cpu_p50": round(cpu_cut[49], 2),
        "cpu_p99": round(cpu_cut[98], 2),
    }


def many_partitions(path: Path, partitions: int, segments: int, lookups: int) -> dict[str, Any]:
    """Memory, replay and lookups of so many partitions with so many segments each."""
    count, before = partitions * segments, _rss_bytes()
    feeder = Feeder()
    records, took_s = feeder.feed_file(path)
    replayed = _rss_bytes()
    keys = [partition(number).key for number in range(partitions)]
    began = time.process_time()
    for key in keys:
        feeder.lookup(key, 0)
    covers_s = time.process_time() - began
    covered = _rss_bytes()
    draw = random.Random(_SEED)

    def look() -> None:
        feeder.lookup(draw.choice(keys), draw.randrange(segments * RECORDS_A_SEGMENT))

    found = _quantiles_us(look, lookups)
    looked = _rss_bytes()
    return {
        "segments": count,
        "partitions": partitions,
        "records": records,
        "replay_cpu_s": round(took_s, 2),
        "records_per_cpu_s": round(records / took_s),
        "bytes_per_segment_replayed": round((replayed - before) / count),
        "first_cover_of_all_cpu_s": round(covers_s, 2),
        "bytes_per_segment_with_covers": round((covered - before) / count),
        "bytes_per_segment_after_lookups": round((looked - before) / count),
        "lookup_us": found,
    }


def one_partition(segments: int, lookups: int, changes: int) -> dict[str, Any]:
    """A partition with so many segments, and what another record of it costs the next look."""
    feeder, draw, key = Feeder(), random.Random(_SEED), partition(0).key
    for at in range(segments):
        feeder.add(0, at, Uuid(draw.randbytes(16)))
    feeder.lookup(key, 0)
    found = _quantiles_us(
        lambda: feeder.lookup(key, draw.randrange(segments * RECORDS_A_SEGMENT)), lookups
    )
    views, covers, totals = [], [], []
    for at in range(segments, segments + changes):
        feeder.add(0, at, Uuid(draw.randbytes(16)))
        began = time.perf_counter_ns()
        view = feeder.manager.ledger(key)
        viewed = time.perf_counter_ns()
        view.usable_segment_for(_LINEAGE, MAX_OFFSET, at * RECORDS_A_SEGMENT)
        covered = time.perf_counter_ns()
        assert view.finished_total.segments == at + 1
        assert view.remote_lineage == _LINEAGE
        views.append((viewed - began) / 1e6)
        covers.append((covered - viewed) / 1e6)
        totals.append((time.perf_counter_ns() - covered) / 1e6)
    return {
        "segments": segments,
        "lookup_us": found,
        "view_ms": [round(one, 4) for one in views],
        "cover_and_lookup_ms": [round(one, 4) for one in covers],
        "total_and_lineage_ms": [round(one, 4) for one in totals],
    }


def _lines(many: dict[str, Any], one: dict[str, Any]) -> list[str]:
    view, cover, total = (
        statistics.median(one[name])
        for name in ("view_ms", "cover_and_lookup_ms", "total_and_lineage_ms")
    )
    return [
        f"{many['segments']} segments of {many['partitions']} partitions: "
        f"{many['records_per_cpu_s']} records/s, {many['bytes_per_segment_replayed']} bytes a "
        f"segment, {many['bytes_per_segment_after_lookups']} with covers and after lookups, "
        f"lookup p50 / p99 {many['lookup_us']['p50']} / {many['lookup_us']['p99']} us",
        f"{one['segments']} segments of one partition: lookup p99 {one['lookup_us']['p99']} us; "
        f"after a record: view {view} ms, cover {cover} ms, total and lineage {total} ms",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.ledger", __doc__)
    made.add_argument("--records", help="file of records; written where it is not there")
    made.add_argument("--partitions", type=int, help="default 10000")
    given = made.parse_args(arguments)
    partitions = given.partitions or (100 if given.quick else 10_000)
    segments, in_one = (20, 1_000) if given.quick else (100, 25_000)

    def run() -> tuple[list[str], dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(given.records or f"{folder}/records")
            if not path.exists():
                write_records(path, partitions, segments)
            many = many_partitions(path, partitions, segments, 1_000 if given.quick else 200_000)
        one = one_partition(in_one, 1_000 if given.quick else 100_000, 5 if given.quick else 25)
        result = {"many_partitions": many, "one_partition": one}
        say(json.dumps(result))
        about = {"commit": commit(), "machine": machine_in_words(), "load": load_in_words()}
        return _lines(many, one), {**about, **result}

    return measure(given, "ledger", run)


if __name__ == "__main__":
    raise SystemExit(main())
