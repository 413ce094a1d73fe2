"""A bucket is readable without its cluster: `rlm attach` serves what a service served."""

from pathlib import Path

import pytest

from rlm.v1 import fetch_pb2 as pb
from tests.builders.attached_process import attached_reader
from tests.scenarios.attached import assert_served_alike, content
from tests.scenarios.cluster import Cluster, fresh
from tests.scenarios.faults import store_dir
from tests.scenarios.test_reader_role import Endpoint
from tests.scenarios.test_transactions import Transaction

pytestmark = pytest.mark.integration


def test_an_attached_reader_serves_what_the_service_serves(one: Cluster, tmp_path: Path) -> None:
    topic = fresh("attached")
    one.create_topic(topic)
    one.enable(topic)
    transaction = Transaction(one, topic, "aborted")
    transaction.produce(100)
    rows = one.fill(topic, mib=1)
    transaction.abort()
    rows += one.fill(topic, mib=2)
    one.wait_copied(topic)
    (broker,) = one.sandbox.json["brokers"]
    service = Endpoint(broker["grpc"], topic)
    with attached_reader(tmp_path, store_dir(one)) as reader:
        served = Endpoint(reader.address, topic)
        end = served.position(-1)
        assert end > len(rows) // 2
        assert_served_alike(served, service, end)
        _, aborted, _ = content(served, 0, end, pb.READ_COMMITTED)
        assert len(aborted) == 1
        timestamp = rows[len(rows) // 4].timestamp_ms
        assert served.position(timestamp) == service.position(timestamp) > 0
