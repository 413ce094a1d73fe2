"""One child of the supervisor: a process that is started again whenever it ends.

A process that cannot be started, as while another version is installed or while the machine has no
memory left, is one that has ended: it is tried again with back-off, and nothing else ends for it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from rlm.clock import Clock, backoff_ms
from rlm.workers.inherited import READY

log = structlog.get_logger(__name__)
_STEADY_MS = 5_000
_READY_MS = 30_000
KILLED_MS = 5_000
_RECENT_MS = 600_000
_REFUSED_STATUS = 2
_STDIN = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """How a child is started. `first_line`: for its standard input, by how often it has ended by
    itself lately. `stop_ms`: from SIGTERM to SIGKILL. `may_refuse`: exit status 2 before it was
    ever ready is Refused. `withheld`: variables of the environment that are not its business. A
    child says on its standard output when it is ready.
    """

    name: str
    command: Sequence[str]
    first_line: Callable[[int], bytes]
    stop_ms: int
    descriptors: tuple[int, ...] = ()
    may_refuse: bool = False
    withheld: Collection[str] = ()


class Refused(Exception):
    """A child cannot work with its configuration; it has said why."""


class _Process(asyncio.SubprocessProtocol):
    """A process that runs, or has run. All that it writes to standard output is taken."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_ready = False
        self.is_stopped = False
        self._said = b""
        self._owed: set[int] = set()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @classmethod
    async def start(cls, plan: ChildPlan, first_line: bytes) -> "_Process":
        """OSError: it cannot be started now."""
        transport, process = await asyncio.get_running_loop().subprocess_exec(
            cls,
            *plan.command,
            stderr=None,
            pass_fds=plan.descriptors,
            env={name: one for name, one in os.environ.items() if name not in plan.withheld},
        )
        stdin = transport.get_pipe_transport(_STDIN)
        assert isinstance(stdin, asyncio.WriteTransport)  # noqa: S101 - a pipe, as by default
        stdin.write(first_line)
        return process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101 - as asked for
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if not self.is_ready and READY in (said := self._said + data):
            self.is_ready = True
            self._changed.set()
            for number in self._owed:
                self.send(number)
        elif not self.is_ready:
            self._said = said[-len(READY) :]

    def process_exited(self) -> None:
        self.status = self._transport.get_returncode()
        self._changed.set()
        self._ended.set()
        self._transport.close()

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    async def wait(self) -> None:
        """Until it has ended."""
        await self._ended.wait()

    async def serves(self) -> bool:
        """Whether it says in time that it is ready, and has not ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_MS / 1000):
                await self._changed.wait()
        return self.is_ready and self.status is None

    async def ends(self, within_ms: int) -> bool:
        """Whether it ends in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_ms / 1000):
                await self.wait()
        return self.status is not None

    def terminate(self) -> None:
        """SIGTERM: what follows is no end by itself."""
        self.is_stopped = True
        with suppress(ProcessLookupError):
            self._transport.terminate()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._transport.kill()

    def send(self, number: int) -> None:
        """A signal, once it serves: one that still starts has no handler, and would end."""
        if not self.is_ready:
            self._owed.add(number)
            return
        with suppress(ProcessLookupError):
            self._transport.send_signal(number)


class Child:
    """One process at a time, or two while a successor takes over."""

    def __init__(self, plan: ChildPlan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._process: _Process | None = None
        self._successor: _Process | None = None
        self._has_been_ready = not plan.may_refuse
        self._ends_ms: deque[int] = deque()
        self._is_last = False

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Until cancelled; then the process is stopped. Refused: see ChildPlan."""
        failures = 0
        try:
            while not self._is_last:
                began_ms = self._clock.monotonic_ms()
                process = await self._live(began_ms)
                now_ms = self._clock.monotonic_ms()
                if process is not None and self._ended(process, now_ms, now_ms - began_ms):
                    failures = 0
                    continue  # at once: clients wait
                await self._clock.sleep_ms(backoff_ms(failures))
                failures += 1
        finally:
            await self._stop()

    async def _live(self, now_ms: int) -> _Process | None:
        """Until neither the process nor a successor runs; the one that ran last, None = it could
        not be started.
        """
        self._process = last = await self._start(now_ms)
        while self._process is not None:
            last = self._process
            await last.wait()
            self._process, self._successor = self._successor, None
        return last

    def _ended(self, process: _Process, now_ms: int, ran_ms: int) -> bool:
        """Note it; whether the process had been steady. Refused: see ChildPlan."""
        log.warning("child_ended", child=self._plan.name, status=process.status, ran_ms=ran_ms)
        self._has_been_ready = self._has_been_ready or process.is_ready
        if process.status == _REFUSED_STATUS and not self._has_been_ready:
            raise Refused(self._plan.name)
        if not process.is_stopped:
            self._ends_ms.append(now_ms)
        return ran_ms >= _STEADY_MS and process.status != _REFUSED_STATUS

    async def _start(self, now_ms: int) -> _Process | None:
        """None: it cannot be started now."""
        while self._ends_ms and self._ends_ms[0] < now_ms - _RECENT_MS:
            self._ends_ms.popleft()
        first_line = self._plan.first_line(len(self._ends_ms))
        try:
            process = await _Process.start(self._plan, first_line)
        except OSError as error:
            log.error("child_not_started", child=self._plan.name, error=str(error))
            return None
        log.info("child_started", child=self._plan.name, pid=process.pid)
        return process

    def start_no_more(self) -> None:
        """The process that runs is the last one: a signal to a group reaches it, too."""
        self._is_last = True

    def send(self, number: int) -> None:
        """Pass on a signal to what runs, or will serve soon."""
        for process in (self._process, self._successor):
            if process is not None:
                process.send(number)

    async def restart(self) -> None:
        """Stop the process: another one is started then."""
        if self._process is not None:
            await self._stop_one(self._process)

    async def replace(self) -> None:
        """Start a successor, and stop the process once that serves. A successor that does not serve
        is stopped, and the process stays.
        """
        before = self._process
        if before is None or self._successor is not None:
            return
        successor = await self._start(self._clock.monotonic_ms())
        if successor is None:
            return
        if self._process is not before:  # it has ended meanwhile, and what runs is as new
            return await self._stop_one(successor)
        self._successor = successor
        if await successor.serves():
            await self._stop_one(before)
        elif self._successor is successor:
            log.error("successor_failed", child=self._plan.name, pid=successor.pid)
            await self._stop_one(successor)
            if self._successor is successor:
                self._successor = None
        return None

    async def _stop(self) -> None:
        running = (one for one in (self._process, self._successor) if one is not None)
        await asyncio.gather(*(self._stop_one(one) for one in running))

    async def _stop_one(self, process: _Process) -> None:
        process.terminate()
        if await process.ends(self._plan.stop_ms):
            return
        log.warning("child_killed", child=self._plan.name, after_ms=self._plan.stop_ms)
        process.kill()
        if not await process.ends(KILLED_MS):  # as one that waits for a disk
            log.error("child_not_ended", child=self._plan.name, pid=process.pid)
