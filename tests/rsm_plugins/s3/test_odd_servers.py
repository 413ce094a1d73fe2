"""Servers and proxies that answer what S3 would not: nothing they say may hide or lose objects."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kip405.contracts import ExpectedSegment
from kip405.errors import NotFound, Unavailable
from kip405.segments import ByteRange
from rsm_plugins.conformance.subject import Subject
from tests.rsm_plugins.s3.recording import Answer, Asked, failed, recording_server, xml
from tests.rsm_plugins.s3.stores import open_store, subject_of

MIB = 1024 * 1024
KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
PAGE_OF_A_PROXY = Answer(
    status=404, headers={"content-type": "text/html"}, body=b"<html>404 page not found</html>"
)


@pytest.mark.parametrize("page", [PAGE_OF_A_PROXY, Answer(status=404)], ids=["page", "empty"])
async def test_h11_a_404_that_is_not_s3s_own_is_no_missing_object(
    page: Answer, tmp_path: Path
) -> None:
    """A load balancer without its backend, an endpoint that is none: nothing is known."""

    async def answer(asked: Asked) -> Answer:
        return page

    async with recording_server(answer) as server, open_store(server.settings(**KEYS)) as store:
        subject = subject_of(store, tmp_path)
        locator = subject.segment().locator
        expected = ExpectedSegment(locator=locator, log_size_bytes=1, indexes_size_bytes=1)
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            store.read_identity,
            partial(store.read_manifest, locator),
            partial(store.fetch_indexes, locator),
            partial(store.fetch_log_segment, locator, ByteRange(start=0, end=9)),
            partial(store.delete_log_segment_data, locator),
            partial(store.stat, [expected]),
        )
        for call in calls:
            with pytest.raises(Unavailable, match="HTTP 404"):
                await call()


async def test_s3s_own_404_is_a_missing_object(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> Answer:
        return failed(404, "NoSuchKey")

    async with recording_server(answer) as server, open_store(server.settings(**KEYS)) as store:
        assert await store.read_identity() is None
        with pytest.raises(NotFound):
            await store.read_manifest(subject_of(store, tmp_path).segment().locator)


async def test_a_listing_that_breaks_off_is_no_short_listing(tmp_path: Path) -> None:
    """Truncated, and no way on: what was not listed is not gone."""

    async def answer(asked: Asked) -> Answer:
        return xml("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>")

    async with recording_server(answer) as server, open_store(server.settings(**KEYS)) as store:
        with pytest.raises(Unavailable, match="breaks off"):
            _ = [found async for found in store.list_objects("cluster")]


async def test_a_listing_that_goes_in_circles_ends(tmp_path: Path) -> None:
    async def answer(asked: Asked) -> Answer:
        again = "<NextContinuationToken>t</NextContinuationToken>"
        return xml(f"<R><IsTruncated>true</IsTruncated>{again}</R>")

    async with recording_server(answer) as server, open_store(server.settings(**KEYS)) as store:
        with pytest.raises(Unavailable, match="breaks off"):
            _ = [found async for found in store.list_objects("cluster")]


@pytest.mark.parametrize(
    "markers",
    [
        "",
        "<NextKeyMarker>k</NextKeyMarker>",
        "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>",
    ],
    ids=["none", "one", "the same again"],
)
async def test_a_listing_of_uploads_without_an_end_ends(markers: str) -> None:
    async def answer(asked: Asked) -> Answer:
        listed = xml(f"<R><IsTruncated>true</IsTruncated>{markers}</R>")
        return replace(listed, headers={"date": "Sat, 21 Nov 2026 12:00:00 GMT"})

    async with recording_server(answer) as server, open_store(server.settings(**KEYS)) as store:
        with pytest.raises(Unavailable, match="breaks off"):
            await store.sweep(0)


async def test_g3_a_completion_that_fails_after_its_status_is_a_failure(tmp_path: Path) -> None:
    """S3 begins the answer with 200 and may end it with an error."""

    async def answer(asked: Asked) -> Answer:
        if asked.method == "POST" and "uploads" in asked.query:
            return xml("<R><UploadId>u</UploadId></R>")
        if asked.method == "POST":
            return xml("<Error><Code>InternalError</Code><Message>we lost it</Message></Error>")
        if asked.method == "DELETE":
            return Answer(status=204)
        if asked.method == "GET":
            return failed(404, "NoSuchUpload")
        return Answer(headers={"etag": '"e"'})

    settings = KEYS | {"s3_api_call_timeout": 1000, "s3_api_call_attempt_timeout": 1000}
    async with recording_server(answer) as server, open_store(server.settings(**settings)) as store:
        subject: Subject = subject_of(store, tmp_path)
        with pytest.raises(Unavailable):
            await subject.copy(subject.segment(log_size_bytes=17 * MIB))
