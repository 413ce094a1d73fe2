"""`python -m bench.fetching`: what it costs to bring ranges from S3 or HDFS to verified chunks.

A real server, a plugin as a process of its own, and a client that splits each range into chunks and
verifies them as a service does. CPU is that of client and plugin; what a service does with a chunk
afterwards is not in it. Two commits are compared by running this by turns in a checkout of each.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.command import document, measure, parser, say, words
from bench.machine import load_in_words
from bench.processes import BenchError
from kip405.contracts import StoreIdentity
from kip405.crc import ChunkedCrc32c
from kip405.errors import RemoteStorageError
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.indexes import ChunkChecksums
from kip405.process import KEPT_BY_A_SERVICE_BYTES, keep_freed_memory
from kip405.segments import ByteRange, FileSlice, LogSegmentData, SegmentLocator
from rlm.reading.chunk_memory import ChunkMemory
from rlm.reading.source import verified
from rlm_sandbox.ports import PortReservation
from rlm_sandbox.store_servers import hdfs, versitygw
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.threads import Threads

S3, HDFS = "s3", "hdfs"
_MIB = 1 << 20
_CHUNK_BYTES = _MIB
_OBJECT_BYTES = 64 * _MIB
_CLUSTER = "bench"
_KEY, _SECRET, _BUCKET = "bench", "bench-secret", "bench"
_READY_S = 120.0
_SPLITTING = 2
"""Threads, as a service has for it."""
Settings = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One pass; CPU in seconds per 1e9 bytes, `answers` by what the client was given."""

    store: str
    pass_number: int
    mb_s: float
    client_cpu_s_gb: float
    plugin_cpu_s_gb: float
    answers: dict[str, int]
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """An object in the store, and the plugin that reads it."""

    client: GrpcRemoteStorageManager
    plugin: psutil.Process
    locator: SegmentLocator
    checksums: ChunkChecksums
    threads: Threads
    memory: ChunkMemory

    async def fetch(self, number: int, range_bytes: int) -> str:
        """Fetch and verify one range; what the client was given."""
        start = number % (_OBJECT_BYTES // range_bytes) * range_bytes
        wanted = ByteRange(start=start, end=start + range_bytes)
        found = await self.client.fetch_log_segment(self.locator, wanted)
        chunks = range(wanted.start // _CHUNK_BYTES, wanted.end // _CHUNK_BYTES)
        landed = await self.threads.run(
            verified, found, chunks, self.checksums, _OBJECT_BYTES, "object", self.memory
        )
        for outcome in landed.values():
            if isinstance(outcome, RemoteStorageError):
                raise outcome
        return type(found).__name__

    async def fetch_all(self, ranges: int, given: argparse.Namespace) -> Counter[str]:
        numbers, kinds = iter(range(ranges)), Counter[str]()

        async def some() -> None:
            for number in numbers:
                kinds[await self.fetch(number, given.range_mib * _MIB)] += 1

        await asyncio.gather(*(some() for _ in range(given.in_flight)))
        return kinds


async def measured(rig: Rig, store: str, number: int, given: argparse.Namespace) -> Fetched:
    """One pass, after some ranges that warm connections and memory."""
    await rig.fetch_all(2 * given.in_flight, given)
    me = psutil.Process()
    began = time.monotonic(), _cpu(me), _cpu(rig.plugin)
    kinds = await rig.fetch_all(given.ranges, given)
    seconds = time.monotonic() - began[0]
    gigabytes = given.ranges * given.range_mib * _MIB / 1e9
    return Fetched(
        store=store,
        pass_number=number,
        mb_s=round(gigabytes * 1000 / seconds, 1),
        client_cpu_s_gb=round((_cpu(me) - began[1]) / gigabytes, 3),
        plugin_cpu_s_gb=round((_cpu(rig.plugin) - began[2]) / gigabytes, 3),
        answers=dict(kinds),
        load=load_in_words(),
    )


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


async def run_passes(folder: Path, settings: Settings, given: argparse.Namespace) -> list[Fetched]:
    """The passes over one store."""
    with _plugin(folder, settings) as (address, process):
        client = GrpcRemoteStorageManager.connect(address, principal="bench", deadlines=Deadlines())
        threads = Threads("splitting", _SPLITTING)
        try:
            rig = await _prepared(folder, client, process, threads)
            found = []
            for number in range(given.passes):
                found.append(await measured(rig, settings["plugin"], number, given))
                say(_row(found[-1]))
        finally:
            await client.close()
            threads.close()
    return found


async def _prepared(
    folder: Path, client: GrpcRemoteStorageManager, plugin: psutil.Process, threads: Threads
) -> Rig:
    partition = TopicIdPartition(topic_id=Uuid(bytes(15) + b"\1"), topic="t", partition=0)
    locator = SegmentLocator(
        cluster_id=_CLUSTER,
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(os.urandom(16))),
        start_offset=0,
        custom_metadata=None,
    )
    log, path, checksums = os.urandom(_OBJECT_BYTES), folder / "log", ChunkedCrc32c(_CHUNK_BYTES)
    path.write_bytes(log)
    checksums.update(log)
    source = FileSlice(path=str(path), position=0, size_bytes=len(log))
    data = LogSegmentData(log=source, log_crc32c=checksums.whole, indexes=b"", indexes_crc32c=0)
    await client.create_identity(
        StoreIdentity(store_id=Uuid(os.urandom(16)), cluster_id=_CLUSTER, created_ms=0)
    )
    await client.copy_log_segment_data(locator, data)
    return Rig(
        client=client,
        plugin=plugin,
        locator=locator,
        checksums=ChunkChecksums(chunk_size_bytes=_CHUNK_BYTES, crcs=checksums.chunks),
        threads=threads,
        memory=ChunkMemory(),
    )


@contextmanager
def _plugin(folder: Path, settings: Settings) -> Iterator[tuple[str, psutil.Process]]:
    config, address = folder / "plugin.yaml", f"unix:{folder}/plugin.sock"
    config.write_text(yaml.safe_dump({**settings, "listen": address}), encoding="utf-8")
    command = [sys.executable, "-m", "rsm_plugins.process.main", "serve", "--config", str(config)]
    with (folder / "plugin.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        if process.stdout is None or not process.stdout.readline():
            raise BenchError(f"the plugin did not start: {(folder / 'plugin.log').read_text()}")
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def _s3(folder: Path) -> Iterator[Settings]:
    with PortReservation() as ports:
        port = ports.take()
    command = versitygw.command(versitygw.resolve(say), port=port, folder=folder)
    environ = {**os.environ, **versitygw.environ(_KEY, _SECRET)}
    with _running([command], environ, lambda: versitygw.is_ready(port)):
        versitygw.create_bucket(port, _BUCKET, _KEY, _SECRET)
        yield {
            "plugin": S3,
            "rsm.config.s3.bucket.name": _BUCKET,
            "rsm.config.s3.region": versitygw.REGION,
            "rsm.config.s3.endpoint.url": versitygw.endpoint(port),
            "rsm.config.s3.path.style.access.enabled": True,
            "rsm.config.aws.access.key.id": _KEY,
            "rsm.config.aws.secret.access.key": _SECRET,
        }


@contextmanager
def _hdfs(folder: Path) -> Iterator[Settings]:
    dist = hdfs.resolve(say)
    with PortReservation() as reservation:
        ports = hdfs.HdfsPorts.take(reservation)
    hdfs.write_config(folder, ports)
    environ = hdfs.environment()
    subprocess.run(
        hdfs.format_command(dist, folder, ports), env=environ, check=True, capture_output=True
    )
    commands = [hdfs.namenode_command(dist, folder, ports), hdfs.datanode_command(dist, folder)]
    with _running(commands, environ, lambda: hdfs.is_ready(ports)):
        yield {
            "plugin": HDFS,
            "rsm.config.hdfs.url": ports.url,
            "rsm.config.hdfs.user": "rlm",
            "rsm.config.root": "/",
            "rsm.config.prefix": "bench",
        }


@contextmanager
def _running(
    commands: list[list[str]], environ: dict[str, str], is_ready: Callable[[], bool]
) -> Iterator[None]:
    servers = [
        subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        deadline = time.monotonic() + _READY_S
        while not is_ready():
            if time.monotonic() > deadline:
                raise BenchError("the store's server is not ready")
            time.sleep(0.05)
        yield
    finally:
        for server in servers:
            server.kill()
            server.wait()


_SERVERS = {S3: _s3, HDFS: _hdfs}


def _run(given: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    keep_freed_memory(KEPT_BY_A_SERVICE_BYTES)
    runs: list[Fetched] = []
    for store in given.stores:
        with tempfile.TemporaryDirectory(prefix="rlm-bench-") as name:
            folder, server = Path(name), Path(name) / "server"
            server.mkdir()
            with _SERVERS[store](server) as settings:
                runs += asyncio.run(run_passes(folder, settings, given))
    names = ("passes", "ranges", "range_mib", "in_flight")
    return [], document(given, "fetching", names, runs, cpu=__doc__ or "")


def _row(one: Fetched) -> str:
    both = one.client_cpu_s_gb + one.plugin_cpu_s_gb
    return (
        f"{one.pass_number:2} {one.store:4} {one.mb_s:8.1f} MB/s   CPU s/GB: {both:.3f} = client "
        f"{one.client_cpu_s_gb:.3f} + plugin {one.plugin_cpu_s_gb:.3f}   load {one.load}"
    )


def main() -> int:
    """0 when everything was measured, whatever the numbers say."""
    made = parser("python -m bench.fetching", __doc__)
    made.add_argument("--stores", type=words((S3, HDFS)), default=(S3, HDFS))
    made.add_argument("--passes", type=int, default=3)
    made.add_argument("--ranges", type=int, default=128, help="ranges a pass (128)")
    made.add_argument("--range-mib", type=int, default=8, help="MiB of a range (8)")
    made.add_argument("--in-flight", type=int, default=8, help="fetches at once (8)")
    given = made.parse_args()
    if given.quick:
        given.passes, given.ranges = 1, 8
    return measure(given, "fetching", lambda: _run(given))


if __name__ == "__main__":
    sys.exit(main())
