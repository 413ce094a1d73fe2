"""The services of a cluster in memory, for the topic verbs. There are as many as a test wants, and
each can be killed or paused at any of its awaits.
"""

from collections.abc import Callable, Mapping, Sequence

from kafka_protocol.apis.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kip405.acls import Acl, cluster_acl, missing_acls, topic_acl
from kip405.errors import Fenced, Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey
from kip405.segments import Layout
from rlm.broker.answers import (
    LocalRecords,
    TopicConfigValue,
    TopicDescription,
)
from rlm.plans.offload import OffloadPolicy
from rlm.plans.retention_contests import RetentionContests
from rlm.topics.acceptance import RetentionAcceptance
from rlm.topics.access import ClusterAccess, PeerAccess, ServiceAccess
from rlm.topics.cluster import ReaderCheck
from rlm.topics.deletions import Announcements, PendingDeletions
from rlm.topics.keeper import RetentionKeeper
from rlm.topics.partition_records import Starts
from rlm.topics.ports import GroupOffset
from rlm.topics.shortening import Shortening
from rlm.topics.takeover import EXTERNAL, Settler
from rlm.topics.verbs import Dependencies, TopicVerbs
from tests.builders.audit import MemoryAudit
from tests.builders.clock import ManualClock
from tests.builders.ledger import MemoryLedger
from tests.builders.log_dir import TOPIC, TOPIC_ID
from tests.builders.offload import DEFAULTS as AT_ONCE
from tests.builders.threads import THREADS
from tests.rlm.topics.cluster import (
    DEFAULTS,
    Cluster,
    Hook,
    OtherServices,
    ServiceSettings,
    no_hook,
)

DELAY_MS = 60_000


class ServiceBroker:
    """Brokers as one service sees them: Broker, LeaderOffsets, Groups, ShareGroups and Disk."""

    def __init__(self, cluster: Cluster, node_id: int, hook: Hook) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._hook = hook

    async def topic(self, name: str) -> TopicDescription:
        await self._hook()
        self._use(topic_acl("Describe", name), "describe")
        if name not in self._cluster.configs:
            raise NotFound(f"topic {name!r} does not exist")
        return self._cluster.topic()

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        if self._cluster.is_down:
            raise Unavailable("no answer")
        if names is None or TOPIC in names:
            self._use(topic_acl("Describe", TOPIC), "describe")
        found = TOPIC in self._cluster.configs and (names is None or TOPIC in names)
        return (self._cluster.topic(),) if found else ()

    async def topic_config(self, topic: str) -> Mapping[str, TopicConfigValue]:
        await self._hook()
        self._use(topic_acl("DescribeConfigs", topic), "describe configs")
        own = self._cluster.configs[topic]
        return {
            name: TopicConfigValue(value=own.get(name, default), is_topic_level=name in own)
            for name, default in {**own, **DEFAULTS}.items()
        }

    async def alter_topic_config(
        self,
        topic: str,
        *,
        set_values: Mapping[str, str],
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        await self._hook()
        self._use(topic_acl("AlterConfigs", topic), "validate" if validate_only else "alter")
        cluster = self._cluster
        if cluster.policy_refuses_to_validate if validate_only else cluster.policy_refuses:
            raise Invalid("POLICY_VIOLATION")
        if validate_only:
            return
        own = cluster.configs[topic]
        own.update(set_values)
        for name in unset:
            own.pop(name, None)
        cluster.alters.append((self._node_id, dict(set_values), tuple(unset)))
        await self._hook()

    async def delete_records(
        self, topic: str, partition: int, offset: int, *, timeout_ms: int
    ) -> int:
        await self._hook()
        self._use(topic_acl("Delete", topic), f"delete {partition} below {offset}")
        self._refuse_unless_leader(partition)
        start = max(offset, self._cluster.log_starts.get(partition, 0))
        self._cluster.log_starts[partition] = start
        return start

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        leader_epoch: int = -1,
        read_committed: bool = False,
        max_wait_ms: int = 0,
    ) -> LocalRecords:
        await self._hook()
        self._use(topic_acl("Read", topic), f"fetch {partition}")
        self._refuse_unless_leader(partition)
        start, end = (
            self._cluster.log_starts.get(partition, 0),
            self._cluster.ends.get(partition, 0),
        )
        if not start <= offset <= end:
            raise Fenced(f"fetch at {offset}: OFFSET_OUT_OF_RANGE (1)")
        return LocalRecords(
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=start,
            records=b"",
            aborted=(),
        )

    def _use(self, acl: Acl, what: str) -> None:
        self._cluster.used.append((self._node_id, what))
        if (self._node_id, acl) in self._cluster.denied:
            raise missing_acls(what, [acl])

    def _refuse_unless_leader(self, partition: int) -> None:
        leader = self._cluster.topic().partitions[partition].leader
        if leader != self._node_id:
            raise Fenced(f"partition {partition}: NOT_LEADER_OR_FOLLOWER (6)")

    async def offset(self, topic: TopicDescription, partition: int, timestamp: int) -> int:
        await self._hook()
        if self._cluster.leader < 0:
            raise Unavailable("no leader")
        if timestamp == EARLIEST_TIMESTAMP:
            return self._cluster.log_starts.get(partition, 0)
        end = self._cluster.ends.get(partition, 0)
        return end if timestamp == LATEST_TIMESTAMP else -1

    async def committed(self, topic: TopicDescription) -> tuple[GroupOffset, ...]:
        if self._cluster.groups_error is not None:
            raise self._cluster.groups_error
        return self._cluster.groups

    async def starts_now(self, topic: str) -> Mapping[int, int]:
        self._use(cluster_acl("Describe"), "list groups")
        return self._cluster.share_starts

    async def free_bytes(self) -> int:
        return 100 << 30


class LogsOf:
    """ExistingLogs of a cluster: `uncopyable` says what could not be copied."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def check(self, topic: TopicDescription, *, force: bool) -> tuple[str, ...]:
        found = self._cluster.uncopyable
        if found and not force:
            raise Fenced(found)
        return (found,) if found else ()


class ServiceUnderTest:
    """One service of the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        node_id: int = 1,
        hook: Hook = no_hook,
        takeover: str = "enforce",
        refuse_untiered: Callable[[str, Layout | None], None] = lambda _, __: None,
        peers: Callable[[ServiceSettings, ManualClock], PeerAccess] | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        """`clock`: another service's, where time passes for both."""
        self.cluster = cluster
        cluster.services[node_id] = self
        self.clock = clock or ManualClock()
        self.contests = RetentionContests()
        self.ledger = MemoryLedger()
        self.settings = ServiceSettings(cluster, node_id, hook, self.clock)
        self.broker = ServiceBroker(cluster, node_id, hook)
        self.settler = Settler(
            node_id=node_id,
            broker=self.broker,
            settings=self.settings,
            clock=self.clock,
            barrier_deadline_ms=1_000,
            alters_configs=takeover != EXTERNAL,
        )
        own, alters = self.broker, takeover != EXTERNAL
        self.access = ServiceAccess(
            node_id=node_id, broker=own, groups=own, share_groups=own, alters_configs=alters
        )
        self.announcements = Announcements(
            settings=self.settings, clock=self.clock, delay_ms=DELAY_MS
        )
        others = OtherServices(cluster) if peers is None else peers(self.settings, self.clock)
        self.verbs = TopicVerbs(
            Dependencies(
                node_id=node_id,
                broker=self.broker,
                offsets=self.broker,
                settings=self.settings,
                ledger=self.ledger,
                disk=self.broker,
                starts=self._starts(),
                access=ClusterAccess(
                    node_id=node_id, own=self.access, peers=others, principal=cluster.principal
                ),
                shortening=self._shortening(),
                logs=LogsOf(cluster),
                offload=OffloadPolicy(AT_ONCE, cluster.offload_rules),
                readers=ReaderCheck(
                    offsets=self.broker,
                    groups=self.broker,
                    share_groups=self.broker,
                    clock=self.clock,
                ),
                settler=self.settler,
                refuse_untiered=refuse_untiered,
                clock=self.clock,
                barrier_deadline_ms=1_000,
            )
        )
        self.keeper = self._retention_keeper(takeover)
        self.audit = MemoryAudit()
        self.acceptance = self._acceptance()
        self.deletions = self._deletion_keeper()

    def _starts(self) -> Starts:
        return Starts(
            settings=self.settings,
            ledger=self.ledger,
            offsets=self.broker,
            barrier_deadline_ms=1_000,
        )

    def _shortening(self) -> Shortening:
        return Shortening(
            settings=self.settings,
            ledger=self.ledger,
            announcements=self.announcements,
            scan=self.cluster.scan,
            threads=THREADS,
            clock=self.clock,
        )

    def _acceptance(self) -> RetentionAcceptance:
        return RetentionAcceptance(
            verbs=self.verbs,
            settler=self.settler,
            broker=self.broker,
            settings=self.settings,
            alarms=self.keeper,
            audit=self.audit,
            barrier_deadline_ms=1_000,
        )

    def _retention_keeper(self, takeover: str) -> RetentionKeeper:
        return RetentionKeeper(
            verbs=self.verbs,
            settler=self.settler,
            broker=self.broker,
            settings=self.settings,
            clock=self.clock,
            interval_ms=1_000,
            takeover=takeover,
            contests=self.contests,
            barrier_deadline_ms=1_000,
        )

    def _deletion_keeper(self) -> PendingDeletions:
        return PendingDeletions(
            announcements=self.announcements,
            settler=self.settler,
            settings=self.settings,
            lock=self.verbs.lock,
            clock=self.clock,
            interval_ms=1_000,
            barrier_deadline_ms=1_000,
        )

    async def repair(self) -> None:
        """What a fresh process does at its start."""
        await self.settings.barrier(1_000)
        await self.keeper.repair()

    def start_of(self, partition: int) -> int | None:
        return self.settings.view.remote_log_start(PartitionKey(TOPIC_ID, partition))
