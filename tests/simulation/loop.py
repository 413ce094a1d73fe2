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
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

_PROCESS: "contextvars.ContextVar[Process | None]" = contextvars.ContextVar("process", default=None)


class Stuck(Exception):
    """Nothing is ready and no timer is set: the simulation would wait for ever."""


class Process:
    """One simulated process: a service, a broker, or the world around them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_dead = False
        self.is_gone = False
        self.ready: deque[asyncio.Handle] = deque()
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
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._stopping = False

    def add(self, process: Process) -> None:
        """Run callbacks of this process too."""
        self.processes.append(process)

    def remove(self, process: Process) -> None:
        """The process has ended: what is left of it never runs."""
        process.is_dead = process.is_gone = True
        process.ready.clear()
        if process in self.processes:
            self.processes.remove(process)

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when its time comes."""

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(_PROCESS) or self.world  # type: ignore[attr-defined]
        if not process.is_gone:
            process.ready.append(handle)

    def _run_once(self) -> None:
        process = self._next_process()
        handle = process.ready.popleft()
        if not handle.cancelled():
            handle._run()
        if process.callbacks_until_pause >= 0:
            process.callbacks_until_pause -= 1
            if process.callbacks_until_pause < 0:
                process.is_paused = True
                process.paused()

    def _next_process(self) -> Process:
        timers = self._timers
        while True:
            while timers and timers[0][0] <= self._now:
                timer = heapq.heappop(timers)[2]
                if not timer.cancelled():
                    self._enqueue(timer)
            able = [one for one in self.processes if one.ready and not one.is_paused]
            if able:
                return able[0] if len(able) == 1 else self._chance.choice(able)
            if not timers:
                raise Stuck(f"nothing can happen any more at {self._now:.3f} s")
            self._now = max(self._now, timers[0][0])
