"""What a simulated service does about topics: the real verbs, the real ends of deleted topics, and
the real watch for topics that were recreated under the same name (H7, H39).

Only what the verbs ask before they change anything (rights, readers, disks) is the model's: yes.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kip405.acls import MissingAcls
from rlm.broker.answers import TopicDescription
from rlm.service.apis import build_topic_ends
from rlm.service.dependencies import Dependencies, offload_policy
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.topics.deletions import Announcements, PendingDeletions
from rlm.topics.keeper import RecreatedTopicWatch
from rlm.topics.partition_records import Starts
from rlm.topics.purge import Purge
from rlm.topics.shortening import Shortening
from rlm.topics.takeover import Settler
from rlm.topics.verbs import Dependencies as VerbDependencies
from rlm.topics.verbs import TopicVerbs
from tests.simulation.broker_client import BrokerClient
from tests.simulation.model_cluster import Cluster


@dataclass(frozen=True, slots=True)
class _Node:
    calls: BrokerClient


class _Brokers:
    """rlm.topics.cluster.OtherBrokers: those that are alive, and offsets from the leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = {
            node_id: _Node(BrokerClient(cluster, broker))
            for node_id, broker in cluster.brokers.items()
        }

    async def all(self) -> Mapping[int, _Node]:
        brokers = self._cluster.brokers
        return {node_id: one for node_id, one in self._nodes.items() if brokers[node_id].is_up}

    async def offset(self, topic: TopicDescription, partition: int, timestamp: int) -> int:
        leader = topic.partitions[partition].leader
        answer = await self._nodes[leader].calls.list_offset(topic.name, partition, timestamp)
        return answer.offset


class _NothingToSay:
    """Every right is there; no reader and no disk is in the way of a change."""

    async def check(self, *_: object, **__: object) -> tuple[str, ...]:
        return ()

    async def refusal(self, _: str, known: MissingAcls, *, tier: bool) -> MissingAcls:
        """Nothing is missing but what the broker has refused; `tier` does not matter."""
        return known


def _starts(dependencies: Dependencies, brokers: Any) -> Starts:
    return Starts(
        settings=dependencies.metadata.settings,
        ledger=dependencies.metadata.manager,
        offsets=brokers,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


class TopicWork:
    """`verbs` and `purge` are what operators call; the rest runs from `start` on."""

    def __init__(self, dependencies: Dependencies, cluster: Cluster, log_dirs: Any) -> None:
        config, clock = dependencies.config, dependencies.clock
        settings, broker = dependencies.metadata.settings, dependencies.broker
        brokers = cast(Any, _Brokers(cluster))
        settler = Settler(
            node_id=config.node_id,
            broker=broker,
            settings=settings,
            clock=clock,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
            alters_configs=False,
        )
        announcements = Announcements(
            settings=settings, clock=clock, delay_ms=config.remote_delete_delay_ms
        )
        self.ends = build_topic_ends(dependencies, brokers)
        self.verbs = TopicVerbs(
            VerbDependencies(
                node_id=config.node_id,
                broker=broker,
                offsets=brokers,
                settings=settings,
                ledger=dependencies.metadata.manager,
                disk=cast(Any, None),
                starts=_starts(dependencies, brokers),
                access=cast(Any, _NothingToSay()),
                shortening=Shortening(
                    settings=settings,
                    ledger=dependencies.metadata.manager,
                    announcements=announcements,
                    scan=log_dirs.scan,
                    threads=dependencies.threads.snapshots,
                    clock=clock,
                ),
                readers=cast(Any, _NothingToSay()),
                logs=cast(Any, _NothingToSay()),
                offload=offload_policy(config),
                settler=settler,
                refuse_untiered=lambda _, __: None,
                clock=clock,
                barrier_deadline_ms=BARRIER_DEADLINE_MS,
            )
        )
        self.purge = Purge(
            ends=self.ends,
            settings=settings,
            ledger=dependencies.metadata.manager,
            revocation=self.verbs.revocation,
            lock=self.verbs.lock,
        )
        self._deletions = PendingDeletions(
            announcements=announcements,
            settler=settler,
            settings=settings,
            lock=self.verbs.lock,
            clock=clock,
            interval_ms=config.retention_check_interval_ms,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        )
        self._recreated = RecreatedTopicWatch(
            verbs=self.verbs,
            broker=broker,
            settings=settings,
            clock=clock,
            interval_ms=config.retention_check_interval_ms,
            reenable=config.topics_reenable,
        )

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin what a service keeps running."""
        for work in (self.ends.run, self._recreated.run, self._deletions.run):
            tasks.create_task(work())
