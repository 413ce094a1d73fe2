"""`BlockingTieredStorageConsumer`: the same consumer for threads, on an event loop of its own.

Every call runs on that loop and blocks its caller. Rebalance listeners and deserializers run on the
loop's thread: they must not call the blocking consumer, which would wait for itself.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from itertools import chain
from typing import Any, Final, Self, TypeVar

from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition

from rlm_client.consumer import TieredStorageConsumer
from rlm_client.counters import ConsumerCounters

T = TypeVar("T")
_LAST_S: Final = 5
"""How long calls under way may take to end when they are cancelled."""


class BlockingTieredStorageConsumer:
    """Arguments and methods are those of TieredStorageConsumer. A context manager, and an iterator
    of records. One thread may wait for records while others commit or stop.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rlm-client-loop", daemon=True
        )
        self._thread.start()
        self._lock = threading.Lock()
        self._is_stopped = False
        try:
            self._consumer = self._run(_made(topics, options))
        except BaseException:
            self._end_loop()
            raise

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while True:
            try:
                record = self.getone()
            except ConsumerStoppedError:
                return
            yield record

    def start(self) -> None:
        """See TieredStorageConsumer.start."""
        self._run(self._consumer.start())

    def stop(self) -> None:
        """Commit if that is automatic, leave the group, close every connection, end the thread."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        try:
            self._run(self._consumer.stop(), is_last=True)
        finally:
            self._end_loop()

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None
    ) -> None:
        """See AIOKafkaConsumer.subscribe."""
        self._call(lambda: self._consumer.subscribe(list(topics), pattern, listener))

    def unsubscribe(self) -> None:
        """See AIOKafkaConsumer.unsubscribe."""
        self._call(self._consumer.unsubscribe)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """See AIOKafkaConsumer.assign."""
        self._call(lambda: self._consumer.assign(list(partitions)))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now."""
        return set(self._call(self._consumer.assignment))

    def subscription(self) -> set[str]:
        """The topics that this consumer is subscribed to."""
        return set(self._call(self._consumer.subscription))

    def topics(self) -> set[str]:
        """All topics that the user may see."""
        return set(self._run(self._consumer.topics()))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Partitions that are known of a topic."""
        found: set[int] | None = self._call(lambda: self._consumer.partitions_for_topic(topic))
        return found

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record."""
        return int(self._run(self._consumer.position(partition)))

    def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed last."""
        found: int | None = self._run(self._consumer.committed(partition))
        return found

    def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit the positions, or the offsets given."""
        self._run(self._consumer.commit(None if offsets is None else dict(offsets)))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from that offset."""
        self._call(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Read on from where the log begins, over the tiers of the mode."""
        return bool(self._run(self._consumer.seek_to_beginning(*partitions)))

    def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Read on from where the log ends."""
        return bool(self._run(self._consumer.seek_to_end(*partitions)))

    def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Read on from the committed offsets."""
        return dict(self._run(self._consumer.seek_to_committed(*partitions)))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a timestamp (ms), by partition."""
        return dict(self._run(self._consumer.offsets_for_times(dict(timestamps))))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where logs begin, over the tiers of the mode."""
        return dict(self._run(self._consumer.beginning_offsets(list(partitions))))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where logs end."""
        return dict(self._run(self._consumer.end_offsets(list(partitions))))

    def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """The next record; waits for one. ConsumerStoppedError when `stop` is called meanwhile."""
        return self._taken(self._consumer.getone(*partitions), lambda record: (record,))

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records; waits for `timeout_ms` at most."""
        work: Coroutine[Any, Any, dict[TopicPartition, list[ConsumerRecord]]]
        work = self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return self._taken(work, lambda found: chain.from_iterable(found.values()))

    def pause(self, *partitions: TopicPartition) -> None:
        """Give no records of these partitions until `resume`."""
        self._call(lambda: self._consumer.pause(*partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return set(self._call(self._consumer.paused))

    def resume(self, *partitions: TopicPartition) -> None:
        """Give records of these partitions again."""
        self._call(lambda: self._consumer.resume(*partitions))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Kafka's high watermark as the last answer of a broker has it."""
        found: int | None = self._call(lambda: self._consumer.highwater(partition))
        return found

    def counters(self) -> ConsumerCounters:
        """See TieredStorageConsumer.counters."""
        return self._call(self._consumer.counters)

    def _call(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return self._run(called())

    def _taken(
        self, work: Coroutine[Any, Any, T], records_of: Callable[[T], Iterable[ConsumerRecord]]
    ) -> T:
        """What `work` takes. Records that do not reach the caller, because of an interrupt, are
        read again: their position was moved by then.
        """
        taken: list[T] = []

        async def taking() -> T:
            taken.append(await work)
            return taken[0]

        def give_back() -> None:
            for found in taken:
                self._seek_back(records_of(found))

        return self._run(taking(), give_back=give_back)

    def _seek_back(self, records: Iterable[ConsumerRecord]) -> None:
        firsts: dict[TopicPartition, int] = {}
        for record in records:
            firsts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for topic_partition in firsts.keys() & self._consumer.assignment():
            self._consumer.seek(topic_partition, firsts[topic_partition])

    def _run(
        self,
        work: Coroutine[Any, Any, T],
        *,
        is_last: bool = False,
        give_back: Callable[[], None] | None = None,
    ) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a listener or deserializer must not call the blocking consumer")
        with self._lock:
            if self._is_stopped and not is_last:
                work.close()
                raise ConsumerStoppedError
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError as cancelled:
            if not self._is_stopped:
                raise
            raise ConsumerStoppedError from cancelled
        except BaseException:
            future.cancel()
            if give_back is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(give_back)
            raise

    def _end_loop(self) -> None:
        with self._lock:
            self._is_stopped = True
        asyncio.run_coroutine_threadsafe(_rest_cancelled(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _rest_cancelled() -> None:
    """Calls of other threads, which would wait for ever for a loop that has ended."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=_LAST_S)


async def _made(topics: tuple[str, ...], options: dict[str, Any]) -> TieredStorageConsumer:
    return TieredStorageConsumer(*topics, **options)
