"""Transactions across the trim point: what was aborted stays aborted, whoever uploads what (H9)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from rlm_sandbox.sandbox import Sandbox
from rlm_sandbox.spec import SandboxSpec
from tests.sandbox_fixtures import with_workers
from tests.scenarios.cluster import Cluster, Row, assert_same, fresh, row_of, text_value
from tests.scenarios.java import java_read, printable
from tests.scenarios.objects import finished_segments
from tests.scenarios.replicas import disk, reassign, wait_leader
from tests.scenarios.test_h38_problems import Operator

pytestmark = pytest.mark.integration

_LIMIT_S = 120
COMMITTED: dict[str, Any] = {"isolation.level": "read_committed"}
UNCOMMITTED: dict[str, Any] = {"isolation.level": "read_uncommitted"}


class Transaction:
    """One open transaction of an own producer."""

    def __init__(self, cluster: Cluster, topic: str, name: str) -> None:
        self.rows: list[Row] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "transactional.id": f"{topic}-{name}",
                # Open until a test ends it, however slow the machine is.
                "transaction.timeout.ms": 600_000,
            }
        )
        self._producer.init_transactions(_LIMIT_S)
        self._producer.begin_transaction()

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self._topic, value=text_value(), key=b"tx", partition=0, on_delivery=self._delivered
            )
        assert self._producer.flush(_LIMIT_S) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.rows.append(row_of(message))

    def abort(self) -> None:
        self._producer.abort_transaction(_LIMIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(_LIMIT_S)


@pytest.mark.kafka_scenario("TransactionsWithTieredStore")
def test_h09_abort_straddles_the_trim_point_and_a_new_replica_uploads_its_marker(
    three: Cluster,
) -> None:
    """`early` has records only below the trim point, `both` also above it; both markers are above.

    The replica that uploads the markers' segment was made after the trim and knows neither
    transaction's beginning.
    """
    topic = fresh("h09")
    three.create_topic(topic, assignment=[[1]])
    three.enable(topic)
    early, both = Transaction(three, topic, "early"), Transaction(three, topic, "both")
    plain = three.fill(topic, mib=1)
    early.produce(200)
    both.produce(100)
    kept = Transaction(three, topic, "kept")
    kept.produce(100)
    kept.commit()
    plain += three.fill(topic, mib=3)
    both.produce(50)
    early.abort()
    both.abort()
    markers = both.rows[-1].offset + 1  # brokers write them after they answered
    three.wait_for(lambda: three.log_end(topic) == markers + 2, "both markers")
    trimmed_to = three.wait_trimmed(topic, beyond=early.rows[-1].offset)
    assert both.rows[99].offset < trimmed_to < both.rows[100].offset

    reassign(three, topic, [2])
    wait_leader(three, topic, 2)
    assert disk(three, topic, 2).segments[0].base_offset >= trimmed_to
    plain += three.fill(topic, mib=4)
    three.wait_trimmed(topic, beyond=markers + 2)

    [uploaded] = [
        one
        for one in finished_segments(three, topic)
        if one.start_offset <= markers <= one.end_offset
    ]
    assert uploaded.broker_id == 2
    committed = sorted([*plain, *kept.rows], key=lambda row: row.offset)
    everything = sorted([*committed, *early.rows, *both.rows], key=lambda row: row.offset)
    read = three.read_all(topic, **COMMITTED)
    assert_same(read, committed)
    assert_same(three.read_all(topic, **UNCOMMITTED), everything)
    printed, _ = java_read(three, topic, len(committed))
    assert printed == printable(committed)
    printed, _ = java_read(three, topic, len(everything), isolation="read_uncommitted")
    assert printed == printable(everything)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without what other tests have left behind, which has problems by the hundred."""
    up = Sandbox.up(tmp_path / "alone", with_workers(SandboxSpec(jvm="quick")))
    try:
        with Cluster(up) as cluster:
            yield cluster
    finally:
        up.down(delete=True)


def test_h18_the_transaction_that_keeps_segments_from_being_copied_is_named(alone: Cluster) -> None:
    topic, operator = fresh("pinned"), Operator(alone)
    alone.create_topic(topic)
    alone.enable(topic)
    hanging = Transaction(alone, topic, "hanging")
    hanging.produce(10)
    alone.fill(topic, mib=3)
    start = hanging.rows[0].offset

    def found() -> list[str]:
        _, answer = operator.status(topic)  # the health shows a hundred problems at most
        rows = answer["problems"]
        kinds = ("open-transaction", f"{topic}-0")
        return [row["text"] for row in rows if (row["kind"], row["subject"]) == kinds]

    named = f"from offset {start} on"
    alone.wait_for(lambda: any(named in text for text in found()), "its name", timeout_s=180)
    pinned = f'rlm_last_stable_offset_pinned_seconds{{partition="0",topic="{topic}"}} '
    assert pinned in operator.get("/metrics")
    hanging.abort()
    alone.wait_for(lambda: found() == [], "the end of the problem")
    alone.wait_copied(topic)
