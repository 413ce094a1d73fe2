"""Which end offsets are behind all that was written before, whoever answers as the leader (H17)."""

import pytest

from kip405.errors import Unavailable
from kip405.ids import TopicPartition
from rlmm.leader_answers import LogEnd, ReplicaVotes

PARTITION = TopicPartition("ledger", 0)


def votes(replicas: set[int] | None = None, min_insync_replicas: int = 2) -> ReplicaVotes:
    return ReplicaVotes(
        PARTITION,
        leader=1,
        replicas=frozenset(replicas or {1, 2, 3}),
        min_insync_replicas=min_insync_replicas,
    )


def decided(asking: ReplicaVotes) -> bool:
    return asking.is_decided


@pytest.mark.parametrize(
    ("replicas", "min_insync_replicas", "asked"),
    [
        ({1}, 1, set()),
        ({1, 2}, 2, set()),
        ({1, 2}, 1, {2}),
        ({1, 2, 3}, 3, set()),
        ({1, 2, 3}, 2, {2, 3}),
        ({1, 2, 3}, 1, {2, 3}),
        ({1, 2}, 5, set()),
    ],
)
def test_h17_others_are_asked_where_a_record_need_not_be_with_the_leader(
    replicas: set[int], min_insync_replicas: int, asked: set[int]
) -> None:
    asking = votes(replicas, min_insync_replicas)
    assert asking.others == asked
    assert not decided(asking)
    asking.take(1, LogEnd(70, 4))
    assert decided(asking) is (not asked)
    if not asked:
        assert asking.end() == 70


def test_h17_one_of_three_replicas_beside_the_leader_is_enough() -> None:
    asking = votes()
    asking.take(3, LogEnd(90, 4))
    assert not decided(asking)
    asking.take(1, LogEnd(70, 4))
    assert decided(asking)
    assert asking.end() == 70


@pytest.mark.parametrize("epoch", [3, 4])
def test_h17_a_replica_that_has_not_heard_of_the_election_yet_has_no_record_of_it(
    epoch: int,
) -> None:
    asking = votes()
    asking.take(1, LogEnd(70, 4))
    asking.take(2, LogEnd(60, epoch))
    assert asking.end() == 70


def test_h17_a_deposed_leader_is_not_believed() -> None:
    asking = votes()
    asking.take(1, LogEnd(70, 4))
    asking.take(2, LogEnd(99, 5))
    assert decided(asking)
    with pytest.raises(Unavailable, match="broker 2 knows a newer leader than 1"):
        asking.end()


def test_h17_a_leader_alone_is_not_believed() -> None:
    asking = votes()
    asking.take(1, LogEnd(70, 4))
    asking.refuse(2, "away")
    assert not decided(asking)
    asking.refuse(3, "away too")
    assert decided(asking)
    with pytest.raises(Unavailable, match=r"too few replicas .*broker 3: away too"):
        asking.end()


def test_h17_where_a_record_may_be_in_one_replica_all_are_needed() -> None:
    asking = votes(min_insync_replicas=1)
    asking.take(1, LogEnd(70, 4))
    asking.take(2, LogEnd(70, 4))
    assert not decided(asking)
    asking.take(3, LogEnd(70, 4))
    assert asking.end() == 70


def test_a_leader_that_does_not_answer_decides() -> None:
    asking = votes()
    asking.take(2, LogEnd(70, 4))
    asking.refuse(1, "NotLeaderForPartitionError")
    assert decided(asking)
    with pytest.raises(Unavailable, match="NotLeaderForPartition"):
        asking.end()
