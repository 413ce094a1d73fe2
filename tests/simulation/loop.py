"""An event loop in virtual time that several simulated processes share.

Time jumps to the next timer when nothing is ready, so that a simulated minute costs the time of its
steps alone. Each callback belongs to the process in whose context it was scheduled. The callbacks
of a process run in the order in which they became ready, as in its own event loop; which process
runs next is a seeded choice. A paused process runs nothing, at whatever await it stands; its timers
fire when it goes on, as after SIGSTOP and SIGCONT. A process may be paused after any of its
callbacks (`pause_after`).
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

_PROCESS: "contextvars.ContextVar[Process | None]" = contextvars.ContextVar("process", default=None)


class Stuck(Exception):
    """Nothing is ready and no timer is set: the simulation would wait for ever."""


class _Handle(asyncio.TimerHandle):
    """A callback, of a timer or not, without what a debug mode would keep."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._callback, self._args, self._cancelled = callback, args, False
        self._context = contextvars.copy_context() if context is None else context

    def cancel(self) -> None:
        """It does nothing when its time comes."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


def _nothing() -> None: ...


class Process:
    """One simulated process: a service, a broker, or the world around them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_dead = False
        self.is_gone = False
        self.ready: deque[_Handle] = deque()
        self.callbacks_until_pause = -1
        self.paused: Callable[[], None] = lambda: None
        """Called when `pause_after` has paused it."""
        self.context = contextvars.copy_context()
        self.context.run(_PROCESS.set, self)

    def pause_after(self, callbacks: int, paused: Callable[[], None]) -> None:
        """Pause it once it has run so many more callbacks: at an await that nobody chose."""
        self.callbacks_until_pause = callbacks
        self.paused = paused


def current_process() -> Process | None:
    """The process that the running callback belongs to."""
    return _PROCESS.get()


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Runs callbacks of processes in virtual time; `time` begins at 0 seconds."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.world = Process("world")
        self._chance = chance
        self.processes = [self.world]
        self._busy: list[Process] = []
        """Those that have callbacks to run, paused or not."""
        self._now = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._count = 0
        self._stopping = False

    def add(self, process: Process) -> None:
        """Run callbacks of this process too."""
        self.processes.append(process)

    def remove(self, process: Process) -> None:
        """The process has ended: what is left of it never runs."""
        process.is_dead = process.is_gone = True
        process.ready.clear()
        for kept in (self.processes, self._busy):
            if process in kept:
                kept.remove(process)

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, context)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Handle(callback, args, context)
        self._count += 1
        heappush(self._timers, (self._now + delay, self._count, timer))
        return timer

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Handle(callback, args, context)
        self._count += 1
        heappush(self._timers, (when, self._count, timer))
        return timer

    def _enqueue(self, handle: _Handle) -> None:
        process = handle._context.get(_PROCESS) or self.world
        if process.is_gone:
            return
        if not process.ready:
            self._busy.append(process)
        process.ready.append(handle)

    def _run_once(self) -> None:
        """Run callbacks until the loop is stopped."""
        busy = self._busy
        while not self._stopping:
            process = self._next_process()
            handle = process.ready.popleft()
            if not process.ready:
                busy.remove(process)
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio.Handle does
                    self.call_exception_handler(
                        {"message": "a callback failed", "exception": error}
                    )
            if process.callbacks_until_pause >= 0:
                process.callbacks_until_pause -= 1
                if process.callbacks_until_pause < 0:
                    process.is_paused = True
                    process.paused()

    def _next_process(self) -> Process:
        """The one whose callback runs next, when all timers that are due have been enqueued."""
        timers, busy = self._timers, self._busy
        while True:
            while timers and timers[0][0] <= self._now:
                timer = heappop(timers)[2]
                if not timer._cancelled:
                    self._enqueue(timer)
            if len(busy) == 1 and not busy[0].is_paused:
                return busy[0]
            if busy:
                able = [one for one in self.processes if one.ready and not one.is_paused]
                if able:
                    return able[0] if len(able) == 1 else self._chance.choice(able)
            if not timers:
                raise Stuck(f"nothing can happen any more at {self._now:.3f} s")
            self._now = timers[0][0]
