"""An event loop in a thread of its own, for the one asynchronous library among the readers.

Callers block; a stop cancels what they wait for.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rlm_spark.stopping import Stop, Stopped

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads; starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T], stop: Stop) -> T:
        """What `work` returns or raises; Stopped where `stop` came first."""
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            with stop.running(future.cancel):
                return future.result()
        except concurrent.futures.CancelledError as error:
            raise Stopped from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread; what still runs is cancelled."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.close()
