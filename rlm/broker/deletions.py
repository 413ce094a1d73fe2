"""Sends DeleteRecords to this service's broker: each in time or not at all, and remembers each
(H41).

A broker works on one request of a connection at a time, executes what it has read even if the
connection is closed by then, and checks no leader epoch (H5). So an abandoned request may be
executed later, when all evidence for it has changed. Therefore:

- Every DeleteRecords has a connection of its own, out of a bounded number, so that a request that
  the broker holds (a follower lags) delays no other. It is written at once, after the broker has
  answered on that same connection: so it never waits behind other requests of this service.
- It is recorded before it is written. An answer, also a refusal, ends the record. Without an answer
  (time-out, lost connection, cancellation) the outcome is unknown, and the connection is closed.
- An unknown outcome becomes known by the log start offset: at its bound or above, the request has
  nothing left to do.
- Otherwise it becomes known by time. When a request that was sent after the connection was closed
  is answered, the broker runs, and its network threads read what their sockets hold within moments;
  requests that it has read are taken up in the order of one queue. So a second request, sent
  `drain_ms` later and answered, was taken up long after the DeleteRecords, if that arrived at all:
  now the log start offset shows the outcome. A paused broker answers no request, so time alone
  proves nothing. A change of the leader epoch proves nothing either, since the same broker may lead
  again when it executes the request.
- A process does not know what its predecessor sent: it begins as if it had just abandoned one
  DeleteRecords of every partition.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from kip405.errors import RemoteStorageError, Unavailable
from kip405.ids import TopicPartition
from rlm.clock import Clock
from rlmm.publisher import OutcomeUnknown

log = structlog.get_logger()


class DeletionConnection(Protocol):
    """A connection for one DeleteRecords (OwnBroker.deletion_connection)."""

    async def open(self) -> None:
        """Connect and wait for an answer of the broker; Unavailable where there is none."""
        ...

    def send(self, topic_partition: TopicPartition, offset: int, *, hold_ms: int) -> Awaitable[int]:
        """Write the request at once; the low watermark comes later.

        OSError: no answer will come. kip405.errors: the broker's answer.
        """
        ...

    async def close(self) -> None:
        """Close the connection; what was sent may be executed all the same."""
        ...


@dataclass(slots=True, kw_only=True)
class _Sent:
    """A request that may still be executed. Times are monotonic ms; None = has not happened."""

    bound: int
    closed_at_ms: int | None = None
    answered_at_ms: int | None = None
    """When the broker first answered a question that was asked after the connection was closed."""
    is_drained: bool = False
    """Whether it was executed long ago, if the broker has ever read it."""

    def answered(self, asked_at_ms: int, now_ms: int, drain_ms: int) -> None:
        """The broker has answered a question that was asked then."""
        if self.closed_at_ms is None or asked_at_ms < self.closed_at_ms:
            return
        if self.answered_at_ms is None:
            self.answered_at_ms = now_ms
        elif asked_at_ms >= self.answered_at_ms + drain_ms:
            self.is_drained = True


class PreparedDeletion:
    """An open connection for one DeleteRecords; nothing has been sent yet."""

    def __init__(
        self, owner: "RecordDeletions", topic_partition: TopicPartition, to: DeletionConnection
    ) -> None:
        self._owner = owner
        self._topic_partition = topic_partition
        self._to = to
        self.sent: _Sent | None = None

    async def send(self, bound: int, *, hold_ms: int) -> int:
        """Send it, without any wait before; the low watermark.

        `hold_ms`: how long the broker may wait for followers. Errors other than OutcomeUnknown are
        the broker's answer, or say that nothing was sent.
        """
        self.sent = sent = self._owner.remember(self._topic_partition, bound)
        what = f"delete records of {self._topic_partition} below {bound}"
        try:
            answer = self._to.send(self._topic_partition, bound, hold_ms=hold_ms)
        except OSError as error:
            self._owner.forget(self._topic_partition, sent)
            raise Unavailable(f"{what}: not sent: {error}") from error
        limit_ms = hold_ms + self._owner.answer_slack_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                low_watermark = await answer
        except TimeoutError as error:
            raise OutcomeUnknown(f"{what}: no answer within {limit_ms} ms") from error
        except OSError as error:
            raise OutcomeUnknown(f"{what}: {error}, no answer came") from error
        except RemoteStorageError:
            self._owner.forget(self._topic_partition, sent)
            raise
        self._owner.forget(self._topic_partition, sent)
        return low_watermark


class RecordDeletions:
    """Sends DeleteRecords to one broker, and remembers each until its outcome is known."""

    def __init__(
        self,
        connect: Callable[[], DeletionConnection],
        clock: Clock,
        *,
        at_once: int,
        drain_ms: int,
        had_predecessor: bool,
        answer_slack_ms: int = 1_000,
    ) -> None:
        """`drain_ms`: trim.drain.ms; `had_predecessor`: another process may have sent some;
        `answer_slack_ms`: what an answer may take beyond the time the broker may hold the request.
        """
        self._connect = connect
        self._clock = clock
        self._drain_ms = drain_ms
        self.answer_slack_ms = answer_slack_ms
        self._slots = asyncio.Semaphore(at_once)
        self._sent: dict[TopicPartition, _Sent] = {}
        self._before: _Sent | None = None
        if had_predecessor:
            self._before = _Sent(bound=0, closed_at_ms=clock.monotonic_ms())

    @property
    def unknown(self) -> Mapping[TopicPartition, int]:
        """Bound of each DeleteRecords that was given up and may be executed yet."""
        return {
            topic_partition: sent.bound
            for topic_partition, sent in self._sent.items()
            if sent.closed_at_ms is not None
        }

    @asynccontextmanager
    async def prepared(
        self, topic_partition: TopicPartition, *, within_ms: int
    ) -> AsyncIterator[PreparedDeletion]:
        """A connection on which the broker has just answered. Ask for what the decision depends on
        after that.

        Unavailable: there was none within `within_ms`, so nothing was sent.
        """
        what = f"delete records of {topic_partition}"
        has_slot = False
        try:
            async with asyncio.timeout(within_ms / 1000):
                has_slot = await self._slots.acquire()
                connection = self._connect()
                try:
                    await connection.open()
                except BaseException:
                    await connection.close()
                    raise
        except TimeoutError as error:
            self._leave(has_slot)
            raise Unavailable(f"{what}: not sent, no connection within {within_ms} ms") from error
        except BaseException:
            self._leave(has_slot)
            raise
        prepared = PreparedDeletion(self, topic_partition, connection)
        try:
            yield prepared
        finally:
            try:
                await connection.close()
            finally:
                self._leave(has_slot)
                if prepared.sent is not None and prepared.sent is self._sent.get(topic_partition):
                    self._given_up(topic_partition, prepared.sent)

    async def settle(
        self, topic_partition: TopicPartition, log_start: Callable[[], Awaitable[int]]
    ) -> None:
        """Returns once nothing that was sent for a partition can be executed any more.

        `log_start` asks the broker for the log start; its errors are passed on. Waits for what a
        predecessor may have sent. Unavailable: one of ours is not known yet, ask again later.
        """
        while self._before is not None:
            before = self._before
            await self._ask(before, log_start)
            if before.is_drained:
                self._before = None
            else:
                await self._clock.sleep_ms(self._drain_ms)
        sent = self._sent.get(topic_partition)
        if sent is None:
            return
        start = await self._ask(sent, log_start)
        if not sent.is_drained and start < sent.bound:
            raise Unavailable(
                f"{topic_partition}: it is not known yet whether the DeleteRecords below "
                f"{sent.bound}, which was given up, will be executed; the log starts at {start}"
            )
        self.forget(topic_partition, sent)
        log.info(
            "delete_records_known",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            bound=sent.bound,
            log_start_offset=start,
        )

    async def _ask(self, sent: _Sent, log_start: Callable[[], Awaitable[int]]) -> int:
        """The log start offset now; records that the broker answered."""
        asked_at_ms = self._clock.monotonic_ms()
        start = await log_start()
        sent.answered(asked_at_ms, self._clock.monotonic_ms(), self._drain_ms)
        return start

    def remember(self, topic_partition: TopicPartition, bound: int) -> _Sent:
        """Called right before one is written. Unavailable: another one is not known yet."""
        if topic_partition in self._sent:
            raise Unavailable(
                f"{topic_partition}: the outcome of another DeleteRecords is not known yet"
            )
        sent = self._sent[topic_partition] = _Sent(bound=bound)
        return sent

    def forget(self, topic_partition: TopicPartition, sent: _Sent) -> None:
        """Its outcome is known."""
        if self._sent.get(topic_partition) is sent:
            del self._sent[topic_partition]

    def _given_up(self, topic_partition: TopicPartition, sent: _Sent) -> None:
        sent.closed_at_ms = self._clock.monotonic_ms()
        log.warning(
            "delete_records_unknown",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            bound=sent.bound,
        )

    def _leave(self, has_slot: bool) -> None:
        if has_slot:
            self._slots.release()
