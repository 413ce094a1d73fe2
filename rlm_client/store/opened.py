"""The stores of a consumer while they are open, on an event loop in a thread of their own.

So neither a program that blocks its event loop nor one without any holds up the reads. The plugin's
own code reads the objects, whatever their layout. Of the stores given, the endpoint provider says
which one is meant for a topic; a segment is read from a store only whose identity object says that
it is the one that the segment was copied to, or a replica of it.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from kip405.contracts import SegmentReader, StoreIdentity
from kip405.crc import ByteBuffer
from kip405.errors import Corrupt, Invalid, RemoteStorageError, Unavailable
from kip405.segments import ByteRange, FileSlice
from rlm_client.store.options import StoreOptions
from rlm_client.store.windows import ListedSegment, StoredIndexes, stored_indexes
from rsm_plugins.files.segment_files import read_slice
from rsm_plugins.store_kinds import OpenStore
from rsm_plugins.threads import FileThreads
from tiered_reads.values import TopicPartition

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)
_LAST_S: Final = 5.0
"""How long the end waits for calls under way."""


class MissingStore(Exception):
    """None of the consumer's stores is the one that has the segment, or its settings lack what it
    takes to read it, as those of an imported one may.
    """


class AheadMemory:
    """What is read ahead for all partitions; thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        return self._bytes

    def take(self, size_bytes: int) -> bool:
        """Whether there is room."""
        with self._lock:
            if self._bytes + size_bytes > self._most_bytes:
                return False
            self._bytes += size_bytes
            return True

    def exceed(self, size_bytes: int) -> None:
        """For what a reader waits for now, whatever is taken, so that no partition waits for
        another one.
        """
        with self._lock:
            self._bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes -= size_bytes


class OpenStores:
    """Opens the stores when they are first read; `close` ends every call. Thread-safe."""

    def __init__(self, options: StoreOptions) -> None:
        self.ahead_bytes = options.ahead_bytes
        self.call_timeout_ms = options.call_timeout_ms
        self.memory = AheadMemory(options.memory_bytes)
        self._options = options
        self._threads = FileThreads()
        self._open: dict[str, OpenStore] = {}
        self._identities: dict[str, StoreIdentity] = {}
        self._loop = asyncio.new_event_loop()
        self._opening = {name: asyncio.Lock() for name in self._names}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def close(self) -> None:
        """End calls and connections."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        if self._thread is not None:
            closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
            with contextlib.suppress(TimeoutError, RemoteStorageError):
                closing.result(2 * _LAST_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LAST_S)
        self._threads.close()
        if self._thread is None or not self._thread.is_alive():
            self._loop.close()

    def begin(self) -> "Future[None]":
        """Connect to all stores now, at the same time; those that cannot be reached are only
        logged, in one line, and tried again when they are read.
        """
        return self._submit(self._begin())

    def indexes(
        self, topic_partition: TopicPartition, cluster_id: str, segment: ListedSegment
    ) -> "Future[StoredIndexes]":
        """The checked indexes of a segment. MissingStore, RemoteStorageError."""
        return self._submit(self._indexes(topic_partition, cluster_id, segment))

    def log(
        self,
        topic_partition: TopicPartition,
        cluster_id: str,
        segment: ListedSegment,
        wanted: ByteRange,
        indexes: StoredIndexes,
    ) -> "Future[ByteBuffer]":
        """A range of whole chunks of the log, which have their checksums. As `indexes`."""
        return self._submit(self._log(topic_partition, cluster_id, segment, wanted, indexes))

    def _submit(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._lock:
            if self._is_closed:
                call.close()
                raise Unavailable("the consumer is closed")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="rlm-client-stores", daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(call, self._loop)

    async def _begin(self) -> None:
        names = self._names
        reasons = await asyncio.gather(*(self._reached(name) for name in names))
        failed = {name: reason for name, reason in zip(names, reasons, strict=True) if reason}
        if failed:
            what = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            _log.warning("event=stores_not_reached stores=%s errors=%s", ",".join(failed), what)

    async def _reached(self, name: str) -> str | None:
        """Why the store cannot be reached; None: it can."""
        try:
            async with asyncio.timeout(self.call_timeout_ms / 1000):
                await self._identity(name)
        except RemoteStorageError as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {self.call_timeout_ms} ms"
        return None

    async def _indexes(
        self, topic_partition: TopicPartition, cluster_id: str, segment: ListedSegment
    ) -> StoredIndexes:
        store = await self._store_of(topic_partition, cluster_id, segment)
        locator = segment.metadata.locator(cluster_id)
        with _refused():
            data = await store.fetch_indexes(locator)
        return await self._threads.run(stored_indexes, data, segment)

    async def _log(
        self,
        topic_partition: TopicPartition,
        cluster_id: str,
        segment: ListedSegment,
        wanted: ByteRange,
        indexes: StoredIndexes,
    ) -> ByteBuffer:
        store = await self._store_of(topic_partition, cluster_id, segment)
        locator = segment.metadata.locator(cluster_id)
        with _refused():
            found = await store.fetch_log_segment(locator, wanted)
        return await self._threads.run(_checked, found, wanted, segment, indexes)

    async def _store_of(
        self, topic_partition: TopicPartition, cluster_id: str, segment: ListedSegment
    ) -> SegmentReader:
        store_id = segment.custom.store_id
        topic, partition = topic_partition
        meant = self._options.provider.endpoint(cluster_id, topic, partition).store
        failed: RemoteStorageError | None = None
        for name in sorted(self._names, key=lambda one: one != meant):
            try:
                identity = await self._identity(name)
            except RemoteStorageError as error:
                failed = failed or error
                continue
            if identity is None:
                continue
            if (identity.store_id, identity.cluster_id) == (store_id, cluster_id):
                return self._open[name].manager
        if failed is not None:
            raise failed
        raise MissingStore(
            f"segment {segment.id} is in store {store_id} of cluster {cluster_id}, and none of "
            f"{', '.join(self._names)} is that"
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._options.stores)

    async def _identity(self, name: str) -> StoreIdentity | None:
        if name in self._identities:
            return self._identities[name]
        async with self._opening[name]:
            if name not in self._open:
                settings = next(one for one in self._options.stores if one.name == name)
                self._open[name] = await settings.kind.open(settings.values, self._threads)
            identity = await self._open[name].manager.read_identity()
        if identity is not None:
            self._identities[name] = identity
        return identity

    async def _close(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_LAST_S)
        for opened in self._open.values():
            await opened.manager.close()


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise MissingStore(str(error)) from error


def _checked(
    found: ByteBuffer | FileSlice, wanted: ByteRange, segment: ListedSegment, indexes: StoredIndexes
) -> ByteBuffer:
    """Corrupt unless each chunk has its checksum (G9)."""
    data = read_slice(found) if isinstance(found, FileSlice) else found
    try:
        indexes.checksums.check_range(wanted, data)
    except Corrupt as error:
        raise Corrupt(f"log object of segment {segment.id}: {error}") from error
    return memoryview(data)
