"""Drops cached chunks of segments that the ledger does not have as finished (any more).

The caches know segments by their ids alone, and nobody reads a segment again whose deletion has
begun: its chunks would lie there until newer ones need the room. So the ids that are cached are
compared with the ledger once a minute, also after a restart, in which segments may have ended.

What is dropped by mistake is fetched again, so no barrier is needed. What a read under way brings
back is dropped a minute later. All is done in slices: neither the caches nor the ledger are small.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

import structlog

from rlm.clock import Clock
from rlm.reading.chunk_cache import ChunkKey

CHECK_EVERY_MS: Final = 60_000
_KEYS_AT_ONCE: Final = 2_000
_IDS_AT_ONCE: Final = 5_000

log = structlog.get_logger(__name__)


class CachedChunks(Protocol):
    """A cache of chunks, in memory or on disk."""

    def keys(self) -> Sequence[ChunkKey]:
        """All chunks that are kept now."""
        ...

    def drop(self, keys: Collection[ChunkKey]) -> None:
        """Keep these no longer. A chunk that is being sent may stay until it is asked again."""
        ...


class EndedSegments:
    """Drops what has ended from the caches of one process."""

    def __init__(
        self,
        caches: Sequence[CachedChunks],
        *,
        wait_ready: Callable[[], Awaitable[object]],
        finished_ids: Callable[[], Iterator[Collection[bytes]]],
        clock: Clock,
    ) -> None:
        """`wait_ready` returns once the ledger was read; `finished_ids` has the raw ids of all
        segments that can be read, in parts of a few hundred.
        """
        self._caches = caches
        self._wait_ready = wait_ready
        self._finished_ids = finished_ids
        self._clock = clock

    async def run(self) -> None:
        """Check at intervals until cancelled."""
        await self._wait_ready()
        while True:
            await self.check()
            await self._clock.sleep_ms(CHECK_EVERY_MS)

    async def check(self) -> None:
        """Drop what has ended by now."""
        ended = await self._ended(await self._cached_ids())
        dropped = 0
        for cache in self._caches if ended else ():
            for keys in _parts(cache.keys()):
                leaving = [key for key in keys if key[0].raw in ended]
                cache.drop(leaving)
                dropped += len(leaving)
                await self._clock.sleep_ms(0)
        if dropped:
            log.info("ended_chunks_dropped", segments=len(ended), chunks=dropped)

    async def _cached_ids(self) -> set[bytes]:
        found: set[bytes] = set()
        for cache in self._caches:
            for keys in _parts(cache.keys()):
                found.update(segment.raw for segment, _ in keys)
                await self._clock.sleep_ms(0)
        return found

    async def _ended(self, cached: set[bytes]) -> set[bytes]:
        """Those of the cached segments that the ledger does not have as finished."""
        seen = 0
        for ids in self._finished_ids() if cached else ():
            cached.difference_update(ids)
            if not cached:
                break
            seen += 1 + len(ids)
            if seen >= _IDS_AT_ONCE:
                seen = 0
                await self._clock.sleep_ms(0)
        return cached


def _parts(keys: Sequence[ChunkKey]) -> Iterator[Sequence[ChunkKey]]:
    for at in range(0, len(keys), _KEYS_AT_ONCE):
        yield keys[at : at + _KEYS_AT_ONCE]
