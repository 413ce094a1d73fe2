"""BuildRemoteLogAuxState beside a real broker: it answers what the broker's own files say."""

from typing import Any

import grpc
import pytest

from rlm.api.call_metadata import call_metadata
from rlm.v1 import fetch_pb2 as pb
from rlm.v1.fetch_pb2_grpc import FetchServiceStub
from tests.scenarios.cluster import Cluster, fresh

pytestmark = pytest.mark.integration


def _built(cluster: Cluster, topic: str, end_offset: int) -> Any:
    request = pb.BuildRemoteLogAuxStateRequest(topic=pb.TopicRef(name=topic), end_offset=end_offset)
    with grpc.insecure_channel(cluster.sandbox.json["brokers"][0]["grpc"]) as channel:
        return FetchServiceStub(channel).BuildRemoteLogAuxState(
            request, metadata=call_metadata("tests", None), timeout=60
        )


def test_a_follower_would_begin_with_the_brokers_own_files(one: Cluster) -> None:
    topic = fresh("aux")
    one.create_topic(topic)
    one.enable(topic, "--local-retention-bytes", "1073741824")
    one.fill(topic, mib=3, **{"enable.idempotence": True})
    one.wait_copied(topic)
    folder = one.sandbox.log_dirs(1)[0] / f"{topic}-0"
    starts = sorted(int(path.stem) for path in folder.glob("*.log"))
    _, *ends = starts
    assert len(ends) >= 2
    epochs = (folder / "leader-epoch-checkpoint").read_text().split("\n")[2:-1]
    for start, end in zip(starts, ends, strict=False):
        for end_offset in (start + 1, end):
            found = _built(one, topic, end_offset)
            assert found.next_offset == end
            assert [f"{one.epoch} {one.start_offset}" for one in found.leader_epochs] == epochs
            assert found.producer_snapshot == (folder / f"{end:020}.snapshot").read_bytes()
