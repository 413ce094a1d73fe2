"""The lifetime of a service process: stop signals, supervised background tasks and logging set-up.

A background task that ends or fails is logged and restarted with back-off. A crash of a task, the
ledger client or a poller must not stop the proxy (H24).
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import structlog

from kip405.errors import RemoteStorageError
from rlm.clock import Clock, backoff_ms
from rsm_plugins.process.logs import configure_logs

log = structlog.get_logger()
_STEADY_MS = 30_000


async def keep_running(name: str, life: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `life` and restart it whenever it ends; returns only by cancellation."""
    failures = 0
    while True:
        began_ms = clock.monotonic_ms()
        try:
            await life()
            log.warning("component_ended", component=name)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("component_failed", component=name)
        failures = 0 if clock.monotonic_ms() - began_ms > _STEADY_MS else failures + 1
        await clock.sleep_ms(backoff_ms(failures))


async def until_stopped(serve: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT; a RemoteStorageError that ends it is raised without its
    group.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _stop, serving, number.name)
    except* RemoteStorageError as group_of_errors:
        raise _first(group_of_errors) from group_of_errors


class _Service(Protocol):
    async def run(self) -> None: ...

    async def close(self) -> None: ...


async def serving(make: Callable[[asyncio.TaskGroup], _Service]) -> None:
    """Run the service that `make` creates, close it, then end its background tasks, in the
    group.
    """
    async with Background() as tasks:
        service = make(tasks.group)
        try:
            await service.run()
        finally:
            await service.close()


async def keep_all_running(
    background_tasks: dict[str, Callable[[], Awaitable[None]]], clock: Clock
) -> None:
    """Run all components until cancelled; each one that fails is restarted without the others."""
    async with asyncio.TaskGroup() as group:
        for name, life in background_tasks.items():
            group.create_task(keep_running(name, life, clock))


class Background:
    """A TaskGroup whose tasks end with the block: nothing outlives the service."""

    def __init__(self) -> None:
        self.group = asyncio.TaskGroup()

    async def __aenter__(self) -> "Background":
        await self.group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        stop = asyncio.CancelledError()
        with contextlib.suppress(asyncio.CancelledError):
            await self.group.__aexit__(asyncio.CancelledError, stop, None)


def _stop(serving: asyncio.Task[None], signal_name: str) -> None:
    log.info("stopping", signal=signal_name)
    serving.cancel()


def _first(group: BaseExceptionGroup[RemoteStorageError]) -> RemoteStorageError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if not isinstance(found, RemoteStorageError):
        raise found
    return found


def configure_service_logs(*, level: str, log_format: str) -> None:
    """Set up structlog for this process, on stderr; other libraries log from level error on."""
    configure_logs(level=level, log_format=log_format)
    # aiokafka logs every failed connection as an error; our own code logs what matters.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(name)s %(message)s")
