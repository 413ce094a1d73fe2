"""Every version of Fetch and ListOffsets that the broker speaks, against a really trimmed topic.

Old clients in any language speak old versions; all must see the same records and positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kafka_protocol.apis import API_VERSIONS
from kafka_protocol.error_codes import OFFSET_OUT_OF_RANGE
from kip405.batches import batch_headers
from rlm_sandbox.sandbox import Sandbox
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.cluster import Cluster, Row, fresh
from tests.scenarios.raw import PATIENT_MS, Value, at_leader, fetch, list_offset, topic_id
from tests.scenarios.replicas import trimmed_topic

pytestmark = pytest.mark.integration

FETCH_VERSIONS = range(4, 19)
LIST_OFFSETS_VERSIONS = range(1, 12)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    PENDING_UPLOAD: 11,
}
_FIRST_WITH_REPLICA_STATE = 15


@dataclass(frozen=True)
class Trimmed:
    cluster: Cluster
    topic: str
    rows: list[Row]


@pytest.fixture(scope="module")
def trimmed(three_brokers: Sandbox) -> Iterator[Trimmed]:
    """One topic for all tests here: nothing changes it."""
    with Cluster(three_brokers) as cluster:
        topic = fresh("versions")
        rows = trimmed_topic(cluster, topic, [1, 2, 3])
        cluster.wait_settled(topic)
        yield Trimmed(cluster, topic, rows)
        cluster.delete_topics()


async def _read(client: RawClient, version: int, topic: str, end: int) -> bytes:
    """All batches from offset 0 to `end`."""
    found, offset, empty = b"", 0, 0
    id_of_topic = await topic_id(client, topic)
    while offset < end:
        answer = await fetch(client, version, topic, offset, id_of_topic=id_of_topic)
        assert answer["error_code"] == 0, f"v{version} at {offset}"
        assert answer["high_watermark"] == end
        assert answer.get("log_start_offset", 0) in (0, -1)
        batches = bytes(answer["records"])
        if not batches:  # not ready within max_wait: a client asks again
            empty += 1
            assert empty < 100, f"v{version}: nothing at {offset}"
            continue
        headers = [header for _, header in batch_headers(batches)]
        assert headers[0].base_offset <= offset
        offset = headers[-1].last_offset + 1
        found += batches
    return found


def test_every_fetch_version_gives_the_same_records(trimmed: Trimmed) -> None:
    end = len(trimmed.rows)

    async def read_all(client: RawClient) -> dict[int, bytes]:
        offered = await client.call(API_VERSIONS, 0, {})
        [fetch_range] = [one for one in offered["api_keys"] if one["api_key"] == 1]
        assert (fetch_range["min_version"], fetch_range["max_version"]) == (4, 18)
        return {one: await _read(client, one, trimmed.topic, end) for one in FETCH_VERSIONS}

    found = at_leader(trimmed.cluster, trimmed.topic, read_all)
    newest = found[FETCH_VERSIONS[-1]]
    headers = [header for _, header in batch_headers(newest)]
    assert [one.base_offset for one in headers] == [
        0,
        *(one.last_offset + 1 for one in headers[:-1]),
    ]
    assert sum(one.record_count for one in headers) == end
    assert all(batches == newest for batches in found.values())


@pytest.mark.kafka_scenario("ListOffsets")
def test_every_list_offsets_version_gives_the_same_positions(trimmed: Trimmed) -> None:
    end, local_start = len(trimmed.rows), trimmed.cluster.log_start(trimmed.topic)
    middle = trimmed.rows[1500].timestamp_ms
    first_at_middle = next(row.offset for row in trimmed.rows if row.timestamp_ms >= middle)
    asked = [LATEST, EARLIEST, *FIRST_VERSION, middle]

    async def ask(client: RawClient) -> dict[tuple[int, int], Value]:
        return {
            (version, timestamp): await list_offset(client, version, trimmed.topic, timestamp)
            for version in LIST_OFFSETS_VERSIONS
            for timestamp in asked
            if version >= FIRST_VERSION.get(timestamp, 0)
        }

    found = at_leader(trimmed.cluster, trimmed.topic, ask)
    assert {answer["error_code"] for answer in found.values()} == {0}
    newest = {one: found[LIST_OFFSETS_VERSIONS[-1], one] for one in asked}
    assert newest[EARLIEST]["offset"] == 0
    assert newest[LATEST]["offset"] == end
    assert newest[EARLIEST_LOCAL]["offset"] == local_start
    assert newest[LATEST_TIERED]["offset"] >= local_start - 1
    assert newest[PENDING_UPLOAD]["offset"] == newest[LATEST_TIERED]["offset"] + 1
    assert newest[middle]["offset"] == first_at_middle
    assert newest[middle]["timestamp"] == middle
    for (version, timestamp), answer in found.items():
        shared = (
            {"offset", "timestamp", "leader_epoch"} & answer.keys()
            if version >= 4
            else {
                "offset",
                "timestamp",
            }
        )
        for name in shared:
            assert answer[name] == newest[timestamp][name], (version, timestamp, name)


@pytest.mark.parametrize("version", [11, 14, 15, 18])
def test_h21_debugging_replicas_are_not_spliced(trimmed: Trimmed, version: int) -> None:
    """Replica -2 receives what the broker has, though a consumer is given the data."""
    as_replica: Value = {"replica_id": -2}
    if version >= _FIRST_WITH_REPLICA_STATE:
        as_replica = {"replica_state": {"replica_id": -2, "replica_epoch": -1}}

    async def ask(client: RawClient) -> tuple[Value, Value]:
        return (
            await fetch(client, version, trimmed.topic, 3, **as_replica),
            await fetch(client, version, trimmed.topic, 3, max_wait_ms=PATIENT_MS),
        )

    replica, consumer = at_leader(trimmed.cluster, trimmed.topic, ask)
    assert replica["error_code"] == OFFSET_OUT_OF_RANGE
    assert not replica["records"]
    assert consumer["error_code"] == 0
    assert consumer["records"]
