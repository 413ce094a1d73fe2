"""DescribeRemoteLog of REMOTE_ONLY: what a client may read from the store, from an offset on."""

from typing import Any

import pytest

from kip405.errors import Fenced, Invalid, NotFound, OffsetOutOfRange
from rlm.v1 import fetch_pb2 as pb
from rlmm.ledger_values import decode_value
from tests.rlm.api.remote_site import REF, Site


async def window(site: Site, start_offset: int = 0, **fields: Any) -> pb.RemoteLog:
    given = {"topic": REF, "tiers": pb.REMOTE_ONLY, **fields}
    request = pb.DescribeRemoteLogRequest(start_offset=start_offset, **given)
    found: pb.RemoteLog = await site.ask("DescribeRemoteLog", request)
    return found


def bounds(found: pb.RemoteLog) -> list[tuple[int, int]]:
    return [
        (decode_value(row.segment_metadata).start_offset, row.next_offset) for row in found.segments
    ]


async def test_a_reader_lists_from_an_offset_on(site: Site) -> None:
    found = await window(site)
    assert bounds(found) == [(0, 100), (100, 250), (250, 400)]
    assert (found.tiers, found.remote_log_start_offset) == (pb.REMOTE_ONLY, 0)
    metadata = [decode_value(row.segment_metadata) for row in found.segments]
    assert metadata == site.segments()
    assert bounds(await window(site, 130)) == [(100, 250), (250, 400)]
    assert bounds(await window(site, 0, max_segments=2)) == [(0, 100), (100, 250)]
    assert bounds(await window(site, 400)) == bounds(await window(site, 9_999)) == []
    assert not any(row.HasField("shared_end_offset") for row in found.segments)


async def test_h15_the_list_ends_before_a_hole(site: Site) -> None:
    site.delete(100)
    assert bounds(await window(site)) == [(0, 100)]
    assert bounds(await window(site, 130)) == []
    assert bounds(await window(site, 250)) == [(250, 400)]


async def test_a_segment_that_is_being_deleted_is_not_listed(site: Site) -> None:
    site.begin_delete(site.segments()[1])
    assert bounds(await window(site)) == [(0, 100)]


async def test_refusals(site: Site) -> None:
    site.rig.remote_start(120)
    with pytest.raises(OffsetOutOfRange) as raised:
        await window(site, 119)
    assert raised.value.log_start_offset == 120
    assert bounds(await window(site, 120)) == [(100, 250), (250, 400)]
    with pytest.raises(NotFound, match="nope is not enabled"):
        await window(site, topic=pb.TopicRef(name="nope"))
    for fields in ({"max_segments": -1}, {"max_segments": 9_999}, {"start_offset": -1}):
        with pytest.raises(Invalid):
            await window(site, **{"start_offset": 120, **fields})
    with pytest.raises(Fenced, match="this is a reader"):
        await window(site, tiers=pb.ALL_TIERS)


async def test_h04_a_segment_ends_where_it_leaves_the_history(site: Site) -> None:
    """Of the second copy the first 50 offsets count, and what it says of transactions up to 200."""
    site.end_second_at_200()
    found = await window(site, 100)
    assert bounds(found) == [(100, 200), (200, 300)]
    assert found.segments[0].shared_end_offset == 200
    assert not found.segments[1].HasField("shared_end_offset")
