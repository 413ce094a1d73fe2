"""Start and lifetime of a service process: preconditions, logs, background tasks, stop signals.

A service beside a broker starts only if disks, broker and listeners are those of its configuration
and safe (H13, H21, H23); a refusal is one line. The proxy splits the stream into Kafka's frames, so
it is itself what speaks TLS with clients, and with a tiered listener that has TLS.

A background task that ends or fails is logged and restarted with back-off. A crash of a task, the
ledger client or a poller must not stop the proxy (H24). At the end clients are served to the last
answer before any background task ends: a read of old records needs the plugin.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from kip405.errors import Invalid, RemoteStorageError
from rlm.broker.own_broker import OwnBroker
from rlm.clock import Clock, backoff_ms
from rlm.config import ServiceConfig
from rlm.config.common import CommonConfig
from rlm.config.draft_names import DRAFT_ROWS
from rlm.config.environment import given_variables
from rlm.config.memory import COPIES, MEMORY_KEY
from rlm.log_dir.identity import BrokerIdentity, check_identity
from rlm.plans.broker_listeners import listener_refusals
from rlm.workers.ending import Ending
from rlm.workers.inherited import die_with_supervisor
from rsm_plugins.process.logs import configure_logs

log = structlog.get_logger()
_STEADY_MS = 30_000
_AGAIN_S = 30.0
"""Longer than any component takes to end."""
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def keep_running(name: str, life: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `life` and restart it whenever it ends; returns only by cancellation.

    Each life is a task of its own. So a cancellation counts also where a life ends otherwise, as by
    an error that comes meanwhile, and a life that was cancelled by nobody is one that has failed.
    """
    failures = 0
    while True:
        began_ms = clock.monotonic_ms()
        running = asyncio.get_running_loop().create_task(_lived(life))  # it ends in here
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            await _end(name, running)
            raise
        if running.cancelled():
            log.error("component_broke_off", component=name)
        elif (error := running.exception()) is not None:
            log.error("component_failed", component=name, exc_info=error)
        else:
            log.warning("component_ended", component=name)
        failures = 0 if clock.monotonic_ms() - began_ms > _STEADY_MS else failures + 1
        await clock.sleep_ms(backoff_ms(failures))


async def _lived(life: Callable[[], Awaitable[None]]) -> None:
    await life()


async def _end(name: str, running: asyncio.Task[None]) -> None:
    """Cancel a life until it ends: libraries take a cancellation for that of a task of their own,
    and go on.
    """
    running.cancel()
    while not (await asyncio.wait({running}, timeout=_AGAIN_S))[0]:
        log.warning("component_goes_on", component=name, after_s=_AGAIN_S)
        running.cancel()
    if not running.cancelled() and (error := running.exception()) is not None:
        log.warning("component_failed", component=name, exc_info=error)


def run_until_stopped(
    serve: Callable[[Ending], Coroutine[Any, Any, None]], clock: Clock, *, is_child: bool = False
) -> None:
    """Run an event loop with `serve` until it has ended: see `until_stopped`."""
    ending = Ending(clock)
    asyncio.run(until_stopped(serve(ending), ending, is_child=is_child))
    ending.ended()


async def until_stopped(
    serve: Coroutine[Any, Any, None], ending: Ending, *, is_child: bool = False
) -> None:
    """Run until SIGTERM or SIGINT; a child of a supervisor dies with that. A second signal, as of a
    terminal and of the supervisor, does not shorten the end. A RemoteStorageError that ends it is
    raised without its group.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve)
            for number in _STOP_SIGNALS:
                loop.add_signal_handler(number, _stop, serving, ending, number.name)
            if is_child:
                die_with_supervisor(loop)
    except* RemoteStorageError as group_of_errors:
        raise first_error(group_of_errors) from group_of_errors


class _Service(Protocol):
    async def run(self, ending: Ending) -> None: ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


async def serving(make: Callable[[asyncio.TaskGroup], _Service], ending: Ending) -> None:
    """Run the service that `make` creates, close it, then end its background tasks, in the
    group.
    """
    async with Background() as tasks:
        service = make(tasks.group)
        try:
            await service.run(ending)
        finally:
            try:
                await ending.drain(service.drain)
            finally:
                await service.close()


async def keep_all_running(
    background_tasks: dict[str, Callable[[], Awaitable[None]]],
    clock: Clock,
    check: Callable[[], Coroutine[Any, Any, None]],
    drain: Callable[[], Awaitable[None]],
) -> None:
    """Run all components until cancelled; each one that fails is restarted without the others. What
    `check` raises ends them all. They end once `drain` has.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(check())
        for name, life in background_tasks.items():
            group.create_task(keep_running(name, life, clock))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await drain()


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


def _stop(serving: asyncio.Task[None], ending: Ending, signal_name: str) -> None:
    log.info("stopping", signal=signal_name)
    ending.asked()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, log.info, "already_stopping")
    serving.cancel()


def first_error(group: BaseExceptionGroup[RemoteStorageError]) -> RemoteStorageError:
    """The first error of the group, without it."""
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


def log_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Which settings are not those of the file: the variables that give them, without values."""
    if given := sorted(given_variables(environment)):
        log.info("settings_of_environment", variables=given)


def warn_of_draft_names(config: CommonConfig) -> None:
    """A line for each setting that is given by its name in the first draft of KIP-405."""
    for name in config.draft_names:
        log.warning("setting_by_draft_name", setting=name, today=DRAFT_ROWS[name].doc)


def warn_of_memory(config: CommonConfig, usable_bytes: int) -> None:
    """Where the memory that is set, or that the parts which are set need, is more than the process
    may use (`usable_bytes`): it works, until the kernel ends it.
    """
    if config.memory_max_bytes > usable_bytes:
        found = {MEMORY_KEY: config.memory_max_bytes}
        log.warning("memory_above_limit", **found, limit_bytes=usable_bytes)


def warn_of_copy_slots(config: ServiceConfig) -> None:
    """Where not every copy task has memory for a large segment."""
    tasks = config.remote_log_manager_copier_thread_pool_size
    if config.copy_slots < tasks:
        found = {COPIES.key: config.copy_memory_max_bytes}
        log.warning("copies_limited_by_memory", **found, tasks=tasks, slots=config.copy_slots)


def check_disks(config: ServiceConfig, disks: BrokerIdentity) -> None:
    """Invalid unless the log.dirs belong to the configured node and cluster."""
    check_identity(
        disks, cluster_id=config.cluster_id, node_id=config.node_id, source="the configuration"
    )


async def check_broker(config: ServiceConfig, broker: OwnBroker) -> None:
    """Invalid unless the broker behind the direct listener is ours and of a version that is
    supported, and TIERED is set up safely.

    Unavailable: the broker does not answer yet; retry.
    """
    await broker.check_new_enough()
    cluster = await broker.describe_cluster()
    if cluster.cluster_id != config.cluster_id:
        raise Invalid(
            f"the broker at {broker.address} belongs to cluster {cluster.cluster_id}, "
            f"log.dirs to {config.cluster_id}"
        )
    check_listeners(config, await broker.broker_config(config.node_id))


def check_listeners(config: ServiceConfig, broker_config: Mapping[str, str | None]) -> None:
    """Invalid for the first thing about the broker's listeners that forbids this service."""
    for refusal in listener_refusals(config, broker_config):
        raise Invalid(str(refusal))
