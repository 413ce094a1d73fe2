"""Options that no server here shows, as the requests that reach one."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rsm_plugins.s3.calls import READ_BUFFER_BYTES, BulkSession, Connection
from rsm_plugins.s3.settings import CredentialSettings, S3Settings
from tests.rsm_plugins.s3.recording import Asked, recording_server
from tests.rsm_plugins.s3.stores import open_store, subject_of
from tests.rsm_plugins.s3.test_uploads import is_begin, is_part, keys, ordinary

GIVEN = CredentialSettings(access_key="k", secret_key="s")


async def copied(folder: Path, log_size_bytes: int, **more: object) -> list[Asked]:
    """What a server is asked for a whole segment."""
    async with (
        recording_server(ordinary) as server,
        open_store(server.settings(**keys(**more))) as store,
    ):
        subject = subject_of(store, folder)
        await subject.complete(subject.segment(log_size_bytes=log_size_bytes))
        return server.asked


@pytest.mark.parametrize("log_size_bytes", [100, 6 << 20], ids=["one request", "parts"])
async def test_storage_class_and_encryption(log_size_bytes: int, tmp_path: Path) -> None:
    asked = await copied(
        tmp_path,
        log_size_bytes,
        s3_storage_class="STANDARD_IA",
        s3_sse_type="aws:kms",
        s3_sse_kms_key_id="key-1",
    )
    creations = [one for one in asked if is_begin(one) or (one.method == "PUT" and not one.query)]
    assert len(creations) == 3
    for one in creations:
        is_manifest = one.path.endswith(".rsm-manifest")
        assert one.headers["x-amz-server-side-encryption"] == "aws:kms"
        assert one.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
        expected = None if is_manifest else "STANDARD_IA"
        assert one.headers.get("x-amz-storage-class") == expected
        assert one.headers["x-amz-meta-rlm-partition"] == "0"
        assert one.headers.get("if-none-match") == ("*" if is_manifest else None)


async def test_nothing_is_said_where_nothing_is_set(tmp_path: Path) -> None:
    for one in await copied(tmp_path, 100):
        assert "x-amz-storage-class" not in one.headers
        assert "x-amz-server-side-encryption" not in one.headers


async def test_single_objects_are_proved_by_their_checksum(tmp_path: Path) -> None:
    asked = [one for one in await copied(tmp_path, 6 << 20) if one.method == "PUT"]
    assert sum(is_part(one) for one in asked) == 2
    for one in asked:
        assert one.headers["x-amz-checksum-crc32c"]
        assert one.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert "x-amz-checksum-crc32c" in one.headers["authorization"]


async def _address(**more: Any) -> str:
    settings = S3Settings(bucket="bucket", credentials=GIVEN, **more)
    connection = Connection(settings)
    client = await connection.client()
    url = await client.generate_presigned_url(
        "get_object", Params={"Bucket": "bucket", "Key": "a/b"}
    )
    await connection.close()
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


async def test_addresses() -> None:
    amazon = await _address(region="eu-central-1")
    assert amazon == "https://bucket.s3.eu-central-1.amazonaws.com/a/b"
    path_style = await _address(region="eu-central-1", path_style=True)
    assert path_style == "https://s3.eu-central-1.amazonaws.com/bucket/a/b"
    other = await _address(endpoint="https://store.example:9000", path_style=True)
    assert other == "https://store.example:9000/bucket/a/b"
    host_style = await _address(endpoint="https://store.example:9000")
    assert host_style == "https://bucket.store.example:9000/a/b"


async def test_bodies_are_read_in_large_pieces() -> None:
    """The library's own names carry this; a release that renames them makes reads dearer."""
    async with BulkSession(max_pool_connections=1) as session:
        assert (await session._get_session(None))._read_bufsize == READ_BUFFER_BYTES
