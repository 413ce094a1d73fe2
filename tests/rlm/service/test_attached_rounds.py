"""When an attached reader reads its stores again, and what a store that is away does (H38)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog

from kip405.errors import Unavailable
from rlm.remote_log.attached import AttachedLog
from rlm.service.attached_service import ManifestReading
from rlm.tasks.attachment import Choices
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.clock import ManualClock
from tests.builders.ledger import PARTITION
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID, MemoryStore

_LIMIT_S = 60


@dataclass
class Stores:
    """One store that is asked who it is at the beginning of each round; `absences`: how often it
    does not answer.
    """

    store: MemoryStore
    absences: int = 0
    asked: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    async def prove(self) -> Any:
        self.asked.put_nowait(1)
        await asyncio.sleep(0)
        if self.absences:
            self.absences -= 1
            raise Unavailable("the store is away")
        return SimpleNamespace(managers={STORE_ID: self.store}, records=())


async def reading(
    path: Path, *, refresh_ms: int | None = None
) -> tuple[ManifestReading, Stores, AttachedLog, str]:
    """Over the store of three segments; the name is of the last one's manifest."""
    rig, attached = Rig(path), AttachedLog()
    rig.write_log(0, 100, 250, 400, end=420)
    await rig.copy.run(rig.led)
    stores = Stores(rig.store)
    last = max(rig.ledger.view.entries.values(), key=lambda one: one.metadata.start_offset)
    name = object_name(last.metadata.locator(CLUSTER_ID), ObjectKind.MANIFEST)
    made: Any = ManifestReading(
        CLUSTER_ID,
        attached,
        stores,  # type: ignore[arg-type]
        Choices(),
        ManualClock(),
        refresh_ms,
    )
    return made, stores, attached, name


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while not is_true():  # noqa: ASYNC110 - no time passes: the clock is the test's
            await asyncio.sleep(0)


async def test_manifests_that_could_not_be_read_are_tried_again_without_refresh(
    tmp_path: Path,
) -> None:
    with structlog.testing.capture_logs():
        made, stores, attached, name = await reading(tmp_path)
        stores.store.errors[name] = Unavailable("it is archived")
        await made.read_first()
        assert attached.doubts(PARTITION.key)
        stores.store.errors.clear()
        running = asyncio.create_task(made.refresh())
        await until(lambda: not attached.doubts(PARTITION.key))
        for _ in range(100):
            await asyncio.sleep(0)
        assert stores.asked.qsize() == 2  # and not again, as all was read
        running.cancel()


async def test_a_store_that_is_away_takes_nothing_from_what_is_served(tmp_path: Path) -> None:
    with structlog.testing.capture_logs():
        made, stores, attached, _ = await reading(tmp_path, refresh_ms=5_000)
        stores.absences = 2
        await made.read_first()
        assert (stores.asked.qsize(), attached.problem) == (3, None)
        served = attached.state
        stores.absences = 10**9
        running = asyncio.create_task(made.refresh())
        await until(lambda: stores.asked.qsize() >= 6)
        assert attached.state is served
        assert attached.is_ready
        problem = attached.problem
        assert problem == "new manifests cannot be read: the store is away"
        stores.absences = 0
        await until(lambda: attached.state is not served)
        assert attached.problem is None
        assert attached.state.ledgers == served.ledgers
        running.cancel()
