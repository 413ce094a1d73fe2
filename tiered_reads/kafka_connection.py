"""Connections to brokers by aiokafka's client, secured by kafka_clients, and cluster metadata.

Only this file and kafka_clients use private names of aiokafka. `LoopThread` runs its event loop in
a thread: callers block, and a stop cancels the call that they wait for. This module must not know
what is fetched.
"""

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from kafka_clients.broker_client import BrokerClient
from kafka_clients.broker_request import BrokerRequest
from kafka_clients.channel_security import ChannelSecurity
from tiered_reads.kafka_options import KafkaSettings
from tiered_reads.kafka_requests import TopicMetadata, metadata_request
from tiered_reads.stopping import Stop, Stopped

_READ_AHEAD_BYTES = 1 << 20
"""What a connection buffers before it stops reading; aiokafka's 64 KiB stops it all the time."""

T = TypeVar("T")


class BrokerConnections(BrokerClient):
    """A client that follows brokers only: its metadata requests name no topic."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(
            bootstrap_servers=list(settings.bootstrap_servers),
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            connections_max_idle_ms=settings.connections_max_idle_ms,
        )
        self.channel_security = ChannelSecurity(settings.security)
        self._receive_buffer_bytes = settings.receive_buffer_bytes

    async def describe(self, topics: Sequence[str] | None) -> tuple[TopicMetadata, ...]:
        """Topics as any broker knows them, None = all; never creates one. KafkaError: no broker
        answers.
        """
        answer: tuple[TopicMetadata, ...] = await self._send_to_any(metadata_request(topics))
        return answer

    async def send_to(self, node: int, request: BrokerRequest[T]) -> T:
        """The answer of one broker, which may be new here. TimeoutError: no broker knows it,
        or another caller has closed these connections meanwhile.
        """
        if self.cluster.broker_metadata(node) is None:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                await self.force_metadata_update()
        answer: T = await self.send(node, request)
        return answer

    async def _send_to_any(self, request: Any) -> Any:
        failed: Exception | None = None
        # "bootstrap": the connection that is kept while the cluster names no broker.
        for node in [broker.nodeId for broker in self.cluster.brokers()] or ["bootstrap"]:
            try:
                return await self.send(node, request)
            except (KafkaError, KeyError) as error:  # KeyError: of a connection that just went
                failed = error
        raise KafkaError(f"no broker answers: {failed}")

    async def _metadata_update(self, cluster_metadata: Any, topics: Iterable[str] | None) -> bool:
        try:
            request = MetadataRequest([], allow_auto_topic_creation=False)
            answer = await self._send_to_any(request)
        except KafkaError as error:
            cluster_metadata.failed_update(error)
            return False
        cluster_metadata.update_metadata(answer)
        return bool(answer.brokers)

    def _on_connection_closed(self, connection: Any, reason: Any) -> None:
        """Do nothing until the next read: a broker that disconnects after a query is not an event.

        After a failure the callers refresh the metadata themselves.
        """

    async def _get_conn(self, node_id: Any, **options: Any) -> Any:
        before = set(self._conns)
        connection = await super()._get_conn(node_id, **options)
        if connection is not None and set(self._conns) - before:
            connection._reader._limit = _READ_AHEAD_BYTES
            found = connection._writer.get_extra_info("socket")
            if found is not None and self._receive_buffer_bytes > 0:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        return connection


async def connect(settings: KafkaSettings) -> BrokerConnections:
    """Connects to the cluster. KafkaError, OSError: the error of the last bootstrap server;
    KafkaClientError: the TLS files cannot be used.
    """
    client = BrokerConnections(settings)
    await client.bootstrap()
    return client


class LoopThread:
    """Runs coroutines for other threads; starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], stop: Stop) -> T:
        """What `work` returns or raises; Stopped where `stop` came first."""
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            with stop.running(future.cancel):
                return future.result()
        except concurrent.futures.CancelledError as error:
            raise Stopped from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread; what still runs is cancelled."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.close()
