"""ListOffsets of Kafka's protocol and of the gRPC API: one question, one answer."""

from typing import Any

import pytest
from grpc import aio

from kip405.errors import Fenced, Unavailable
from rlm.api.call_metadata import call_metadata
from rlm.reading.values import TimestampedOffset
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from rsm_plugins.contract.status import error_of_call
from tests.builders.log_dir import TOPIC as API_TOPIC
from tests.rlm.api.harness import Log, api_node, channel_to
from tests.rlm.proxy.fakes import FakeTier, tier_partition, world
from tests.rlm.proxy.test_positions import list_offset
from tests.rlm.topics.cluster import Cluster

NOTHING_REMOTE = {"remote_next": 0}
UNSETTLED = {"remote_next": 0, "unsettled_next": 100}
FROZEN = {"frozen": True}
_VIEW_FIELDS = {
    "remote_next": "remote_next_offset",
    "unsettled_next": "unsettled_next_offset",
    "frozen": "frozen",
}


async def of_the_proxy(log: dict[str, Any], timestamp: int) -> int | None:
    """The offset, None where the answer makes clients ask again."""
    view = tier_partition(**{_VIEW_FIELDS[name]: value for name, value in log.items()})
    found = TimestampedOffset(offset=9, timestamp_ms=1_000, leader_epoch=2)
    async with world(FakeTier(partitions={0: view}, timestamped=found)) as w:
        error_code, offset, _ = await list_offset(w, 11, timestamp)
    assert error_code in (0, 5)
    return None if error_code else offset


async def of_the_api(log: dict[str, Any], timestamp: int) -> int | None:
    """Likewise."""
    cluster = Cluster()
    whole = Log(**{"remote_next": 100, "local_start": 100, "end": 120, "last_stable": 120, **log})
    request = pb.ListOffsetsRequest(topic=pb.TopicRef(name=API_TOPIC), timestamp=timestamp)
    async with api_node(cluster, log=whole) as node, channel_to(node.address) as channel:
        try:
            answer = await FetchServiceStub(channel).ListOffsets(
                request, metadata=call_metadata("tests", None)
            )
        except aio.AioRpcError as error:
            assert isinstance(
                error_of_call(error, f"service at {node.address}"), Unavailable | Fenced
            )
            return None
    return int(answer.offset)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-2, 100), (-4, 100), (-5, -1), (-6, -1), (1_000, 120)]
)
async def test_a_topic_that_is_not_tiered_has_the_offsets_of_its_broker(
    timestamp: int, offset: int
) -> None:
    assert await of_the_api({"is_tiered": False}, timestamp) == offset


@pytest.mark.parametrize("timestamp", [-2, -4, -5, -6, 1_000])
@pytest.mark.parametrize("log", [{}, NOTHING_REMOTE, UNSETTLED, FROZEN])
async def test_h15_the_api_lists_the_offsets_that_the_proxy_lists(
    log: dict[str, Any], timestamp: int
) -> None:
    assert await of_the_api(log, timestamp) == await of_the_proxy(log, timestamp)


@pytest.mark.parametrize("timestamp", [-2, 1_000])
async def test_h15_the_oldest_offset_is_refused_before_the_remote_data_is_settled(
    timestamp: int,
) -> None:
    assert await of_the_api(UNSETTLED, timestamp) is None
