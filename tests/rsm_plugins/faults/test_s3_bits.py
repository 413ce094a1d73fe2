"""Flipped bits on the way back from S3: through the service's reader no corrupt byte is served, by
chunk and index checksums; what has no checksum of ours is proved by S3's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kip405.errors import Corrupt, NotFound, RemoteStorageError, Unavailable
from kip405.segments import RemoteLogSegmentMetadata
from rlm.clock import SystemClock
from rlm.plans.fetch import ReadBounds
from rlm.reading.reader import RemoteReader
from rlm.reading.values import ReadLimits
from rsm_plugins.layout.keys import ObjectKind, object_name
from tests.builders.cutting_actions import (
    Action,
    Answer,
    FlipAnswer,
    ResetAnswer,
    ShortBody,
    StallAnswer,
    WrongLength,
)
from tests.builders.log_dir import CLUSTER_ID
from tests.builders.remote_segment import store_segment
from tests.builders.threads import some_threads
from tests.kip405.batch_builder import batch
from tests.rsm_plugins.faults.cut_store import CutStore, cut_store
from tests.rsm_plugins.faults.operations import BY_NAME
from tests.rsm_plugins.stores import BucketFaults
from tests.store_servers import S3Server

CHUNK = 4_096
RECORDS = 40
FLIPPED = pytest.param(FlipAnswer(position=900), id="flipped")
MENDED = pytest.param(FlipAnswer(position=900, mended=True), id="flipped_and_mended")
FIRST = pytest.param(FlipAnswer(position=0, mended=True), id="first_bit_flipped")
SHORT = pytest.param(ShortBody(missing_bytes=700), id="shorter_than_it_says")
CUT = pytest.param(WrongLength(missing_bytes=700), id="says_it_is_shorter")
RESET = pytest.param(ResetAnswer(after_bytes=900), id="reset")
STALLED = pytest.param(StallAnswer(after_bytes=900), id="stalled")
MISSING = pytest.param(Answer(status=404, code="NoSuchKey"), id="missing")
STALLED_LONG = pytest.param(StallAnswer(after_bytes=900), id="stalled", marks=pytest.mark.long)


KINDS: dict[type, tuple[type[RemoteStorageError], ...]] = {
    FlipAnswer: (Corrupt,),
    Answer: (NotFound,),
    WrongLength: (Corrupt, Unavailable),  # a range is short; a whole object lacks its CRC-32C
}


def a_log() -> bytes:
    return b"".join(batch(n, 1, value=bytes([n]) * 1_000) for n in range(RECORDS))


@asynccontextmanager
async def reading(store: CutStore) -> AsyncIterator[RemoteReader]:
    """The service's reader over the store, with nothing cached."""
    with some_threads(2) as threads:
        async with asyncio.TaskGroup() as tasks:
            yield RemoteReader(
                store=store.subject.manager,
                cluster_id=CLUSTER_ID,
                tasks=tasks,
                threads=threads,
                clock=SystemClock(),
                limits=ReadLimits(memory_bytes=1 << 26),
            )


async def read_all(
    reader: RemoteReader, segment: RemoteLogSegmentMetadata, served: list[bytes] | None = None
) -> bytes:
    """The whole segment, as a consumer reads it; `served` gets what comes before an error."""
    found = [] if served is None else served
    offset = 0
    while offset < RECORDS:
        bounds = ReadBounds(
            offset=offset, upper_offset=RECORDS, max_bytes=10_000, at_least_one=True
        )
        answer = await reader.read(segment, bounds, read_committed=False)
        found.append(b"".join(answer.records))
        assert answer.next_offset > offset
        offset = answer.next_offset
    return b"".join(found)


async def stored(store: CutStore, folder: Path, log: bytes) -> RemoteLogSegmentMetadata:
    segment = await store_segment(store.subject.manager, folder, log, chunk_size_bytes=CHUNK)
    store.proxy.forget()
    return segment


@pytest.mark.parametrize("damage", [FLIPPED, MENDED, FIRST, SHORT, CUT, RESET, STALLED, MISSING])
async def test_no_corrupt_byte_is_served(
    damage: Action, s3_server: S3Server, tmp_path: Path
) -> None:
    """Damaged once, the reader asks again and serves what was stored."""
    log = a_log()
    async with cut_store(s3_server, tmp_path) as store:
        segment = await stored(store, tmp_path, log)
        for skip in range(3):  # whichever of the first answers it is: indexes or a range of the log
            async with reading(store) as reader:
                scripted = store.proxy.script(damage, "GetObject", skip=skip)
                assert await read_all(reader, segment) == log
            assert scripted.hits <= 1
        assert store.proxy.requests["GetObject"] > 3


@pytest.mark.parametrize(
    "damage", [FLIPPED, MENDED, FIRST, SHORT, CUT, RESET, STALLED_LONG, MISSING]
)
async def test_damage_that_lasts_is_an_error(
    damage: Action, s3_server: S3Server, tmp_path: Path
) -> None:
    """Every answer damaged or refused: an error that names the segment, after two tries."""
    async with cut_store(s3_server, tmp_path) as store:
        segment = await stored(store, tmp_path, a_log())
        store.proxy.script(damage, "GetObject", times=None)
        async with reading(store) as reader:
            with pytest.raises(RemoteStorageError) as caught:
                await read_all(reader, segment)
        assert isinstance(caught.value, KINDS.get(type(damage), (Unavailable,)))
        assert str(segment.segment_id.id) in str(caught.value)
        assert store.proxy.requests["GetObject"] >= 2
        store.proxy.forget()
        async with reading(store) as reader:
            assert await read_all(reader, segment) == a_log()


async def test_a_rotten_object_in_the_store(s3_server: S3Server, tmp_path: Path) -> None:
    """Chunks before the damage are served, what is behind it is not: no byte of it is."""
    log = a_log()
    async with cut_store(s3_server, tmp_path) as store:
        segment = await stored(store, tmp_path, log)
        assert isinstance(store.rig.faults, BucketFaults)
        name = object_name(segment.locator(CLUSTER_ID), ObjectKind.LOG)
        store.rig.faults.flip(name, 5 * CHUNK + 10)
        served: list[bytes] = []
        async with reading(store) as reader:
            with pytest.raises(Corrupt, match="chunk 5"):
                await read_all(reader, segment, served)
        found = b"".join(served)
        assert log.startswith(found)
        assert 0 < len(found) <= 5 * CHUNK


@pytest.mark.parametrize("name", ["manifest", "identity"])
@pytest.mark.parametrize("position", [2, 5])
async def test_flipped_bits_in_small_objects_are_found(
    name: str, position: int, s3_server: S3Server, tmp_path: Path
) -> None:
    """No one else knows a manifest's or the identity's checksum: S3's is asked for."""
    operation = BY_NAME[name]
    async with cut_store(s3_server, tmp_path) as store:
        segment = await store.prepared(operation)
        store.proxy.script(FlipAnswer(position=position), "GetObject")
        await operation.run(store.subject, segment)
        assert store.proxy.requests["GetObject"] == 2, "it was not asked again"
        store.proxy.script(FlipAnswer(position=position), "GetObject", times=None)
        with pytest.raises((Unavailable, Corrupt)):
            await operation.run(store.subject, segment)
        await store.nothing_stays()
