"""The listeners of a service in every role: HTTP for supervisors, Prometheus and browsers, and the
gRPC API.

/healthz answers 200 while the process works, else 503. A service that waits for ledger or store
still passes bytes through (G6) and must not be restarted for that. /readyz answers 200 once Kafka
clients can be served from both tiers, 503 before. Neither status depends on problems: a pod that is
taken out of service because a store is full would take the clients of its broker with it. Both
bodies list the problems, and `health` summarises them. Where a token is asked for, who does not
show it gets the status alone: probes of supervisors know no token, and problems have names of
topics, hosts and files. This module must not know what the problems are, nor what the clients of
the API request.

The number of HTTP connections and the size and duration of a connection's first request are bounded
(H36), because aiohttp waits for the end of a request's headers without limit and keeps what it has
received. For later requests of a connection its keep-alive timeout applies.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from aiohttp import web

from kip405.errors import Invalid
from rlm.api.authorization import Authorization
from rlm.api.calls import HTTP_TOKENS, Gate, TokenSource, no_tokens, shows_one, token_source
from rlm.api.server import ApiServer
from rlm.clock import Clock
from rlm.config import CommonConfig
from rlm.plans.problems import Problem, health_of
from rlm.proxy.tls_files import Contexts, ListenerTls
from rlm.v1 import admin_pb2_grpc, fetch_pb2_grpc
from rsm_plugins.renewed import Renewed

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """`first_request_bytes` and `first_request_ms` bound the whole first request of a
    connection.
    """

    connections: int = 256
    first_request_bytes: int = 16_384
    first_request_ms: int = 10_000


class LimitedConnections:
    """Creates the protocols of a listening socket; each wraps one of aiohttp's."""

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: HttpLimits) -> None:
        self._make = make
        self.limits: Final = limits
        self._open: dict[asyncio.BaseTransport, _Limited] = {}

    def __call__(self) -> asyncio.Protocol:
        return _Limited(self, self._make())

    def served(self, transport: asyncio.BaseTransport | None) -> None:
        """The first request of this connection was parsed."""
        limited = None if transport is None else self._open.get(transport)
        if limited is not None:
            limited.served()

    def admit(self, transport: asyncio.BaseTransport, limited: "_Limited") -> bool:
        """Whether there is room for one more connection."""
        if len(self._open) >= self.limits.connections:
            return False
        self._open[transport] = limited
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """The connection has ended."""
        self._open.pop(transport, None)


class _Limited(asyncio.Protocol):
    """One connection: forwards everything to aiohttp's protocol, within the limits."""

    def __init__(self, connections: LimitedConnections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._left_bytes: int | None = connections.limits.first_request_bytes
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream, as asked for
        if not self._connections.admit(transport, self):
            log.warning("http_connection_refused", limit=self._connections.limits.connections)
            transport.abort()
            return
        self._transport = transport
        wait_s = self._connections.limits.first_request_ms / 1_000
        self._deadline = asyncio.get_running_loop().call_later(wait_s, transport.abort)
        self._inner.connection_made(transport)

    def served(self) -> None:
        """The first request of the connection was parsed."""
        self._left_bytes = None
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                self._transport.abort()
                return
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._transport is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._connections.leave(self._transport)
        if self._deadline is not None:
            self._deadline.cancel()
        self._inner.connection_lost(exc)


_SHUTDOWN_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 75.0
_LIMITS = HttpLimits()
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """`alive` False = the supervisor should restart the process; `ready` = settings, ledger and
    leadership are known, so that clients can be served. `problems`: alarms first.
    """

    alive: bool
    ready: bool
    problems: Sequence[Problem]


class HttpServer:
    """Serves until stopped; with `tls` by TLS, and with `tokens` only those who show one. `routes`
    (of the console) decide themselves whom they serve.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        health: Callable[[], HealthState],
        metrics: Callable[[], bytes],
        limits: HttpLimits = _LIMITS,
        tls: Contexts | None = None,
        tokens: TokenSource = no_tokens,
        routes: Sequence[web.RouteDef] = (),
    ) -> None:
        self._routes = routes
        self._tls = tls
        self._tokens = tokens
        self._host = host
        self._port = port
        self._health = health
        self._metrics = metrics
        self._limits = limits
        self._runner: web.AppRunner | None = None
        self._connections: LimitedConnections | None = None
        self._listening: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and return the port. Invalid: the address cannot be listened on."""
        application = web.Application(client_max_size=1 << 16, middlewares=[self._count])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._scrape)
        application.router.add_routes(self._routes)
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            handler_cancellation=True,  # nobody waits for an answer once its connection is gone
        )
        await runner.setup()
        self._runner = runner
        assert runner.server is not None  # noqa: S101 - made by `setup`
        self._connections = LimitedConnections(runner.server, self._limits)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connections,
                self._host,
                self._port,
                reuse_address=True,
                ssl=None if self._tls is None else _renewing(self._tls),
                ssl_handshake_timeout=(
                    None if self._tls is None else self._limits.first_request_ms / 1_000
                ),
            )
        except OSError as error:
            await self.stop()
            raise Invalid(
                f"http.listen: cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from error
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @web.middleware
    async def _count(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._connections is not None:
            self._connections.served(request.transport)
        return await handler(request)

    def _knows(self, request: web.Request) -> bool:
        """Whether the request may see problems and metrics."""
        tokens = self._tokens()
        return not tokens or shows_one(request.headers.get("Authorization"), tokens)

    async def _healthz(self, request: web.Request) -> web.Response:
        state = self._health()
        return self._report(request, state, is_well=state.alive)

    async def _readyz(self, request: web.Request) -> web.Response:
        state = self._health()
        return self._report(request, state, is_well=state.alive and state.ready)

    def _report(self, request: web.Request, state: HealthState, *, is_well: bool) -> web.Response:
        shown = _body(state) if self._knows(request) else _status(state)
        return web.json_response(shown, status=200 if is_well else 503)

    async def _scrape(self, request: web.Request) -> web.Response:
        if not self._knows(request):
            return web.Response(
                status=401,
                headers={"WWW-Authenticate": "Bearer"},
                text="this path asks for the token of http.token.file (Authorization: Bearer ...)",
            )
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=self._metrics(), headers={"Content-Type": content_type})


def _renewing(contexts: Contexts) -> ssl.SSLContext:
    """A context that takes the present certificate at each handshake."""
    listening = contexts.current()

    def renew(connection: ssl.SSLObject, name: str | None, of: ssl.SSLContext) -> None:
        connection.context = contexts.current()

    listening.sni_callback = renew
    return listening


def _status(state: HealthState) -> dict[str, Any]:
    return {"status": "ok" if state.alive else "failed", "ready": state.ready}


def _body(state: HealthState) -> dict[str, Any]:
    """`problem_count` counts all problems; `problems` lists the most severe ones."""
    return {
        **_status(state),
        "health": health_of(state.problems),
        "problem_count": len(state.problems),
        "problems": [_shown(one) for one in state.problems[:_MOST_PROBLEMS]],
    }


def _shown(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind.value,
        "severity": problem.severity.value,
        "subject": problem.subject,
        "topic": problem.topic,
        "text": problem.text,
        "since_ms": problem.since_ms,
    }


class Listening:
    """`start` listens, `close` stops listening; the caller closes the services behind it."""

    def __init__(
        self,
        config: CommonConfig,
        clock: Clock,
        *,
        admin: admin_pb2_grpc.AdminServiceServicer | None,
        fetch: fetch_pb2_grpc.FetchServiceServicer,
        health: Callable[[], HealthState],
        metrics: Callable[[], bytes],
        gate: Gate,
        authorization: Authorization | None = None,
        routes: Sequence[web.RouteDef] = (),
    ) -> None:
        """Invalid: a file of HTTP's TLS or tokens cannot be used."""
        self._config = config
        self._gate, self._authorization = gate, authorization
        self._admin = admin
        self._fetch = fetch
        self._http = HttpServer(
            host=config.http_listen.host,
            port=config.http_listen.port,
            health=health,
            metrics=metrics,
            tls=_http_tls(config),
            tokens=token_source(config.http_token_file, clock, HTTP_TOKENS),
            routes=routes,
        )
        self._api: ApiServer | None = None

    async def start(self) -> None:
        """Invalid: a port is taken, an address may not be used, or a TLS file is not usable."""
        config = self._config
        self._api = ApiServer(
            admin=self._admin,
            fetch=self._fetch,
            listen=str(config.grpc_listen),
            tls=config.grpc_tls,
            asks_tokens=config.api_token_file is not None,
            allow_insecure=config.allow_insecure,
            gate=self._gate,
            authorization=self._authorization,
        )
        await self._http.start()
        await self._api.start()

    async def close(self, within_ms: int | None = None) -> None:
        """Running calls have a grace to end, which is no longer than `within_ms`."""
        async with asyncio.TaskGroup() as both:
            if self._api is not None:
                both.create_task(self._api.stop(within_ms))
            both.create_task(self._http.stop())


def _http_tls(config: CommonConfig) -> Contexts | None:
    cert_file, key_file = config.http_tls_cert_file, config.http_tls_key_file
    if cert_file is None or key_file is None:
        return None
    tls = ListenerTls(cert_file=str(cert_file), key_file=str(key_file))
    return Renewed(tls.files, tls.context)
