"""What a copy's stream hands on to the store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kip405.ids import RemoteLogSegmentId, TopicIdPartition
from kip405.segments import LogSegmentData, SegmentLocator
from rsm_plugins.contract.messages import locator_message
from rsm_plugins.contract.streams import receive_copy
from rsm_plugins.files.segment_files import Spool
from rsm_plugins.files.shared_volume import CallersFolders
from rsm_plugins.threads import FileThreads
from rsm_plugins.v1 import storage_pb2 as pb
from tests.rsm_plugins.harness import new_uuid


class _Recorder:
    def __init__(self) -> None:
        self.copied: list[LogSegmentData] = []

    async def copy_log_segment_data(self, locator: SegmentLocator, data: LogSegmentData) -> bytes:
        self.copied.append(data)
        return b""

    async def write_manifest(self, locator: SegmentLocator, manifest: bytes) -> None:
        raise AssertionError("a copy writes no manifest")


@pytest.mark.parametrize("end_offset", [None, 0, 99])
async def test_the_end_offset_travels_with_a_copy(tmp_path: Path, end_offset: int | None) -> None:
    header = pb.CopyHeader(locator=locator_message(_locator()), end_offset=end_offset)

    async def requests() -> AsyncIterator[pb.CopyLogSegmentDataRequest]:
        yield pb.CopyLogSegmentDataRequest(header=header)

    recorder, threads = _Recorder(), FileThreads(1)
    await receive_copy(
        requests(),
        recorder,
        Spool(tmp_path, threads),
        CallersFolders(None),
    )
    threads.close()
    assert [data.end_offset for data in recorder.copied] == [end_offset]


def _locator() -> SegmentLocator:
    partition_id = TopicIdPartition(topic_id=new_uuid(), topic="t", partition=0)
    identifier = RemoteLogSegmentId(topic_id_partition=partition_id, id=new_uuid())
    return SegmentLocator(
        cluster_id="c", segment_id=identifier, start_offset=0, custom_metadata=None
    )
