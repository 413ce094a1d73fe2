"""The threads that read from services: few work at a time, and those that only wait stop no other.

A service may take a call and never answer it. Its partitions' threads wait then until the call's
limit; a thread that has been at one call for SILENT_MS no longer counts among those that work, and
the next call gets one. This module must not know what is called.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from tiered_reads import clock

THREADS: Final = 8
"""That work at a time."""
MOST_THREADS: Final = 128
"""With those that wait for a service that is silent; further calls wait for one of them."""
SILENT_MS: Final = 2_000


class _Call(NamedTuple):
    future: "Future[Any]"
    run: Callable[[], Any]


class ReadThreads(Executor):
    """Calls begin in the order in which they were submitted."""

    def __init__(
        self,
        threads: int = THREADS,
        *,
        most_threads: int = MOST_THREADS,
        silent_ms: int = SILENT_MS,
    ) -> None:
        self._threads = threads
        self._most_threads = most_threads
        self._silent_ms = silent_ms
        self._pool = ThreadPoolExecutor(most_threads, thread_name_prefix="rlm-client")
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._running: dict[int, int] = {}
        """When each began, by a number of its own."""
        self._number = 0
        self._timer: threading.Timer | None = None
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """See Executor. RuntimeError after `shutdown`."""
        call = _Call(Future(), lambda: fn(*args, **kwargs))
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append(call)
            self._begin()
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See Executor; what was submitted is still done."""
        with self._lock:
            self._is_shut = True
            if cancel_futures:
                for call in self._waiting:
                    call.future.cancel()
            left = [call.future for call in self._waiting]
            self._begin()
        if wait:
            futures.wait(left)
            self._pool.shutdown()

    def _begin(self) -> None:
        """Begin what may begin now, and come again when a call has become silent. Locked."""
        while (begun := self._next()) is not None:
            self._pool.submit(self._run, *begun)
        self._rest()

    def _next(self) -> tuple[int, _Call] | None:
        """The next call, which runs from now on. Locked."""
        now_ms = clock.monotonic_ms()
        working = sum(now_ms - at < self._silent_ms for at in self._running.values())
        has_room = working < self._threads and len(self._running) < self._most_threads
        if not (self._waiting and has_room):
            return None
        self._number += 1
        self._running[self._number] = now_ms
        return self._number, self._waiting.popleft()

    def _rest(self) -> None:
        """Nothing can begin now. Locked."""
        if not self._waiting:
            if self._is_shut:
                self._pool.shutdown(wait=False)
            return
        if self._timer is None and len(self._running) < self._most_threads:
            now_ms = clock.monotonic_ms()
            ages = (now_ms - at for at in self._running.values())
            oldest_ms = max((age for age in ages if age < self._silent_ms), default=0)
            wait_ms = max(self._silent_ms - oldest_ms, 1)
            self._timer = threading.Timer(wait_ms / 1000, self._come_again)
            self._timer.daemon = True
            self._timer.start()

    def _come_again(self) -> None:
        with self._lock:
            self._timer = None
            self._begin()

    def _run(self, number: int, call: _Call) -> None:
        """The call, and others after it while there is room: a thread is not left for another."""
        begun: tuple[int, _Call] | None = (number, call)
        while begun is not None:
            number, call = begun
            if call.future.set_running_or_notify_cancel():
                try:
                    result = call.run()
                except BaseException as error:  # noqa: BLE001 - it is the caller's, as in Executor
                    call.future.set_exception(error)
                else:
                    call.future.set_result(result)
            del call
            with self._lock:
                del self._running[number]
                begun = self._next()
                if begun is None:
                    self._rest()
