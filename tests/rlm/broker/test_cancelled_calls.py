"""Calls of the own broker, again and again, end by one cancellation, whenever that comes."""

import asyncio

import pytest

from kafka_protocol.apis import API_VERSIONS
from kip405.errors import Unavailable
from rlm.broker.connection import BrokerConnection
from tests.builders.fake_broker import FakeBroker
from tests.cancelling import ends_at_each_turn
from tests.waiting import until


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_calls_that_are_made_again_after_each_error(is_dropped: bool) -> None:
    broker = FakeBroker()

    async def life() -> None:
        connection = BrokerConnection(broker.address, client_id="test")
        try:
            while True:
                try:
                    await connection.call(API_VERSIONS, 0, {}, timeout_ms=60_000)
                    if is_dropped:
                        broker.drop_connections()
                except Unavailable:
                    await asyncio.sleep(0)
        finally:
            await connection.close()

    async with broker.running():
        await ends_at_each_turn(life, 50)
        await until(lambda: not broker.open_connections)
