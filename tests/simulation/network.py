"""Requests between simulated processes: late, lost, answered twice as late, executed all the same.

A request is executed by its server, in the server's own time: a paused server executes it when it
goes on, also if the caller has given up, is paused or was killed meanwhile. That is how a
DeleteRecords or an append arrives late (H10, H41).
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kip405.errors import RemoteStorageError, Unavailable
from tests.simulation.loop import Process, VirtualTimeLoop, current_process

T = TypeVar("T")
_TIMEOUT_S = 3.0


class Network:
    """Delays by the seed's own chance; `slow` processes answer and ask late."""

    def __init__(self, loop: VirtualTimeLoop, chance: random.Random) -> None:
        self.loop = loop
        self._chance = chance
        self.slow_until: dict[str, float] = {}
        self._waiting: dict[float, deque[tuple[float, asyncio.Future[Any], str]]] = {}
        """By timeout, the requests whose answers are waited for, the oldest first."""

    def delay_s(self, *names: str) -> float:
        """One way through the network: mostly milliseconds."""
        for name in names if self.slow_until else ():
            if self.slow_until.get(name, 0.0) > self.loop.time():
                return self._chance.uniform(0.05, 1.5)
        return self._chance.expovariate(400.0)

    async def request(
        self,
        server: Process,
        work: Callable[[], T],
        what: str,
        *,
        delay_s: float | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> T:
        """What `work` returns or raises at the server. Unavailable: it is down, or no answer came
        in time; `work` may run all the same, later.
        """
        caller = current_process() or self.loop.world
        if caller.is_dead:
            raise Unavailable(f"{what}: the caller was killed")
        loop = self.loop
        answer: asyncio.Future[T] = loop.create_future()
        wait_s = self.delay_s(server.name, caller.name) if delay_s is None else delay_s

        def settle(result: "T | None", error: "Exception | None") -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(cast(T, result))

        def reply(result: "T | None", error: "Exception | None") -> None:
            back_s = self.delay_s(server.name, caller.name)
            loop.call_later(back_s, settle, result, error, context=loop.world.context)

        def execute() -> None:
            try:
                result = work()
            except (RemoteStorageError, OSError) as error:
                reply(None, error)
            else:
                reply(result, None)

        if server.is_dead:
            reply(None, Unavailable(f"{what}: {server.name} is down"))
        else:
            loop.call_later(wait_s, execute, context=server.context)
        self._limit(answer, what, timeout_s)
        return await answer

    def _limit(self, answer: "asyncio.Future[T]", what: str, timeout_s: float) -> None:
        """One timer for all requests of one timeout, because nearly all are answered before it."""
        waiting = self._waiting.setdefault(timeout_s, deque())
        waiting.append((self.loop.time() + timeout_s, answer, what))
        if len(waiting) == 1:
            self._wake_at_first(timeout_s)

    def _wake_at_first(self, timeout_s: float) -> None:
        until_s = self._waiting[timeout_s][0][0]
        self.loop.call_at(until_s, self._give_up, timeout_s, context=self.loop.world.context)

    def _give_up(self, timeout_s: float) -> None:
        waiting, now_s = self._waiting[timeout_s], self.loop.time()
        while waiting and (waiting[0][0] <= now_s or waiting[0][1].done()):
            _, answer, what = waiting.popleft()
            if not answer.done():
                answer.set_exception(Unavailable(f"{what}: no answer in {timeout_s} s"))
        if waiting:
            self._wake_at_first(timeout_s)
