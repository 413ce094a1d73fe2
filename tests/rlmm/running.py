"""A fact log on a real broker, for tests: started, ready, and taken down with its tasks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from kip405.addresses import Address
from kip405.errors import NotFound
from kip405.ids import Uuid
from rlm.broker.own_broker import OwnBroker
from rlm.clock import SystemClock, new_uuid
from rlm.service.ledger_snapshot import LedgerSnapshots
from rlm.service.metadata import ReadsFile
from rlmm.clients import ConnectionSettings
from rlmm.leader_answers import NOTHING_READ
from rlmm.log_reader import LogReader, Reader
from rlmm.manager import Metadata, TopicBasedRemoteLogMetadataManager
from rlmm.metadata_log import MetadataLog
from rlmm.settings import Settings
from rlmm.topic import TopicDescription
from rsm_plugins.threads import Threads

PUBLISH_TIMEOUT_MS = 60_000
"""A publish takes a moment, or what a busy machine needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMetadata:
    log: MetadataLog
    manager: TopicBasedRemoteLogMetadataManager
    settings: Settings
    snapshots: LedgerSnapshots | None
    task: asyncio.Task[None]


class _FirstDay(SystemClock):
    """So that each day the same partition of the ledger, 0, is read whole."""

    def now_ms(self) -> int:
        return 0


@contextlib.asynccontextmanager
async def running(
    bootstrap_servers: str,
    *,
    remembered: dict[str, Uuid] | None = None,
    reads: ReadsFile | None = None,
    state_dir: Path | None = None,
    cluster_id: str = "cluster",
    connect: Callable[[ConnectionSettings], Reader] = LogReader,
    replication_factor: int = 1,
    wait: bool = True,
    publish_timeout_ms: int = PUBLISH_TIMEOUT_MS,
) -> AsyncIterator[RunningMetadata]:
    """One process's view of the facts; several of them are several processes. `state_dir`: where it
    keeps a snapshot of the ledger.
    """
    clock = SystemClock()
    broker = OwnBroker(Address.parse(bootstrap_servers), client_id="test")

    async def describe(name: str) -> TopicDescription | None:
        try:
            topic = await broker.topic(name)
        except NotFound:
            return None
        configs = await broker.topic_config(name)
        values = {key: found.value or "" for key, found in configs.items()}
        return topic.topic_id, values, len(topic.partitions)

    log = MetadataLog(
        connection=ConnectionSettings(
            bootstrap_servers=(bootstrap_servers,), client_id="rlm-test", request_timeout_ms=5_000
        ),
        replication_factor=replication_factor,
        describe_topic=describe,
        now_ms=clock.monotonic_ms,
        sleep_ms=clock.sleep_ms,
        remembered=remembered,
        remembered_reads=reads.read() if reads else NOTHING_READ,
        remedy=reads.remedy if reads else "",
        connect=connect,
    )
    manager = TopicBasedRemoteLogMetadataManager(
        log=log, writer=new_uuid(), publish_timeout_ms=publish_timeout_ms
    )
    settings = Settings(
        log=log,
        node_id=1,
        writer=new_uuid(),
        now_ms=clock.now_ms,
        monotonic_ms=clock.monotonic_ms,
        publish_timeout_ms=publish_timeout_ms,
    )
    threads, snapshots = Threads("tests", 2, hang_ms=60_000), None
    if state_dir is not None:
        metadata = Metadata(log=log, settings=settings, manager=manager)
        snapshots = LedgerSnapshots(
            metadata, threads, _FirstDay(), state_dir=state_dir, cluster_id=cluster_id
        )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_run(log))
        try:
            if wait:
                async with asyncio.timeout(180):
                    await log.wait_ready()
            yield RunningMetadata(
                log=log, manager=manager, settings=settings, snapshots=snapshots, task=task
            )
        finally:
            task.cancel()
            threads.close()
            await broker.close()


async def _run(log: MetadataLog) -> None:
    await log.run()
