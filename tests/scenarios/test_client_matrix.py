"""Clients of every make and age read trimmed topics whose leadership changed three times.

One topic is zstd, which clients that speak no newer Fetch than version 9 are given by a broker too,
unless the topic itself is set to zstd; every leader had an epoch of its own, of which a trim has
cut the oldest out of the brokers' files (H37).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kip405.batches import batch_headers
from rlm_sandbox.sandbox import Sandbox
from tests.rlm.proxy.raw_client import RawClient
from tests.scenarios.client_programs import Reading, spec_of
from tests.scenarios.client_table import CLIENTS, TestedClient
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh
from tests.scenarios.java import java_read, printable
from tests.scenarios.raw import PATIENT_MS, at_leader, fetch
from tests.scenarios.readers import aiokafka_read, kafka_python_read
from tests.scenarios.replicas import lead
from tests.scenarios.test_three_brokers import Once

pytestmark = pytest.mark.integration

_MIB_OF_A_LEADER = 2
_LEADERS = (1, 2, 3, 1)
_CODECS = {"gzip": 1, "zstd": 4}
_CODEC_BITS = 7
_NEWEST_BY_NAME = 12
_LIMIT_S = 120
_WITH_ZSTD = [one for one in CLIENTS if one.client in ("kafka-python", "sarama-2.0")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A topic of one partition, and what was acknowledged of it."""

    cluster: Cluster
    topic: str
    rows: list[Row]


@pytest.fixture(scope="module")
def histories(three_brokers: Sandbox) -> Iterator[dict[str, Led]]:
    """By codec."""
    cluster = Cluster(three_brokers)
    topics = {codec: fresh(codec) for codec in _CODECS}
    rows: dict[str, list[Row]] = {codec: [] for codec in _CODECS}
    try:
        for topic in topics.values():
            cluster.create_topic(topic, assignment=[[1, 2, 3]])
            cluster.enable(topic)
        for number, node in enumerate(_LEADERS):
            for codec, topic in topics.items():
                if number:
                    lead(cluster, topic, node)
                setting: dict[str, Any] = {"compression.type": codec}
                first = len(rows[codec])
                rows[codec] += cluster.fill(topic, mib=_MIB_OF_A_LEADER, first=first, **setting)
        for codec, topic in topics.items():
            cluster.wait_trimmed(topic, beyond=len(rows[codec]) // len(_LEADERS))
        yield {
            codec: Led(cluster=cluster, topic=topic, rows=rows[codec])
            for codec, topic in topics.items()
        }
    finally:
        cluster.delete_topics()
        cluster.close()


@pytest.fixture
def led(histories: dict[str, Led]) -> Led:
    return histories["zstd"]


@pytest.mark.parametrize("codec", _CODECS)
def test_it_is_a_history_of_four_leaders_in_one_codec(
    histories: dict[str, Led], codec: str
) -> None:
    """Else the tests below would show nothing."""
    led = histories[codec]

    async def headers(client: RawClient) -> set[tuple[int, int]]:
        found, offset = set(), 0
        while offset < len(led.rows):
            answer = await fetch(client, _NEWEST_BY_NAME, led.topic, offset, max_wait_ms=PATIENT_MS)
            assert answer["error_code"] == 0, offset
            for _, header in batch_headers(answer["records"]):
                found.add((header.leader_epoch, header.attributes & _CODEC_BITS))
                offset = header.last_offset + 1
        return found

    found = at_leader(led.cluster, led.topic, headers)
    assert {number for _, number in found} == {_CODECS[codec]}
    assert len({epoch for epoch, _ in found}) >= len(_LEADERS)  # more, if one was slow


def test_h37_kafka_python_reads_every_record_once(histories: dict[str, Led]) -> None:
    led = histories["gzip"]
    assert_same(kafka_python_read(led.cluster, led.topic, len(led.rows)), led.rows)


def test_librdkafka_reads_every_record_once(led: Led) -> None:
    assert_same(led.cluster.read_all(led.topic), led.rows)


async def test_aiokafka_reads_every_record_once(led: Led) -> None:
    assert_same(await aiokafka_read(led.cluster, led.topic, {0: len(led.rows)}), led.rows)


def test_java_reads_every_record_once(led: Led) -> None:
    read, said = java_read(led.cluster, led.topic, len(led.rows))
    assert read == printable(led.rows), said


@pytest.mark.long
@pytest.mark.parametrize("client", _WITH_ZSTD, ids=lambda one: one.id)
def test_h37_clients_old_and_new_read_zstd(led: Led, client: TestedClient) -> None:
    """kafka-python 2.0 by Fetch 4, sarama at Kafka 2.0 by Fetch 8."""
    spec = spec_of(client, led.cluster, led.topic, len(led.rows), starts={0: 0})
    with Reading(client, spec) as reading:
        assert_same(reading.all_rows(_LIMIT_S), led.rows)


def test_h37_kafka_python_reads_on_where_the_leader_changes_meanwhile(
    histories: dict[str, Led],
) -> None:
    led = histories["gzip"]
    node = 2 if led.cluster.wait_led(led.topic) != 2 else 3
    move = Once(lambda: lead(led.cluster, led.topic, node), at=500)
    small = {"max_partition_fetch_bytes": 65_536, "max_poll_records": 100}
    read = kafka_python_read(led.cluster, led.topic, len(led.rows), on_row=move, **small)
    assert move.done.is_set()
    assert_same(read, led.rows)
