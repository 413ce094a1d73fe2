"""What is asked of the S3 server of a sandbox, counted by a proxy before it in a thread."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from tests.builders.cutting_proxy import CuttingProxy


class CountedStore:
    """The proxy, from another thread; without faults."""

    def __init__(self, proxy: CuttingProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy, self._loop = proxy, loop
        self.endpoint = proxy.endpoint

    def forget(self) -> None:
        """Count from now on."""
        asyncio.run_coroutine_threadsafe(self._forget(), self._loop).result(60)

    def gets(self, topic: str) -> Counter[str]:
        """GetObject since then, by the suffix of the object of the topic."""
        return asyncio.run_coroutine_threadsafe(self._gets(topic), self._loop).result(60)

    async def _forget(self) -> None:
        self._proxy.forget()

    async def _gets(self, topic: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for one, count in self._proxy.asked.items():
            if one.operation == "GetObject" and f"/{topic}-" in f"/{one.key}":
                found[one.key.rpartition(".")[2]] += count
        return found


@contextlib.contextmanager
def counted_store(port: int) -> Iterator[CountedStore]:
    """Before the server at this port, as long as the block runs."""
    started: list[CountedStore] = []
    is_up, end = threading.Event(), threading.Event()

    async def serve() -> None:
        async with CuttingProxy(port) as proxy:
            started.append(CountedStore(proxy, asyncio.get_running_loop()))
            is_up.set()
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="counted-store")
    thread.start()
    try:
        assert is_up.wait(60)
        yield started[0]
    finally:
        end.set()
        thread.join(60)
