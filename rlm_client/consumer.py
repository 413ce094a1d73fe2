"""`TieredStorageConsumer`: aiokafka's consumer whose records come from Kafka and the remote tier.

It is an AIOKafkaConsumer: subscriptions, groups, commits, seek, pause and all ways to take records
are inherited, only its fetcher is another one. `start` repeats that of aiokafka with it, because
aiokafka has no other place to name it; tests/rlm_client/test_aiokafka.py notices when it changes.
This module uses private names of aiokafka.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator, NoGroupCoordinator

from kafka_clients.closing_client import ClosingConsumer
from rlm_client.connection import service_connection
from rlm_client.counters import ConsumerCounters
from rlm_client.remote_log import PATIENCE_MS, QUESTION_LIMIT_MS, RemoteLog, ServiceRemoteLog
from rlm_client.store.opened import OpenStores
from rlm_client.store.options import store_options
from rlm_client.tiered_fetcher import TieredFetcher
from tiered_reads.fetch_client import FetchClient
from tiered_reads.values import ReadMode, ServiceConnection

SERVICE, STORE = "service", "store"
_RLM, _RLM_STORE = "rlm_", "rlm_store"
_REFUSED = "`auto_offset_reset` must be earliest, latest or none"


class TieredStorageConsumer(ClosingConsumer):
    """Takes the arguments of AIOKafkaConsumer, and these:

    `tiered_storage_mode`: kafka_only, kafka_preferred, remote_preferred or remote_only.
    `rlm_endpoints`: the fetch API of services, host:port, one or several; all others are found
    through them. Not needed for kafka_only.
    `rlm_principal`, `rlm_token_file`, `rlm_tls_ca_file`, `rlm_tls_cert_file`, `rlm_tls_key_file`,
    `rlm_tls_server_name`, `rlm_call_timeout_ms`: how services are reached.
    `remote_retry_timeout_ms`: RemoteTierTimeout is raised where all reads of a partition's remote
    tier fail for so long; None: never, they are tried again as aiokafka's are.
    `remote_reads`: service, or store: what services list of the remote tier is read from the store.
    `rlm_stores`, `rlm_store_rules`, `rlm_store_provider`, `rlm_store_ahead_bytes`,
    `rlm_store_memory_bytes`, `rlm_store_call_timeout_ms`: which stores, and how.

    ValueError for arguments that cannot be used. Calls may raise RemoteTierError, a KafkaError.
    """

    _fetcher: Any

    def __init__(
        self,
        *topics: str,
        tiered_storage_mode: str | ReadMode = ReadMode.KAFKA_PREFERRED,
        rlm_endpoints: str | Sequence[str] = (),
        remote_reads: str = SERVICE,
        remote_retry_timeout_ms: int | None = None,
        **options: Any,
    ) -> None:
        self._mode = ReadMode(tiered_storage_mode)
        self._counters = ConsumerCounters()
        of_store = _taken(options, _RLM_STORE)
        of_service = _taken(options, _RLM)
        self._connection = self._stores = None
        if remote_reads not in (SERVICE, STORE):
            raise ValueError(f"`remote_reads` must be {SERVICE} or {STORE}: {remote_reads!r}")
        if remote_retry_timeout_ms is not None and remote_retry_timeout_ms <= 0:
            raise ValueError("`remote_retry_timeout_ms` must be above 0, or None")
        self._retry_timeout_ms = remote_retry_timeout_ms
        if remote_reads == SERVICE and any(value is not None for value in of_store.values()):
            raise ValueError(f"`{_RLM_STORE}*` arguments need remote_reads={STORE!r}")
        if self._mode is not ReadMode.KAFKA_ONLY:
            self._connection = service_connection(rlm_endpoints, **of_service)
            if remote_reads == STORE:
                self._stores = store_options(of_store.pop("stores", None), **of_store)
        if str(options.get("auto_offset_reset", "latest")).lower() not in (
            *("earliest", "latest", "none"),
        ):
            raise ValueError(_REFUSED)
        super().__init__(*topics, **options)

    @property
    def tiered_storage_mode(self) -> ReadMode:
        """The mode that the consumer was made with."""
        return self._mode

    def counters(self) -> ConsumerCounters:
        """What has been read from each tier until now; in kafka_only they stay zero."""
        counters = self._counters
        return replace(
            counters,
            kafka=replace(counters.kafka),
            remote=replace(counters.remote),
            store=replace(counters.store),
        )

    async def start(self) -> None:
        """Connect to the brokers, and join the group if there is one; as AIOKafkaConsumer's."""
        if self._connection is None:
            await super().start()
            return
        if self._fetcher is not None:
            raise RuntimeError("the consumer was started before")
        await self._client.bootstrap()
        await self._wait_topics()
        stores = None if self._stores is None else OpenStores(self._stores)
        self._fetcher = self._tiered_fetcher(self._remote_log(self._connection, stores))
        if stores is not None:
            await asyncio.wrap_future(stores.begin())
        subscription = self._subscription
        if self._group_id is None:
            self._coordinator = NoGroupCoordinator(
                self._client, subscription, exclude_internal_topics=self._exclude_internal_topics
            )
            if subscription.subscription is not None and subscription.partitions_auto_assigned():
                await self._client.force_metadata_update()
                self._coordinator.assign_all_partitions(check_unknown=True)
            return
        self._coordinator = self._group_coordinator()
        if subscription.subscription is None:
            return
        if subscription.partitions_auto_assigned():
            await subscription.wait_for_assignment()
        else:
            self._coordinator.start_commit_offsets_refresh_task(
                subscription.subscription.assignment
            )

    def _remote_log(self, connection: ServiceConnection, stores: OpenStores | None) -> RemoteLog:
        return ServiceRemoteLog(
            FetchClient(connection, patience_ms=PATIENCE_MS, question_limit_ms=QUESTION_LIMIT_MS),
            read_committed=self._isolation_level == "read_committed",
            max_bytes=self._max_partition_fetch_bytes,
            stores=stores,
        )

    def _tiered_fetcher(self, remote_log: RemoteLog) -> Fetcher:
        return TieredFetcher(
            self._client,
            self._subscription,
            mode=self._mode,
            remote_log=remote_log,
            counters=self._counters,
            retry_timeout_ms=self._retry_timeout_ms,
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
            fetch_min_bytes=self._fetch_min_bytes,
            fetch_max_bytes=self._fetch_max_bytes,
            fetch_max_wait_ms=self._fetch_max_wait_ms,
            max_partition_fetch_bytes=self._max_partition_fetch_bytes,
            check_crcs=self._check_crcs,
            fetcher_timeout=self._consumer_timeout,
            retry_backoff_ms=self._retry_backoff_ms,
            auto_offset_reset=self._auto_offset_reset,
            isolation_level=self._isolation_level,
            client_rack=self._client_rack,
        )

    def _group_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self._client,
            self._subscription,
            group_id=self._group_id,
            group_instance_id=self._group_instance_id,
            heartbeat_interval_ms=self._heartbeat_interval_ms,
            session_timeout_ms=self._session_timeout_ms,
            retry_backoff_ms=self._retry_backoff_ms,
            enable_auto_commit=self._enable_auto_commit,
            auto_commit_interval_ms=self._auto_commit_interval_ms,
            assignors=self._partition_assignment_strategy,
            exclude_internal_topics=self._exclude_internal_topics,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            max_poll_interval_ms=self._max_poll_interval_ms,
        )


def _taken(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Those with the prefix, without `rlm_`; they are no arguments of aiokafka's."""
    return {
        name.removeprefix(_RLM): options.pop(name)
        for name in tuple(options)
        if name.startswith(prefix)
    }
