"""aiokafka's fetcher over both tiers: it decides per partition where the next records come from.

aiokafka's fetcher has one result per partition, and gives out its records only while the consumer's
position is where the result goes on. Pieces of the remote tier become such results. So seek, pause,
commits, rebalances and limits of records are those of aiokafka for both tiers, and a result that
came late, from whichever tier, is dropped and not given out twice. Positions move by records that
were given out, by offsets that a tier has read and found empty, and by losses that are certain.
This module uses private names of aiokafka.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from aiokafka import errors
from aiokafka.consumer.fetcher import Fetcher, OffsetResetStrategy
from aiokafka.structs import TopicPartition
from aiokafka.util import create_task

from rlm_client.assigned import OpenRead, PartOfAssignment
from rlm_client.counters import ConsumerCounters
from rlm_client.errors import RemoteTierError, RemoteTierUnavailable, is_passing
from rlm_client.failures import Failures
from rlm_client.kafka_log import KafkaLog
from rlm_client.lookups import Lookups
from rlm_client.partition_read import POLL_MS, Tier
from rlm_client.pieces import RecordFormat, Results, piece_result, ready
from rlm_client.read_threads import ReadThreads
from rlm_client.remote_log import Items, RemoteLog, range_of
from rlm_client.remote_stream import RemoteStream
from tiered_reads import clock
from tiered_reads.errors import ConnectorError
from tiered_reads.failover import SETTLE_MS
from tiered_reads.stopping import Stop, Stopped
from tiered_reads.values import DataLoss, Fetched, ReadMode

_log: Final = logging.getLogger(__name__)


class TieredFetcher(Fetcher):  # type: ignore[misc]  # aiokafka has no types
    """`auto_offset_reset` counts where no tier has the position, or no position is committed."""

    def __init__(
        self,
        client: Any,
        subscriptions: Any,
        *,
        mode: ReadMode,
        remote_log: RemoteLog,
        counters: ConsumerCounters,
        auto_offset_reset: str,
        retry_timeout_ms: int | None = None,
        settle_ms: int = SETTLE_MS,
        poll_ms: int = POLL_MS,
        **options: Any,
    ) -> None:
        self._mode = mode
        self._remote_log = remote_log
        self._counters = counters
        self._policy = OffsetResetStrategy.from_str(auto_offset_reset)
        self._failures = Failures(retry_timeout_ms)
        self._settle_ms = settle_ms
        self._poll_ms = poll_ms
        self._kafka_log = KafkaLog(client)
        self._pool = ReadThreads()
        self._stop = Stop()
        self._lookups = Lookups(remote_log, self._kafka_log, mode, self._pool, self._stop)
        self._reads: dict[TopicPartition, OpenRead] = {}
        self._reads_of: Any = None
        super().__init__(client, subscriptions, auto_offset_reset="none", **options)
        self._records = Results(counters.kafka, lambda: self._loop.call_soon(self._wake))
        self._record_format = RecordFormat(
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
            check_crcs=self._check_crcs,
            isolation_level=self._isolation_level,
        )

    async def close(self) -> None:
        """End everything; calls under way are cancelled."""
        self._stop.set()
        self._drop_reads()
        try:
            await super().close()
        finally:
            await asyncio.wrap_future(self._pool.submit(self._remote_log.close))
            self._pool.shutdown(wait=False)

    def _wake(self) -> None:
        for waiter in self._fetch_waiters:
            self._notify(waiter)

    # What aiokafka's routine asks.

    def _get_actions_per_node(self, assignment: Any) -> tuple[Any, ...]:
        self._follow(assignment)
        now_ms = clock.monotonic_ms()
        of_kafka, resumes = [], []
        for topic_partition, read in self._reads.items():
            state = assignment.state_value(topic_partition)
            if not state.has_valid_position:
                leader = self._client.cluster.leader_for_partition(topic_partition)
                if leader in (None, -1):
                    of_kafka.append(topic_partition)  # asks for metadata
                elif topic_partition not in self._records and not read.is_asking:
                    # One by one: a service may be away, and others go on meanwhile.
                    work = self._update_fetch_positions(assignment, leader, [topic_partition])
                    read.asking = self._started(work)
            elif read.tier is Tier.KAFKA:
                of_kafka.append(topic_partition)
                if read.is_check_due(now_ms) and not read.is_busy:
                    read.task = self._started(self._check(topic_partition, state, read))
            elif topic_partition in self._records or read.is_busy or read.must_wait(now_ms):
                continue
            elif state.paused:
                resumes.append(state.resume_fut)
            else:
                # The position as it is now: the user may ask for a reset before the task begins.
                work = self._read_remote(assignment, topic_partition, state.position, read)
                read.task = self._started(work)
        actions = super()._get_actions_per_node(PartOfAssignment(assignment, of_kafka))
        *others, kafka_resumes = actions
        return (*others, [*kafka_resumes, *resumes])

    def _set_error(self, topic_partition: TopicPartition, error: Exception) -> None:
        """What aiokafka would raise in the user's call: first the other tier is asked."""
        read = self._reads.get(topic_partition)
        if topic_partition in self._records or read is None:
            return  # the answer is about a fetch before the present one
        if isinstance(error, errors.OffsetOutOfRangeError):
            if read.tier is Tier.KAFKA:
                self._counters.failovers += 1
                read.denied_by_kafka()
        elif (
            isinstance(error, errors.NoOffsetForPartitionError)
            and self._policy != OffsetResetStrategy.NONE
        ):
            self._state(topic_partition).await_reset(self._policy)
        else:
            super()._set_error(topic_partition, error)

    def seek_to(self, topic_partition: TopicPartition, offset: int) -> None:
        """The user's; nothing is missed by it."""
        self._moved_by_user((topic_partition,))
        super().seek_to(topic_partition, offset)

    def request_offset_reset(self, topic_partitions: Collection[Any], strategy: int) -> Any:
        """As `seek_to`."""
        self._moved_by_user(topic_partitions)
        return super().request_offset_reset(topic_partitions, strategy)

    def _moved_by_user(self, topic_partitions: Collection[TopicPartition]) -> None:
        for one in topic_partitions:
            if (read := self._reads.get(one)) is not None:
                read.lost_at = None

    async def _update_fetch_positions(self, assignment: Any, node_id: Any, tps: Any) -> bool:
        needs_wakeup = False
        # It is raised while `close` ends the calls, and is not the routine's to handle.
        with contextlib.suppress(errors.ConsumerStoppedError):
            needs_wakeup = await super()._update_fetch_positions(assignment, node_id, tps)
        for topic_partition in tps:
            state, read = assignment.state_value(topic_partition), self._reads.get(topic_partition)
            if read is None or not state.has_valid_position:
                continue
            read.answered()
            if read.lost_at is not None:
                self._counters.offsets_missed += max(0, state.position - read.lost_at)
                read.lost_at = None
        return needs_wakeup or any(one in self._records for one in tps)

    async def _proc_offset_request(self, node_id: Any, topic_data: Any) -> Any:
        """The offsets over the tiers of the mode. aiokafka asks again for a position after every
        error; what is the user's to mend is raised in the user's call, too.
        """
        try:
            return await self._offsets_of_tiers(node_id, topic_data)
        except RemoteTierError as error:
            for topic_partition, read in self._reads.items():
                if read.asking is asyncio.current_task():
                    self._asked_in_vain(topic_partition, read, error)
            raise

    def _asked_in_vain(
        self, topic_partition: TopicPartition, read: OpenRead, error: RemoteTierError
    ) -> None:
        """There is no position; unless the user has gone to another one meanwhile."""
        state = self._state(topic_partition)
        if topic_partition in self._records or state.has_valid_position:
            return
        raised: RemoteTierError | None = error
        if error.retriable and error.__cause__ is None:
            return  # nothing is remote yet
        if error.retriable:
            now_ms = clock.monotonic_ms()
            read.fails(now_ms)
            raised = self._failures.overdue(topic_partition, read, error, now_ms)
        if raised is not None:
            super()._set_error(topic_partition, raised)

    async def _offsets_of_tiers(self, node_id: Any, topic_data: Any) -> Any:
        found: dict[TopicPartition, tuple[int, int | None]] = {}
        is_alone = self._mode is ReadMode.REMOTE_ONLY
        if not is_alone:
            found = await super()._proc_offset_request(node_id, topic_data)
        wanted = {
            TopicPartition(topic, partition): timestamp
            for topic, rows in topic_data.items()
            for partition, timestamp in rows
            if is_alone or timestamp != OffsetResetStrategy.LATEST
        }
        dated = self._lookups.dated
        answers = await asyncio.gather(*(dated(one, at) for one, at in wanted.items()))
        for (topic_partition, timestamp), answer in zip(wanted.items(), answers, strict=True):
            if answer is not None:
                found[topic_partition] = answer
            elif is_alone:
                raise RemoteTierUnavailable(f"topic {topic_partition.topic} is not tiered")
            else:
                _log.info("event=topic_not_tiered topic=%s", topic_partition.topic)
                await self._lookups.check_untiered(topic_partition)
            if is_alone and timestamp < 0 and found[topic_partition][0] < 0:
                raise RemoteTierUnavailable(f"nothing of {topic_partition} is remote yet")
            self._refuse_late(topic_partition, timestamp)
        return found

    def _refuse_late(self, topic_partition: TopicPartition, strategy: int) -> None:
        """An answer for a position when the user has asked for another one meanwhile."""
        read = self._reads.get(topic_partition)
        if read is not None and read.asking is asyncio.current_task():
            state = self._state(topic_partition)
            if state.awaiting_reset and state.reset_strategy != strategy:
                raise RemoteTierUnavailable(f"{topic_partition}: another position is wanted by now")

    # One partition's read of the remote tier.

    async def _read_remote(
        self, assignment: Any, topic_partition: TopicPartition, position: int, read: OpenRead
    ) -> bool:
        """Make one step; whether there is a result for the user."""
        state = assignment.state_value(topic_partition)

        def has_moved() -> bool:
            is_there = assignment.active and state.has_valid_position
            return not is_there or state.position != position

        try:
            if read.stream is None or read.position != position:
                read.close_stream()
                items = await self._opened(topic_partition, position, read, has_moved)
                if items is None or has_moved():
                    return topic_partition in self._records
                read.stream, read.position = self._stream(items), position
            item = await read.stream.next()
            if has_moved() or read.position != position:
                read.close_stream()
                return False
            if isinstance(item, Fetched):
                return self._placed(assignment, topic_partition, read, item)
            read.close_stream()
            if item is None:
                self._ended(read)
                return False
            return await self._lost(topic_partition, state, read, item, has_moved)
        except asyncio.CancelledError:
            read.close_stream()
            return False
        except Stopped:
            return False
        except Exception as error:  # noqa: BLE001 - raised in the user's call, or tried again
            read.close_stream()
            return self._failed(topic_partition, read, error)

    def _stream(self, items: Callable[[Stop], Items]) -> RemoteStream[Fetched | DataLoss]:
        check = self._check_crcs
        return RemoteStream(lambda stop: ready(items(stop), check_crcs=check), self._pool)

    async def _opened(
        self,
        topic_partition: TopicPartition,
        position: int,
        read: OpenRead,
        has_moved: Callable[[], bool],
    ) -> Callable[[Stop], Items] | None:
        """What to read from `position` on. None: nothing now, and `read` says what comes next."""
        if read.is_denied:
            return await self._opened_denied(topic_partition, position, read, has_moved)
        now_ms = clock.monotonic_ms()
        bounds = await self._lookups.bounds(topic_partition)
        if bounds is not None:
            await self._kafka_log.check_topic_id(topic_partition.topic, bounds.topic_id)
        if has_moved():
            return None
        if self._mode is ReadMode.REMOTE_ONLY:
            if bounds is None or position >= bounds.end_offset:
                read.waits(now_ms, self._poll_ms)
                return None
            found = bounds
            wanted = range_of(topic_partition, position, found.end_offset)
            return lambda stop: self._remote_log.alone(wanted, found.topic_id, stop)
        if bounds is None or not bounds.start_offset <= position < bounds.end_offset:
            read.goes_to_kafka(now_ms)
            return None
        found = bounds
        wanted = range_of(topic_partition, position, found.end_offset)
        return lambda stop: self._remote_log.preferred(wanted, found.topic_id, stop)

    async def _opened_denied(
        self,
        topic_partition: TopicPartition,
        position: int,
        read: OpenRead,
        has_moved: Callable[[], bool],
    ) -> Callable[[Stop], Items] | None:
        """Up to where Kafka's log begins, which only grows: below that Kafka has nothing."""
        kafka = await self._kafka_log.bounds(topic_partition)
        if has_moved():
            return None
        now_ms = clock.monotonic_ms()
        if position > kafka.end_offset:
            if read.beyond_for_ms(position, now_ms) < self._settle_ms:
                read.waits(now_ms, min(self._poll_ms, self._settle_ms / 4))
            else:
                self._out_of_range(topic_partition, self._state(topic_partition), read)
            return None
        if position >= kafka.start_offset:
            await clock.pause_ms(self._retry_backoff * 1_000)
            read.goes_to_kafka(clock.monotonic_ms(), check_in_ms=0)
            return None
        bounds = await self._lookups.bounds(topic_partition, is_topic_enough=True)
        topic_id = None if bounds is None else bounds.topic_id
        if topic_id is not None:
            await self._kafka_log.check_topic_id(topic_partition.topic, topic_id)
        wanted = range_of(topic_partition, position, kafka.start_offset)
        return lambda stop: self._remote_log.proven(wanted, topic_id, stop)

    def _placed(
        self, assignment: Any, topic_partition: TopicPartition, read: OpenRead, piece: Fetched
    ) -> bool:
        if topic_partition in self._records:
            read.close_stream()  # an answer of Kafka's came before: the stream is not where it ends
            return True
        if piece.start_offset != read.position or piece.next_offset <= piece.start_offset:
            raise RemoteTierError(
                f"{topic_partition}: a piece [{piece.start_offset}, {piece.next_offset}) came at "
                f"offset {read.position}"
            )
        counters = self._counters.store if piece.is_from_store else self._counters.remote
        counters.bytes_read += len(piece.batches)
        self._records[topic_partition] = piece_result(
            topic_partition,
            piece,
            self._record_format,
            counters,
            assignment=assignment,
            backoff=self._prefetch_backoff,
        )
        read.position = piece.next_offset
        read.progressed()
        return True

    def _ended(self, read: OpenRead) -> None:
        """The stream has given what it was opened for, or what its tier has of it."""
        if self._mode is ReadMode.REMOTE_ONLY:
            return
        was_denied = read.is_denied
        self._counters.failovers += 1
        read.goes_to_kafka(clock.monotonic_ms(), check_in_ms=0 if was_denied else self._poll_ms)

    async def _lost(
        self,
        topic_partition: TopicPartition,
        state: Any,
        read: OpenRead,
        loss: DataLoss,
        has_moved: Callable[[], bool],
    ) -> bool:
        """It is certain that no tier of the mode has these offsets."""
        earliest = await self._lookups.earliest(topic_partition)
        if has_moved():
            return False
        if state.position < earliest:
            return self._out_of_range(topic_partition, state, read)
        _log.warning(
            "event=offsets_missed partition=%s start_offset=%d end_offset=%d reason=%s",
            *(f"{topic_partition.topic}-{topic_partition.partition}", state.position),
            *(loss.end_offset, loss.reason),
        )
        self._counters.offsets_missed += loss.end_offset - state.position
        read.answered()
        state.seek(loss.end_offset)
        return False

    def _out_of_range(self, topic_partition: TopicPartition, state: Any, read: OpenRead) -> bool:
        """No tier has the position: auto_offset_reset decides. Whether an error is to be raised."""
        position = state.position
        read.ends_proof()
        if self._policy == OffsetResetStrategy.NONE:
            error = errors.OffsetOutOfRangeError({topic_partition: position})
            super()._set_error(topic_partition, error)
            return True
        _log.warning(
            "event=offset_out_of_range partition=%s-%d offset=%d auto_offset_reset=%s",
            *(topic_partition.topic, topic_partition.partition, position),
            OffsetResetStrategy.to_str(self._policy),
        )
        read.lost_at = position
        read.is_denied = False
        if self._mode is not ReadMode.REMOTE_ONLY:
            read.goes_to_kafka(clock.monotonic_ms(), check_in_ms=0)
        state.await_reset(self._policy)
        return False

    def _failed(self, topic_partition: TopicPartition, read: OpenRead, error: Exception) -> bool:
        now_ms = clock.monotonic_ms()
        self._counters.failed_reads += 1
        read.failed(now_ms)
        raised: RemoteTierError | None
        if is_passing(error):
            self._failures.log("remote_read_failed", topic_partition, error, now_ms)
            raised = self._failures.overdue(topic_partition, read, error, now_ms)
            if raised is None:
                return False
        else:
            raised = RemoteTierError(
                f"{topic_partition.topic}-{topic_partition.partition}: {error}"
            )
            raised.__cause__ = error
        if topic_partition not in self._records:
            super()._set_error(topic_partition, raised)
        return True

    # What is asked beside the records.

    async def _check(self, topic_partition: TopicPartition, state: Any, read: OpenRead) -> bool:
        """Whether the remote tier has come to have the position; Kafka is read meanwhile."""
        try:
            bounds = await self._lookups.bounds(topic_partition)
        except asyncio.CancelledError:
            return False
        except (ConnectorError, Stopped) as error:
            now_ms = clock.monotonic_ms()
            self._failures.log("remote_bounds_failed", topic_partition, error, now_ms)
            bounds = None
        read.checked(clock.monotonic_ms())
        if bounds is None or not state.has_valid_position or read.tier is not Tier.KAFKA:
            return False
        if bounds.start_offset <= state.position < bounds.end_offset:
            self._counters.failovers += 1
            read.goes_to_remote()
        return False

    # The partitions of the assignment.

    def _follow(self, assignment: Any) -> None:
        if assignment is self._reads_of:
            return
        self._drop_reads()
        self._reads_of = assignment
        self._reads = {one: OpenRead(self._mode) for one in assignment.tps}
        assignment.unassign_future.add_done_callback(lambda _: self._ended_with(assignment))

    def _ended_with(self, assignment: Any) -> None:
        if assignment is self._reads_of:
            self._drop_reads()

    def _drop_reads(self) -> None:
        for read in self._reads.values():
            read.close_stream()

    def _state(self, topic_partition: TopicPartition) -> Any:
        return self._reads_of.state_value(topic_partition)

    def _started(self, work: Any) -> Any:
        task = create_task(work)
        self._pending_tasks.add(task)
        return task
