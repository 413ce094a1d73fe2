"""`python -m bench.client`: the Tiered Storage Consumer beside aiokafka, records of one partition.

aiokafka reads a plain topic from the broker. The consumer reads the same records of a tiered topic
whose log is trimmed: from the service, and from the S3 store itself. Passes are interleaved, so
that whatever else the machine does meets all alike; the first pass fills caches and does not count.
A read ends where the remote tier does, and every record is counted and its offset checked.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer

from bench.command import document, measure, parser, say
from bench.machine import load_in_words
from bench.processes import BenchError
from rlm_client import TieredStorageConsumer
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from tests.scenarios.cluster import Cluster, fresh
from tiered_reads.values import ReadMode

MIB = 1 << 20
AIOKAFKA, SERVICE, STORE = "aiokafka", "service", "store"
READERS = (AIOKAFKA, SERVICE, STORE)
_OPTIONS = ("mib", "segment_mib", "value_bytes", "passes", "compression")
_CPU = "cpu_us: of the reading process alone, in microseconds for each record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One read of all remote records; pass 0 does not count."""

    pass_number: int
    reader: str
    records: int
    seconds: float
    cpu_us: float
    load: str

    @property
    def krec_s(self) -> float:
        return self.records / self.seconds / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lab:
    cluster: Cluster
    tiered: str
    plain: str
    store: dict[str, Any]

    def consumer(self, reader: str) -> tuple[Any, TopicPartition]:
        """A consumer that was not started, and the partition that it is to read."""
        common: dict[str, Any] = {
            "bootstrap_servers": self.cluster.direct,
            "auto_offset_reset": "earliest",
        }
        if reader == AIOKAFKA:
            return AIOKafkaConsumer(**common), TopicPartition(self.plain, 0)
        consumer = TieredStorageConsumer(
            tiered_storage_mode=ReadMode.REMOTE_ONLY,
            rlm_endpoints=self.cluster.sandbox.json["brokers"][0]["grpc"],
            remote_reads=reader,
            rlm_stores=self.store if reader == STORE else None,
            **common,
        )
        return consumer, TopicPartition(self.tiered, 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything was measured, whatever the numbers say."""
    given = _parser().parse_args(arguments)
    if given.quick:
        given.mib, given.segment_mib, given.passes = 16, 4, 1

    def run() -> tuple[list[str], dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
            jvm = "quick" if given.quick else "full"
            sandbox = Sandbox.up(Path(folder) / "s", SandboxSpec(store="s3", jvm=jvm))
            try:
                runs = _measured(sandbox, given)
            finally:
                sandbox.down(delete=True)
        kept = [one for one in runs if one.pass_number]
        return summary(kept), document(given, "client", _OPTIONS, runs, cpu=_CPU)

    return measure(given, "client", run)


def _parser() -> argparse.ArgumentParser:
    made = parser("python -m bench.client", __doc__)
    made.add_argument("--mib", type=int, default=256, help="of values (default: 256)")
    made.add_argument("--segment-mib", type=int, default=32)
    made.add_argument("--value-bytes", type=int, default=1024)
    made.add_argument("--passes", type=int, default=7)
    made.add_argument("--compression", default="none", help="of the producer, such as lz4")
    return made


def _measured(sandbox: Sandbox, given: argparse.Namespace) -> list[Run]:
    with Cluster(sandbox) as cluster:
        try:
            lab = _prepared(cluster, given)
            return [
                asyncio.run(_read(lab, reader, number))
                for number in range(given.passes + 1)
                for reader in (READERS if number % 2 else reversed(READERS))
            ]
        finally:
            cluster.delete_topics()


def _prepared(cluster: Cluster, given: argparse.Namespace) -> _Lab:
    tiered, plain = fresh("tiered"), fresh("plain")
    configs = {"retention.ms": "-1", "segment.bytes": str(given.segment_mib * MIB)}
    producer = Producer(
        {
            "bootstrap.servers": cluster.direct,
            "compression.type": given.compression,
            "linger.ms": 20,
            "enable.idempotence": True,
        }
    )
    value = os.urandom(given.value_bytes // 2).hex().encode()
    for topic in (tiered, plain):
        cluster.create_topic(topic, configs=configs)
        for number in range(given.mib * MIB // given.value_bytes):
            while True:
                try:
                    producer.produce(topic, value, b"%d" % number)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(120):
            raise BenchError(f"{topic}: not everything was acknowledged in 120 s")
    cluster.enable(tiered, "--trim", "--local-retention-bytes", str(given.segment_mib * MIB))
    cluster.wait_settled(tiered)
    path = cluster.sandbox.layout.plugin_config(1)
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    store = {key: value for key, value in config.items() if key.startswith("rsm.config.")}
    return _Lab(
        cluster=cluster, tiered=tiered, plain=plain, store={"plugin": config["plugin"], **store}
    )


async def _read(lab: _Lab, reader: str, number: int) -> Run:
    end = await _remote_end(lab)
    consumer, partition = lab.consumer(reader)
    consumer.assign([partition])
    async with consumer:
        begun, cpu, records = time.perf_counter(), time.process_time(), 0
        while records < end:
            for found in (await consumer.getmany(timeout_ms=1_000)).values():
                if found[0].offset != records:
                    raise BenchError(f"{reader}: offset {found[0].offset} came at {records}")
                records += len(found)
        seconds, used = time.perf_counter() - begun, time.process_time() - cpu
        if reader != AIOKAFKA:
            _check_tier(reader, consumer, records)
    made = Run(
        pass_number=number,
        reader=reader,
        records=records,
        seconds=seconds,
        cpu_us=used / records * 1e6,
        load=load_in_words(),
    )
    say(f"pass {number} {reader:9} {made.krec_s:8.1f} krec/s {made.cpu_us:6.2f} us CPU a record")
    return made


async def _remote_end(lab: _Lab) -> int:
    """Also where aiokafka ends, so that all read the same records."""
    consumer, partition = lab.consumer(SERVICE)
    async with consumer:
        end = (await consumer.end_offsets([partition]))[partition]
    return int(end)


def _check_tier(reader: str, consumer: TieredStorageConsumer, records: int) -> None:
    counters = consumer.counters()
    read = {SERVICE: counters.remote.records, STORE: counters.store.records}
    if read[reader] < records:
        raise BenchError(f"{reader}: only {read[reader]} of {records} records came from there")


def summary(runs: Iterable[Run]) -> list[str]:
    """Medians, and the ratios to aiokafka in the same pass."""
    runs = list(runs)
    theirs = {run.pass_number: run.krec_s for run in runs if run.reader == AIOKAFKA}
    lines = []
    for reader in READERS:
        own = [run for run in runs if run.reader == reader]
        ratios = sorted(run.krec_s / theirs[run.pass_number] for run in own)
        lines.append(
            f"{reader:9} {statistics.median(run.krec_s for run in own):8.1f} krec/s  "
            f"{statistics.median(run.cpu_us for run in own):6.2f} us CPU a record  "
            f"{statistics.median(ratios):5.2f} x aiokafka ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
