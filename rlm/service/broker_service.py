"""The composition root of `rlm serve`: builds every component, starts the proxy first, stops in
order.

The proxy passes bytes through from the first second (H24). Metadata, tasks and API start behind it
and are restarted when they fail. A set-up that can never be right (the log.dir of another broker, a
TIERED listener that is used for replication) ends the process with one line.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from kip405.allocator import KEPT_BY_A_SERVICE_BYTES, keep_freed_memory
from kip405.errors import RemoteStorageError, Unavailable
from kip405.version import software_version
from rlm.clock import Clock, SystemClock
from rlm.config import ServiceConfig
from rlm.log_dir.identity import ServiceLock, read_identity
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.proxy.stalled import StalledClients
from rlm.service.apis import Apis
from rlm.service.dependencies import Dependencies, build_dependencies
from rlm.service.lifetime import (
    configure_logs,
    keep_all_running,
    serving,
    until_stopped,
)
from rlm.service.metadata import remember_reads, remember_topics
from rlm.service.startup import check_broker, check_disks
from rlm.service.tasks import TaskDependencies, TaskWiring, build_pools
from rlm.service.threads import ServiceThreads, service_threads
from rlm.tasks.copy import Copied

log = structlog.get_logger()
_BROKER_RETRY_MS = 1_000
_BROKER_TOLD_EVERY_MS = 60_000
_NEEDS = "a broker with a PLAINTEXT listener at broker.direct.address"


def run(config: ServiceConfig) -> None:
    """Serve until SIGTERM or SIGINT. RemoteStorageError: the start was refused, with the reason."""
    configure_logs(level=config.log_level, log_format=config.log_format)
    disks = read_identity([str(path) for path in config.log_dirs])
    check_disks(config, disks)
    keep_freed_memory(KEPT_BY_A_SERVICE_BYTES)
    with ServiceLock(str(config.state_dir), disks):
        asyncio.run(until_stopped(_serve(config)))


async def _serve(config: ServiceConfig) -> None:
    log.info("starting", version=software_version(), **config.shown())
    with service_threads(config) as threads:
        await serving(lambda tasks: Service(config, SystemClock(), tasks, threads))


class Service:
    """All components of one service. The caller that created it calls `close` at the end."""

    def __init__(
        self,
        config: ServiceConfig,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        threads: ServiceThreads,
    ) -> None:
        self._config = config
        self._clock = clock
        self.parts = build_dependencies(config, clock, tasks, threads)
        self.pools = build_pools(config, clock, lambda task: self.apis.metrics.task_failed(task))
        self.work = TaskWiring(_task_dependencies(self.parts, self._copied), self.pools)
        self.apis = Apis(self.parts, self.pools, self.work)
        self.proxy = ProxyServer(
            _proxy_settings(config),
            self.parts.tier,
            clock,
            self.apis.metrics,
            self.parts.throttle,
        )
        self.stalled_clients = StalledClients(
            clients=lambda: self.proxy.connections,
            lacking_bytes=lambda: self.parts.reader.range_scheduler.lacking_bytes,
            clock=clock,
        )
        self.stalled_answers = StalledClients(
            clients=lambda: self.proxy.connections,
            lacking_bytes=lambda: self.proxy.memory.lacking_bytes,
            held_bytes=lambda client: client.unsent_bytes,
            clock=clock,
        )

    async def run(self) -> None:
        """Start the proxy, then the checks that may refuse, then the rest until cancelled."""
        await self.proxy.start()
        await self.apis.start()
        await self._check_broker()
        await keep_all_running(self._background_tasks(), self._clock)

    def _background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        parts = self.parts
        return {
            "metadata": parts.metadata.log.run,
            "topic ids": lambda: remember_topics(parts.metadata, parts.config, parts.threads.other),
            "metadata read": lambda: remember_reads(
                parts.metadata, parts.config, parts.threads.other
            ),
            "leadership": parts.leadership.run,
            "wanted": self._want_enabled_topics,
            "heartbeat": parts.heartbeat.run,
            "copy tasks": self.pools[0].run,
            "cleanup tasks": self.pools[1].run,
            "copies": self._copies,
            "cleanups": self._cleanups,
            **self.apis.background_tasks(),
            "stalled clients": self.stalled_clients.run,
            "stalled answers": self.stalled_answers.run,
            **parts.stores.background_tasks(),
        }

    async def _check_broker(self) -> None:
        told_at_ms: int | None = None
        while True:
            try:
                return await check_broker(self._config, self.parts.broker)
            except Unavailable as error:
                now_ms = self._clock.monotonic_ms()
                if told_at_ms is None or now_ms - told_at_ms >= _BROKER_TOLD_EVERY_MS:
                    told_at_ms = now_ms
                    log.warning("broker_not_reachable", error=str(error), needs=_NEEDS)
            await self._clock.sleep_ms(_BROKER_RETRY_MS)

    async def _want_enabled_topics(self) -> None:
        settings, leadership = self.parts.metadata.settings, self.parts.leadership
        while True:
            names = {record.name for record in settings.view.topics()}
            new = names - leadership.snapshot.topics.keys()
            leadership.want(names)
            if new:
                with contextlib.suppress(RemoteStorageError):
                    await leadership.refresh()
            await settings.wait_changed()

    async def _copies(self) -> None:
        await self.parts.metadata.log.wait_ready()
        await self.work.run_copies(self.parts.leadership)

    async def _cleanups(self) -> None:
        await self.parts.metadata.log.wait_ready()
        await self.work.run_cleanups(self.parts.leadership)

    def _copied(self, topic: str, size_bytes: int) -> None:
        self.apis.metrics.segment_copied(topic, size_bytes)

    async def close(self) -> None:
        """Closes proxy and API first, connections last."""
        await self.proxy.close()
        await self.apis.close()
        await self.parts.stores.close()
        await self.parts.share_groups.close()
        await self.parts.allowed.close()
        await self.parts.broker.close()


def _task_dependencies(parts: Dependencies, copied: Copied) -> TaskDependencies:
    return TaskDependencies(
        config=parts.config,
        broker=parts.broker,
        metadata=parts.metadata,
        heartbeat=parts.heartbeat,
        snapshots=parts.snapshots,
        stores=parts.stores,
        share_groups=parts.share_groups,
        losses=parts.tier.losses,
        clock=parts.clock,
        writer=parts.writer,
        copied=copied,
        threads=parts.threads,
    )


def _proxy_settings(config: ServiceConfig) -> ProxySettings:
    return ProxySettings(
        listen_host=config.proxy_listen.host,
        listen_port=config.proxy_listen.port,
        upstream_host=config.broker_tiered_address.host,
        upstream_port=config.broker_tiered_address.port,
        max_frame_bytes=config.max_frame_bytes,
        max_connections=config.proxy_max_connections,
        memory_max_bytes=config.proxy_memory_max_bytes,
        unauthenticated_frame_max_bytes=config.proxy_unauthenticated_frame_max_bytes,
        first_request_timeout_ms=config.proxy_first_request_timeout_ms,
        stalled_request_timeout_ms=config.proxy_stalled_request_timeout_ms,
        max_idle_ms=config.proxy_connections_max_idle_ms,
        shutdown_timeout_ms=config.shutdown_timeout_ms,
    )
