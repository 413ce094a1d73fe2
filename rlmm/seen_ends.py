"""Remembers where the metadata topics end by the answers of their leaders, and when they answered.

A decorator of the client that asks: nothing is asked for what it remembers.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from kip405.ids import TopicPartition, Uuid
from rlmm.leader_answers import EpochEnd, EpochQuestion

T = TypeVar("T")


class Ends(Protocol):
    """Asks leaders where partitions and epochs end (EndOffsetClient). Unavailable if no broker
    answers.
    """

    async def end_offset(
        self, topic_partition: TopicPartition, min_insync_replicas: int
    ) -> int: ...

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]: ...

    async def recorded_ledger_id(self) -> Uuid | None: ...

    async def close(self) -> None: ...


class SeenEnds:
    """`answered_at_ms`: when any leader has last answered, by `now_ms`; None = none has yet."""

    def __init__(self, client: Ends, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._now_ms = now_ms
        self._ends: dict[TopicPartition, int] = {}
        self.answered_at_ms: int | None = None

    async def end_offset(self, topic_partition: TopicPartition, min_insync_replicas: int) -> int:
        """As EndOffsetClient."""
        end = await self._client.end_offset(topic_partition, min_insync_replicas)
        self._see({topic_partition: end})
        return end

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> dict[TopicPartition, EpochEnd]:
        """As EndOffsetClient. The end of an epoch is not beyond that of the log, and below 0 where
        the leader does not know it.
        """
        answers = await self._client.epoch_ends(questions)
        ends = {one: answer.end_offset for one, answer in answers.items()}
        self._see({one: end for one, end in ends.items() if end >= 0})
        return answers

    async def recorded_ledger_id(self) -> Uuid | None:
        """As EndOffsetClient."""
        return await self._client.recorded_ledger_id()

    async def close(self) -> None:
        """As EndOffsetClient."""
        await self._client.close()

    def unread_records(self, topic: str, position: Callable[[TopicPartition], int]) -> int | None:
        """Offsets between the positions and the ends; None while no end is known."""
        ends = [(one, end) for one, end in self._ends.items() if one.topic == topic]
        return sum(max(0, end - position(one)) for one, end in ends) if ends else None

    def _see(self, ends: Mapping[TopicPartition, int]) -> None:
        for one, end in ends.items():
            self._ends[one] = max(end, self._ends.get(one, 0))
        if ends:
            self.answered_at_ms = self._now_ms()
