"""A broker's service and a reader answer the remote tier alone, with Kafka and without."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from kip405.batches import batch_headers
from kip405.records import records
from rlm.api.call_metadata import call_metadata
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.status import error_of_call
from tests.builders.log_starts import raise_log_start
from tests.sandbox_fixtures import SandboxFactory
from tests.scenarios.cluster import Cluster, Row, fresh

pytestmark = pytest.mark.integration

_WHO = call_metadata("tests", None)
_TIMEOUT_S = 120
_SEGMENT_ROWS = 1024
"""At least as many as a segment of 1 MiB holds."""
# Otherwise the client takes a whole stream in before the test asks for its second piece.
_SHORT_READ_AHEAD = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16))


class Endpoint:
    """The API of one service, asked for the remote tier of one topic's partition 0."""

    def __init__(self, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic

    @contextmanager
    def stub(self) -> Iterator[Any]:
        with grpc.insecure_channel(self.address, options=_SHORT_READ_AHEAD) as channel:
            try:
                yield FetchServiceStub(channel)
            except grpc.RpcError as error:
                raise error_of_call(error, f"service at {self.address}") from error

    def ask(self, name: str, request: object) -> Any:
        with self.stub() as stub:
            return getattr(stub, name)(request, metadata=_WHO, timeout=_TIMEOUT_S)

    def position(self, timestamp: int) -> int:
        request = pb.ListOffsetsRequest(
            topic=pb.TopicRef(name=self.topic), timestamp=timestamp, tiers=pb.REMOTE_ONLY
        )
        return int(self.ask("ListOffsets", request).offset)

    def stream(self, stub: Any, start_offset: int, **fields: Any) -> Any:
        request = pb.FetchRequest(
            topic=pb.TopicRef(name=self.topic),
            start_offset=start_offset,
            tiers=pb.REMOTE_ONLY,
            **fields,
        )
        return stub.Fetch(request, metadata=_WHO, timeout=_TIMEOUT_S)

    def read(self, start_offset: int = 0, **fields: Any) -> list[pb.FetchResponse]:
        with self.stub() as stub:
            return list(self.stream(stub, start_offset, **fields))


def _content(answers: list[pb.FetchResponse]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for answer in answers
        for start, _ in batch_headers(answer.batches)
        for record in records(answer.batches, start)
    ]


def _of(rows: list[Row]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row.offset, row.key, row.value) for row in rows]


def _health(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=_TIMEOUT_S) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


@pytest.fixture
def cluster(sandbox_factory: SandboxFactory) -> Iterator[Cluster]:
    """With a reader beside the broker."""
    with Cluster(sandbox_factory(readers=1)) as made:
        yield made


def test_the_remote_tier_alone_from_service_and_reader(cluster: Cluster) -> None:
    topic = fresh("reads")
    cluster.create_topic(topic)
    cluster.enable(topic)
    rows = _of(cluster.fill(topic, mib=6))
    cluster.wait_trimmed(topic, beyond=2048)
    sandbox = cluster.sandbox
    (reader,) = sandbox.json["readers"]
    (broker,) = sandbox.json["brokers"]
    both = [Endpoint(broker["grpc"], topic), Endpoint(reader["grpc"], topic)]

    _both_are_found(cluster, both)
    _status_shows_the_reader(cluster, reader["grpc"])
    closed = len(rows) - _SEGMENT_ROWS
    cluster.wait_for(
        lambda: all(one.position(-1) > closed for one in both), "all that is closed is remote"
    )
    end = both[0].position(-1)
    for one in both:
        assert _content(one.read()) == rows[:end]
        assert _content(one.read(100, end_offset=200))[-1][0] >= 199

    sandbox.stop("broker:1")
    for one in both:
        assert one.position(-1) == end
        assert one.position(-2) == 0
        assert _content(one.read()) == rows[:end]
        _planned(one, topic, end)
    assert _health(reader["http"])["ready"]
    sandbox.start("broker:1")
    cluster.wait_for(lambda: cluster.leader(topic) == 1, "a leader again")

    _a_start_that_moves_up_ends_streams(cluster, both, topic, rows[:end])
    sandbox.stop("reader:1")
    assert [row.state for row in sandbox.status() if row.name == "reader:1"] == ["stopped"]


def _both_are_found(cluster: Cluster, both: list[Endpoint]) -> None:
    """Each endpoint names itself and the other one, which has published a heartbeat."""
    expected = {("broker", both[0].address), ("reader", both[1].address)}

    def is_known_to_both() -> bool:
        asked = pb.DescribeEndpointsRequest()
        answers = [one.ask("DescribeEndpoints", asked).endpoints for one in both]
        return all({(row.role, row.grpc_address) for row in rows} == expected for rows in answers)

    cluster.wait_for(is_known_to_both, "both services are known to each other")


def _status_shows_the_reader(cluster: Cluster, address: str) -> None:
    """Apart from the services: nothing that counts those counts it."""
    found = cluster.rlm_json("status")
    assert [row["node_id"] for row in found["services"]] == [1]
    assert [row["grpc_address"] for row in found["readers"]] == [address]
    assert address in cluster.rlm("status").stdout


def _planned(one: Endpoint, topic: str, end: int) -> None:
    answer = one.ask("DescribeTopics", pb.DescribeTopicsRequest(topics=[topic]))
    (row,) = answer.topics[0].partitions
    assert (row.partition, row.remote_log_start_offset, row.remote_next_offset) == (0, 0, end)


def _a_start_that_moves_up_ends_streams(
    cluster: Cluster,
    both: list[Endpoint],
    topic: str,
    rows: list[tuple[int, bytes | None, bytes | None]],
) -> None:
    """Each has taken a first piece below the new start and then learns where to go on."""
    new_start = len(rows) - 100
    one, other = both
    with one.stub() as left, other.stub() as right:
        streams = [
            one.stream(left, 0, max_bytes=1 << 17),
            other.stream(right, 0, max_bytes=1 << 17),
        ]
        assert all(next(stream).next_offset < new_start for stream in streams)
        assert raise_log_start(cluster.direct, topic, 0, new_start) == new_start
        cluster.wait_for(
            lambda: all(endpoint.position(-2) == new_start for endpoint in both), "both know it"
        )
        for stream in streams:
            with pytest.raises(grpc.RpcError) as refused:
                last = [answer.next_offset for answer in stream]
                raise AssertionError(f"{last} and no error")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"log_start_offset={new_start}" in str(refused.value.details())
    for endpoint in both:
        assert _content(endpoint.read(new_start))[-1] == rows[-1]
