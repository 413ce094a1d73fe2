"""The composition root of `rlm serve`: builds every component, starts the proxy first, stops in
order.

The proxy passes bytes through from the first second (H24). Metadata, tasks and API start behind it
and are restarted when they fail. A set-up that can never be right (the log.dir of another broker, a
TIERED listener that is used for replication) ends the process with one line.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from kip405.errors import RemoteStorageError, Unavailable
from kip405.open_files import raise_open_files_limit
from kip405.process import (
    collect_cycles_less_often,
    keep_freed_memory,
    software_version,
)
from rlm.api.admin import AdminService
from rlm.api.calls import token_source
from rlm.api.fetch import FetchService
from rlm.api.peers import PeerServicesAccess
from rlm.clock import Clock, SystemClock
from rlm.config import ServiceConfig
from rlm.config.machine import usable_memory_bytes
from rlm.log_dir.held_segments import USEFUL_OPEN_FILES
from rlm.log_dir.identity import ServiceLock, read_identity
from rlm.plans.formats import own_formats
from rlm.service.apis import build_admin, build_peers, build_topics
from rlm.service.authorization import (
    ApiCallers,
    build_authorization,
    build_callers,
    principals_together,
)
from rlm.service.broker_gauges import add_gauges, service_safety
from rlm.service.broker_problems import (
    build_log_dirs,
    build_partition_problems,
    build_problem_sources,
    build_statuses,
    health_state,
)
from rlm.service.certificates import Certificates, certificate_paths, files_together
from rlm.service.clients import Clients, build_clients, proxy_tls
from rlm.service.console import build_console
from rlm.service.dependencies import Dependencies, build_dependencies
from rlm.service.fetch_api import build_fetch
from rlm.service.formats import FormatGate
from rlm.service.ledger_snapshot import build_ledger_snapshots
from rlm.service.lifetime import (
    check_broker,
    check_disks,
    configure_service_logs,
    keep_all_running,
    log_variables,
    run_until_stopped,
    serving,
    warn_of_copy_slots,
    warn_of_draft_names,
    warn_of_memory,
)
from rlm.service.listeners import HealthState, Listening
from rlm.service.loop_watch import LoopWatch
from rlm.service.metadata import BARRIER_DEADLINE_MS, remember_reads, remember_topics
from rlm.service.metrics import ServiceMetrics
from rlm.service.problems import (
    ProblemWatch,
)
from rlm.service.reloading import ConfigReload, change_quotas
from rlm.service.reports import build_diagnosis
from rlm.service.tasks import TaskWiring, build_pools
from rlm.service.threads import ServiceThreads, service_threads
from rlm.service.tracing import close_tracer
from rlm.tasks.assignment import Assignment
from rlm.workers.ending import Ending
from rlm.workers.inherited import CoreSettings, first_line, on_hang_up, say_ready

log = structlog.get_logger()
_BROKER_RETRY_MS = 1_000
_BROKER_WARNING_EVERY_MS = 60_000
_NEEDS = "a broker at broker.direct.address whose listener is as kafka.security.protocol says"


def run(
    config: ServiceConfig, reread: Callable[[], ServiceConfig], *, is_child: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT, and a child of a supervisor until that has ended. SIGHUP reads
    the settings again. RemoteStorageError: the start was refused, with the reason.
    """
    configure_service_logs(level=config.log_level, log_format=config.log_format)
    disks = read_identity([str(path) for path in config.log_dirs])
    check_disks(config, disks)
    keep_freed_memory(config.kept_memory_bytes)
    collect_cycles_less_often()
    raise_open_files_limit(USEFUL_OPEN_FILES)
    with ServiceLock(str(config.state_dir), disks):
        core = CoreSettings.of(first_line()) if is_child else None
        serve = partial(_serve, config, reread, core)
        run_until_stopped(serve, SystemClock(), is_child=is_child)


async def _serve(
    config: ServiceConfig,
    reread: Callable[[], ServiceConfig],
    core: CoreSettings | None,
    ending: Ending,
) -> None:
    log.info("starting", version=software_version(), **config.shown())
    log_variables()
    warn_of_memory(config, usable_memory_bytes())
    warn_of_copy_slots(config)
    warn_of_draft_names(config)
    with service_threads(config) as threads:

        def make(tasks: asyncio.TaskGroup) -> BrokerService:
            service = BrokerService(config, SystemClock(), tasks, threads, reread, core)
            on_hang_up(service.reload.request)
            return service

        await serving(make, ending)


class BrokerService:
    """All components of one service. The caller that created it calls `close` at the end.
    `reload` reads the settings again, by `reread`. `assignment` narrows what has tasks, and
    `started` is called once the broker is known to be ours: both are for a program that embeds the
    service.
    """

    def __init__(
        self,
        config: ServiceConfig,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        threads: ServiceThreads,
        reread: Callable[[], ServiceConfig],
        core: CoreSettings | None = None,
        *,
        assignment: Assignment | None = None,
        started: Callable[[], None] | None = None,
    ) -> None:
        """Contacts nothing. `core`: this process is the core of proxy workers. Invalid: the token
        or principals file cannot be used, or see build_stores.
        """
        tokens = token_source(config.api_token_file, clock)
        self._callers = callers = build_callers(config, tokens, clock, threads.other)
        self._config = config
        self._started = started or (say_ready if core is not None else _nothing)
        self._clock, self._loop_watch = clock, LoopWatch(clock)
        metrics = ServiceMetrics()
        self._dependencies = shared = build_dependencies(config, clock, tasks, threads)
        self._formats = FormatGate(shared.metadata, own_formats(software_version()))
        self._ledger_snapshots = build_ledger_snapshots(
            shared.metadata, config, threads.other, clock
        )
        self._pools = pools = build_pools(config, clock, metrics.task_failed)
        self._peers = build_peers(shared, tokens)
        self._topics = build_topics(shared, PeerServicesAccess(self._peers))
        self._tasks = TaskWiring(shared, pools, metrics, self._topics.retention, assignment)
        self._certificates = _certificates(config, clock, threads)
        self._clients = clients = build_clients(shared, metrics, tasks, core)
        self.reload = _reload(shared, reread, self._tasks, clients, tasks)
        partition_problems = build_partition_problems(shared, self._tasks)
        log_dirs = build_log_dirs(shared, self._tasks, partition_problems)
        self._problems = problems = ProblemWatch(
            build_problem_sources(
                *(shared, self._tasks, self._topics, self._certificates, partition_problems),
                *(log_dirs, clients),
            ),
            clock,
        )
        statuses = build_statuses(shared, self._tasks, partition_problems, problems)
        admin = build_admin(
            shared,
            tasks=self._tasks,
            topics=self._topics,
            gate=callers.gate,
            peers=self._peers,
            statuses=statuses,
            problems=problems.current,
            log_dirs=log_dirs.reports,
            copying=partition_problems.copying,
            clients=clients.rows,
            reload=self.reload,
            documents=build_diagnosis(shared, metrics.render, problems.current, tokens),
        )
        fetch = build_fetch(shared, gate=callers.gate, peers=self._peers, statuses=statuses)
        health = partial(health_state, shared.tier, problems)
        self._listening = _listening(shared, callers, admin, fetch, health, metrics.render)
        metrics.add_gauges(service_safety(shared, self._certificates, self._loop_watch))
        add_gauges(
            *(metrics, shared, self._tasks, clients, statuses),
            *(partition_problems, log_dirs, problems.current, pools),
        )

    @property
    def dependencies(self) -> Dependencies:
        """What its components are built on."""
        return self._dependencies

    @property
    def tasks(self) -> TaskWiring:
        """What copies, trims and cleans up."""
        return self._tasks

    async def run(self, ending: Ending) -> None:
        """Start the proxy, then the checks that may refuse, then the rest until cancelled."""
        await self._clients.start()
        await self._listening.start()
        await self._check_broker()
        self._started()
        await keep_all_running(
            *(self._background_tasks(), self._clock, self._formats.check),
            drain=partial(ending.drain, self.drain),
        )

    def _background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        shared, metadata = self._dependencies, self._dependencies.metadata
        files = metadata, self._config, shared.threads.other
        copy_pool, cleanup_pool = self._pools
        verify = self._formats.after(self._tasks.verify.watch.run)
        return {
            **({"verify": verify} if self._config.verify_interval_ms else {}),
            "metadata": metadata.log.run,
            "topic ids": partial(remember_topics, *files),
            "metadata read": partial(remember_reads, *files),
            "ledger snapshot": self._formats.after(self._ledger_snapshots.run),
            "ended segments": shared.ended_segments.run,
            "leadership": shared.leadership.run,
            "wanted": self._want_enabled_topics,
            "heartbeat": self._formats.after(shared.heartbeat.run),
            "copy tasks": self._formats.after(copy_pool.run),
            "cleanup tasks": self._formats.after(cleanup_pool.run),
            "copies": self._formats.after(self._tasks.run_copies),
            "copies asked for": self._formats.after(self._tasks.copy_runs.run_unwatched),
            "rolls": self._formats.after(self._tasks.watch_rolls),
            "cleanups": self._formats.after(self._tasks.run_cleanups),
            "transactions": self._tasks.transactions.run,
            "bounded retention": self._formats.after(self._tasks.bounded_retention.run),
            "topics": self._formats.after(self._topics.keeper.run),
            "deletions": self._formats.after(self._topics.deletions.run),
            "access": self._formats.after(self._topics.access_watch.run),
            "topic names": self._formats.after(self._topics.recreated.run),
            "deleted topics": self._formats.after(self._topics.ends.run),
            "certificates": self._certificates.run,
            **self._callers.background_tasks(),
            "disks": shared.disk_pressure.run,
            "giveback": self._formats.after(self._topics.giveback.run),
            "problems": self._problems.run,
            "event loop": self._loop_watch.run,
            **({} if shared.node_addresses is None else {"addresses": shared.node_addresses.run}),
            **self._clients.background_tasks(),
            **shared.stores.background_tasks(),
        }

    async def _check_broker(self) -> None:
        warned_at_ms: int | None = None
        while True:
            try:
                return await check_broker(self._config, self._dependencies.broker)
            except Unavailable as error:
                now_ms = self._clock.monotonic_ms()
                if warned_at_ms is None or now_ms - warned_at_ms >= _BROKER_WARNING_EVERY_MS:
                    warned_at_ms = now_ms
                    log.warning("broker_not_reachable", error=str(error), needs=_NEEDS)
            await self._clock.sleep_ms(_BROKER_RETRY_MS)

    async def _want_enabled_topics(self) -> None:
        settings = self._dependencies.metadata.settings
        leadership = self._dependencies.leadership
        while True:
            names = {record.name for record in settings.view.topics()}
            new = names - leadership.snapshot.topics.keys()
            leadership.want(names)
            if new:
                with contextlib.suppress(RemoteStorageError):
                    await leadership.refresh()
            await settings.wait_changed()

    async def ask_leaders(self) -> None:
        """Know who leads the partitions of all topics on record now. Unavailable: Kafka does not
        answer.
        """
        settings, leadership = self._dependencies.metadata.settings, self._dependencies.leadership
        await settings.barrier(BARRIER_DEADLINE_MS)
        leadership.want({record.name for record in settings.view.topics()})
        await leadership.refresh()

    async def drain(self) -> None:
        """Give Kafka clients and callers of the API what is under way, and take no more of them."""
        within_ms = self._config.shutdown_timeout_ms
        async with asyncio.TaskGroup() as both:
            both.create_task(self._clients.drain())
            both.create_task(self._listening.close(within_ms))

    async def close(self) -> None:
        """After the drain; connections last."""
        await self._clients.close()
        await self._ledger_snapshots.close()
        await self._peers.close()
        await self._topics.brokers.close()
        await self._dependencies.stores.close()
        await self._dependencies.share_groups.close()
        await self._dependencies.allowed.close()
        await self._dependencies.broker.close()
        await close_tracer(self._dependencies.tracer, self._dependencies.threads.other)


def _reload(
    shared: Dependencies,
    reread: Callable[[], ServiceConfig],
    tasks: TaskWiring,
    clients: Clients,
    group: asyncio.TaskGroup,
) -> ConfigReload[ServiceConfig]:
    return ConfigReload(
        running=shared.running,
        read=reread,
        apply=partial(_change, shared, tasks, clients),
        threads=shared.threads.other,
        tasks=group,
    )


def _change(
    shared: Dependencies, tasks: TaskWiring, clients: Clients, config: ServiceConfig
) -> None:
    """What does not ask for its settings each time is given those that were reloaded."""
    change_quotas(shared.throttle, config)
    tasks.change(config)
    warn_of_copy_slots(config)
    clients.settings_changed()


def _listening(
    shared: Dependencies,
    callers: ApiCallers,
    admin: AdminService,
    fetch: FetchService,
    health: Callable[[], HealthState],
    metrics: Callable[[], bytes],
) -> Listening:
    authorization = build_authorization(
        shared.config,
        callers,
        settings=shared.metadata.settings,
        security=shared.security,
        audit=shared.audit,
        clock=shared.clock,
    )
    return Listening(
        shared.config,
        shared.clock,
        admin=admin,
        gate=callers.gate,
        fetch=fetch,
        health=health,
        metrics=metrics,
        authorization=authorization,
        routes=build_console(
            shared, callers, admin=admin, fetch=fetch, authorization=authorization
        ),
    )


def _certificates(config: ServiceConfig, clock: Clock, threads: ServiceThreads) -> Certificates:
    together = (*files_together(proxy_tls(config)), *principals_together(config))
    return Certificates(certificate_paths(config), clock, threads.other, together)


def _nothing() -> None:
    """Nobody waits until the broker is known."""
