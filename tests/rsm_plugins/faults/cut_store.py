"""An S3 store behind the cutting proxy, with pauses that do not wait."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rsm_plugins.conformance.subject import StoredSegment, Subject
from rsm_plugins.layout.keys import IDENTITY_NAME
from rsm_plugins.process.config import settings_of
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.settings import s3_settings
from rsm_plugins.threads import FileThreads
from tests.builders.cutting_proxy import CuttingProxy
from tests.rsm_plugins.faults.operations import MANIFEST, Operation
from tests.rsm_plugins.harness import new_uuid
from tests.rsm_plugins.stores import StoreRig, s3_rig
from tests.store_servers import S3Server

ATTEMPT_MS = 20_000
"""No try of a server that answers takes so long, on a busy machine either."""
CALL_MS = 60_000
SETTLE_TRIES = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStore:
    """The store, what lies between us and it, and what is behind both."""

    proxy: CuttingProxy
    subject: Subject
    rig: StoreRig
    pauses: list[float]

    async def prepared(self, operation: Operation) -> StoredSegment:
        """A segment for an operation, stored where it must be; counters begin at 0 afterwards."""
        segment = self.subject.segment(log_size_bytes=operation.log_size_bytes)
        if operation.stored:
            await self.subject.copy(segment)
            await self.subject.manager.write_manifest(segment.locator, MANIFEST)
        self.proxy.forget()
        return segment

    async def baseline(self, operation: Operation) -> int:
        """How many of the operation's requests there are when nothing fails."""
        segment = await self.prepared(operation)
        await operation.run(self.subject, segment)
        return self.count(operation)

    def count(self, operation: Operation) -> int:
        """Requests of the operation's kinds since counting began."""
        if not operation.requests:
            return self.proxy.requests.total()
        return sum(self.proxy.requests[name] for name in operation.requests)

    def uploads(self) -> list[str]:
        """Uploads of the server that were neither completed nor aborted."""
        return [name for name in self.rig.hands.names() if name.startswith("upload ")]

    async def nothing_stays(self) -> None:
        """Every segment made is removed; the store is then as new, on the server too."""
        self.proxy.forget()
        await self.subject.clean_up()
        assert self.rig.hands.names() == [IDENTITY_NAME]


@asynccontextmanager
async def cut_store(server: S3Server, folder: Path, **rows: Any) -> AsyncIterator[CutStore]:
    """A fresh bucket behind a proxy; afterwards no connection to the proxy is left."""
    behind = s3_rig(server)
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with CuttingProxy(server.port) as proxy:
        rig = cut_rig(behind, proxy, **rows)
        threads = FileThreads()
        settings = s3_settings(settings_of(rig.content()).store)
        manager = S3RemoteStorageManager(settings, threads, pause)
        subject = Subject(
            manager=manager,
            folder=folder,
            new_uuid=new_uuid,
            cluster_id="test-cluster",
            faults=rig.faults,
        )
        try:
            await subject.ensure_identity()
            proxy.forget()
            yield CutStore(proxy=proxy, subject=subject, rig=rig, pauses=pauses)
        finally:
            await manager.close()
            threads.close()
        await settle(lambda: proxy.open_connections == 0, "connections to the proxy stay open")


def cut_rig(behind: StoreRig, proxy: CuttingProxy, **rows: Any) -> StoreRig:
    """The same bucket, reached through the proxy; `rows` go before the time-outs of tests."""
    rows_of_the_way = {
        **behind.rows,
        "rsm.config.s3.endpoint.url": proxy.endpoint,
        "rsm.config.s3.api.call.attempt.timeout": ATTEMPT_MS,
        "rsm.config.s3.api.call.timeout": CALL_MS,
    }
    return replace(behind, rows={**rows_of_the_way, **rows})


async def settle(holds: Callable[[], bool], complaint: str) -> None:
    """Wait until a condition holds that has no event."""
    for _ in range(SETTLE_TRIES):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(complaint)
