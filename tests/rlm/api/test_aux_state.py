"""BuildRemoteLogAuxState over real segments: what a replica begins with behind the remote tier."""

from dataclasses import replace
from typing import Any

import pytest

from kip405.contracts import IndexType
from kip405.errors import Corrupt, NotFound
from kip405.indexes import IndexesObject, build_indexes_object
from kip405.segments import EpochEntry
from rlm.v1 import fetch_pb2 as pb
from tests.builders.ledger import PARTITION
from tests.rlm.api.remote_site import REF, Site


async def build(site: Site, end_offset: int) -> Any:
    request = pb.BuildRemoteLogAuxStateRequest(
        topic=REF, partition=PARTITION.partition, end_offset=end_offset
    )
    return await site.ask("BuildRemoteLogAuxState", request)


def change_indexes(site: Site, start_offset: int, index_type: IndexType, data: bytes) -> None:
    """Another section in the stored indexes of a segment."""
    segment = next(one for one in site.segments() if one.start_offset == start_offset)
    [name] = [one for one in site.rig.store.objects if _is_indexes_of(one, segment.segment_id.id)]
    parsed = IndexesObject.parse(site.rig.store.objects[name])
    sections: dict[IndexType, Any] = {one: parsed.section(one) for one in parsed.types}
    site.rig.store.objects[name] = build_indexes_object({**sections, index_type: data})


def _is_indexes_of(name: str, segment_id: object) -> bool:
    return str(segment_id) in name and name.endswith(".indexes")


@pytest.mark.parametrize(
    ("end_offset", "next_offset"),
    [(1, 100), (99, 100), (100, 100), (101, 250), (249, 250), (250, 250), (251, 400), (400, 400)],
)
async def test_it_ends_with_the_segment_that_holds_the_offset_before(
    site: Site, end_offset: int, next_offset: int
) -> None:
    """RemoteLogManager.fetchRemoteLogSegmentMetadata finds the same one."""
    found = await build(site, end_offset)
    [held] = [one for one in site.segments() if one.next_offset == next_offset]
    assert found.segment_id == held.segment_id.id.raw
    assert found.next_offset == next_offset
    assert [(one.epoch, one.start_offset) for one in found.leader_epochs] == [(0, 0)]
    snapshot = site.rig.disk.file(next_offset, ".snapshot").read_bytes()
    assert found.producer_snapshot == snapshot


@pytest.mark.parametrize("end_offset", [0, -1, 401, 1_000])
async def test_outside_the_remote_tier_there_is_no_state(site: Site, end_offset: int) -> None:
    with pytest.raises(NotFound, match=r"holds offset.*has \[0, 400\)"):
        await build(site, end_offset)


async def test_h02_below_the_remote_log_start_there_is_no_state(site: Site) -> None:
    site.rig.remote_start(150)
    assert (await build(site, 151)).remote_log_start_offset == 150
    with pytest.raises(NotFound, match=r"has \[150, 400\)"):
        await build(site, 150)


async def test_in_a_hole_there_is_no_state(site: Site) -> None:
    site.delete(100)
    with pytest.raises(NotFound, match="offset 249"):
        await build(site, 250)


@pytest.mark.parametrize("data", [b"0\n1\n3 0\n", b"0\n2\n0 0\n"])
async def test_h04_epochs_that_are_not_the_leaders_history_are_refused(
    site: Site, data: bytes
) -> None:
    change_indexes(site, 100, IndexType.LEADER_EPOCH, data)
    with pytest.raises(Corrupt):
        await build(site, 250)


async def test_h04_no_state_is_taken_where_the_history_leaves_a_segment(site: Site) -> None:
    """An unclean election: epoch 1 begins at 200, in the middle of what epoch 0 copied."""
    segment = next(one for one in site.segments() if one.start_offset == 100)
    later = replace(segment.segment_id, id=type(segment.segment_id.id)(b"later-epoch-0001"))
    epochs = (EpochEntry(epoch=1, start_offset=200),)
    site.rig.ledger.write(
        replace(
            segment,
            segment_id=later,
            start_offset=200,
            end_offset=299,
            segment_leader_epochs=epochs,
        ),
        previous=0,
    )
    with pytest.raises(NotFound, match=r"leaves segment .* at offset 200"):
        await build(site, 200)
