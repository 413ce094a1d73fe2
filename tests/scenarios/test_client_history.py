"""Clients that are shown a part of the past beside one that is shown all of it, and who they are.

One broker, without proxy workers and with two. Everything in it reads by groups with
auto.offset.reset=earliest, as a new application does.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import Override, SandboxSpec
from tests.endings import ended_early
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh, row_of, text_value
from tests.scenarios.cluster_state import commit
from tests.scenarios.java import java_read, printable
from tests.scenarios.test_h38_problems import Operator
from tests.service_log import events_of

pytestmark = pytest.mark.integration

_DAY_MS = 86_400_000
_LIMIT_S = 120
_RULES = "[{client.ids: 'local-.*', history: local}, {client.ids: 'window-.*', history: 1d}]"
_OLD, _NEW = 3 * 1024, 5 * 1024
"""Records of two days ago, and of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    cluster: Cluster
    topic: str
    rows: list[Row]
    local_start: int


@pytest.fixture(scope="module", params=["0", "2"])
def archive(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Archive]:
    rules = Override(scope="rlm", key="proxy.history.rules", value=_RULES)
    spec = with_workers(SandboxSpec(jvm="quick", overrides=(rules,)), request.param)
    made = Sandbox.up(tmp_path_factory.mktemp("history"), spec)
    with ended_early(request, made.down), Cluster(made) as cluster:
        topic = fresh("history")
        cluster.create_topic(topic)
        cluster.enable(topic)
        rows = _fill(cluster, topic)
        cluster.wait_trimmed(topic, beyond=_OLD + 1024)
        yield Archive(
            cluster=cluster,
            topic=topic,
            rows=rows,
            local_start=cluster.wait_settled(topic),
        )


def _fill(cluster: Cluster, topic: str) -> list[Row]:
    rows: list[Row] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        rows.append(row_of(message))

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "batch.size": 32_768}
    )
    now_ms = int(time.time() * 1000)
    for number in range(_OLD + _NEW):
        is_old = number < _OLD
        producer.produce(
            topic,
            key=b"key-%d" % number,
            value=text_value(),
            partition=0,
            timestamp=now_ms - (2 * _DAY_MS if is_old else 0),
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(_LIMIT_S) == 0
    return sorted(rows, key=lambda row: row.offset)


def _consumer(archive: Archive, client_id: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": archive.cluster.bootstrap,
            "client.id": client_id,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def _read(consumer: Consumer, archive: Archive) -> list[Row]:
    """Everything to the end of the log, from wherever the group begins."""
    rows: list[Row] = []
    deadline = time.monotonic() + _LIMIT_S
    consumer.subscribe([archive.topic])
    while not rows or rows[-1].offset + 1 < len(archive.rows):
        assert time.monotonic() < deadline, f"{len(rows)} rows, {rows[-1:]}"
        message: Any = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            rows.append(row_of(message))
    return rows


def _window_start(archive: Archive) -> int:
    """As a client learns it."""
    consumer = _consumer(archive, "window-asks", fresh("asks"))
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(archive.topic, 0), timeout=_LIMIT_S)
        return int(low)
    finally:
        consumer.close()


def test_librdkafka_begins_where_its_client_id_may(archive: Archive) -> None:
    begins = _window_start(archive)
    assert 0 < begins <= _OLD  # whole segments
    for client_id, start in (
        ("all", 0),
        ("window-1", begins),
        ("local-1", archive.local_start),
    ):
        consumer = _consumer(archive, client_id, fresh("group"))
        try:
            assert_same(_read(consumer, archive), archive.rows[start:])
        finally:
            consumer.close()


def test_java_begins_where_its_client_id_may(archive: Archive) -> None:
    begins = _window_start(archive)
    for client_id, start in (
        ("all", 0),
        ("window-java", begins),
        ("local-java", archive.local_start),
    ):
        printed, said = java_read(
            archive.cluster,
            archive.topic,
            len(archive.rows) - start,
            partition=None,
            config={
                "client.id": client_id,
                "group.id": fresh("java"),
                "auto.offset.reset": "earliest",
            },
        )
        assert printed == printable(archive.rows[start:]), said[-2_000:]


def test_a_committed_position_below_stays_and_its_client_gets_an_error(archive: Archive) -> None:
    group = fresh("behind")
    client = {"bootstrap.servers": archive.cluster.bootstrap}
    commit(archive.cluster, client, group, archive.topic, 5)
    limited = _consumer(archive, "local-2", group, **{"auto.offset.reset": "error"})
    limited.subscribe([archive.topic])
    try:
        deadline = time.monotonic() + _LIMIT_S
        error = None
        while error is None:
            assert time.monotonic() < deadline
            message: Any = limited.poll(1)
            assert message is None or message.error() is not None, message.offset()
            error = None if message is None else message.error()
        assert error.code() == KafkaError._AUTO_OFFSET_RESET, error
        [found] = limited.committed([TopicPartition(archive.topic, 0)], timeout=_LIMIT_S)
        assert found.offset == 5
    finally:
        limited.close()
    again = _consumer(archive, "all", group)
    try:
        assert_same(_read(again, archive), archive.rows[5:])
    finally:
        again.close()


def test_rlm_clients_shows_who_reads_and_who_reads_past_the_proxy(archive: Archive) -> None:
    group, past = fresh("seen"), fresh("past")
    direct = {"bootstrap.servers": archive.cluster.direct}
    commit(archive.cluster, direct, past, archive.topic, 7)
    consumer = _consumer(archive, "reader-1", group)
    try:
        _read(consumer, archive)
        size_bytes = sum(len(one.key or b"") + len(one.value or b"") for one in archive.rows)
        row: dict[str, Any] = {}

        def is_shown() -> bool:
            """Workers report now and then, so the last bytes are there after the group."""
            answer = archive.cluster.rlm_json("clients", archive.topic)
            rows = [one for one in answer["clients"] if one["client_id"] == "reader-1"]
            row.update(rows[0] if rows else {}, answer=answer)
            read_bytes = sum(
                one["remote_bytes"] + one["local_bytes"] for one in row.get("topics", ())
            )
            return row.get("groups") == [group] and read_bytes > size_bytes

        archive.cluster.wait_for(is_shown, "the reader, its group and all that it read")
        assert row["connections"] >= 1
        assert row["software"][0].startswith("confluent-kafka-python")
        [read] = row["topics"]
        assert read["topic"] == archive.topic
        assert read["remote_bytes"] > archive.local_start * 1024
        direct_groups = {one["group"]: one["positions"] for one in row["answer"]["direct_groups"]}
        assert direct_groups[past] == [{"partition": 0, "offset": 7}]
        assert group not in direct_groups
        shown = archive.cluster.rlm("clients", archive.topic).stdout
        assert group in shown and past in shown and "reader-1" in shown
    finally:
        consumer.close()
    operator = Operator(archive.cluster)
    counter = 'rlm_proxy_remote_readers_total{kind="group"} '

    def groups() -> float:
        lines = operator.get("/metrics").splitlines()
        return sum(float(one.removeprefix(counter)) for one in lines if one.startswith(counter))

    archive.cluster.wait_for(lambda: groups() >= 1, "the group is counted")
    archive.cluster.wait_for(lambda: bool(_entered(archive, group)), "the line of the group")
    [entered] = _entered(archive, group)
    assert (entered["kind"], entered["client_id"]) == ("group", "reader-1")
    assert (entered["address"], entered["principal"]) == ("127.0.0.1", "")
    # Proxy workers may report what was read before another one reports the group.
    assert entered["topic"] in (archive.topic, "")


def _entered(archive: Archive, group: str) -> list[dict[str, Any]]:
    """The lines that say that the group gets remote data."""
    lines = events_of(archive.cluster.sandbox.layout.log("rlm:1"))
    found = (line for line in lines if line["event"] == "remote_reader_entered")
    return [line for line in found if line["name"] == group]


def test_a_topic_that_is_not_there(archive: Archive) -> None:
    done = archive.cluster.rlm("clients", "nothing", check=False)
    assert done.returncode == 1 and "nothing" in done.stderr
