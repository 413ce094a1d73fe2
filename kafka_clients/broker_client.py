"""aiokafka's client over secured connections that authenticate again before their sessions end.

aiokafka 0.14 reads the password once, keeps one TLS context, ignores the lifetime of a session, and
logs messages of SASL where its log level is DEBUG. Here it opens a connection without SASL; TLS,
SASL and sessions are those of `ChannelSecurity`, as in the service's own wire layer. Every request
of aiokafka's goes through `_get_conn`, with no await between that and the sending, so that no
request comes between the messages of an authentication. This module uses private names of aiokafka.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka.client import ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError

from kafka_clients.broker_request import BrokerRequest
from kafka_clients.channel_security import ENDLESS, ChannelSecurity
from kafka_clients.closing_client import CLOSED, ClosingClient
from kafka_clients.refusals import SecurityRefused
from kafka_protocol.frames import decode_response
from kafka_protocol.schema import Api, Value


class _Hidden:
    """An answer that aiokafka's log does not show: of SCRAM it would allow to guess a password."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class SecuredConnection(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    """One connection. SecurityRefused, besides aiokafka's errors: see ChannelSecurity."""

    def __init__(self, host: str, port: int, *, security: ChannelSecurity, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._channel_security = security
        self._session = ENDLESS
        self._renewing = asyncio.Lock()

    async def connect(self) -> Any:
        security = self._channel_security
        async with security.connecting(self.where):
            self._ssl_context = security.tls_context()
            self._security_protocol = "PLAINTEXT" if self._ssl_context is None else "SSL"
            try:
                streams = await super().connect()
                self._session = await security.authenticate(self._ask)
            except BaseException:
                self.close()
                raise
        return streams

    async def renew_session(self) -> None:
        """Authenticate again if it is time; others wait. An error closes the connection."""
        async with self._renewing:
            if not self._session.is_due(asyncio.get_running_loop().time()):
                return
            try:
                async with self._channel_security.connecting(self.where):
                    self._session = await self._channel_security.authenticate(self._ask)
            except BaseException:
                self.close(reason=CloseReason.AUTH_FAILURE)
                raise

    @property
    def where(self) -> str:
        """The broker, as refusals name it."""
        return f"{self._host}:{self._port}"

    async def _ask(self, api: Api, version: int, body: Mapping[str, Any]) -> Value:
        def read(frame: bytes, version: int) -> _Hidden:
            return _Hidden(decode_response(api, version, frame)[1])

        answer: _Hidden = await self.send(BrokerRequest(api, (version,), body, read))
        return answer.value


class BrokerClient(ClosingClient):
    """Connects by `channel_security`, which is set before the client is started."""

    channel_security: ChannelSecurity

    async def bootstrap(self) -> None:
        """Connects to the first bootstrap server that answers. SecurityRefused, else the error of
        the last one: KafkaError, OSError.

        It replaces aiokafka's, which raises no reasons.
        """
        failed: Exception = KafkaConnectionError("there is no bootstrap server")
        for host, port, _ in self.hosts:
            self._refuse_closed()
            try:
                await self._bootstrap_from(host, port)
            except (KafkaError, OSError) as error:
                failed = failed if isinstance(failed, SecurityRefused) else error
            else:
                return
        raise failed

    async def _first_metadata(self, connection: Any) -> Any:
        async with self.channel_security.connecting(connection.where):
            return await super()._first_metadata(connection)

    async def send(
        self, node_id: Any, request: Any, *, group: Any = ConnectionGroup.DEFAULT
    ) -> Any:
        try:
            return await super().send(node_id, request, group=group)
        except NodeNotReadyError as error:
            broker = self.cluster.broker_metadata(node_id)
            where = f"{broker.host}:{broker.port}" if broker is not None else ""
            why = self.channel_security.refusals.get(where)
            if why is None:
                raise
            raise NodeNotReadyError(f"broker {where}: {why}") from error

    async def _get_conn(
        self, node_id: Any, *, group: Any = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """A connection that takes a request now; None where there is none, as aiokafka has it."""
        if self._is_closed:
            return None
        try:
            connection = await self._open_connection(node_id, group)
            await connection.renew_session()
        except (KafkaError, OSError):  # a TimeoutError too
            self.force_metadata_update()
            return None
        return connection if connection.connected() else None

    async def _open_connection(self, node_id: Any, group: Any) -> SecuredConnection:
        known: SecuredConnection | None = self._known(node_id, group)
        if known is not None:
            return known
        async with self._get_conn_lock:
            known = self._known(node_id, group)
            if known is not None:
                return known
            broker = self.cluster.broker_metadata(node_id)
            if broker is None:
                raise KafkaConnectionError(f"broker {node_id} is not in the metadata")
            found = await self._connected(
                broker.host, broker.port, on_close=self._on_connection_closed
            )
            if self._closes(found):
                raise KafkaConnectionError(CLOSED)
            self._conns[node_id, group] = found
            return found

    async def _connected(self, host: str, port: int, **options: Any) -> SecuredConnection:
        connection = SecuredConnection(
            host,
            port,
            security=self.channel_security,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            max_idle_ms=self._connections_max_idle_ms,
            **options,
        )
        await connection.connect()
        return connection
