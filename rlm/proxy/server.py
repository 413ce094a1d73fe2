"""The proxy's listening socket: accepts, limits and closes connections.

This is the thin edge around sessions and handlers. Produce and fetches within the local log pass in
every state of remote tier, ledger and store (G6, H24). This module must not know how data is
stored.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

import structlog

from kafka_clients.distinguished_names import subject_of
from kafka_protocol.node_addresses import AddressLookup, keep_addresses
from kip405.errors import Invalid
from rlm.clock import Clock
from rlm.plans.client_activity import ClientTable
from rlm.proxy.client_connections import ClientConnections, produce_log_start
from rlm.proxy.client_counts import ClientCounts
from rlm.proxy.client_tokens import ClientTokens
from rlm.proxy.connection import Connection
from rlm.proxy.fetch import FetchDependencies
from rlm.proxy.fetch_plan import HighWatermarks
from rlm.proxy.handshakes import HandshakeFailed, accept, refuse_expired
from rlm.proxy.identities import Identities, Identity, Shares
from rlm.proxy.limits import ClientDeadlines, DeadlineSettings, StalledClients
from rlm.proxy.listening import Acceptor, listen
from rlm.proxy.memory import ConnectionMemory
from rlm.proxy.own_topics import OwnTopicIds, OwnTopics, unknown_ids
from rlm.proxy.purgatory import RemoteFetchPurgatory
from rlm.proxy.reads import FetchQuota
from rlm.proxy.session import SessionError
from rlm.proxy.settings import ProxyMetrics, ProxySettings
from rlm.proxy.settling import BarrierLimit
from rlm.proxy.shared import READ_BUFFER_BYTES, Shared
from rlm.proxy.splicing import Pipes
from rlm.proxy.tls_files import PLAIN, Contexts, TlsContexts
from rlm.proxy.tls_transport import TlsTransport, peer_of
from rlm.remote_log.tier import Deletions, Tier
from rlm.spans import Tracer

log = structlog.get_logger(__name__)


class ProxyServer:
    """Accepts Kafka clients and connects each to one listener of this service's broker.

    `node_addresses`: which addresses answers name; see `rlm.plans.node_addresses`. While
    `own_topic_ids` are unknown, no request that names topics by id and changes them is offered.
    `clients`: what is counted of each client.
    `tokens`: a client with a certificate is the principal of that to the broker, too.
    `remembered_ids`: see `rlm.proxy.own_topics.OwnTopics`.
    """

    def __init__(
        self,
        settings: ProxySettings,
        tier: Tier,
        deletions: Deletions,
        clock: Clock,
        metrics: ProxyMetrics,
        quota: FetchQuota,
        node_addresses: AddressLookup = keep_addresses,
        tls: TlsContexts = PLAIN,
        own_topic_ids: OwnTopicIds = unknown_ids,
        clients: ClientTable | None = None,
        tokens: ClientTokens | None = None,
        remembered_ids: frozenset[bytes] = frozenset(),
        tracer: Tracer | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self.purgatory = RemoteFetchPurgatory(clock, self._metrics)
        self.memory = ConnectionMemory(settings.memory_max_bytes)
        fetches = FetchDependencies(
            settings=settings,
            clock=clock,
            metrics=self._metrics,
            high_watermarks=HighWatermarks(),
            quota=quota,
            purgatory=self.purgatory,
            barrier_limit=BarrierLimit(clock, settings.barrier_wait_ms),
            node_addresses=node_addresses,
            others_wait=lambda: self.memory.is_work_waited_for,
            tracer=tracer,
        )
        self.clients = ClientTable() if clients is None else clients
        self._connections: dict[Connection, Callable[[], None] | None] = {}
        """Each with what counts it by its certificate, until that was done."""
        self.identities = Identities(
            addresses=Shares(settings.max_connections_per_address),
            principals=Shares(settings.max_connections_per_principal),
        )
        self._one_left = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._listening = contextlib.ExitStack()
        self._sockets: tuple[socket.socket, ...] = ()
        self._accepting: asyncio.Task[None] | None = None
        self._deadlines = ClientDeadlines(
            clients=lambda: self.connections,
            stayed=self._count_by_certificate,
            clock=clock,
            settings=_deadlines_of(settings),
        )
        self._ending: asyncio.Task[None] | None = None
        self._pipes = Pipes()
        self._tokens = tokens
        self._shared = Shared(
            settings=settings,
            metrics=self._metrics,
            memory=self.memory,
            produce_log_start=produce_log_start(lambda: tier),
            node_addresses=node_addresses,
            own_topics=OwnTopics(ids=own_topic_ids, remembered=remembered_ids),
            read_buffer=memoryview(bytearray(READ_BUFFER_BYTES)),
            pipes=self._pipes,
            moved=quota.moved,
            tls=tls,
        )
        self._made = ClientConnections(
            tier, deletions, fetches, self._shared, self.identities, self.clients, tokens
        )

    @property
    def port(self) -> int:
        """The port listened on; only after `start`."""
        if not self._sockets:
            raise RuntimeError("the proxy is not started")
        return int(self._sockets[0].getsockname()[1])

    @property
    def connections(self) -> frozenset[Connection]:
        """Open client connections, as they are now."""
        return frozenset(self._connections)

    @property
    def is_shaking_hands(self) -> bool:
        """Whether the TLS handshake of a client is not complete."""
        return bool(self._handshakes)

    async def start(self) -> None:
        """Listen, and pass bytes from now on, whether or not the tier is ready (H24).

        Invalid: the port is in use, or the address is not one of this machine.
        """
        host = self._settings.listen_host
        self._sockets = self._listening.enter_context(listen(host, self._settings.listen_port))
        await self.begin()
        acceptor = Acceptor(self._sockets, self._no_wait, self.serve, self._clock)
        self._accepting = self._group.create_task(acceptor.run())
        log.info("proxy_listening", host=host, port=self.port)

    async def _no_wait(self) -> None:
        """Whom there is no room for is refused: there is no other worker to take it."""

    async def begin(self) -> None:
        """`serve` clients that somebody else accepts, where there is room."""
        await self._group.__aenter__()
        self._ending = self._group.create_task(self._deadlines.run())

    async def has_room(self) -> None:
        """Wait until there are fewer connections than `max_connections`."""
        if self._is_full:
            log.warning("connections_wait", limit=self._settings.max_connections)
        while self._is_full:
            self._one_left.clear()
            await self._one_left.wait()

    async def serve(self, client: socket.socket) -> None:
        """Begin to serve a client whose connection was accepted; never waits for the client."""
        try:
            identity = self.identities.enter(_address_of(client))
        except SessionError as error:
            self._turned_away(client, error.cause, str(error))
            return
        contexts = self._shared.tls.listener
        if contexts is None:
            await self._serve_plain(client, identity)
        elif self._is_full:
            log.warning("connection_refused", limit=self._settings.max_connections)
            self.identities.leave(identity)
            client.close()
        else:
            task = self._group.create_task(self._serve_tls(client, contexts, identity))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _serve_plain(self, client: socket.socket, identity: Identity) -> None:
        side = self._made.make(identity, self._accept).client
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: side, client)
        except BaseException:
            self.identities.leave(identity)
            raise

    async def _serve_tls(
        self, client: socket.socket, contexts: Contexts, identity: Identity
    ) -> None:
        secured = None
        try:
            secured = await self._shaken_hands(client, contexts, identity)
        except Exception:  # a bug in one handshake must not end other connections
            log.exception("connection_crashed")
            client.close()
        finally:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - it runs in one
            self._handshakes.discard(task)
            if secured is None:
                self.identities.leave(identity)
                self._one_left.set()
        if secured is not None:
            TlsTransport(secured, self._made.make(identity, self._accept).client).begin()

    async def _shaken_hands(
        self, client: socket.socket, contexts: Contexts, identity: Identity
    ) -> ssl.SSLSocket | None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timeout_ms, secured = self._settings.handshake_timeout_ms, None
        peer = peer_of(client)
        try:
            secured = await accept(client, contexts.current(), timeout_ms)
            refuse_expired(secured, self._clock.now_ms())
            self._prove_by_certificate(secured, identity)
        except (HandshakeFailed, SessionError) as error:
            self._turned_away(secured or client, error.cause, str(error), peer)
            return None
        return secured

    def _prove_by_certificate(self, secured: ssl.SSLSocket, identity: Identity) -> None:
        shown = secured.getpeercert(binary_form=True)
        if shown is not None:
            identity.subject = self._subject_of(shown)
            if identity.subject and self._tokens is not None:
                self.identities.prove(identity, identity.subject, by_sasl=False)
            identity.principal = identity.subject or None

    def _subject_of(self, certificate: bytes) -> str | None:
        """None: it has no name that is certain, and none is needed; SessionError: one is."""
        try:
            return subject_of(certificate)
        except Invalid as error:
            if self._tokens is None:
                return None
            raise SessionError("certificate_unreadable", str(error)) from error

    def _turned_away(
        self, client: socket.socket, cause: str, message: str, peer: object = None
    ) -> None:
        """Close a client that never got a connection of its own, and count it as one."""
        self._metrics.connection_opened()
        self._metrics.connection_closed(cause)
        log.info("client_turned_away", peer=str(peer or peer_of(client)), cause=cause, why=message)
        client.close()

    async def close(self) -> None:
        """Stop listening, let answers finish, close what is left, within `shutdown_timeout_ms`."""
        if self._ending is None:
            return
        await self._stop_accepting()
        for connection in tuple(self._connections):
            connection.drain()
        deadline_ms = self._clock.monotonic_ms() + self._settings.answers_end_within_ms
        while self._connections and self._clock.monotonic_ms() < deadline_ms:
            await self._clock.sleep_ms(5)
        if self._connections:
            log.warning("clients_cut_off", connections=len(self._connections))
        for connection in tuple(self._connections):
            connection.abort("shutdown_timeout")
        self._ending.cancel()
        await self._group.__aexit__(None, None, None)
        self._pipes.close()
        self._accepting = self._ending = None

    async def _stop_accepting(self) -> None:
        """Also of clients whose handshakes are not complete."""
        tasks = [*self._handshakes, *([] if self._accepting is None else [self._accepting])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._listening.close()

    def stalled_clients(
        self, lacking_bytes: Callable[[], int]
    ) -> tuple[StalledClients[Connection], StalledClients[Connection]]:
        """What ends clients that stopped reading: where remote reads need their room, of which
        `lacking_bytes` says how much, and where other connections need their memory.
        """
        of_reads = StalledClients(
            clients=lambda: self.connections, lacking_bytes=lacking_bytes, clock=self._clock
        )
        of_answers = StalledClients(
            clients=lambda: self.connections,
            lacking_bytes=lambda: self.memory.lacking_bytes,
            held_bytes=lambda client: client.held_for_client_bytes,
            clock=self._clock,
        )
        return of_reads, of_answers

    def _count_by_certificate(self, connection: Connection) -> str | None:
        """A client that only asks what anybody may ask is never let in; the cause why it ends."""
        count = self._connections.get(connection)
        if count is None:
            return None
        self._connections[connection] = None
        try:
            count()
        except SessionError as error:
            log.warning("client_not_counted", peer=connection.peer, why=str(error))
            return error.cause
        return None

    @property
    def _is_full(self) -> bool:
        open_count = len(self._connections) + len(self._handshakes)
        return open_count >= self._settings.max_connections

    def _accept(
        self,
        identity: Identity,
        counts: ClientCounts,
        count_by_certificate: Callable[[], None],
        connection: Connection,
    ) -> bool:
        if self._is_full:
            log.warning("connection_refused", limit=self._settings.max_connections)
            self.identities.leave(identity)
            return False
        self._connections[connection] = count_by_certificate
        self._metrics.connection_opened()
        self._group.create_task(self._run(connection, identity, counts))
        return True

    async def _run(self, connection: Connection, identity: Identity, counts: ClientCounts) -> None:
        try:
            await connection.run()
        except Exception:  # a bug in one connection must not end the others
            log.exception("connection_crashed")
        finally:
            self._connections.pop(connection, None)
            self.identities.leave(identity)
            counts.ended()
            self._one_left.set()


def _deadlines_of(settings: ProxySettings) -> DeadlineSettings:
    return DeadlineSettings(
        first_request_timeout_ms=settings.first_request_timeout_ms,
        stalled_request_timeout_ms=settings.stalled_request_timeout_ms,
        max_idle_ms=settings.max_idle_ms,
        stalled_request_min_bytes=settings.stalled_request_min_bytes,
    )


def _address_of(client: socket.socket) -> str:
    """Without its port; of a client that has gone meanwhile, empty."""
    peer = peer_of(client)
    return str(peer[0]) if isinstance(peer, tuple) else ""
