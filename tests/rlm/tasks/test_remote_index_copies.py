"""What a leader keeps of a segment that it copied is what others make of the store's objects."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kip405.contracts import IndexType
from kip405.errors import Unavailable
from kip405.indexes import IndexesObject
from kip405.remote_index import decode_entries
from kip405.segments import RemoteLogSegmentMetadata
from rlm.reading.remote_index import FOLDER, RemoteIndexFiles, RemoteIndexLimits
from rlm.reading.remote_index_partition import Rotation
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.rig import Rig
from tests.builders.store import STORE_ID
from tests.builders.threads import THREADS, all_of, some_threads

LIMITS = RemoteIndexLimits(
    rotation=Rotation(segment_bytes=1 << 20, segment_ms=1 << 40), most_bytes=1 << 20
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """With three segments copied. One thread writes their entries, as in a service: in order."""
    with some_threads(1) as one:
        made = Rig(tmp_path, threads=replace(all_of(THREADS), remote_index=one))
        made.write_log(0, 100, 200, 300, end=350)
        await made.copy.run(made.led)
        await made.remote_index.written()
        yield made


def files_below(root: Path) -> dict[str, bytes]:
    folder = root / FOLDER
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def segments(rig: Rig) -> list[RemoteLogSegmentMetadata]:
    found = [entry.metadata for entry in rig.ledger.view.entries.values()]
    return sorted(found, key=lambda one: one.start_offset)


def indexes_object(rig: Rig, segment: RemoteLogSegmentMetadata) -> bytes:
    return rig.store.objects[object_name(segment.locator(CLUSTER_ID), ObjectKind.INDEXES)]


async def test_rebuilt_from_the_store_equals_built_by_the_leader(rig: Rig, tmp_path: Path) -> None:
    by_leader = files_below(rig.state_dir)
    assert sorted(by_leader) == [
        f"{0:020d}.{suffix}"
        for suffix in (
            "remotelogindex",
            "remoteoffsetindex",
            "remotesegmentindex",
            "remotetimeindex",
        )
    ]
    follower = RemoteIndexFiles(tmp_path / "follower", LIMITS, lambda: 0)
    for segment in segments(rig):
        follower.keep(segment, indexes_object(rig, segment))
    assert files_below(tmp_path / "follower") == by_leader
    assert len(rig.remote_index.keys()) == len(follower.partition_of) == 3


async def test_entries_name_the_object_and_cover_it(rig: Rig) -> None:
    for segment in segments(rig):
        name = object_name(segment.locator(CLUSTER_ID), ObjectKind.LOG)
        section = IndexesObject.parse(indexes_object(rig, segment)).section(
            IndexType.REMOTE_LOG_INDEX
        )
        assert section is not None
        position, offset = 0, segment.start_offset
        entries = [entry for _, entry in decode_entries(section)]
        for entry in entries:
            assert entry.rdi == f"{STORE_ID}/{name}?{position}"
            assert entry.first_offset == offset
            position, offset = position + entry.data_size_bytes, entry.last_offset + 1
        assert (position, offset) == (segment.segment_size_bytes, segment.next_offset)
        assert max(entry.last_timestamp_ms for entry in entries) == segment.max_timestamp_ms
        assert len(entries) > 1


async def test_an_attempt_that_failed_is_not_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.write_log(0, 100, end=150)
    rig.store.delays_manifests = True
    with pytest.raises(Unavailable):
        await rig.copy.run(rig.led)
    await rig.remote_index.written()
    assert not rig.remote_index.keys()
