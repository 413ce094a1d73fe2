"""The source of an upload: read once, in order, and proven before it counts (H13, G9)."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kip405.crc import crc32c
from kip405.errors import Corrupt, Fenced
from kip405.segments import FileSlice, LogSegmentData
from rsm_plugins.s3.bodies import PIECE_BYTES
from rsm_plugins.s3.calls import Calls, pause
from rsm_plugins.s3.objects import Objects
from rsm_plugins.s3.settings import S3Settings
from rsm_plugins.s3.uploads import LogBody, SourceReader, Upload, Uploads
from rsm_plugins.threads import FileThreads

LOG = bytes(range(100))


@pytest.fixture
async def threads() -> AsyncIterator[FileThreads]:
    made = FileThreads(threads=1)
    yield made
    made.close()


def source(
    path: Path, log: bytes, *, size_bytes: int | None = None, crc: int = 0
) -> LogSegmentData:
    """The slice behind 7 other bytes of a file."""
    file = path / "segment.log"
    file.write_bytes(b"before." + log)
    return LogSegmentData(
        log=FileSlice(path=str(file), position=7, size_bytes=size_bytes or len(log)),
        log_crc32c=crc or crc32c(log),
        indexes=b"",
        indexes_crc32c=0,
    )


async def test_parts_are_read_in_order_and_the_whole_is_proven(
    tmp_path: Path, threads: FileThreads
) -> None:
    reader = SourceReader(source(tmp_path, LOG), threads)
    parts = [await reader.next(40) for _ in range(3)]
    assert b"".join(body.read() for body, _ in parts) == LOG
    assert [crc for _, crc in parts] == [crc32c(body.read()) for body, _ in parts]
    reader.prove()


async def test_a_body_goes_up_as_it_was_read_from_its_first_byte_at_each_try(
    tmp_path: Path, threads: FileThreads
) -> None:
    log = os.urandom(2 * PIECE_BYTES + 2)
    reader = SourceReader(source(tmp_path, log), threads)
    parts = [await reader.next(PIECE_BYTES + 1) for _ in range(2)]
    reader.prove()
    for body, checksum in parts:
        tries = [b"".join([bytes(piece) async for piece in body]) for _ in range(2)]
        assert tries == [body.read()] * 2
        assert (len(body), checksum) == (len(tries[0]), crc32c(tries[0]))
    assert b"".join(body.read() for body, _ in parts) == log


async def test_h13_a_file_cut_short_is_not_read_as_far_as_it_goes(
    tmp_path: Path, threads: FileThreads
) -> None:
    reader = SourceReader(source(tmp_path, LOG, size_bytes=120), threads)
    await reader.next(80)
    with pytest.raises(Fenced, match="has only 100 of 120 bytes"):
        await reader.next(40)


async def test_g09_a_log_that_is_not_the_planned_one_is_refused(
    tmp_path: Path, threads: FileThreads
) -> None:
    data = source(tmp_path, LOG, crc=crc32c(LOG) ^ 1)
    reader = SourceReader(data, threads)
    await reader.next(100)
    with pytest.raises(Corrupt, match="have CRC-32C"):
        reader.prove()


async def test_a_log_of_one_request_goes_up_as_it_is_read_from_its_first_byte_at_each_try(
    tmp_path: Path, threads: FileThreads
) -> None:
    log = os.urandom(2 * PIECE_BYTES + 2)
    body = LogBody(source(tmp_path, log), threads)
    assert len(body) == len(log)
    for _ in range(2):
        assert [len(piece) for piece in body.pieces()] == [PIECE_BYTES, PIECE_BYTES, 2]
        assert b"".join(body.pieces()) == body.read() == log
        assert (await body.for_aiohttp()).read() == log


async def test_g09_the_last_piece_of_another_log_than_the_planned_one_does_not_go_up(
    tmp_path: Path, threads: FileThreads
) -> None:
    log = os.urandom(2 * PIECE_BYTES + 2)
    body = LogBody(source(tmp_path, log, crc=crc32c(log) ^ 1), threads)
    sent: list[bytes] = []
    with pytest.raises(Corrupt, match="have CRC-32C"):
        sent.extend(body.pieces())
    assert b"".join(sent) == log[: 2 * PIECE_BYTES]
    with pytest.raises(Corrupt, match="have CRC-32C"):
        await body.for_aiohttp()


async def test_h13_a_log_of_one_request_that_is_cut_short_does_not_go_up_as_it_is(
    tmp_path: Path, threads: FileThreads
) -> None:
    body = LogBody(source(tmp_path, LOG, size_bytes=120), threads)
    with pytest.raises(Fenced, match="has only 100 of 120 bytes"):
        list(body.pieces())
    (tmp_path / "segment.log").unlink()
    with pytest.raises(Fenced, match="is gone"):
        list(body.pieces())


async def test_a_source_that_fails_gives_its_permit_back(
    tmp_path: Path, threads: FileThreads
) -> None:
    uploads = Uploads(objects(), threads, part_size_bytes=100, concurrency=1)
    data = source(tmp_path, LOG, size_bytes=120)
    with pytest.raises(Fenced):
        await uploads._send(Upload(objects(), "name", "id"), data)
    assert not uploads.permits.locked()


class GoneUpload:
    """S3 as the abort of an upload that is gone already sees it."""

    async def client(self) -> "GoneUpload":
        return self

    async def upload_part(self, *, ChecksumCRC32C: str, **_: Any) -> dict[str, str]:
        return {"ETag": "e", "ChecksumCRC32C": ChecksumCRC32C}

    async def abort_multipart_upload(self, **_: Any) -> None:
        raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "AbortMultipartUpload")

    async def list_parts(self, **_: Any) -> None:
        raise ClientError({"Error": {"Code": "NoSuchUpload"}}, "ListParts")


def objects() -> Objects:
    calls = Calls(
        GoneUpload(),
        max_connections=1,
        call_timeout_ms=1_000,
        attempt_timeout_ms=1_000,
        pause=pause,
    )
    return Objects(calls, S3Settings(bucket="bucket"))


async def test_an_upload_that_is_gone_already_is_aborted() -> None:
    await Upload(objects(), "name", "id").abort_now()
