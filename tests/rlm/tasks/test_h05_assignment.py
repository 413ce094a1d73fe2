"""An assignment narrows what is led, and never widens it (H5)."""

import pytest

from kip405.errors import Invalid
from kip405.ids import TopicIdPartition, TopicPartition, Uuid
from rlm.broker.leadership import LedPartition
from rlm.plans.problems import ProblemKind
from rlm.tasks.assignment import Assignment, left_out_findings

FIRST, SECOND, ABSENT = (TopicPartition("orders", number) for number in range(3))


def row(partition: TopicPartition, topic_id: int = 1) -> LedPartition:
    found = TopicIdPartition(
        topic_id=Uuid(bytes([topic_id]) * 16),
        topic=partition.topic,
        partition=partition.partition,
    )
    return LedPartition(topic_id_partition=found, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))


LED = (row(FIRST), row(SECOND))


def names(rows: tuple[LedPartition, ...]) -> list[TopicPartition]:
    return [one.topic_partition for one in rows]


def test_only_what_was_added_has_tasks_and_the_rest_is_left_out() -> None:
    assignment = Assignment([])
    assert names(assignment.held(LED)) == []
    assert names(assignment.left_out(LED)) == [FIRST, SECOND]
    assignment.add([SECOND])
    assert names(assignment.held(LED)) == [SECOND]
    assert names(assignment.left_out(LED)) == [FIRST]
    assignment.remove([SECOND, FIRST])
    assert names(assignment.held(LED)) == []


def test_what_is_not_led_gets_no_task_by_being_added() -> None:
    assignment = Assignment([ABSENT])
    assignment.add([FIRST])
    assert names(assignment.held(LED)) == [FIRST]
    assert assignment.held(()) == ()


def test_a_topic_that_was_recreated_is_the_topic_of_that_name() -> None:
    assert Assignment([FIRST]).holds(row(FIRST, topic_id=2))


def test_without_a_choice_it_is_whatever_is_led_and_nothing_is_taken_from_that() -> None:
    assignment = Assignment(None)
    assignment.add([FIRST])
    assert assignment.held(LED) is LED
    assert assignment.left_out(LED) == ()
    with pytest.raises(Invalid, match="name them"):
        assignment.remove([FIRST])
    assert assignment.held(LED) is LED


def test_h38_what_is_left_out_is_a_problem_of_its_partition() -> None:
    [first, second] = left_out_findings(LED)
    assert (first.kind, first.subject) == (ProblemKind.PARTITION_LEFT_OUT, "orders-0")
    assert (second.topic, second.subject) == ("orders", "orders-1")
