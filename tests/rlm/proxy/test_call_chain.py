"""Counts the functions of ours that a Fetch of an old offset passes from its socket to the store.

The event loop of this test remembers what each callback was scheduled by. The chain of a call thus
continues over tasks, queues and futures: a function is in it if it was on the stack when the work
was handed over, or is on the stack now.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import TypeVarTuple

import pytest

from kafka_protocol.apis import FETCH
from kip405.segments import ByteRange, SegmentLocator
from rlm.clock import SystemClock
from rlm.proxy.server import ProxyServer
from rlm.proxy.settings import ProxySettings
from tests.builders.ledger import PARTITION
from tests.builders.store import MemoryStore
from tests.builders.threads import some_threads
from tests.rlm.proxy.fake_deletions import FakeDeletions
from tests.rlm.proxy.fakes import FakeBroker, Log, asked, only
from tests.rlm.proxy.raw_client import RawClient
from tests.rlm.proxy.uncounted import NoMetrics, NoQuota
from tests.rlm.tier_site import Site

MOST_FUNCTIONS = 24
OWN_PACKAGES = frozenset({"kafka_protocol", "kip405", "rlm", "rlmm", "rsm_plugins"})
BEGINS_WORK = "rlm.proxy.begun"
"""Runs the steps of work, as asyncio's tasks do, which are not counted either."""
HAND_OVER = "-- handed over --"
Ts = TypeVarTuple("Ts")
Chain = tuple[str, ...]


class ChainLoop(asyncio.SelectorEventLoop):
    """Remembers the chain of calls by which the callback that runs now was scheduled."""

    def __init__(self) -> None:
        super().__init__()
        self._origin: Chain = ()

    def chain(self) -> Chain:
        """The functions of ours that led to this call, the first one first."""
        return self._origin + tuple(reversed(_own_functions(sys._getframe(1))))

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        origin = self.chain()

        def run(*given: *Ts) -> None:
            self._origin = (*origin, HAND_OVER) if origin else ()
            try:
                callback(*given)
            finally:
                self._origin = ()

        return super().call_soon(run, *args, context=context)


def _own_functions(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in OWN_PACKAGES and module != BEGINS_WORK:
            found.append(f"{module}: {frame.f_code.co_qualname}")
        frame = frame.f_back
    return found


class WatchedStore(MemoryStore):
    """Records the chain of each range that it is asked for."""

    def __init__(self, stored: MemoryStore, loop: ChainLoop) -> None:
        super().__init__("")
        self.objects = stored.objects
        self.chains: list[Chain] = []
        self._loop = loop

    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        self.chains.append(self._loop.chain())
        return await super().fetch_log_segment(locator, byte_range)


class Behind:
    """A proxy before a tier whose store is watched: [0, 250) is remote, [150, 300) local."""

    def __init__(self, site: Site, store: WatchedStore, client: RawClient) -> None:
        self._site = site
        self._store = store
        self._client = client

    async def fetch(self, offset: int) -> bytes:
        """The records of one Fetch."""
        request = {
            "max_wait_ms": 5_000,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "topics": [{"topic": PARTITION.topic, "partitions": [asked(offset)]}],
        }
        answer = only(await self._client.call(FETCH, 11, request))
        assert answer["error_code"] == 0
        return bytes(answer["records"])

    async def chains_of(self, offset: int) -> list[Chain]:
        """The chains of the ranges that one Fetch asked the store for."""
        self._store.chains.clear()
        assert self._site.rig.broker.log[:1_000] in await self.fetch(offset)
        return list(self._store.chains)

    async def forget_chunks(self) -> None:
        """Only the indexes stay in the caches."""
        chunks = self._site.reader.chunks
        async with asyncio.timeout(60):
            while len(chunks):  # a thread may still refer to the last one
                chunks.evict(chunks.kept_bytes, spares_ahead=False)
                await asyncio.sleep(0)


@asynccontextmanager
async def behind(path: Path, loop: ChainLoop) -> AsyncIterator[Behind]:
    broker = FakeBroker()
    broker.logs[PARTITION.topic, PARTITION.partition] = Log(
        start=150, high_watermark=300, last_stable=300
    )
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    with some_threads(2) as threads:
        async with server, asyncio.TaskGroup() as tasks:
            site = Site(path, tasks, threads)
            await site.prepare()
            store = WatchedStore(site.rig.store, loop)
            site.use_store(store)
            site.rig.broker.log_start_offset = 150
            await site.leadership.refresh()
            await site.barrier()
            settings = ProxySettings(
                listen_host="127.0.0.1",
                listen_port=0,
                upstream_host="127.0.0.1",
                upstream_port=server.sockets[0].getsockname()[1],
            )
            proxy = ProxyServer(
                settings, site.tier, FakeDeletions(), SystemClock(), NoMetrics(), NoQuota()
            )
            await proxy.start()
            client = RawClient(*await asyncio.open_connection("127.0.0.1", proxy.port))
            try:
                yield Behind(site, store, client)
            finally:
                client.writer.close()
                await proxy.close()


def _check(chain: Chain) -> None:
    print("\n".join(chain))
    functions = [one for one in chain if one != HAND_OVER]
    assert "client_data" in "".join(functions[:3]), "the chain does not begin at the socket"
    assert len(functions) <= MOST_FUNCTIONS, f"{len(functions)} functions:\n" + "\n".join(chain)


@pytest.mark.parametrize("knows_indexes", [False, True])
def test_an_old_offset_is_few_functions_away(tmp_path: Path, *, knows_indexes: bool) -> None:
    async def fetch(loop: ChainLoop) -> list[Chain]:
        async with behind(tmp_path, loop) as proxy:
            await proxy.fetch(120)  # of another segment: the first waits for the broker (G8)
            chains = await proxy.chains_of(0)
            if knows_indexes:
                await proxy.forget_chunks()
                chains = await proxy.chains_of(0)
            return chains

    loop = ChainLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        chains = runner.run(fetch(loop))
    assert chains
    _check(chains[0])
