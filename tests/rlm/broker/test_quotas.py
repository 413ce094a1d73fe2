"""Quotas of connections as the broker says them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafka_protocol.apis import DESCRIBE_CLIENT_QUOTAS
from kip405.acls import MissingAcls
from rlm.broker.own_broker import OwnBroker
from tests.builders.fake_broker import FakeBroker


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as made:
        yield made


@pytest.fixture
async def own(broker: FakeBroker) -> AsyncIterator[OwnBroker]:
    made = OwnBroker(broker.address, client_id="test", timeout_ms=5_000)
    yield made
    await made.close()


async def test_quotas_of_connections_are_those_of_addresses(
    broker: FakeBroker, own: OwnBroker
) -> None:
    def entry(name: str | None, **values: float) -> dict[str, Any]:
        rows = [{"key": key, "value": value} for key, value in values.items()]
        return {"entity": [{"entity_type": "ip", "entity_name": name}], "values": rows}

    entries = [entry(None, connection_creation_rate=2.5), entry("10.0.0.1", other=1)]
    broker.on(DESCRIBE_CLIENT_QUOTAS, {"entries": entries})
    assert await own.connection_rates() == {None: 2.5}
    broker.on(DESCRIBE_CLIENT_QUOTAS, {"entries": None})
    assert await own.connection_rates() == {}
    broker.on(DESCRIBE_CLIENT_QUOTAS, {"error_code": 31})
    with pytest.raises(MissingAcls):
        await own.connection_rates()
