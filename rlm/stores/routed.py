"""All stores as one RemoteStorageManager, routed by the store that each segment records.

What the rules of the configuration say today does not matter here. A store that nobody serves is
Unavailable, never NotFound: its objects may well be there (H11).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

from kip405.contracts import (
    ExpectedSegment,
    IndexType,
    RemoteStorageManager,
    SegmentPresence,
    StoredObject,
    StoreFinding,
    StoreIdentity,
)
from kip405.errors import Invalid, RemoteStorageError
from kip405.ids import TopicIdPartition, Uuid
from kip405.segments import ByteRange, CustomMetadata, FileSlice, LogSegmentData, SegmentLocator
from rlm.stores.stores import Stores


class RoutedStores:
    """Implements RemoteStorageManager; what has one answer per store is refused or joined."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def read_identity(self) -> StoreIdentity | None:
        """Invalid: each store has its own; ask that one."""
        _one_each()

    async def create_identity(self, identity: StoreIdentity) -> StoreIdentity:
        """Invalid: each store has its own; ask that one."""
        _one_each()

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        """See RemoteStorageManager."""
        return await self._of(locator).copy_log_segment_data(locator, data)

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        """See RemoteStorageManager."""
        await self._of(locator).write_manifest(locator, manifest)

    async def read_manifest(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        return await self._of(locator).read_manifest(locator)

    async def fetch_log_segment(
        self, locator: SegmentLocator, byte_range: ByteRange
    ) -> bytes | FileSlice:
        """See RemoteStorageManager."""
        return await self._of(locator).fetch_log_segment(locator, byte_range)

    async def fetch_indexes(self, locator: SegmentLocator) -> bytes:
        """See RemoteStorageManager."""
        return await self._of(locator).fetch_indexes(locator)

    async def fetch_index(self, locator: SegmentLocator, index_type: IndexType) -> bytes:
        """See RemoteStorageManager."""
        return await self._of(locator).fetch_index(locator, index_type)

    async def stat(self, segments: Sequence[ExpectedSegment]) -> tuple[SegmentPresence, ...]:
        """See RemoteStorageManager; all stores side by side, the first failure counts."""
        numbers: dict[Uuid, list[int]] = {}
        for number, expected in enumerate(segments):
            numbers.setdefault(store_id_of(expected.locator), []).append(number)
        answers = await asyncio.gather(
            *(
                self._stores.trusted(store_id).stat([segments[one] for one in own])
                for store_id, own in numbers.items()
            )
        )
        found = {
            number: seen
            for own, answer in zip(numbers.values(), answers, strict=True)
            for number, seen in zip(own, answer, strict=True)
        }
        return tuple(found[number] for number in range(len(segments)))

    async def list_objects(
        self, cluster_id: str, partition: TopicIdPartition | None = None
    ) -> AsyncIterator[StoredObject]:
        """See RemoteStorageManager; store by store, so names are in order within each only."""
        for link in self._stores.links:
            async for found in link.store.list_objects(cluster_id, partition):
                yield found

    async def delete_log_segment_data(self, locator: SegmentLocator) -> None:
        """See RemoteStorageManager."""
        await self._of(locator).delete_log_segment_data(locator)

    async def delete_log_segments(self, locators: Sequence[SegmentLocator]) -> None:
        """See RemoteStorageManager."""
        by_store: dict[Uuid, list[SegmentLocator]] = {}
        for locator in locators:
            by_store.setdefault(store_id_of(locator), []).append(locator)
        failures: list[RemoteStorageError] = []
        for store_id, own in by_store.items():
            try:
                await self._stores.trusted(store_id).delete_log_segments(own)
            except RemoteStorageError as error:
                failures.append(error)
        for first in failures:
            raise first

    async def inspect(self) -> tuple[StoreFinding, ...]:
        """See RemoteStorageManager; of all stores together."""
        answers = await asyncio.gather(*(link.store.inspect() for link in self._stores.links))
        return tuple(finding for answer in answers for finding in answer)

    async def close(self) -> None:
        """Nothing: the stores are closed by who made them."""

    def _of(self, locator: SegmentLocator) -> RemoteStorageManager:
        return self._stores.trusted(store_id_of(locator))


def store_id_of(locator: SegmentLocator) -> Uuid:
    """The store a locator leads to; Invalid where it does not say."""
    if locator.custom_metadata is None:
        raise Invalid(f"segment {locator.segment_id} does not say in which store it lies")
    try:
        return CustomMetadata.decode(locator.custom_metadata).store_id
    except ValueError as error:
        raise Invalid(f"segment {locator.segment_id}: {error}") from error


def _one_each() -> NoReturn:
    raise Invalid("every store has an identity of its own: ask the store")
