"""Connections to brokers by aiokafka's client: bootstrap, security, cluster metadata.

Only this file uses private names of aiokafka. `LoopThread` runs its event loop in a thread: callers
block, and a stop cancels the call that they wait for. This module must not know what is fetched.
"""

import asyncio
import concurrent.futures
import socket
import ssl
import tempfile
import threading
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from rlm_spark.errors import KafkaClientError
from rlm_spark.stopping import Stop, Stopped
from rlm_spark.tiers.kafka_options import KafkaSettings, TlsFiles
from rlm_spark.tiers.kafka_requests import BrokerRequest, TopicMetadata, metadata_request

_READ_AHEAD_BYTES = 1 << 20
"""What a connection buffers before it stops reading; aiokafka's 64 KiB stops it all the time."""

T = TypeVar("T")


class BrokerConnections(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """AIOKafkaClient that follows brokers only: its metadata requests name no topic."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(
            bootstrap_servers=list(settings.bootstrap_servers),
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            connections_max_idle_ms=settings.connections_max_idle_ms,
            security_protocol=settings.security_protocol,
            ssl_context=_ssl_context(settings.tls) if settings.has_tls else None,
            sasl_mechanism=settings.sasl_mechanism,
            sasl_plain_username=settings.sasl_username,
            sasl_plain_password=settings.sasl_password,
        )
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

    async def bootstrap(self) -> None:
        """Connects to the first bootstrap server that answers. KafkaError, OSError: the error of
        the last one.

        It replaces aiokafka's, which raises no reasons, and leaves a connection open if the caller
        is cancelled meanwhile.
        """
        failed: Exception = KafkaConnectionError("there is no bootstrap server")
        for host, port, _ in self.hosts:
            try:
                await self._bootstrap_from(host, port)
            except (KafkaError, OSError) as error:
                failed = error
            else:
                work = self._md_synchronizer()
                self._sync_task = asyncio.get_running_loop().create_task(work)  # close() ends it
                return
        raise failed

    async def _bootstrap_from(self, host: str, port: int) -> None:
        connection = await create_conn(
            host,
            port,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            ssl_context=self._ssl_context,
            security_protocol=self._security_protocol,
            max_idle_ms=self._connections_max_idle_ms,
            sasl_mechanism=self._sasl_mechanism,
            sasl_plain_username=self._sasl_plain_username,
            sasl_plain_password=self._sasl_plain_password,
        )
        try:
            request = MetadataRequest([], allow_auto_topic_creation=False)
            self.cluster.update_metadata(await connection.send(request))
        except BaseException:
            connection.close()
            raise
        if self.cluster.brokers():
            connection.close()
        else:
            self._conns["bootstrap", ConnectionGroup.DEFAULT] = connection

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


def _ssl_context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca_file, cadata=files.ca_text)
        context.check_hostname = files.checks_host_name
        if files.cert_text is not None or files.key_text is not None:
            _load_texts(context, files)
        elif files.cert_file is not None:
            context.load_cert_chain(files.cert_file, files.key_file, files.key_password or "")
    except (OSError, ValueError) as error:
        raise KafkaClientError(f"the TLS files of kafka.ssl.* are unfit: {error}") from error
    return context


def _load_texts(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Loads a certificate chain. OpenSSL reads chains from files only, so it is written to a
    private file for a moment."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(f"{files.key_text or ''}\n{files.cert_text or ''}\n")
        file.flush()
        context.load_cert_chain(file.name, None, files.key_password or "")


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
