"""Fetch through the proxy: every version, known remote and unknown, on the wire."""

import pytest

from kafka_protocol.apis import FETCH
from tests.rlm.proxy.fakes import (
    PLAIN,
    Log,
    asked,
    blob,
    fetch_request,
    only,
    world,
)

VERSIONS = range(FETCH.versions.low, FETCH.versions.high + 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_known_remote_is_spliced(version: int) -> None:
    async with world() as w:
        client = await w.connect()
        answer = only(await client.call(FETCH, version, fetch_request(version, asked(40))))
        assert answer["error_code"] == 0
        assert answer["records"] == blob(40, 100)
        assert (answer["high_watermark"], answer["last_stable_offset"]) == (200, 200)
        assert answer["aborted_transactions"] is None
        if version >= 5:
            assert answer["log_start_offset"] == 0
        [seen] = w.broker.requests(FETCH)
        if version >= 5:  # an answer of v4 cannot prove that the broker's log is the one we know
            assert seen["max_wait_ms"] == 0
            assert seen["topics"][0]["partitions"][0]["fetch_offset"] == 200
        assert (seen["session_id"], seen["session_epoch"]) == (0, -1)
        assert w.metrics.spliced_bytes == 600


@pytest.mark.parametrize("version", VERSIONS)
async def test_h17_out_of_range_of_a_topic_not_known_yet_is_spliced(version: int) -> None:
    async with world() as w:
        w.tier.view_hidden = True
        client = await w.connect()
        answer = only(await client.call(FETCH, version, fetch_request(version, asked(40))))
        assert (answer["error_code"], answer["records"]) == (0, blob(40, 100))
        assert answer["high_watermark"] == 200
        assert w.tier.barriers == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_local_and_plain_topics_pass(version: int) -> None:
    async with world() as w:
        client = await w.connect()
        local = only(await client.call(FETCH, version, fetch_request(version, asked(150))))
        assert local["records"] == blob(150, 200)
        if version >= 5:
            assert local["log_start_offset"] == 0
        plain = fetch_request(version, asked(150), topic=PLAIN)
        answer = only(await client.call(FETCH, version, plain))
        assert answer["records"] == blob(150, 200)
        if version >= 5:
            assert answer["log_start_offset"] == 100
        assert w.tier.barriers == 0


async def test_big_answers_stream_and_are_whole() -> None:
    async with world() as w:
        w.broker.logs[PLAIN, 0] = Log(0, 400_000, 400_000)
        client = await w.connect()
        big = fetch_request(12, asked(0, max_bytes=4_000_000), topic=PLAIN, max_bytes=4_000_000)
        for _ in range(2):
            answer = only(await client.call(FETCH, 12, big))
            assert answer["records"] == blob(0, 400_000)
        w.broker.logs["archive", 0] = Log(100, 400_000, 400_000)
        big = fetch_request(12, asked(100, max_bytes=4_000_000), max_bytes=4_000_000)
        answer = only(await client.call(FETCH, 12, big))
        assert answer["records"] == blob(100, 400_000)
        assert answer["log_start_offset"] == 0
