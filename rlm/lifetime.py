"""The life of a service's process, in every role: signals end it, background tasks end with it."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import structlog

from kip405.errors import RemoteStorageError
from rlm.clock import Clock
from rlm.supervisor import keep_running

log = structlog.get_logger()


async def until_stopped(serve: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT; a RemoteStorageError that ends it is raised alone."""
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
    """Run what `make` makes and close it; its background tasks, in the group, end after that."""
    async with Background() as tasks:
        service = make(tasks.group)
        try:
            await service.run()
        finally:
            await service.close()


async def keep_all_running(lives: dict[str, Callable[[], Awaitable[None]]], clock: Clock) -> None:
    """Every life for ever, each begun again without the others when it fails."""
    async with asyncio.TaskGroup() as group:
        for name, life in lives.items():
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
