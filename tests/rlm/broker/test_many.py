"""Answers to Metadata are decoded when they have changed (rlm.broker.many)."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kafka_protocol.apis import METADATA
from rlm.broker.own_broker import OwnBroker
from tests.builders.fake_broker import FakeBroker

TOPIC_ID = bytes(range(16))


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as made:
        yield made


@pytest.fixture
async def own(broker: FakeBroker) -> AsyncIterator[OwnBroker]:
    made = OwnBroker(broker.address, client_id="test", timeout_ms=60_000)
    yield made
    await made.close()


def topic(leader: int) -> dict[str, Any]:
    row = {"partition_index": 0, "leader_id": leader, "leader_epoch": 4}
    nodes = {"replica_nodes": [1, 2], "isr_nodes": [1]}
    return {"topics": [{"name": "t", "topic_id": TOPIC_ID, "partitions": [{**row, **nodes}]}]}


async def test_an_answer_that_equals_the_one_before_is_decoded_once(
    broker: FakeBroker, own: OwnBroker
) -> None:
    broker.on(METADATA, topic(leader=1))
    first = await own.topic("t")
    assert await own.topic("t") is first
    broker.on(METADATA, topic(leader=2))
    assert (await own.topic("t")).partitions[0].leader == 2
    broker.on(METADATA, topic(leader=1))
    assert (await own.topic("t")).partitions[0].leader == 1
    assert len(broker.asked(METADATA)) == 4


async def test_many_sets_of_names_are_forgotten_and_asked_again(
    broker: FakeBroker, own: OwnBroker
) -> None:
    def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
        names = [one["name"] for one in asked["topics"]]
        return {"topics": [{"name": name, "topic_id": TOPIC_ID} for name in names]}

    broker.on(METADATA, answer)
    names = [f"t{number}" for number in range(40)]
    for _ in range(2):
        assert [(await own.topic(name)).name for name in names] == names
