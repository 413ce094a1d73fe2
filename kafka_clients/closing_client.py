"""aiokafka's client and consumer, closed together with every connection that they have opened.

aiokafka 0.14 leaves connections open in these cases:

- A task that is connecting while its client is closed, or asks afterwards, puts a connection into
  the closed client. The rest of an `asyncio.gather` that has failed is such a task.
- `AIOKafkaConsumer.stop` ends with CancelledError, and does not come to close its client, where a
  fetch has failed and waits to be tried again.
- `bootstrap` is cancelled.
- A connection whose end has come and was not read yet is forgotten.
- `AIOKafkaConsumer.stop` tries its last commit again for as long as the group has no coordinator.

This module uses private names of aiokafka. It must not know who uses the client.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka.protocol.metadata import MetadataRequest

_GRACE_S: Final = 5.0
"""So long a closed connection may take to send what is on its way."""
_AGAIN_S: Final = 1.0
_LEAVE_S: Final = 30.0
"""So long the last commit may take, and to leave the group: as in Java's `close`."""
CLOSED: Final = "the client is closed"

_log: Final = logging.getLogger(__name__)


class ClosingClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """Opens nothing any more once it is closed. A consumer, producer or admin client of aiokafka
    makes its client itself: `make_closing` changes it before it is started.
    """

    _is_closed = False
    _ending: tuple[asyncio.Transport, ...] = ()
    _conns: dict[Any, Any]
    _sync_task: Any
    _md_update_fut: Any

    def cut(self) -> None:
        """Close all connections now and open none any more: nothing is sent from here on, of what a
        connection has not sent yet either. `close` waits until they are gone.
        """
        self._end()
        for transport in self._ending:
            transport.abort()

    def _end(self) -> None:
        """Connections send what is on its way, and close."""
        self._is_closed = True
        if self._sync_task is not None:
            self._sync_task.cancel()
        for connection in self._conns.values():
            if connection._writer is not None:
                self._ending += (connection._writer.transport,)
            connection.close(reason=CloseReason.SHUTDOWN)
        update, self._md_update_fut = self._md_update_fut, None
        if update is not None:
            _has_ended(update)  # the task that would say so is cancelled

    async def close(self) -> None:
        """Close all connections, open none any more, and wait until they are gone; where it is
        cancelled, or a broker does not take what is on its way, they are cut.
        """
        self._end()
        late = {one._closed_fut for one in self._conns.values()} | {self._sync_task}
        late -= {None}
        try:
            if late:
                _, late = await asyncio.wait(late, timeout=_GRACE_S)
        finally:
            for transport in self._ending:  # one that has ended takes no notice
                transport.abort()
        if late:
            await asyncio.wait(late, timeout=_GRACE_S)
        self._sync_task, self._ending = None, ()

    async def bootstrap(self) -> None:
        """Connect to the first bootstrap server that answers; errors are aiokafka's.

        It replaces aiokafka's, which leaves a connection open if its caller is cancelled meanwhile.
        """
        for host, port, _ in self.hosts:
            self._refuse_closed()
            try:
                await self._bootstrap_from(host, port)
            except (KafkaError, OSError) as error:  # a TimeoutError too
                _log.error('Unable to bootstrap from "%s:%s": %s', host, port, error)
            else:
                return
        raise KafkaConnectionError(f"Unable to bootstrap from {self.hosts}")

    async def _bootstrap_from(self, host: str, port: int) -> None:
        connection = await self._connected(host, port)
        try:
            answer = await self._first_metadata(connection)
            self._refuse_closed()
            self.cluster.update_metadata(answer)
        except BaseException:
            connection.close()
            raise
        if self.cluster.brokers():
            connection.close()
        else:
            self._conns["bootstrap", ConnectionGroup.DEFAULT] = connection
        if self._sync_task is None:
            work = self._md_synchronizer()  # it follows the metadata
            self._sync_task = asyncio.get_running_loop().create_task(work)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise KafkaConnectionError(CLOSED)

    async def _first_metadata(self, connection: AIOKafkaConnection) -> Any:
        return await connection.send(MetadataRequest([], allow_auto_topic_creation=False))

    async def _connected(self, host: str, port: int, **options: Any) -> Any:
        return await create_conn(
            host,
            port,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            max_idle_ms=self._connections_max_idle_ms,
            ssl_context=self._ssl_context,
            security_protocol=self._security_protocol,
            sasl_mechanism=self._sasl_mechanism,
            sasl_plain_username=self._sasl_plain_username,
            sasl_plain_password=self._sasl_plain_password,
            sasl_kerberos_service_name=self._sasl_kerberos_service_name,
            sasl_kerberos_domain_name=self._sasl_kerberos_domain_name,
            sasl_oauth_token_provider=self._sasl_oauth_token_provider,
            **options,
        )

    async def _get_conn(
        self, node_id: Any, *, group: Any = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """A connection to the broker; None where there is none, as aiokafka has it."""
        if self._is_closed:
            return None
        self._known(node_id, group)
        connection = await super()._get_conn(node_id, group=group, no_hint=no_hint)
        return None if connection is None or self._closes(connection) else connection

    def _known(self, node_id: Any, group: Any) -> Any:
        """The connection that is open already; one that has ended is closed and forgotten."""
        found = self._conns.get((node_id, group))
        if found is not None and not found.connected():
            found.close()  # nobody else does so if its end has come and was not read yet
            del self._conns[node_id, group]
            return None
        return found

    def _closes(self, connection: AIOKafkaConnection) -> bool:
        """Whether the client was closed while it connected; then this is closed, too."""
        if self._is_closed:
            connection.close(reason=CloseReason.SHUTDOWN)
        return self._is_closed

    def force_metadata_update(self) -> Any:
        """As aiokafka's; once the client is closed there is no update to wait for."""
        if not self._is_closed:
            return super().force_metadata_update()
        none = self._loop.create_future()
        self._loop.call_later(self._retry_backoff, _has_ended, none)  # so that nobody spins
        return none


def _has_ended(update: "asyncio.Future[bool]") -> None:
    if not update.done():
        update.set_result(False)


class ClosingConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer whose `stop` closes its connections, whatever fails or is cancelled."""

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)
        make_closing(self._client)

    async def stop(self) -> None:
        """See `stop_consumer`."""
        await stop_consumer(self)


def make_closing(client: AIOKafkaClient) -> None:
    """Have a client that was not started yet close as `ClosingClient` does.

    Producer and consumer pass their client on at once, so it is changed, not replaced.
    """
    client.__class__ = ClosingClient


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer whose client is a `ClosingClient`: whatever fails or is cancelled, its
    connections are closed. It replaces `AIOKafkaConsumer.stop`; a second call does nothing. A
    cancellation cuts the connections, and is raised in any case.

    KafkaError where its group cannot be left, KafkaTimeoutError where that takes too long.
    """
    if consumer._closed:
        return
    consumer._closed = True
    stopping = asyncio.get_running_loop().create_task(_stop(consumer))  # it ends in here
    try:
        await asyncio.wait({stopping})
    except asyncio.CancelledError:
        consumer._client.cut()
        try:
            await asyncio.wait({stopping}, timeout=_GRACE_S)
        finally:
            await _end(stopping)
        if not stopping.cancelled() and (error := stopping.exception()) is not None:
            _log.info("A consumer was stopped and cancelled: %r", error)
        raise
    stopping.result()


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """A task of its own: aiokafka would take a cancellation that comes meanwhile for that of the
    task which it waits for, and go on. Who was cancelled would then never end. And the tasks of a
    consumer that has just begun have begun before it: one of the coordinator that had not would
    cancel its `close`, too.
    """
    async with AsyncExitStack() as parts:
        parts.push_async_callback(consumer._client.close)
        if consumer._fetcher is not None:
            parts.push_async_callback(_close_fetcher, consumer._fetcher)
        if consumer._coordinator is not None:
            parts.push_async_callback(_leave, consumer._coordinator)


async def _leave(coordinator: Any) -> None:
    """Commit and leave the group, where there is one. KafkaTimeoutError after `_LEAVE_S`."""
    leaving = asyncio.get_running_loop().create_task(coordinator.close())
    try:
        is_over = bool((await asyncio.wait({leaving}, timeout=_LEAVE_S))[0])
    finally:
        await _end(leaving)
        for name in ("_heartbeat_task", "_commit_refresh_task"):  # a close that ends early has left
            if (rest := getattr(coordinator, name, None)) is not None:
                await _end(rest)
    if not is_over:
        raise KafkaTimeoutError(f"the group was not left within {_LEAVE_S:g} s")
    leaving.result()


async def _end(task: "asyncio.Task[Any]") -> None:
    """Cancel it until it ends: aiokafka takes a cancellation for that of a task within, and goes
    on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)


async def _close_fetcher(fetcher: Any) -> None:
    """aiokafka's `close` would end with the first fetch that has failed and waits."""
    try:
        await _end(fetcher._fetch_task)
        pending, fetcher._pending_tasks = fetcher._pending_tasks, set()
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
    finally:
        await fetcher.close()
