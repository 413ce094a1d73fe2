"""A RemoteStorageManager in memory, with the guarantees of the Protocol and faults on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from kip405.contracts import (
    ExpectedSegment,
    Presence,
    RemoteStorageManager,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.crc import crc32c
from kip405.errors import Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.ids import TopicIdPartition, Uuid
from kip405.segments import ByteRange, Layout, LogSegmentData, SegmentLocator
from rlm.stores.stores import CopyTarget
from rsm_plugins.layout.keys import (
    ObjectKind,
    data_objects_of,
    layout_of,
    object_name,
    object_names,
)
from rsm_plugins.layout.stored import ObjectContent, encode_contents, expected_sizes
from rsm_plugins.segment_deletes import delete_each

STORE_ID = Uuid(b"\x51" * 16)
_HEADS = {
    Layout.KAFKA: b"",
    Layout.BLOCKS: b"\xfb\xdb\xab\xcb" * 32,
    Layout.PINTEREST: b"",
}
"""What precedes log and indexes object in the stored ones, so that each layout has other sizes."""


class Shelf:
    """The Stores and Targets of tasks/ports: plugins by store id, and where the next copy goes."""

    def __init__(self, stores: Mapping[Uuid, RemoteStorageManager], to: Uuid = STORE_ID) -> None:
        self.stores = dict(stores)
        self.to = CopyTarget(store_id=to)

    def manager(self, store_id: Uuid) -> RemoteStorageManager:
        if store_id not in self.stores:
            raise Unavailable(f"store {store_id} is not configured")
        return self.stores[store_id]

    def target(self, partition: TopicIdPartition) -> CopyTarget:
        return self.to


class MemoryStore:
    """`objects` by name. `before(operation)` is called first thing in every changing call.

    `errors`: what reading an object of that name raises. With `delays_manifests` a manifest is not
    there, and its writer gets an error, until `land` puts it there.
    """

    def __init__(self, cluster_id: str, store_id: Uuid = STORE_ID) -> None:
        self.identity: StoreIdentity | None = StoreIdentity(
            store_id=store_id, cluster_id=cluster_id, created_ms=0
        )
        self.findings: tuple[StoreFinding, ...] = ()
        self.objects: dict[str, bytes] = {}
        self.deleted: list[SegmentLocator] = []
        self.before: Callable[[str], None] = lambda _: None
        self.errors: dict[str, RemoteStorageError] = {}
        self.delays_manifests = False
        self.in_flight: dict[str, bytes] = {}

    async def read_identity(self) -> StoreIdentity | None:
        return self.identity

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        self.identity = self.identity or identity
        return self.identity

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        self.before("copy")
        source = data.log
        data_file = await asyncio.to_thread(Path(source.path).read_bytes)
        log = data_file[source.position :][: source.size_bytes]
        if crc32c(log) != data.log_crc32c or crc32c(data.indexes) != data.indexes_crc32c:
            raise Corrupt(f"{locator.segment_id}: wrong checksum")
        layout = layout_of(locator)
        stored = [_HEADS[layout] + part for part in (log, data.indexes)]
        for kind, part in zip(data_objects_of(locator), stored, strict=True):
            self.objects[object_name(locator, kind)] = part
        self.before("copied")
        if layout is Layout.KAFKA:
            return b"plugin"
        contents = [ObjectContent(size_bytes=len(one), crc32c=crc32c(one)) for one in stored]
        return encode_contents(contents, b"plugin")

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        self.before("manifest")
        name = object_name(locator, ObjectKind.MANIFEST)
        if self.delays_manifests:
            self.in_flight[name] = manifest
            raise Unavailable(f"{name}: no answer")
        self.objects[name] = manifest

    def land(self) -> None:
        """What was in flight arrives after all."""
        self.objects |= self.in_flight
        self.in_flight.clear()

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        return self._get(locator, ObjectKind.MANIFEST)

    async def fetch_log_segment(self, locator: SegmentLocator, byte_range: ByteRange) -> bytes:
        head = len(_HEADS[layout_of(locator)])
        data = self._get(locator, data_objects_of(locator)[0])[head:]
        return data[byte_range.start : byte_range.end]

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        return self._get(locator, data_objects_of(locator)[1])[len(_HEADS[layout_of(locator)]) :]

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        return tuple(self._presence(one) for one in segments)

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        for name in sorted(self.objects):
            yield StoredObject(name=name, size_bytes=len(self.objects[name]), modified_ms=0)

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        self.before("delete")
        for name in object_names(locator).values():
            self.objects.pop(name, None)
        self.deleted.append(locator)

    async def delete_log_segments(
        self, locators: Sequence[SegmentLocator]
    ) -> tuple[RemoteStorageError | None, ...]:
        return await delete_each(self.delete_log_segment_data, locators)

    async def inspect(self) -> tuple[StoreFinding, ...]:
        return self.findings

    async def close(self) -> None:
        return None

    def _get(self, locator: SegmentLocator, kind: ObjectKind) -> bytes:
        name = object_name(locator, kind)
        if name in self.errors:
            raise self.errors[name]
        if name not in self.objects:
            raise NotFound(name)
        return self.objects[name]

    def _presence(self, expected: ExpectedSegment) -> SegmentPresence:
        wanted = expected_sizes(expected)
        names = object_names(expected.locator)
        presence, detail = Presence.COMPLETE, ""
        for kind, size in wanted.items():
            found = self.objects.get(names[kind])
            if found is None:
                presence, detail = Presence.MISSING, names[kind]
                break
            if len(found) != size:
                presence, detail = Presence.DIFFERENT, names[kind]
        manifest_present = names[ObjectKind.MANIFEST] in self.objects
        if not manifest_present:  # as every real store (rsm_plugins/conformance/objects.py)
            presence, detail = Presence.MISSING, detail or names[ObjectKind.MANIFEST]
        return SegmentPresence(presence=presence, manifest_present=manifest_present, detail=detail)
