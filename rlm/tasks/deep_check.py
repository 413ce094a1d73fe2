"""Reads every byte of a segment's objects and checks it against the ledger, within a rate.

The checks themselves are in `kip405/segment_check.py`. Ranges come directly from the store, past
all caches. This module must not know what follows from a flaw.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace

from kip405.contracts import SegmentReader
from kip405.errors import Corrupt, NotFound
from kip405.segment_check import INDEXES, LOG, FlawKind, SegmentCheck
from kip405.segments import ByteRange, RemoteLogSegmentMetadata
from rlm.clock import Clock
from rlm.reading.throttle import Bucket
from rlm.remote_log.objects import slice_bytes
from rlm.remote_log.ports import Stores
from rlm.tasks.evidence import StoreEvidence, store_of
from rsm_plugins.layout.keys import ObjectKind
from rsm_plugins.threads import Threads

_RANGE_BYTES = 4 << 20
MANIFEST = ObjectKind.MANIFEST.value


class DeepCheck:
    """`bytes_per_second` bounds what all checks of this service read together."""

    def __init__(
        self,
        *,
        stores: Stores,
        evidence: StoreEvidence,
        threads: Threads,
        clock: Clock,
        bytes_per_second: int,
    ) -> None:
        self._stores = stores
        self._evidence = evidence
        self._threads = threads
        self._clock = clock
        self._bucket = Bucket(bytes_per_second, clock.monotonic_ms())

    def change_rate(self, bytes_per_second: int) -> None:
        """Another bound from now on."""
        self._bucket.change_rate(bytes_per_second, self._clock.monotonic_ms())

    async def feed(
        self, check: SegmentCheck, metadata: RemoteLogSegmentMetadata
    ) -> AsyncGenerator[int, None]:
        """Feeds all objects of the segment to its check; yields the sizes of what was read.

        Errors that are not about the data pass. Flaws count only while the store has the right
        identity, which the caller must have checked; it is checked again here.
        """
        store: SegmentReader = self._stores.manager(store_of(metadata))
        locator = self._evidence.locator(metadata)
        try:
            indexes = await store.fetch_indexes(locator)
        except (NotFound, Corrupt) as error:
            check.found(_kind_of(error), INDEXES, str(error))
        else:
            await self._threads.run(check.indexes, indexes)
            yield await self._counted(len(indexes))
        position = 0
        try:
            while position < metadata.segment_size_bytes:
                end = min(position + _RANGE_BYTES, metadata.segment_size_bytes)
                found = await store.fetch_log_segment(locator, ByteRange(start=position, end=end))
                data = await slice_bytes(found, self._threads)
                if not data:
                    break
                await self._threads.run(check.feed, data)
                position += len(data)
                yield await self._counted(len(data))
        except (NotFound, Corrupt) as error:
            check.found(_kind_of(error), LOG, str(error))
        else:
            await self._threads.run(check.finish)
        await self._manifest(check, metadata)
        if check.flaws:
            await self._evidence.check_identity([metadata])

    async def _manifest(self, check: SegmentCheck, metadata: RemoteLogSegmentMetadata) -> None:
        """What an adoption or a rebuild would publish is what the ledger has (H6)."""
        found = await self._evidence.manifest(metadata)
        if found.unreadable:
            check.found(FlawKind.METADATA, MANIFEST, found.unreadable)
        elif found.metadata is None:
            check.found(FlawKind.MISSING, MANIFEST, "the manifest is not there")
        elif _content(found.metadata) != _content(metadata):
            check.found(FlawKind.METADATA, MANIFEST, "it describes the segment otherwise")

    async def _counted(self, size_bytes: int) -> int:
        """Waits until the rate allows the next read."""
        self._bucket.take(size_bytes, self._clock.monotonic_ms())
        wait_ms = self._bucket.wait_ms(self._clock.monotonic_ms())
        if wait_ms:
            await self._clock.sleep_ms(wait_ms)
        return size_bytes


def _kind_of(error: NotFound | Corrupt) -> FlawKind:
    return FlawKind.MISSING if isinstance(error, NotFound) else FlawKind.CHECKSUM


def _content(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Without what a repair by another broker changes."""
    return replace(metadata, broker_id=0, event_timestamp_ms=0)
