"""How a broker's service serves Kafka clients: by a proxy of its own, or by its proxy workers."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog

from kip405.ids import Uuid
from rlm.config import ServiceConfig
from rlm.config.proxy_tls import ProxyTlsConfig
from rlm.plans.client_activity import ClientRow, ClientTable, Entered, OnEntered
from rlm.plans.client_history import HistoryRules
from rlm.plans.process_rules import ProcessObservation
from rlm.proxy.own_topics import OwnTopicIds
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from rlm.proxy.tls_files import ListenerTls, ProxyTls, UpstreamTls
from rlm.service.client_tokens import IssuedTokens, build_client_tokens
from rlm.service.dependencies import Dependencies
from rlm.service.metadata import remembered_own_topics
from rlm.service.metrics import ServiceMetrics
from rlm.service.node_addresses import lookup_for_workers, lookup_of
from rlm.workers.core import CoreParts, CoreServer, WorkerTerms
from rlm.workers.counts import CountTaker
from rlm.workers.inherited import CoreSettings
from rlm.workers.processes import KnownProcesses
from rlm.workers.tls import tls_contexts
from rlm.workers.views import ViewFeed

log = structlog.get_logger(__name__)


def core_socket(config: ServiceConfig) -> Path:
    """Where a core serves its workers: several services may have one state dir. A supervisor of an
    earlier version tells its workers this path, so it stays as it is.
    """
    return config.state_dir / f"{config.cluster_id}-{config.node_id}.sock"


class Clients(Protocol):
    """Begins before all other components, and ends first."""

    async def start(self) -> None:
        """Invalid: the address cannot be listened on."""
        ...

    def settings_changed(self) -> None:
        """Give the workers those of their settings that change while they run."""
        ...

    async def drain(self) -> None:
        """Give clients the answers that are under way, and take no more of them."""
        ...

    async def close(self) -> None:
        """After the drain."""
        ...

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]: ...

    def purgatory_size(self) -> int:
        """Remote reads of Kafka clients that are not complete."""
        ...

    def processes(self) -> tuple[ProcessObservation, ...]:
        """Core and workers; none where the proxy is in this process."""
        ...

    def rows(self) -> tuple[ClientRow, ...]:
        """Who the clients are, and what each was given."""
        ...


class OwnProxy:
    """The proxy in this process (proxy.workers: 0)."""

    def __init__(
        self, shared: Dependencies, metrics: ServiceMetrics, tokens: IssuedTokens | None
    ) -> None:
        """Invalid: the files of proxy.tls.* or broker.tiered.tls.* cannot be used."""
        self._shared = shared
        self._tokens = tokens
        self.proxy = ProxyServer(
            proxy_settings(shared.config),
            shared.tier,
            shared.client_deletions,
            shared.clock,
            metrics,
            shared.throttle,
            lookup_of(shared.node_addresses),
            tls_contexts(proxy_tls(shared.config)),
            _own_topic_ids(shared),
            ClientTable(entering(metrics)),
            tokens,
            frozenset(one.raw for one in remembered_own_topics(shared.config)),
            shared.tracer,
        )

    async def start(self) -> None:
        await self.proxy.start()

    def settings_changed(self) -> None:
        return

    async def drain(self) -> None:
        await self.proxy.close()

    async def close(self) -> None:
        if self._tokens is not None:
            await self._tokens.close(ends_used=True)

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        ranges = self._shared.reader.range_scheduler
        of_reads, of_answers = self.proxy.stalled_clients(lambda: ranges.lacking_bytes)
        return {
            "stalled clients": of_reads.run,
            "stalled answers": of_answers.run,
            **_token_tasks(self._tokens),
        }

    def purgatory_size(self) -> int:
        return self.proxy.purgatory.size

    def processes(self) -> tuple[ProcessObservation, ...]:
        return ()

    def rows(self) -> tuple[ClientRow, ...]:
        return self.proxy.clients.rows()


class Workers:
    """The core's side of proxy workers, which the supervisor has started."""

    def __init__(
        self,
        shared: Dependencies,
        metrics: ServiceMetrics,
        tasks: asyncio.TaskGroup,
        core: CoreSettings,
        tokens: IssuedTokens | None,
    ) -> None:
        self._tokens = tokens
        self._processes = KnownProcesses(core, shared.clock)
        self._clients = ClientTable(entering(metrics))
        self._counts = CountTaker(metrics, shared.throttle, self._clients)
        self._views = ViewFeed(
            shared.tier,
            shared.client_deletions.refusal,
            shared.clock,
            lookup_for_workers(shared.node_addresses),
            _own_topic_ids(shared),
        )
        shared.snapshots.on_kept = self._views.changed
        parts = CoreParts(
            tier=shared.tier,
            deletions=shared.client_deletions,
            views=self._views,
            counts=self._counts,
            processes=self._processes,
            tasks=tasks,
            terms=partial(_worker_terms, shared),
            tokens=tokens,
            clock=shared.clock,
        )
        self._server = CoreServer(parts, core_socket(shared.config))

    async def start(self) -> None:
        await self._server.start()

    def settings_changed(self) -> None:
        self._server.terms_changed()

    async def drain(self) -> None:
        """The workers do that: they have ended, or go on with the next core."""
        return

    async def close(self) -> None:
        """The workers go on, and their clients with the tokens that they have: those are in use
        until the links are closed.
        """
        if self._tokens is not None:
            await self._tokens.close(ends_used=False)
        await self._server.close()

    def background_tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {"views": self._views.run, **_token_tasks(self._tokens)}

    def purgatory_size(self) -> int:
        return self._counts.purgatory_size

    def processes(self) -> tuple[ProcessObservation, ...]:
        return self._processes.observed()

    def rows(self) -> tuple[ClientRow, ...]:
        return self._clients.rows()


def entering(metrics: ServiceMetrics) -> OnEntered:
    """Counts and logs each group, or client without one, that gets remote data for the first time
    since the start.
    """

    def entered(one: Entered) -> None:
        metrics.remote_reader_entered(one.kind)
        log.info(
            "remote_reader_entered",
            kind=one.kind,
            name=one.name,
            topic=one.topic,
            principal=one.client.principal,
            client_id=one.client.client_id,
            address=one.client.address,
        )

    return entered


def build_clients(
    shared: Dependencies,
    metrics: ServiceMetrics,
    tasks: asyncio.TaskGroup,
    core: CoreSettings | None,
) -> Clients:
    """`core`: of a core, whose workers there are whatever its settings file says by now."""
    tokens = build_client_tokens(shared, tasks)
    if core is not None:
        return Workers(shared, metrics, tasks, core, tokens)
    return OwnProxy(shared, metrics, tokens)


def _worker_terms(shared: Dependencies) -> WorkerTerms:
    now = shared.running.now
    return WorkerTerms(
        client_bytes_per_second=now.remote_fetch_client_max_bytes_per_second,
        log_level=now.log_level,
    )


def _token_tasks(tokens: IssuedTokens | None) -> dict[str, Callable[[], Awaitable[None]]]:
    return {} if tokens is None else {"client tokens": tokens.run}


def proxy_settings(config: ServiceConfig) -> ProxySettings:
    """Of the proxy in this process, and of each worker."""
    return ProxySettings(
        listen_host=config.proxy_listen.host,
        listen_port=config.proxy_listen.port,
        upstream_host=config.broker_tiered_address.host,
        upstream_port=config.broker_tiered_address.port,
        max_frame_bytes=config.max_frame_bytes,
        max_connections=config.proxy_max_connections,
        max_connections_per_address=config.proxy_max_connections_per_address,
        max_connections_per_principal=config.proxy_max_connections_per_principal,
        memory_max_bytes=config.proxy_memory_max_bytes,
        unauthenticated_frame_max_bytes=config.proxy_unauthenticated_frame_max_bytes,
        read_request_max_bytes=config.proxy_read_request_max_bytes,
        first_request_timeout_ms=config.proxy_first_request_timeout_ms,
        stalled_request_timeout_ms=config.proxy_stalled_request_timeout_ms,
        max_idle_ms=config.proxy_connections_max_idle_ms,
        handshake_timeout_ms=config.proxy_handshake_timeout_ms,
        stalled_request_min_bytes=config.proxy_stalled_request_min_bytes,
        shutdown_timeout_ms=config.shutdown_timeout_ms,
        history=HistoryRules(config.proxy_history, config.proxy_history_rules),
        sasl_oauthbearer_sub_claim_name=config.proxy_sasl_oauthbearer_sub_claim_name,
    )


def listener_tls(config: ProxyTlsConfig) -> ListenerTls | None:
    """TLS towards Kafka clients; None = none."""
    if not config.serves_tls:
        return None
    return ListenerTls(
        cert_file=_name(config.proxy_tls_cert_file),
        key_file=_name(config.proxy_tls_key_file),
        key_password_file=_name(config.proxy_tls_key_password_file),
        client_ca_file=_name(config.proxy_tls_client_ca_file),
        client_auth=config.proxy_tls_client_auth,
        min_version=config.proxy_tls_min_version,
        ciphers=config.proxy_tls_ciphers,
    )


def proxy_tls(config: ServiceConfig) -> ProxyTls:
    """TLS of the proxy in this process, and of each worker."""
    listener, upstream = listener_tls(config), None
    if config.dials_tls:
        upstream = UpstreamTls(
            ca_file=_name(config.broker_tiered_tls_ca_file),
            cert_file=_name(config.broker_tiered_tls_cert_file),
            key_file=_name(config.broker_tiered_tls_key_file),
            key_password_file=_name(config.broker_tiered_tls_key_password_file),
            server_name=config.broker_tiered_tls_server_name,
            checks_name=config.broker_tiered_tls_check_name,
        )
    return ProxyTls(listener=listener, upstream=upstream)


def own_topic_ids(known_ids: Callable[[], frozenset[Uuid]]) -> OwnTopicIds:
    """The raw ids, made again where `known_ids` are others: see rlmm.topic.TopicGuards."""
    known: frozenset[Uuid] = frozenset()
    raw: frozenset[bytes] = frozenset()

    def ids() -> frozenset[bytes]:
        nonlocal known, raw
        now = known_ids()
        if now is not known:
            known, raw = now, frozenset(topic_id.raw for topic_id in now)
        return raw

    return ids


def _own_topic_ids(shared: Dependencies) -> OwnTopicIds:
    return own_topic_ids(lambda: shared.metadata.log.known_topic_ids)


def _name(path: Path | None) -> str:
    return "" if path is None else str(path)
