"""The parent of a service with proxy workers: starts core and workers, and each again when it ends.

It does nothing else, so that it has no reason to fail. It owns the listening sockets: clients that
connect while a worker restarts wait in their queues. A core that refuses its configuration before
it was ever ready ends the whole service; later one is tried again, since the workers serve
meanwhile. SIGHUP is passed on to the core, which reads its settings again and gives the workers
what changes for them. SIGUSR2 replaces everything by what is installed now: the core first, then
one worker after another, each after its successor has begun. At the end the workers go first: what
their clients wait for needs the core. The children die with the supervisor.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from rlm.clock import Clock
from rlm.workers.children import Child, ChildPlan, Refused
from rlm.workers.ending import Ending
from rlm.workers.inherited import on_hang_up

log = structlog.get_logger(__name__)
_BETWEEN_MS = 1_000
WORKER_COMMAND = (sys.executable, "-P", "-m", "rlm.workers.worker")


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
        self._clock, self._ending = clock, Ending(clock, process="supervisor")
        self._replacing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until SIGTERM or SIGINT, then the workers end, and then the core. Refused: see
        ChildPlan.
        """
        loop = asyncio.get_running_loop()
        this = asyncio.current_task()
        assert this is not None  # noqa: S101 - it runs in one
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, this)
        on_hang_up(partial(self._core.send, signal.SIGHUP))
        try:
            async with asyncio.TaskGroup() as group:
                await self._run_workers(group)
        except* Refused as errors:
            raise Refused(str(errors.exceptions[0])) from errors
        finally:
            self._ending.ended()

    async def _run_workers(self, outer: asyncio.TaskGroup) -> None:
        """Returns when they have ended; the core, in the group outside, goes on until then."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                loop.add_signal_handler(signal.SIGUSR2, self._replace_all, group)
                for worker in self._workers:
                    group.create_task(worker.run())
                outer.create_task(self._core.run())
        finally:
            self._ending.drained()

    def _stop(self, running: asyncio.Task[None]) -> None:
        """A second signal does not cut the drain short."""
        self._ending.asked()
        self._core.start_no_more()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, log.info, "already_stopping")
        running.cancel()

    def _replace_all(self, group: asyncio.TaskGroup) -> None:
        if self._replacing is None or self._replacing.done():
            log.info("replacing_children")
            self._replacing = group.create_task(self._replace_one_by_one())

    async def _replace_one_by_one(self) -> None:
        """The core first: a worker waits for the next core, and a new worker finds a new core."""
        await self._core.restart()
        for worker in self._workers:
            await self._clock.sleep_ms(_BETWEEN_MS)
            await worker.replace()


def watch_children_without_threads() -> None:
    """Python 3.11 waits for each child in a thread of its own, and where no thread can be started
    the child lives on unseen. Later versions wait for a descriptor of the process, as here.
    """
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def run_supervised(make: Callable[[], Supervisor]) -> bool:
    """Run until stopped; False where a child refused, which has said why."""
    watch_children_without_threads()
    try:
        asyncio.run(make().run())
    except Refused:
        return False
    except asyncio.CancelledError:
        pass
    return True
