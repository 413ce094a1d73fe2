"""A question to whichever broker answers."""

import pytest

from kafka_protocol.apis import DESCRIBE_CLUSTER
from kip405.addresses import Address
from kip405.errors import Unavailable
from rlm.broker.own_broker import AnyBroker
from tests.builders.fake_broker import FakeBroker

CLUSTER: dict[str, object] = {
    "throttle_time_ms": 0,
    "error_code": 0,
    "error_message": None,
    "cluster_id": "c1",
    "controller_id": 1,
    "brokers": [],
    "cluster_authorized_operations": -1,
}


def dead_address() -> Address:
    """Nobody listens on port 1."""
    return Address(host="127.0.0.1", port=1)


async def test_the_one_that_answers_is_asked_first_from_then_on() -> None:
    async with FakeBroker().running() as silent, FakeBroker().running() as broker:
        broker.on(DESCRIBE_CLUSTER, CLUSTER)
        brokers = AnyBroker([silent.address, broker.address], client_id="tests")
        for _ in range(3):
            assert (await brokers.describe_cluster()).cluster_id == "c1"
        assert (len(silent.asked(DESCRIBE_CLUSTER)), len(broker.asked(DESCRIBE_CLUSTER))) == (1, 3)
        silent.on(DESCRIBE_CLUSTER, CLUSTER | {"cluster_id": "c2"})
        del broker.handlers[DESCRIBE_CLUSTER.key]
        assert (await brokers.describe_cluster()).cluster_id == "c2"
        await brokers.close()


async def test_no_broker_answers() -> None:
    brokers = AnyBroker([dead_address(), dead_address()], client_id="tests")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*; .*127\.0\.0\.1:1"):
        await brokers.topic("orders")
    await brokers.close()
