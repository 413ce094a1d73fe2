"""Wires the gRPC API of a broker's service and the topic verbs behind it.

Nothing here is on the path of a Kafka client.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kip405.errors import Fenced
from kip405.ids import PartitionKey
from kip405.process import software_version
from rlm.api.admin import AdminDependencies, AdminService
from rlm.api.calls import Gate, TokenSource
from rlm.api.cluster_copy import ClusterCopy
from rlm.api.cluster_status import ClusterStatus
from rlm.api.cluster_verify import ClusterVerify
from rlm.api.copy_limits import ClusterCopyLimits
from rlm.api.diagnosis import Documents
from rlm.api.expiry_plans import ExpiryPlans
from rlm.api.peers import Peers
from rlm.api.ports import ConfigReload, Problems
from rlm.api.topic_summaries import TopicSummaries
from rlm.plans.client_activity import ClientRow
from rlm.plans.disk import LogDirReport
from rlm.plans.retention_contests import RetentionContests
from rlm.plans.services import DEAD_AFTER_BEATS
from rlm.plans.topic_end import EndLimits
from rlm.remote_log.snapshots import PartitionSnapshot
from rlm.remote_log.topic_refs import TopicResolver
from rlm.service.dependencies import Dependencies, offload_policy
from rlm.service.explanation import Explanations
from rlm.service.fetch_api import endpoints
from rlm.service.metadata import BARRIER_DEADLINE_MS
from rlm.service.reports import build_reports, scan_of
from rlm.service.statuses import Statuses
from rlm.service.task_parts import certain_time
from rlm.service.tasks import TaskWiring
from rlm.service.unreferenced import partition_end
from rlm.service.verify_tasks import unlisted_anywhere
from rlm.tasks.accept_loss import LossAcceptance
from rlm.tasks.copy_progress import Copying
from rlm.tasks.evidence import StoreEvidence
from rlm.tasks.segment_deletion import SegmentDeleter
from rlm.topics.acceptance import RetentionAcceptance
from rlm.topics.access import Access, AccessWatch, ClusterAccess, PeerAccess, ServiceAccess
from rlm.topics.cluster import ClusterGroups, OtherBrokers, ReaderCheck
from rlm.topics.cluster_retention import BrokersRetention
from rlm.topics.deletions import Announcements, PendingDeletions
from rlm.topics.discards import Discards
from rlm.topics.ends import EndSettings, TopicEnds
from rlm.topics.giveback import DiskGiveback
from rlm.topics.keeper import RecreatedTopicWatch, RetentionKeeper
from rlm.topics.leftovers import Leftovers
from rlm.topics.local_logs import DiskLogs, LogDirSpace
from rlm.topics.needed_acls import needed_acls
from rlm.topics.partition_records import Adoption, Freezes, LocalStarts, Starts
from rlm.topics.presence import TopicPresence
from rlm.topics.purge import Purge
from rlm.topics.shortening import Shortening
from rlm.topics.takeover import EXTERNAL, Settler
from rlm.topics.verbs import Dependencies as VerbDependencies
from rlm.topics.verbs import TopicVerbs

_PEER_TIMEOUT_MS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWiring:
    """The topic verbs and the components that maintain what the verbs decided."""

    verbs: TopicVerbs
    acceptance: RetentionAcceptance
    access: Access
    access_watch: AccessWatch
    keeper: RetentionKeeper
    deletions: PendingDeletions
    recreated: RecreatedTopicWatch
    giveback: DiskGiveback
    ends: TopicEnds
    purge: Purge
    freezes: Freezes
    brokers: OtherBrokers
    retention: BrokersRetention


def build_peers(dependencies: Dependencies, tokens: TokenSource) -> Peers:
    """The services of the cluster's other brokers; the caller closes them."""
    config = dependencies.config
    return Peers(
        node_id=config.node_id,
        principal=config.principal,
        tokens=tokens,
        settings=dependencies.metadata.settings,
        clock=dependencies.clock,
        timeout_ms=_PEER_TIMEOUT_MS,
        tls=config.peer_tls,
        allow_insecure=config.allow_insecure,
    )


def build_topics(dependencies: Dependencies, peers: PeerAccess) -> TopicWiring:
    """The topic verbs; `peers` asks the services of other brokers for the ACLs they lack."""
    config, broker = dependencies.config, dependencies.broker
    settings, clock = dependencies.metadata.settings, dependencies.clock
    brokers = OtherBrokers(broker, client_id=f"rlm-{config.node_id}-others")
    groups = ClusterGroups(brokers)
    alters_configs, contests = config.retention_takeover != EXTERNAL, RetentionContests()
    access = ServiceAccess(
        node_id=config.node_id,
        broker=broker,
        groups=groups,
        share_groups=dependencies.share_groups,
        alters_configs=alters_configs,
    )
    settler = Settler(
        node_id=config.node_id,
        broker=broker,
        settings=settings,
        clock=clock,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
        alters_configs=alters_configs,
    )
    every_access = _cluster_access(dependencies, access, peers)
    announcements = Announcements(
        settings=settings, clock=clock, delay_ms=config.remote_delete_delay_ms
    )
    verbs = _topic_verbs(dependencies, brokers, groups, settler, every_access, announcements)
    keeper = RetentionKeeper(
        verbs=verbs,
        settler=settler,
        broker=broker,
        settings=settings,
        clock=clock,
        interval_ms=config.retention_check_interval_ms,
        takeover=config.retention_takeover,
        contests=contests,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )
    ends = build_topic_ends(dependencies, brokers)
    return TopicWiring(
        verbs=verbs,
        acceptance=_acceptance(dependencies, settler, verbs, keeper),
        access=access,
        access_watch=_access_watch(dependencies, alters_configs=alters_configs),
        keeper=keeper,
        deletions=PendingDeletions(
            announcements=announcements,
            settler=settler,
            settings=settings,
            lock=verbs.lock,
            clock=clock,
            interval_ms=config.retention_check_interval_ms,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        ),
        giveback=_giveback(dependencies, brokers, settler, verbs),
        recreated=RecreatedTopicWatch(
            verbs=verbs,
            broker=broker,
            settings=settings,
            clock=clock,
            interval_ms=config.retention_check_interval_ms,
            reenable=config.topics_reenable,
        ),
        ends=ends,
        purge=_purge(dependencies, ends, verbs),
        freezes=Freezes(settings=settings, broker=broker, barrier_deadline_ms=BARRIER_DEADLINE_MS),
        brokers=brokers,
        retention=BrokersRetention(brokers, contests, clock),
    )


def _purge(dependencies: Dependencies, ends: TopicEnds, verbs: TopicVerbs) -> Purge:
    return Purge(
        ends=ends,
        settings=dependencies.metadata.settings,
        ledger=dependencies.metadata.manager,
        revocation=verbs.revocation,
        lock=verbs.lock,
    )


def build_topic_ends(dependencies: Dependencies, brokers: OtherBrokers) -> TopicEnds:
    """What ends deleted topics (H7)."""
    config, clock = dependencies.config, dependencies.clock
    evidence = StoreEvidence(
        dependencies.stores.stores,
        cluster_id=config.cluster_id,
        threads=dependencies.threads.evidence,
    )
    ledger, settings = dependencies.metadata.manager, dependencies.metadata.settings
    heartbeat = dependencies.heartbeat
    end = partition_end(
        dependencies,
        SegmentDeleter(ledger=ledger, evidence=evidence, clock=clock, node_id=config.node_id),
    )
    return TopicEnds(
        presence=TopicPresence(node_id=config.node_id, own=dependencies.broker, brokers=brokers),
        local_starts=LocalStarts(
            broker=dependencies.broker,
            settings=settings,
            offsets=brokers,
            starts=dependencies.starts,
        ),
        partition_end=end,
        leftovers=Leftovers(
            settings=settings,
            ledger=ledger,
            partition_end=end,
            evidence=evidence,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        ),
        ledger=ledger,
        settings=settings,
        clock=clock,
        time=certain_time(dependencies),
        rival=lambda: None if heartbeat.rival is None else "a second service of this node is alive",
        config=EndSettings(
            node_id=config.node_id,
            cluster_id=config.cluster_id,
            interval_ms=config.retention_check_interval_ms,
            grace_ms=config.topic_deletion_grace_ms,
            delay_ms=config.remote_delete_delay_ms,
            limits=EndLimits(
                max_topics=config.topic_deletion_max_topics,
                max_share_percent=config.topic_deletion_max_share_percent,
            ),
            dead_after_ms=DEAD_AFTER_BEATS * config.heartbeat_interval_ms,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        ),
    )


def _cluster_access(dependencies: Dependencies, own: Access, peers: PeerAccess) -> ClusterAccess:
    node_id, principal = dependencies.config.node_id, _principal(dependencies)
    return ClusterAccess(node_id=node_id, own=own, peers=peers, principal=principal)


def _principal(dependencies: Dependencies) -> str | None:
    """Of this service's own Kafka clients."""
    return dependencies.config.kafka_security().principal


def _access_watch(dependencies: Dependencies, *, alters_configs: bool) -> AccessWatch:
    settings = dependencies.metadata.settings
    return AccessWatch(
        allowed=dependencies.allowed,
        needed=lambda: needed_acls(settings.view.topics(), alters_configs=alters_configs),
        clock=dependencies.clock,
        interval_ms=lambda: dependencies.running.now.access_check_interval_ms,
        principal=_principal(dependencies),
    )


def _acceptance(
    dependencies: Dependencies, settler: Settler, verbs: TopicVerbs, keeper: RetentionKeeper
) -> RetentionAcceptance:
    return RetentionAcceptance(
        verbs=verbs,
        settler=settler,
        broker=dependencies.broker,
        settings=dependencies.metadata.settings,
        alarms=keeper,
        audit=dependencies.audit,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


def _giveback(
    dependencies: Dependencies, brokers: OtherBrokers, settler: Settler, verbs: TopicVerbs
) -> DiskGiveback:
    return DiskGiveback(
        settler=settler,
        brokers=brokers,
        settings=dependencies.metadata.settings,
        ledger=dependencies.metadata.manager,
        lock=verbs.lock,
        clock=dependencies.clock,
        interval_ms=lambda: dependencies.running.now.disk_check_interval_ms,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
        heartbeat_max_age_ms=DEAD_AFTER_BEATS * dependencies.config.heartbeat_interval_ms,
    )


def _topic_verbs(
    dependencies: Dependencies,
    brokers: OtherBrokers,
    groups: ClusterGroups,
    settler: Settler,
    access: ClusterAccess,
    announcements: Announcements,
) -> TopicVerbs:
    broker, settings = dependencies.broker, dependencies.metadata.settings
    return TopicVerbs(
        VerbDependencies(
            node_id=dependencies.config.node_id,
            broker=broker,
            offsets=brokers,
            settings=settings,
            ledger=dependencies.metadata.manager,
            disk=LogDirSpace(
                dependencies.config.log_dirs,
                dependencies.config.disk_quota_bytes,
                dependencies.threads.other,
            ),
            starts=Starts(
                settings=settings,
                ledger=dependencies.metadata.manager,
                offsets=brokers,
                barrier_deadline_ms=BARRIER_DEADLINE_MS,
            ),
            access=access,
            shortening=Shortening(
                settings=settings,
                ledger=dependencies.metadata.manager,
                announcements=announcements,
                scan=scan_of(dependencies),
                threads=dependencies.threads.snapshots,
                clock=dependencies.clock,
            ),
            logs=DiskLogs(
                scan_of(dependencies), dependencies.threads.snapshots, dependencies.clock
            ),
            offload=offload_policy(dependencies.config),
            readers=ReaderCheck(
                offsets=brokers,
                groups=groups,
                share_groups=dependencies.share_groups,
                clock=dependencies.clock,
            ),
            settler=settler,
            refuse_untiered=dependencies.stores.targets.refuse_untiered,
            clock=dependencies.clock,
            barrier_deadline_ms=BARRIER_DEADLINE_MS,
        )
    )


def build_admin(
    dependencies: Dependencies,
    *,
    tasks: TaskWiring,
    topics: TopicWiring,
    gate: Gate,
    peers: Peers,
    statuses: Statuses,
    problems: Problems,
    log_dirs: Callable[[], Sequence[LogDirReport]],
    copying: Callable[[], Copying],
    clients: Callable[[], tuple[ClientRow, ...]],
    reload: ConfigReload,
    documents: Documents,
) -> AdminService:
    """The commands of operators."""
    settings, broker = dependencies.metadata.settings, dependencies.broker
    discards = build_discards(dependencies, tasks)
    return AdminService(
        AdminDependencies(
            gate=gate,
            verbs=topics.verbs,
            acceptance=topics.acceptance,
            access=topics.access,
            freezes=topics.freezes,
            copy_limits=ClusterCopyLimits(peers=peers, decisions=tasks.copy_limits),
            reload=reload,
            adoption=Adoption(
                broker=broker,
                settings=settings,
                ledger=dependencies.metadata.manager,
                unlisted=unlisted_anywhere(dependencies),
                starts=dependencies.starts,
                barrier_deadline_ms=BARRIER_DEADLINE_MS,
            ),
            losses=_loss_acceptance(dependencies, tasks),
            deletions=topics.deletions,
            discards=discards,
            purge=topics.purge,
            summaries=TopicSummaries(
                settings=settings,
                pending=topics.deletions.pending,
                ledger=dependencies.metadata.manager,
                broker=broker,
                offload=offload_policy(dependencies.config),
                barrier_deadline_ms=BARRIER_DEADLINE_MS,
            ),
            status=_cluster_status(
                *(dependencies, tasks, topics, peers, statuses),
                *(problems, log_dirs, copying, discards),
            ),
            statuses=statuses,
            resolver=TopicResolver(broker, settings),
            peers=peers,
            stores=dependencies.stores,
            explanations=_explanations(dependencies, tasks),
            reports=build_reports(
                dependencies, tasks, topics.verbs, topics.brokers, gate, peers, clients, documents
            ),
            expiry_plans=ExpiryPlans(peers=peers, planner=tasks, broker=broker),
            copies=ClusterCopy(
                peers=peers, runs=tasks.copy_runs, broker=broker, clock=dependencies.clock
            ),
            verify=ClusterVerify(
                peers=peers, runs=tasks.verify.runs, settings=settings, broker=broker
            ),
            now_ms=dependencies.clock.now_ms,
        )
    )


def _explanations(dependencies: Dependencies, tasks: TaskWiring) -> Explanations:
    return Explanations(
        cluster_id=dependencies.config.cluster_id,
        snapshots=dependencies.snapshots,
        settings=dependencies.metadata.settings,
        ledger=dependencies.metadata.manager,
        tasks=tasks.partition_tasks,
        lost=tasks.lost,
        stores=dependencies.stores.statuses,
        clock=dependencies.clock,
    )


def _cluster_status(
    dependencies: Dependencies,
    tasks: TaskWiring,
    topics: TopicWiring,
    peers: Peers,
    statuses: Statuses,
    problems: Problems,
    log_dirs: Callable[[], Sequence[LogDirReport]],
    copying: Callable[[], Copying],
    discards: Discards,
) -> ClusterStatus:
    return ClusterStatus(
        peers=peers,
        statuses=statuses,
        settings=dependencies.metadata.settings,
        broker=dependencies.broker,
        freezes=topics.freezes,
        pending=topics.deletions.pending,
        discards=discards,
        problems=problems,
        stores=dependencies.stores.statuses,
        log_dirs=log_dirs,
        copying=copying,
        verifications=tasks.verify.runs.running,
        endpoints=endpoints(dependencies),
        version=software_version(),
        now_ms=dependencies.clock.now_ms,
    )


async def _snapshot(dependencies: Dependencies, key: PartitionKey) -> PartitionSnapshot:
    row = dependencies.leadership.snapshot.partitions.get(key)
    if row is None or row.leader != dependencies.config.node_id:
        raise Fenced(f"partition {key} is not led by node {dependencies.config.node_id}")
    return await dependencies.snapshots.take(row)


def build_discards(dependencies: Dependencies, tasks: TaskWiring) -> Discards:
    """What decides and undoes `rlm partition discard` (H4)."""
    return Discards(
        snapshot=partial(_snapshot, dependencies),
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        unmark=tasks.partition_tasks.discard.unmark,
        lock=tasks.partition_tasks.discard.lock,
        clock=dependencies.clock,
        delay_ms=dependencies.config.remote_delete_delay_ms,
        barrier_deadline_ms=BARRIER_DEADLINE_MS,
    )


def _loss_acceptance(dependencies: Dependencies, tasks: TaskWiring) -> LossAcceptance:
    return LossAcceptance(
        snapshot=partial(_snapshot, dependencies),
        ledger=dependencies.metadata.manager,
        settings=dependencies.metadata.settings,
        evidence=tasks.evidence,
        lost=tasks.lost,
        holes=tasks.holes,
        unlisted=unlisted_anywhere(dependencies),
        held=tasks.holds.missing,
    )
