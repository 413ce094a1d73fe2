"""The composition roots build top to bottom, and building contacts nothing."""

import ast
import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rlm.clock import SystemClock
from rlm.config.loader import reader_from_mapping
from rlm.reading.chunk_cache import ChunkCache
from rlm.reading.disk_cache import DiskCache
from rlm.reading.ended_segments import EndedSegments
from rlm.service.broker_service import BrokerService
from rlm.service.reader_service import ReaderService
from tests.builders.fake_broker import FakeBroker
from tests.builders.service import NOBODY, built_service, common_settings
from tests.builders.threads import all_of, some_threads
from tests.project.tree import ROOT, parse

ROOTS = ["broker_service", "reader_service"]


def early_uses(root: ast.Module) -> Iterator[str]:
    """Attributes that a constructor reads before it has assigned them, also in a lambda."""
    for node in ast.walk(root):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            uses = [
                use
                for use in ast.walk(node)
                if isinstance(use, ast.Attribute)
                and isinstance(use.value, ast.Name)
                and use.value.id == "self"
            ]
            assigned = {use.attr: use.lineno for use in uses if isinstance(use.ctx, ast.Store)}
            for use in uses:
                if isinstance(use.ctx, ast.Load) and assigned.get(use.attr, 1e9) >= use.lineno:
                    yield f"line {use.lineno}: self.{use.attr}"


@pytest.mark.parametrize("root", ROOTS)
def test_a_root_uses_nothing_before_it_is_built(root: str) -> None:
    assert list(early_uses(parse(ROOT / "rlm" / "service" / f"{root}.py"))) == []


def test_an_early_use_is_found() -> None:
    planted = "class A:\n def __init__(self):\n  f = lambda: self.b\n  self.b = 1"
    assert list(early_uses(ast.parse(planted))) == ["line 3: self.b"]


async def test_building_a_broker_service_contacts_nothing(tmp_path: Path) -> None:
    async with FakeBroker().running() as broker:
        async with built_service(tmp_path, SystemClock(), address=broker.address):
            pass
        assert broker.connections == 0


@asynccontextmanager
async def built(
    role: str, path: Path, settings: Mapping[str, object]
) -> AsyncIterator[BrokerService | ReaderService]:
    """A service in either role whose broker is not there."""
    if role == "broker":
        async with built_service(path, SystemClock(), settings) as service:
            yield service
        return
    config = reader_from_mapping({**common_settings(path, NOBODY), **settings})
    with some_threads(1) as threads:
        async with asyncio.TaskGroup() as tasks:
            reader = ReaderService(config, SystemClock(), tasks, all_of(threads), lambda: config)
            yield reader
            await reader.close()


def may_write_snapshots(service: BrokerService | ReaderService) -> bool:
    """Whether it would replace the snapshot of the ledger in its state dir."""
    return service._ledger_snapshots._may_write


@pytest.mark.parametrize("role", ["broker", "reader"])
async def test_h06_no_snapshot_of_the_ledger_is_written_before_formats_are_checked(
    role: str, tmp_path: Path
) -> None:
    async with built(role, tmp_path, {}) as service:
        running = asyncio.ensure_future(service._background_tasks()["ledger snapshot"]())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not may_write_snapshots(service)
        service._formats._open.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert may_write_snapshots(service)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("role", ["broker", "reader"])
async def test_both_caches_drop_what_has_ended(role: str, tmp_path: Path) -> None:
    settings = {"fetch.chunk.cache.path": str(tmp_path / "chunks")}
    async with built(role, tmp_path, settings) as service:
        ended = getattr(service._background_tasks()["ended segments"], "__self__", None)
        assert isinstance(ended, EndedSegments)
        assert [type(one) for one in ended._caches] == [ChunkCache, DiskCache]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # the disk cache runs from the beginning on


async def test_building_a_reader_contacts_nothing(tmp_path: Path) -> None:
    async with FakeBroker().running() as broker:
        config = reader_from_mapping(common_settings(tmp_path, broker.address))
        with some_threads(1) as threads:
            async with asyncio.TaskGroup() as tasks:
                await ReaderService(
                    config, SystemClock(), tasks, all_of(threads), lambda: config
                ).close()
        assert broker.connections == 0
