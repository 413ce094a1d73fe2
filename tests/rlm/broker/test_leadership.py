"""Snapshots of who leads what: replaced whole, kept through failures."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kip405.acls import missing_acls, topic_acl
from kip405.errors import Unavailable
from kip405.ids import PartitionKey, Uuid
from rlm.broker.answers import (
    BrokerNode,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from rlm.broker.leadership import Leadership
from tests.builders.clock import ManualClock

TOPIC_ID = Uuid(b"\x07" * 16)


def topic(name: str, leaders: Sequence[int], topic_id: Uuid = TOPIC_ID) -> TopicDescription:
    partitions = {
        number: PartitionDescription(
            partition=number, leader=leader, leader_epoch=3, replicas=(1, 2), isr=(leader,)
        )
        for number, leader in enumerate(leaders)
    }
    return TopicDescription(name=name, topic_id=topic_id, internal=False, partitions=partitions)


class Asked:
    def __init__(self) -> None:
        self.there = {"t": topic("t", (1, 2, -1))}
        self.names: list[list[str] | None] = []
        self.down = False
        self.hidden: set[str] = set()

    async def topics(self, names: Sequence[str] | None = None) -> tuple[TopicDescription, ...]:
        self.names.append(None if names is None else list(names))
        hidden = sorted(self.hidden & set(names or ()))
        if hidden:
            raise missing_acls("metadata", [topic_acl("Describe", name) for name in hidden])
        return tuple(self.there[name] for name in names or () if name in self.there)

    async def describe_cluster(self) -> ClusterDescription:
        if self.down:
            raise Unavailable("no broker")
        return ClusterDescription(cluster_id="c", nodes=(BrokerNode(node_id=1, host="h", port=1),))


class EndingClock(ManualClock):
    """Ends the poll loop at its n-th sleep."""

    def __init__(self, sleeps: int) -> None:
        super().__init__()
        self.sleeps = sleeps

    async def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps -= 1
        if self.sleeps == 0:
            raise asyncio.CancelledError
        await super().sleep_ms(duration_ms)


async def test_a_snapshot_has_the_topics_wanted_and_their_leaders() -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(now_ms=77), poll_interval_ms=500)
    assert leadership.snapshot.taken_at_ms == -1
    leadership.want({"t", "gone"})
    snapshot = await leadership.refresh()
    assert leadership.snapshot is snapshot
    assert asked.names == [["gone", "t"]]
    assert (snapshot.taken_at_ms, snapshot.cluster_id) == (77, "c")
    assert snapshot.topics == {"t": asked.there["t"]}
    (led,) = snapshot.led_by(1)
    assert led.topic_id_partition.key == PartitionKey(TOPIC_ID, 0)
    assert (led.leader_epoch, led.replicas, led.isr) == (3, (1, 2), (1,))
    assert snapshot.partitions[PartitionKey(TOPIC_ID, 2)].leader == -1


async def test_a_topic_recreated_under_its_name_is_another() -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=500)
    leadership.want(["t"])
    before = await leadership.refresh()
    asked.there["t"] = topic("t", (1,), topic_id=Uuid(b"\x08" * 16))
    after = await leadership.refresh()
    assert not set(before.partitions) & set(after.partitions)


async def test_h40_a_topic_that_we_may_not_see_does_not_affect_others() -> None:
    asked = Asked()
    asked.there |= {"u": topic("u", (1,), topic_id=Uuid(b"\x08" * 16))}
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=500)
    leadership.want(["t", "u", "never seen"])
    before = await leadership.refresh()
    asked.hidden = {"u", "never seen"}
    asked.there["t"] = topic("t", (2,))
    after = await leadership.refresh()
    assert after.topics["u"] == before.topics["u"]
    assert after.topics["t"].partitions[0].leader == 2
    assert set(after.topics) == {"t", "u"}
    asked.hidden = set()
    del asked.there["u"]
    assert set((await leadership.refresh()).topics) == {"t"}


async def test_polling_goes_on_through_failures_and_keeps_the_last_snapshot() -> None:
    asked = Asked()
    clock = EndingClock(sleeps=4)
    leadership = Leadership(asked, clock, poll_interval_ms=500)
    leadership.want(["t"])
    good = await leadership.refresh()
    asked.down = True
    with pytest.raises(asyncio.CancelledError):
        await leadership.run()
    assert leadership.snapshot is good
    asked.down = False
    clock.sleeps = 2
    with pytest.raises(asyncio.CancelledError):
        await leadership.run()
    assert leadership.snapshot.taken_at_ms > good.taken_at_ms


async def test_h38_a_snapshot_says_of_which_topics_the_broker_was_asked() -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=500)
    leadership.want(["t"])
    snapshot = await leadership.refresh()
    leadership.want(["t", "gone"])
    assert not snapshot.lacks("t")
    assert not leadership.snapshot.lacks("gone"), "nobody asked for it"
    assert (await leadership.refresh()).lacks("gone")


@pytest.mark.parametrize(
    "change",
    [{"leader": 2}, {"leader_epoch": 4}, {"replicas": (1, 3)}, {"isr": (1, 2)}],
)
async def test_a_partition_is_the_same_object_until_something_of_it_changes(
    change: dict[str, Any],
) -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=1_000)
    leadership.want(["t"])
    key, other = PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 1)
    before = (await leadership.refresh()).partitions
    partitions = asked.there["t"].partitions
    asked.there["t"] = replace(
        asked.there["t"], partitions={**partitions, 0: replace(partitions[0], **change)}
    )
    after = (await leadership.refresh()).partitions
    assert after[other] is before[other]
    assert after[key] == replace(before[key], **change)


async def test_partitions_of_equal_answers_are_not_compared_again() -> None:
    asked = Asked()
    asked.there["u"] = topic("u", (1,), Uuid(b"\x08" * 16))
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=1_000)
    leadership.want(["t", "u"])
    before = await leadership.refresh()
    assert (await leadership.refresh()).partitions is before.partitions
    del asked.there["t"]
    left = (await leadership.refresh()).partitions.values()
    assert {row.topic_partition.topic for row in left} == {"u"}


async def test_a_topic_that_has_another_name_now_is_seen_under_it() -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=1_000)
    leadership.want(["t", "u"])
    await leadership.refresh()
    asked.there = {"u": topic("u", (1, 2, -1))}
    found = (await leadership.refresh()).partitions
    assert {row.topic_id_partition.topic for row in found.values()} == {"u"}


async def test_what_a_node_leads_follows_each_snapshot_and_the_topics_that_are_asked_for() -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=1_000)
    assert leadership.led_of(1, {TOPIC_ID}) == ()
    leadership.want(["t"])
    await leadership.refresh()
    led = leadership.led_of(1, {TOPIC_ID})
    assert [row.key.partition for row in led] == [0]
    assert leadership.led_of(1, {TOPIC_ID}) is led
    assert leadership.led_of(1, ()) == ()
    assert [row.key.partition for row in leadership.led_of(2, {TOPIC_ID})] == [1]
    partitions = asked.there["t"].partitions
    moved = replace(partitions[0], leader=2)
    asked.there["t"] = replace(asked.there["t"], partitions={**partitions, 0: moved})
    await leadership.refresh()
    assert leadership.led_of(1, {TOPIC_ID}) == ()
    assert [row.key.partition for row in leadership.led_of(2, {TOPIC_ID})] == [0, 1]


async def test_the_list_of_what_a_node_leads_is_kept_while_answers_are_equal() -> None:
    asked = Asked()
    leadership = Leadership(asked, ManualClock(), poll_interval_ms=1_000)
    leadership.want(["t"])
    await leadership.refresh()
    led = leadership.led_of(1, {TOPIC_ID})
    await leadership.refresh()
    assert leadership.led_of(1, {TOPIC_ID}) is led
    for number in range(200):  # sets of topics that come and go are not kept for ever
        leadership.led_of(1, {Uuid(bytes([number]) * 16)})
    assert leadership.led_of(1, {TOPIC_ID}) == led
    assert len(leadership._listed) <= 64
