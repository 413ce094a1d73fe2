"""A store behind the model's network: away, slow, crashing between objects, losing objects.

Each object is one request, so that a process that dies in a copy or a deletion leaves some of them.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from kip405.contracts import (
    ExpectedSegment,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.crc import crc32c
from kip405.errors import Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition
from kip405.segments import ByteRange, LogSegmentData, SegmentLocator
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.store import MemoryStore
from tests.simulation.loop import Process
from tests.simulation.network import Network

T = TypeVar("T")


class ModelStore(MemoryStore):
    """What the store has; `is_away`, `is_full` and `errors_share` are faults for all who
    ask."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        super().__init__(CLUSTER_ID)
        self.network = network
        self.chance = chance
        self.process = Process("store")
        network.loop.add(self.process)
        self.is_away = False
        self.is_full = False
        self.errors_share = 0.0
        self.late_writes_share = 0.0
        self.hidden: dict[str, bytes] = {}
        self.late_manifests: set[str] = set()
        self.put_s: dict[str, float] = {}
        """When each object was stored."""
        self.after_put: Callable[[str], None] = lambda _name: None
        self.before_delete: Callable[[str], None] = lambda _name: None

    def hide(self, names: Sequence[str]) -> None:
        """The objects are not there for a while (404)."""
        for name in names:
            if name in self.objects:
                self.hidden[name] = self.objects.pop(name)

    def show(self) -> None:
        """What was hidden is there again, unless somebody deleted it meanwhile."""
        for name, data in self.hidden.items():
            self.objects.setdefault(name, data)
        self.hidden.clear()

    def put(self, name: str, content: bytes) -> None:
        """What an upload does when it arrives."""
        if self.is_full:
            raise Unavailable(f"{name}: the store is full")
        self.objects[name] = content
        self.put_s[name] = self.network.loop.time()
        self.after_put(name)

    def delete_object(self, name: str) -> None:
        """What a deletion by a service does; `before_delete` sees it first."""
        self.before_delete(name)
        self.objects.pop(name, None)
        self.hidden.pop(name, None)


class StoreClient:
    """kip405.contracts.RemoteStorageManager for one process."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    async def _ask(self, work: Callable[[], T], what: str, delay_s: float | None = None) -> T:
        store = self._store

        def execute() -> T:
            if store.is_away or store.chance.random() < store.errors_share:
                raise Unavailable(f"{what}: 503")
            return work()

        return await store.network.request(store.process, execute, what, delay_s=delay_s)

    async def read_identity(self) -> StoreIdentity | None:
        return await self._ask(lambda: self._store.identity, "identity")

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        raise NotImplementedError

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        try:
            log = _bytes_of(data)
        except FileNotFoundError as error:
            raise NotFound(f"{locator.segment_id}: the file is gone") from error
        if crc32c(log) != data.log_crc32c:
            raise Corrupt(f"{locator.segment_id}: the file changed meanwhile")
        for kind, content in ((ObjectKind.LOG, log), (ObjectKind.INDEXES, data.indexes)):
            await self._put(object_name(locator, kind), content)
        return b"model"

    async def _put(self, name: str, content: bytes, delay_s: float | None = None) -> None:
        await self._ask(lambda: self._store.put(name, content), "put", delay_s)

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        store, name = self._store, object_name(locator, ObjectKind.MANIFEST)
        delay_s = None
        if store.chance.random() < store.late_writes_share:
            store.late_manifests.add(name)
            delay_s = store.chance.uniform(2.0, 4.0)
        await self._put(name, manifest, delay_s)

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        return await self._ask(lambda: self._store._get(locator, ObjectKind.MANIFEST), "manifest")

    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        data = await self._ask(lambda: self._store._get(locator, ObjectKind.LOG), "fetch")
        return data[byte_range.start : byte_range.end]

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        return await self._ask(lambda: self._store._get(locator, ObjectKind.INDEXES), "indexes")

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        return await self._ask(lambda: tuple(map(self._store._presence, segments)), "stat")

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        names = await self._ask(lambda: sorted(self._store.objects.items()), "list")
        for name, data in names:
            yield StoredObject(name=name, size_bytes=len(data), modified_ms=0)

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        for kind in (ObjectKind.MANIFEST, ObjectKind.LOG, ObjectKind.INDEXES):
            name = object_name(locator, kind)
            await self._ask(partial(self._store.delete_object, name), "delete")

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        """As S3 does: all manifests first; whatever fails keeps the rest of its segment."""
        kept: dict[SegmentLocator, RemoteStorageError] = {}
        for kinds in ((ObjectKind.MANIFEST,), (ObjectKind.LOG, ObjectKind.INDEXES)):
            for locator in locators:
                try:
                    for kind in kinds if locator not in kept else ():
                        name = object_name(locator, kind)
                        await self._ask(partial(self._store.delete_object, name), "delete")
                except RemoteStorageError as error:
                    kept[locator] = error
        return tuple(kept.get(locator) for locator in locators)

    async def inspect(self) -> tuple[StoreFinding, ...]:
        return ()

    async def close(self) -> None:
        return None


def _bytes_of(data: LogSegmentData) -> bytes:
    source = data.log
    return Path(source.path).read_bytes()[source.position :][: source.size_bytes]
