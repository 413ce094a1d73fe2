"""Ctrl-C in the middle leaves a directory that the same command completes, and no trace else."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from kip405.segments import ByteRange, SegmentLocator
from rsm_plugins.contract.server import PluginServer
from rsm_plugins.contract.services import Dependencies, PluginInfo
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.threads import FINISH_MS, FileThreads
from tests.builders.interrupts import ctrl_c_heeded
from tests.builders.log_dir import CLUSTER_ID, TOPIC
from tests.builders.rig import Rig
from tests.builders.store import MemoryStore
from tests.kip405.batch_builder import batch
from tests.rlm.download.stored import put

SEGMENTS = 60
RECORDS = 10
BEFORE = 20
"""So many segments can be downloaded before the store holds back what is asked for."""
AT_ONCE = 4
"""So many segments are downloaded side by side: when as many are held back, the others are done."""


class HeldStore(MemoryStore):
    """Answers for the first segments only, until it is released."""

    def __init__(self) -> None:
        super().__init__(CLUSTER_ID)
        self.is_full = asyncio.Event()
        self.released = asyncio.Event()
        self._held: set[int] = set()

    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        if locator.start_offset >= BEFORE * RECORDS:
            self._held.add(locator.start_offset)
            if len(self._held) == AT_ONCE:
                self.is_full.set()
            await self.released.wait()
        return await super().fetch_log_segment(locator, byte_range)


def fill(rig: Rig) -> None:
    """Segments of some 200 KB."""
    for number in range(SEGMENTS):
        base = number * RECORDS
        put(rig, number + 1, batch(base, RECORDS, value=os.urandom(20_000)), {0: base})


def as_tree(rig: Rig, root: Path) -> Path:
    """The same as a local store; the file of a plugin's settings."""
    for name, data in rig.store.objects.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    identity = (
        '{"v":1,"kind":"store","store_id":"%s","cluster_id":"cluster-of-tests","created_ms":0}'
    )
    (root / "rlm-store.json").write_text(identity % ("A" * 22))
    config = root.with_suffix(".yaml")
    config.write_text(
        yaml.safe_dump({"listen": "127.0.0.1:0", "plugin": "local", "rsm.config.root": str(root)})
    )
    return config


@asynccontextmanager
async def served(store: MemoryStore, folder: Path) -> AsyncIterator[str]:
    """A plugin with the store; its address."""
    threads = FileThreads(4)
    info = PluginInfo(name="held", version="1", store_uri="held:", instance="i")
    parts = Dependencies(manager=store, info=info, threads=threads, spool=Spool(folder, threads))
    server = PluginServer(parts, "127.0.0.1:0")
    address = await server.start()
    try:
        yield str(address)
    finally:
        await server.stop()
        await threads.finish(FINISH_MS)


async def download(out: Path, *source: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rlm.cli.main", "download", TOPIC, "--dir", str(out)),
        *source,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def logs(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.rglob("*.log")}


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    """Its status, and what it said on standard output and standard error."""
    async with asyncio.timeout(240):
        said, errors = await process.communicate()
    return process.returncode, said.decode(), errors.decode()


async def interrupted(out: Path, store: HeldStore, *source: str) -> str:
    """A download broken off where the store holds it; what it said on standard error."""
    process = await download(out, *source)
    try:
        async with asyncio.timeout(240):
            await store.is_full.wait()
        process.send_signal(signal.SIGINT)
        status, said, errors = await ended(process)
    finally:
        if process.returncode is None:
            process.kill()
    assert (status, said) == (130, ""), errors
    return errors


async def test_ctrl_c_and_again(tmp_path: Path) -> None:
    rig, store, out = Rig(tmp_path), HeldStore(), tmp_path / "out"
    fill(rig)
    store.objects = rig.store.objects
    async with served(store, tmp_path) as address:
        with ctrl_c_heeded():
            assert "Traceback" not in await interrupted(out, store, "--plugin", address)
        assert len(logs(out)) == BEFORE
        store.released.set()
        status, _, errors = await ended(await download(out, "--plugin", address))
    assert status == 0, errors
    assert f"{SEGMENTS} of {SEGMENTS} segments" in errors
    assert "of it were there" in errors
    names = {path.name for path in (out / f"{TOPIC}-0").iterdir()}
    assert len([name for name in names if name.endswith(".log")]) == SEGMENTS
    assert not [name for name in names if name.endswith((".part", ".tmp"))]

    config = as_tree(rig, tmp_path / "store")
    whole = tmp_path / "whole"
    status, _, errors = await ended(await download(whole, "--plugin-config", str(config)))
    assert status == 0, errors
    assert logs(whole) == logs(out)
