"""A service's tasks over fakes, watched as a service does, and what each interface shows."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import structlog
from click.testing import CliRunner

from kip405.errors import RemoteStorageError
from kip405.ids import Uuid
from rlm.api.ports import PartitionStatus
from rlm.broker.answers import ClusterDescription, TopicDescription
from rlm.broker.leadership import Leadership
from rlm.cli.main import main
from rlm.clock import Clock
from rlm.plans.formats import own_formats
from rlm.plans.problem_rules import Limits
from rlm.plans.problems import Problem
from rlm.remote_log.history import Losses
from rlm.service.certificates import CertificatePath, Certificates
from rlm.service.coming_losses import ComingLosses
from rlm.service.gauges import copy_gauges, problem_and_partition_gauges
from rlm.service.heartbeat import HeartbeatSender
from rlm.service.listeners import HealthState, HttpServer
from rlm.service.log_dirs import LogDirReports, log_dir_gauges
from rlm.service.metrics import ServiceMetrics
from rlm.service.partition_gauges import PartitionGauges
from rlm.service.partition_problems import PartitionProblems
from rlm.service.problems import CommonSources, ProblemWatch, ServiceSources
from rlm.service.safety_gauges import RunAges, certificate_gauges, service_gauges
from rlm.service.statuses import Statuses
from rlm.service.tasks import PartitionTasks
from rlm.stores.opened import OpenStores
from rlm.stores.stores import RoutedReader, Stores, StoresInUse
from rlm.tasks.disk_watch import DiskWatch
from rlm.tasks.pool import TaskPool
from rlm.topics.keeper import TakeoverAlarm
from tests.builders.discards import discard_task
from tests.builders.ledger import OUR_WRITER, PARTITION
from tests.builders.rig import NODE_ID, Rig
from tests.builders.store import STORE_ID
from tests.builders.threads import THREADS
from tests.rlm.api.harness import api_node
from tests.rlm.api.node_fakes import FullLedger
from tests.rlm.stores.test_service_stores import KnownConnection
from tests.rlm.topics.cluster import Cluster

COPY_MS = 90_000
HEARTBEAT_MS = 10_000
FLOOR_BYTES = 1 << 20
LOSS_MS = 3_600_000
DISK_WARN_MS = 3_600_000
_TURNS = 5
LIMITS = Limits(
    copy_ms=COPY_MS,
    copy_deadline_ms=1_800_000,
    trim_ms=900_000,
    leadership_ms=10_000,
    certificate_ms=14 * 86_400_000,
)


class _Asked:
    """Leadership's questions, answered by the rig's broker; `error` is raised instead."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.error: RemoteStorageError | None = None

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        if self.error is not None:
            raise self.error
        return (await self._rig.broker.topic(PARTITION.topic),) if self._rig.broker.exists else ()

    async def describe_cluster(self) -> ClusterDescription:
        if self.error is not None:
            raise self.error
        return ClusterDescription(cluster_id="c", nodes=())


class _Log:
    """Nothing is lost."""

    loss: str | None = None


class _Keeper:
    """No retention is foreign."""

    def __init__(self) -> None:
        self.alarms: dict[Uuid, TakeoverAlarm] = {}


@dataclass(kw_only=True)
class Shown:
    """What an operator sees of one moment, interface by interface."""

    problems: tuple[Problem, ...]
    health: dict[str, Any]
    healthz_status: int
    readyz_status: int
    metrics: str
    logged: list[tuple[str, str]]
    exit_code: int
    stdout: str


class Watched:
    """One partition led by us; `run_tasks` copies and trims once, as the pools would."""

    def __init__(
        self, path: Path, certificates: Sequence[CertificatePath] = (), *, quota_bytes: int = 0
    ) -> None:
        """`quota_bytes` of its log directory, 0 = none."""
        self.rig = rig = Rig(path)
        self.snapshots = rig.cached_snapshots()
        self.asked = _Asked(rig)
        clock = rig.clock
        self.leadership = Leadership(self.asked, clock, poll_interval_ms=1_000)
        self.copy_pool = TaskPool("copy", clock, size=1, queue_limit=9_999, backoff=lambda _: 0)
        self.cleanup_pool = TaskPool("cleanup", clock, size=1, queue_limit=9, backoff=lambda _: 0)
        self.certificates = Certificates(certificates, clock, THREADS)
        self.heartbeat = HeartbeatSender(
            settings=rig.settings,
            clock=clock,
            node_id=NODE_ID,
            writer=OUR_WRITER,
            formats=own_formats("1"),
            listen={},
            advertised={},
            stores=tuple,
            give_back=dict,
            interval_ms=HEARTBEAT_MS,
        )
        self.link = KnownConnection("hot", STORE_ID)
        self.disks = DiskWatch(
            [rig.disk.path.parent],
            quota_bytes=quota_bytes,
            floor_bytes=FLOOR_BYTES,
            threads=THREADS,
            clock=clock,
        )
        self._wire(clock)

    def _wire(self, clock: Clock) -> None:
        rig = self.rig
        self.partition_tasks = partition_tasks = PartitionTasks(
            copy=rig.copy,
            hole_watch=rig.hole_watch,
            trim=rig.trim,
            expiry=rig.expiry,
            unreferenced=rig.unreferenced,
            discard=discard_task(rig),
            cleanup=rig.cleanup,
            copy_pool=self.copy_pool,
            cleanup_pool=self.cleanup_pool,
        )
        self.partitions = partitions = PartitionProblems(
            node_id=NODE_ID,
            leadership=self.leadership,
            snapshots=self.snapshots,
            settings=rig.settings,
            ledger=rig.ledger,
            partition_tasks=partition_tasks,
            deletions=rig.deletions,
            losses=Losses(),
            clock=clock,
            limits=lambda: LIMITS,
            losses_to_come=ComingLosses(self.snapshots, clock, LOSS_MS),
            copy_limit=lambda: 1 << 30,
        )
        self.log_dirs = LogDirReports(
            watch=self.disks,
            node_id=NODE_ID,
            leadership=self.leadership,
            snapshots=self.snapshots,
            settings=rig.settings,
            lags=partitions.lags,
            trims=rig.trim.statuses,
            warn_ms=DISK_WARN_MS,
        )
        self.watch = ProblemWatch(
            ServiceSources(
                node_id=NODE_ID,
                common=self._common(),
                settings=rig.settings,
                leadership=self.leadership,
                heartbeat=self.heartbeat,
                heartbeat_interval_ms=HEARTBEAT_MS,
                needs_all_brokers=False,
                partitions=partitions,
                pools=(self.copy_pool, self.cleanup_pool),
                keeper=_Keeper(),
                clock=clock,
                limits=LIMITS,
                principal=None,
                others=(self.log_dirs.findings,),
            ).sources(),
            clock,
        )
        self.statuses = Statuses(
            node_id=NODE_ID,
            leadership=self.leadership,
            snapshots=self.snapshots,
            settings=rig.settings,
            ledger=rig.ledger,
            partition_tasks=partition_tasks,
            run_copy=rig.copy.run,
            clock=clock,
            partition_problems=partitions,
            problems=self.watch.current,
        )

    def _common(self) -> CommonSources:
        rig = self.rig
        stores = Stores((self.link,))
        return CommonSources(
            ledger=rig.ledger,
            settings=rig.settings,
            log=_Log(),
            stores=OpenStores(
                stores=stores,
                routed=RoutedReader(stores, rig.clock, 0),
                in_use=StoresInUse(FullLedger(), rig.clock),
                settings=rig.settings,
                plugins=(),
            ),
            certificates=self.certificates,
            hung_threads=rig.threads.hung,
            refusals=dict,
            clock=rig.clock,
            limits=LIMITS,
            writes=rig.writes,
        )

    async def run_tasks(self, *, heartbeats: Sequence[int] = (NODE_ID,)) -> None:
        """Heartbeats, a poll of leadership, then a job of each pool; what fails is kept by them."""
        for node_id in heartbeats:
            self.rig.heartbeat(node_id)
        try:
            self.leadership.error = None
            await self.leadership.refresh()
        except RemoteStorageError as error:
            self.leadership.error = error
        led = self.leadership.snapshot.partitions.get(PARTITION.key)
        if led is not None:
            await self._work(self.copy_pool, lambda: self.rig.copy.run(led))
            await self._work(self.cleanup_pool, lambda: self._clean(led))
        self.watch.current()

    async def _clean(self, led: Any) -> None:
        await self.snapshots.take(led)
        await self.rig.trim.run(led)

    async def _work(self, pool: TaskPool, job: Any) -> None:
        done = asyncio.Event()

        async def noted() -> None:
            try:
                await job()
            finally:
                done.set()

        pool.submit(PARTITION.key, noted)
        worker = asyncio.ensure_future(pool.run())
        await done.wait()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        assert not pool.running
        worker.cancel()

    async def pass_time(self, duration_ms: int, *, heartbeats: Sequence[int] = (NODE_ID,)) -> None:
        """Runs of the tasks every 30 s."""
        end_ms = self.rig.clock.now + duration_ms
        while self.rig.clock.now < end_ms:
            self.rig.clock.advance(min(30_000, end_ms - self.rig.clock.now))
            await self.run_tasks(heartbeats=heartbeats)

    @property
    def status(self) -> PartitionStatus:
        [found] = self.led()
        return found

    def led(self) -> Sequence[PartitionStatus]:
        """As `rlm status` shows the partitions now."""
        return self.statuses.led(self.watch.current())

    @asynccontextmanager
    async def logging(self) -> AsyncIterator[list[tuple[str, str]]]:
        """Problems that are logged meanwhile: (event, kind)."""
        logged: list[tuple[str, str]] = []
        with structlog.testing.capture_logs() as lines:
            yield logged
        logged += [
            (row["event"], row["kind"])
            for row in lines
            if row["event"] in ("problem", "problem_ended")
        ]

    def metrics(self) -> ServiceMetrics:
        """What a scrape reads."""
        metrics, clock = ServiceMetrics(), self.rig.clock
        ages = RunAges(
            partitions=self.partitions,
            good_runs=self.rig.good_runs,
            verified_ms=None,
            clock=clock,
        )
        metrics.add_gauges(
            problem_and_partition_gauges(
                self.watch.current, self.statuses.led, PartitionGauges(clock)
            ),
            lambda: log_dir_gauges(self.log_dirs.reports()),
            lambda: copy_gauges(self.partitions.copying()),
            ages.gauges,
            lambda: service_gauges(self.rig.settings.view, clock.monotonic_ms(), HEARTBEAT_MS),
            lambda: certificate_gauges(self.certificates.files, clock.now_ms()),
        )
        return metrics

    async def shown(self) -> Shown:
        """What each interface shows now."""
        problems = self.watch.current()
        metrics = self.metrics()
        state = HealthState(alive=True, ready=True, problems=problems)
        server = HttpServer(host="127.0.0.1", port=0, health=lambda: state, metrics=metrics.render)
        url = f"http://127.0.0.1:{await server.start()}"
        try:
            async with aiohttp.ClientSession(url) as session:
                async with session.get("/healthz") as answer:
                    health, healthz_status = json.loads(await answer.read()), answer.status
                async with session.get("/readyz") as answer:
                    readyz_status = answer.status
                async with session.get("/metrics") as answer:
                    text = await answer.text()
        finally:
            await server.stop()
        async with api_node(Cluster()) as node:
            node.statuses.problems[:] = problems
            node.stores.log_dirs = self.log_dirs.reports()
            runner = CliRunner(env={"RLM_ADDRESS": node.address, "RLM_SANDBOX": None})
            shown = await asyncio.to_thread(runner.invoke, main, ["status"])
        return Shown(
            problems=problems,
            health=health,
            healthz_status=healthz_status,
            readyz_status=readyz_status,
            metrics=text,
            logged=[],
            exit_code=shown.exit_code,
            stdout=shown.stdout,
        )


def with_replica(rig: Rig, node_id: int) -> None:
    """The partition has a second replica, in sync."""
    both = (NODE_ID, node_id)
    rig.broker.partition = replace(rig.broker.partition, replicas=both, isr=both)
