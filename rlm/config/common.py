"""The settings that a service has in every role, and how rows of whole numbers are written.

Pure; the loader reads files.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_clients.principal_mapping import RULES_KEY, PrincipalMapping
from kafka_clients.security import KafkaSecurity
from kip405.addresses import Address
from kip405.process import KEPT_BY_A_SERVICE_BYTES, LEDGER_BYTES_OF_SEGMENT
from kip405.settings import (
    ADDRESS,
    ADDRESSES,
    FLAG,
    PATH,
    TCP,
    TEXT,
    Kind,
    Refused,
    checked_later,
    choice,
    integer,
    number,
    rows_of,
    setting,
)
from rlm.config.memory import CHUNKS, LEDGER, MEMORY_KEY
from rlm.config.secured import KafkaClientConfig
from rlm.config.stores import STORES_ALLOWED, StoreConfig
from rsm_plugins.contract.server_tls import ServerTls
from rsm_plugins.contract.tls import Tls

NOBODY_ASKS, BY_FILE, BY_KAFKA = "none", "file", "kafka"
"""Who says what a caller of the API may do (api.authorization)."""

ON, OFF = "on", "off"

_KEPT_SHARE = 8
_ENDPOINT_FORM = re.compile(r"https?://[^/?#@\s]+:\d{1,5}")
_LEAST_QUOTA = 1 << 20  # below this, a delayed stream looks dead to its client


def _endpoint(value: Any) -> str:
    if isinstance(value, str) and "@" in value:
        raise Refused("no user and no password: a token is for OTEL_EXPORTER_OTLP_HEADERS")
    if not isinstance(value, str) or not _ENDPOINT_FORM.fullmatch(value):
        raise ValueError
    return value


OTLP_ENDPOINT = Kind(allowed="http://host:port or https://host:port", read=_endpoint)


def milliseconds(key: str, default: int, doc: str, least: int = 1, **more: Any) -> Any:
    return setting(key, integer(least), doc, default=default, unit="ms", **more)


def count(key: str, default: int, doc: str, most: int = 10_000, **more: Any) -> Any:
    return setting(key, integer(1, most), doc, default=default, **more)


def size_bytes(key: str, default: int, doc: str, least: int, **more: Any) -> Any:
    return setting(key, integer(least), doc, default=default, unit="bytes", **more)


def share_of_memory(usual: object) -> str:
    """The default of a part of memory.max.bytes, for users."""
    return f"its share of {MEMORY_KEY}; where that is not set either, {usual} at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonConfig(KafkaClientConfig):
    """Settings that a service has in every role."""

    cluster_id: str = setting(
        "cluster.id", TEXT, "Id of the Kafka cluster.", default_doc="from meta.properties"
    )
    environment_provider_class: str | None = setting(
        "environment.provider.class",
        TEXT,
        "Who answers which cluster, broker, log directories and bootstrap servers these are, where "
        "cluster.id, node.id, log.dirs and kafka.bootstrap.servers are not given: "
        "`server.properties`, the broker's file; `variables`, those of Kafka's container image; "
        "`kubernetes`, the downward API; or a class of your own, `module:Class`, created as "
        "Class(variables={...}), with a method environment(). Asked whenever settings are read.",
        default=None,
    )
    environment_provider_path: Path | None = setting(
        "environment.provider.path",
        PATH,
        "What it reads: of `server.properties` that file, of `kubernetes` the folder where the "
        "downward API is mounted.",
        default=None,
        default_doc="broker.server.properties; /etc/podinfo",
    )
    state_dir: Path = setting(
        "state.dir", PATH, "Directory for the state and the lock of this service alone."
    )
    grpc_listen: Address = setting("grpc.listen", ADDRESS, "Where the gRPC API is served.")
    grpc_advertised: Address = setting(
        "grpc.advertised",
        ADDRESS,
        "Address of the gRPC API for peers and clients.",
        default_doc="grpc.listen",
    )
    http_listen: Address = setting(
        "http.listen", TCP, "Where /healthz, /metrics and, beside a broker, /console are served."
    )
    http_tls_cert_file: Path | None = setting(
        "http.tls.cert.file",
        PATH,
        "PEM file with the certificate of http.listen, which then speaks TLS. A renewed file is "
        "used without a restart.",
        default=None,
    )
    http_tls_key_file: Path | None = setting(
        "http.tls.key.file", PATH, "PEM file with the key of that certificate.", default=None
    )
    http_token_file: Path | None = setting(
        "http.token.file",
        PATH,
        "File with the token that /metrics asks for (authorization: Bearer). Without it /healthz "
        "and /readyz answer their status alone, and no problems. A second line is accepted too. A "
        "changed file is used without a restart.",
        default=None,
    )
    allow_insecure: bool = setting(
        "allow_insecure",
        FLAG,
        "Allow gRPC, HTTP and plugin endpoints without TLS beyond loopback.",
        default=False,
    )
    grpc_tls_cert_file: Path | None = setting(
        "grpc.tls.cert.file",
        PATH,
        "PEM file with the certificate of the gRPC API, which then speaks TLS. The service "
        "also shows it to its peers, and calls them with TLS, so set it on all services of a "
        "cluster alike. A renewed file is used without a restart.",
        default=None,
    )
    grpc_tls_key_file: Path | None = setting(
        "grpc.tls.key.file", PATH, "PEM file with the key of that certificate.", default=None
    )
    grpc_tls_client_ca_file: Path | None = setting(
        "grpc.tls.client.ca.file",
        PATH,
        "PEM file with authorities. Only callers with a certificate from one of them are accepted.",
        default=None,
    )
    grpc_tls_ca_file: Path | None = setting(
        "grpc.tls.ca.file",
        PATH,
        "PEM file with the authorities of the peers' certificates.",
        default=None,
        default_doc="the public authorities that gRPC knows",
    )
    grpc_tls_server_name: str = setting(
        "grpc.tls.server.name",
        TEXT,
        "Name in the peers' certificates, if it is not the host of their grpc.advertised.",
        default="",
        default_doc="that host",
    )
    api_token_file: Path | None = setting(
        "api.token.file",
        PATH,
        "File with the token that callers of the API must send, and that peers are sent. A second "
        "line is accepted too. A changed file is used without a restart.",
        default=None,
    )
    api_authorization: str | None = setting(
        "api.authorization",
        choice(NOBODY_ASKS, BY_FILE, BY_KAFKA),
        "Who says what a caller of the API may do. `none`: whoever may call may do everything. "
        "`file`: api.principals.file. `kafka`: the ACLs of the brokers for the caller's principal, "
        "asked for again after 30 s; the service needs Describe on the cluster then. With `file` "
        "and `kafka` the token of api.token.file, which is needed, is for services alone.",
        default=None,
        default_doc="`file` with api.principals.file, otherwise `none`",
    )
    api_principals_file: Path | None = setting(
        "api.principals.file",
        PATH,
        "YAML file with the principals of the API: by which tokens and client certificates they "
        "are known, and which rights they have on which topics. A changed file is used without a "
        "restart; one that cannot be used leaves the former in force.",
        default=None,
    )
    ssl_principal_mapping_rules: str = setting(
        RULES_KEY,
        TEXT,
        "Kafka's rules which principal a certificate is: a client's of the proxy, with "
        "proxy.tls.client.identity delegation-token, and a caller's of the API whom "
        "api.principals.file does not name, with api.authorization `kafka`.",
        default="",
        default_doc="for clients of the proxy those of the broker's tiered listener, asked of the "
        "broker; for callers of the API DEFAULT, the whole subject",
    )
    principal: str = setting(
        "principal",
        TEXT,
        "Name under which this service calls its peers and the plugin.",
        default="",
        default_doc="rlm-<node.id>",
    )
    kafka_bootstrap_servers: tuple[Address, ...] = setting(
        "kafka.bootstrap.servers",
        ADDRESSES,
        "Direct addresses of the brokers, for the ledger and settings topics.",
        default_doc="broker.direct.address",
    )
    stores: tuple[StoreConfig, ...] = setting(
        "stores",
        checked_later(STORES_ALLOWED),
        "Several stores by name, each with the settings below; the first is the default one.",
        default=(),
        default_doc="one store `default` of the settings below, or none: nothing is tiered",
    )
    plugin_call_timeout_ms: int = milliseconds(
        "plugin.call.timeout.ms", 30_000, "How long a call of the plugin may go without progress."
    )
    remote_log_reader_threads: int = count(
        "remote.log.reader.threads", 10, "Threads that verify fetched bytes."
    )
    threads_hang_ms: int = milliseconds(
        "threads.hang.ms",
        60_000,
        "How long work on a file may take before its thread counts as hung and is replaced. "
        "For reading a segment that is copied, copy.deadline.ms applies instead.",
    )
    remote_log_reader_max_pending_tasks: int = count(
        "remote.log.reader.max.pending.tasks",
        100,
        "Remote reads that may wait for the store at a time. Further ones are answered Busy.",
        most=1_000_000,
    )
    remote_log_manager_fetch_max_bytes_per_second: int = size_bytes(
        "remote.log.manager.fetch.max.bytes.per.second",
        1 << 30,
        "Bytes a second of all historical reads of this service, over proxy and API. The default "
        "is most of a 10 Gbit/s link. Local reads and producing are never delayed.",
        _LEAST_QUOTA,
        changes_while_running=True,
    )
    remote_fetch_client_max_bytes_per_second: int = size_bytes(
        "remote.fetch.client.max.bytes.per.second",
        512 << 20,
        "The same for one client: a client.id on one connection at the proxy, a principal at "
        "the API. The default is about twice what one client took in measurements.",
        _LEAST_QUOTA,
        changes_while_running=True,
    )
    remote_fetch_principal_max_bytes_per_second: int = size_bytes(
        "remote.fetch.principal.max.bytes.per.second",
        1 << 30,
        "The same for one principal at the proxy, over all its connections and client ids: the "
        "SASL user of PLAIN and SCRAM, or the subject of its certificate. The default is that of "
        "the whole service.",
        _LEAST_QUOTA,
        changes_while_running=True,
    )
    remote_fetch_cpu_max_cores: float = setting(
        "remote.fetch.cpu.max.cores",
        number(0.1),
        "Cores of this process that historical reads through the API may use on average: its "
        "measured processor time, divided by the bytes that it receives and sends.",
        default=2.0,
        changes_while_running=True,
    )
    memory_max_bytes: int = setting(
        MEMORY_KEY,
        integer(1 << 20),
        "Memory of the service, without plugins of stores. It is divided: fetch.chunk.cache.bytes, "
        "ledger.memory.bytes and, beside a broker, proxy.memory.max.bytes and "
        "copy.memory.max.bytes have what is set, and share the rest; 192 MiB are for the process "
        "itself, and 128 MiB for each proxy worker. Where the parts do not fit into what is set "
        "here, the service does not start.",
        default_doc="half of the limit of its cgroup, or of the machine's memory, and more where "
        "the parts that are set need it; then no part that is not set is larger than its default",
        unit="bytes",
    )
    fetch_chunk_cache_bytes: int = size_bytes(
        CHUNKS.key,
        CHUNKS.usual_bytes,
        "Memory for data of remote segments: cached, being fetched or being sent, with indexes.",
        1 << 20,
        default_doc=share_of_memory(CHUNKS.usual_bytes),
    )
    ledger_memory_bytes: int = size_bytes(
        LEDGER.key,
        LEDGER.usual_bytes,
        "Memory that is left for ledger and settings, which take about "
        f"{LEDGER_BYTES_OF_SEGMENT} bytes for each remote segment. It is no limit: all that is "
        "remote is always known.",
        1 << 20,
        default_doc=share_of_memory(LEDGER.usual_bytes),
    )
    fetch_chunk_cache_path: Path | None = setting(
        "fetch.chunk.cache.path",
        PATH,
        "Folder of the disk cache, for this service alone. Without it there is no disk cache.",
        default=None,
    )
    fetch_chunk_cache_disk_bytes: int = size_bytes(
        "fetch.chunk.cache.disk.bytes", 16 << 30, "Disk space for the disk cache.", 1 << 20
    )
    remote_index_files: str = setting(
        "remote.index.files",
        choice(ON, OFF),
        "Whether index entries of remote segments are kept in files below state.dir/remote-index. "
        "A first read of a segment then asks the store for records alone, also after a restart.",
        default=OFF,
    )
    remote_index_segment_bytes: int = size_bytes(
        "remote.index.segment.bytes",
        1 << 20,
        "Size at which another remote index file is begun.",
        64 << 10,
    )
    remote_index_segment_ms: int = milliseconds(
        "remote.index.segment.ms",
        604_800_000,
        "Age at which another remote index file is begun.",
    )
    remote_index_max_bytes: int = size_bytes(
        "remote.index.max.bytes",
        1 << 30,
        "Disk space for the remote index files. What would exceed it is not kept.",
        1 << 20,
    )
    fetch_range_max_bytes: int = size_bytes(
        "fetch.range.max.bytes", 16 << 20, "The largest range of one request to the store.", 1 << 20
    )
    fetch_read_ahead_max_bytes: int = size_bytes(
        "fetch.read.ahead.max.bytes",
        64 << 20,
        "The most bytes that are read ahead for one reader of one partition.",
        0,
    )
    fetch_ranges_max_in_flight: int = count(
        "fetch.ranges.max.in.flight", 64, "Requests for ranges that the store is sent at a time."
    )
    fetch_hedge_max_percent: int = setting(
        "fetch.hedge.max.percent",
        integer(0, 50),
        "Of the reads of a store, so many percent at most are asked for a second time because the "
        "first request takes longer than nearly all others of its size. Those of one store that "
        "are under way ask for 32 MiB at most, beside fetch.chunk.cache.bytes. 0: none.",
        default=5,
    )
    access_check_interval_ms: int = milliseconds(
        "access.check.interval.ms",
        30_000,
        "How often the service asks a broker whether it has the ACLs that it needs.",
        changes_while_running=True,
    )
    heartbeat_interval_ms: int = milliseconds(
        "heartbeat.interval.ms", 10_000, "How often this service publishes its heartbeat."
    )
    problem_certificate_days: int = count(
        "problem.certificate.days", 14, "Days before its end at which a certificate is a warning."
    )
    log_level: str = setting(
        "log.level",
        choice("debug", "info", "warning", "error"),
        "The lowest level that is logged.",
        default="info",
        changes_while_running=True,
    )
    log_format: str = setting(
        "log.format", choice("json", "console"), "Format of a log line.", default="json"
    )
    tracing_otlp_endpoint: str | None = setting(
        "tracing.otlp.endpoint",
        OTLP_ENDPOINT,
        "Where traces of fetches and copies are sent, by OTLP over gRPC; https:// with TLS. They "
        "name topics and offsets, and no client and no record. Needs the extra otel.",
        default=None,
    )
    tracing_sample_ratio: float = setting(
        "tracing.sample.ratio",
        number(0, 1),
        "Which part of all fetches of remote data and of all copies is traced.",
        default=0.01,
    )

    @property
    def kept_memory_bytes(self) -> int:
        """What malloc may keep of freed memory in each arena: of all of them not more than an
        eighth of the memory counts.
        """
        return min(KEPT_BY_A_SERVICE_BYTES, self.memory_max_bytes // _KEPT_SHARE)

    @property
    def grpc_tls(self) -> ServerTls | None:
        """The certificate of the API and the callers that it accepts; None = no TLS."""
        if self.grpc_tls_cert_file is None or self.grpc_tls_key_file is None:
            return None
        return ServerTls(
            cert_file=self.grpc_tls_cert_file,
            key_file=self.grpc_tls_key_file,
            client_ca_file=self.grpc_tls_client_ca_file,
        )

    @property
    def peer_tls(self) -> Tls | None:
        """TLS of calls to peers, which is that of this service; None = no TLS."""
        if self.grpc_tls is None:
            return None
        return Tls(
            ca_file=self.grpc_tls_ca_file,
            cert_file=self.grpc_tls_cert_file,
            key_file=self.grpc_tls_key_file,
            server_name=self.grpc_tls_server_name,
        )

    @property
    def authorization(self) -> str:
        """Who says what a caller of the API may do."""
        if self.api_authorization is not None:
            return self.api_authorization
        return NOBODY_ASKS if self.api_principals_file is None else BY_FILE

    def principal_mapping(self) -> PrincipalMapping | None:
        """The rules of the setting; None: there are none. Invalid: they cannot be used."""
        rules = self.ssl_principal_mapping_rules
        return PrincipalMapping(rules) if rules else None

    def kafka_security(self) -> KafkaSecurity:
        """How the service's own clients connect to brokers. Invalid: settings that do not go
        together; the loader has checked that.
        """
        return self.secured_by(allow_insecure=self.allow_insecure)

    draft_names: tuple[str, ...] = ()
    """Names of KIP-405's first draft by which settings are given (rlm/config/draft_names.py)."""

    def shown(self) -> dict[str, str]:
        """Every setting by key, fit for a log: what may be a secret is not shown."""
        rows = {row.key: _text(getattr(self, name)) for name, row in rows_of(type(self)).items()}
        rows["stores"] = ",".join(store.name for store in self.stores)
        return rows | {key: text for store in self.stores for key, text in store.shown().items()}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
