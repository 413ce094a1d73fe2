"""A store whose segments are in the layout `pinterest`, and what is there under which name."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kip405.contracts import IndexType, Presence
from kip405.crc import crc32c
from kip405.ids import TopicIdPartition
from kip405.indexes import build_indexes_object
from kip405.segments import FileSlice, LogSegmentData
from rsm_plugins.conformance.subject import StoredSegment, Subject
from tests.builders.pinterest import indexes_of
from tests.kip405.batch_builder import log_of
from tests.rsm_plugins.harness import DirectoryFaults
from tests.rsm_plugins.stores import StoreRig

BOTH = pytest.mark.parametrize("rig", ["local", "s3"], indirect=True)
LOCAL = pytest.mark.parametrize("rig", ["local"], indirect=True)
S3 = pytest.mark.parametrize("rig", ["s3"], indirect=True)
FOLDER = "custom-prefix/01011/kafkaCluster1/topicA-0"
MANIFEST = b'{"v":1}'


@dataclass(frozen=True, slots=True)
class Written:
    """A store whose logs are real batches, with the broker's index files."""

    subject: Subject
    rig: StoreRig

    def partition(self, topic: str = "topicA", number: int = 0) -> TopicIdPartition:
        return self.subject.partition(topic, number)

    def segment(
        self, partition: TopicIdPartition, start_offset: int, records: int = 10
    ) -> StoredSegment:
        """A new attempt."""
        log = log_of(start_offset, [records, records])
        locator = self.subject.locator(partition, start_offset)
        source = self.subject.folder / f"{locator.segment_id.id}.source"
        source.write_bytes(log)
        offsets, times = indexes_of(start_offset, log)
        indexes = build_indexes_object(
            {
                IndexType.OFFSET: offsets,
                IndexType.TIMESTAMP: times,
                IndexType.PRODUCER_SNAPSHOT: b"",
                IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
            }
        )
        data = LogSegmentData(
            log=FileSlice(path=str(source), position=0, size_bytes=len(log)),
            log_crc32c=crc32c(log),
            indexes=indexes,
            indexes_crc32c=crc32c(indexes),
        )
        return StoredSegment(locator=locator, data=data, log=log)

    async def stored(
        self, partition: TopicIdPartition, start_offset: int, records: int = 10
    ) -> StoredSegment:
        """A complete one, with what the copy answered in its locator."""
        segment = self.segment(partition, start_offset, records)
        await self.subject.complete(segment)
        return replace(segment, locator=self.subject.expected(segment).locator)

    async def delete(self, segment: StoredSegment) -> None:
        await self.subject.manager.delete_log_segment_data(segment.locator)

    async def check(self, segment: StoredSegment) -> None:
        """Its own bytes are read, and it is complete."""
        found = await self.subject.fetch(segment.locator, 0, 1 << 40)
        assert found == segment.log
        assert (await self.subject.presence(segment)).presence is Presence.COMPLETE

    def path(self, name: str) -> Path:
        hands = self.rig.hands
        assert isinstance(hands, DirectoryFaults)
        return hands.path_of(name)

    def view(self, start_offset: int, suffix: str = "log") -> bytes:
        return self.path(f"{FOLDER}/{start_offset:020d}.{suffix}").read_bytes()

    def watermark(self) -> bytes:
        return self.path(f"{FOLDER}/offset.wm").read_bytes()

    def views(self) -> list[str]:
        return [name for name in self.rig.hands.names() if name.startswith("custom-prefix/")]
