"""Brokers without a listener for the proxies: services are attached one after the other, by
rewriting addresses, and no client that comes to a proxy is sent past one (H17, H19).
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kafka_protocol.apis import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA
from kafka_protocol.frames import parse_response_header
from kafka_protocol.schema import Api, decode
from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxError, SandboxSpec
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, Row, assert_same, collect, fresh, text_value
from tests.scenarios.java import java_read, printable
from tests.scenarios.raw import Value, connection
from tests.scenarios.readers import aiokafka_read
from tests.scenarios.test_secured import PrincipalCluster

pytestmark = pytest.mark.integration

NODES = (1, 2, 3)
SLOW: dict[str, Any] = {
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 64,
    "fetch.queue.backoff.ms": 10,
}
"""A read that is still under way when something happens."""

DEAD_AFTER_S = 7
"""Three heartbeats of a sandbox, and a little more."""

_READ_LIMIT_S, _SLOW_LIMIT_S = 120, 200
_UNREAD = 1_000
"""Records that are more than a pipe holds, and fewer than one partition has."""


@pytest.fixture(scope="module")
def rewriting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Three brokers, of which one has a service at first."""
    later = ("rlm:2", "rlm:3")
    spec = SandboxSpec(brokers=3, jvm="quick", heap_mib=256, attach="rewrite", without=later)
    made = Sandbox.up(tmp_path_factory.mktemp("rewriting"), with_workers(spec))
    try:
        yield made
    finally:
        made.down(delete=True)


@pytest.fixture
def cluster(rewriting: Sandbox) -> Iterator[Cluster]:
    with Cluster(rewriting) as made:
        yield made
        made.delete_topics()


@pytest.fixture
def attached(cluster: Cluster) -> Cluster:
    """Every broker has a service."""
    for node in NODES:
        attach(cluster, node)
    for node in NODES:
        wait_named(cluster, node, addresses(cluster, "proxy"))
    return cluster


def attach(cluster: Cluster, node: int) -> None:
    with contextlib.suppress(SandboxError):  # it runs
        cluster.sandbox.start(f"rlm:{node}")


def addresses(cluster: Cluster, kind: str) -> dict[int, str]:
    """`proxy` or `direct`, by node id."""
    return {one["id"]: one[kind] for one in cluster.sandbox.json["brokers"]}


def named(address: str) -> dict[int, str]:
    """The brokers of a Metadata answer."""

    async def ask() -> Value:
        async with connection(address) as client:
            return await client.call(METADATA, 12, {"topics": []})

    rows = asyncio.run(ask())["brokers"]
    return {row["node_id"]: f"{row['host']}:{row['port']}" for row in rows}


def wait_named(cluster: Cluster, at: int, wanted: Mapping[int, str]) -> None:
    """Until the proxy of this node names these brokers."""
    address = addresses(cluster, "proxy")[at]
    cluster.wait_for(lambda: named(address) == wanted, f"proxy {at} names {wanted}")


def fill(cluster: Cluster, topic: str, *, at: int, each: int, partitions: int = 3) -> list[Row]:
    """So many records for each partition, by a producer that knows one proxy."""
    values = (
        (partition, b"k", text_value()) for _ in range(each) for partition in range(partitions)
    )
    bootstrap = addresses(cluster, "proxy")[at]
    return cluster.produce(topic, values, **{"bootstrap.servers": bootstrap})


def row_position(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
"""Each partition is led by another broker."""


def trimmed(cluster: Cluster, topic: str) -> list[Row]:
    """A topic of three partitions whose first records only the remote tier has."""
    cluster.create_topic(topic, assignment=SPREAD)
    cluster.enable(topic)
    rows = fill(cluster, topic, at=1, each=2_500)
    for partition in range(3):
        cluster.wait_trimmed(topic, partition)
    return rows


def read_all(cluster: Cluster, topic: str, rows: list[Row], *, at: int, **config: Any) -> None:
    """All of it from the very start, by librdkafka that knows one proxy; no position is reset."""
    ends = {row.partition: row.offset + 1 for row in rows}
    bootstrap = addresses(cluster, "proxy")[at]
    assert_same(cluster.read_all(topic, end=ends, bootstrap=bootstrap, **config), rows)


def test_h19_services_are_attached_one_by_one_and_nothing_is_trimmed_before_the_last(
    cluster: Cluster,
) -> None:
    """Then every client reads all from the start, also while one of the services is away."""
    proxies, direct = addresses(cluster, "proxy"), addresses(cluster, "direct")
    alone, topic = fresh("alone"), fresh("spread")
    cluster.create_topic(alone, assignment=[[1]])
    cluster.enable(alone)
    fill(cluster, alone, at=1, each=2_500, partitions=1)
    cluster.create_topic(topic, assignment=SPREAD)
    rows = fill(cluster, topic, at=1, each=1_500)
    held = "clients may learn the brokers' own addresses"
    cluster.wait_for(lambda: cluster.status(alone)["trim_reason"].startswith(held), held)
    for node in NODES:
        assert cluster.log_start(alone) == 0
        attach(cluster, node)
        known = {one: proxies[one] if one <= node else direct[one] for one in NODES}
        for at in range(1, node + 1):
            wait_named(cluster, at, known)
    cluster.enable(topic)
    rows = sorted(rows + fill(cluster, topic, at=3, each=1_000), key=row_position)
    for partition in range(3):
        cluster.wait_trimmed(topic, partition)
    cluster.wait_trimmed(alone)
    cluster.bootstrap = proxies[1]
    ends = dict.fromkeys(range(3), 2_500)
    assert_same(asyncio.run(aiokafka_read(cluster, topic, ends)), rows)
    cluster.bootstrap = proxies[3]
    # A member of a group: its coordinator is found through a proxy, too.
    config = {"auto.offset.reset": "earliest", "group.id": topic}
    printed, _ = java_read(cluster, topic, len(rows), partition=None, config=config)
    found = sorted((partition, offset) for partition, offset, _ in printed)
    assert found == [(row.partition, row.offset) for row in rows]
    _away(cluster, topic, rows)


def _away(cluster: Cluster, topic: str, rows: list[Row]) -> None:
    """Partitions of that broker wait for it; those of the others are written and read as ever."""
    proxies = addresses(cluster, "proxy")
    away, is_read = threading.Event(), threading.Event()

    def stop(count: int) -> None:
        if count == 100:
            cluster.sandbox.kill("rlm:3")
            away.set()

    def read() -> None:
        read_all(cluster, topic, rows, at=1, on_row=stop, timeout_s=_SLOW_LIMIT_S, **SLOW)
        is_read.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert away.wait(_READ_LIMIT_S)
    writes = ((partition, b"k", b"v") for partition in (0, 1))
    cluster.produce(topic, writes, **{"bootstrap.servers": proxies[2]})
    time.sleep(DEAD_AFTER_S)
    for at in (1, 2):
        wait_named(cluster, at, proxies)
    cluster.sandbox.start("rlm:3")
    reader.join(_SLOW_LIMIT_S + 30)
    assert is_read.is_set(), "the read has failed"


@pytest.mark.long
def test_h17_a_service_that_has_just_started_names_proxies_alone(attached: Cluster) -> None:
    """From the first answer on, long before it has read the settings."""
    proxies = addresses(attached, "proxy")
    for _ in range(3):
        attached.sandbox.kill("rlm:1")
        attached.sandbox.start("rlm:1", wait=False)
        deadline, seen = time.monotonic() + 60, 0
        while seen < 100:
            assert time.monotonic() < deadline, "the proxy does not listen"
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                assert named(proxies[1]) == proxies
                seen += 1


@pytest.mark.long
def test_h19_a_broker_that_comes_without_a_service_is_not_named(attached: Cluster) -> None:
    """Once anything was trimmed: a client would learn there how to get past every proxy."""
    cluster, topic = attached, fresh("joined")
    rows = trimmed(cluster, topic)
    proxies = addresses(cluster, "proxy")
    cluster.sandbox.kill("rlm:3")
    producer = Producer({"bootstrap.servers": cluster.direct})
    producer.produce("__rlm_settings", key=b"service/3", value=None, partition=0)
    assert producer.flush(10) == 0
    for at in (1, 2):
        wait_named(cluster, at, {1: proxies[1], 2: proxies[2]})
    ends = dict.fromkeys(range(3), 2_500)
    cluster.bootstrap = proxies[1]
    # Clients find no leader for a third of the topic, ask again, and go on when it is there.
    with ThreadPoolExecutor(3) as pool:
        reads: list[Future[Any]] = [
            pool.submit(read_all, cluster, topic, rows, at=1),
            pool.submit(
                lambda: assert_same(asyncio.run(aiokafka_read(cluster, topic, ends)), rows)
            ),
            pool.submit(lambda: java_read(cluster, topic, 2_500, partition=2)),
        ]
        time.sleep(5)
        cluster.sandbox.start("rlm:3")
        for read in reads:
            read.result(90)
    for at in NODES:
        wait_named(cluster, at, proxies)
    read_all(cluster, topic, rows, at=3)


@pytest.mark.long
def test_h24_without_a_topic_the_clients_of_a_dead_service_come_to_its_broker(
    tmp_path: Path,
) -> None:
    spec = SandboxSpec(brokers=3, jvm="quick", heap_mib=256, attach="rewrite")
    made = Sandbox.up(tmp_path / "sandbox", with_workers(spec))
    try:
        with Cluster(made) as cluster:
            proxies, direct = addresses(cluster, "proxy"), addresses(cluster, "direct")
            wait_named(cluster, 1, proxies)
            made.kill("rlm:3")
            for at in (1, 2):
                wait_named(cluster, at, {**proxies, 3: direct[3]})
            made.start("rlm:3")
            for at in NODES:
                wait_named(cluster, at, proxies)
    finally:
        made.down(delete=True)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_h19_clients_of_a_secured_listener_come_to_the_proxies_alone(tmp_path: Path) -> None:
    """As members of groups that know one proxy; the listener is SASL_SSL, and brokers use it among
    themselves, too.
    """
    spec = SandboxSpec(brokers=3, jvm="quick", heap_mib=256, attach="rewrite", security="sasl_ssl")
    made = Sandbox.up(tmp_path / "sandbox", with_workers(spec))
    try:
        with PrincipalCluster.of_sandbox(made) as cluster:
            _read_past_no_proxy(cluster)
    finally:
        made.down(delete=True)


def _read_past_no_proxy(cluster: PrincipalCluster) -> None:
    proxies, topic = addresses(cluster, "proxy"), fresh("secured")

    def all_are_named() -> bool:
        return all(_named(cluster, one) == proxies for one in proxies.values())

    cluster.wait_for(all_are_named, "each proxy names all proxies")
    rows = trimmed(cluster, topic)
    ends = {row.partition: row.offset + 1 for row in rows}
    read, connected = _group_read(cluster, topic, ends)
    assert_same(read, rows)
    assert connected == set(proxies.values())
    seen: set[str] = set()

    def note_addresses(count: int) -> None:
        if count == len(rows) - _UNREAD:
            seen.update(_connections_of_java())

    cluster.bootstrap = proxies[1]
    properties = Path(cluster.sandbox.json["security"]["reader"]["proxy_client_properties"])
    config = {"auto.offset.reset": "earliest", "group.id": fresh("group")}
    printed, said = java_read(
        cluster,
        topic,
        len(rows),
        partition=None,
        config=config,
        config_file=properties,
        on_row=note_addresses,
    )
    assert sorted(printed) == printable(rows), said
    assert seen == set(proxies.values())


def _named(cluster: PrincipalCluster, address: str) -> dict[int, str]:
    """The brokers as a client of librdkafka learns them at one proxy."""
    with AdminClient({**cluster.of("reader"), "bootstrap.servers": address}) as client:
        found = client.list_topics(timeout=30).brokers.values()
    return {one.id: f"{one.host}:{one.port}" for one in found}


def _group_read(
    cluster: PrincipalCluster, topic: str, ends: Mapping[int, int]
) -> tuple[list[Row], set[str]]:
    """What a group of one member reads that knows node 1's proxy, and where it connected to."""
    connected: set[str] = set()

    def note(statistics: str) -> None:
        for one in json.loads(statistics)["brokers"].values():
            if one["connects"] and one["source"] != "internal" and one["nodename"]:
                connected.add(one["nodename"])

    def is_noted() -> bool:
        consumer.poll(0.1)
        return len(connected) >= len(NODES)

    consumer = Consumer(
        {
            **cluster.of("reader"),
            "bootstrap.servers": addresses(cluster, "proxy")[1],
            "group.id": fresh("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "statistics.interval.ms": 200,
            "stats_cb": note,
        }
    )
    try:
        consumer.subscribe([topic])
        rows = collect(consumer, ends, _READ_LIMIT_S)
        cluster.wait_for(is_noted, "the statistics of all connections")
    finally:
        consumer.close()
    return rows, connected


def _connections_of_java() -> set[str]:
    """The addresses that Kafka's console consumer, a child of this process, is connected to."""
    found: set[str] = set()
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended
            if any(word.endswith("ConsoleConsumer") for word in one.cmdline()):
                found |= {
                    f"{tcp.raddr.ip.removeprefix('::ffff:')}:{tcp.raddr.port}"
                    for tcp in one.net_connections(kind="tcp")
                    if tcp.status == psutil.CONN_ESTABLISHED
                }
    return found


QUESTIONS: tuple[tuple[Api, str, Value], ...] = (
    (METADATA, "brokers", {}),
    (DESCRIBE_CLUSTER, "brokers", {}),
    (FIND_COORDINATOR, "coordinators", {"key": "some-group"}),
)


@pytest.mark.parametrize(
    ("api", "rows", "request_body"), QUESTIONS, ids=[api.name for api, _, _ in QUESTIONS]
)
def test_a_proxy_answers_as_its_broker_but_for_host_and_port(
    attached: Cluster, api: Api, rows: str, request_body: Value
) -> None:
    """Twins: the same question to both, in every version."""
    proxies, direct = addresses(attached, "proxy"), addresses(attached, "direct")
    through_proxy = {direct[node]: proxies[node] for node in NODES}

    async def ask() -> None:
        async with connection(direct[2]) as broker, connection(proxies[2]) as proxy:
            for version in range(api.versions.low, api.versions.high + 1):
                body = dict(request_body)
                if api is FIND_COORDINATOR and version >= 4:
                    body = {"coordinator_keys": ["some-group", "another"]}
                if api is METADATA:
                    body = {"topics": None if version else []}
                before = await answer_of(broker, api, version, body)
                through = await answer_of(proxy, api, version, body)
                beside = await answer_of(broker, api, version, body)
                while before != beside:  # replicas may fall behind, and topics of before may end
                    before = beside
                    through = await answer_of(proxy, api, version, body)
                    beside = await answer_of(broker, api, version, body)
                for one in beside.get(rows) or [beside]:
                    host, port = through_proxy[f"{one['host']}:{one['port']}"].split(":")
                    one |= {"host": host, "port": int(port)}
                assert through == beside

    async def answer_of(client: Any, api: Api, version: int, body: Value) -> Value:
        client.writer.write(client.encode(api, version, body))
        frame = await client.frame()
        _, position = parse_response_header(frame, api, version)
        value, end = decode(api.response, version, frame, position)
        assert end == len(frame)
        assert value.pop("controller_id", 1) in (-1, *NODES)  # any, with KRaft
        return value

    asyncio.run(ask())
