"""Uploads in parts: nothing left of those that failed or were given up, and old ones swept."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip405.crc import crc32c
from kip405.errors import Corrupt, NotFound, Unavailable
from kip405.segments import ByteRange
from rsm_plugins.layout.keys import ObjectKind, object_name
from rsm_plugins.s3.calls import Connection, pause
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.settings import SETTINGS, s3_settings
from rsm_plugins.s3.uploads import PARTS_MAX, SETTLE_SECONDS, part_size
from rsm_plugins.threads import FileThreads
from tests.rsm_plugins.s3.recording import Answer, Asked, failed, recording_server, xml
from tests.rsm_plugins.s3.stores import open_store, subject_of
from tests.store_servers import S3Server

MIB = 1 << 20
BEGUN = xml(
    "<InitiateMultipartUploadResult><UploadId>up-1</UploadId></InitiateMultipartUploadResult>"
)
COMPLETED = xml("<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
PART = Answer(headers={"etag": '"e"'})


def is_abort(asked: Asked) -> bool:
    return asked.method == "DELETE" and "uploadId" in asked.query


def is_begin(asked: Asked) -> bool:
    return asked.method == "POST" and "uploads" in asked.query


def is_part(asked: Asked) -> bool:
    return asked.method == "PUT" and "partNumber" in asked.query


def is_complete(asked: Asked) -> bool:
    return asked.method == "POST" and "uploadId" in asked.query


async def ordinary(asked: Asked) -> Answer:
    """A server that takes everything."""
    if is_begin(asked):
        return BEGUN
    if asked.method == "GET":
        return failed(404, "NoSuchUpload")
    return COMPLETED if is_complete(asked) else PART


def keys(**more: object) -> dict[str, object]:
    return {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "s3_multipart_upload_part_size": 5 * MIB,
        **more,
    }


@pytest.fixture
async def client_and_bucket(s3_server: S3Server) -> AsyncIterator[tuple[Any, str]]:
    bucket = s3_server.bucket()
    connection = Connection(s3_settings(SETTINGS.values(s3_server.settings(bucket))))
    yield await connection.client(), bucket
    await connection.close()


async def test_a_cancelled_copy_leaves_no_upload(
    s3_server: S3Server, client_and_bucket: tuple[Any, str], tmp_path: Path
) -> None:
    client, bucket = client_and_bucket
    rows = s3_server.settings(bucket) | {"rsm.config.s3.multipart.upload.part.size": 5 * MIB}
    async with open_store(rows) as store:
        subject = subject_of(store, tmp_path)
        segment = subject.segment(log_size_bytes=40 * MIB)
        cancelled = 0
        for wait in range(5):
            copying = asyncio.ensure_future(subject.copy(segment))
            for _ in range(1000):
                if copying.done() or await _uploads(client, bucket):
                    break
            await asyncio.sleep(wait / 100)
            cancelled += copying.cancel()
            await asyncio.wait((copying,))
            assert await _uploads(client, bucket) == []
        assert cancelled > 0
        await subject.complete(segment)
        assert await subject.fetch(segment.locator, 0, 64 * MIB) == segment.log


async def test_an_upload_that_comes_back_is_aborted_again(tmp_path: Path) -> None:
    """The server was still receiving a part when the upload was aborted, and lists the upload again
    a moment after the abort.
    """
    sending = asyncio.Event()
    aborted_at: list[float] = []

    async def answer(asked: Asked) -> Answer:
        now = asyncio.get_running_loop().time()
        if is_part(asked):
            sending.set()
            await asyncio.Event().wait()
        if is_abort(asked):
            aborted_at.append(now)
        if asked.method == "GET" and len(aborted_at) == 1:
            is_back = now - aborted_at[0] > SETTLE_SECONDS / 2
            return xml("<Parts></Parts>") if is_back else failed(404, "NoSuchUpload")
        return await ordinary(asked)

    async with recording_server(answer) as server, open_store(server.settings(**keys())) as store:
        subject = subject_of(store, tmp_path)
        copying = asyncio.ensure_future(subject.copy(subject.segment(log_size_bytes=6 * MIB)))
        await sending.wait()
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert len(aborted_at) == 2


async def test_an_upload_given_out_to_nobody_is_aborted(tmp_path: Path) -> None:
    """Cancelled while the server is about to answer with the upload's id."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(asked: Asked) -> Answer:
        if is_begin(asked):
            begun.set()
            await go_on.wait()
        return await ordinary(asked)

    async with recording_server(answer) as server, open_store(server.settings(**keys())) as store:
        subject = subject_of(store, tmp_path)
        copying = asyncio.ensure_future(subject.copy(subject.segment(log_size_bytes=6 * MIB)))
        await begun.wait()
        copying.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert [one.query["uploadId"] for one in server.asked if is_abort(one)] == ["up-1"]
        assert not any(is_part(one) for one in server.asked)


async def test_a_copy_that_is_not_what_was_planned_is_aborted(tmp_path: Path) -> None:
    async with (
        recording_server(ordinary) as server,
        open_store(server.settings(**keys())) as store,
    ):
        subject = subject_of(store, tmp_path)
        segment = subject.segment(log_size_bytes=11 * MIB)
        wrong = replace(segment.data, log_crc32c=segment.data.log_crc32c ^ 1)
        with pytest.raises(Corrupt, match="CRC-32C"):
            await store.copy_log_segment_data(segment.locator, wrong)
        assert [is_abort(one) for one in server.asked].count(True) == 1
        assert not any(is_complete(one) for one in server.asked)
        written = {one.path for one in server.asked if one.method == "PUT" and not one.query}
        assert written == set()


async def test_no_more_parts_in_memory_than_allowed(tmp_path: Path) -> None:
    """Of two copies together; every part is proved by its checksum."""
    at_once, most = 0, 0
    full = asyncio.Event()

    async def answer(asked: Asked) -> Answer:
        nonlocal at_once, most
        if is_part(asked):
            at_once += 1
            most = max(most, at_once)
            if at_once == 3:
                full.set()
            await full.wait()
            await asyncio.sleep(0.01)
            at_once -= 1
        return await ordinary(asked)

    settings = keys(s3_upload_concurrency=3)
    async with (
        recording_server(answer) as server,
        open_store(server.settings(**settings)) as store,
    ):
        subject = subject_of(store, tmp_path)
        segments = [subject.segment(log_size_bytes=22 * MIB) for _ in range(2)]
        await asyncio.gather(*(subject.copy(segment) for segment in segments))
        parts = [one for one in server.asked if is_part(one)]
        assert (len(parts), most) == (10, 3)
        assert all(part.headers["x-amz-checksum-crc32c"] == _text_of(part.body) for part in parts)
        assert not any("expect" in part.headers for part in parts)
        assert {part.headers["x-amz-content-sha256"] for part in parts} == {"UNSIGNED-PAYLOAD"}


def _text_of(body: bytes) -> str:
    return base64.b64encode(crc32c(body).to_bytes(4)).decode()


@pytest.mark.parametrize("checksum_is_ours", [True, False])
async def test_a_completion_whose_answer_was_lost(tmp_path: Path, checksum_is_ours: bool) -> None:
    """The repeat hears NoSuchUpload; the object shows whether it was ours."""
    checksums: list[str] = []

    async def answer(asked: Asked) -> Answer:
        if is_part(asked):
            checksums.append(asked.headers["x-amz-checksum-crc32c"])
        if is_complete(asked):
            completions = sum(is_complete(one) for one in server.asked)
            return failed(500, "InternalError") if completions == 1 else failed(404, "NoSuchUpload")
        if asked.method == "HEAD":
            joined = b"".join(
                base64.b64decode(one) for one in sorted(checksums, key=_order(server))
            )
            composite = base64.b64encode(crc32c(joined).to_bytes(4)).decode() + "-3"
            return Answer(
                headers={"x-amz-checksum-crc32c": composite if checksum_is_ours else "AAAAAA==-3"}
            )
        return await ordinary(asked)

    async with recording_server(answer) as server, open_store(server.settings(**keys())) as store:
        subject = subject_of(store, tmp_path)
        segment = subject.segment(log_size_bytes=11 * MIB)
        if checksum_is_ours:
            await subject.copy(segment)
        else:
            with pytest.raises(Unavailable, match="NoSuchUpload"):
                await subject.copy(segment)


def _order(server: Any) -> Any:
    numbers = {
        one.headers["x-amz-checksum-crc32c"]: int(one.query["partNumber"])
        for one in server.asked
        if is_part(one)
    }
    return lambda checksum: numbers[checksum]


async def test_stale_uploads_of_ours_are_swept(
    s3_server: S3Server, client_and_bucket: tuple[Any, str], tmp_path: Path
) -> None:
    client, bucket = client_and_bucket
    rows = s3_server.settings(bucket) | {"rsm.config.prefix": "ours"}
    settings = s3_settings(SETTINGS.values(rows))
    eager = replace(settings, stale_upload_age_ms=-10_000)  # as if all had begun long ago
    threads = FileThreads(2)
    store = S3RemoteStorageManager(eager, threads, pause)
    subject = subject_of(store, tmp_path)
    name = object_name(subject.segment().locator, ObjectKind.LOG)
    foreign = [name, f"ours/{name}.bak", "ours/else", f"oursnot/{name}"]
    for key in (f"ours/{name}", *foreign):
        await client.create_multipart_upload(Bucket=bucket, Key=key)
    assert await store.sweep(3_600_000) == 0  # the grace is what keeps it
    assert await store.sweep(-10_000) == 1
    assert sorted(await _uploads(client, bucket)) == sorted(foreign)
    await store.close()
    threads.close()


async def test_only_old_uploads_are_swept_and_on_every_page(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> Answer:
        if is_abort(asked):
            return Answer(status=204)
        if "uploadId" in asked.query:
            return failed(404, "NoSuchUpload")
        page = 2 if "key-marker" in asked.query else 1
        more = "<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"
        more += "<NextUploadIdMarker>u</NextUploadIdMarker>"
        uploads = "".join(
            f"<Upload><Key>{name}</Key><UploadId>{page}-{when[8:10]}</UploadId>"
            f"<Initiated>{when}</Initiated></Upload>"
            for when in ("2026-11-20T00:00:00.000Z", "2026-11-21T11:59:00.000Z")
        )
        text = f"<R>{more if page == 1 else ''}{uploads}</R>"
        return replace(xml(text), headers={"date": "Sat, 21 Nov 2026 12:00:00 GMT"})

    async with recording_server(answer) as server, open_store(server.settings(**keys())) as store:
        name = object_name(subject_of(store, tmp_path).segment().locator, ObjectKind.LOG)
        assert await store.sweep(0) == 2
        aborted = [one.query["uploadId"] for one in server.asked if is_abort(one)]
        assert aborted == ["1-20", "2-20"]


async def test_a_delete_ends_a_copy_of_the_same_attempt(
    s3_server: S3Server, client_and_bucket: tuple[Any, str], tmp_path: Path
) -> None:
    client, bucket = client_and_bucket
    async with open_store(s3_server.settings(bucket)) as store:
        segment = subject_of(store, tmp_path).segment()
        key = object_name(segment.locator, ObjectKind.LOG)
        await client.create_multipart_upload(Bucket=bucket, Key=key)
        await store.delete_log_segment_data(segment.locator)
        assert await _uploads(client, bucket) == []
        with pytest.raises(NotFound):
            await store.fetch_log_segment(segment.locator, ByteRange(start=0, end=1))


def test_part_sizes() -> None:
    assert part_size(100 * MIB, 16 * MIB) == 16 * MIB
    huge = 400 << 30
    assert -(-huge // part_size(huge, 16 * MIB)) <= PARTS_MAX


async def _uploads(client: Any, bucket: str) -> list[str]:
    answer = await client.list_multipart_uploads(Bucket=bucket)
    return [item["Key"] for item in answer.get("Uploads", ())]
