"""The table of settings: each setting of `rlm serve` is a field with key, kind, default and doc.

Settings of every role are in `rlm/config/common.py`, those of TLS at the proxy in
`rlm/config/proxy_clients.py`, those of alarms and metrics in `rlm/config/watching.py`, and all
others that only a service beside a broker has are here. An attribute's name is its key with
underscores for dots. Kafka's names are used where Kafka has one. Pure; the loader reads files.
"""

from dataclasses import dataclass
from pathlib import Path

from kip405.addresses import Address
from kip405.history import history_text
from kip405.settings import (
    FLAG,
    PATH,
    PATHS,
    TCP,
    TEXT,
    Setting,
    checked_later,
    choice,
    integer,
    integer_or,
    rows_of,
    setting,
)
from rlm.config.common import CommonConfig, share_of_memory
from rlm.config.common import count as _count
from rlm.config.common import milliseconds as _ms
from rlm.config.common import size_bytes as _size
from rlm.config.memory import COPIES, COPY_BYTES, PROXY
from rlm.config.offload import OFFLOAD_RULES_ALLOWED, OffloadRule
from rlm.config.stores import RULES_ALLOWED, build_provider
from rlm.config.watching import WatchingConfig
from rlmm.settings_records import LEAST_COPY_BYTES_PER_SECOND, OffloadThresholds
from rsm_plugins.endpoints import EndpointProvider, TopicRule

AUTO = "auto"
REWRITE = "rewrite"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig(WatchingConfig):
    """Checked settings of the service beside one broker; built by `rlm.config.load`."""

    node_id: int = setting(
        "node.id",
        integer(0),
        "Node id of the broker beside this service.",
        default_doc="from the broker's files",
    )
    log_dirs: tuple[Path, ...] = setting(
        "log.dirs",
        PATHS,
        "Log directories of the broker. The service only reads them.",
        default_doc="from broker.server.properties",
    )
    broker_server_properties: Path | None = setting(
        "broker.server.properties",
        PATH,
        "The broker's server.properties. It provides node.id, log.dirs and addresses, and "
        "must agree with those that are set here.",
        default=None,
    )
    broker_direct_address: Address = setting(
        "broker.direct.address",
        TCP,
        "The broker's own listener, past every proxy.",
        default_doc="the inter-broker listener of broker.server.properties",
    )
    broker_tiered_address: Address = setting(
        "broker.tiered.address",
        TCP,
        "Address to which the broker binds the listener behind the proxy.",
        default_doc="that listener of broker.server.properties",
    )
    broker_tiered_listener_name: str = setting(
        "broker.tiered.listener.name",
        TEXT,
        "Name of that listener; never a controller listener. With proxy.attach=listener it is one "
        "that the broker advertises at the proxy, and never the inter-broker listener.",
        default="TIERED",
    )
    proxy_attach: str = setting(
        "proxy.attach",
        choice("listener", REWRITE),
        "How clients come to the proxies. `listener`: each broker has a listener that it "
        "advertises at its proxy. `rewrite`: the proxy stands before a listener that the broker "
        "has anyway, and changes the addresses of brokers in answers, so that no broker is "
        "configured or restarted. Set it on all services of a cluster alike.",
        default="listener",
    )
    proxy_listen: Address = setting("proxy.listen", TCP, "Where Kafka clients are served.")
    proxy_advertised: Address = setting(
        "proxy.advertised",
        TCP,
        "The proxy's address for clients. With proxy.attach=listener it must equal the address "
        "that the broker advertises; with rewrite it must not.",
        default_doc="proxy.listen",
    )
    allow_other_advertised: bool = setting(
        "allow_other_advertised",
        FLAG,
        "Start although the broker advertises another address for its tiered listener than "
        "proxy.advertised, for example that of a load balancer in front of the proxy; or, with "
        "proxy.attach=rewrite, the same one.",
        default=False,
    )
    allow_shared_identity: bool = setting(
        "allow_shared_identity",
        FLAG,
        "Start although the broker has an authorizer and cannot distinguish the proxy's clients.",
        default=False,
    )
    storage_endpoint_rules: tuple[TopicRule, ...] = setting(
        "storage.endpoint.rules",
        checked_later(RULES_ALLOWED),
        "Rules that choose the store of new segments by topic. The first that matches decides.",
        default=(),
        default_doc="everything goes to the first store",
    )
    storage_endpoint_provider_class: str | None = setting(
        "storage.endpoint.provider.class",
        TEXT,
        "Instead of rules: `module:Class` of an EndpointProvider (rsm_plugins/endpoints.py).",
        default=None,
    )
    store_inspect_interval_ms: int = _ms(
        "store.inspect.interval.ms",
        300_000,
        "How often lifecycle rules, versioning and locks of stores are checked (`rlm doctor`).",
        changes_while_running=True,
    )
    rlmm_config_remote_log_metadata_topic_replication_factor: int = setting(
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        integer(1, 32_767),
        "Replication factor of the ledger and settings topics when they are created.",
        default=3,
    )
    remote_log_manager_task_interval_ms: int = _ms(
        "remote.log.manager.task.interval.ms",
        30_000,
        "How often copy tasks run.",
        changes_while_running=True,
    )
    remote_log_manager_task_retry_backoff_ms: int = _ms(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "How long a partition's copy or cleanup task waits after its first failure; twice as long "
        "after each further one.",
    )
    remote_log_manager_task_retry_backoff_max_ms: int = _ms(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        "Longest wait of a task that fails again and again.",
    )
    remote_log_manager_copier_thread_pool_size: int = _count(
        "remote.log.manager.copier.thread.pool.size",
        10,
        "Copy tasks at a time, and segments of all partitions that are copied at a time, as far as "
        "copy.memory.max.bytes has memory for them.",
        changes_while_running=True,
    )
    copy_memory_max_bytes: int = _size(
        COPIES.key,
        COPIES.usual_bytes,
        "Memory of copies: no more segments are copied at a time than it has 24 MiB for.",
        COPY_BYTES,
        default_doc=share_of_memory(f"{COPY_BYTES} for each copy task"),
    )
    copy_segments_max_in_flight: int = _count(
        "copy.segments.max.in.flight",
        4,
        "Segments of one partition that are copied at a time. They are finished in order. Of "
        "segments below 16 MiB, up to four times as many are copied at a time.",
    )
    remote_log_manager_expiration_thread_pool_size: int = _count(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        "Cleanup tasks at a time. Records of as many partitions are deleted at the broker at a "
        "time (DeleteRecords); a reload does not change that.",
        changes_while_running=True,
    )
    remote_log_manager_copy_max_bytes_per_second: int = _size(
        "remote.log.manager.copy.max.bytes.per.second",
        1 << 30,
        "Bytes a second that this service copies to its stores, over all partitions. The default "
        "is most of a 10 Gbit/s link. A segment is charged whole before it is uploaded. Dynamic: "
        "`rlm copy-limit` overrules it while services run.",
        least=LEAST_COPY_BYTES_PER_SECOND,
        changes_while_running=True,
    )
    log_remote_copy_lag_ms: int = _ms(
        "log.remote.copy.lag.ms",
        0,
        "remote.copy.lag.ms of topics for which neither they nor offload.rules say more: a closed "
        "segment is copied when its newest record is so old. 0 = at once, -1 = as local retention.",
        least=-1,
    )
    log_remote_copy_lag_bytes: int = _size(
        "log.remote.copy.lag.bytes",
        -1,
        "remote.copy.lag.bytes likewise: a closed segment is also copied when so much newer data "
        "follows it.",
        least=-1,
    )
    offload_deletion_lag_ms: int = _ms(
        "offload.deletion.lag.ms",
        0,
        "How long brokers keep a segment after its copy, at least, where neither the topic nor "
        "offload.rules say more. Pulsar's default is 4 hours.",
        least=0,
    )
    offload_rules: tuple[OffloadRule, ...] = setting(
        "offload.rules",
        checked_later(OFFLOAD_RULES_ALLOWED),
        "Rules that choose these thresholds by topic. The first that matches decides.",
        default=(),
        default_doc="none",
    )
    log_dir_scan_threads: int = _count(
        "log.dir.scan.threads", 8, "Threads that scan the broker's log directories."
    )
    log_dir_watch_interval_ms: int = _ms(
        "log.dir.watch.interval.ms",
        500,
        "How often the service checks for new segments of the partitions that it copies, and that "
        "it can read their directories. A closed segment is copied then, without a wait for "
        "remote.log.manager.task.interval.ms, and a directory that cannot be read is reported.",
        changes_while_running=True,
    )
    remote_index_interval_bytes: int = setting(
        "remote.index.interval.bytes",
        integer(64 << 10, 1 << 30),
        "How much of a segment one entry of its remote log index is for. The entries are stored "
        "with the segment, also while remote.index.files is off.",
        default=1 << 20,
        unit="bytes",
    )
    leadership_poll_interval_ms: int = _ms(
        "leadership.poll.interval.ms", 1_000, "How often the broker is asked for leadership."
    )
    retention_check_interval_ms: int = _ms(
        "retention.check.interval.ms", 30_000, "How often effective retention is checked."
    )
    remote_delete_delay_ms: int = _ms(
        "remote.delete.delay.ms",
        86_400_000,
        "How long data that a decision made deletable is kept, so that it can be undone.",
        least=0,
    )
    remote_unreferenced_grace_ms: int = _ms(
        "remote.unreferenced.grace.ms",
        604_800_000,
        "Age below which nothing that the ledger does not list, or that another leader's history "
        "has replaced, is given up for deletion.",
    )
    remote_delete_max_percent: int = _count(
        "remote.delete.max.percent",
        10,
        "Percent of a partition's remote bytes that total retention deletes in one run, but always "
        "one segment. A run after a change of retention has no limit.",
        most=100,
    )
    audit_log_file: Path | None = setting(
        "audit.log.file",
        PATH,
        "File with a JSON line for each deleted segment and each raise of a remote log start. "
        "Rename it to rotate it.",
        default=None,
        default_doc="audit.log in state.dir",
    )
    retention_takeover: str = setting(
        "retention.takeover",
        choice("enforce", "warn", "external"),
        "Who sets the brokers' retention of topics in mode tier to -1. `enforce`: the service, "
        "again when somebody bounds it, but at most twice in 15 minutes. `warn`: the service, "
        "once. `external`: you do; the service alters no topic's configuration, and trims "
        "nothing before every broker says -1. The same for all services of a cluster.",
        default="enforce",
    )
    topics_reenable: str = setting(
        "topics.reenable",
        choice("ask", "same-name"),
        "What to do when an enabled topic is deleted and created again under its name: report "
        "a problem until somebody decides, or enable the new topic with the settings of the "
        "old one. Remote data of the old topic never becomes that of the new one.",
        default="ask",
    )
    topic_deletion_grace_ms: int = _ms(
        "topic.deletion.grace.ms", 600_000, "How long no broker may know the id of a deleted topic."
    )
    topic_deletion_max_topics: int = _count(
        "topic.deletion.max.topics", 1, "Topics that may end at a time without `rlm purge`."
    )
    topic_deletion_max_share_percent: int = _count(
        "topic.deletion.max.share.percent", 50, "Their share of all remote bytes.", most=100
    )
    trim_interval_ms: int = _ms(
        "trim.interval.ms", 30_000, "How often trims are planned.", changes_while_running=True
    )
    trim_plan_deadline_ms: int = _ms(
        "trim.plan.deadline.ms", 10_000, "Age at which a planned trim is dropped."
    )
    trim_check_max_age_ms: int = _ms(
        "trim.check.max.age.ms", 3_000, "How long the final check before a trim may take."
    )
    trim_drain_ms: int = _ms(
        "trim.drain.ms",
        5_000,
        "After a trim without an answer: how long the broker must answer other requests "
        "before the trim counts as not executed.",
    )
    trim_hold_max_ms: int = _ms("trim.hold.max.ms", 3_600_000, "How long readers may delay a trim.")
    copy_deadline_ms: int = _ms(
        "copy.deadline.ms",
        1_800_000,
        "Age at which an attempt to copy a segment is abandoned. Where sweep.grace.ms is set and "
        "this is not, at most three quarters of that.",
    )
    copy_snapshot_wait_ms: int = _ms(
        "copy.snapshot.wait.ms",
        300_000,
        "How long a closed segment waits for its producer snapshot; then it is copied without.",
    )
    copy_recovery_point: str = setting(
        "copy.recovery.point",
        choice("rf1", "always", "never"),
        "Which segments are copied only once the broker has flushed them to its disk: those of "
        "partitions with one replica, all, or none. With `never`, a power failure of the only "
        "replica may leave a log that is shorter than its copies, and the partition freezes.",
        default="rf1",
    )
    copy_presence_check_interval_ms: int = _ms(
        "copy.presence.check.interval.ms",
        3_600_000,
        "How often the service checks that stores still have the segments that the local log "
        "has too. A segment that is missing in its store is copied again.",
        changes_while_running=True,
    )
    verify_interval_ms: int = _ms(
        "verify.interval.ms",
        86_400_000,
        "How often the service verifies the partitions that it leads: offsets, and objects by "
        "size. What is missing is an alarm. 0 = never.",
        least=0,
    )
    verify_max_bytes_per_second: int = _size(
        "verify.max.bytes.per.second",
        64 << 20,
        "How fast deep verifications (`rlm verify --deep`) read the stores, all together.",
        least=1 << 20,
        changes_while_running=True,
    )
    sweep_grace_ms: int = _ms(
        "sweep.grace.ms", 3_600_000, "Age at which the rest of a failed attempt may be deleted."
    )
    disk_check_interval_ms: int = _ms(
        "disk.check.interval.ms",
        10_000,
        "How often the free space of log.dirs is measured.",
        changes_while_running=True,
    )
    disk_min_free_bytes: int = _size(
        "disk.min.free.bytes",
        1 << 30,
        "Floor of free space in each of log.dirs. Below it there is an alarm until half as much "
        "again is free. 0 = no floor.",
        least=0,
    )
    disk_quota_bytes: int = _size(
        "disk.quota.bytes",
        0,
        "The most that the files in each of log.dirs may take, where that is less than the file "
        "system has. 0 = all that it has.",
        least=0,
    )
    on_disk_pressure: str = setting(
        "on.disk.pressure",
        choice("alarm", "giveback"),
        "What to do below disk.min.free.bytes, besides the alarm. `giveback`: the brokers' own "
        "retention acts on topics that lie there beyond their local retention, with their local "
        "retention as its limit, until the pressure ends. It deletes uncopied records too. Each "
        "hole is recorded.",
        default="alarm",
    )
    max_frame_bytes: int = _size(
        "max.frame.bytes", 100 << 20, "Largest Kafka request or answer through the proxy.", 1024
    )
    proxy_workers: int | str = setting(
        "proxy.workers",
        integer_or(AUTO, 0, 64),
        "Processes that serve Kafka clients, apart from the core process with tasks, stores and "
        "API. Clients produce and read local data whatever happens to the core. 0: one process "
        "does everything. auto: half as many as there are processors for the service, 1 to 4.",
        default=0,
    )
    proxy_max_connections: int = _count(
        "proxy.max.connections", 10_000, "Client connections at a time.", most=1_000_000
    )
    proxy_memory_max_bytes: int = _size(
        PROXY.key,
        PROXY.usual_bytes,
        "Memory that all client connections may hold together, apart from data of the remote "
        "tier: requests and answers being assembled, and bytes that wait for a socket. A request "
        "that the proxy reads, as a Fetch, counts 19 times its bytes until it is answered, and all "
        "that are answered at a time have half of the bound: of 512 MiB as many as have "
        "400,000 partitions. Beyond it large ones wait for their turn; small requests and "
        "producing go on.",
        16 << 20,
        default_doc=share_of_memory(PROXY.usual_bytes),
    )
    proxy_unauthenticated_frame_max_bytes: int = _size(
        "proxy.unauthenticated.frame.max.bytes",
        512 << 10,
        "The largest Fetch, ListOffsets, OffsetForLeaderEpoch or DeleteRecords request that a "
        "connection may send before the broker has answered it anything that needs "
        "authentication. The default is that of Kafka's sasl.server.max.receive.size.",
        1024,
    )
    proxy_read_request_max_bytes: int = _size(
        "proxy.read.request.max.bytes",
        2 << 20,
        "The largest Fetch, ListOffsets, OffsetForLeaderEpoch or DeleteRecords request of any "
        "connection. The proxy reads these requests, which takes up to a second and 90 bytes of "
        "memory for each byte of one that is made for it. The default has room for 60,000 "
        "partitions in a Fetch.",
        1024,
    )
    proxy_first_request_timeout_ms: int = _ms(
        "proxy.first.request.timeout.ms",
        30_000,
        "A client that has sent no request after this time is disconnected.",
    )
    proxy_stalled_request_timeout_ms: int = _ms(
        "proxy.stalled.request.timeout.ms",
        60_000,
        "A client that sends nothing for this time in the middle of a request is disconnected.",
    )
    proxy_connections_max_idle_ms: int = _ms(
        "proxy.connections.max.idle.ms",
        600_000,
        "A client without a request for this time is disconnected, as at a broker.",
    )
    shutdown_timeout_ms: int = _ms(
        "shutdown.timeout.ms",
        5_000,
        "How long answers to clients that are under way may take to end at shutdown.",
        least=0,
    )

    @property
    def rewrites_addresses(self) -> bool:
        """Whether the proxy, not the broker, sends clients to the proxies."""
        return self.proxy_attach == REWRITE

    def shown(self) -> dict[str, str]:
        """See CommonConfig."""
        rows = CommonConfig.shown(self)
        rules = (f"{rule.topics} -> {rule.store}" for rule in self.storage_endpoint_rules)
        offload = (f"{rule.topics.pattern} -> {rule.thresholds}" for rule in self.offload_rules)
        return rows | {
            "storage.endpoint.rules": "; ".join(rules),
            "offload.rules": "; ".join(offload),
            "proxy.history": history_text(self.proxy_history),
            "proxy.history.rules": "; ".join(map(str, self.proxy_history_rules)),
        }

    @property
    def copy_slots(self) -> int:
        """Large segments that are copied at a time: as many as have memory."""
        fitting = self.copy_memory_max_bytes // COPY_BYTES
        return min(self.remote_log_manager_copier_thread_pool_size, fitting)

    def offload_defaults(self) -> OffloadThresholds:
        """When the segments of topics are copied for which no rule says more."""
        return OffloadThresholds(
            copy_lag_ms=self.log_remote_copy_lag_ms,
            copy_lag_bytes=self.log_remote_copy_lag_bytes,
            deletion_lag_ms=self.offload_deletion_lag_ms,
        )

    def provider(self) -> EndpointProvider:
        """The provider of new segments' stores. Invalid: the class cannot be used."""
        return build_provider(
            self.stores, self.storage_endpoint_rules, self.storage_endpoint_provider_class
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig(CommonConfig):
    """Checked settings of a service without a broker; built by `rlm.config.load_reader`."""


def settings(config: type[CommonConfig] = ServiceConfig) -> dict[str, Setting]:
    """Attribute -> row of the table, in the table's order; a broker's service has them all."""
    return rows_of(config)
