"""The HTTP endpoint: /healthz and /readyz for supervisors, /metrics for Prometheus.

/healthz answers 200 while the process does its work, 503 once it does not: a service that waits for
ledger or store still passes bytes (G6) and must not be restarted for that. /readyz answers 200 once
Kafka clients can be served from both tiers, 503 before. Neither status depends on problems: a pod
that was taken out of service for a full store would take its broker's clients with it. The body of
both has the problems, and `health` as the verdict on them. Must not know what the problems are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from kip405.errors import Invalid
from rlm.http.limits import HttpLimits, LimitedConnections
from rlm.plans.problems import Problem, health_of

_SHUTDOWN_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 75.0
_LIMITS = HttpLimits()
_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """`alive` False = restart me; `ready` = settings, ledger and leadership are known, so that
    clients can be served. `problems`: alarms first.
    """

    alive: bool
    ready: bool
    problems: Sequence[Problem]


class HttpServer:
    """Serves until stopped."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        health: Callable[[], HealthState],
        metrics: Callable[[], bytes],
        limits: HttpLimits = _LIMITS,
    ) -> None:
        self._host = host
        self._port = port
        self._health = health
        self._metrics = metrics
        self._limits = limits
        self._runner: web.AppRunner | None = None
        self._connections: LimitedConnections | None = None
        self._listening: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; answers the port taken. Invalid where that fails."""
        application = web.Application(client_max_size=1 << 16, middlewares=[self._count])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._scrape)
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
        )
        await runner.setup()
        self._runner = runner
        assert runner.server is not None  # noqa: S101 - made by `setup`
        self._connections = LimitedConnections(runner.server, self._limits)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connections, self._host, self._port, reuse_address=True
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
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _count(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._connections is not None:
            self._connections.served(request.transport)
        return await handler(request)

    async def _healthz(self, _: web.Request) -> web.Response:
        state = self._health()
        return web.json_response(_body(state), status=200 if state.alive else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        state = self._health()
        is_ready = state.alive and state.ready
        return web.json_response(_body(state), status=200 if is_ready else 503)

    async def _scrape(self, _: web.Request) -> web.Response:
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=self._metrics(), headers={"Content-Type": content_type})


def _body(state: HealthState) -> dict[str, Any]:
    """`problem_count` is of all, `problems` are the gravest."""
    return {
        "status": "ok" if state.alive else "failed",
        "ready": state.ready,
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
