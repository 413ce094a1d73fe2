"""What one node measures, counts and remembers, as the calls that report ask for it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from google.protobuf.message import Message

from kip405.errors import RemoteStorageError
from kip405.ids import PartitionKey
from rlm.api.calls import Gate
from rlm.api.costs import ClusterCosts
from rlm.api.diagnosis import ClusterDiagnosis
from rlm.api.peers import Peers
from rlm.api.report_calls import Reports
from rlm.api.task_events import ClusterEvents
from rlm.api.topic_plans import TopicPlans
from rlm.broker.answers import TopicDescription
from rlm.plans.client_activity import ClientTable
from rlm.plans.costs import Prices
from rlm.plans.enabling import PartitionMeasure
from rlm.plans.retention import LocalRetention
from rlm.service.diagnosis import mask_answer
from rlm.tasks.copy import CopyStatus
from rlm.tasks.decisions import Decisions
from rlm.tasks.expiry import ExpiryStatus
from rlm.tasks.pool import TaskPool
from rlm.tasks.trim import TrimStatus
from tests.builders.clock import ManualClock
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.threads import THREADS
from tests.rlm.api.node_fakes import cluster_clients
from tests.rlm.topics.world import ServiceBroker, ServiceUnderTest

P = ParamSpec("P")
T = TypeVar("T")


class CountedThreads:
    """Runs work in threads; `jobs` counts it."""

    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.jobs += 1
        return await THREADS.run(work, *args, **kwargs)


class ApiMeasures:
    """What a node has of each partition that it leads; `asked` is the local retention. `begun` has
    an item for each question; it is answered once `goes_on`.
    """

    def __init__(self) -> None:
        self.found: dict[int, PartitionMeasure | RemoteStorageError] = {}
        self.asked: list[LocalRetention] = []
        self.begun = asyncio.Queue[None]()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def own(
        self, topic: TopicDescription, retention: LocalRetention
    ) -> Mapping[int, PartitionMeasure | RemoteStorageError]:
        self.asked.append(retention)
        self.begun.put_nowait(None)
        await self.goes_on.wait()
        return self.found


class ApiDocuments:
    """What a node knows of itself, and the secrets that it masks."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {"versions.json": b"{}"}
        self.secrets: tuple[str, ...] = ()

    async def documents(self) -> Mapping[str, bytes]:
        return self.found

    async def mask(self, answer: Message) -> None:
        mask_answer(answer, self.secrets)


class ApiTasks:
    """Pools and results of tasks of one node, and what is remembered of them."""

    def __init__(self, most: int = 1_000, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.copy_pool = TaskPool("copy", self.clock, size=1, queue_limit=9)
        self.cleanup_pool = TaskPool("cleanup", self.clock, size=1, queue_limit=9)
        self.copied: dict[PartitionKey, CopyStatus] = {}
        self.trimmed: dict[PartitionKey, TrimStatus] = {}
        self.expired: dict[PartitionKey, ExpiryStatus] = {}
        self.decisions = Decisions(
            copy_pool=self.copy_pool,
            cleanup_pool=self.cleanup_pool,
            copied=self.copied,
            trimmed=self.trimmed,
            expired=self.expired,
            name_of=lambda key: TOPIC if key.topic_id == TOPIC_ID else None,
            clock=self.clock,
            most=most,
        )
        self.copy_pool.ended = self.decisions.copy_ended
        self.cleanup_pool.ended = self.decisions.cleanup_ended


class ApiReports:
    """Copies go at 1,000 bytes a second."""

    def __init__(self) -> None:
        self.measures = ApiMeasures()
        self.copy_limit = 1_000
        self.reads = 0
        self.threads = CountedThreads()
        self.documents = ApiDocuments()
        self.tasks = ApiTasks()
        self.decisions = self.tasks.decisions
        self.prices = Prices()

    def of(
        self,
        gate: Gate,
        peers: Peers,
        clients: ClientTable,
        service: ServiceUnderTest,
        broker: ServiceBroker,
    ) -> Reports:
        return Reports(
            gate=gate,
            peers=peers,
            clients=cluster_clients(peers, clients, broker),
            plans=TopicPlans(
                peers=peers,
                check=service.verbs,
                measures=self.measures,
                broker=broker,
                copy_limit=lambda: self.copy_limit,
            ),
            diagnosis=ClusterDiagnosis(peers=peers, documents=self.documents),
            events=ClusterEvents(peers=peers, decisions=self.decisions),
            costs=ClusterCosts(
                peers=peers,
                settings=service.settings,
                ledger=service.ledger,
                prices=lambda: self.prices,
                part_bytes=lambda _topic: None,
                reads=lambda: self.reads,
                threads=self.threads,
                clock=service.clock,
                barrier_deadline_ms=1_000,
            ),
        )
