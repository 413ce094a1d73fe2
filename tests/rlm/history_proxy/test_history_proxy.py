"""Kafka's protocol of an attached reader, in every version that it offers, over a real socket."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol import error_codes
from kafka_protocol.api_versions import UNSUPPORTED_VERSION
from kafka_protocol.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from kafka_protocol.frames import decode_response, encode_request
from kip405.batches import batch_headers
from kip405.errors import Corrupt
from rlm.history_proxy.answers import MOST_WAIT_MS, OFFERED
from rlmm.settings_records import TopicRecord
from tests.builders.ledger import PARTITION
from tests.rlm.api.test_h04_attached import manifest_name
from tests.rlm.history_proxy.served import END, NUMBER, TOPIC, bases, proxy

_COMMITTED = 1


async def test_every_version_that_is_offered_is_answered(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        for version in range(OFFERED[API_VERSIONS].high + 1):
            found = await client.ask(API_VERSIONS, version, {})
            assert {row["api_key"] for row in found["api_keys"]} == {api.key for api in OFFERED}
        for version in range(OFFERED[METADATA].high + 1):
            for asked in ([] if version == 0 else None, [{"name": TOPIC}]):
                found = await client.ask(METADATA, version, {"topics": asked})
                (topic,) = found["topics"]
                assert (topic["name"], topic["error_code"]) == (TOPIC, 0)
                if version >= 10:
                    assert topic["topic_id"] == PARTITION.topic_id.raw
                assert [row["leader_id"] for row in topic["partitions"]][NUMBER] == 0
                assert (found["brokers"][0]["host"], found["brokers"][0]["port"]) == (
                    "history.example",
                    9,
                )
        span = OFFERED[LIST_OFFSETS]
        for version in range(span.low, span.high + 1):
            assert (await client.position(-2, version))["offset"] == 0
            assert (await client.position(-1, version))["offset"] == END
        span = OFFERED[FETCH]
        for version in range(span.low, span.high + 1):
            row = await client.fetch(0, version)
            assert (row["error_code"], row["high_watermark"]) == (0, END)
            assert bases(row)[0] == 0


async def test_all_is_read_in_order_and_paced(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        found, position = [], 0
        while position < END:
            row = await client.fetch(position)
            found += bases(row)
            *_, (_, last) = batch_headers(row["records"])
            position = last.next_offset
        assert found == list(range(0, END, 10))
        assert client.quota.taken_bytes > 0
        row = await client.fetch(155, partition_max_bytes=0, max_bytes=0)
        assert bases(row) == [150], "the first batch comes whole, however small the limit"
        assert row["aborted_transactions"] is None
        row = await client.fetch(0, isolation_level=_COMMITTED)
        assert row["aborted_transactions"] == []


async def test_h17_nothing_is_known_before_the_manifests_are_read(tmp_path: Path) -> None:
    """No list without topics, no end, no reset: errors after which clients ask again."""
    async with proxy(tmp_path) as (_, client):
        row = await client.fetch(0)
        assert row["error_code"] == error_codes.NOT_LEADER_OR_FOLLOWER
        assert (await client.position(-1))["error_code"] == error_codes.LEADER_NOT_AVAILABLE
        found = await client.ask(METADATA, 9, {"topics": [{"name": TOPIC}]})
        assert found["topics"][0]["error_code"] == error_codes.LEADER_NOT_AVAILABLE
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(METADATA, 9, {"topics": None})


async def test_an_end_is_waited_at_and_beyond_it_is_out_of_range(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (site, client):
        await client.made.read()
        began_ms = site.rig.clock.monotonic_ms()
        row = await client.fetch(END)
        assert (row["error_code"], row["records"], row["high_watermark"]) == (0, b"", END)
        assert site.rig.clock.monotonic_ms() - began_ms == 500
        row = await client.fetch(END + 1)
        assert row["error_code"] == error_codes.OFFSET_OUT_OF_RANGE


async def test_h04_a_doubtful_end_is_neither_an_end_nor_out_of_range(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (site, client):
        site.rig.store.objects[manifest_name(site, 250)] = b"{}"
        await client.made.read()
        assert bases(await client.fetch(200, partition_max_bytes=1 << 20))[-1] == 240
        for offset in (250, 260, END, END + 1):
            row = await client.fetch(offset)
            assert (row["error_code"], row["records"]) == (error_codes.KAFKA_STORAGE_ERROR, b"")
            assert row["high_watermark"] == -1


async def test_h04_no_position_and_no_used_up_quota_makes_a_doubtful_end_an_end(
    tmp_path: Path,
) -> None:
    """Clients that read up to the latest offset would take it for all there was."""
    async with proxy(tmp_path) as (site, client):
        site.rig.store.objects[manifest_name(site, 250)] = b"{}"
        await client.made.read()
        assert (await client.position(-2))["offset"] == 0
        for of_the_end in (-1, -3):
            row = await client.position(of_the_end)
            assert (row["error_code"], row["offset"]) == (error_codes.KAFKA_STORAGE_ERROR, -1)
        client.quota.is_used_up = True
        for offset in (250, END):
            row = await client.fetch(offset)
            assert row["error_code"] == error_codes.KAFKA_STORAGE_ERROR


async def test_h25_lost_objects_are_an_error(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (site, client):
        await client.made.read()
        for name in [one for one in site.rig.store.objects if one.endswith(".log")]:
            del site.rig.store.objects[name]
        row = await client.fetch(0)
        assert (row["error_code"], row["records"]) == (error_codes.UNKNOWN_SERVER_ERROR, b"")


async def test_a_used_up_quota_is_an_empty_answer_and_no_end(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        client.quota.is_used_up = True
        row = await client.fetch(0)
        assert (row["error_code"], row["records"], row["high_watermark"]) == (0, b"", END)
        client.quota.is_used_up = False
        assert bases(await client.fetch(0))[0] == 0


async def test_no_further_partition_is_read_once_one_took_long(tmp_path: Path) -> None:
    """A client that gives a request up would ask for all of it again."""
    async with proxy(tmp_path) as (site, client):
        await client.made.read()
        read, clock = client.made.reading.stream, site.rig.clock

        def slow(*of: Any) -> Any:
            clock.advance(MOST_WAIT_MS)
            return read(*of)

        client.made.reading.stream = slow  # type: ignore[method-assign, assignment]
        asked = {"partition": NUMBER, "fetch_offset": 0, "partition_max_bytes": 700}
        body: dict[str, Any] = {"max_wait_ms": 500, "max_bytes": 1 << 20}
        body["topics"] = [{"topic": TOPIC, "partitions": [asked, asked]}]
        answer = await client.ask(FETCH, 11, body)
        ((first, second),) = (topic["partitions"] for topic in answer["responses"])
        assert bases(first)[0] == 0
        assert (second["error_code"], second["records"]) == (0, b"")
        assert second["high_watermark"] == END


async def test_what_is_not_there_or_not_offered_is_refused(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        found = await client.ask(METADATA, 12, {"topics": [{"name": "nothing"}]})
        assert found["topics"][0]["error_code"] == error_codes.UNKNOWN_TOPIC_OR_PARTITION
        row = await client.fetch(0, partition=9)
        assert row["error_code"] == error_codes.UNKNOWN_TOPIC_OR_PARTITION
        partition = {"index": NUMBER, "records": b""}
        body = {"acks": -1, "topic_data": [{"name": TOPIC, "partition_data": [partition]}]}
        for version in range(OFFERED[PRODUCE].high + 1):
            answer = await client.ask(PRODUCE, version, body)
            ((given,),) = (one["partition_responses"] for one in answer["responses"])
            assert given["error_code"] == error_codes.TOPIC_AUTHORIZATION_FAILED
        for api, version, asked in (
            (PRODUCE, 3, {**body, "acks": 0}),
            (PRODUCE, 13, {"acks": 1, "topic_data": []}),
            (FETCH, 13, {"topics": []}),
        ):
            with pytest.raises(asyncio.IncompleteReadError):
                await client.ask(api, version, asked)
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00"):
            with pytest.raises(asyncio.IncompleteReadError):
                await client.raw(noise)
        newer = bytearray(encode_request(API_VERSIONS, 5, 7, "tests", {}))
        newer[6:8] = (99).to_bytes(2)
        frame = await client.raw(bytes(newer))
        assert decode_response(API_VERSIONS, 0, frame)[1]["error_code"] == UNSUPPORTED_VERSION


async def test_a_broker_of_before_and_its_fetch_sessions_are_forgotten(tmp_path: Path) -> None:
    """A client may go on at the address of a broker that this reader replaces."""
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        body = {"session_id": 77, "session_epoch": 5, "max_wait_ms": 0, "topics": []}
        answer = await client.ask(FETCH, 11, body)
        assert answer["error_code"] == error_codes.FETCH_SESSION_ID_NOT_FOUND
        assert (answer["session_id"], answer["responses"]) == (0, [])
        for first in (0, -1):
            assert bases(await client.fetch(0, session_epoch=first))[0] == 0


async def test_what_cannot_be_has_the_error_that_a_broker_gives(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (_, client):
        await client.made.read()
        asked = [{"name": "a b"}, {"name": None, "topic_id": bytes(15) + b"\1"}]
        rows = (await client.ask(METADATA, 12, {"topics": asked}))["topics"]
        assert [row["error_code"] for row in rows] == [
            error_codes.INVALID_TOPIC_EXCEPTION,
            error_codes.UNKNOWN_TOPIC_ID,
        ]
        row = await client.position(-4)
        assert (row["error_code"], row["offset"]) == (UNSUPPORTED_VERSION, -1)


async def test_h36_many_topics_are_found_at_once_and_within_the_limit(tmp_path: Path) -> None:
    async with proxy(tmp_path) as (site, client):
        await client.made.read()
        passes, view = list[int](), client.made.view
        find = view._with_partitions

        async def counted(records: list[TopicRecord]) -> Any:
            passes.append(len(records))
            return await find(records)

        view._with_partitions = counted  # type: ignore[method-assign]
        asked = [{"name": TOPIC}, {"name": "nothing"}, *({"name": TOPIC} for _ in range(50))]
        found = (await client.ask(METADATA, 9, {"topics": asked}))["topics"]
        assert passes == [1]
        codes = [topic["error_code"] for topic in found]
        assert codes == [0, error_codes.UNKNOWN_TOPIC_OR_PARTITION, *([0] * 50)]
        assert [row["leader_id"] for row in found[-1]["partitions"]][NUMBER] == 0

        async def slow(ref: Any) -> Any:
            site.rig.clock.advance(MOST_WAIT_MS)
            raise Corrupt("slow")

        view.partitions = slow  # type: ignore[method-assign]
        found = (await client.ask(METADATA, 9, {"topics": [{"name": "a"}, {"name": "b"}]}))[
            "topics"
        ]
        assert found[1]["error_code"] == error_codes.LEADER_NOT_AVAILABLE
