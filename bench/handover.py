"""`python -m bench.handover`: what it costs to hand over fetched ranges and copied segments between
service and plugin.

Fetches: a store whose objects are not files (its bytes come from the page cache), through bytes in
gRPC messages or through scratch files. Copies: by path or as bytes. Ways are interleaved, pair by
pair, in one run; the CPU is that of both processes.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bench.machine import commit, load_in_words, machine_in_words
from kip405.contracts import StoreIdentity
from kip405.crc import crc32c
from kip405.ids import RemoteLogSegmentId, TopicIdPartition, Uuid
from kip405.segments import ByteRange, FileSlice, LogSegmentData, SegmentLocator
from rsm_plugins.contract.client import Deadlines, GrpcRemoteStorageManager
from rsm_plugins.contract.client_files import ScratchSettings
from rsm_plugins.contract.server import PluginServer
from rsm_plugins.contract.services import Dependencies, PluginInfo
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.files.shared_volume import CallersFolders
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.threads import FileThreads

_RESULTS = Path(__file__).resolve().parent / "results"
_MEMORY = Path("/dev/shm")
_MIB = 1 << 20
_OBJECT_BYTES = 64 * _MIB
_CLUSTER = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way, one pass; CPU in seconds per 1e9 bytes handed over."""

    way: str
    pass_number: int
    mb_s: float
    client_cpu_s_gb: float
    plugin_cpu_s_gb: float
    load: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a measured way needs: both processes, the object, amounts and concurrency."""

    folder: Path
    plugins: dict[str, tuple[str, psutil.Process]]
    locator: SegmentLocator
    source: LogSegmentData
    range_bytes: int
    ranges: int
    copies: int
    in_flight: int

    async def fetches(self, client: GrpcRemoteStorageManager) -> int:
        """Fetch all ranges; the bytes that came."""
        numbers = iter(range(self.ranges))
        per_object = max(1, _OBJECT_BYTES // self.range_bytes)
        total = 0

        async def some() -> None:
            nonlocal total
            for number in numbers:
                start = number % per_object * self.range_bytes
                wanted = ByteRange(start=start, end=start + self.range_bytes)
                found = await client.fetch_log_segment(self.locator, wanted)
                assert isinstance(found, bytes), "no store with files is measured here"
                total += len(found)

        await asyncio.gather(*(some() for _ in range(self.in_flight)))
        return total

    async def copied(self, client: GrpcRemoteStorageManager) -> int:
        """Copy the object again and again, two at a time; the bytes copied."""
        numbers = iter(range(self.copies))

        async def some() -> None:
            for _ in numbers:
                locator = _locator()
                await client.copy_log_segment_data(locator, self.source)
                await client.delete_log_segment_data(locator)

        await asyncio.gather(some(), some())
        return self.copies * _OBJECT_BYTES


Work = Callable[[Bench, GrpcRemoteStorageManager], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How ranges or copies travel."""

    name: str
    network: str
    share: bool
    work: Work
    scratch: Path | None = None


def ways(folder: Path) -> tuple[Way, ...]:
    """The ways that this machine supports."""
    memory = Path(tempfile.mkdtemp(prefix="rlm-bench-", dir=_MEMORY)) if _MEMORY.is_dir() else None
    fetches = [
        Way(name=f"fetch bytes {network}", network=network, share=False, work=Bench.fetches)
        for network in ("unix", "tcp")
    ]
    for name, scratch in (("memory", memory), ("disk", folder)):
        if scratch is not None:
            way = f"fetch scratch {name} unix"
            fetches.append(
                Way(name=way, network="unix", share=True, work=Bench.fetches, scratch=scratch)
            )
    copies = [
        Way(name="copy bytes unix", network="unix", share=False, work=Bench.copied),
        Way(name="copy path unix", network="unix", share=True, work=Bench.copied),
    ]
    return (*fetches, *copies)


async def measured(bench: Bench, way: Way, number: int) -> Measured:
    """One pass of one way, after a fetch that warms the connection."""
    address, plugin = bench.plugins[way.network]
    scratch = None if way.scratch is None else ScratchSettings(folder=way.scratch)
    client = GrpcRemoteStorageManager.connect(
        address, principal="bench", deadlines=Deadlines(), share=way.share, scratch=scratch
    )
    me, loop = psutil.Process(), asyncio.get_running_loop()
    try:
        await client.fetch_log_segment(bench.locator, ByteRange(start=0, end=bench.range_bytes))
        began = loop.time(), _cpu(me), _cpu(plugin)
        size_bytes = await way.work(bench, client)
        seconds, client_cpu, plugin_cpu = (
            loop.time() - began[0],
            _cpu(me) - began[1],
            _cpu(plugin) - began[2],
        )
    finally:
        await client.close()
    return Measured(
        way=way.name,
        pass_number=number,
        mb_s=round(size_bytes / seconds / 1e6, 1),
        client_cpu_s_gb=round(client_cpu / size_bytes * 1e9, 3),
        plugin_cpu_s_gb=round(plugin_cpu / size_bytes * 1e9, 3),
        load=load_in_words(),
    )


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _locator() -> SegmentLocator:
    partition = TopicIdPartition(topic_id=Uuid(bytes(15) + b"\1"), topic="t", partition=0)
    return SegmentLocator(
        cluster_id=_CLUSTER,
        segment_id=RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(os.urandom(16))),
        start_offset=0,
        custom_metadata=None,
    )


@asynccontextmanager
async def _plugin(folder: Path, listen: str) -> AsyncIterator[tuple[str, psutil.Process]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.handover", "--serve", listen, "--folder", str(folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        yield address, psutil.Process(process.pid)
    finally:
        process.kill()
        await process.wait()


async def _serve(folder: Path, listen: str) -> None:
    """The plugin: a store in a folder that answers bytes, never its own files."""
    threads = FileThreads()
    store = LocalRemoteStorageManager(folder / "store", shared=False, threads=threads)
    dependencies = Dependencies(
        manager=store,
        info=PluginInfo(name="bench", version="1", store_uri=store.uri, instance="bench"),
        threads=threads,
        spool=Spool(folder / "store", threads),
        scratch_folders=CallersFolders(None),
    )
    server = PluginServer(dependencies, listen)
    sys.stdout.write(f"{await server.start()}\n")
    sys.stdout.flush()
    await server.wait()


async def _run(given: argparse.Namespace, folder: Path) -> list[Measured]:
    source = await _prepared(folder)
    async with (
        _plugin(folder, f"unix:{folder}/p.sock") as unix,
        _plugin(folder, "127.0.0.1:0") as tcp,
    ):
        bench = Bench(
            folder=folder,
            plugins={"unix": unix, "tcp": tcp},
            locator=source[0],
            source=source[1],
            range_bytes=given.range_mib * _MIB,
            ranges=given.ranges,
            copies=given.copies,
            in_flight=given.in_flight,
        )
        found: list[Measured] = []
        every = ways(folder)
        try:
            for number in range(given.passes):
                for way in every if number % 2 == 0 else reversed(every):
                    found.append(await measured(bench, way, number))
                    _say(_row(found[-1]))
        finally:
            for way in every:
                if way.scratch is not None and way.scratch != folder:
                    way.scratch.rmdir()
        return found


async def _prepared(folder: Path) -> tuple[SegmentLocator, LogSegmentData]:
    """A store with one object."""
    (folder / "store").mkdir()
    log = os.urandom(_OBJECT_BYTES)
    path = folder / "source.log"
    path.write_bytes(log)
    data = LogSegmentData(
        log=FileSlice(path=str(path), position=0, size_bytes=len(log)),
        log_crc32c=crc32c(log),
        indexes=b"",
        indexes_crc32c=0,
    )
    store, locator = LocalRemoteStorageManager(folder / "store"), _locator()
    await store.create_identity(
        StoreIdentity(store_id=Uuid(os.urandom(16)), cluster_id=_CLUSTER, created_ms=0)
    )
    await store.copy_log_segment_data(locator, data)
    await store.close()
    return locator, data


def _medians(found: list[Measured]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for way in dict.fromkeys(one.way for one in found):
        of_way = [one for one in found if one.way == way]
        cpu = [one.client_cpu_s_gb + one.plugin_cpu_s_gb for one in of_way]
        rows.append(
            {
                "way": way,
                "mb_s": _median([one.mb_s for one in of_way]),
                "client_cpu_s_gb": _median([one.client_cpu_s_gb for one in of_way]),
                "plugin_cpu_s_gb": _median([one.plugin_cpu_s_gb for one in of_way]),
                "both_cpu_s_gb": _median(cpu),
            }
        )
    return rows


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def _row(one: Measured) -> str:
    return (
        f"{one.pass_number:2} {one.way:28} {one.mb_s:8.1f} MB/s   CPU s/GB: client "
        f"{one.client_cpu_s_gb:.3f}, plugin {one.plugin_cpu_s_gb:.3f}   load {one.load}"
    )


def main() -> int:
    """0 when everything was measured, whatever the numbers say."""
    parser = argparse.ArgumentParser(prog="python -m bench.handover", description=__doc__)
    parser.add_argument("--passes", type=int, default=5, help="interleaved passes (5)")
    parser.add_argument("--ranges", type=int, default=128, help="ranges a way and pass (128)")
    parser.add_argument("--range-mib", type=int, default=8, help="MiB of a range (8)")
    parser.add_argument("--in-flight", type=int, default=8, help="fetches at once (8)")
    parser.add_argument("--copies", type=int, default=8, help="copies of 64 MiB a pass (8)")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="directory of the result")
    parser.add_argument("--name", default="handover", help="file name of the result, no .json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(given.folder, given.serve))
        return 0
    with tempfile.TemporaryDirectory(prefix="rlm-bench-") as folder:
        found = asyncio.run(_run(given, Path(folder)))
    result = {
        "v": 1,
        "kind": "bench",
        "name": "handover",
        "commit": commit(),
        "machine": machine_in_words(),
        "options": {
            name: getattr(given, name)
            for name in ("passes", "ranges", "range_mib", "in_flight", "copies")
        },
        "cpu": "user + system seconds per 1e9 bytes; the plugin's reading of its object included",
        "medians": _medians(found),
        "runs": [asdict(one) for one in found],
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{given.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _say(json.dumps(result["medians"], indent=1))
    _say(f"written to {path.name} in {path.parent.name}/")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
