"""Imports and readers in random order: a reader that is refused nothing lacks nothing (H4).

Their bucket grows, with logs that overlap, some above the watermark, some damaged for a while.
Imports run beside each other and are killed anywhere. Readers list our store piece by piece, in the
order of names or in any other one, so that each object is seen as it is when its turn comes. The
same seed makes the same history.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from kip405.contracts import RemoteStorageManager, StoredObject
from kip405.errors import Invalid, NotFound, Unavailable
from kip405.ids import PartitionKey
from rlm.download.sources import StoreSource
from rlm.imports.partition import Imported
from rlm.imports.run import BucketImport
from rlm.plans.pinterest_import import derived_topic_id
from rlm.remote_log.attached import AttachedLog
from rsm_plugins.local.manager import LocalRemoteStorageManager
from rsm_plugins.pinterest.local_objects import LocalUploadedObjects
from rsm_plugins.pinterest.manager import ImportingRemoteStorageManager
from rsm_plugins.threads import FileThreads, StopFlag
from tests.builders.pinterest import CLUSTER, LAYOUT, PREFIX, TOPIC, ImportSite
from tests.builders.store import STORE_ID
from tests.builders.threads import THREADS
from tests.kip405.batch_builder import log_of
from tests.rlm.api.attached_site import RECORD
from tests.rlm.imports.test_stops import attachment_of
from tests.rlm.imports.test_stops import growing as growing_import

KEY = PartitionKey(derived_topic_id(CLUSTER, TOPIC), 0)
BATCH = 10
"""Offsets of each batch; logs begin and end between two of them."""
SHOWN = (3, 13, 25)
"""Seeds in which a reader that lists our store once lacks something."""


class Inline(FileThreads):
    """Works at once, so that the seed alone decides about the order."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)

    async def run_stoppable(self, work: Callable[[StopFlag], Any]) -> Any:
        return work(StopFlag())


class Paused:
    """Lets others have their turn before each call."""

    def __init__(self, inner: Any, turn: Callable[[], Any]) -> None:
        self._inner = inner
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(called):
            return called

        async def paused(*args: Any) -> Any:
            await self._turn()
            return await called(*args)

        return paused


class Pieces(Paused):
    """Also between the pieces of a listing."""

    def __init__(
        self, inner: Any, turn: Callable[[], Any], order: Callable[[str], str], size: int
    ) -> None:
        super().__init__(inner, turn)
        self._order = order
        self._size = size

    async def list_objects(self, *given: Any) -> AsyncIterator[StoredObject]:
        last = ""
        while True:
            await self._turn()
            there = {self._order(one.name): one async for one in self._inner.list_objects(*given)}
            piece = sorted(one for one in there if one > last)[: self._size]
            for one in piece:
                yield there[one]
            if len(piece) < self._size:
                return
            last = piece[-1]


class History:
    """One seed. `logs`: where each log of theirs ends, by its base offset. `end`: that of the
    imports that are whole, which no reader that begins later may miss.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.site = ImportSite(folder)
        self.is_growing = self.rng.random() < 0.3
        self.logs: dict[int, int] = {}
        self.damaged: set[int] = set()
        self.next = 0
        self.end = 0

    async def turn(self) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 5, 20))):
            await asyncio.sleep(0)

    async def turns(self) -> None:
        """A reader is slow now and then, and an import may run from beginning to end meanwhile."""
        for _ in range(self.rng.choice((1, 1, 5, 40))):
            await self.turn()

    def log(self, base: int) -> bytes:
        return log_of(base, [BATCH] * ((self.logs[base] - base) // BATCH))

    def upload(self) -> None:
        """Some logs at once, each perhaps with the end of the one before."""
        for _ in range(self.rng.randrange(1, 5)):
            base = self.next
            if base and self.rng.random() < 0.4:
                base = max(0, base - BATCH * self.rng.randrange(1, 7))
            if base in self.logs:
                continue
            self.next = max(self.next, base) + BATCH * self.rng.randrange(1, 5)
            self.logs[base] = self.next
            self.site.bucket.put(base, self.log(base))
            if self.rng.random() < 0.1:
                self.damaged.add(base)
                self.site.bucket.file(base).write_bytes(self.log(base)[:-3])
        if self.rng.random() < 0.9:
            self.site.bucket.watermark(max(self.logs))

    def mend(self) -> None:
        for base in self.damaged:
            self.site.bucket.put(base, self.log(base))
        self.damaged.clear()
        self.site.bucket.watermark(max(self.logs))

    def work(self) -> BucketImport:
        threads = Inline()
        own = LocalRemoteStorageManager(self.site.root, shared=False, threads=threads)
        objects = Paused(LocalUploadedObjects(self.site.bucket.root, PREFIX, threads), self.turn)
        store = ImportingRemoteStorageManager(
            cast("RemoteStorageManager", Paused(own, self.turn)), LAYOUT, cast("Any", objects)
        )
        work = self.site.work(store)
        if self.is_growing:
            work._choices = growing_import(self.site)._choices
        return work

    async def imported(self) -> None:
        with suppress(NotFound, Unavailable):
            for one in await self.site.run(self.work()):
                self._note(one)

    def _note(self, one: Imported) -> None:
        if one.why_not_whole(is_growing=self.is_growing) is None:
            self.end = max(self.end, self._end_of(one))

    def _end_of(self, one: Imported) -> int:
        return max((self.logs[log.base_offset] for log in one.plan.logs), default=0)

    def reader(self) -> Any:
        def names(name: str) -> str:
            return name

        def hashes(name: str) -> str:
            return sha256(name.encode()).hexdigest()

        own = LocalRemoteStorageManager(self.site.root, shared=False, threads=Inline())
        order = self.rng.choice((names, hashes))
        return Pieces(own, self.turns, order, self.rng.choice((2, 3, 5, 10)))

    async def attached(self) -> None:
        log = AttachedLog()
        attachment = attachment_of(log)
        for _ in range(self.rng.randrange(1, 5)):
            least = self.end
            try:
                await attachment.read({STORE_ID: self.reader()}, [RECORD])
            except (Invalid, Unavailable):
                continue  # there is no store yet
            ledger = log.state.ledgers.get(KEY)
            found = [] if ledger is None else [one.metadata for one in ledger.entries.values()]
            doubt = min((one.start for one in log.doubts(KEY)), default=None)
            self.check([(one.start_offset, one.next_offset) for one in found], doubt, least)

    async def downloaded(self) -> None:
        least = self.end
        source = StoreSource(self.reader(), threads=THREADS)
        with suppress(Invalid, NotFound, Unavailable):
            (plan,) = await source.plans(TOPIC, 0)
            self.check([(one.start_offset, one.next_offset) for one in plan.pieces], None, least)

    def check(self, ranges: list[tuple[int, int]], doubt: int | None, least: int) -> None:
        """Nothing is missing below the end, or below the first doubt; the end is one."""
        end = 0
        for start, next_offset in sorted(ranges):
            if start > end:
                break
            end = max(end, next_offset)
        last = max((one[1] for one in ranges), default=0)
        if doubt is None:
            assert end == last, f"a gap at {end} of {ranges}"
            assert end >= least, f"{end} is below {least}"
            planned = {self._end_of(Imported(plan=one)) for one in self.site.planned}
            assert self.is_growing or end in planned | {0}, f"{end} is none of {planned}"
        else:
            assert end >= min(doubt, last), f"a gap at {end} below {doubt} of {ranges}"

    async def run(self) -> None:
        self.upload()
        running: list[asyncio.Task[None]] = []
        for _ in range(self.rng.randrange(5, 25)):
            step = self.rng.choice(
                (self.imported, self.imported, self.attached, self.attached, self.downloaded)
            )
            running.append(asyncio.create_task(step()))
            await self.turn()
            if self.rng.random() < 0.3:
                self.upload()
            if self.rng.random() < 0.1:
                self.mend()
            if self.rng.random() < 0.3:
                self.rng.choice(running).cancel()
            if self.rng.random() < 0.4:
                await asyncio.wait(running)
        for one in running:
            with suppress(asyncio.CancelledError):
                await one
        self.mend()
        await self.imported()
        least = self.end
        assert least == max(self.logs.values())
        await self.attached()


@pytest.mark.parametrize("seed", SHOWN)
async def test_h04_readers_beside_imports(tmp_path: Path, seed: int) -> None:
    await History(tmp_path, seed).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300))
async def test_h04_readers_beside_imports_in_many_histories(tmp_path: Path, seed: int) -> None:
    await History(tmp_path, seed).run()
