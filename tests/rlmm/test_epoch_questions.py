"""Which leader epochs are named to a broker that is asked where an epoch ends (H42)."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafka_protocol.error_codes import FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
from kip405.ids import TopicPartition
from rlmm.clients import EpochEndsStruct, ask_leader
from rlmm.leader_answers import EpochEnd, EpochQuestion

PARTITION = TopicPartition("ledger", 0)
END = 40


@dataclass
class Answer:
    topics: list[tuple[str, list[tuple[int, int, int, int]]]]


@dataclass
class Broker:
    """Answers as Kafka's Partition.checkCurrentLeaderEpoch and LeaderEpochFileCache.endOffsetFor;
    every epoch of its log ends at `END`.
    """

    leader_epoch: int
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    """Node, current leader epoch, leader epoch."""

    async def send(self, node: int, request: Any) -> Answer:
        [(topic, [(partition, current, epoch)])] = request.build(EpochEndsStruct).topics
        self.asked.append((node, current, epoch))
        return Answer([(topic, [self._row(partition, current, epoch)])])

    def _row(self, partition: int, current: int, epoch: int) -> tuple[int, int, int, int]:
        if current != -1 and current != self.leader_epoch:
            is_old = current < self.leader_epoch
            return (FENCED_LEADER_EPOCH if is_old else UNKNOWN_LEADER_EPOCH, partition, -1, -1)
        if epoch > self.leader_epoch:
            return (0, partition, -1, -1)
        return (0, partition, epoch, END)


@pytest.mark.parametrize(
    ("leader_epoch", "question", "asked", "is_answered"),
    [
        (5, EpochQuestion(5, 5), [(-1, 5)], True),
        (7, EpochQuestion(5, 5), [(-1, 5)], True),
        (4, EpochQuestion(5, 5), [(-1, 5)], False),
        (7, EpochQuestion(5, 7), [(7, 5)], True),
        (6, EpochQuestion(5, 7), [(7, 5)], False),
        (9, EpochQuestion(5, 7), [(7, 5), (-1, 5)], True),
    ],
    ids=["same", "newer", "deposed", "over", "deposed of what is over", "newer than is known"],
)
async def test_h42_a_broker_that_has_not_heard_of_the_newest_epoch_answers_nothing(
    leader_epoch: int,
    question: EpochQuestion,
    asked: list[tuple[int, int]],
    is_answered: bool,
) -> None:
    broker = Broker(leader_epoch)
    found = await ask_leader(cast(Any, broker), 3, {PARTITION: question})
    assert found == ({PARTITION: EpochEnd(question.leader_epoch, END)} if is_answered else {})
    assert broker.asked == [(3, *one) for one in asked]
