"""A question to whichever broker answers."""

import pytest

from kafka_clients.channel_security import plaintext
from kafka_protocol.apis import DESCRIBE_CLUSTER, METADATA
from kip405.addresses import Address
from kip405.errors import Unavailable
from rlm.broker.many import AllowedByAny
from rlm.broker.own_broker import AnyBroker
from tests.builders.fake_broker import FakeBroker
from tests.builders.rights import CLUSTER


def dead_address() -> Address:
    """Nobody listens on port 1."""
    return Address(host="127.0.0.1", port=1)


async def test_the_one_that_answers_is_asked_first_from_then_on() -> None:
    async with FakeBroker().running() as silent, FakeBroker().running() as broker:
        broker.on(DESCRIBE_CLUSTER, CLUSTER | {"cluster_id": "c1"})
        brokers = AnyBroker([silent.address, broker.address], client_id="tests")
        for _ in range(3):
            assert (await brokers.describe_cluster()).cluster_id == "c1"
        assert (len(silent.asked(DESCRIBE_CLUSTER)), len(broker.asked(DESCRIBE_CLUSTER))) == (1, 3)
        silent.on(DESCRIBE_CLUSTER, CLUSTER | {"cluster_id": "c2"})
        del broker.handlers[DESCRIBE_CLUSTER.key]
        assert (await brokers.describe_cluster()).cluster_id == "c2"
        await brokers.close()


async def test_rights_are_asked_of_the_one_that_answers() -> None:
    async with FakeBroker().running() as broker:
        allowed = 1 << 3 | 1 << 8
        broker.on(DESCRIBE_CLUSTER, CLUSTER | {"cluster_authorized_operations": 1 << 8})
        topics = [
            {"error_code": 0, "name": "orders", "topic_authorized_operations": allowed},
            {"error_code": 29, "name": "payments"},
            {"error_code": 3, "name": "nothing"},
        ]
        broker.on(METADATA, {"topics": topics})
        rights = AllowedByAny(
            [dead_address(), broker.address], client_id="tests", security=plaintext()
        )
        assert await rights.on_cluster() == frozenset({"Describe"})
        assert await rights.on_topics(["orders", "payments", "nothing"]) == {
            "orders": frozenset({"Read", "Describe"}),
            "payments": frozenset(),
        }
        await rights.close()


async def test_no_broker_answers() -> None:
    brokers = AnyBroker([dead_address(), dead_address()], client_id="tests")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*; .*127\.0\.0\.1:1"):
        await brokers.topic("orders")
    await brokers.close()
