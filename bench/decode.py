"""`python -m bench.decode`: record batches into Arrow, both decoders, by record size and codec.

One core, no broker: batches of 64 KiB are made once and decoded from memory, all columns but the
headers, checksums on. Passes are interleaved, so that what else the machine does hits all alike.
The third decoder is a yardstick: aiokafka's compiled records, looped over and thrown away.
"""

import argparse
import dataclasses
import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bench.machine import commit, load_in_words, machine_in_words
from kip405.batches import Compression
from rlm_spark.decode import COLUMNS, arrow_schema, is_compiled, record_batches
from rlm_spark.decode.engine import ENVIRONMENT
from tiered_reads.values import Fetched, OffsetRange, TopicPartition

MIB = 1 << 20
CODECS = (Compression.NONE, Compression.LZ4, Compression.ZSTD)
VALUE_BYTES = (1024, 100)
YARDSTICK = "aiokafka"
DECODERS = ("compiled", "python", YARDSTICK)
# Others decode this share of what the compiled one gets: the figure is per record anyway.
SHARES = {"compiled": 1, "python": 16, YARDSTICK: 4}
BATCH_BYTES = 64 * 1024
PIECE_BYTES = MIB
KEY_BYTES = 16
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One pass over one topic by one decoder."""

    pass_number: int
    value_bytes: int
    codec: str
    decoder: str
    records: int
    seconds: float
    cpu_seconds: float
    """Of this process; what other processes take does not count."""

    @property
    def mrec_s(self) -> float:
        return self.records / self.seconds / 1e6

    @property
    def mrec_cpu_s(self) -> float:
        return self.records / self.cpu_seconds / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)
    decoders = [name for name in DECODERS if name != "compiled" or is_compiled()]
    runs = []
    topics = {
        (size, codec): list(_pieces(size, codec, given.size_mib * MIB))
        for size in VALUE_BYTES
        for codec in CODECS
    }
    for pass_number in range(given.passes):
        for (size, codec), pieces in topics.items():
            for decoder in decoders:
                run = _measure(pass_number, size, codec, decoder, pieces)
                runs.append(run)
    for line in table(runs):
        print(line)
    if given.json:
        result = {
            "machine": machine_in_words(),
            "commit": commit(),
            "load": load_in_words(),
            "size_mib": given.size_mib,
            "runs": [dataclasses.asdict(run) for run in runs],
        }
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.decode", description=__doc__)
    parser.add_argument("--size-mib", type=int, default=64, help="values of each topic")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--json", help="file for every run's raw values")
    return parser


def _pieces(value_bytes: int, codec: Compression, size_bytes: int) -> Iterator[Fetched]:
    """A topic as fetches of about a mebibyte bring it; words, so that codecs have work."""
    rng = random.Random(value_bytes)
    words = [rng.randbytes(rng.randrange(2, 9)).hex().encode() for _ in range(4096)]
    offset, batches = 0, bytearray()
    while offset * value_bytes < size_bytes:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, 0, 1 << 30)
        for index in range(max(1, BATCH_BYTES // (value_bytes + KEY_BYTES + 10))):
            value = b" ".join(rng.choices(words, k=value_bytes // 8 + 2))[:value_bytes]
            builder.append(
                index, FIRST_MS + offset + index, b"%016d" % rng.randrange(10**9), value, []
            )
        batch = bytearray(builder.build())
        batch[:8] = offset.to_bytes(8, "big")
        offset += index + 1
        batches += batch
        if len(batches) >= PIECE_BYTES:
            yield Fetched(batches=bytes(batches), next_offset=offset)
            batches.clear()
    if batches:
        yield Fetched(batches=bytes(batches), next_offset=offset)


def _measure(
    pass_number: int, value_bytes: int, codec: Compression, decoder: str, pieces: list[Fetched]
) -> Run:
    pieces = pieces[: max(1, len(pieces) // SHARES[decoder])]
    start, start_cpu = time.perf_counter(), time.process_time()
    records = _iterated(pieces) if decoder == YARDSTICK else _decoded(pieces, decoder)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    assert records == pieces[-1].next_offset
    return Run(
        pass_number=pass_number,
        value_bytes=value_bytes,
        codec=codec.name.lower(),
        decoder=decoder,
        records=records,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
    )


def _decoded(pieces: list[Fetched], decoder: str) -> int:
    os.environ[ENVIRONMENT] = decoder
    schema = arrow_schema([name for name in COLUMNS if name != "headers"])
    wanted = OffsetRange(
        topic_partition=TopicPartition("bench", 0), start_offset=0, end_offset=1 << 40
    )
    batches = record_batches(pieces, wanted, schema, read_committed=True)
    return sum(batch.num_rows for batch in batches)


def _iterated(pieces: list[Fetched]) -> int:
    count = 0
    for piece in pieces:
        records = MemoryRecords(piece.batches)
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("crc")
            count += sum(1 for _ in batch)
    return count


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Best and median of every case, in millions of records a second, of wall and of CPU."""
    yield (
        f"{'Mrec/s':16}{'decoder':10}{'best':>9}{'median':>9}{'best/CPU':>9}{'med./CPU':>9}"
        "  MB/s of values, best/CPU"
    )
    cases = dict.fromkeys((run.value_bytes, run.codec, run.decoder) for run in runs)
    for case in cases:
        of_case = [r for r in runs if (r.value_bytes, r.codec, r.decoder) == case]
        wall, cpu = [r.mrec_s for r in of_case], [r.mrec_cpu_s for r in of_case]
        size, codec, decoder = case
        figures = (max(wall), statistics.median(wall), max(cpu), statistics.median(cpu))
        shown = "".join(f"{figure:9.2f}" for figure in figures)
        yield f"{size:6} B {codec:7}{decoder:10}{shown}  {max(cpu) * size:8.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
