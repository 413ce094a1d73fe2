"""Which versions with topic ids are offered and taken, by what is known of the service's topics."""

import pytest

from kafka_protocol.apis import API_VERSIONS, DELETE_RECORDS, DELETE_TOPICS, PRODUCE
from tests.rlm.proxy.border import ONE_PROCESS
from tests.rlm.proxy.fakes import (
    OWN,
    OWN_ID,
    PLAIN,
    FakeBroker,
    FakeTier,
    Value,
    proxied,
    tier_partition,
)
from tests.rlm.proxy.test_own_topics import REFUSED, answered, produce
from tests.rlm.proxy.test_pass_through import ended, settle
from tests.rlmm.builders import uuid


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_no_version_with_ids_is_offered_while_ours_are_unknown() -> None:
    known: set[bytes] = set()
    tier = FakeTier(partitions={0: tier_partition()})
    async with proxied(tier, FakeBroker(), own_topic_ids=lambda: frozenset(known)) as p:
        wide = [(api.key, *api.versions) for api in (PRODUCE, DELETE_TOPICS, DELETE_RECORDS)]
        rows = [{"api_key": k, "min_version": low, "max_version": high} for k, low, high in wide]
        p.broker.script[API_VERSIONS.key] = lambda *_: {"api_keys": rows}

        async def highest() -> list[int]:
            answer = await client.call(API_VERSIONS, 3, {})
            return [one["max_version"] for one in answer["api_keys"]]

        client = await p.connect()
        assert await highest() == [12, 5, DELETE_RECORDS.versions.high]
        assert answered(12, await client.call(PRODUCE, 12, produce(12, (OWN, [0])))) == [
            (OWN, 0, REFUSED)
        ]
        client.writer.write(client.encode(PRODUCE, 13, produce(13, (OWN, [0]))))
        assert await ended(client)
        await settle(lambda: p.metrics.causes == ["version_not_offered"])
        assert len(p.broker.requests(PRODUCE)) == 1
        known.add(OWN_ID.raw)
        client = await p.connect()
        assert await highest() == [13, 6, DELETE_RECORDS.versions.high]
        answer = await client.call(PRODUCE, 13, produce(13, (OWN, [0])))
        assert answered(13, answer) == [(OWN, 0, REFUSED)]


@pytest.mark.parametrize("border", [ONE_PROCESS], indirect=True)
async def test_h24_remembered_ids_let_clients_go_on_and_offer_nothing() -> None:
    """What is remembered may be of topics that were recreated while no service ran."""
    known: set[bytes] = set()
    tier = FakeTier(partitions={0: tier_partition()})
    ids: Value = {"own_topic_ids": lambda: frozenset(known), "remembered": {OWN_ID.raw}}
    async with proxied(tier, FakeBroker(), **ids) as p:
        rows = [
            {"api_key": api.key, "min_version": api.versions.low, "max_version": api.versions.high}
            for api in (PRODUCE, DELETE_TOPICS)
        ]
        p.broker.script[API_VERSIONS.key] = lambda *_: {"api_keys": rows}
        client = await p.connect()

        async def highest() -> list[int]:
            answer = await client.call(API_VERSIONS, 3, {})
            return [one["max_version"] for one in answer["api_keys"]]

        async def produced() -> list[tuple[str, int, int]]:
            request = produce(13, (OWN, [0]), (PLAIN, [1]))
            return answered(13, await client.call(PRODUCE, 13, request))

        assert await highest() == [12, 5]
        assert await produced() == [(OWN, 0, REFUSED), (PLAIN, 1, 0)]
        known.add(uuid(9).raw)  # it was recreated
        assert await highest() == [13, 6]
        assert await produced() == [(OWN, 0, 0), (PLAIN, 1, 0)]  # no topic has this id any more
