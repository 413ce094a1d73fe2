"""The S3 store against a real server: what the conformance kit does not look at."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip405.contracts import Presence
from kip405.errors import Fenced, Unavailable
from kip405.segments import ByteRange, CustomMetadata, SegmentLocator
from rsm_plugins.conformance.subject import StoredSegment, Subject
from rsm_plugins.layout.keys import ObjectKind, object_name, object_names
from rsm_plugins.layout.manifest import Manifest, build_manifest
from rsm_plugins.s3.calls import Connection
from rsm_plugins.s3.manager import S3RemoteStorageManager
from rsm_plugins.s3.settings import SETTINGS, s3_settings
from tests.rsm_plugins.s3.stores import new_uuid, open_store, s3_store, subject_of
from tests.store_servers import S3Server

PREFIX = "pre/fix"


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
async def client(s3_server: S3Server, bucket: str) -> AsyncIterator[Any]:
    """botocore's own client of the bucket."""
    values = SETTINGS.values(s3_server.settings(bucket))
    connection = Connection(s3_settings(values))
    yield await connection.client()
    await connection.close()


@pytest.fixture
async def store(s3_server: S3Server, bucket: str) -> AsyncIterator[S3RemoteStorageManager]:
    async with s3_store(s3_server, bucket, multipart_upload_part_size=5 << 20) as made:
        yield made


@pytest.fixture
def subject(store: S3RemoteStorageManager, tmp_path: Path) -> Subject:
    return subject_of(store, tmp_path)


async def test_objects_describe_themselves(subject: Subject, client: Any, bucket: str) -> None:
    segment = subject.segment(start_offset=7, log_size_bytes=6 << 20)
    data = replace(segment.data, end_offset=99)
    await subject.manager.copy_log_segment_data(segment.locator, data)
    manifest = _manifest(segment)
    await subject.manager.write_manifest(segment.locator, manifest)
    partition = segment.locator.segment_id.topic_id_partition
    for name in object_names(segment.locator).values():
        found = await client.head_object(Bucket=bucket, Key=name)
        metadata = found["Metadata"]
        assert metadata.pop("rlm-version")
        assert metadata == {
            "rlm-cluster": subject.cluster_id,
            "rlm-topic-id": str(partition.topic_id),
            "rlm-partition": "0",
            "rlm-start-offset": "7",
            "rlm-end-offset": "99",
        }


async def test_the_same_manifest_again_is_success_and_another_is_fenced(subject: Subject) -> None:
    segment = subject.segment()
    await subject.copy(segment)
    await subject.manager.write_manifest(segment.locator, b'{"first":1}')
    await subject.manager.write_manifest(segment.locator, b'{"first":1}')
    with pytest.raises(Fenced, match="another one"):
        await subject.manager.write_manifest(segment.locator, b'{"other":2}')
    assert await subject.manager.read_manifest(segment.locator) == b'{"first":1}'


async def test_prefixes_are_stores_of_their_own(
    s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    async with (
        s3_store(s3_server, bucket) as whole,
        _with_prefix(s3_server, bucket, PREFIX) as below,
        _with_prefix(s3_server, bucket, PREFIX + "ed") as beside,
    ):
        segment = subject_of(below, tmp_path)
        made = segment.segment()
        await segment.complete(made)
        assert len(await segment.names()) == 3
        for other in (whole, beside):
            assert await other.read_identity() is None
            assert [found async for found in other.list_objects(segment.cluster_id)] == []
        assert (await segment.ensure_identity()) == await below.read_identity()


def _with_prefix(server: S3Server, bucket: str, prefix: str) -> Any:
    return open_store(server.settings(bucket) | {"rsm.config.prefix": prefix})


async def test_presence_by_head_and_by_listing_agree(
    subject: Subject, store: S3RemoteStorageManager
) -> None:
    partition = subject.partition("presence")
    segments = [
        subject.segment(partition, start_offset=n, log_size_bytes=100 + n) for n in range(12)
    ]
    for segment in segments[:10]:
        await subject.complete(segment)
    await store.delete_log_segment_data(segments[3].locator)
    expected = [subject.expected(segment) for segment in segments]
    expected[5] = replace(expected[5], log_size_bytes=1)
    together = await store.stat(expected)
    alone = [(await store.stat([one]))[0] for one in expected]
    assert list(together) == alone
    found = [one.presence for one in together]
    assert found[3] is found[10] is found[11] is Presence.MISSING
    assert found[5] is Presence.DIFFERENT
    assert found.count(Presence.COMPLETE) == 8


async def test_presence_of_few_among_many(
    s3_server: S3Server, bucket: str, subject: Subject, store: S3RemoteStorageManager
) -> None:
    """Five far apart with thousands of names between are not worth listing it all."""
    partition = subject.partition("sparse")
    between = [subject.locator(partition, number) for number in range(1, 2100)]
    _put_manifests(s3_server, bucket, between)
    segments = [subject.segment(partition, start_offset=n) for n in (0, 1, 5000, 5001, 5002)]
    for segment in segments:
        await subject.complete(segment)
    found = await store.stat([subject.expected(segment) for segment in segments])
    assert [one.presence for one in found] == [Presence.COMPLETE] * 5


async def test_a_bucket_that_is_away_is_not_an_empty_one(
    s3_server: S3Server, tmp_path: Path
) -> None:
    async with s3_store(s3_server, "no-such-bucket") as store:
        subject = subject_of(store, tmp_path)
        segment = subject.segment()
        whole = ByteRange(start=0, end=10)
        for call in (
            store.stat([subject.expected(segment)]),
            store.fetch_log_segment(segment.locator, whole),
            store.read_identity(),
            store.delete_log_segment_data(segment.locator),
            subject.names(),
            store.sweep(0),
        ):
            with pytest.raises(Unavailable, match="no-such-bucket"):
                await call
        states = {finding.state for finding in await store.inspect()}
        assert all(state.startswith("unknown: ") for state in states)


async def test_a_wrong_secret_is_unavailable_and_unseen(
    s3_server: S3Server, bucket: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    wrong = "wrong-secret-that-nobody-sees"
    settings = s3_server.settings(bucket) | {"rsm.config.aws.secret.access.key": wrong}
    async with open_store(settings) as store:
        with pytest.raises(Unavailable, match="mend the credentials") as bad:
            await store.read_identity()
    assert wrong not in str(bad.value) + caplog.text
    assert "Signature=" not in caplog.text
    assert "authorization" not in caplog.text.lower()


async def test_entropy_folders_are_found(subject: Subject, store: S3RemoteStorageManager) -> None:
    segments: list[StoredSegment] = []
    for bits in (0, 3, 8):
        custom = CustomMetadata(store_id=new_uuid(), entropy_bits=bits).encode()
        segments.append(subject.segment(subject.partition(f"t{bits}"), custom_metadata=custom))
        await subject.complete(segments[-1])
    names = await subject.names()
    assert len(names) == 9
    assert names == sorted(names)
    for segment in segments:
        partition = segment.locator.segment_id.topic_id_partition
        assert len(await subject.names(partition)) == 3


def _put_manifests(server: S3Server, bucket: str, locators: list[SegmentLocator]) -> None:
    """Many objects at once, as the files that the server keeps them in."""
    for locator in locators:
        path = server.folder / "buckets" / bucket / object_name(locator, ObjectKind.MANIFEST)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")


def _manifest(segment: StoredSegment) -> bytes:
    partition = segment.locator.segment_id.topic_id_partition
    return build_manifest(
        Manifest(
            cluster_id=segment.locator.cluster_id,
            store_id=new_uuid(),
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=segment.locator.segment_id.id,
            start_offset=segment.locator.start_offset,
            end_offset=99,
            remote_log_start_offset=0,
            layout="kafka",
            software="test",
            objects=(),
            segment_metadata=b"x",
        )
    )
