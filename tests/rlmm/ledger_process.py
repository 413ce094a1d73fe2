"""A process that reads one ledger partition: a tail, and the ledger that it fills."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

from kip405.ids import TopicPartition
from rlmm.leader_answers import EpochEnd, EpochQuestion, ReadPosition
from rlmm.log_reader import Reader, TailRecord
from rlmm.manager import TopicBasedRemoteLogMetadataManager
from rlmm.records import ledger_partition
from rlmm.replay import LedgerState
from rlmm.resuming import ResumePoint
from rlmm.tail import Tail
from rlmm.topic import LEDGER_TOPIC
from tests.rlmm.builders import KEY, uuid

NUMBER = ledger_partition(KEY)
PARTITION = TopicPartition(LEDGER_TOPIC, NUMBER)


class ReadableLog(Reader, Protocol):
    """A log that is its own reader, and answers for its epochs."""

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]: ...


L = TypeVar("L", bound=ReadableLog)


class _NoLog:
    def register(self, topic: str, sink: object) -> None: ...


class Process(Generic[L]):
    """`began` are the reasons to begin from the beginning."""

    def __init__(
        self, log: L, remembered: Mapping[TopicPartition, ReadPosition] | None = None
    ) -> None:
        self.log = log
        self.manager = TopicBasedRemoteLogMetadataManager(
            log=cast(Any, _NoLog()), writer=uuid(1), publish_timeout_ms=1
        )
        self.began: list[str] = []
        self.delivered = 0
        self.tail = Tail(
            connect=lambda: log,
            topic_partitions=[PARTITION],
            deliver=self._take,
            start_over=lambda one: self.manager.start_over(one.partition),
            now_ms=lambda: 0,
            epoch_ends=log.epoch_ends,
            sleep_ms=lambda _: asyncio.sleep(0),
            remembered=remembered or {},
        )

    def _take(self, one: TailRecord) -> None:
        self.delivered += 1
        self.manager.apply(one)

    def resume(self, left: ResumePoint, state: LedgerState) -> None:
        self.manager.restore(NUMBER, state)
        self.tail.resume({PARTITION: left}, self._dropped)

    def _dropped(self, topic_partition: TopicPartition, why: str) -> None:
        assert topic_partition == PARTITION
        self.began.append(why)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Process[L]"]:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            life = group.create_task(self.tail.run())
            await self.tail.wait_caught_up()
            self.manager.go_live(0)
            yield self
            life.cancel()

    def state(self) -> dict[Any, Any]:
        """The records of each user partition that has any."""
        ledger = self.manager.freeze(NUMBER)
        assert ledger is not None
        partitions = LedgerState.of(ledger).partitions.items()
        return {key: dict(one.records) for key, one in partitions if one.records}
