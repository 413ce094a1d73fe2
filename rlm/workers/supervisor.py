"""The parent of a service with proxy workers: starts core and workers, and each again when it ends.

It does nothing else, so that it has no reason to fail. It owns the listening socket: clients that
connect while a worker restarts wait in its queue. A core that refuses its configuration before it
was ever up ends the whole service; later one is tried again, since the workers serve meanwhile.
SIGHUP replaces everything by what is installed now: the core first, then one worker after another,
each after its successor has begun. The children die with the supervisor.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from kip405.errors import Invalid
from rlm.clock import Clock, backoff_ms

log = structlog.get_logger(__name__)
_STEADY_MS = 5_000
_UP_MS = 10_000
_BETWEEN_MS = 1_000
_READY_MS = 10_000
_REFUSED_STATUS = 2
WORKER_COMMAND = (sys.executable, "-P", "-m", "rlm.workers.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """How a child is started. `first_line`: for its standard input. `stop_ms`: from SIGTERM to
    SIGKILL. `may_refuse`: exit status 2 soon after the first start ends the service.
    `says_ready`: it writes a line to standard output once it serves.
    """

    name: str
    command: Sequence[str]
    first_line: bytes
    stop_ms: int
    descriptors: tuple[int, ...] = ()
    may_refuse: bool = False
    says_ready: bool = False


class Refused(Exception):
    """A child cannot work with its configuration; it has said why."""


class Child:
    """One process, started again whenever it ends."""

    def __init__(self, plan: ChildPlan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._successor: asyncio.subprocess.Process | None = None
        self._has_been_up = not plan.may_refuse

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Until cancelled; then the process is stopped. Refused: see ChildPlan."""
        failures = 0
        try:
            while True:
                began_ms = self._clock.monotonic_ms()
                status = await self._live()
                ran_ms = self._clock.monotonic_ms() - began_ms
                log.warning("child_ended", child=self._plan.name, status=status, ran_ms=ran_ms)
                if status == _REFUSED_STATUS and not self._has_been_up and ran_ms < _UP_MS:
                    raise Refused(self._plan.name)
                self._has_been_up = self._has_been_up or ran_ms >= _UP_MS
                if ran_ms >= _STEADY_MS:
                    failures = 0
                    continue  # at once: clients wait
                await self._clock.sleep_ms(backoff_ms(failures))
                failures += 1
        finally:
            await self._stop()

    async def _live(self) -> int:
        """Until neither the process nor a successor runs; the exit status."""
        self._process = await self._start()
        status = await self._process.wait()
        while self._successor is not None:
            self._process, self._successor = self._successor, None
            status = await self._process.wait()
        self._process = None
        return status

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self._plan.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if self._plan.says_ready else None,
            pass_fds=self._plan.descriptors,
        )
        log.info("child_started", child=self._plan.name, pid=process.pid)
        assert process.stdin is not None  # noqa: S101 - a pipe, as asked for
        process.stdin.write(self._plan.first_line)
        return process

    def end(self) -> None:
        """Ask the process to end: another one is started then."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    async def replace(self) -> None:
        """Start a successor, and stop the process once that serves. A successor that does not serve
        is stopped, and the process stays.
        """
        before = self._process
        if before is None or self._successor is not None:
            return
        self._successor = successor = await self._start()
        if await _serves(successor):
            await self._stop_one(before)
        elif self._successor is successor:
            log.error("successor_failed", child=self._plan.name, pid=successor.pid)
            await self._stop_one(successor)
            if self._successor is successor:
                self._successor = None

    async def _stop(self) -> None:
        running = (one for one in (self._process, self._successor) if one is not None)
        await asyncio.gather(*(self._stop_one(one) for one in running))

    async def _stop_one(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._plan.stop_ms / 1000):
                await process.wait()
        except TimeoutError:
            log.warning("child_killed", child=self._plan.name, after_ms=self._plan.stop_ms)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _serves(process: asyncio.subprocess.Process) -> bool:
    """Whether it says in time that it does."""
    assert process.stdout is not None  # noqa: S101 - it says when it is ready
    try:
        async with asyncio.timeout(_READY_MS / 1000):
            return bool(await process.stdout.readline())
    except TimeoutError:
        return False


class Supervisor:
    """Runs the children of one service; the workers begin first (H24)."""

    def __init__(
        self,
        *,
        core: ChildPlan,
        workers: Sequence[ChildPlan],
        clock: Clock,
    ) -> None:
        self._core = Child(core, clock)
        self._workers = [Child(plan, clock) for plan in workers]
        self._clock = clock
        self._replacing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. Refused: see ChildPlan."""
        loop = asyncio.get_running_loop()
        this = asyncio.current_task()
        assert this is not None  # noqa: S101 - it runs in one
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, this.cancel)
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(worker.run())
                core = group.create_task(self._core.run())
                loop.add_signal_handler(signal.SIGHUP, self._replace_all, group)
                await core
        except* Refused as errors:
            raise Refused(str(errors.exceptions[0])) from errors

    def _replace_all(self, group: asyncio.TaskGroup) -> None:
        if self._replacing is None or self._replacing.done():
            log.info("replacing_children")
            self._replacing = group.create_task(self._replace_one_by_one())

    async def _replace_one_by_one(self) -> None:
        """The core first: a worker waits for the next core, and a new worker finds a new core."""
        self._core.end()
        for worker in self._workers:
            await self._clock.sleep_ms(_BETWEEN_MS)
            await worker.replace()


def listen(host: str, port: int, backlog: int = 1_024) -> socket.socket:
    """The socket that workers inherit. Invalid: the address cannot be listened on."""
    listening: socket.socket | None = None
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(backlog)
    except OSError as error:
        if listening is not None:
            listening.close()
        reason = error.strerror or str(error)
        raise Invalid(f"proxy.listen: cannot listen on {host}:{port}: {reason}") from error
    return listening


def run_supervised(make: Callable[[], Supervisor]) -> bool:
    """Run until stopped; False where a child refused, which has said why."""
    try:
        asyncio.run(make().run())
    except Refused:
        return False
    except asyncio.CancelledError:
        log.info("stopped")
    return True
